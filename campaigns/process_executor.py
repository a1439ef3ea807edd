"""Makes each attempt in a process of its own: papermill with the campaign's notebook."""

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
from pathlib import Path

from campaigns.disk import Reserve, is_full, nearly_full
from campaigns.estimate import cell_timeout_s
from campaigns.executors import Outcome
from campaigns.job import CHANGED, ERROR_FILE, Job, read_job, utc_now, write_job
from campaigns.lease import Lease
from campaigns.ledger import Ledger
from campaigns.plan import Cell, Plan
from campaigns.process_tree import kill_tree
from campaigns.run_store import RunStore, amended, read_run
from schemas.run import Provenance, Run, RunStatus

PAPERMILL_CELL = (sys.executable, "-m", "campaigns.papermill_cell")
GRACE_S = 90.0
"""Time for an interrupted cell to put the testbed back."""


@dataclass(frozen=True)
class Setting:
    """What all attempts of a call share."""

    testbed: str
    notebook: Path
    provenance: Provenance
    spec: Path | None = None
    model: Path | None = None
    osd_count: int | None = None
    controllers_dir: Path | None = None
    command: Sequence[str] = PAPERMILL_CELL
    held: tuple[int, ...] = ()  # locks that each cell's process keeps while it lives
    grace_s: float = GRACE_S
    timeout_s: float | None = None  # instead of the estimate's
    lease: Lease | None = None  # of the testbed, where it ends


@dataclass(frozen=True)
class Begun:
    """An attempt that has its folder and its job."""

    cell: Cell
    job: Job
    folder: Path


