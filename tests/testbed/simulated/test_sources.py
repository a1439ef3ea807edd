"""A simulator that was built from other sources than there are is refused: a run's identity holds
the sources."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from schemas.errors import StoreError
from testbed.simulated import SimulatedCeph, sources
from testbed.simulated.process import PROGRAM
from testbed.spec import TestbedSpec

TOOL = sources.DATAPLANE.parent / "tools" / "simulator-sources"


def small_tree(folder: Path) -> Path:
    parts = ("go.mod", "sim/a.go", "sim/ceph/b.go", "sim/burst/c.go", "sim/a_test.go", "bin/x")
    for name in (*parts, "cmd/other/m.go", "twochoice/d.go", "twochoice/protocol/e.go"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"// {name}\n")
    return folder


@pytest.mark.parametrize("program", ["hotbedsim", "pmsim", "tcsim"])
def test_the_digest_is_the_tools(program: str) -> None:
    said = subprocess.run([TOOL, program], capture_output=True, text=True, check=True).stdout
    assert sources.digest(program=program) == said.strip() and len(said) == 65


def test_every_source_counts_and_nothing_else(tmp_path: Path) -> None:
    tree = small_tree(tmp_path)
    before = sources.digest(tree)
    for name in ("sim/a_test.go", "bin/x", "cmd/other/m.go", "sim/burst/c.go", "twochoice/d.go"):
        (tree / name).write_text("changed")
    assert sources.digest(tree) == before
    (tree / "sim/ceph/b.go").write_text("changed")
    changed = sources.digest(tree)
    assert changed != before
    (tree / "sim/ceph/b.go").rename(tree / "sim/ceph/c.go")
    assert sources.digest(tree) not in (before, changed)


def test_a_simulator_s_digest_is_of_its_own_sources(tmp_path: Path) -> None:
    tree = small_tree(tmp_path)
    before = sources.digest(tree, "tcsim")
    for name in ("sim/ceph/b.go", "twochoice/protocol/e.go"):
        (tree / name).write_text("changed")
    assert sources.digest(tree, "tcsim") == before
    for name in ("sim/a.go", "sim/burst/c.go", "twochoice/d.go"):
        (tree / name).write_text("changed")
        last, before = before, sources.digest(tree, "tcsim")
        assert before != last


def test_another_build_is_refused(spec: TestbedSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_digest", lambda _: "0" * 64)
    with pytest.raises(StoreError, match=r"other sources than .* holds: run `make setup`"):
        SimulatedCeph(spec)
    with pytest.raises(StoreError, match="other sources"):
        sources.check("", PROGRAM)  # built without saying
    sources.check("0" * 64, PROGRAM)
    SimulatedCeph(spec, program=PROGRAM).close()  # one's own is not asked


def test_a_program_tells_what_it_was_built_from(tmp_path: Path) -> None:
    assert sources.built_from(PROGRAM) == sources.digest()
    silent = tmp_path / "hotbedsim"
    silent.write_text("#!/bin/sh\necho 1\n")
    silent.chmod(0o755)
    assert sources.built_from(silent) == ""
    silent.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(StoreError, match="does not tell its version"):
        sources.built_from(silent)
