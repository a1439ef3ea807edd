"""Attempts at cells: folders, records, and runners.

`AttemptRecords` keeps the records. A runner makes a cell: `CellProcess` in a process of its own,
`InProcess` in the engine's process. `OneAtATime` is an executor of the engine that uses both.
`campaigns.engine.dask` has the executor for many attempts in parallel.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from campaigns.engine.estimate import timeout_s
from campaigns.engine.job import (
    CHANGED,
    ERROR_FILE,
    NEXT_FILE,
    Job,
    Make,
    Outcome,
    read_job,
    utc_now,
    write_error,
    write_job,
)
from campaigns.engine.kind import Prepared
from campaigns.engine.lease import Lease
from campaigns.engine.plan import Cell
from campaigns.engine.store import (
    Ledger,
    Reserve,
    amended,
    is_full,
    nearly_full,
    read_run,
)
from schemas.errors import UserError
from schemas.run import Provenance, Run, RunStatus
from testbed.faults import faults_between, refuse_faults
from testbed.sites import open_site

PAPERMILL_CELL = (sys.executable, "-m", "campaigns.engine.papermill_cell")
GRACE_S = 90.0
"""Seconds that an interrupted cell has to restore the testbed, before it is killed."""

LOOK_S = 0.25
"""Seconds between two looks at the files of a running cell."""

CELL_LOG = "logs/cell.log"


class Executor(Protocol):
    """Maker of attempts, several in parallel if `width` allows."""

    @property
    def width(self) -> int:
        """Number of attempts that may run in parallel; it may change."""

    def start(self, cell: Cell) -> None:
        """Begin an attempt at `cell`."""

    def finished(self) -> tuple[Cell, Outcome]:
        """Wait until an attempt ends and its record is written. At least one attempt must be under
        way. A failed cell does not raise."""

    def interrupt(self) -> None:
        """End every attempt under way cleanly (from a signal handler), so that the testbed is
        restored. `finished` then reports each attempt as interrupted."""

    def kill(self) -> None:
        """End every attempt under way at once."""


class Runner(Protocol):
    """Maker of one cell in its folder."""

    def run(self, folder: Path, limit_s: float) -> str | None:
        """Run the cell of the job in `folder` to its end, and record an error that it raises there.
        Return the reason if the cell was ended because it took longer than `limit_s` seconds."""

    def interrupt(self) -> None:
        """End the cell cleanly; if no cell runs, end the next one."""

    def kill(self) -> None:
        """End the cell at once."""


@dataclass(frozen=True)
class Begun:
    """An attempt with its folder and its job."""

    cell: Cell
    job: Job
    folder: Path


class AttemptRecords:
    """Folders and records of a campaign's attempts. An attempt's folder is committed even if the
    process of the attempt dies.

    Attributes:
        prepared: the campaign.
        provenance: of its runs.
        lease: the testbed's lease, if it has one.
        testbed: the testbed's folder, if there is a testbed.
        interrupted, killed: set by an executor that ends its attempts; they change the status.
    """

    def __init__(
        self,
        prepared: Prepared,
        ledger: Ledger,
        provenance: Provenance,
        lease: Lease | None = None,
    ) -> None:
        self.testbed = _folder_of(prepared)
        self.prepared, self.store, self.ledger = prepared, prepared.store, ledger
        self.provenance, self.lease = provenance, lease
        self.interrupted = False
        self.killed = False
        self._reserve = Reserve(prepared.store.folder)

    def recover(self) -> int:
        """Close the attempts that a dead engine left: adopt complete ones, mark the others as
        interrupted. Return the number of adopted runs."""
        adopted = 0
        for run_id, attempt, partial in list(self.store.leftovers()):
            run, job = read_run(partial), read_job(partial)
            if run is None and job is None:
                shutil.rmtree(partial)  # nothing had started in it
                continue
            if run is None:
                assert job is not None
                run = job.record("interrupted", "the engine ended while the cell ran")
            run = with_faults(run, self.testbed)
            self.store.close(partial, run)
            complete = run.status == "done"
            adopted += complete
            self.ledger.append(
                "adopted" if complete else run.status, run_id=run_id, attempt=attempt
            )
        return adopted

    def begin(self, cell: Cell) -> Begun | Outcome:
        """Make the folder and job of the next attempt; return the outcome if the disk is full, or
        the testbed has a fault by hand."""
        try:
            if self.testbed is not None:
                refuse_faults(self.testbed, self.prepared.testbed)
        except UserError as error:
            self.ledger.append("failed", run_id=cell.run_id, reason=str(error))
            return Outcome("failed", str(error), fatal=True)
        if nearly_full(self.store.folder):
            return self.full()
        try:
            self._reserve.take()
            number, partial = self.store.begin(cell.run_id)
            job = self._job(cell, number)
            write_job(partial, job)
            self.ledger.append("started", run_id=cell.run_id, attempt=number)
        except OSError as error:
            if not is_full(error):
                raise
            return self.full()
        return Begun(cell, job, partial)

    def conclude(self, begun: Begun, why: str | None, seconds: float) -> Outcome:
        """Complete the attempt's record and commit it."""
        cell, job, partial = begun.cell, begun.job, begun.folder
        run = with_faults(self._excused(self._record(job, partial, why)), self.testbed)
        full = nearly_full(partial) or _says_full(run.reason)
        try:
            if full:
                self._reserve.release()
            self.store.close(partial, run)
            event = run.status
            facts = {} if run.reason is None else {"reason": run.reason}
            self.ledger.append(event, run_id=cell.run_id, attempt=job.attempt, **facts)
        except OSError as error:
            if not is_full(error):
                raise
            return self.full(seconds, job.attempt)
        failed = run.status == "failed"
        # Code that all pending cells share, not the code of one controller.
        changed = (run.reason or "").startswith(CHANGED) and job.code[0].changed
        reason = self._full_sentence() if full and failed else run.reason
        return Outcome(run.status, reason, seconds, job.attempt, fatal=failed and (full or changed))

    def _job(self, cell: Cell, attempt: int) -> Job:
        prepared, campaign = self.prepared, self.prepared.campaign
        osd_count = None if prepared.facts is None else prepared.facts.osd_count
        parameters = cell.parameters.model_dump(mode="json")
        return Job(
            kind=campaign.kind,
            run_id=cell.run_id,
            campaign=campaign.name,
            attempt=attempt,
            block=cell.block,
            order=cell.order,
            seed=cell.seed,
            ground=campaign.ground,
            parameters=parameters,
            time_scale=campaign.time_scale,
            testbed=prepared.testbed,
            notebook=str(prepared.notebook),
            spec=_text(prepared.spec_file),
            model=_text(prepared.model),
            timeout_s=timeout_s(cell.planned_s),
            started_at=utc_now(),
            limits=campaign.limits,
            controllers_dir=_text(prepared.outside.get(cell.parameters.controller)),
            figures=list(cell.figures),
            osd_count=parameters.get("osds") or osd_count,
            stopping=cell.stopping,
            provenance=self.provenance,
            code=cell.code,
        )

    def _record(self, job: Job, partial: Path, why: str | None) -> Run:
        run = read_run(partial)
        error = _read_error(partial)
        broke = error is not None and error[0] != "KeyboardInterrupt" and why is None
        if run is not None and run.status == "done" and error is not None and broke:
            # (A run that was interrupted after its record was written is complete.)
            return amended(run, status="failed", reason=f"the notebook failed: {error[1]}")
        if run is not None and not (run.status == "interrupted" and why is not None):
            return run
        status: RunStatus = "failed"
        phases = {} if run is None else run.phases_s
        if why is not None:
            return job.record("failed", why, phases)
        if self.killed:
            return job.record("interrupted", "killed by a second Ctrl-C", phases)
        if self.interrupted or (error is not None and error[0] == "KeyboardInterrupt"):
            status = "interrupted"
        reason = "the cell's process ended without a record (see logs/cell.log)"
        if error is not None:
            reason = error[1]
        return job.record(status, reason, phases)

    def _excused(self, run: Run) -> Run:
        """Return `run`, marked as interrupted if it failed because its lease ended."""
        lease = self.lease
        if lease is None or run.status not in {"failed", "interrupted"}:
            return run
        gone = lease.over() if run.status == "failed" else lease.known_over
        return run if gone is None else amended(run, status="interrupted", reason=gone)

    def full(self, seconds: float = 0.0, attempt: int | None = None) -> Outcome:
        """Return the outcome of an attempt on a full disk."""
        self._reserve.release()
        # If this entry does not fit either, only the terminal shows the error.
        with contextlib.suppress(OSError):
            self.ledger.append("failed", reason=self._full_sentence())
        return Outcome("failed", self._full_sentence(), seconds, attempt, fatal=True)

    def _full_sentence(self) -> str:
        return (
            f"no space is left under {self.store.folder}: free space and give the same "
            "command again to resume"
        )


