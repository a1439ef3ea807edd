"""Locks of testbeds, with error messages for commands that must wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import UserError
from schemas.locks import take
from testbed.sites.contract import SiteError


@contextmanager
def locked(path: Path, *, timeout_s: float, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; it ends with the process, however the process ends.

    Raises:
        UserError: the folder or the file cannot be made.
        SiteError: with the text `busy`, if another process holds it for longer than `timeout_s`.
    """
    try:
        handle = take(path, timeout_s)
    except BlockingIOError as error:
        raise SiteError(busy, retry_after_s=30.0) from error
    except OSError as error:
        raise UserError(
            f"{path.parent}, where testbeds are remembered, cannot be written ({error.strerror}): "
            "run this as its owner, or set HOTBED_STATE to a folder of yours."
        ) from error
    try:
        yield
    finally:
        os.close(handle)
