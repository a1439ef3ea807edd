"""Rate limiters: the exact r-b curve of a trace (section 4.1, figure 4a), and the token buckets to
enforce, of all on the curve's border (section 3.2).

``b(r) = max over i <= j of (work of requests i to j) - r * (t_j - t_i)``

is the largest fill of an unbounded token bucket of rate r that replays the trace. The curve is
convex, piecewise linear and falls with r; all of it is computed at once. A window from request i to
request j lasts ``t_j - t_i`` and has the work of both and of all between. As points (duration,
work), the windows' upper hull gives the burst of every rate. It is found in one of two ways:

* *Tangents*, of long traces. A bucket of rate r that replays the trace is fullest at the end of the
  window that touches the hull with slope r. Replaying a bucket with the slope from one hull window
  to another tests the gap between the two: it finds no window above them, or a third hull window
  (Eisner and Severance, 1976). A hull of V windows takes about 2 V replays. A processor does
  several rates at once, step by step through the trace.
* *Hulls*, of short traces, of parts of a trace, and of hulls with too many windows for replays. By
  divide and conquer, the windows from a left part into a right part are the Minkowski sum of the
  hull of the left part's starts and of the right part's ends, O(n log n) in total.

A workload's exact arrival curve is the least of ``r * t + b(r)`` over all rates from its mean rate
up. A few buckets are above it: the error is reported, and is the least for that many buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.jit import COMPILED, njit
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Points = tuple[Floats, Floats]
"""Windows by (duration, work), or starts or ends of windows by (time, work so far)."""

BUCKETS = 8
_HALVINGS = 60
_COARSE = 64  # requests per step of the first, coarse pass over a trace
_LEAF = 8  # number of requests up to which windows are tried one by one
_LONG = 1000 if COMPILED else 1 << 62  # requests from which tangents are faster than hulls
_SEGMENT = 64  # requests after which fills are kept; a multiple of the eight taken at once
_LANES = 32  # largest number of buckets replayed at once
_MOST = 512  # replays after which hulls take over: the hull has too many windows
_SOME_NOTHING, _WRONG = 1, 2
_SAME = 1e-12  # share by which a window must exceed another to count as above it


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
        Between two corners the curve is straight; beyond the last the burst stays constant: the
        work that arrives at one instant."""
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

    `tick` is seconds per unit of time. Whole nanoseconds (1e-9) are exact, seconds are not: the
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
        """Add requests that follow the earlier ones: ticks [n], never falling, and the work of
        each, 0 or more; raise ValueError otherwise."""
        t = np.ascontiguousarray(times, dtype=np.float64)
        w = np.ascontiguousarray(work, dtype=np.float64)
        if t.shape != w.shape or t.ndim != 1:
            raise ValueError("one work per time")
        if not len(t):
            return
        before = np.empty(len(t) + 1)
        before[0] = self._total
        state = _summed(t, w, before)
        if state == _WRONG and not ((w >= 0) & (w < np.inf)).all():
            raise ValueError("work must be 0 or more, and finite")
        if state == _WRONG or (self._requests and t[0] < self._last):
            raise ValueError("times must not fall")
        if not np.isfinite(before[-1]):
            raise ValueError("work must be 0 or more, and finite")
        if state == _SOME_NOTHING:
            some = w != 0
            t, w, before = t[some], w[some], before[np.append(some, True)]
            if not len(t):
                return
        self._keep(*self._later)
        hull, self._later = self._extended(t, w, before)
        if self._requests:
            earlier = np.arange(len(self._starts[0]))
            ends = _hull((t, before[1:]), True)
            hull = _across(self._starts, earlier, (t, before[1:]), ends, hull)
        self._hull = hull
        self._first = self._first if self._requests else float(t[0])
        self._last = float(t[-1])
        self._total = float(before[-1])
        self._requests += len(t)

    def _extended(self, t: Floats, w: Floats, before: Floats) -> tuple[Points, Points]:
        """Return the hull with all windows of a block, and the block's starts with the work before
        them: their lower hull, or all."""
        start, end = before[:-1], before[1:]
        if len(t) >= _LONG:
            own, whole = tangent_windows(t, w, before)
            hull = _merged(self._hull, own)
            if whole:
                return hull, (t, start)
        else:
            hull = _merged(self._hull, (np.zeros(1), np.array([w.max()])))
        firsts = np.arange(0, len(t), _COARSE)
        lasts = np.append(firsts[1:], len(t)) - 1
        # Whole stretches first: their hull rules out most windows cheaply.
        coarse, _ = _windows((t[firsts], start[firsts]), (t[lasts], end[lasts]), hull)
        fine, kept = _windows((t, start), (t, end), coarse)
        return fine, (t[kept], start[kept])

    def _keep(self, times: Floats, before: Floats) -> None:
        """Keep what later blocks may need: the lower hull of all starts."""
        if not len(times):
            return
        t = np.concatenate((self._starts[0], times))
        p = np.concatenate((self._starts[1], before))
        kept = _hull((t, p), False)
        self._starts = (t[kept], p[kept])

    def curve(self) -> RbCurve:
        """Return the curve of all added requests; raise UserError if there are none."""
        if not self._requests:
            raise UserError("the trace has no request with work: there is no curve to compute")
        duration, work = self._hull
        seconds = (self._last - self._first) * self._tick
        return RbCurve(duration * self._tick, work, self._total, seconds, self._requests)


