"""Whole campaigns in real processes on the fake ground: faults, kills, resuming."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_process import QUICK_CELL
from tiny_campaigns import ONE_CELL

from campaigns.engine import attempts
from campaigns.engine.display import CampaignResult, Progress
from campaigns.engine.session import Request, dry_run, run
from campaigns.engine.store import Ledger, RunStore
from schemas.run import Run
from testbed.faults import LOG, RECORD, Fault

ROOT = Path(__file__).resolve().parents[2]
ENGINE = [sys.executable, str(Path(__file__).with_name("engine_process.py"))]


LONG = {"duration_s": 300, "interval_s": 0.01}


IN_PROCESS = pytest.mark.usefixtures("in_process")


def go(path: Path, **request: Any) -> CampaignResult:
    """Run a campaign: its cells in processes, or in this one for tests that are `IN_PROCESS`."""
    asked = Request(str(path), artifacts=path.parent / "artifacts", **request)
    return run(asked, progress=Progress(), command=QUICK_CELL, in_process=True)


def runs(path: Path) -> list[Run]:
    return sorted(
        RunStore(path.parent / "artifacts" / "tiny").runs(),
        key=lambda run: (run.run_id, run.attempt),
    )


def events(path: Path) -> list[str]:
    ledger = Ledger(path.parent / "artifacts" / "tiny" / "ledger.jsonl")
    return [record["event"] for record in ledger.records()]


def trace(path: Path) -> list[str]:
    return (path.parent / "trace").read_text().splitlines()


def test_a_run_is_a_folder_that_explains_itself(campaign_file):
    path = campaign_file(grids=ONE_CELL)
    assert go(path).ok
    (found,) = runs(path)
    assert (found.status, found.attempt, found.ground) == ("done", 1, "fake")
    assert found.parameters["controller"] == "dlr"
    assert found.provenance.versions["ceph"] == "16.2.15"
    assert found.osd_count == 8
    assert set(found.phases_s) >= {"clean", "prefill", "settle", "lead", "workload", "stop"}
    folder = path.parent / "artifacts" / "tiny" / found.run_id / "attempt-1"
    names = {entry.name for entry in folder.iterdir()}
    assert {"run.json", "summary.json", "job.json", "logs"} <= names
    assert trace(path) == [
        *("clean", "prefill", "drop_caches"),
        *("disturbance start", "disturbance", "controller start", "controller"),
        *("recorder start", "recorder", "steady", "usage start", "usage", "workload", "usage stop"),
        *("recorder stop", "controller stop", "disturbance stop", "collect"),
    ]


@IN_PROCESS
def test_no_cell_begins_on_a_testbed_with_a_fault_by_hand(campaign_file, tmp_path):
    path = campaign_file(grids=ONE_CELL)
    fault = Fault("osd", "osd0", {}, time.time())
    (tmp_path / RECORD).write_text(json.dumps({"faults": [fault.as_json()], "watcher": None}))
    result = go(path)
    assert not result.ok
    assert result.gave_up is not None
    assert fault.what() in result.gave_up and "hotbed fault clear" in result.gave_up
    assert runs(path) == []
    (tmp_path / RECORD).unlink()
    assert go(path).ok


@IN_PROCESS
@pytest.mark.parametrize("killed", [False, True])
def test_a_run_with_a_fault_by_hand_is_spoiled(campaign_file, tmp_path, killed):
    """The fault begins and ends while the cell runs, which an engine that is killed adopts."""
    path = campaign_file(grids=ONE_CELL, spoiled_retries=0)
    fault = Fault("load", "osd0", {"load": "hotspot"}, 0.0, time.time() + 3600)
    (tmp_path / LOG).write_text(json.dumps(fault.as_json()) + "\n")
    if killed:
        (tmp_path / LOG).rename(tmp_path / "later")
        assert go(path).ok
        (done,) = (path.parent / "artifacts" / "tiny").glob("*/attempt-1")
        done.rename(done.with_name(".attempt-1.partial"))
        (tmp_path / "later").rename(tmp_path / LOG)
    assert not go(path).ok
    found = runs(path)
    assert {run.status for run in found} == {"spoiled"}
    assert all(fault.what() in (run.reason or "") for run in found)
    assert [one["kind"] for one in found[0].provenance.faults] == ["load"]


def test_a_failing_cell_says_why_and_stops_what_it_started(campaign_file, monkeypatch):
    path = campaign_file(grids=ONE_CELL, retries=0)
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps({"step": "workload", "how": "raise"}))
    result = go(path)
    assert not result.ok
    (found,) = runs(path)
    assert (found.status, found.reason) == ("failed", "the fake step workload failed as asked.")
    started = [line.split()[0] for line in trace(path) if line.endswith(" start")]
    stopped = [line.split()[0] for line in trace(path) if line.endswith(" stop")]
    assert sorted(stopped) == sorted(started)
    assert events(path) == ["campaign-started", "started", "failed", "campaign-ended"]


@IN_PROCESS
def test_a_spoiled_cell_is_redone(campaign_file, monkeypatch):
    path = campaign_file(grids=ONE_CELL)
    fault = {"load": {"steal": 0.05}, "once": str(path.parent / "once")}
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps(fault))
    result = go(path)
    assert (result.ok, result.spoiled) == (True, 1)
    first, second = runs(path)
    assert (first.status, second.status) == ("spoiled", "done")
    assert "stolen" in (first.reason or "")


def test_a_process_that_dies_is_a_failed_cell(campaign_file, monkeypatch):
    path = campaign_file(grids=ONE_CELL, retries=0)
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps({"step": "workload", "how": "kill"}))
    assert not go(path).ok
    (found,) = runs(path)
    assert found.status == "failed"
    assert "without a record" in (found.reason or "")


LATE = """
import json, sys
from pathlib import Path
import quick_cell
quick_cell.main()
error = {"kind": sys.argv[2], "message": "too late"}
(Path(sys.argv[1]) / "error.json").write_text(json.dumps(error))
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("kind", "status"), [("KeyboardInterrupt", "done"), ("NameError", "failed")]
)
def test_a_whole_run_survives_an_interruption_but_not_a_broken_notebook(
    campaign_file, kind, status
):
    path = campaign_file(grids=ONE_CELL, retries=0)
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path[:0] = [{here!r}]\n" + LATE.replace("sys.argv[2]", repr(kind))
    command = (sys.executable, "-c", code)
    asked = Request(str(path), artifacts=path.parent / "artifacts")
    run(asked, progress=Progress(), command=command)
    (found,) = runs(path)
    assert found.status == status


