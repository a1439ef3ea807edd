"""A full disk under artifacts: seen before, survived during, and resumed after."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_process import QUICK_CELL
from tiny_campaigns import ONE_CELL

from campaigns import disk
from campaigns.disk import Reserve, is_full, need_bytes, require_room
from campaigns.ledger import Ledger
from campaigns.progress import Silent
from campaigns.run_store import RunStore
from campaigns.session import Request, run
from schemas.errors import UserError


def test_the_need_comes_from_finished_runs_where_there_are_any(tmp_path: Path) -> None:
    assert need_bytes(10) == 10 * disk.RUN_BYTES + disk.RESERVE_BYTES
    folder = tmp_path / "attempt-1"
    folder.mkdir()
    (folder / "samples").write_bytes(b"\0" * 2_000_000)
    assert need_bytes(10, [folder]) == 20_000_000 + disk.RESERVE_BYTES


def test_too_little_room_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"free, and 1000000000 runs need about .* --artifacts"):
        require_room(tmp_path, 10**9)


def test_the_reserve_is_taken_and_given_up(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    reserve.take()
    assert reserve.path.stat().st_size == disk.RESERVE_BYTES
    reserve.release()
    reserve.release()
    assert not reserve.path.exists()


def test_only_a_full_disk_is_full() -> None:
    assert is_full(OSError(errno.ENOSPC, ""))
    assert is_full(OSError(errno.EDQUOT, ""))
    assert not is_full(OSError(errno.EACCES, ""))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "hotbed-test", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.local
def test_a_disk_that_fills_up_fails_the_cell_and_the_campaign_resumes(
    campaign_file: Callable[..., Path], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {**ONE_CELL[0], "vary": {"op": ["seq", "rand"]}}
    path = campaign_file(grids=[grid], retries=1)
    once = str(path.parent / "once")
    fault = {"step": "workload", "how": "full", "once": once}
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps(fault))
    request = Request(str(path), artifacts=small_disk)
    result = run(request, progress=Silent(), command=QUICK_CELL)
    assert not result.ok
    assert result.gave_up is not None
    assert "no space is left under" in result.gave_up
    folder = small_disk / "tiny"
    ledger = Ledger(folder / "ledger.jsonl")
    events = [record["event"] for record in ledger.records()]
    assert events[:3] == ["campaign-started", "started", "failed"]
    for filler in folder.rglob("filler"):
        os.truncate(filler, 0)
    result = run(request, progress=Silent(), command=QUICK_CELL)
    assert result.ok, result.sentence
    assert sum(found.status == "done" for found in RunStore(folder).runs()) == 2


@pytest.mark.local
def test_too_small_a_disk_is_refused_before(
    campaign_file: Callable[..., Path], small_disk: Path
) -> None:
    grid = {**ONE_CELL[0], "repetitions": 50}
    path = campaign_file(grids=[grid])
    with pytest.raises(UserError, match="50 runs need about"):
        run(Request(str(path), artifacts=small_disk), progress=Silent(), command=QUICK_CELL)
