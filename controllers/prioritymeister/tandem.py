"""The paper's linear program (section 4.4) for two queues in series, solved exactly.

A flow w passes queue 1, then queue 2. In the program's variables let ``T1`` and ``T2`` be the times
for which the two queues have been backlogged when they are left, and let

* ``P(T) = [B1 T - arrivals of flows that pass only queue 1]+``,
* ``Q(T) = [B2 T - arrivals of all other flows at queue 2]+``,
* ``A(T)`` be the arrival curve of flows of no lower priority that pass both queues with w.

*The served flows.* The program may give the sharing flows ``s`` of their work at queue 1, with ``0
<= s <= A(T1)``, and ``A(T1 + T2) - s`` at queue 2 (their rate limits hold for the whole time). The
rest, which w must have brought, is at least

    [P(T1) - s]+ + [Q(T2) - A(T1 + T2) + s]+ .

As a function of s this falls, is flat, and rises; its least value over the allowed s is

    y(T1, T2) = max(0, P(T1) - A(T1), P(T1) + Q(T2) - A(T1 + T2)) .

(``Q(T2) - A(T1 + T2)`` is no more than the last of these as P is not negative. If P or Q is cut off
at 0 nothing changes: ``P(T1) <= v + A(T1)`` implies the third condition for a Q below 0.) The
sharing flows and all others attain this, so that the program's maximum is the maximum of ``T1 + T2
- a`` over all with ``y(T1, T2) <= arrival curve of w (a)``.

*The second term* is missing in ``(P conv Q) - A``, the usual service curve of a path: queue 1 is
not backlogged for longer than there is work for it, ``P(T1) - A(T1) <= v``.

*The maximum.* P and Q are convex and A is concave, so y is convex in (T1, T2), and the longest time
``F(v) = max {T1 + T2 : y <= v}`` is concave in v. Let ``tau(v)`` be the longest T1 that the second
term allows, and T1* the share of queue 1 in the best time without the second term (pieces of P and
Q by rising slope). If ``T1* <= tau`` this time is F(v); otherwise ``T1 = tau``, because the sum
grows with T1 up to T1*, and then ``Q(T2) = A(tau + T2) - A(tau)``. The bound is the largest value
of the concave, piecewise linear ``F(v) - a(v)``, found by cutting planes: two tangents, their
meeting point, a new tangent there, until it touches both. If w's rate is all that is left (mean
rates load the queues to 100 %), the function rises to a level and stays there: the value at which
all curves are in their last pieces.

Blocking adds constants to the arrivals of others; nothing else above changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from controllers.jit import njit
from controllers.prioritymeister import curves
from controllers.prioritymeister.curves import Arrival, Service

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_STEPS = 200  # cutting planes; a handful is usual
_CLOSE = 1e-12  # relative gap between tangents and function that ends the search
_ASIDE = 1e-11  # relative distance of tangents from a corner


@njit
def _first_alone(
    px: Floats, ps: Floats, burst: float, ax: Floats, aslope: Floats, v: float
) -> tuple[float, float, int]:
    """Return tau(v): the longest T with ``P(T) - A(T) <= v``; P's slope and A's piece there."""
    i = k = 0
    at, value = 0.0, -burst
    while True:
        nextp = np.inf if i + 1 == len(px) else px[i + 1]
        nexta = np.inf if k + 1 == len(ax) else ax[k + 1]
        until = min(nextp, nexta)
        rise = ps[i] - aslope[k]
        if rise > 0 and (until == np.inf or value + rise * (until - at) > v):
            return at + (v - value) / rise, ps[i], k
        if until == np.inf:
            return np.inf, ps[i], k
        value += rise * (until - at)
        at = until
        if nextp == until:
            i += 1
        if nexta == until:
            k += 1


@njit
def _together(
    px: Floats,
    ps: Floats,
    qx: Floats,
    qs: Floats,
    burst: float,
    ax: Floats,
    aslope: Floats,
    v: float,
) -> tuple[float, float, float]:
    """Return the best T1 and T2 with ``P(T1) + Q(T2) - A(T1 + T2) <= v``, and the growth of their
    sum with v. For equal slopes queue 2's pieces come first: T1 is as short as possible."""
    i = j = k = 0
    t1 = t2 = at = 0.0
    value = -burst
    while True:
        first = ps[i] < qs[j]
        if first:
            slope = ps[i]
            left = np.inf if i + 1 == len(px) else px[i + 1] - t1
        else:
            slope = qs[j]
            left = np.inf if j + 1 == len(qx) else qx[j + 1] - t2
        free = np.inf if k + 1 == len(ax) else ax[k + 1] - at
        step = min(left, free)
        rise = slope - aslope[k]
        if rise > 0 and (step == np.inf or value + rise * step > v):
            step = (v - value) / rise
            if first:
                return t1 + step, t2, 1.0 / rise
            return t1, t2 + step, 1.0 / rise
        if step == np.inf:
            return np.inf, np.inf, np.inf
        value += rise * step
        at = ax[k + 1] if free <= left else at + step
        if free <= left:
            k += 1
        if first:
            t1 = px[i + 1] if left <= free else t1 + step
            i += int(left <= free)
        else:
            t2 = qx[j + 1] if left <= free else t2 + step
            j += int(left <= free)