def rb_curve(times: npt.ArrayLike, work: npt.ArrayLike) -> RbCurve:
    """Return the curve of a whole trace from seconds [n] and the work of each request, in any
    order. Raise UserError if no request has any work."""
    t, w = np.asarray(times, np.float64), np.asarray(work, np.float64)
    if (np.diff(t) < 0).any():
        order = np.argsort(t, kind="stable")
        t, w = t[order], w[order]
    builder = CurveBuilder()
    builder.add(t, w)
    return builder.curve()


@dataclass(frozen=True)
class Limiters:
    """Token buckets, fastest first: `rates` and `bursts` [m].

    They let at most ``1 + error`` times the exact arrival curve arrive, for any length of time.
    """

    rates: Floats
    bursts: Floats
    error: float


def choose(curve: RbCurve, count: int = BUCKETS, mean_rate: float | None = None) -> Limiters:
    """Choose at most `count` buckets that never hinder the trace, with the least possible error.

    The slowest has the mean rate (`mean_rate`, by default total work by the trace's length): a
    slower bucket would hold back a workload that continues as in its trace, a faster one would
    reserve more than needed. Raise UserError if all requests come at one instant, and no
    `mean_rate` is given.
    """
    sustained = curve.mean_rate if mean_rate is None else mean_rate
    if not np.isfinite(sustained):
        raise UserError(
            "the trace's requests all come at one instant, so that it has no rate",
            do="say how long the trace stands for",
        )
    rates, bursts = curve.corners()
    keep = rates > sustained
    lines_r = np.append(rates[keep][::-1], sustained)
    lines_b = np.append(bursts[keep][::-1], curve.burst(sustained))
    chosen, error = _fewest(lines_r, lines_b, float(curve.work[0]), count)
    return Limiters(lines_r[chosen], lines_b[chosen], error)


@njit
def _excess(rates: Floats, bursts: Floats, x: Floats, i: int, j: int) -> float:
    """Return the excess of lines i < j over all lines i to j, at the worst place, as a share."""
    if j <= i + 1:
        return 0.0
    meet = (bursts[j] - bursts[i]) / (rates[i] - rates[j])
    k = i + np.searchsorted(x[i:j], meet)  # x[k - 1] < meet <= x[k]: line k is least there
    return (rates[i] * meet + bursts[i]) / (rates[k] * meet + bursts[k]) - 1.0  # type: ignore[no-any-return]


@njit
def _cover(
    rates: Floats, bursts: Floats, x: Floats, instant: float, allowed: float, chosen: Indices
) -> int:
    """Return the number of lines for this error, from the slowest up; fills `chosen`."""
    j = len(rates) - 1
    chosen[0] = j
    size = 1
    while j > 0 and bursts[j] > instant * (1 + allowed):
        low, high = 0, j - 1  # the excess grows with the distance from j
        while low < high:
            middle = (low + high) // 2
            if _excess(rates, bursts, x, middle, j) <= allowed:
                high = middle
            else:
                low = middle + 1
        j = low
        chosen[size] = j
        size += 1
    return size


