"""Makes attempts at PriorityMeister's cells: on Dask workers where they are simulated, and one
after another in the engine's process where there is one testbed."""

from __future__ import annotations

import atexit
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns.dask_cell import Made, WrongWorker
from campaigns.dask_executor import DaskExecutor
from campaigns.job import ERROR_FILE, Job, read_job
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.prioritymeister.cell import Maker
from campaigns.prioritymeister.code import Code, difference, here
from campaigns.prioritymeister.ground import SimGround
from campaigns.process_executor import Begun, ProcessExecutor, Setting
from campaigns.run_store import RunStore, utc_now

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Task:
    """A cell to be simulated: the attempt's job as JSON, and what it must be made with."""

    job: str
    code: Code


@cache
def _maker() -> Maker:
    """This worker's, with the traces and measurements that it made last."""
    maker = Maker(SimGround())
    atexit.register(maker.close)
    return maker


def run_task(task: Task) -> Made:
    """Make the cell; what it raised is in the file `error.json`.

    Raises:
        WrongWorker: this worker makes cells with something else.
    """
    why = difference(task.code, here())
    if why is not None:
        raise WrongWorker(f"this worker {why}")
    started = time.monotonic()
    job = Job.model_validate_json(task.job).model_copy(update={"started_at": utc_now()})
    with tempfile.TemporaryDirectory(prefix="hotbed-pm-cell-") as name:
        folder = Path(name)
        try:
            _maker().make(job, folder)
        except Exception as error:
            write_error(folder, error)
        files = {
            path.relative_to(folder).as_posix(): zlib.compress(path.read_bytes(), 1)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    return Made(files, time.monotonic() - started)


def write_error(folder: Path, error: BaseException) -> None:
    """What a cell raised, where the engine looks for it."""
    body = {"kind": type(error).__name__, "message": str(error) or type(error).__name__}
    (folder / ERROR_FILE).write_text(json.dumps(body) + "\n")


class SimulatedExecutor(DaskExecutor):
    """See `DaskExecutor`."""

    def __init__(
        self, plan: Plan, store: RunStore, ledger: Ledger, setting: Setting, client: Client
    ) -> None:
        super().__init__(plan, store, ledger, setting, ground=None, client=client)

    def task(self, begun: Begun) -> Task:
        """See `DaskExecutor.task`."""
        return Task(begun.job.model_dump_json(), here())

    def work(self) -> Callable[[Any], Made]:
        """See `DaskExecutor.work`."""
        return run_task


class OneTestbedExecutor(ProcessExecutor):
    """An `Executor` on a testbed: cells run in this process, which only waits for it. A signal
    raises KeyboardInterrupt in the cell; the ground then puts back what it changed."""

    def __init__(
        self, plan: Plan, store: RunStore, ledger: Ledger, setting: Setting, maker: Maker
    ) -> None:
        super().__init__(plan, store, ledger, setting)
        self._maker = maker
        self._running = False

    def run_attempt(self, partial: Path, limit_s: float) -> str | None:
        """Run the cell to its end; what it raised is in its folder."""
        job = read_job(partial)
        assert job is not None
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            self._running = True
            self._maker.make(job, partial)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            write_error(partial, error)
        finally:
            self._running = False
        return None

    def interrupt(self) -> None:
        """See `Executor.interrupt`."""
        self._interrupted = True
        if self._running:
            self._running = False  # once: the cell must be let close what it opened
            raise KeyboardInterrupt

    def kill(self) -> None:
        """See `Executor.kill`."""
        self._killed = True
        if self._running:
            self._running = False
            raise KeyboardInterrupt
