"""Makes attempts on Dask workers, as many beside each other as there are: for simulated cells.

Folders, ledger and records are made here, by the engine's one process; a worker gets a task and
gives back files (campaigns/dask_cell.py). A worker that dies has its cell made again by another
one, by Dask, three times at most. Dask counts a death against every cell that the worker had been
given, also one that only waited there: so who is given up is tried once more with no other cell
beside it. What a cell itself raised is its failure, as everywhere.

A result lies at its worker until it is fetched, and a worker may die with it: then Dask has the
cell made again, and who fetches waits for that. Each result is therefore fetched in a thread of its
own, so that interrupts and the loss of all workers are noticed meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from campaigns.dask_cell import Made, Task, pack_folder, run_task
from campaigns.disk import is_full
from campaigns.executors import Outcome
from campaigns.job import ERROR_FILE
from campaigns.ledger import Ledger
from campaigns.plan import Cell, Plan
from campaigns.process_executor import Begun, ProcessExecutor, Setting
from campaigns.run_store import RunStore
from campaigns.sameness import WrongWorker
from campaigns.services import Ground
from campaigns.sim_ground import SIMULATIONS
from controllers.registry import find

if TYPE_CHECKING:
    from distributed import Client, Future

_Files = tuple[str, dict[str, bytes]]  # a folder's name, and its files by relative path

WIDTH_S = 5.0
"""Seconds for which a count of the workers is believed."""

ALONE_S = 300.0
"""Seconds without a worker after which nobody waits for one any more; to start again one that has
died takes some, minutes on a machine that is busy."""


@dataclass(frozen=True)
class _Underway:
    begun: Begun
    task: Any
    future: Future[Any]
    started: float
    alone: bool = False  # no other cell is under way


_Ended = tuple[_Underway, Made | BaseException]


class DaskExecutor(ProcessExecutor):
    """A `ParallelExecutor`; everything but the workers' part happens in the caller's thread."""

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        ledger: Ledger,
        setting: Setting,
        *,
        ground: Ground | None,
        client: Client,
    ) -> None:
        super().__init__(plan, store, ledger, setting)
        self._ground = ground
        self._client = client
        self._underway: dict[str, _Underway] = {}  # by run id
        self._suspects: deque[_Underway] = deque()  # given up while others were under way
        self._ended: SimpleQueue[_Ended | None] = SimpleQueue()  # None: look at the flags
        self._told: deque[tuple[Cell, Outcome]] = deque()
        self._packed: dict[str, _Files | None] = {}
        self._width, self._counted = 1, -math.inf
        self._seen = time.monotonic()  # a worker, last

    @property
    def width(self) -> int:
        """One more than the workers have threads, so that none of them waits for us."""
        if time.monotonic() - self._counted > WIDTH_S and not self._interrupted:
            with contextlib.suppress(OSError, TimeoutError):  # then the futures tell
                self._width = 1 + sum(self._client.nthreads().values())
            self._counted = time.monotonic()
        return self._width

    def start(self, cell: Cell) -> None:
        """See `ParallelExecutor.start`."""
        begun = self.begin(cell)
        if isinstance(begun, Outcome):
            self._told.append((cell, begun))
            return
        self._submit(begun, self.task(begun))

    def task(self, begun: Begun) -> Any:
        """What a worker is given; `work` is what it does with it."""
        assert self._ground is not None
        controller = self._controller(begun.cell)
        return Task(begun.job.model_dump_json(), self._ground, controller, SIMULATIONS.here())

    def work(self) -> Callable[[Any], Made]:
        """The function that makes the cell of a task on a worker."""
        return run_task

    def _submit(self, begun: Begun, task: Any, *, alone: bool = False) -> None:
        run_id = begun.cell.run_id
        key = f"hotbed-{run_id}-{begun.job.attempt}-{time.monotonic_ns()}"
        future = self._client.submit(self.work(), task, key=key, pure=False)
        attempt = _Underway(begun, task, future, time.monotonic(), alone)
        self._underway[run_id] = attempt
        future.add_done_callback(lambda _: self._fetch(attempt))

    def _fetch(self, attempt: _Underway) -> None:
        """Take the result of an attempt that has ended (called in a thread of Dask's)."""

        def take() -> None:
            came: Made | BaseException
            try:
                came = attempt.future.result()
            except (Exception, CancelledError) as error:
                came = error
            self._ended.put((attempt, came))

        if self._is_underway(attempt):  # else it was given up
            threading.Thread(target=take, name="hotbed-result", daemon=True).start()

    def _is_underway(self, attempt: _Underway) -> bool:
        return self._underway.get(attempt.begun.cell.run_id) is attempt

    def finished(self) -> tuple[Cell, Outcome]:
        """See `ParallelExecutor.finished`."""
        while not self._told:
            if self._suspects and not self._underway:  # nothing is started while we are in here
                suspect = self._suspects.popleft()
                self._submit(suspect.begun, suspect.task, alone=True)
            ended = self._next()
            if self._interrupted:
                self._give_up("KeyboardInterrupt", "interrupted")
            elif ended is not None:
                self._end(*ended)
            elif self._alone_s() > ALONE_S:
                why = (
                    f"no Dask worker has been there for {ALONE_S:g} s: start some; the same "
                    "command goes on from here."
                )
                self._give_up("ConnectionError", why, fatal=True)
        return self._told.popleft()

    def _end(self, attempt: _Underway, came: Made | BaseException) -> None:
        if not self._is_underway(attempt):
            return
        from distributed import KilledWorker

        del self._underway[attempt.begun.cell.run_id]
        if isinstance(came, KilledWorker) and not attempt.alone:
            self._suspects.append(attempt)  # the deaths may have been another cell's doing
        else:
            self._told.append((attempt.begun.cell, self._taken(attempt, came)))

    def _next(self) -> _Ended | None:
        """What ends next; None after a while without anything, or when it is to end."""
        if self._interrupted:
            return None
        try:
            return self._ended.get(timeout=WIDTH_S)
        except Empty:
            return None

    def _alone_s(self) -> float:
        """For how long there has been no worker."""
        if self.width > 1:
            self._seen = time.monotonic()
        return time.monotonic() - self._seen

    def interrupt(self) -> None:
        """See `Executor.interrupt`. A worker of a cluster ends the cell it is at; nobody takes its
        result. (Those of this machine end with the cluster.)"""
        self._interrupted = True
        self._ended.put(None)

    def kill(self) -> None:
        """See `Executor.kill`."""
        self._killed = True
        self.interrupt()

    def _controller(self, cell: Cell) -> _Files | None:
        """The files of a controller from outside; None for one of ours, which workers have."""
        name, folder = cell.parameters.controller, self._setting.controllers_dir
        if name not in self._packed:
            found = find(name, [] if folder is None else [folder])
            self._packed[name] = pack_folder(found.folder) if found.outside else None
        return self._packed[name]

    def _give_up(self, kind: str, why: str, *, fatal: bool = False) -> None:
        """Every attempt under way ends without a result."""
        attempts, self._underway = [*self._underway.values(), *self._suspects], {}
        self._suspects.clear()
        if not self._killed:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self._client.cancel([attempt.future for attempt in attempts], force=True)
        for attempt in attempts:
            outcome = self._without(attempt, kind, why, fatal=fatal)
            self._told.append((attempt.begun.cell, outcome))

    def _taken(self, attempt: _Underway, came: Made | BaseException) -> Outcome:
        """How an attempt ended, its files in its folder."""
        if isinstance(came, BaseException):
            kind, message, fatal = _failure(came)
            return self._without(attempt, kind, message, fatal=fatal)
        try:
            came.unpack(attempt.begun.folder)
        except OSError as error:
            if not is_full(error):
                raise
            return self._without(attempt, "OSError", str(error))
        return self.conclude(attempt.begun, None, came.seconds)

    def _without(
        self, attempt: _Underway, kind: str, message: str, *, fatal: bool = False
    ) -> Outcome:
        """An attempt that brought nothing."""
        error = json.dumps({"kind": kind, "message": message}) + "\n"
        with contextlib.suppress(OSError):  # a full disk: the outcome says so
            (attempt.begun.folder / ERROR_FILE).write_text(error)
        outcome = self.conclude(attempt.begun, None, time.monotonic() - attempt.started)
        return replace(outcome, fatal=outcome.fatal or fatal)


def _failure(error: BaseException) -> tuple[str, str, bool]:
    """Kind and sentence of what an attempt brought instead of a result, and whether no other cell
    can fare better."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    name = type(error).__name__
    if isinstance(error, WrongWorker):
        return "WrongWorker", f"{error}.", True
    if isinstance(error, KilledWorker):
        why = (
            f"its worker died, and so did {error.allowed_failures} others that were given the "
            "cell: look at their memory and logs."
        )
        return "KilledWorker", why, False
    if isinstance(error, (FutureCancelledError, CancelledError, OSError)):
        why = (
            f"the connection to the Dask scheduler was lost ({name}): the same command goes on "
            "from here."
        )
        return "ConnectionError", why, True
    text = " ".join(str(error).split())[:300]  # what Dask itself makes of a task
    return name, f"the worker failed: {text}", False
