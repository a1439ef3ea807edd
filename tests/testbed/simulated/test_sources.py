"""Refusal of a simulator built from other sources: a run's identity includes the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import StoreError
from testbed.simulated import SimulatedCeph, sources
from testbed.simulated.process import PROGRAM
from testbed.spec import TestbedSpec
from tests.errors import raises


def test_another_build_is_refused(spec: TestbedSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "digest", lambda _: "0" * 64)
    with raises(StoreError, "holds", "make setup"):
        SimulatedCeph(spec)
    with raises(StoreError, "other sources"):
        sources.check("", PROGRAM)  # built without a source digest
    sources.check("0" * 64, PROGRAM)
    SimulatedCeph(spec, program=PROGRAM).close()  # a user's own program is not checked


def test_a_program_tells_what_it_was_built_from(tmp_path: Path) -> None:
    assert sources.built_from(PROGRAM) == sources.digest()
    silent = tmp_path / "hotbedsim"
    silent.write_text("#!/bin/sh\necho 1\n")
    silent.chmod(0o755)
    assert sources.built_from(silent) == ""
    silent.write_text("#!/bin/sh\nexit 3\n")
    with raises(StoreError, "does not tell its version"):
        sources.built_from(silent)