@njit
def _fewest(rates: Floats, bursts: Floats, instant: float, count: int) -> tuple[Indices, float]:
    """Return the indices of at most `count` lines, fastest first, and their error."""
    n = len(rates)
    chosen = np.empty(n + 1, np.int64)
    x = (bursts[1:] - bursts[:-1]) / (rates[:-1] - rates[1:])
    high = 0.0
    if _cover(rates, bursts, x, instant, high, chosen) > count:
        low, high = 0.0, (bursts[-1] / instant - 1) * (1 + 1e-9)  # the slowest alone reaches it
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if _cover(rates, bursts, x, instant, middle, chosen) <= count:
                high = middle
            else:
                low = middle
    size = _cover(rates, bursts, x, instant, high, chosen)
    kept = chosen[:size][::-1].copy()
    error = max(0.0, bursts[kept[0]] / instant - 1)
    for k in range(size - 1):
        error = max(error, _excess(rates, bursts, x, kept[k], kept[k + 1]))
    return kept, error


# The hull of windows, by divide and conquer.


@njit
def _push_upper(x: Floats, y: Floats, chain: Indices, start: int, end: int, k: int) -> int:
    """Append point `k` (x at least the last point's, y above) to an upper hull; return its end."""
    while end > start and x[chain[end - 1]] == x[k]:
        end -= 1
    while end - start >= 2:
        a, b = chain[end - 2], chain[end - 1]
        if (y[b] - y[a]) * (x[k] - x[b]) > (y[k] - y[b]) * (x[b] - x[a]):
            break
        end -= 1
    chain[end] = k
    return end + 1


@njit
def _push_lower(x: Floats, y: Floats, chain: Indices, start: int, end: int, k: int) -> int:
    """Append point `k` (x at least the last point's, y above) to a lower hull; return its end."""
    if end > start and x[chain[end - 1]] == x[k]:
        return end
    while end - start >= 2:
        a, b = chain[end - 2], chain[end - 1]
        if (y[b] - y[a]) * (x[k] - x[b]) < (y[k] - y[b]) * (x[b] - x[a]):
            break
        end -= 1
    chain[end] = k
    return end + 1


@njit
def _piece(hull_d: Floats, d: float) -> int:
    """Return the last point of a hull at or before duration `d` >= 0; the hull begins at 0."""
    low, high = 1, len(hull_d)
    while low < high:
        middle = (low + high) // 2
        if hull_d[middle] <= d:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit
def _above(hull_d: Floats, hull_w: Floats, k: int, d: float, w: float) -> bool:
    """Return True if window (d, w) is above a hull with its piece at `d` beginning at point `k`."""
    more = w - hull_w[k]
    if more <= 0 or k + 1 == len(hull_d):
        return bool(more > 0)
    rise = hull_w[k + 1] - hull_w[k]
    return bool(more * (hull_d[k + 1] - hull_d[k]) > rise * (d - hull_d[k]))


@njit
def _merged(a: Points, b: Points) -> Points:
    """Return the upper hull of two sets of windows, each by duration; work rises along it."""
    (ad, aw), (bd, bw) = a, b
    d = np.empty(len(ad) + len(bd))
    w = np.empty(len(ad) + len(bd))
    i = j = size = 0
    while i < len(ad) or j < len(bd):
        if j == len(bd) or (i < len(ad) and ad[i] <= bd[j]):
            x, y = ad[i], aw[i]
            i += 1
        else:
            x, y = bd[j], bw[j]
            j += 1
        if size > 0 and y <= w[size - 1]:
            continue
        if size > 0 and x == d[size - 1]:
            size -= 1
        while size >= 2 and (w[size - 1] - w[size - 2]) * (x - d[size - 1]) <= (y - w[size - 1]) * (
            d[size - 1] - d[size - 2]
        ):
            size -= 1
        d[size], w[size] = x, y
        size += 1
    return d[:size].copy(), w[:size].copy()