def test_a_hanging_cell_is_ended_and_its_load_stopped(campaign_file, monkeypatch):
    path = campaign_file(grids=ONE_CELL, retries=0)
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps({"step": "workload", "how": "hang"}))
    monkeypatch.setattr(attempts, "timeout_s", lambda planned_s: 5.0)
    wait = attempts._wait

    def waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
        """End the 5 s wait once the cell hangs, however long the cell took to get there."""
        if seconds == 5.0:
            _wait_for(path, "workload")
            seconds = 0.0
        return wait(process, seconds)

    monkeypatch.setattr(attempts, "_wait", waited)
    assert not go(path).ok
    (found,) = runs(path)
    assert (found.status, found.reason) == ("failed", "it did not end within 5 s")
    assert trace(path)[-3:] == ["recorder stop", "controller stop", "disturbance stop"]


def start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ENGINE, str(path), str(path.parent / "artifacts")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_moment_it_resumes_to_the_same_set_of_runs(campaign_file, seed):
    path = campaign_file()
    planned = dry_run(Request(str(path), artifacts=path.parent / "artifacts"))
    wanted = {cell.run_id for cell in planned.pending}
    chance = random.Random(seed)
    for _ in range(3):
        process = start(path)
        time.sleep(chance.uniform(0.3, 2.5))
        process.kill()
        process.wait()
        for found in runs(path):
            assert found.run_id in wanted
    assert go(path).ok
    found = runs(path)
    done = Counter(run.run_id for run in found if run.status == "done")
    assert done == dict.fromkeys(wanted, 1)
    assert {run.status for run in found} <= {"done", "interrupted"}
    store = RunStore(path.parent / "artifacts" / "tiny")
    assert list(store.leftovers()) == []
    _no_attempt_after_a_finished_one(path)
    assert go(path).ran == 0


def _no_attempt_after_a_finished_one(path: Path) -> None:
    finished: set[str] = set()
    for record in Ledger(path.parent / "artifacts" / "tiny" / "ledger.jsonl").records():
        if record["event"] == "started":
            assert record["run_id"] not in finished
        if record["event"] in {"done", "adopted"}:
            finished.add(record["run_id"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_cleanly_and_the_next_call_goes_on(campaign_file, number):
    path = campaign_file(grids=ONE_CELL, time_scale=1, parameters=LONG)
    process = start(path)
    _wait_for(path, "workload")
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert b"interrupted: give the same command again to resume" in said
    (found,) = runs(path)
    assert (found.status, found.reason) == ("interrupted", "interrupted")
    assert trace(path)[-3:] == ["recorder stop", "controller stop", "disturbance stop"]


def test_a_dead_engine_s_cell_puts_the_testbed_back(campaign_file):
    path = campaign_file(grids=ONE_CELL, time_scale=1, parameters=LONG)
    process = start(path)
    _wait_for(path, "workload")
    process.kill()
    process.wait()
    _wait_for(path, "disturbance stop")
    assert trace(path)[-3:] == ["recorder stop", "controller stop", "disturbance stop"]


def _wait_for(path: Path, line: str) -> None:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if (path.parent / "trace").is_file() and line in trace(path):
            return
        time.sleep(0.05)
    raise AssertionError(f"{line} never came")
