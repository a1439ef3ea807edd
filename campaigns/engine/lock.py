"""Locks: one engine per campaign, and one measuring or changing command per testbed.

A lock is the kernel's (flock): it ends with its last holder, even a killed one. The engine passes
the lock on to each cell's process. After a kill -9 of the engine, the next engine thus waits until
the orphaned cell has cleaned the testbed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import HotbedError, UserError
from schemas.locks import open_lock, started

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

ORPHAN_WAIT_S = 120.0
"""Time for an orphaned cell or an interrupted command to restore the testbed."""
_MOST_BYTES = 4096  # length limit of a holder's description of itself


@dataclass(frozen=True)
class Holder:
    """A process that holds a lock.

    `started` is its start in clock ticks since boot, because a later process can have the same id.
    It is None in the lock of an older Hotbed.
    """

    pid: int
    started: str | None = None
    command: str = "another hotbed"

    @classmethod
    def of_this_process(cls) -> Holder:
        """Return this process with its command line."""
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        return cls(os.getpid(), started(os.getpid()), command[:200])

    def alive(self) -> bool:
        """Return True if the process still runs."""
        start = started(self.pid)
        return start is not None and self.started in (None, start)

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid})"


class InUseError(UserError):
    """Another process, `holder`, holds the lock."""

    def __init__(self, what: str, holder: Holder) -> None:
        super().__init__(
            f"{what} is in use by {holder}",
            do=f"wait for it, or end it with `kill -INT {holder.pid}`",
        )
        self.holder = holder


class Lock:
    """An exclusive lock on the file `path`; use it as a context manager.

    Args:
        path: the file; it is created if missing.
        what: the locked thing, for messages.
        orphan_wait_s: see `ORPHAN_WAIT_S`.
        say: gets a sentence before each wait.
        end_holder: interrupt the process that holds the lock, as Ctrl-C does, and wait for its end.

    Raises (on entry):
        InUseError: another process holds it.
        HotbedError: a cell without an engine, or an interrupted process, does not end in time.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        orphan_wait_s: float = ORPHAN_WAIT_S,
        say: Callable[[str], None] = lambda text: None,
        end_holder: bool = False,
    ) -> None:
        self.path = path
        self.what = what
        self._wait_s = orphan_wait_s
        self._say = say
        self._end_holder = end_holder
        self._handle: int | None = None

    @property
    def handle(self) -> int:
        """Locked file descriptor, for passing to a child."""
        assert self._handle is not None, "the lock is not held"
        return self._handle

    def __enter__(self) -> Lock:
        handle = open_lock(self.path)
        try:
            self._take(handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(Holder.of_this_process())).encode(), 0)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            # No explicit unlocking: a child that still cleans up keeps the lock.
            os.close(self._handle)
            self._handle = None

    def _take(self, handle: int) -> None:
        deadline = time.monotonic() + self._wait_s
        said = False
        interrupted = None
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            holder = _holder(handle)
            alive = holder is not None and holder.alive()
            if holder is not None and alive and holder != interrupted:
                if not self._end_holder:
                    raise InUseError(self.what, holder)
                self._say(f"ending {holder}")
                _interrupt(self.what, holder)
                interrupted, deadline = holder, time.monotonic() + self._wait_s
            if time.monotonic() > deadline:
                raise HotbedError(
                    f"{self.what} is still held by {holder}, which did not end in "
                    f"{self._wait_s:g} s: end it with: kill -KILL {holder.pid}"
                    if holder is not None and alive
                    else f"{self.what} is still held by a cell of a dead engine ({holder}); "
                    f"find it with: fuser {self.path}"
                )
            if not alive and not said:
                self._say("waiting for the last cell of a killed engine to clean up")
                said = True
            time.sleep(0.2)


def _holder(handle: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(handle, _MOST_BYTES, 0)))
    except (ValueError, TypeError):
        return None


def holder_of(path: Path) -> Holder | None:
    """Return the living process that holds the lock file, without touching the lock; None if there
    is none."""
    try:
        with path.open("rb") as file:
            holder = _holder(file.fileno())
    except OSError:
        return None
    return holder if holder is not None and holder.alive() else None


def _interrupt(what: str, holder: Holder) -> None:
    try:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGINT)
    except PermissionError as error:
        raise UserError(
            f"{what} is in use by {holder}, which belongs to another user",
            do="run this as that user (sudo)",
        ) from error


def path_in(folder: Path) -> Path:
    """Return the lock file of the testbed with this folder."""
    return folder / "campaign.lock"


def alone(
    testbed: Testbed, say: Callable[[str], None] = lambda text: None
) -> AbstractContextManager[object]:
    """Return the lock of a testbed, for every command that measures on it or changes it."""
    return alone_in(testbed.directory, testbed.name, say)


def alone_in(
    folder: Path,
    name: str,
    say: Callable[[str], None] = lambda text: None,
    *,
    end_holder: bool = False,
) -> AbstractContextManager[object]:
    """Return the lock of the testbed `name`, even if the testbed is incomplete.

    Args:
        folder: the testbed's folder; without a folder, no process can work on the testbed. A folder
            of another user is not locked, because the command itself is refused there.
        say, end_holder: as in `Lock`.
    """
    if not os.access(folder, os.W_OK):
        return nullcontext()
    return Lock(path_in(folder), f"the testbed {name}", say=say, end_holder=end_holder)
