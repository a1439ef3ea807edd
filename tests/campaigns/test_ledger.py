"""Ledger and folders: they survive torn writes, and two engines never write at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaigns.engine.lock import InUseError, Lock
from campaigns.engine.store import Ledger
from schemas.durable import commit_folder
from schemas.errors import HotbedError
from schemas.locks import take
from tests.errors import raises

ROOT = Path(__file__).resolve().parents[2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(cut=st.integers(0, 400))
def test_a_torn_tail_loses_at_most_the_torn_record(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    path.unlink(missing_ok=True)
    ledger = Ledger(path)
    for number in range(4):
        ledger.append("started", run_id="abc", attempt=number)
    whole = path.read_bytes()
    kept = whole[: min(cut, len(whole))]
    path.write_bytes(kept)
    ledger.append("done", run_id="abc", attempt=99)
    found = [record["attempt"] for record in ledger.records()]
    lines = kept.split(b"\n")
    # A cut just before a newline leaves a whole record, which still counts.
    full = kept.count(b"\n") + (1 if lines[-1].endswith(b"}") else 0)
    assert found == [*range(full), 99]


def test_a_finished_folder_is_never_overwritten(tmp_path):
    (tmp_path / "attempt-1").mkdir()
    (tmp_path / ".attempt-1.partial").mkdir()
    with raises(FileExistsError, "never overwritten"):
        commit_folder(tmp_path / ".attempt-1.partial", tmp_path / "attempt-1")


HOLD = """
import subprocess, sys, time
from pathlib import Path
from campaigns.engine.lock import Lock
with Lock(Path(sys.argv[1]), "the campaign x") as lock:
    child = subprocess.Popen(["sleep", sys.argv[2]], pass_fds=[lock.handle])
    print(child.pid, flush=True)
    time.sleep(60)
"""


def holder(path: Path, orphan_s: str) -> tuple[subprocess.Popen[bytes], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), orphan_s], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_second_engine_is_refused_with_the_process_named(tmp_path):
    process, child = holder(tmp_path / ".lock", "60")
    try:
        with (
            pytest.raises(InUseError) as refused,
            Lock(tmp_path / ".lock", "the campaign x"),
        ):
            pass
        assert refused.value.holder.pid == process.pid
    finally:
        process.kill()
        process.wait()
        os.kill(child, 9)


def test_a_dead_engine_s_lock_is_taken_over_once_its_cell_has_ended(tmp_path):
    process, child = holder(tmp_path / ".lock", "60")
    process.kill()
    process.wait()
    said: list[str] = []
    with (
        raises(HotbedError, "dead engine"),
        Lock(tmp_path / ".lock", "the campaign x", orphan_wait_s=0.5, say=said.append),
    ):
        pass
    assert len(said) == 1
    os.kill(child, 9)
    with Lock(tmp_path / ".lock", "the campaign x", orphan_wait_s=60):
        pass


def test_a_later_process_with_a_holders_id_is_not_interrupted(tmp_path):
    path = tmp_path / ".lock"
    handle = take(path)
    with subprocess.Popen(["sleep", "60"]) as later:
        path.write_text(json.dumps({"pid": later.pid, "started": "1", "command": "hotbed run x"}))
        with (
            raises(HotbedError, "dead engine"),
            Lock(path, "the campaign x", orphan_wait_s=0, end_holder=True),
        ):
            pass
        assert later.poll() is None
        later.kill()
    os.close(handle)
