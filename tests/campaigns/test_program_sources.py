"""Closure of a Go program: exactly the packages that Go builds the program from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testbed import closure

DATAPLANE = closure.ROOT / "dataplane"
MODULE = "hotbed/dataplane/"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages() -> dict[str, list[Path]]:
    """Return for each program the folders of the module's packages that it is built from."""
    form = '{{.ImportPath}} {{join .Deps " "}}'
    listed = subprocess.run(
        [closure.ROOT / "tools" / "go", "list", "-f", form, "./cmd/..."],
        cwd=DATAPLANE,
        check=True,
        capture_output=True,
        text=True,
    )
    programs = map(str.split, listed.stdout.splitlines())
    return {
        names[0].rpartition("/")[2]: [
            DATAPLANE / name.removeprefix(MODULE) for name in names if name.startswith(MODULE)
        ]
        for names in programs
    }


@pytest.mark.parametrize("program", sorted(path.name for path in (DATAPLANE / "cmd").iterdir()))
def test_a_program_s_sources_are_those_that_it_is_built_from(program, packages):
    found = set(closure.files([f"dataplane/cmd/{program}"]).values())
    needed = {path for package in packages[program] for path in package.glob("*.go")}
    needed = {path for path in needed if not path.name.endswith("_test.go")}
    assert found == needed | {DATAPLANE / "go.mod", DATAPLANE / "go.sum"}
