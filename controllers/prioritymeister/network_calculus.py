"""Network calculus: arrival and service curves, queues, and worst-case latencies (section 4.4).

An *arrival* curve is concave: (burst, x, slope), worth burst at 0+ and rising by slope[k] from x[k]
on; x[0] = 0, slopes never rise. A *service* curve is convex: (x, slope), worth 0 at x[0] = 0,
slopes never fall. The last piece of either has no end.

A flow enters at the first queue of its path, limited there by its arrival curve; a queue serves by
strict priority at its bandwidth. `System.bound` is the paper's linear program in closed form:

* one queue: the horizontal distance from the flow's arrival curve to ``[B t - sum of others]+``;
* more: the arrivals of others at a later queue are the output of the queue before it,
  ``max_u [A(t + u) - [B u - rest(u)]+]``. Two queues are then solved exactly (`tandem_delay`). For
  more, flows that share a stretch of the path are subtracted once (`nested_service`), or at each of
  its queues if this bounds the latency better. Neither is ever below the program.

A queue that mean rates load to exactly 100 % has a bound: bursts are finite, and in the long run
the curves are parallel. Sums of rates are rounded, so that one curve may seem faster. A difference
of at most `slack`, in work per second, counts as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from controllers.jit import njit
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Arrival = tuple[float, Floats, Floats]
Service = tuple[Floats, Floats]
Path = tuple[int, ...]
Parts = tuple[Floats, Floats, Indices, Floats, Floats, Mask, int]
"""Arguments of `total`."""

ROUNDING = 1e-9
"""Share of a bandwidth by which rounding may raise a sum of rates that fills it exactly."""
_REMEMBERED = 2000  # kept curves that the next question may need again
T = TypeVar("T")
NOTHING: Arrival = (0.0, np.zeros(1), np.zeros(1))

# Curves.


@njit
def arrival(rates: Floats, bursts: Floats) -> Arrival:
    """Return ``min_i(rates[i] * t + bursts[i])`` (section 4.4) of token buckets [m] in any order,
    without useless lines."""
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
    """Return the sum of the curves with an active owner other than `skip` (-1 for none). An owner's
    slope falls by `drop` at `x` [n], sorted; `burst` and `slope` [owners] are its value at 0+ and
    first slope."""
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
def left_over(service: Service, arrivals: Arrival) -> Service:
    """Return ``[service - arrivals]+``: the service that strict priority leaves to lower ones."""
    (sx, ss), (burst, ax, slope) = service, arrivals
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
def in_series(first: Service, second: Service) -> Service:
    """Return the min-plus convolution of two service curves: their pieces by rising slope."""
    (ax, aslope), (bx, bslope) = first, second
    x = np.empty(len(ax) + len(bx))
    out = np.empty(len(ax) + len(bx))
    i = j = size = 0
    at = 0.0
    while True:
        lower = aslope[i] <= bslope[j]
        x[size] = at
        out[size] = aslope[i] if lower else bslope[j]
        size += 1
        if lower:
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
def through(arrivals: Arrival, service: Service, slack: float = 0.0) -> Arrival:
    """Return ``max over u >= 0 of arrivals(t + u) - service(u)``: arrivals after a queue.

    The burst is infinite if the queue serves less than arrives in the long run.
    """
    (burst, ax, aslope), (gx, gslope) = arrivals, service
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
def delay(arrivals: Arrival, service: Service, slack: float = 0.0) -> float:
    """Return the largest horizontal distance from arrivals to service: the worst wait and service.

    Infinite if the service is slower than the arrivals in the long run.
    """
    (burst, ax, aslope), (sx, sslope) = arrivals, service
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
def value(arrivals: Arrival, t: float) -> float:
    """Return the value of an arrival curve at `t` >= 0 (at 0: its limit from above)."""
    found, x, slope = arrivals
    for k in range(len(x)):
        end = t if k + 1 == len(x) else min(t, x[k + 1])
        if end <= x[k]:
            break
        found += slope[k] * (end - x[k])
    return found


class CurveSum:
    """Arrival curves with their corners in one sorted list, so that sums of some are fast."""

    def __init__(self, parts: Sequence[Arrival]) -> None:
        self._count = len(parts)
        if not parts:
            return
        x = np.concatenate([part[1][1:] for part in parts])
        drop = np.concatenate([-np.diff(part[2]) for part in parts])
        owner = np.repeat(np.arange(len(parts)), [len(part[1]) - 1 for part in parts])
        order = np.argsort(x, kind="stable")
        burst = np.array([float(part[0]) for part in parts])
        slope = np.array([part[2][0] for part in parts])
        self._parts = x[order], drop[order], owner[order], burst, slope

    def some(self, active: Mask | None = None, skip: int = -1) -> Parts:
        """Return the arguments of `total`; all curves are active without `active`."""
        return (*self._parts, np.ones(self._count, np.bool_) if active is None else active, skip)

    def total(self, active: Mask | None = None, skip: int = -1) -> Arrival:
        """Return the sum of the active curves without `skip`."""
        return total(*self.some(active, skip)) if self._count else NOTHING


def added(parts: Sequence[Arrival]) -> Arrival:
    """Return the sum of arrival curves; without parts, nothing arrives."""
    return parts[0] if len(parts) == 1 else CurveSum(parts).total()


# Two queues in series: the paper's linear program, solved exactly.

"""A flow w passes queue 1, then queue 2. In the program's variables let ``T1`` and ``T2`` be the
times for which the two queues have been backlogged when they are left, and let

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
"""

_STEPS = 200  # cutting planes; a handful is usual
_CLOSE = 1e-12  # relative gap between tangents and function that ends the search
_ASIDE = 1e-11  # relative distance of tangents from a corner


@njit
def _first_alone(first: Service, sharing: Arrival, v: float) -> tuple[float, float, int]:
    """Return tau(v): the longest T with ``P(T) - A(T) <= v``; P's slope and A's piece there."""
    (px, ps), (burst, ax, aslope) = first, sharing
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
    first: Service, second: Service, sharing: Arrival, v: float
) -> tuple[float, float, float]:
    """Return the best T1 and T2 with ``P(T1) + Q(T2) - A(T1 + T2) <= v``, and the growth of their
    sum with v. For equal slopes queue 2's pieces come first: T1 is as short as possible."""
    (px, ps), (qx, qs), (burst, ax, aslope) = first, second, sharing
    i = j = k = 0
    t1 = t2 = at = 0.0
    value = -burst
    while True:
        in_first = ps[i] < qs[j]
        if in_first:
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
            if in_first:
                return t1 + step, t2, 1.0 / rise
            return t1, t2 + step, 1.0 / rise
        if step == np.inf:
            return np.inf, np.inf, np.inf
        value += rise * step
        at = ax[k + 1] if free <= left else at + step
        if free <= left:
            k += 1
        if in_first:
            t1 = px[i + 1] if left <= free else t1 + step
            i += int(left <= free)
        else:
            t2 = qx[j + 1] if left <= free else t2 + step
            j += int(left <= free)


