"""The paper's linear program (section 4.4) for two queues in series, solved exactly.

A flow w passes queue 1, then queue 2. In the program's variables let ``T1`` and ``T2`` be how long
the two queues have been backlogged when they are left, and let

* ``P(T) = [B1 T - arrivals of those that pass queue 1 alone]+``,
* ``Q(T) = [B2 T - what all others bring to queue 2]+``,
* ``A(T)`` be the arrival curve of those of no lower priority that pass both queues with w.

*Who is served.* The program may give the sharing flows ``s`` of their work at queue 1, with
``0 <= s <= A(T1)``, and ``A(T1 + T2) - s`` at queue 2 (their rate limits are of the whole time).
What is left for w to have brought is at least

    [P(T1) - s]+ + [Q(T2) - A(T1 + T2) + s]+ .

As a function of s this falls, is flat, and rises; its least value over the s that are allowed is

    y(T1, T2) = max(0, P(T1) - A(T1), P(T1) + Q(T2) - A(T1 + T2)) .

(``Q(T2) - A(T1 + T2)`` is no more than the last of these as P is not negative. Where P or Q is cut
off at 0 nothing changes: ``P(T1) <= v + A(T1)`` says all that the third says of a Q below 0.)
The sharing flows and all others attain this, so that the program's maximum is that of
``T1 + T2 - a`` over all with ``y(T1, T2) <= arrival curve of w (a)``.

*The second term* is what ``(P conv Q) - A``, the usual service curve of a path, does not have:
queue 1 is not backlogged for longer than there is work for it, ``P(T1) - A(T1) <= v``.

*The maximum.* P and Q are convex and A is concave, so y is convex in (T1, T2), and the longest time
``F(v) = max {T1 + T2 : y <= v}`` is concave in v. Let ``tau(v)`` be the longest T1 that the second
term allows, and T1* the share of queue 1 in the best time without that term (pieces of P and Q by
rising slope). If ``T1* <= tau`` that time is F(v); otherwise ``T1 = tau``, because the sum grows
with T1 up to T1*, and then ``Q(T2) = A(tau + T2) - A(tau)``. The bound is the largest value of the
concave, piecewise linear ``F(v) - a(v)``, found by cutting planes: two tangents, their meeting
point, a new tangent there, until it lies on both. Where w's rate is all that is left (queues that
mean rates load to 100 %), the function rises to a level that it keeps: the value where all curves
are in their last pieces.

Blocking adds constants to what others bring; nothing else in the above changes.
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
_CLOSE = 1e-12  # relative gap between tangents and function at which the maximum is found
_ASIDE = 1e-11  # relative distance at which tangents are taken: not in a corner


@njit
def _first_alone(
    px: Floats, ps: Floats, burst: float, ax: Floats, aslope: Floats, v: float
) -> tuple[float, float, int]:
    """tau(v): the longest T with ``P(T) - A(T) <= v``; the slope of P and the piece of A there."""
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
    """The best T1 and T2 with ``P(T1) + Q(T2) - A(T1 + T2) <= v``, and how fast their sum grows
    with v. Of pieces of one slope queue 2's come first: T1 is as short as it can be."""
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
    """The longest T2 with ``Q(T2) <= A(tau + T2) - A(tau)``, and the slopes of Q and A there.

    Args:
        tau: T1.
        k: the piece of A at it.
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
    """``F(v) - a(v)`` for v of at least w's burst, and its slope."""
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
    """Work of w from which on all curves are in their last pieces."""
    corners = first[0][-1] + second[0][-1] + sharing[1][-1] + own[1][-1]
    begun = curves.value(own[0], own[1], own[2], own[1][-1])
    level: float = max(first[1][-1], second[1][-1]) * corners + begun + own[0]
    return level


@njit
def delay(
    first: Service, second: Service, sharing: Arrival, own: Arrival, slack: float = 0.0
) -> float:
    """The program's maximum: the longest that work of w takes through both queues, in seconds.

    Args:
        first: service curve P of queue 1 (`curves.left_over`).
        second: Q, that of queue 2.
        sharing: arrival curve A of those that pass both with w.
        own: arrival curve of w.
        slack: work per second by which rounding may make arrivals faster than service.

    Returns:
        infinite when a queue serves less than arrives in the long run. Otherwise no less than the
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
    full = own[2][-1] >= last - slack  # w's rate is all that is left, but for rounding
    end = max(_level(first, second, sharing, own), at)
    for _ in range(_STEPS):  # where does it no longer grow?
        high_at = min(wburst + reach, end) if full else wburst + reach
        high, high_slope = _lead(first, second, sharing, own, high_at)
        if high_slope <= 0:
            break
        if high_at == end:
            return max(high, best)
        low_at, low, low_slope = high_at, high, high_slope
        reach *= 4.0
    if high_slope > 0:  # it cannot be told where it ends: nothing is proven
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
    """`delay` where those who share both queues are a `curves.total`."""
    sharing = curves.total(x, drop, owner, burst, slope, active, skip)
    if sharing[0] > 0:
        return delay(first, second, sharing, own, slack)
    both = curves.in_series(first[0], first[1], second[0], second[1])
    left = curves.left_over(both[0], both[1], sharing[0], sharing[1], sharing[2])
    return curves.delay(own[0], own[1], own[2], left[0], left[1], slack)