def _folder_of(prepared: Prepared) -> Path | None:
    """Return the folder of the campaign's testbed; None if there is none."""
    if prepared.ground is not None:
        lock = prepared.ground.lock_path()
        return lock and lock.parent
    spec = prepared.spec
    return None if spec is None else open_site(spec.site.kind).folder(prepared.testbed)


def with_faults(run: Run, testbed: Path | None) -> Run:
    """Return `run` with the faults by hand that were in force on its testbed (the folder) at any
    time of it. Such a run is no result: a finished one is spoiled."""
    began, ended = (datetime.fromisoformat(at).timestamp() for at in (run.started_at, run.ended_at))
    found = [] if testbed is None else faults_between(testbed, began, ended)
    if not found:
        return run
    provenance = run.provenance.model_dump() | {"faults": [one.as_json() for one in found]}
    spoils = {"status": "spoiled", "reason": f"made by hand meanwhile: {found[0].what()}"}
    return amended(run, provenance=provenance, **(spoils if run.status == "done" else {}))


class OneAtATime:
    """An `Executor` that makes one attempt after the other, inside `finished`."""

    width = 1

    def __init__(self, attempts: AttemptRecords, runner: Runner) -> None:
        self._attempts = attempts
        self._runner = runner
        self._next: Cell | None = None

    def start(self, cell: Cell) -> None:
        self._next = cell

    def finished(self) -> tuple[Cell, Outcome]:
        cell, self._next = self._next, None
        assert cell is not None
        return cell, self._attempt(cell)

    def _attempt(self, cell: Cell) -> Outcome:
        started = time.monotonic()
        try:
            begun = self._attempts.begin(cell)
            if isinstance(begun, Outcome):
                return begun
            why = self._runner.run(begun.folder, begun.job.timeout_s)
        except OSError as error:
            if not is_full(error):
                raise
            return self._attempts.full()
        return self._attempts.conclude(begun, why, time.monotonic() - started)

    def interrupt(self) -> None:
        self._attempts.interrupted = True
        self._runner.interrupt()

    def kill(self) -> None:
        self._attempts.killed = True
        self._runner.kill()


