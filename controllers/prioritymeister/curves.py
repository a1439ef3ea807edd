"""Piecewise linear curves of network calculus, as compiled kernels on arrays.

An *arrival* curve is concave: (burst, x, slope), worth burst at 0+ and rising by slope[k] from x[k]
on; x[0] = 0, slopes never rise. A *service* curve is convex: (x, slope), worth 0 at x[0] = 0,
slopes never fall. The last piece of either has no end.

A queue that mean rates load to exactly 100 % has a bound if bursts are finite: in the long run the
curves are parallel. Sums of rates are rounded, so that one curve may seem faster. A difference of
at most `slack`, in work per second, counts as equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from controllers.jit import njit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Arrival = tuple[float, Floats, Floats]
Service = tuple[Floats, Floats]


@njit
def arrival(rates: Floats, bursts: Floats) -> Arrival:
    """Return ``min_i(rates[i] * t + bursts[i])`` (section 4.4), without useless lines.

    Args:
        rates, bursts: [m] of the token buckets, in any order.
    """
    order = np.argsort(-rates)
    kept = np.empty(len(rates), np.int64)
    x = np.empty(len(rates))
    size = 0
    for i in order:
        while size > 0:
            last = kept[size - 1]
            if bursts[i] <= bursts[last]:
                size -= 1
                continue
            if rates[i] == rates[last]:
                break
            meet = (bursts[i] - bursts[last]) / (rates[last] - rates[i])
            if meet > x[size - 1]:
                break
            size -= 1
        if size > 0 and rates[i] == rates[kept[size - 1]]:
            continue
        x[size] = 0.0
        if size > 0:
            last = kept[size - 1]
            x[size] = (bursts[i] - bursts[last]) / (rates[last] - rates[i])
        kept[size] = i
        size += 1
    return bursts[kept[0]], x[:size].copy(), rates[kept[:size]]


@njit
def total(
    x: Floats, drop: Floats, owner: Indices, burst: Floats, slope: Floats, active: Mask, skip: int
) -> Arrival:
    """Return the sum of the curves with an active owner other than `skip`.

    Args:
        x, drop, owner: [n] where an owner's slope falls and by how much, sorted by x.
        burst, slope: [owners] value at 0+ and first slope.
        active: [owners].
        skip: an owner to leave out, or -1.
    """
    at = np.empty(len(x) + 1)
    slopes = np.empty(len(x) + 1)
    start = rise = 0.0
    for k in range(len(burst)):
        if active[k] and k != skip:
            start += burst[k]
            rise += slope[k]
    at[0], slopes[0] = 0.0, rise
    size = 1
    for i in range(len(x)):
        k = owner[i]
        if active[k] and k != skip:
            rise -= drop[i]
            if x[i] != at[size - 1]:
                at[size] = x[i]
                size += 1
            slopes[size - 1] = rise
    return start, at[:size].copy(), slopes[:size].copy()


@njit
def left_over(sx: Floats, ss: Floats, burst: float, ax: Floats, slope: Floats) -> Service:
    """Return ``[service - arrivals]+``: the service that strict priority leaves to lower ones."""
    x = np.empty(len(sx) + len(ax) + 1)
    out = np.empty(len(sx) + len(ax) + 1)
    x[0], out[0] = 0.0, 0.0
    size = 1
    value, at = -burst, 0.0
    i = j = 0
    positive = False
    while True:
        rise = ss[i] - slope[j]
        nexts = np.inf if i + 1 == len(sx) else sx[i + 1]
        nexta = np.inf if j + 1 == len(ax) else ax[j + 1]
        until = min(nexts, nexta)
        # Convex and not above 0 at the start: the curve stays positive after its last zero.
        if not positive and rise > 0 and (until == np.inf or value + rise * (until - at) > 0):
            positive = True
            zero = at - value / rise
            if zero > 0:
                x[size] = zero
                size += 1
            out[size - 1] = rise
        elif positive:
            x[size] = at
            out[size] = rise
            size += 1
        if until == np.inf:
            break
        value += rise * (until - at)
        at = until
        if nexts == until:
            i += 1
        if nexta == until:
            j += 1
    return x[:size].copy(), out[:size].copy()


@njit
def in_series(ax: Floats, aslope: Floats, bx: Floats, bslope: Floats) -> Service:
    """Return the min-plus convolution of two service curves: their pieces by rising slope."""
    x = np.empty(len(ax) + len(bx))
    out = np.empty(len(ax) + len(bx))
    i = j = size = 0
    at = 0.0
    while True:
        first = aslope[i] <= bslope[j]
        x[size] = at
        out[size] = aslope[i] if first else bslope[j]
        size += 1
        if first:
            if i + 1 == len(ax):
                break
            at += ax[i + 1] - ax[i]
            i += 1
        else:
            if j + 1 == len(bx):
                break
            at += bx[j + 1] - bx[j]
            j += 1
    return x[:size].copy(), out[:size].copy()


@njit
def through(
    burst: float, ax: Floats, aslope: Floats, gx: Floats, gslope: Floats, slack: float = 0.0
) -> Arrival:
    """Return ``max over u >= 0 of arrivals(t + u) - service(u)``: arrivals after a queue.

    The burst is infinite if the queue serves less than arrives in the long run.
    """
    if aslope[-1] > gslope[-1] + slack or gslope[-1] <= 0:
        return np.inf, np.zeros(1), np.zeros(1)
    i = j = 0
    u, value = 0.0, burst
    while aslope[i] > gslope[j]:  # the difference still rises
        if i + 1 == len(ax) and j + 1 == len(gx):
            break  # only by rounding
        nexta = np.inf if i + 1 == len(ax) else ax[i + 1]
        nextg = np.inf if j + 1 == len(gx) else gx[j + 1]
        until = min(nexta, nextg)
        value += (aslope[i] - gslope[j]) * (until - u)
        u = until
        if nexta == until:
            i += 1
        if nextg == until:
            j += 1
    # From t = 0 on: later pieces of the arrivals, earlier ones of the service, steepest first.
    x = np.empty(len(ax) + len(gx) + 1)
    out = np.empty(len(ax) + len(gx) + 1)
    size = 0
    at, back = 0.0, u
    forward = u
    if j > 0 and gx[j] >= back:
        j -= 1
    while True:
        earlier = gslope[j] if back > 0 else -1.0
        x[size] = at
        if earlier >= aslope[i]:
            out[size] = earlier
            at += back - gx[j]
            back = gx[j]
            j = max(j - 1, 0)
        else:
            out[size] = aslope[i]
            if i + 1 == len(ax):
                size += 1
                break
            at += ax[i + 1] - forward
            forward = ax[i + 1]
            i += 1
        if at > x[size]:
            size += 1
    return value, x[:size].copy(), out[:size].copy()


@njit
def delay(
    burst: float, ax: Floats, aslope: Floats, sx: Floats, sslope: Floats, slack: float = 0.0
) -> float:
    """Return the largest horizontal distance from arrivals to service: the worst wait and service.

    Infinite if the service is slower than the arrivals in the long run.
    """
    if sslope[-1] <= 0 or aslope[-1] > sslope[-1] + slack or burst == np.inf:
        return np.inf
    k = 0
    left = burst
    while True:  # the time at which the burst has been served; without one, the start of service
        room = np.inf if k + 1 == len(sx) else (sx[k + 1] - sx[k]) * sslope[k]
        if sslope[k] > 0 and left < room:
            break
        left -= room
        k += 1
    t = sx[k] + left / sslope[k]
    a = 0.0
    i = 0
    while aslope[i] > sslope[k]:
        if i + 1 == len(ax) and k + 1 == len(sx):
            break  # only by rounding: the distance stays constant
        # Both in units of arrivals' time: which curve changes slope first?
        enda = np.inf if i + 1 == len(ax) else ax[i + 1]
        ends = np.inf if k + 1 == len(sx) else a + (sx[k + 1] - t) * sslope[k] / aslope[i]
        if enda <= ends:
            t += (enda - a) * aslope[i] / sslope[k]
            a = enda
            i += 1
        if ends <= enda:
            if ends < enda:
                a = ends
            t = sx[k + 1]
            k += 1
    return float(t - a)


@njit
def behind(
    sx: Floats,
    ss: Floats,
    x: Floats,
    drop: Floats,
    owner: Indices,
    burst: Floats,
    slope: Floats,
    active: Mask,
    skip: int,
    wburst: float,
    wx: Floats,
    wslope: Floats,
    slack: float = 0.0,
) -> float:
    """Return the `delay` of (wburst, wx, wslope) behind a `total`, both at the service (sx, ss)."""
    others, ox, oslope = total(x, drop, owner, burst, slope, active, skip)
    left, rest = left_over(sx, ss, others, ox, oslope)
    return delay(wburst, wx, wslope, left, rest, slack)


@njit
def value(burst: float, x: Floats, slope: Floats, t: float) -> float:
    """Return the value of an arrival curve at `t` >= 0 (at 0: its limit from above)."""
    found = burst
    for k in range(len(x)):
        end = t if k + 1 == len(x) else min(t, x[k + 1])
        if end <= x[k]:
            break
        found += slope[k] * (end - x[k])
    return found


def added(parts: list[Arrival]) -> Arrival:
    """Return the sum of arrival curves; without parts, nothing arrives."""
    if not parts:
        return 0.0, np.zeros(1), np.zeros(1)
    if len(parts) == 1:
        return parts[0]
    x, drop, owner = falls(parts)
    first = np.array([part[2][0] for part in parts])
    burst = np.array([part[0] for part in parts])
    return total(x, drop, owner, burst, first, np.ones(len(parts), np.bool_), -1)


def falls(parts: list[Arrival]) -> tuple[Floats, Floats, Indices]:
    """Return the places, sizes and owners of the falls of slopes, sorted by place; see `total`."""
    if not parts:
        return np.empty(0), np.empty(0), np.empty(0, np.int64)
    x = np.concatenate([part[1][1:] for part in parts])
    drop = np.concatenate([-np.diff(part[2]) for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part[1]) - 1 for part in parts])
    order = np.argsort(x, kind="stable")
    return x[order], drop[order], owner[order]
