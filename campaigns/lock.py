"""One engine a campaign, and one campaign a testbed.

The lock is the kernel's (flock): it goes away with its last holder, however that ended. The engine
passes it on to each cell's process, so that after a kill -9 of the engine the next one waits until
the orphaned cell has cleaned the testbed.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from schemas.errors import HotbedError, UserError
from schemas.locks import open_lock

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

ORPHAN_WAIT_S = 120.0
"""How long a cell without an engine may take to put the testbed back."""


class Lock:
    """An exclusive lock on the file `path`; use it as a context manager."""

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        orphan_wait_s: float = ORPHAN_WAIT_S,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.path = path
        self.what = what
        self._wait_s = orphan_wait_s
        self._say = say
        self._handle: int | None = None

    @property
    def handle(self) -> int:
        """The locked file descriptor, to be passed on to a child."""
        assert self._handle is not None, "the lock is not held"
        return self._handle

    def __enter__(self) -> Lock:
        handle = open_lock(self.path)
        try:
            self._take(handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps({"pid": os.getpid()}).encode(), 0)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            # No unlocking by hand: a child that still cleans up keeps the lock.
            os.close(self._handle)
            self._handle = None

    def _take(self, handle: int) -> None:
        deadline = time.monotonic() + self._wait_s
        said = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            holder = self._holder(handle)
            if holder is not None and _alive(holder):
                raise UserError(
                    f"{self.what} is in use by another hotbed (process {holder}); wait for it, or "
                    f"stop it with: kill -INT {holder}"
                )
            if time.monotonic() > deadline:
                raise HotbedError(
                    f"{self.what} is still held by a cell whose engine (process {holder}) is "
                    f"gone; find it with: fuser {self.path}"
                )
            if not said:
                self._say("waiting for the last cell of a killed engine to clean up")
                said = True
            time.sleep(0.2)

    @staticmethod
    def _holder(handle: int) -> int | None:
        try:
            return int(json.loads(os.pread(handle, 100, 0))["pid"])
        except (ValueError, KeyError, TypeError):
            return None


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # A zombie holds nothing any more.
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def alone(testbed: Testbed, say: Callable[[str], None] = lambda text: None) -> Lock:
    """The lock of a testbed: whoever measures on it, or empties what others measure, holds it."""
    return Lock(testbed.directory / "campaign.lock", f"the testbed {testbed.name}", say=say)
