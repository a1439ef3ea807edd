"""A run's identity covers every package that its programs are built from."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.mos.live import ground as mos
from campaigns.prioritymeister import local_testbed as prioritymeister
from campaigns.twochoice.live import ground as twochoice
from testbed.simulated import sources

ROOT = Path(__file__).resolve().parents[2]
DATAPLANE = ROOT / "dataplane"
MODULE = "hotbed/dataplane/"

pytestmark = pytest.mark.slow


def packages(program: str) -> list[str]:
    """Folders below `dataplane` of the module's packages that a program imports, itself too."""
    listed = subprocess.run(
        [ROOT / "tools" / "go", "list", "-deps", f"./cmd/{program}"],
        cwd=DATAPLANE,
        check=True,
        capture_output=True,
        text=True,
    )
    found = [name for name in listed.stdout.split() if name.startswith(MODULE)]
    assert f"{MODULE}cmd/{program}" in found
    return [name.removeprefix(MODULE) for name in found]


@pytest.mark.parametrize(
    ("program", "covered"),
    [
        ("cosdrive", mos.PROGRAMS),
        ("nfsproxy", prioritymeister.PROGRAMS),
        ("replay", prioritymeister.PROGRAMS),
        ("twochoicebench", twochoice.PROGRAMS),
        ("twochoiced", twochoice.PROGRAMS),
    ],
)
def test_of_programs_on_a_testbed(program: str, covered: Sequence[str]) -> None:
    left_out = [
        package
        for package in packages(program)
        if not any(package == folder or package.startswith(f"{folder}/") for folder in covered)
    ]
    assert left_out == []


@pytest.mark.parametrize("program", ["hotbedsim", "pmsim", "tcsim"])
def test_of_simulators(program: str) -> None:
    covered = set(sources._sources(DATAPLANE, program))
    needed = {
        file
        for package in packages(program)
        for file in (DATAPLANE / package).glob("*.go")
        if not file.name.endswith("_test.go")
    }
    assert needed - covered == set()
