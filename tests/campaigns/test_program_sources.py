"""Closure of a Go program: exactly the packages that Go builds the program from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testbed import closure

DATAPLANE = closure.ROOT / "dataplane"
MODULE = "hotbed/dataplane/"

pytestmark = pytest.mark.slow


def packages(program: str) -> list[Path]:
    """Return the folders of the module's packages that a program imports, including its own."""
    listed = subprocess.run(
        [closure.ROOT / "tools" / "go", "list", "-deps", f"./cmd/{program}"],
        cwd=DATAPLANE,
        check=True,
        capture_output=True,
        text=True,
    )
    found = [name for name in listed.stdout.split() if name.startswith(MODULE)]
    assert f"{MODULE}cmd/{program}" in found
    return [DATAPLANE / name.removeprefix(MODULE) for name in found]


@pytest.mark.parametrize("program", sorted(path.name for path in (DATAPLANE / "cmd").iterdir()))
def test_a_program_s_sources_are_those_that_it_is_built_from(program):
    found = set(closure.files([f"dataplane/cmd/{program}"]).values())
    needed = {path for package in packages(program) for path in package.glob("*.go")}
    needed = {path for path in needed if not path.name.endswith("_test.go")}
    assert found == needed | {DATAPLANE / "go.mod", DATAPLANE / "go.sum"}
