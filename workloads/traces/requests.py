"""Requests of a trace as arrays, whole or in blocks."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

UNKNOWN_OFFSET = -1


@dataclass(frozen=True)
class RequestBlock:
    """Requests, arrays of one length [n].

    `time_ns` is the arrival in nanoseconds from any zero, `size` in bytes, `read` is True for a
    read and False for a write, `offset` in bytes, or -1 if the trace does not give it.
    """

    time_ns: Integers
    size: Integers
    read: npt.NDArray[np.bool_]
    offset: Integers

    def __len__(self) -> int:
        return len(self.time_ns)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, bool, int]]) -> RequestBlock:
        """Return a block from rows (time_ns, size, read, offset)."""
        time, size, read, offset = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(
            np.array(time, np.int64),
            np.array(size, np.int64),
            np.array(read, np.bool_),
            np.array(offset, np.int64),
        )

    @classmethod
    def joined(cls, blocks: Iterable[RequestBlock]) -> RequestBlock:
        """Return all requests of several blocks, in their order."""
        parts = list(blocks) or [cls.of([])]
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS[:2]),
            *(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS[2:]),
        )

    def chosen(self, index: npt.NDArray[np.generic] | slice) -> RequestBlock:
        """Return the requests that an index, mask or slice picks."""
        return RequestBlock(
            self.time_ns[index], self.size[index], self.read[index], self.offset[index]
        )

    def by_time(self) -> RequestBlock:
        """Return the block sorted by arrival; requests of one instant keep their order."""
        if (np.diff(self.time_ns) >= 0).all():
            return self
        return self.chosen(np.argsort(self.time_ns, kind="stable"))


_COLUMNS = ("time_ns", "size", "read", "offset")


def save(blocks: Iterable[RequestBlock], path: Path) -> int:
    """Write ``ns,hex size,DiskRead|DiskWrite``, with a fourth column of known hex offsets; gzip if
    the name ends in ``.gz``. Return the number of requests."""
    count = 0
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as opened:
        file = cast(IO[str], opened)
        for block in blocks:
            count += len(block)
            columns = (getattr(block, name).tolist() for name in _COLUMNS)
            for time, size, read, offset in zip(*columns, strict=True):
                kind = "DiskRead" if read else "DiskWrite"
                where = "" if offset < 0 else f",0x{offset:x}"
                file.write(f"{time},0x{size:08x},{kind}{where}\n")
    return count
