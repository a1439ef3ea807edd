"""Settling of a store under open-loop writes: the time until it is stable (section 5.2 of the paper
Ursa: "until the system responds to a request within 1 second")."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

STABLE_S = 1.0
"""Response times below this are stable (section 5.2)."""

WINDOW_S = 10.0
SLOW_SHARE = 0.01
"""Largest share of slow writes in a window of a stable store. From some moment on, every window
must keep to it; one slow write is always allowed."""

HOLD_S = 30.0
"""Time for which a settled store must stay stable. A burst minutes later does not undo this (only
the settling time for good shows it), and a run must last this long after settling to show it.

The paper gives no such time. It follows from 20 runs on ten local OSDs, 70 or 100 s long from the
call on. With 20 s, two runs would have settled although slow writes came back within 30 s. With 10
s, one more would have settled 15 s too soon. Such runs allow no more than 30 s: two already do not
show that they settled (last slow writes 41 and 43 s after the call), at 40 s two more.
"""


def settled_from(
    starts: Sequence[float],
    latencies: Sequence[float | None],
    called_s: float,
    hold_s: float = HOLD_S,
) -> float | None:
    """Return the first second from `called_s` on from which every window is stable for `hold_s`
    (infinite: until the end, however soon); None if it never settled while writes came. `starts`
    are the intended starts of the writes, ascending, and `latencies` None or NaN for writes that
    were never done. All are seconds, starts from the load's start."""
    # (NaN compares as false, so it counts as slow here.)
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
