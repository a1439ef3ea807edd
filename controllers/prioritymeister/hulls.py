"""Compiled kernels of the r-b curve: all windows of a trace that are the worst for some rate.

A window from request i to request j lasts ``t_j - t_i`` and has the work of both and of all
between. As points (duration, work), the windows' upper hull gives the burst of every rate. It is
found by divide and conquer: the windows from a left part into a right part are the Minkowski sum of
the hull of the left part's starts and of the right part's ends, O(n log n) in total.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from controllers.jit import njit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

LEAF = 8  # number of requests up to which windows are tried one by one


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
def merged(ad: Floats, aw: Floats, bd: Floats, bw: Floats) -> tuple[Floats, Floats]:
    """Return the upper hull of two sets of windows, each by duration; work rises along it."""
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
def across(
    start_t: Floats,
    start_p: Floats,
    starts: Indices,
    end_t: Floats,
    end_p: Floats,
    ends: Indices,
    hull_d: Floats,
    hull_w: Floats,
) -> tuple[Floats, Floats]:
    """Return the hull with the windows from any of `starts` to any of `ends`, all later.

    Args:
        start_t, start_p: time of a start, and all work before it.
        starts: their lower hull (indices, by time).
        end_t, end_p: time of an end, and all work up to and including it.
        ends: their upper hull.
        hull_d, hull_w: the hull so far.
    """
    i, j = len(starts) - 1, 0
    found_d = np.empty(len(starts) + len(ends))
    found_w = np.empty(len(starts) + len(ends))
    found = 0
    k = _piece(hull_d, end_t[ends[0]] - start_t[starts[i]])
    while True:
        s, e = starts[i], ends[j]
        d, w = end_t[e] - start_t[s], end_p[e] - start_p[s]
        while k + 1 < len(hull_d) and hull_d[k + 1] <= d:
            k += 1
        if _above(hull_d, hull_w, k, d, w):
            found_d[found], found_w[found] = d, w
            found += 1
        if i == 0 and j == len(ends) - 1:
            break
        if i == 0:
            j += 1
        elif j == len(ends) - 1:
            i -= 1
        else:
            # The steeper of the two hulls' next edges comes first.
            before, after = starts[i - 1], ends[j + 1]
            rise = (end_p[after] - end_p[e]) * (start_t[s] - start_t[before])
            if rise >= (start_p[s] - start_p[before]) * (end_t[after] - end_t[e]):
                j += 1
            else:
                i -= 1
    if found == 0:
        return hull_d, hull_w
    return merged(hull_d, hull_w, found_d[:found], found_w[:found])


@njit
def _leaf(
    start_t: Floats,
    start_p: Floats,
    end_t: Floats,
    end_p: Floats,
    low: int,
    high: int,
    hull_d: Floats,
    hull_w: Floats,
) -> tuple[Floats, Floats]:
    """Return the hull with all windows within [low, high), tried one by one."""
    instant = hull_w[0]
    if end_p[high - 1] - start_p[low] <= instant:
        return hull_d, hull_w
    one_d, one_w = np.empty(1), np.empty(1)
    for i in range(low, high):
        k = 0
        for j in range(i, high):
            w = end_p[j] - start_p[i]
            if w <= instant:
                continue
            d = end_t[j] - start_t[i]
            while k + 1 < len(hull_d) and hull_d[k + 1] <= d:
                k += 1
            if _above(hull_d, hull_w, k, d, w):
                one_d[0], one_w[0] = d, w
                hull_d, hull_w = merged(hull_d, hull_w, one_d, one_w)
                k = 0
    return hull_d, hull_w


@njit
def windows(
    start_t: Floats,
    start_p: Floats,
    end_t: Floats,
    end_p: Floats,
    hull_d: Floats,
    hull_w: Floats,
) -> tuple[Floats, Floats, Indices]:
    """Return the hull with every window from a start i to an end j >= i, and starts' lower hull.

    Args:
        start_t, start_p: [n] time of start i, and all work before it; both never decrease.
        end_t, end_p: [n] time of end i (not before start i), and all work up to and including it.
        hull_d, hull_w: the hull so far, by duration.
    """
    n = len(start_t)
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    parts = (n + LEAF - 1) // LEAF
    starts_end, ends_end = np.empty(parts, np.int64), np.empty(parts, np.int64)
    for part in range(parts):
        low, high = part * LEAF, min(n, (part + 1) * LEAF)
        s = e = low
        for k in range(low, high):
            s = _push_lower(start_t, start_p, starts, low, s, k)
            e = _push_upper(end_t, end_p, ends, low, e, k)
        starts_end[part], ends_end[part] = s, e
        hull_d, hull_w = _leaf(start_t, start_p, end_t, end_p, low, high, hull_d, hull_w)
    step = 1
    while step < parts:
        for left in range(0, parts - step, 2 * step):
            right = left + step
            low, middle = left * LEAF, right * LEAF
            high = min(n, (right + step) * LEAF)
            gap = end_t[middle] - start_t[middle - 1]
            most = end_p[high - 1] - start_p[low]
            if _above(hull_d, hull_w, _piece(hull_d, gap), gap, most):
                hull_d, hull_w = across(
                    start_t,
                    start_p,
                    starts[low : starts_end[left]],
                    end_t,
                    end_p,
                    ends[middle : ends_end[right]],
                    hull_d,
                    hull_w,
                )
            s, e = starts_end[left], ends_end[left]
            for k in range(middle, starts_end[right]):
                s = _push_lower(start_t, start_p, starts, low, s, starts[k])
            for k in range(middle, ends_end[right]):
                e = _push_upper(end_t, end_p, ends, low, e, ends[k])
            starts_end[left], ends_end[left] = s, e
        step *= 2
    return hull_d, hull_w, starts[: starts_end[0]].copy()


@njit
def upper(x: Floats, y: Floats) -> Indices:
    """Return the indices of the upper hull of points, x and y never falling."""
    chain = np.empty(len(x), np.int64)
    end = 0
    for k in range(len(x)):
        end = _push_upper(x, y, chain, 0, end, k)
    return chain[:end].copy()


@njit
def lower(x: Floats, y: Floats) -> Indices:
    """Return the indices of the lower hull of points, x and y never falling."""
    chain = np.empty(len(x), np.int64)
    end = 0
    for k in range(len(x)):
        end = _push_lower(x, y, chain, 0, end, k)
    return chain[:end].copy()