@njit
def _across(starts: Points, chosen: Indices, ends: Points, last: Indices, hull: Points) -> Points:
    """Return the hull with the windows from any chosen start to any of the `last` ends, all later.

    `starts` and `ends` are times, with the work before each start and up to and including each end;
    `chosen` (the starts' lower hull) and `last` (the ends' upper hull) are indices.
    """
    (start_t, start_p), (end_t, end_p), (hull_d, hull_w) = starts, ends, hull
    i, j = len(chosen) - 1, 0
    found_d = np.empty(len(chosen) + len(last))
    found_w = np.empty(len(chosen) + len(last))
    found = 0
    k = _piece(hull_d, end_t[last[0]] - start_t[chosen[i]])
    while True:
        s, e = chosen[i], last[j]
        d, w = end_t[e] - start_t[s], end_p[e] - start_p[s]
        while k + 1 < len(hull_d) and hull_d[k + 1] <= d:
            k += 1
        if _above(hull_d, hull_w, k, d, w):
            found_d[found], found_w[found] = d, w
            found += 1
        if i == 0 and j == len(last) - 1:
            break
        if i == 0:
            j += 1
        elif j == len(last) - 1:
            i -= 1
        else:
            # The steeper of the two hulls' next edges comes first.
            before, after = chosen[i - 1], last[j + 1]
            rise = (end_p[after] - end_p[e]) * (start_t[s] - start_t[before])
            if rise >= (start_p[s] - start_p[before]) * (end_t[after] - end_t[e]):
                j += 1
            else:
                i -= 1
    if found == 0:
        return hull
    return _merged(hull, (found_d[:found], found_w[:found]))


@njit
def _leaf(starts: Points, ends: Points, low: int, high: int, hull: Points) -> Points:
    """Return the hull with all windows within [low, high), tried one by one."""
    (start_t, start_p), (end_t, end_p) = starts, ends
    instant = hull[1][0]
    if end_p[high - 1] - start_p[low] <= instant:
        return hull
    one_d, one_w = np.empty(1), np.empty(1)
    for i in range(low, high):
        k = 0
        for j in range(i, high):
            w = end_p[j] - start_p[i]
            if w <= instant:
                continue
            d = end_t[j] - start_t[i]
            while k + 1 < len(hull[0]) and hull[0][k + 1] <= d:
                k += 1
            if _above(hull[0], hull[1], k, d, w):
                one_d[0], one_w[0] = d, w
                hull = _merged(hull, (one_d, one_w))
                k = 0
    return hull


@njit
def _windows(starts: Points, ends: Points, hull: Points) -> tuple[Points, Indices]:
    """Return the hull with every window from a start i to an end j >= i, and the starts' lower
    hull.

    `starts` [n]: times and all work before them; `ends` [n]: times, not before their starts, and
    all work up to and including them. None of them ever decreases.
    """
    (start_t, start_p), (end_t, end_p) = starts, ends
    n = len(start_t)
    lower, upper = np.empty(n, np.int64), np.empty(n, np.int64)
    parts = (n + _LEAF - 1) // _LEAF
    lower_end, upper_end = np.empty(parts, np.int64), np.empty(parts, np.int64)
    for part in range(parts):
        low, high = part * _LEAF, min(n, (part + 1) * _LEAF)
        s = e = low
        for k in range(low, high):
            s = _push_lower(start_t, start_p, lower, low, s, k)
            e = _push_upper(end_t, end_p, upper, low, e, k)
        lower_end[part], upper_end[part] = s, e
        hull = _leaf(starts, ends, low, high, hull)
    step = 1
    while step < parts:
        for left in range(0, parts - step, 2 * step):
            right = left + step
            low, middle = left * _LEAF, right * _LEAF
            high = min(n, (right + step) * _LEAF)
            gap = end_t[middle] - start_t[middle - 1]
            most = end_p[high - 1] - start_p[low]
            if _above(hull[0], hull[1], _piece(hull[0], gap), gap, most):
                chosen = lower[low : lower_end[left]]
                hull = _across(starts, chosen, ends, upper[middle : upper_end[right]], hull)
            s, e = lower_end[left], upper_end[left]
            for k in range(middle, lower_end[right]):
                s = _push_lower(start_t, start_p, lower, low, s, lower[k])
            for k in range(middle, upper_end[right]):
                e = _push_upper(end_t, end_p, upper, low, e, upper[k])
            lower_end[left], upper_end[left] = s, e
        step *= 2
    return hull, lower[: lower_end[0]].copy()


@njit
def _hull(points: Points, upper: bool) -> Indices:
    """Return the indices of the upper or lower hull of points, x and y never falling."""
    x, y = points
    chain = np.empty(len(x), np.int64)
    end = 0
    for k in range(len(x)):
        end = _push_upper(x, y, chain, 0, end, k) if upper else _push_lower(x, y, chain, 0, end, k)
    return chain[:end].copy()


# The hull of all windows of a long trace, found by its tangents.