class ProcessExecutor:
    """An `Executor`. The attempt's folder is committed whatever happens to its process."""

    def __init__(self, plan: Plan, store: RunStore, ledger: Ledger, setting: Setting) -> None:
        self._plan = plan
        self._store = store
        self._ledger = ledger
        self._setting = setting
        self._reserve = Reserve(store.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._interrupted = False
        self._killed = False

    def recover(self) -> int:
        """Close what a dead engine left: whole attempts are adopted, others are marked as
        interrupted. Returns how many finished runs were adopted."""
        adopted = 0
        for run_id, attempt, partial in list(self._store.leftovers()):
            run, job = read_run(partial), read_job(partial)
            if run is None and job is None:
                shutil.rmtree(partial)  # nothing had started in it
                continue
            if run is None:
                assert job is not None
                run = job.record("interrupted", "the engine ended while the cell ran")
            self._store.close(partial, run)
            whole = run.status == "done"
            adopted += whole
            self._ledger.append("adopted" if whole else run.status, run_id=run_id, attempt=attempt)
        return adopted

    def execute(self, cell: Cell) -> Outcome:
        """See `Executor.execute`."""
        started = time.monotonic()
        try:
            begun = self.begin(cell)
            if isinstance(begun, Outcome):
                return begun
            why = self.run_attempt(begun.folder, begun.job.timeout_s)
        except OSError as error:
            if not is_full(error):
                raise
            return self._full()
        return self.conclude(begun, why, time.monotonic() - started)

    def begin(self, cell: Cell) -> Begun | Outcome:
        """The next attempt's folder and job; the outcome when the disk is full."""
        if nearly_full(self._store.folder):
            return self._full()
        try:
            self._reserve.take()
            number, partial = self._store.begin(cell.run_id)
            job = self._job(cell, number)
            write_job(partial, job)
            self._ledger.append("started", run_id=cell.run_id, attempt=number)
        except OSError as error:
            if not is_full(error):
                raise
            return self._full()
        return Begun(cell, job, partial)

    def interrupt(self) -> None:
        """See `Executor.interrupt`."""
        self._interrupted = True
        if self._process is not None:
            _signal(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """See `Executor.kill`."""
        self._killed = True
        if self._process is not None:
            kill_tree(self._process.pid)

    def _job(self, cell: Cell, attempt: int) -> Job:
        campaign = self._plan.campaign
        limit = self._setting.timeout_s or cell_timeout_s(cell, campaign.time_scale)
        return Job(
            kind=campaign.kind,
            run_id=cell.run_id,
            campaign=campaign.name,
            attempt=attempt,
            block=cell.block,
            order=cell.order,
            seed=cell.seed,
            ground=campaign.ground,
            parameters=cell.parameters.canonical(),
            time_scale=campaign.time_scale,
            testbed=self._setting.testbed,
            notebook=str(self._setting.notebook),
            spec=_text(self._setting.spec),
            model=_text(self._setting.model),
            timeout_s=limit,
            started_at=utc_now(),
            limits=campaign.limits,
            controllers_dir=_text(self._setting.controllers_dir),
            figures=list(cell.figures),
            osd_count=cell.parameters.osds or self._setting.osd_count,
            provenance=self._setting.provenance,
            code=cell.code,
        )

    def run_attempt(self, partial: Path, limit_s: float) -> str | None:
        """Run the process to its end; why it was ended by us, if it was."""
        with (partial / "logs" / "cell.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._setting.command, str(partial)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).resolve().parents[1],
                env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"},
                start_new_session=True,  # Ctrl-C reaches it through us, once
                pass_fds=self._setting.held,
            )
        process = self._process
        if self._interrupted:  # between the engine's last look and now
            _signal(process, signal.SIGTERM)
        why = None
        try:
            if not _wait(process, limit_s):
                why = f"it did not end within {limit_s:.0f} s"
                _signal(process, signal.SIGTERM)
                if not _wait(process, self._setting.grace_s):
                    kill_tree(process.pid)
            process.wait()
        finally:
            if process.poll() is None:
                kill_tree(process.pid)
                process.wait()
            self._process = None
        return why

    def conclude(self, begun: Begun, why: str | None, seconds: float) -> Outcome:
        """Write what is missing of the attempt's record, and commit it."""
        cell, job, partial = begun.cell, begun.job, begun.folder
        run = self._excused(self._record(job, partial, why))
        full = nearly_full(partial) or _says_full(run.reason)
        try:
            if full:
                self._reserve.release()
            self._store.close(partial, run)
            event = run.status
            facts = {} if run.reason is None else {"reason": run.reason}
            self._ledger.append(event, run_id=cell.run_id, attempt=job.attempt, **facts)
        except OSError as error:
            if not is_full(error):
                raise
            return self._full(seconds, job.attempt)
        failed = run.status == "failed"
        # Code of every cell that is left, not of a controller alone.
        changed = (run.reason or "").startswith(CHANGED) and job.code[0].changed
        reason = self._full_sentence() if full and failed else run.reason
        return Outcome(run.status, reason, seconds, job.attempt, fatal=failed and (full or changed))

    def _record(self, job: Job, partial: Path, why: str | None) -> Run:
        run = read_run(partial)
        error = _read_error(partial)
        broke = error is not None and error[0] != "KeyboardInterrupt" and why is None
        if run is not None and run.status == "done" and error is not None and broke:
            # (Interrupted after its record was written, a run is as whole as any.)
            return amended(run, status="failed", reason=f"the notebook failed: {error[1]}")
        if run is not None and not (run.status == "interrupted" and why is not None):
            return run
        status: RunStatus = "failed"
        phases = {} if run is None else run.phases_s
        if why is not None:
            return job.record("failed", why, phases)
        if self._killed:
            return job.record("interrupted", "killed by a second Ctrl-C", phases)
        if self._interrupted or (error is not None and error[0] == "KeyboardInterrupt"):
            status = "interrupted"
        reason = "the cell's process ended without a record (see logs/cell.log)"
        if error is not None:
            reason = error[1]
        return job.record(status, reason, phases)

    def _excused(self, run: Run) -> Run:
        """A cell whose testbed went has not failed: it was interrupted."""
        lease = self._setting.lease
        if lease is None or run.status not in {"failed", "interrupted"}:
            return run
        gone = lease.over() if run.status == "failed" else lease.known_over
        return run if gone is None else amended(run, status="interrupted", reason=gone)

    def _full(self, seconds: float = 0.0, attempt: int | None = None) -> Outcome:
        self._reserve.release()
        # If even this does not fit, it is said on the terminal alone.
        with contextlib.suppress(OSError):
            self._ledger.append("failed", reason=self._full_sentence())
        return Outcome("failed", self._full_sentence(), seconds, attempt, fatal=True)

    def _full_sentence(self) -> str:
        return (
            f"no space is left under {self._store.folder}: free some and give the same command "
            "again, it goes on from here"
        )


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
