"""How busy the processors are of the machine that all nodes of a local testbed share: disks are to
be what is short, not processors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

STAT = Path("/proc/stat")
_IDLE = (3, 4)  # idle, and waiting for input or output
_COUNTED = 8

MOST_BUSY = 0.9
"""Above this share of the processors' time, what was measured is the machine."""


def ticks(stat: Path = STAT) -> tuple[int, ...]:
    """What the processors of this machine did so far, by kind, as /proc/stat counts it."""
    line = stat.read_text().split("\n", 1)[0]
    return tuple(int(field) for field in line.split()[1 : _COUNTED + 1])


def busy_between(before: Sequence[int], after: Sequence[int]) -> float:
    """Share of the time, 0 to 1, in which the processors worked."""
    delta = [b - a for a, b in zip(before, after, strict=True)]
    return 1.0 - sum(delta[place] for place in _IDLE) / sum(delta) if sum(delta) > 0 else 0.0


def too_busy(busy: float | None) -> str | None:
    """Why a run in which the disks were to be short tells nothing; None when it counts, or nobody
    can tell."""
    if busy is None or busy <= MOST_BUSY:
        return None
    return (
        f"the machine's processors were busy for {100 * busy:.0f} % of the time (at most "
        f"{100 * MOST_BUSY:g} %): they were short, and not the disks"
    )