@njit
def _replay(
    gap: Floats, work: Floats, rates: Floats, fills: Floats, best: Floats, where: Indices
) -> None:
    """Replay a trace through a bucket of each rate [k].

    Args:
        gap: seconds since the request before, [segments * _SEGMENT], 0 beyond the end.
        work: work of each request, 0 beyond the end.
        rates: rates of the buckets.
        fills: receives each bucket's fill at the start of each segment [segments, k].
        best, where: receive each bucket's largest fill [k] and its segment [k].
    """
    count = len(rates)
    fill, peak = np.zeros(count), np.zeros(count)
    best[:] = -1.0
    for s in range(len(fills)):
        for q in range(count):
            fills[s, q] = fill[q]
            peak[q] = 0.0
        for i in range(_SEGMENT * s, _SEGMENT * (s + 1), 8):
            g0, g1, g2, g3 = gap[i], gap[i + 1], gap[i + 2], gap[i + 3]
            g4, g5, g6, g7 = gap[i + 4], gap[i + 5], gap[i + 6], gap[i + 7]
            x0, x1, x2, x3 = work[i], work[i + 1], work[i + 2], work[i + 3]
            x4, x5, x6, x7 = work[i + 4], work[i + 5], work[i + 6], work[i + 7]
            for q in range(count):
                rate = rates[q]
                f0 = max(fill[q] - rate * g0, 0.0) + x0
                f1 = max(f0 - rate * g1, 0.0) + x1
                f2 = max(f1 - rate * g2, 0.0) + x2
                f3 = max(f2 - rate * g3, 0.0) + x3
                f4 = max(f3 - rate * g4, 0.0) + x4
                f5 = max(f4 - rate * g5, 0.0) + x5
                f6 = max(f5 - rate * g6, 0.0) + x6
                f7 = max(f6 - rate * g7, 0.0) + x7
                fill[q] = f7
                a, b, c, d = max(f0, f1), max(f2, f3), max(f4, f5), max(f6, f7)
                e, f = max(a, b), max(c, d)
                e = max(e, f)
                peak[q] = max(peak[q], e)
        for q in range(count):
            if peak[q] > best[q]:
                best[q], where[q] = peak[q], s


@njit
def _window(
    gap: Floats,
    work: Floats,
    rate: float,
    before: Floats,
    segment: int,
    sums: Floats,
    spans: Floats,
) -> tuple[int, int]:
    """Return the first and last request of the window at the end of which a bucket is fullest.

    `before` has its fill at the start of each segment, `segment` is the one in which it is fullest,
    and `sums` and `spans` are work and seconds of each segment; see `_replay`.
    """
    start, end = -1, segment * _SEGMENT
    fill, most, begin = before[segment], -1.0, -1
    for k in range(segment * _SEGMENT, (segment + 1) * _SEGMENT):
        fill -= rate * gap[k]
        if fill <= 0.0:
            fill, begin = 0.0, k
        fill += work[k]
        if fill > most:
            most, end, start = fill, k, begin
    while start < 0 and segment > 0:
        segment -= 1
        brought, drained = before[segment] + sums[segment], rate * spans[segment]
        # It was empty in between if it holds more now than arrivals less drain.
        if segment > 0 and before[segment + 1] <= brought - drained + 1e-13 * (brought + drained):
            continue
        fill = before[segment]
        for k in range(segment * _SEGMENT, (segment + 1) * _SEGMENT):
            fill -= rate * gap[k]
            if fill <= 0.0:
                fill, start = 0.0, k
            fill += work[k]
    return max(start, 0), end


@njit
def _summed(t: Floats, w: Floats, before: Floats) -> int:
    """Fill in the work before each request, from `before[0]` on, and the total. Return 0,
    `_SOME_NOTHING` if a request has no work, or `_WRONG` if times fall, or work is negative or not
    finite."""
    total, state = before[0], 0
    for k in range(len(t)):
        if not 0.0 <= w[k] < np.inf or (k > 0 and t[k] < t[k - 1]):
            return _WRONG
        if w[k] == 0.0:
            state = _SOME_NOTHING
        total += w[k]
        before[k + 1] = total
    return state


@njit
def _gaps(t: Floats, w: Floats, gap: Floats, work: Floats, sums: Floats, spans: Floats) -> float:
    """Fill in the zeroed inputs of `_replay` and `_window`; return the most work of one instant."""
    most = instant = 0.0
    for s in range(len(sums)):
        low, high = s * _SEGMENT, min((s + 1) * _SEGMENT, len(t))
        for k in range(low, high):
            since = t[k] - t[k - 1] if k > 0 else 0.0
            gap[k], work[k] = since, w[k]
            sums[s] += w[k]
            instant = w[k] if since > 0.0 else instant + w[k]
            most = max(most, instant)
        spans[s] = t[high - 1] - t[max(low - 1, 0)]
    return most


