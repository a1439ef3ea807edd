"""tools/setup.sh in a made-up clone, with programs that only record their calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

COPIED = (
    *("requirements.lock", "pyproject.toml", "testbed/closure.py", "tools/setup.sh", "tools/go"),
    "tools/dataplane.sh",
    *("tools/bootstrap.lock", "tools/sim.lock", "tools/go.lock", "tools/debian-packages.txt"),
    *("dataplane/go.mod", "dataplane/cmd/hotbedsim/main.go", "dataplane/cmd/pmsim/main.go"),
    "dataplane/tests/cmd/memnfs/main.go",
)
PROGRAM = """#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>'{calls}'
case "$name $*" in
    *"-m venv"*) mkdir -p .venv/bin; for one in python uv hotbed; do cp "$0" .venv/bin/$one; done ;;
    *sys.executable*) echo "$0" ;;
    "go env"*) echo go1.99 ;;
    "go build"*) for one; do case $one in *.new) cp "$0" "$one" ;; esac; done ;;
esac
"""


class MadeUpClone:
    """Clone with programs that record their calls."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self.calls_file = folder / "clone", folder / "calls"
        for name in COPIED:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, self.folder / name)
        (self.folder / "tools" / "gotools").mkdir()
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in ("sudo", "apt-get", "dpkg", "dpkg-query", "go", "python"):
            (self.programs / name).write_text(PROGRAM.format(calls=self.calls_file))
            (self.programs / name).chmod(0o755)

    def set_up(self, *mode: str) -> tuple[list[str], str]:
        """Return the calls of programs, and what was printed."""
        self.calls_file.write_text("")
        python = str(self.programs / "python")
        path = f"{self.programs}:/usr/bin:/bin"
        done = subprocess.run(
            [self.folder / "tools" / "setup.sh", *mode],
            env=os.environ | {"PATH": path, "HOTBED_PYTHON": python},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return self.calls_file.read_text().splitlines(), done.stdout


@pytest.fixture
def clone(root: Path, tmp_path: Path) -> MadeUpClone:
    return MadeUpClone(root, tmp_path)


def named(calls: list[str], *programs: str) -> list[str]:
    return [call for call in calls if call.partition(" ")[0] in programs]


def built(clone: MadeUpClone) -> set[str]:
    return {path.name for path in (clone.folder / "dataplane" / "bin").iterdir()}


def test_a_simulation_is_set_up_without_root_and_in_part(clone: MadeUpClone) -> None:
    calls, printed = clone.set_up("sim")
    assert not named(calls, "sudo", "apt-get", "dpkg", "dpkg-query")
    (sync,) = (call for call in named(calls, "uv") if " sync " in call)
    assert "tools/sim.lock" in sync and "requirements.lock" not in sync
    assert built(clone) == {"hotbedsim"}
    assert printed.count("source .venv/bin/activate") == 1
    again, printed = clone.set_up("sim")
    assert not printed
    assert not [call for call in named(again, "uv", "go") if " sync " in call or " build " in call]


def test_the_rest_is_added_and_kept_by_a_simulation(clone: MadeUpClone) -> None:
    clone.set_up("sim")
    calls, _ = clone.set_up("notebook")
    assert not named(calls, "sudo", "apt-get", "dpkg", "dpkg-query")
    assert [call for call in named(calls, "uv") if " sync " in call and "requirements.lock" in call]
    assert built(clone) == {"hotbedsim", "pmsim", "memnfs"}
    calls, printed = clone.set_up("sim")
    assert not printed


def test_testbeds_need_debians_packages(clone: MadeUpClone) -> None:
    calls, _ = clone.set_up()
    assert named(calls, "sudo", "apt-get")
