"""Simulated cells on Dask workers: a cluster of this machine, or an existing cluster.

The engine's process alone writes folders, ledger and records; a worker gets a task and returns
files. They share only Hotbed's code: job, recipe and files of an outside controller are part of the
task. If a worker dies, Dask has other workers make its cell, at most three times. Dask counts a
death against every cell assigned to the worker, even a cell that only waited there. A cell that
Dask gives up is therefore tried once more with no other cell under way. An error that a cell itself
raised is its failure, as everywhere.

A result stays at its worker until it is fetched. If the worker dies first, Dask has the cell made
again, and the fetch waits for it. Each result is therefore fetched in its own thread, so that
interrupts and the loss of all workers are noticed meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sys
import tempfile
import threading
import time
import zlib
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from campaigns.engine.attempts import AttemptRecords, Begun
from campaigns.engine.identity import INSTALL, OTHER, Recipe, Sameness, WrongWorker
from campaigns.engine.job import ERROR_FILE, Job, Outcome, utc_now, write_error
from campaigns.engine.plan import Cell
from campaigns.engine.store import is_full
from schemas.errors import UserError, not_allowed
from schemas.names import safe_path
from testbed.closure import Closure

if TYPE_CHECKING:
    from distributed import Client, Future

MOST_LOCAL = 1024
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")


@dataclass(frozen=True)
class Workers:
    """Workers for cells. `scheduler` is the address of a Dask scheduler. Without it, `count`
    processes of this machine do the work, by default one per processor. UserError: the address or
    the count is invalid."""

    scheduler: str | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.count is not None:
            raise UserError(
                "--workers is the number of processes on this machine, and --scheduler asks a "
                "cluster instead",
                do="give one of them",
            )
        if self.scheduler is not None and not _ADDRESS.fullmatch(self.scheduler):
            raise UserError(
                f"{self.scheduler} is no address of a Dask scheduler",
                where="--scheduler",
                do="give an address such as tcp://10.0.0.1:8786 (or tls://)",
            )
        if self.count is not None and not 1 <= self.count <= MOST_LOCAL:
            raise not_allowed("--workers", self.count, f"1 to {MOST_LOCAL}")

    @property
    def processes(self) -> int:
        """Number of processes on this machine; 0 if a cluster does the work."""
        if self.scheduler is not None:
            return 0
        return self.count or len(os.sched_getaffinity(0))


_Files = tuple[str, Mapping[str, bytes]]  # a folder's name, and its files by relative path
_LEVEL = 1  # fastest level: journals of large stores are megabytes of JSON

WIDTH_S = 5.0
"""Seconds for which a count of the workers is valid."""

ALONE_S = 300.0
"""Seconds without a worker after which the executor gives up. Restarting a dead worker takes
seconds, or minutes on a busy machine."""

LOCALHOST = "127.0.0.1"
CONNECT_S = 10.0
WORKERS_S = 30.0
"""Seconds within which a cluster must have a worker."""

LOCAL: Mapping[str, Any] = {
    "distributed.scheduler.http.routes": [],  # no dashboard
    "distributed.worker.http.routes": [],
    # By default Dask gives up a worker that is not back 15 s after its death, and the nanny that
    # restarts it. On a busy machine that happens to all workers, one after the other.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    "distributed.worker.preload": ["campaigns.engine.dask_interrupts"],
}
"""Dask's settings for workers of this machine."""


@dataclass(frozen=True)
class Task:
    """A cell for a worker.

    Attributes:
        job: the attempt's job, as JSON.
        recipe: makes the cell.
        same: digest that the worker must have (`Sameness.digest`).
        controller: name and files of the controller's folder, if it is not one of Hotbed's own.
    """

    job: str
    recipe: Recipe
    same: str
    controller: _Files | None = None


@dataclass(frozen=True)
class Made:
    """Compressed files of a cell's folder by relative path, and the seconds that the cell took."""

    files: Mapping[str, bytes]
    seconds: float

    @classmethod
    def of(cls, folder: Path, started: float) -> Made:
        """Pack the files in `folder`; `started` is a time of the monotonic clock."""
        files = {name: zlib.compress(found, _LEVEL) for name, found in _files_of(folder).items()}
        return cls(files, time.monotonic() - started)

    def unpack(self, folder: Path) -> None:
        """Write the files into `folder`."""
        files = {name: zlib.decompress(packed) for name, packed in self.files.items()}
        _write(folder, files, "a Dask worker")


def run_task(task: Task) -> Made:
    """Make the cell in its own folder; if it raises, the error is in the file `error.json`.
    WrongWorker: this worker has other code or libraries."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotbed-cell-", dir=_scratch()) as name:
        folder = Path(name) / "attempt"
        (folder / "logs").mkdir(parents=True)
        job = Job.model_validate_json(task.job)
        own, code = None, job.code
        if task.controller is not None:
            own, (called, files) = f"{name}/own", task.controller
            _write(Path(own, called), files, "the engine")
            code = (code[0], Closure((f"{own}/{called}",), code[1].digest))
        job = job.model_copy(update={"started_at": utc_now(), "controllers_dir": own, "code": code})
        task.recipe.same.require(task.same, job)
        try:
            task.recipe.make(job, folder)
        except (Exception, SystemExit) as error:
            write_error(folder, error)
        return Made.of(folder, started)


def _scratch() -> str | None:
    """Return the worker's own folder, which Dask removes with the worker, even a killed one."""
    if "distributed" not in sys.modules:  # called by hand; the import takes seconds
        return None
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:  # called by hand
        return None