@njit
def _second_alone(
    second: Service, sharing: Arrival, tau: float, k: int
) -> tuple[float, float, float]:
    """Return the longest T2 with ``Q(T2) <= A(tau + T2) - A(tau)``; Q's and A's slopes there. `tau`
    is T1, and `k` the piece of A at tau."""
    (qx, qs), (_, ax, aslope) = second, sharing
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
    aslope = sharing[2]
    t1, t2, grows = _together(first, second, sharing, v)
    time = t1 + t2
    tau, p, k = _first_alone(first, sharing, v)
    if t1 > tau:
        t2, q, a = _second_alone(second, sharing, tau, k)
        time = tau + t2
        grows = (q - aslope[k]) / ((q - a) * (p - aslope[k]))
    arrived, x, slope = own
    i = 0
    while i + 1 < len(x) and arrived + slope[i] * (x[i + 1] - x[i]) <= v:
        arrived += slope[i] * (x[i + 1] - x[i])
        i += 1
    return time - x[i] - (v - arrived) / slope[i], grows - 1.0 / slope[i]


@njit
def _level(first: Service, second: Service, sharing: Arrival, own: Arrival) -> float:
    """Return the work of w from which on all curves are in their last pieces."""
    corners = first[0][-1] + second[0][-1] + sharing[1][-1] + own[1][-1]
    begun = value(own, own[1][-1])
    level: float = max(first[1][-1], second[1][-1]) * corners + begun + own[0]
    return level


