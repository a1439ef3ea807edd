"""When a store under open-loop writes becomes stable (section 5.2 of the paper Ursa: "until the
system responds to a request within 1 second")."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

STABLE_S = 1.0
"""Response times below this are stable (section 5.2)."""

WINDOW_S = 10.0
SLOW_SHARE = 0.01
"""A store is stable from when on, in every window of so many seconds, no more than this share of
the writes (one is always allowed) takes longer."""

HOLD_S = 30.0
"""It has settled when it stays stable for so long. A burst minutes later does not undo that (it is
told by the settling time for good), and a run must last so long after it to show it.

The paper names no such time. Of 20 runs on ten OSDs of a local testbed, 70 or 100 s from the call
on, two would have settled with 20 s in which slow writes came back before 30 s were over, and one
more 15 s too soon with 10 s. Longer is not to be had of such runs: already with 30 s two do not
show that they settled, whose last slow writes were 41 and 43 s after the call; with 40 s two more.
"""


def settled_from(
    starts: Sequence[float],
    latencies: Sequence[float | None],
    called_s: float,
    hold_s: float = HOLD_S,
) -> float | None:
    """The first second from `called_s` on from which every window is stable for `hold_s`.

    Args:
        starts: intended starts of the writes, seconds from the load's start, ascending.
        latencies: of each, seconds; None or NaN where it was never done.
        called_s: seconds from the load's start.
        hold_s: how long it has to last; infinite: to the end, however soon that is.

    Returns:
        Seconds from the load's start; None: it never settled while writes came.
    """
    # (Written so that NaN, which compares as false, is slow.)
    slow = [0, *accumulate(took is None or not took < STABLE_S for took in latencies)]
    end = starts[-1] if len(starts) else 0.0
    stable: float | None = None
    second = called_s
    while second < end:
        first, last = bisect_left(starts, second), bisect_left(starts, second + WINDOW_S)
        if slow[last] - slow[first] > max(1.0, SLOW_SHARE * (last - first)):
            stable = None
        elif stable is None:
            stable = second
        second += 1.0
        if stable is not None and second - stable >= hold_s and second <= end:
            return stable
    return stable if math.isinf(hold_s) else None
