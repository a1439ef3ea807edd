"""Folders of a bundle's thousands of small files: making one costs a file system more than what is
written into them, so that it is done once for each and, where it can be, by several threads."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from analysis.bundle import memory

MEMORY = Path("/dev/shm")
SPARE = 4
"""How many times as much memory must be left as goes into files: the analysis needs some too."""
PREFIXES = ("hotbed-bundle-", "hotbed-verify-")
"""What names of folders here begin with; no others are swept."""
_GIVEN = "[a-z0-9_]" * 8
"""What `tempfile` puts behind it."""
_UNHELD_S = 60.0
"""How old a folder that nobody holds must be to be left over, and not just being made."""
MOST_WORKERS = 4
_RUNS = ("artifacts/*/*", "*/artifacts/*/*")
"""Where runs lie, in a stage and in what `verify` unpacks."""


def workers(files: int) -> int:
    """How many workers are worth their start for so many files."""
    return min(MOST_WORKERS, os.cpu_count() or 1, 1 + files // 200)


class Folders:
    """Makes folders, each once."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def hold(self, file: str) -> None:
        """See to it that there is a folder for `file`."""
        folder = file.rpartition("/")[0]
        if folder not in self._made:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._made.add(folder)


@contextmanager
def working_folder(prefix: str, need: int | None = None) -> Iterator[Path]:
    """A temporary folder that goes with the block, its runs by several threads.

    Args:
        prefix: what its name begins with.
        need: bytes that will be in it, at most; None where nobody knows. Where memory has several
            times as much to spare it is there, unless TMPDIR says where: a disk takes as long
            for thousands of small files as all that is done with them.
    """
    parent = _in_memory(need)
    if parent is not None:
        _sweep(parent)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as place, _held(place):
        try:
            yield Path(place)
        finally:
            runs = [run for pattern in _RUNS for run in Path(place).glob(pattern)]
            with ThreadPoolExecutor(workers(len(runs))) as pool:
                # What cannot be removed is the temporary folder's to tell of.
                list(pool.map(lambda run: shutil.rmtree(run, ignore_errors=True), runs))


def _in_memory(need: int | None) -> Path | None:
    """The folder of files in memory, where `need` bytes may go there."""
    if need is None or any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP")):
        return None
    try:
        free = shutil.disk_usage(MEMORY).free
        usable = os.access(MEMORY, os.W_OK | os.X_OK) and _is_memory(MEMORY)
    except OSError:
        return None
    return MEMORY if usable and min(free, memory.available()) >= SPARE * need else None


def _is_memory(folder: Path) -> bool:
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return any(line[1] == str(folder) and line[2] == "tmpfs" for line in lines if len(line) > 2)


@contextmanager
def _held(place: str) -> Iterator[None]:
    """Marks a folder as somebody's for as long as this process lives."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _sweep(parent: Path) -> None:
    """Remove what a process that was killed has left in memory, where nothing else would until the
    machine starts anew."""
    for folder in (one for prefix in PREFIXES for one in parent.glob(prefix + _GIVEN)):
        try:
            about = folder.lstat()
            aged = time.time() - about.st_mtime > _UNHELD_S
            if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode) or not aged:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # somebody's
            pass
        finally:
            os.close(descriptor)