@njit
def _second_alone(
    qx: Floats, qs: Floats, ax: Floats, aslope: Floats, tau: float, k: int
) -> tuple[float, float, float]:
    """Return the longest T2 with ``Q(T2) <= A(tau + T2) - A(tau)``; Q's and A's slopes there.

    Args:
        tau: T1.
        k: the piece of A at tau.
    """
    j = 0
    at = value = 0.0
    while True:
        left = np.inf if j + 1 == len(qx) else qx[j + 1] - at
        free = np.inf if k + 1 == len(ax) else ax[k + 1] - tau - at
        step = max(min(left, free), 0.0)
        rise = qs[j] - aslope[k]
        if rise > 0 and (step == np.inf or value + rise * step > 0):
            return at - value / rise, qs[j], aslope[k]
        if step == np.inf:
            return np.inf, qs[j], aslope[k]
        value += rise * step
        at = qx[j + 1] if left <= free else at + step
        if left <= free:
            j += 1
        if free <= left:
            k += 1


@njit
def _lead(
    first: Service, second: Service, sharing: Arrival, own: Arrival, v: float
) -> tuple[float, float]:
    """Return ``F(v) - a(v)`` for v of at least w's burst, and its slope."""
    burst, ax, aslope = sharing
    t1, t2, grows = _together(first[0], first[1], second[0], second[1], burst, ax, aslope, v)
    time = t1 + t2
    tau, p, k = _first_alone(first[0], first[1], burst, ax, aslope, v)
    if t1 > tau:
        t2, q, a = _second_alone(second[0], second[1], ax, aslope, tau, k)
        time = tau + t2
        grows = (q - aslope[k]) / ((q - a) * (p - aslope[k]))
    value, x, slope = own
    i = 0
    while i + 1 < len(x) and value + slope[i] * (x[i + 1] - x[i]) <= v:
        value += slope[i] * (x[i + 1] - x[i])
        i += 1
    return time - x[i] - (v - value) / slope[i], grows - 1.0 / slope[i]


@njit
def _level(first: Service, second: Service, sharing: Arrival, own: Arrival) -> float:
    """Return the work of w from which on all curves are in their last pieces."""
    corners = first[0][-1] + second[0][-1] + sharing[1][-1] + own[1][-1]
    begun = curves.value(own[0], own[1], own[2], own[1][-1])
    level: float = max(first[1][-1], second[1][-1]) * corners + begun + own[0]
    return level


@njit
def delay(
    first: Service, second: Service, sharing: Arrival, own: Arrival, slack: float = 0.0
) -> float:
    """Return the program's maximum: the longest time of w's work in both queues, in seconds.

    Args:
        first: service curve P of queue 1 (`curves.left_over`).
        second: service curve Q of queue 2.
        sharing: arrival curve A of the flows that pass both with w.
        own: arrival curve of w.
        slack: work per second by which rounding may make arrivals faster than service.

    Returns:
        infinite if a queue serves less than arrives in the long run. Otherwise no less than the
        maximum, and no more than a few units in the eleventh digit above it.
    """
    burst, wburst = sharing[0], own[0]
    last = min(first[1][-1], second[1][-1]) - sharing[2][-1]
    if last <= 0 or own[2][-1] > last + slack or wburst == np.inf:
        return np.inf
    scale = max(wburst, burst)
    at = wburst + _ASIDE * scale
    best = _lead(first, second, sharing, own, wburst)[0]
    low, low_slope = _lead(first, second, sharing, own, at)
    low_at = at
    if low_slope <= 0:
        return max(best, low)
    high_at, reach = at, max(scale, 1e-300)
    high, high_slope = low, low_slope
    full = own[2][-1] >= last - slack  # only w's rate is left, except for rounding
    end = max(_level(first, second, sharing, own), at)
    for _ in range(_STEPS):  # find the end of growth
        high_at = min(wburst + reach, end) if full else wburst + reach
        high, high_slope = _lead(first, second, sharing, own, high_at)
        if high_slope <= 0:
            break
        if high_at == end:
            return max(high, best)
        low_at, low, low_slope = high_at, high, high_slope
        reach *= 4.0
    if high_slope > 0:  # the end of growth is unknown: nothing is proven
        return np.inf
    top = high
    for _ in range(_STEPS):
        meet = (low - high + high_slope * high_at - low_slope * low_at) / (high_slope - low_slope)
        meet = min(max(meet, low_at), high_at)
        top = low + low_slope * (meet - low_at)
        at = meet * (1 + _ASIDE)
        value, slope = _lead(first, second, sharing, own, at)
        if top - value <= _CLOSE * top + _ASIDE * meet * (abs(slope) + low_slope - high_slope):
            break
        if slope > 0:
            low_at, low, low_slope = at, value, slope
        else:
            high_at, high, high_slope = at, value, slope
    return max(top, best)


@njit
def behind(
    first: Service,
    second: Service,
    x: Floats,
    drop: Floats,
    owner: Indices,
    burst: Floats,
    slope: Floats,
    active: Mask,
    skip: int,
    own: Arrival,
    slack: float = 0.0,
) -> float:
    """Return `delay` if the flows that share both queues are a `curves.total`."""
    sharing = curves.total(x, drop, owner, burst, slope, active, skip)
    if sharing[0] > 0:
        return delay(first, second, sharing, own, slack)
    both = curves.in_series(first[0], first[1], second[0], second[1])
    left = curves.left_over(both[0], both[1], sharing[0], sharing[1], sharing[2])
    return curves.delay(own[0], own[1], own[2], left[0], left[1], slack)