def _files_of(folder: Path) -> dict[str, bytes]:
    """Return the files in a folder by relative path, without Python's compiled files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _write(folder: Path, files: Mapping[str, bytes], source: str) -> None:
    """Write files by relative path into `folder`; `source` names who sent them, for errors."""
    for name, content in files.items():
        path = folder / safe_path(name, source)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextmanager
def open_cluster(workers: Workers, same: Sameness) -> Iterator[Client]:
    """Yield a client of the workers; workers of this machine end with it.

    Workers of this machine have one thread each, listen only on 127.0.0.1 and have no dashboard.
    They take work only from clients with a certificate that is made here for the cluster.
    UserError: no scheduler answers at the address, there is no worker, or a worker has other code
    or libraries than this process."""
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if workers.scheduler is None:
            client = _local(workers.processes, stack)
        else:
            client = _remote(workers.scheduler, stack)
        refuse_others(client, same)
        yield client


def _local(processes: int, stack: ExitStack) -> Client:
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    stack.enter_context(dask.config.set(LOCAL))
    scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="hotbed-dask-"))
    cluster = LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        host=LOCALHOST,
        protocol="tls://",
        security=Security.temporary(),
        dashboard_address=f"{LOCALHOST}:0",  # LOCAL removes its pages
        silence_logs=logging.CRITICAL,
        local_directory=scratch,
        memory_limit=0,
    )
    stack.callback(cluster.close)
    client = Client(cluster, set_as_default=False)
    stack.callback(client.close)
    return client


def _remote(address: str, stack: ExitStack) -> Client:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        why = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(
            f"nobody answers there as a Dask scheduler within {CONNECT_S:g} s ({why})",
            where=f"--scheduler {address}",
            do="start one with `dask scheduler`, or check the address",
        ) from error
    stack.callback(client.close)
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError as error:
        raise UserError(
            "the scheduler has no worker",
            where=f"--scheduler {address}",
            do=f"start some with `dask worker {address}`",
        ) from error
    return client


def refuse_others(client: Client, same: Sameness) -> None:
    """Raise if a worker has other code or libraries than this process. UserError: the first such
    worker. StoreError: the simulator is missing here, or was built from other sources."""
    ours = same.digest()
    found = client.run(same.digest, on_error="return")
    for address, theirs in sorted(found.items()):
        if isinstance(theirs, Exception):
            text = " ".join(str(theirs).split())[:200]
            why = f"cannot compute cells ({type(theirs).__name__}: {text})"
        elif theirs != ours:
            why = OTHER
        else:
            continue
        raise UserError(why, where=f"worker {address}", do=INSTALL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's messages about lost workers, because the engine reports them."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True)
class _Underway:
    begun: Begun
    task: Any
    future: Future[Any]
    started: float
    alone: bool = False  # no other cell is under way


_Ended = tuple[_Underway, Made | BaseException]


class DaskExecutor:
    """An `Executor` on Dask workers; everything but the cells runs in the caller's thread.

    Attributes:
        recipe: makes a cell on a worker.
        client: a client of the workers.
    """

    def __init__(self, attempts: AttemptRecords, recipe: Recipe, client: Client) -> None:
        self._attempts = attempts
        self._recipe = recipe
        self._client = client
        self._underway: dict[str, _Underway] = {}  # by run id
        self._suspects: deque[_Underway] = deque()  # given up while others were under way
        self._ended: SimpleQueue[_Ended | None] = SimpleQueue()  # None: check the flags
        self._outcomes: deque[tuple[Cell, Outcome]] = deque()
        self._packed: dict[str, _Files] = {}
        self._width, self._counted = 1, -math.inf
        self._seen = time.monotonic()  # when a worker was last seen

    @property
    def width(self) -> int:
        """Number of the workers' threads plus one, so that no worker waits for the engine."""
        if time.monotonic() - self._counted > WIDTH_S and not self._attempts.interrupted:
            with contextlib.suppress(OSError, TimeoutError):  # then the futures report it
                self._width = 1 + sum(self._client.nthreads().values())
            self._counted = time.monotonic()
        return self._width

    def start(self, cell: Cell) -> None:
        begun = self._attempts.begin(cell)
        if isinstance(begun, Outcome):
            self._outcomes.append((cell, begun))
            return
        same, controller = self._recipe.same, self._controller(cell)
        task = Task(begun.job.model_dump_json(), self._recipe, same.digest(), controller)
        self._submit(begun, task)

    def _submit(self, begun: Begun, task: Any, *, alone: bool = False) -> None:
        run_id = begun.cell.run_id
        key = f"hotbed-{run_id}-{begun.job.attempt}-{time.monotonic_ns()}"
        future = self._client.submit(run_task, task, key=key, pure=False)
        attempt = _Underway(begun, task, future, time.monotonic(), alone)
        self._underway[run_id] = attempt
        future.add_done_callback(lambda _: self._fetch(attempt))

    def _fetch(self, attempt: _Underway) -> None:
        """Fetch the result of an ended attempt (called in a thread of Dask's)."""

        def take() -> None:
            came: Made | BaseException
            try:
                came = attempt.future.result()
            except (Exception, CancelledError) as error:
                came = error
            self._ended.put((attempt, came))

        if self._is_underway(attempt):  # else the attempt was given up
            threading.Thread(target=take, name="hotbed-result", daemon=True).start()

    def _is_underway(self, attempt: _Underway) -> bool:
        return self._underway.get(attempt.begun.cell.run_id) is attempt

    def finished(self) -> tuple[Cell, Outcome]:
        while not self._outcomes:
            if self._suspects and not self._underway:  # no cell is started during this call
                suspect = self._suspects.popleft()
                self._submit(suspect.begun, suspect.task, alone=True)
            ended = self._next()
            if self._attempts.interrupted:
                self._give_up("KeyboardInterrupt", "interrupted")
            elif ended is not None:
                self._end(*ended)
            elif self._alone_s() > ALONE_S:
                why = (
                    f"no Dask worker has been there for {ALONE_S:g} s: start one, then give "
                    "the same command again to resume."
                )
                self._give_up("ConnectionError", why, fatal=True)
        return self._outcomes.popleft()

    def _end(self, attempt: _Underway, came: Made | BaseException) -> None:
        if not self._is_underway(attempt):
            return
        from distributed import KilledWorker

        del self._underway[attempt.begun.cell.run_id]
        if isinstance(came, KilledWorker) and not attempt.alone:
            self._suspects.append(attempt)  # another cell may have caused the deaths
        else:
            self._outcomes.append((attempt.begun.cell, self._taken(attempt, came)))

    def _next(self) -> _Ended | None:
        """Return the next ended attempt; None after `WIDTH_S` seconds or on an interrupt."""
        if self._attempts.interrupted:
            return None
        try:
            return self._ended.get(timeout=WIDTH_S)
        except Empty:
            return None

    def _alone_s(self) -> float:
        """Return the seconds since a worker was last seen."""
        if self.width > 1:
            self._seen = time.monotonic()
        return time.monotonic() - self._seen

    def interrupt(self) -> None:
        """See `Executor.interrupt`. A worker of a remote cluster finishes its cell, and the result
        is discarded. Workers of this machine end with the cluster."""
        self._attempts.interrupted = True
        self._ended.put(None)

    def kill(self) -> None:
        self._attempts.killed = True
        self.interrupt()

    def _controller(self, cell: Cell) -> _Files | None:
        """Return the files of an outside controller; None for one of Hotbed's, because workers have
        it."""
        name = cell.parameters.controller
        folder = self._attempts.prepared.outside.get(name)
        if folder is not None and name not in self._packed:
            self._packed[name] = folder.name, _files_of(folder)
        return self._packed.get(name)

    def _give_up(self, kind: str, why: str, *, fatal: bool = False) -> None:
        """End every attempt under way without a result."""
        attempts, self._underway = [*self._underway.values(), *self._suspects], {}
        self._suspects.clear()
        if not self._attempts.killed:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self._client.cancel([attempt.future for attempt in attempts], force=True)
        for attempt in attempts:
            outcome = self._without(attempt, kind, why, fatal=fatal)
            self._outcomes.append((attempt.begun.cell, outcome))

    def _taken(self, attempt: _Underway, came: Made | BaseException) -> Outcome:
        """Unpack an attempt's files into its folder, and return its outcome."""
        if isinstance(came, BaseException):
            kind, message, fatal = _failure(came)
            return self._without(attempt, kind, message, fatal=fatal)
        try:
            came.unpack(attempt.begun.folder)
        except OSError as error:
            if not is_full(error):
                raise
            return self._without(attempt, "OSError", str(error))
        return self._attempts.conclude(attempt.begun, None, came.seconds)

    def _without(
        self, attempt: _Underway, kind: str, message: str, *, fatal: bool = False
    ) -> Outcome:
        """Return the outcome of an attempt without a result."""
        error = json.dumps({"kind": kind, "message": message}) + "\n"
        with contextlib.suppress(OSError):  # if the disk is full, the outcome reports it
            (attempt.begun.folder / ERROR_FILE).write_text(error)
        outcome = self._attempts.conclude(attempt.begun, None, time.monotonic() - attempt.started)
        return replace(outcome, fatal=outcome.fatal or fatal)


def _failure(error: BaseException) -> tuple[str, str, bool]:
    """Return the kind and sentence of an attempt's error, and True if no other cell can succeed."""
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
            f"the connection to the Dask scheduler was lost ({name}): give the same "
            "command again to resume."
        )
        return "ConnectionError", why, True
    text = " ".join(str(error).split())[:300]  # Dask's own error with a task
    return name, f"the worker failed: {text}", False