@njit
def _steepest(gap: Floats, work: Floats, instant: float) -> float:
    """Return the steepest slope from one instant's work to two requests' work, or 0."""
    found = 0.0
    for k in range(1, len(gap)):
        more = work[k - 1] + work[k] - instant
        if more > found * gap[k] and gap[k] > 0.0:
            found = more / gap[k]
    return found


@njit
def _asked(
    d: Floats, p: Floats, done: npt.NDArray[np.bool_], count: int, rates: Floats, pair: Indices
) -> int:
    """Fill in the next rates and the window that begins each slope; return their number."""
    lanes = 0
    for k in range(count - 2, -1, -1):  # backwards, so that an insertion moves no later pair
        if not done[k] and lanes < _LANES:
            rates[lanes], pair[lanes] = (p[k + 1] - p[k]) / (d[k + 1] - d[k]), k
            lanes += 1
    return lanes


@njit
def _put(
    d: Floats,
    p: Floats,
    done: npt.NDArray[np.bool_],
    count: int,
    k: int,
    length: float,
    brought: float,
) -> int:
    """Put a window between window `k` and the next, if it is above both; return the number of
    windows. With k = -1 its place is searched."""
    if k < 0:
        k = 0
        while k < count - 2 and d[k + 1] <= length:
            k += 1
    slope = (p[k + 1] - p[k]) / (d[k + 1] - d[k])
    known = p[k] - slope * d[k]
    if not d[k] < length < d[k + 1] or brought - slope * length <= known * (1 + _SAME):
        return count
    for m in range(count, k + 1, -1):
        d[m], p[m], done[m] = d[m - 1], p[m - 1], done[m - 1]
    d[k + 1], p[k + 1] = length, brought
    done[k] = done[k + 1] = False
    return count + 1


@njit
def tangent_windows(t: Floats, w: Floats, before: Floats) -> tuple[Points, bool]:
    """Return durations (rising) and work of windows on the hull of all windows of a trace, and True
    if these are all: False if there are too many (`_MOST`).

    `t`: seconds [n], never falling; `w`: work of each request, above 0; `before`: all work before
    each request, and the total [n + 1].
    """
    n = len(t)
    segments = (n + _SEGMENT - 1) // _SEGMENT
    gap, work = np.zeros(segments * _SEGMENT), np.zeros(segments * _SEGMENT)
    sums, spans = np.zeros(segments), np.zeros(segments)
    d, p = np.zeros(_MOST + _LANES + 2), np.zeros(_MOST + _LANES + 2)
    p[0] = _gaps(t, w, gap, work, sums, spans)
    d[1], p[1] = t[n - 1] - t[0], before[n] - before[0]
    if d[1] <= 0.0:
        return (d[:1].copy(), p[:1].copy()), True
    done = np.zeros(len(d), np.bool_)  # nothing between a window and the next
    best, where = np.zeros(_LANES), np.zeros(_LANES, np.int64)
    rates, pair = np.zeros(_LANES), np.zeros(_LANES, np.int64)
    store = np.empty(segments * _LANES)
    mean, top = p[1] / d[1], _steepest(gap, work, p[0])
    count, replays, lanes = 2, 0, 0
    if top > 2 * mean:
        lanes = _LANES  # any rates will do at first
        for q in range(_LANES):
            rates[q], pair[q] = mean * (top / mean) ** (q / (_LANES - 1)), -1
    else:
        lanes = _asked(d, p, done, count, rates, pair)
    while lanes > 0 and replays + lanes <= _MOST:
        replays += lanes
        fills = store[: segments * lanes].reshape(segments, lanes)
        _replay(gap, work, rates[:lanes], fills, best[:lanes], where[:lanes])
        for q in range(lanes):
            column = fills[:, q].copy()
            first, last = _window(gap, work, rates[q], column, where[q], sums, spans)
            if pair[q] >= 0:
                done[pair[q]] = True
            brought = before[last + 1] - before[first]
            count = _put(d, p, done, count, pair[q], t[last] - t[first], brought)
        lanes = _asked(d, p, done, count, rates, pair)
    return (d[:count].copy(), p[:count].copy()), lanes == 0
