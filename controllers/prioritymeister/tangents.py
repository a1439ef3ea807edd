"""The hull of all windows of a long trace, found by its tangents.

A token bucket of rate r that replays the trace is fullest at the end of the window that touches the
hull with slope r (section 4.1). Replaying a bucket with the slope from one hull window to another
tests the gap between the two: it finds no window above them, or a third hull window (Eisner and
Severance, 1976). A hull of V windows takes about 2 V replays. A processor does several rates at
once, step by step through the trace. For the few dozen windows of a real trace this is faster than
building hulls of its parts (`hulls`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from controllers.jit import njit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SEGMENT = 64
"""Requests after which fills are kept; a multiple of the eight that a bucket takes at once."""
LANES = 32
"""Largest number of buckets replayed at once."""
MOST = 512
"""Replays after which `hulls` takes over: the hull has too many windows."""
SOME_NOTHING, WRONG = 1, 2
SAME = 1e-12
"""Share by which a window must exceed another to count as above it."""


@njit
def _replay(
    gap: Floats, work: Floats, rates: Floats, fills: Floats, best: Floats, where: Indices
) -> None:
    """Replay a trace through a bucket of each rate.

    Args:
        gap: seconds since the request before, [segments * SEGMENT], 0 beyond the end.
        work: work of each request, 0 beyond the end.
        rates: rates of the buckets [k].
        fills: receives each bucket's fill at the start of each segment [segments, k].
        best: receives each bucket's largest fill [k].
        where: receives the segment of the largest fill [k].
    """
    count = len(rates)
    fill, peak = np.zeros(count), np.zeros(count)
    best[:] = -1.0
    for s in range(len(fills)):
        for q in range(count):
            fills[s, q] = fill[q]
            peak[q] = 0.0
        for i in range(SEGMENT * s, SEGMENT * (s + 1), 8):
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

    Args:
        gap, work: see `_replay`.
        rate: rate of the bucket.
        before: its fill at the start of each segment.
        segment: the segment in which it is fullest.
        sums, spans: work and seconds of each segment.
    """
    start, end = -1, segment * SEGMENT
    fill, most, begin = before[segment], -1.0, -1
    for k in range(segment * SEGMENT, (segment + 1) * SEGMENT):
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
        for k in range(segment * SEGMENT, (segment + 1) * SEGMENT):
            fill -= rate * gap[k]
            if fill <= 0.0:
                fill, start = 0.0, k
            fill += work[k]
    return max(start, 0), end


@njit
def summed(t: Floats, w: Floats, before: Floats) -> int:
    """Fill in the work before each request, from `before[0]` on, and the total.

    Returns:
        0, or `SOME_NOTHING` if a request has no work, `WRONG` if times fall, or work is
        negative or not finite.
    """
    total, state = before[0], 0
    for k in range(len(t)):
        if not 0.0 <= w[k] < np.inf or (k > 0 and t[k] < t[k - 1]):
            return WRONG
        if w[k] == 0.0:
            state = SOME_NOTHING
        total += w[k]
        before[k + 1] = total
    return state


@njit
def _gaps(t: Floats, w: Floats, gap: Floats, work: Floats, sums: Floats, spans: Floats) -> float:
    """Fill in the zeroed inputs of `_replay` and `_window`; return the most work of one instant."""
    most = instant = 0.0
    for s in range(len(sums)):
        low, high = s * SEGMENT, min((s + 1) * SEGMENT, len(t))
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
        if not done[k] and lanes < LANES:
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
    if not d[k] < length < d[k + 1] or brought - slope * length <= known * (1 + SAME):
        return count
    for m in range(count, k + 1, -1):
        d[m], p[m], done[m] = d[m - 1], p[m - 1], done[m - 1]
    d[k + 1], p[k + 1] = length, brought
    done[k] = done[k + 1] = False
    return count + 1


@njit
def windows(t: Floats, w: Floats, before: Floats) -> tuple[Floats, Floats, bool]:
    """Return the hull of all windows of a trace.

    Args:
        t: seconds [n], never falling.
        w: work of each request, above 0.
        before: all work before each request, and the total [n + 1].

    Returns:
        Durations and work of windows on the hull, durations rising, and True if these are all:
        False if there are too many (`MOST`).
    """
    n = len(t)
    segments = (n + SEGMENT - 1) // SEGMENT
    gap, work = np.zeros(segments * SEGMENT), np.zeros(segments * SEGMENT)
    sums, spans = np.zeros(segments), np.zeros(segments)
    d, p = np.zeros(MOST + LANES + 2), np.zeros(MOST + LANES + 2)
    p[0] = _gaps(t, w, gap, work, sums, spans)
    d[1], p[1] = t[n - 1] - t[0], before[n] - before[0]
    if d[1] <= 0.0:
        return d[:1].copy(), p[:1].copy(), True
    done = np.zeros(len(d), np.bool_)  # nothing between a window and the next
    best, where = np.zeros(LANES), np.zeros(LANES, np.int64)
    rates, pair = np.zeros(LANES), np.zeros(LANES, np.int64)
    store = np.empty(segments * LANES)
    mean, top = p[1] / d[1], _steepest(gap, work, p[0])
    count, replays, lanes = 2, 0, 0
    if top > 2 * mean:
        lanes = LANES  # any rates will do at first
        for q in range(LANES):
            rates[q], pair[q] = mean * (top / mean) ** (q / (LANES - 1)), -1
    else:
        lanes = _asked(d, p, done, count, rates, pair)
    while lanes > 0 and replays + lanes <= MOST:
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
    return d[:count].copy(), p[:count].copy(), lanes == 0
