"""Disk space for results: checked before the start, with a reserve for a full disk."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

from schemas.errors import UserError
from testbed.spec.quantities import format_bytes

RUN_BYTES = 3 * 2**20
"""Size of an attempt with samples, journal, logs and notebook (measured: about 1 MiB a minute)."""

RESERVE_BYTES = 2**20
RESERVE_NAME = ".reserve"


def need_bytes(runs: int, finished: Iterable[Path] = ()) -> int:
    """Return the bytes that `runs` more attempts need, from the largest finished one if any."""
    sizes = [_size(folder) for folder in finished]
    each = max([RUN_BYTES // 4, *sizes]) if sizes else RUN_BYTES
    return runs * each + RESERVE_BYTES


def require_room(folder: Path, runs: int, finished: Iterable[Path] = ()) -> None:
    """Raise UserError unless `runs` more attempts fit under `folder` (which must exist)."""
    need = need_bytes(runs, finished)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"{folder} has {format_bytes(free)} free, and {runs} runs need about "
            f"{format_bytes(need)}: free some space, or give --artifacts another folder."
        )


class Reserve:
    """A file that is deleted when the disk is full, so that the failure can still be recorded."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESERVE_NAME

    def take(self) -> None:
        """Fill the reserve; raise OSError if it does not fit."""
        if not self.path.is_file() or self.path.stat().st_size < RESERVE_BYTES:
            self.path.write_bytes(b"\0" * RESERVE_BYTES)

    def release(self) -> None:
        """Delete the reserve."""
        self.path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Return True if `error` means that the disk (or a quota) is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def nearly_full(folder: Path) -> bool:
    """Return True if the free space is too small for a small attempt."""
    return shutil.disk_usage(folder).free < RESERVE_BYTES // 4


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
