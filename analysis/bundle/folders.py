"""Folders of a bundle's thousands of small files: making one costs a file system more than what is
written into them, so that it is done once for each and, where it can be, by several threads."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

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
def working_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder that goes with the block, its runs by several threads."""
    with tempfile.TemporaryDirectory(prefix=prefix) as place:
        try:
            yield Path(place)
        finally:
            runs = [run for pattern in _RUNS for run in Path(place).glob(pattern)]
            with ThreadPoolExecutor(workers(len(runs))) as pool:
                # What cannot be removed is the temporary folder's to tell of.
                list(pool.map(lambda run: shutil.rmtree(run, ignore_errors=True), runs))
