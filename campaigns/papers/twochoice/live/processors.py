"""Load of the processors that all nodes of a local testbed share. The disks, not the processors,
must be the bottleneck."""

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
"""Share of processor time above which a run measures the machine, not the disks."""


def ticks(stat: Path = STAT) -> tuple[int, ...]:
    """Return this machine's processor ticks so far, by kind, as in /proc/stat."""
    line = stat.read_text().split("\n", 1)[0]
    return tuple(int(field) for field in line.split()[1 : _COUNTED + 1])


def awake_s(site: Site) -> float:
    """Return the processor time, in seconds, spent so far on keeping the site's machine awake."""
    return site.awake_s() if isinstance(site, AwakeSite) else 0.0


def busy_between(before: Sequence[int], after: Sequence[int], awake_s: float = 0.0) -> float:
    """Return the share of the time, 0 to 1, in which the processors worked.

    Args:
        before: ticks at the beginning.
        after: ticks at the end.
        awake_s: seconds spent on keeping processors awake; they count as idle, because that work
            yields to all other work.
    """
    delta = [b - a for a, b in zip(before, after, strict=True)]
    if sum(delta) <= 0:
        return 0.0
    idle = sum(delta[place] for place in _IDLE) + awake_s * _TICKS_S
    return max(0.0, 1.0 - idle / sum(delta))


def too_busy(busy: float | None) -> str | None:
    """Return why a run that must be limited by the disks does not count; None if it counts or the
    load is unknown."""
    if busy is None or busy <= MOST_BUSY:
        return None
    return (
        f"the machine's processors were busy for {100 * busy:.0f} % of the time (at most "
        f"{100 * MOST_BUSY:g} %): they were short, and not the disks"
    )