@njit
def tandem_delay(
    first: Service, second: Service, sharing: Arrival, own: Arrival, slack: float = 0.0
) -> float:
    """Return the program's maximum: the longest time of w's work in both queues, in seconds.

    `first` and `second` are the service curves P and Q (`left_over`), `sharing` is A, `own` the
    arrival curve of w, and `slack` the work per second by which rounding may make arrivals faster
    than service. The result is infinite if a queue serves less than arrives in the long run.
    Otherwise it is no less than the maximum, and no more than a few units in the eleventh digit
    above it.
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
        there, slope = _lead(first, second, sharing, own, at)
        if top - there <= _CLOSE * top + _ASIDE * meet * (abs(slope) + low_slope - high_slope):
            break
        if slope > 0:
            low_at, low, low_slope = at, there, slope
        else:
            high_at, high, high_slope = at, there, slope
    return max(top, best)


@njit
def _behind_one(queue: Service, sharing: Parts, own: Arrival, slack: float) -> float:
    """Return the `delay` of `own` behind a `total` at a queue."""
    return delay(own, left_over(queue, total(*sharing)), slack)


@njit
def _behind_two(
    first: Service, second: Service, sharing: Parts, own: Arrival, slack: float
) -> float:
    """Return the `tandem_delay` of `own` behind a `total` at two queues."""
    both = total(*sharing)
    if both[0] > 0:
        return tandem_delay(first, second, both, own, slack)
    return delay(own, left_over(in_series(first, second), both), slack)


# Stretches of a path that other flows share.


@dataclass(frozen=True)
class SharedStretch:
    """Flows of `paths` that share the queues `first` to `last` of a path (places in it), and their
    arrivals at the first of these queues."""

    first: int
    last: int
    paths: tuple[Path, ...]
    arrival: Arrival


def uncrossed(
    stretches: Sequence[SharedStretch],
    output: Callable[[SharedStretch, int], Arrival],
    *,
    later: bool = False,
) -> list[SharedStretch]:
    """Return the stretches of a path, cut so that any two are nested or disjoint.

    `output` returns the arrivals that a stretch's flows send on after a place in it. If two cross,
    the one that begins earlier is cut where the other begins; with `later`, the one that begins
    later where the other ends.
    """
    todo, found = list(stretches), list[SharedStretch]()
    while todo:
        one = todo.pop()
        others = (*todo, *found)
        if later:
            cuts = {s.last + 1 for s in others if s.first < one.first <= s.last < one.last}
        else:
            cuts = {s.first for s in others if one.first < s.first <= one.last < s.last}
        if not cuts:
            found.append(one)
            continue
        cut = max(cuts) if later else min(cuts)
        todo.append(SharedStretch(one.first, cut - 1, one.paths, one.arrival))
        todo.append(SharedStretch(cut, one.last, one.paths, output(one, cut - 1)))
        todo += found  # the new ones may cross them
        found.clear()
    return found


def nested_service(
    lines: Sequence[Service], stretches: Sequence[SharedStretch], first: int, last: int
) -> Service:
    """Return the service that the queues `first` to `last` of a path (places) leave to a flow.
    `lines` are the services of all queues of the path, and `stretches` are uncrossed.

    Let ``t_j`` be the time at which a queue j of the path is left, and ``t_(j-1)`` the start of its
    backlog period. Each queue serves ``B_j`` all that time. The service of others along a stretch,
    from queue a to b, is at most their arrivals at a in ``t_b - t_(a-1)``. So the flow is served at
    least ``sum of B_j (t_j - t_(j-1))``, less ``arrivals(t_b - t_(a-1))`` for each stretch, and a
    burst is met once, not at each queue of its stretch (as in the paper's linear program). Within
    any stretch this sum is never negative: all that left the stretch had arrived at it. Therefore
    the least value over all ``t_j`` is found from the inside out: in series, less the stretch's
    arrivals, cut off at 0. If two stretches cross, one of them is cut: its flows' arrivals at the
    second part are the output of the first.
    """
    whole = [s.arrival for s in stretches if (s.first, s.last) == (first, last)]
    found = lines[first]
    if first < last:
        inside = [s for s in stretches if (s.first, s.last) != (first, last)]
        place = first
        while place <= last:
            end = max((s.last for s in inside if s.first == place), default=place)
            within = [s for s in inside if place <= s.first and s.last <= end]
            part = nested_service(lines, within, place, end)
            found = part if place == first else in_series(found, part)
            place = end + 1
        if not whole:
            return found
    return left_over(found, added(whole))


# Queues and the flows through them.


@dataclass(frozen=True)
class QueueFlow:
    """Workload at a stage: the queues it passes in turn, and its token buckets. `largest` is the
    most work that is served in one piece: a request at a device, a packet on a link."""

    path: Path
    rates: Floats
    bursts: Floats
    largest: float = 0.0


class System:
    """All queues and flows of the storage stage, or of the network.

    `bandwidth` is the work per second of each queue; 1 for a device, with work in seconds. `names`
    are for messages. `lags`: seconds by which each queue may be behind its bandwidth in a backlog
    period, as if it began to serve that much later, ``B [t - lag]+``; empty for 0 everywhere.

    Raises:
        UserError: paths form a cycle: then no bound of this kind exists.
    """

    def __init__(
        self,
        bandwidth: Sequence[float],
        flows: Sequence[QueueFlow],
        names: Sequence[str] = (),
        lags: Sequence[float] = (),
    ) -> None:
        self.bandwidth, self.flows, self.lags = bandwidth, flows, lags
        self._names = names or [str(queue) for queue in range(len(bandwidth))]
        self._arrivals = [arrival(flow.rates, flow.bursts) for flow in flows]
        by_path: dict[Path, list[int]] = {}
        for index, flow in enumerate(flows):
            by_path.setdefault(flow.path, []).append(index)
        self._members = {path: np.array(found, np.int64) for path, found in by_path.items()}
        self._place = {
            flow: place for found in by_path.values() for place, flow in enumerate(found)
        }
        self._sums = {p: CurveSum([self._arrivals[m] for m in f]) for p, f in by_path.items()}
        # For each queue: paths by the queue they come from; -1 for paths that enter here.
        self._feeders: list[dict[int, list[Path]]] = [{} for _ in bandwidth]
        for path in by_path:
            for before, queue in zip((-1, *path), path, strict=False):
                self._feeders[queue].setdefault(before, []).append(path)
        queues = range(len(bandwidth))
        self._through = [[i for i, f in enumerate(flows) if q in f.path] for q in queues]
        self._long = any(len(path) > 2 for path in by_path)
        relevant: dict[int, set[int]] = {}
        for queue in self._sorted():
            passing = (by_path[path] for paths in self._feeders[queue].values() for path in paths)
            before_it = (relevant.get(before, set()) for before in self._feeders[queue])
            relevant[queue] = set().union(*passing, *before_it)
        self._relevant = [np.array(sorted(relevant[q]), np.int64) for q in queues]
        self._seen = {p: np.concatenate([self._relevant[q] for q in p]) for p in by_path}
        self._known: dict[Hashable, object] = {}

    def _sorted(self) -> list[int]:
        """Return the queues so that each comes after those that feed it."""
        after = {q: {f for f in fed if f >= 0} for q, fed in enumerate(self._feeders)}
        order: list[int] = []
        while after:
            free = [q for q, needs in after.items() if not needs & after.keys()]
            if not free:
                raise UserError(f"paths form a cycle of queues: {self._cycle(after)}")
            order += free
            for queue in free:
                del after[queue]
        return order

    def _cycle(self, after: dict[int, set[int]]) -> str:
        walk = [min(after)]
        while (step := min(after[walk[-1]] & after.keys())) not in walk:
            walk.append(step)
        return " -> ".join(self._names[q] for q in [step, *walk[walk.index(step) :][::-1]])

    def load(self, queue: int) -> float:
        """Return the share of a queue's bandwidth that the slowest buckets of its flows reserve."""
        flows = (flow for flow in self.flows if queue in flow.path)
        return sum(float(flow.rates.min()) for flow in flows) / self.bandwidth[queue]

    def affected(self) -> list[list[int]]:
        """Return, for each flow, the other flows with bounds that depend on its priority."""
        found: list[list[int]] = [[] for _ in self.flows]
        for flow, each in enumerate(self.flows):
            for other in set(self._seen[each.path].tolist()) - {flow}:
                found[other].append(flow)
        return found

    def bound(self, flow: int, others: Mask, *, blocking: bool = False) -> float:
        """Return the most seconds from a flow's arrival until it is served; infinite if a queue
        cannot carry the flow and the flows of `others`, those of higher or the same priority
        [flows].

        With `blocking`, count also that a piece of lower priority in service is not interrupted,
        and that a piece is passed on once all of it has come.
        """
        path = self.flows[flow].path
        along = others
        if self._long and not others[flow]:
            # Beyond two queues the flow meets flows again that it may have held up before.
            along = others.copy()
            along[flow] = True
        # All flows of the path have the same services, unless blocking counts.
        key = (path, along[self._seen[path]].tobytes(), flow if blocking else -1)
        queues = self._once(key, lambda: self._services(path, along, flow, blocking))
        if queues is None:
            return float("inf")
        sharing = self._sums[path].some(others[self._members[path]], self._place[flow])
        own, slack = self._arrivals[flow], ROUNDING * min(self.bandwidth[queue] for queue in path)
        if len(queues) == 2:
            return float(_behind_two(queues[0], queues[1], sharing, own, slack))
        whole = queues[0]
        for service in queues[1:]:
            whole = in_series(whole, service)
        found = _behind_one(whole, sharing, own, slack)
        if len(queues) > 2:
            shared = self._once(("shared", *key), lambda: self._shared(path, along, flow, blocking))
            found = min(found, *(_behind_one(one, sharing, own, slack) for one in shared), np.inf)
        return float(found)

    def _once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return a value that is computed once, as long as it is remembered."""
        if key not in self._known:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[key] = compute()
        return cast(T, self._known[key])

    def _services(
        self, path: Path, others: Mask, flow: int, blocking: bool
    ) -> list[Service] | None:
        """Return the service of each queue of `path` without the flows of the same path; None if a
        queue before has no bound."""
        found = []
        for place, queue in enumerate(path):
            burst, x, slope = self._inputs(queue, others, path, blocking)
            if burst == np.inf:
                return None
            if blocking:
                lower, whole = self._pieces(path, place, others, flow)
                burst = burst + lower + whole
            found.append(left_over(self._line(queue), (burst, x, slope)))
        return found

    def _shared(self, path: Path, others: Mask, flow: int, blocking: bool) -> list[Service]:
        """Return services of a path without the flows of the same path; flows that share a stretch
        are subtracted once. Two if stretches cross, none if a queue before has no bound."""

        def output(one: SharedStretch, place: int) -> Arrival:
            return self._output(path[place], one.paths, others, blocking)

        given = self._stretches(path, others, blocking)
        ways = [uncrossed(given, output)]
        if len(ways[0]) > len(given):
            ways.append(uncrossed(given, output, later=True))
        blocks = []
        for place in range(len(path)) if blocking else ():
            held = (sum(self._pieces(path, place, others, flow)), np.zeros(1), np.zeros(1))
            blocks.append(SharedStretch(place, place, (), held))
        lines = [self._line(queue) for queue in path]
        return [
            nested_service(lines, [*way, *blocks], 0, len(lines) - 1)
            for way in ways
            if all(one.arrival[0] < np.inf for one in way)
        ]

    def _stretches(self, path: Path, others: Mask, blocking: bool) -> list[SharedStretch]:
        """Return others' stretches on the queues of a path, without flows of the same path."""
        found = []
        for first, queue in enumerate(path):
            groups: dict[tuple[int, Path | None, int], list[Path]] = {}
            for before, paths in self._feeders[queue].items():
                if first and before == path[first - 1]:
                    continue  # came along with the flow
                for one in paths:
                    if one == path or not others[self._members[one]].any():
                        continue
                    last, place = first, one.index(queue) + 1
                    while path[last + 1 : last + 2] == one[place : place + 1] != ():
                        last, place = last + 1, place + 1
                    groups.setdefault((before, one if before < 0 else None, last), []).append(one)
            for (before, _, last), group in groups.items():
                if before < 0:
                    arrives = self._entering(group[0], others)
                else:
                    arrives = self._output(before, group, others, blocking)
                found.append(SharedStretch(first, last, tuple(group), arrives))
        return found

    def _line(self, queue: int) -> Service:
        """Return the service of a queue without any other work."""
        bandwidth, lag = float(self.bandwidth[queue]), self.lags[queue] if self.lags else 0.0
        if lag <= 0:
            return np.zeros(1), np.array([bandwidth])
        return np.array([0.0, lag]), np.array([0.0, bandwidth])

    def _pieces(self, path: Path, place: int, others: Mask, flow: int) -> tuple[float, float]:
        """Return the blocking at a queue of a path: by the largest piece of lower priority, and,
        before the last queue, by the largest piece that must come whole."""
        whole = self._largest(path[place], others, flow) if place + 1 < len(path) else 0.0
        return self._blocked(path[place], others, flow), whole

    def _blocked(self, queue: int, others: Mask, flow: int) -> float:
        """Return the largest piece of lower priority at a queue."""
        lower = (self.flows[k].largest for k in self._through[queue] if not others[k] and k != flow)
        return max(lower, default=0.0)

    def _largest(self, queue: int, others: Mask, flow: int) -> float:
        """Return the largest piece of a flow or of its others at a queue."""
        there = (k for k in self._through[queue] if others[k] or k == flow)
        return max((self.flows[k].largest for k in there), default=0.0)

    def _entering(self, path: Path, others: Mask) -> Arrival:
        """Return the arrivals of others that enter by a path."""
        return self._sums[path].total(others[self._members[path]])

    def _inputs(self, queue: int, others: Mask, without: Path, blocking: bool) -> Arrival:
        """Return the arrivals of others at a queue, without path `without`."""
        key = (queue, others[self._relevant[queue]].tobytes(), blocking)
        place, arrivals = self._once(key, lambda: self._groups(queue, others, blocking))
        found = arrivals.total(skip=place.get(without, -1))
        for before, paths in self._feeders[queue].items():
            if before >= 0 and without in paths and len(paths) > 1:
                # On longer paths, the flow's own came with others: their output without the path.
                rest = [path for path in paths if path != without]
                found = added([found, self._output(before, rest, others, blocking)])
        return found

    def _groups(self, queue: int, others: Mask, blocking: bool) -> tuple[dict[Path, int], CurveSum]:
        """Return a queue's arrivals, of each path that enters here and of each queue that feeds it,
        and the place in this sum by path."""
        place: dict[Path, int] = {}
        parts: list[Arrival] = []
        for before, paths in self._feeders[queue].items():
            for path in paths if before < 0 else ():
                place[path] = len(parts)
                parts.append(self._entering(path, others))
            if before >= 0:
                place |= dict.fromkeys(paths, len(parts))
                parts.append(self._output(before, paths, others, blocking))
        return place, CurveSum(parts)

    def _output(self, queue: int, paths: Sequence[Path], others: Mask, blocking: bool) -> Arrival:
        """Return the arrivals of the flows of `paths` at their next queue after `queue`."""
        key = (queue, tuple(paths), others[self._relevant[queue]].tobytes(), blocking)
        return self._once(key, lambda: self._compute_output(queue, paths, others, blocking))

    def _compute_output(
        self, queue: int, paths: Sequence[Path], others: Mask, blocking: bool
    ) -> Arrival:
        chosen: list[Arrival] = []
        rest: list[Arrival] = []
        for before, through_it in self._feeders[queue].items():
            ours = [p for p in through_it if p in paths]
            theirs = [p for p in through_it if p not in paths]
            for part, into in ((ours, chosen), (theirs, rest)):
                if part and before < 0:
                    into += [self._entering(path, others) for path in part]
                elif part:
                    into.append(self._output(before, part, others, blocking))
        burst, x, slope = added(rest)
        if blocking:
            burst += self._blocked(queue, others, -1)
        free = left_over(self._line(queue), (burst, x, slope))
        out = through(added(chosen), free, ROUNDING * self.bandwidth[queue])
        if blocking:
            return (out[0] + self._largest(queue, others, -1), out[1], out[2])
        return out