class CellProcess:
    """A `Runner` with one process per cell, by default papermill with the campaign's notebook.

    Kernel and libraries take seconds to start, so papermill's process of the next cell starts as
    soon as a cell allows it (`NEXT_FILE`). It waits for its folder.

    Args:
        command: the process; its last argument is the attempt's folder.
        held: locks that the process holds while it lives.
    """

    def __init__(self, command: Sequence[str] = PAPERMILL_CELL, held: tuple[int, ...] = ()) -> None:
        self._command = command
        self._held = held
        self._process: subprocess.Popen[bytes] | None = None
        self._next: subprocess.Popen[bytes] | None = None
        self._next_log = Path()
        self._interrupted = False

    def run(self, folder: Path, limit_s: float) -> str | None:
        process = self._process = self._begin(folder)
        if self._interrupted:  # between the engine's last check and now
            _signal(process, signal.SIGTERM)
        why = None
        try:
            if not self._ended(process, folder, limit_s):
                why = f"it did not end within {limit_s:.0f} s"
                _signal(process, signal.SIGTERM)
                if not _wait(process, GRACE_S):
                    _kill_tree(process.pid)
            process.wait()
        finally:
            if process.poll() is None:
                _kill_tree(process.pid)
                process.wait()
            self._process = None
        return why

    def _begin(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start the cell in `folder`: in the waiting process if there is one."""
        waiting, self._next = self._next, None
        if waiting is not None and waiting.poll() is None:
            assert waiting.stdin is not None
            self._next_log.replace(folder / CELL_LOG)
            with contextlib.suppress(BrokenPipeError):  # it has died: a failed attempt
                waiting.stdin.write(f"{folder}\n".encode())
                waiting.stdin.close()
            return waiting
        return self._start([str(folder)], folder / CELL_LOG)

    def _start(self, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                [*self._command, *words],
                stdin=subprocess.DEVNULL if words else subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).resolve().parents[2],
                env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"},
                start_new_session=True,  # Ctrl-C reaches it only through the engine, once
                pass_fds=self._held,
            )

    def _ended(self, process: subprocess.Popen[bytes], folder: Path, limit_s: float) -> bool:
        """Wait until the cell ends; return False if it takes longer than `limit_s` seconds."""
        if self._command is not PAPERMILL_CELL:
            return _wait(process, limit_s)
        deadline = time.monotonic() + limit_s
        while not _wait(process, min(LOOK_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
            ready = self._next is None and not self._interrupted
            if ready and (folder / NEXT_FILE).exists():
                self._next_log = folder.parents[1] / ".next-cell.log"
                self._next = self._start([], self._next_log)
        return True

    def interrupt(self) -> None:
        self._interrupted = True
        if self._process is not None:
            _signal(self._process, signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None:
            _kill_tree(self._process.pid)

    def close(self) -> None:
        """End the process that waits for another cell."""
        waiting, self._next = self._next, None
        if waiting is not None:
            _kill_tree(waiting.pid)
            waiting.wait()
            self._next_log.unlink()


class InProcess:
    """A `Runner` in the engine's process: for hundreds of simulated cells that need no cleaning up,
    and for cells that only wait for a testbed.

    A cell ends by itself: the simulator and an outside controller have their own time limits. A
    signal raises KeyboardInterrupt in the cell. The cell then closes its simulator, or undoes its
    changes of the testbed.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._running = False
        self._interrupted = False

    def run(self, folder: Path, limit_s: float) -> str | None:
        """See `Runner.run`; `limit_s` is not used."""
        job = read_job(folder)
        assert job is not None
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            self._running = True
            self._make(job, folder)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            write_error(folder, error)
        finally:
            self._running = False
        return None

    def interrupt(self) -> None:
        self._interrupted = True
        self.kill()

    def kill(self) -> None:
        if self._running:
            self._running = False  # only once: the cell must be able to close its files
            raise KeyboardInterrupt


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _says_full(reason: str | None) -> bool:
    return reason is not None and "No space left on device" in reason


def _read_error(partial: Path) -> tuple[str, str] | None:
    try:
        data = json.loads((partial / ERROR_FILE).read_text())
        return str(data["kind"]), str(data["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, children before grandchildren (Linux; empty elsewhere)."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children.get(parent, [])]
        found += level
    return found


def _kill_tree(pid: int) -> None:
    """SIGKILL `pid` and its descendants, because kernels leave their parent's session."""
    for process in [pid, *_descendants(pid)]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
