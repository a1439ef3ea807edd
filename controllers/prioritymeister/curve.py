"""The exact r-b curve of a trace (section 4.1, figure 4a): the burst that each rate needs.

``b(r) = max over i <= j of (work of requests i to j) - r * (t_j - t_i)``

is the largest fill of an unbounded token bucket of rate r that replays the trace. The curve is
convex, piecewise linear and falls with r; all of it is computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.jit import COMPILED
from controllers.prioritymeister import hulls, tangents
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]

_Hull = tuple[Floats, Floats]

_COARSE = 64  # requests per step of the first, coarse pass over a trace
_LONG = 1000 if COMPILED else 1 << 62  # requests from which tangents are faster than hulls


@dataclass(frozen=True)
class RbCurve:
    """The r-b curve of work that arrived over `seconds`.

    `duration` and `work` [k] are the windows that are the worst for some rate, shortest first, from
    duration 0 (the most work that arrives at one instant) to one with the work of all of the trace.
    `mean_rate` is total work by `seconds` (first to last arrival); infinite for one instant.
    """

    duration: Floats
    work: Floats
    total: float
    seconds: float
    requests: int

    @property
    def mean_rate(self) -> float:
        return self.total / self.seconds if self.seconds > 0 else float("inf")

    def corners(self) -> tuple[Floats, Floats]:
        """Return (rates, bursts) of all corners, rates from 0 (where the burst is all work) up.

        Between two corners the curve is straight. Beyond the last corner the burst stays constant:
        the work that arrives at one instant.
        """
        rates = np.diff(self.work) / np.diff(self.duration)
        bursts = self.work[:-1] - rates * self.duration[:-1]
        return np.append(0.0, rates[::-1]), np.append(self.work[-1], bursts[::-1])

    def burst(self, rates: npt.ArrayLike) -> Floats:
        """Return the exact burst of each rate (0 or more)."""
        asked = np.asarray(rates, dtype=np.float64)
        slopes = np.diff(self.work) / np.diff(self.duration)  # falling
        window = np.searchsorted(-slopes, -asked, side="left")
        found: Floats = self.work[window] - asked * self.duration[window]
        return found


class CurveBuilder:
    """Builder that takes a trace block by block, in order of time, and keeps only its hulls.

    Args:
        tick: seconds per unit of time. Whole nanoseconds (1e-9) are exact, seconds are not: the
            seconds of a week are rounded to 1e-10, as much as the gap between two requests.
    """

    def __init__(self, tick: float = 1.0) -> None:
        self._tick = tick
        self._hull = (np.zeros(1), np.zeros(1))
        self._starts = (np.empty(0), np.empty(0))  # lower hull: times, work before
        self._later = self._starts  # more starts, of the last block: for later blocks
        self._total = 0.0
        self._first = self._last = 0.0
        self._requests = 0

    def add(self, times: npt.ArrayLike, work: npt.ArrayLike) -> None:
        """Add requests that follow the earlier ones.

        Args:
            times: ticks [n], never falling.
            work: work of each request, 0 or more.

        Raises:
            ValueError: times fall or work is negative.
        """
        t = np.ascontiguousarray(times, dtype=np.float64)
        w = np.ascontiguousarray(work, dtype=np.float64)
        if t.shape != w.shape or t.ndim != 1:
            raise ValueError("one work per time")
        if not len(t):
            return
        before = np.empty(len(t) + 1)
        before[0] = self._total
        state = tangents.summed(t, w, before)
        if state == tangents.WRONG and not ((w >= 0) & (w < np.inf)).all():
            raise ValueError("work must be 0 or more, and finite")
        if state == tangents.WRONG or (self._requests and t[0] < self._last):
            raise ValueError("times must not fall")
        if not np.isfinite(before[-1]):
            raise ValueError("work must be 0 or more, and finite")
        if state == tangents.SOME_NOTHING:
            some = w != 0
            t, w, before = t[some], w[some], before[np.append(some, True)]
            if not len(t):
                return
        self._keep(*self._later)
        hull, self._later = self._extended(t, w, before)
        if self._requests:
            earlier = np.arange(len(self._starts[0]))
            ends = hulls.upper(t, before[1:])
            hull = hulls.across(*self._starts, earlier, t, before[1:], ends, *hull)
        self._hull = hull
        self._first = self._first if self._requests else float(t[0])
        self._last = float(t[-1])
        self._total = float(before[-1])
        self._requests += len(t)

    def _extended(self, t: Floats, w: Floats, before: Floats) -> tuple[_Hull, _Hull]:
        """Return the hull with all windows of a block, and the block's starts with the work before
        them: their lower hull, or all."""
        start, end = before[:-1], before[1:]
        if len(t) >= _LONG:
            *own, whole = tangents.windows(t, w, before)
            hull = hulls.merged(*self._hull, *own)
            if whole:
                return hull, (t, start)
        else:
            hull = hulls.merged(*self._hull, np.zeros(1), np.array([w.max()]))
        firsts = np.arange(0, len(t), _COARSE)
        lasts = np.append(firsts[1:], len(t)) - 1
        # Whole stretches first: their hull rules out most windows cheaply.
        coarse = hulls.windows(t[firsts], start[firsts], t[lasts], end[lasts], *hull)
        fine = hulls.windows(t, start, t, end, coarse[0], coarse[1])
        return (fine[0], fine[1]), (t[fine[2]], start[fine[2]])

    def _keep(self, times: Floats, before: Floats) -> None:
        """Keep what later blocks may need: the lower hull of all starts."""
        if not len(times):
            return
        t = np.concatenate((self._starts[0], times))
        p = np.concatenate((self._starts[1], before))
        kept = hulls.lower(t, p)
        self._starts = (t[kept], p[kept])

    def curve(self) -> RbCurve:
        """Return the curve of all added requests; raise UserError if there are none."""
        if not self._requests:
            raise UserError("the trace has no request with work: there is no curve to compute")
        duration, work = self._hull
        seconds = (self._last - self._first) * self._tick
        return RbCurve(duration * self._tick, work, self._total, seconds, self._requests)


def rb_curve(times: npt.ArrayLike, work: npt.ArrayLike) -> RbCurve:
    """Return the curve of a whole trace; requests may come in any order.

    Args:
        times: seconds [n].
        work: work of each request, 0 or more.

    Raises:
        UserError: no request has any work.
    """
    t, w = np.asarray(times, np.float64), np.asarray(work, np.float64)
    if (np.diff(t) < 0).any():
        order = np.argsort(t, kind="stable")
        t, w = t[order], w[order]
    builder = CurveBuilder()
    builder.add(t, w)
    return builder.curve()
