"""Small files that are written whole or not at all, and locks that end with their process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import UserError
from testbed.sites.contract import SiteError


def write(path: Path, data: str, mode: int = 0o644) -> None:
    """Replace `path` by `data`; a reader sees the old or the new file, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(mode)
    temporary.replace(path)


@contextmanager
def locked(path: Path, *, timeout_s: float, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; it ends with the process, however that ends.

    Raises:
        UserError: the folder or the file cannot be made.
        SiteError: with the text `busy`, when somebody else holds it for longer than `timeout_s`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise UserError(
            f"{path.parent}, where testbeds are remembered, cannot be written ({error.strerror}): "
            "run this as its owner, or set HOTBED_STATE to a folder of yours."
        ) from error
    with file:
        end = time.monotonic() + timeout_s
        while not _take(file.fileno()):
            if time.monotonic() >= end:
                raise SiteError(busy, retry_after_s=30.0)
            time.sleep(0.1)
        yield


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
