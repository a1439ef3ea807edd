"""Room for results: asked for before anything starts, and a reserve for when it runs out."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path

from schemas.errors import UserError
from testbed.quantities import format_bytes

RUN_BYTES = 3 * 2**20
"""An attempt with its samples, journal, logs and notebook (measured: about 1 MiB a minute)."""

RESERVE_BYTES = 2**20
RESERVE_NAME = ".reserve"


def need_bytes(runs: int, finished: Iterable[Path] = ()) -> int:
    """Room for `runs` more attempts, from the largest finished one where there is any."""
    sizes = [_size(folder) for folder in finished]
    each = max([RUN_BYTES // 4, *sizes]) if sizes else RUN_BYTES
    return runs * each + RESERVE_BYTES


def require_room(folder: Path, runs: int, finished: Iterable[Path] = ()) -> None:
    """Raise a sentence unless `runs` more attempts fit under `folder` (which exists)."""
    need = need_bytes(runs, finished)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"{folder} has {format_bytes(free)} free, and {runs} runs need about "
            f"{format_bytes(need)}: free some space, or give --artifacts another folder."
        )


class Reserve:
    """A file that is given up when the disk is full, so that the record of it still fits."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RESERVE_NAME

    def take(self) -> None:
        """Fill the reserve; OSError when there is no room even for that."""
        if not self.path.is_file() or self.path.stat().st_size < RESERVE_BYTES:
            self.path.write_bytes(b"\0" * RESERVE_BYTES)

    def release(self) -> None:
        """Give the reserve up."""
        self.path.unlink(missing_ok=True)


def is_full(error: OSError) -> bool:
    """Whether `error` says that the disk (or a quota) is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def nearly_full(folder: Path) -> bool:
    """Whether what is left would not hold one small attempt."""
    return shutil.disk_usage(folder).free < RESERVE_BYTES // 4


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
