"""Full disk under artifacts: detected before, survived during, and resumed after."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from disk_faults import CASES, FULL, Disk, is_one_sentence
from engine_process import QUICK_CELL
from tiny_campaigns import ONE_CELL
from tiny_kinds import job

from campaigns.engine.display import Progress
from campaigns.engine.job import write_job
from campaigns.engine.session import Request, run
from campaigns.engine.store import (
    RESERVE_BYTES,
    RUN_BYTES,
    Ledger,
    RunStore,
    is_full,
    need_bytes,
    require_room,
)
from campaigns.grounds.sim import SIMULATIONS
from campaigns.papers.dlr.kind import KIND
from controllers.journal import JournalStep, JournalWriter, read_journal
from controllers.saved import Saved
from schemas.durable import make_folder
from schemas.errors import HotbedError, UserError, sentence_of
from testbed.sites.records import Records
from tests.errors import raises
from tests.hotbed.runner import hotbed


def test_the_need_comes_from_finished_runs_where_there_are_any(tmp_path):
    assert need_bytes(10) == 10 * RUN_BYTES + RESERVE_BYTES
    folder = tmp_path / "attempt-1"
    folder.mkdir()
    (folder / "samples").write_bytes(b"\0" * 2_000_000)
    assert need_bytes(10, [folder]) == 20_000_000 + RESERVE_BYTES


def test_too_little_room_is_refused_before_anything_starts(tmp_path):
    with raises(UserError, "1000000000 runs", do="--artifacts"):
        require_room(tmp_path, 10**9)


def test_only_a_full_disk_is_full():
    assert is_full(OSError(errno.ENOSPC, ""))
    assert is_full(OSError(errno.EDQUOT, ""))
    assert not is_full(OSError(errno.EACCES, ""))


# With a fault at every call, no acknowledged data is lost and nothing is half-written. The same
# operation succeeds once the fault is gone.


class Subject:
    """Object with durable memory: `do` acknowledges a number, `seen` returns the kept numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, number: int) -> None:
        raise NotImplementedError

    def seen(self) -> list[int]:
        raise NotImplementedError


class OfLedger(Subject):
    def do(self, number: int) -> None:
        make_folder(self.folder / "artifacts" / "tiny")
        self._ledger().append("started", run_id="x", attempt=number)

    def seen(self) -> list[int]:
        return [record["attempt"] for record in self._ledger().records()]

    def _ledger(self) -> Ledger:
        return Ledger(self.folder / "artifacts" / "tiny" / "ledger.jsonl")


class OfRecords(Subject):
    def do(self, number: int) -> None:
        with Records("chameleon", self.folder).open("bed") as record:
            record.journal("ask", number=number)
            record.data["last"] = number
            record.save()

    def seen(self) -> list[int]:
        records = Records("chameleon", self.folder)
        found = [entry["number"] for entry in records.entries("bed")]
        data = records.read("bed")
        assert data is None or data["last"] in found
        return sorted(set(found))  # a repeated request is written again


class OfRunStore(Subject):
    def do(self, number: int) -> None:
        store = RunStore(self.folder / "artifacts" / "tiny")
        store.prepare()
        attempt, partial = store.begin(f"r{number}")
        made = job({}).model_copy(update={"run_id": f"r{number}", "attempt": attempt})
        write_job(partial, made)
        (partial / "samples").write_text("t\n")
        store.close(partial, made.record("interrupted", None))

    def seen(self) -> list[int]:
        runs = list(RunStore(self.folder / "artifacts" / "tiny").runs())
        assert all((self.folder / "artifacts" / "tiny" / run.run_id).is_dir() for run in runs)
        return [int(run.run_id.removeprefix("r")) for run in runs]


class OfJournal(Subject):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "controllers" / "dlr" / "journal.jsonl"
        self._writer: JournalWriter | None = None
        self._begun = False

    def do(self, number: int) -> None:
        if self._writer is None:
            self._writer = JournalWriter(self._path)
        if not self._begun:
            self._writer.header(policy="dlr")
            self._begun = True
        self._writer.step(JournalStep(number, 1.0, 2.0))

    def seen(self) -> list[int]:
        if not self._begun:
            return []
        journal = read_journal(self._path)
        assert not journal.torn
        return [step["step"] for step in journal.steps]


class OfSaved(Subject):
    def do(self, number: int) -> None:
        Saved(self._path()).write({"numbers": sorted({*self.seen(), number})})

    def seen(self) -> list[int]:
        path = self._path()
        return list(json.loads(path.read_text())["numbers"]) if path.exists() else []

    def _path(self) -> Path:
        return self.folder / "controllers" / "dlr" / "saved.json"


