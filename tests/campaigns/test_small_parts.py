"""Estimates, judgements, and user-visible texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_kinds import job

from campaigns.engine.estimate import took_s
from campaigns.engine.judge import MachineLoad, spoiled, stalled
from campaigns.grounds.live import load_between
from schemas.campaign import Limits

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("ended", "seconds"), [("12:02", 125), ("14:02", 120), ("10:02", 120)])
def test_a_run_takes_what_its_phases_say_if_the_clock_was_set(ended, seconds):
    asked = job({}).model_copy(update={"started_at": "2026-01-01T12:00:00+00:00"})
    made = asked.record("interrupted", None, {"clean": 20.0, "workload": 100.0})
    ended_at = f"2026-01-01T{ended}:05+00:00"
    assert took_s(made.model_copy(update={"ended_at": ended_at})) == seconds


def test_a_quiet_machine_does_not_spoil_and_an_unknown_one_neither():
    limits = Limits()
    assert spoiled(MachineLoad(0.3, 0.02, 0.8), limits) is None
    assert spoiled(MachineLoad(), limits) is None
    assert "2.1 %" in (spoiled(MachineLoad(0.0, 0.021, 0.0), limits) or "")
    assert "0.31 cores" in (spoiled(MachineLoad(0.31, 0.0, 0.0), limits) or "")
    assert "81 %" in (spoiled(MachineLoad(0.0, 0.0, 0.81), limits) or "")
    assert spoiled(MachineLoad(stalled=0.05), limits) is None
    assert "19 %" in (spoiled(MachineLoad(stalled=0.19), limits) or "")


def test_a_machine_that_stands_still_shows_in_the_recording():
    quiet = [1000.0 + 1.01 * number for number in range(50)]
    assert stalled(quiet, 1.0) == 0.0
    halted = [wall + (8.0 if wall > 1020 else 0.0) for wall in quiet]
    assert stalled(halted, 1.0) == pytest.approx(9.01 / (halted[-1] - halted[0]))
    # If one look takes three seconds, the recording is coarse, not halted.
    assert stalled([3.0 * number for number in range(20)], 1.0) == 0.0
    assert stalled([1000.0], 1.0) is None
    assert stalled([], 1.0) is None


def test_load_is_read_from_the_nodes_where_the_site_cannot_tell():
    before = {"a": "cpu 0 0 0 0 0 0 0 0 0 0\n", "b": "cpu 0 0 0 0 0 0 0 0 0 0\n", "gone": ""}
    after = {
        "a": "cpu 50 0 10 30 5 0 0 5 0 0\ncpu0 1",
        "b": "cpu 0 0 0 100 0 0 0 0 0 0\n",
        "gone": "",
    }
    load = load_between(before, after, "a")
    assert load == MachineLoad(None, 0.05, 0.6)
    assert load_between({}, {}, "a") == MachineLoad()


def test_the_engine_needs_no_librados_nor_what_is_slow_to_import():
    code = (
        "import sys, campaigns.engine.session, campaigns.grounds.testbed; "
        "import campaigns.papers.dlr.live; "
        "print([m for m in ('rados', 'pandas', 'papermill', 'scipy', 'matplotlib') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"
