"""Locks that end with their process, and the folder of the machine-wide locks.

No lock is in a folder that other users may write to: another user could hold it first, or put a
link in its place. Standard library only: the agent side imports this file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from schemas.durable import make_folder
from schemas.errors import UserError

RUN = Path("/run/hotbed")
"""Root's folder of locks and sockets; a boot empties it."""
_AGAIN_S = 0.1


def run_folder() -> Path:
    """Return the folder of this user's locks and sockets: `RUN` for root, else in XDG_RUNTIME_DIR
    or, without one, in the user's cache. It may be missing; see `own_folder`."""
    if os.geteuid() == 0:
        return RUN
    given = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME")
    return Path(given or Path.home() / ".cache") / "hotbed"


def own_folder(folder: Path) -> Path:
    """Make `folder` if it is missing, closed to other users; return it. UserError: it belongs to
    another user, or is no folder. OSError: it cannot be made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise UserError(
            "is no folder of yours", where=folder, do="remove it, or set XDG_RUNTIME_DIR"
        )
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def machine_lock(name: str) -> Path:
    """Return the path of the lock `name`, which all state folders of this machine share; its folder
    is made and checked by `own_folder`."""
    return own_folder(own_folder(run_folder()) / "locks") / f"{name}.lock"


def open_lock(path: Path) -> int:
    """Open the lock file `path`; make it and its folder if missing. Never follows a link; the
    descriptor is not inherited."""
    make_folder(path.parent)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def take(path: Path, wait_s: float | None = None) -> int:
    """Lock the file `path`; return the descriptor, with which the lock ends. Wait at most `wait_s`
    for its holder; None: until it is free. BlockingIOError: another process still holds it.
    OSError: it cannot be made."""
    handle = open_lock(path)
    try:
        if wait_s is None:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return handle
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
            time.sleep(_AGAIN_S)
    except BaseException:
        os.close(handle)
        raise


def started(pid: int) -> str | None:
    """Return the process's start in clock ticks since boot; None if it has ended. A later process
    can have the same id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # A zombie no longer holds locks.
    return None if fields[0] in {"Z", "X"} else fields[19]


@contextlib.contextmanager
def held(path: Path, wait_s: float | None = None) -> Iterator[None]:
    """Hold `take` while the block runs."""
    handle = take(path, wait_s)
    try:
        yield
    finally:
        os.close(handle)