SUBJECTS = (OfLedger, OfRecords, OfRunStore, OfJournal, OfSaved)


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize(("call", "fault"), CASES)
@pytest.mark.parametrize("before", [0, 1])
def test_a_fault_at_any_call_loses_nothing(*, kind, call, fault, before, tmp_path, monkeypatch):
    disk = Disk(monkeypatch, tmp_path)
    for nth in range(1, 100):
        subject = kind(tmp_path / str(nth))
        subject.folder.mkdir()
        acknowledged = list(range(before))
        for number in acknowledged:
            subject.do(number)
        disk.fail((call, fault), nth=nth)
        try:
            subject.do(7)
            acknowledged.append(7)
            assert not disk.unsynced()
        except (OSError, HotbedError) as error:
            sentence = sentence_of(error) if isinstance(error, OSError) else str(error)
            assert is_one_sentence(sentence)
            assert str(subject.folder) in sentence
        fired = disk.fired
        disk.fail()
        assert set(acknowledged) <= set(subject.seen()) <= {*acknowledged, 7}
        if 7 not in acknowledged:
            subject.do(7)
            acknowledged.append(7)
        assert subject.seen() == acknowledged
        assert not list(subject.folder.rglob("*.new"))
        if not fired:
            return
    pytest.fail("the operation never passed")


@pytest.mark.parametrize("kind", [OfLedger, OfRecords])
def test_a_line_that_cannot_be_cut_back_spoils_no_other(kind, tmp_path, monkeypatch):
    disk = Disk(monkeypatch, tmp_path)
    subject = kind(tmp_path)
    subject.do(1)
    disk.fail(("write", FULL), ("truncate", "EIO"))
    with raises(OSError, "No space"):
        subject.do(2)
    disk.fail()
    assert subject.seen() == [1]
    subject.do(3)
    assert subject.seen() == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "fault", "first", "stride"),
    [
        *(pytest.param(*case, 1, 1, marks=pytest.mark.soak) for case in CASES),
        *((*case, number % 5 + 1, 23) for number, case in enumerate(CASES[::5])),
    ],
)
def test_a_campaign_with_a_fault_resumes(
    *, call, fault, first, stride, tmp_path, campaign_file, monkeypatch, capsys
):
    """Every `stride`-th call fails, each in a new folder."""
    file = campaign_file(grids=ONE_CELL, parameters={"duration_s": 1})
    fake = replace(KIND.grounds["fake"], same=SIMULATIONS)
    monkeypatch.setitem(KIND.grounds, "fake", fake)
    top = tmp_path / "disk"
    top.mkdir()
    disk = Disk(monkeypatch, top)
    for nth in range(first, 1000, stride):
        artifacts = top / str(nth) / "artifacts"
        words = ["run", str(file), "--no-notebook", "--artifacts", str(artifacts)]
        artifacts.parent.mkdir()
        disk.fail((call, fault), nth=nth)
        code = hotbed(*words)
        said = capsys.readouterr().err
        fired, unsynced = disk.fired, disk.unsynced()
        disk.fail()
        store = RunStore(artifacts / "tiny")
        if code == 0:
            assert not unsynced
        else:
            assert code == 1
            why = [line for line in said.splitlines() if line.startswith("hotbed: ")]
            assert len(why) == 1 or (not why and "failed: " in said)
            assert all(map(is_one_sentence, why))
        ledger = store.folder / "ledger.jsonl"
        kept = ledger.read_bytes() if ledger.is_file() else b""
        assert hotbed(*words) == 0
        assert sum(run.status == "done" for run in store.runs()) == 1
        assert ledger.read_bytes().startswith(kept)
        if not fired:
            return
    pytest.fail("the campaign never passed")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 16 MiB."""
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
    campaign_file, small_disk, monkeypatch
):
    grid = {**ONE_CELL[0], "vary": {"op": ["seq", "rand"]}}
    path = campaign_file(grids=[grid], retries=1)
    once = str(path.parent / "once")
    fault = {"step": "workload", "how": "full", "once": once}
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps(fault))
    request = Request(str(path), artifacts=small_disk)
    result = run(request, progress=Progress(), command=QUICK_CELL)
    assert not result.ok
    assert result.gave_up is not None
    assert "no space is left under" in result.gave_up
    folder = small_disk / "tiny"
    ledger = Ledger(folder / "ledger.jsonl")
    events = [record["event"] for record in ledger.records()]
    assert events[:3] == ["campaign-started", "started", "failed"]
    for filler in folder.rglob("filler"):
        os.truncate(filler, 0)
    result = run(request, progress=Progress(), command=QUICK_CELL)
    assert result.ok, result.sentence
    assert sum(found.status == "done" for found in RunStore(folder).runs()) == 2


@pytest.mark.local
def test_too_small_a_disk_is_refused_before(campaign_file, small_disk):
    grid = {**ONE_CELL[0], "repetitions": 50}
    path = campaign_file(grids=[grid])
    with raises(UserError, "50 runs need about"):
        run(Request(str(path), artifacts=small_disk), progress=Progress(), command=QUICK_CELL)
