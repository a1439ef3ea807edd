"""How busy the processors are of the machine that all nodes of a local testbed share: disks are to
be what is short, not processors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from testbed.sites.contract import AwakeSite, Site

STAT = Path("/proc/stat")
_IDLE = (3, 4)  # idle, and waiting for input or output
_COUNTED = 8
_TICKS_S = os.sysconf("SC_CLK_TCK")

MOST_BUSY = 0.9
"""Above this share of the processors' time, what was measured is the machine."""


def ticks(stat: Path = STAT) -> tuple[int, ...]:
    """What the processors of this machine did so far, by kind, as /proc/stat counts it."""
    line = stat.read_text().split("\n", 1)[0]
    return tuple(int(field) for field in line.split()[1 : _COUNTED + 1])


def awake_s(site: Site) -> float:
    """Processor time, in seconds, that went to keeping the site's machine awake so far."""
    return site.awake_s() if isinstance(site, AwakeSite) else 0.0


def busy_between(before: Sequence[int], after: Sequence[int], awake_s: float = 0.0) -> float:
    """Share of the time, 0 to 1, in which the processors worked.

    Args:
        before: ticks at the beginning.
        after: at the end.
        awake_s: seconds that went to keeping processors awake, which give way to everything: as
            good as idle.
    """
    delta = [b - a for a, b in zip(before, after, strict=True)]
    if sum(delta) <= 0:
        return 0.0
    idle = sum(delta[place] for place in _IDLE) + awake_s * _TICKS_S
    return max(0.0, 1.0 - idle / sum(delta))


def too_busy(busy: float | None) -> str | None:
    """Why a run in which the disks were to be short tells nothing; None when it counts, or nobody
    can tell."""
    if busy is None or busy <= MOST_BUSY:
        return None
    return (
        f"the machine's processors were busy for {100 * busy:.0f} % of the time (at most "
        f"{100 * MOST_BUSY:g} %): they were short, and not the disks"
    )
