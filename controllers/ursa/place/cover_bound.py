"""A sharper bound over all choices of objects: they stay whole where a node has to be relieved.

Only what comes to a node is relaxed, by prices lambda >= 0 of a unit of load: what arrives in total
on the one hand, and the room made for it on the other. What is left falls apart by nodes. With c_k
the least ``cost + load * lambda`` over the targets that object k may go to, no plan costs less than
the sum over nodes n of

    min { sum of c_k over the objects k that leave - lambda_n * what may come }.

As much may come as the room and the leaving objects allow. For a hot node this is a minimum
knapsack: its cheapest set of objects, at costs c_k - lambda_n load_k, that covers its excess. For
another one it is every object whose leaving sells for more than it costs. In contrast to the linear
relaxation (`joint_bound`) a hot node cannot give away a part of an object; at the same prices this
bound is never lower. The prices are improved by a few steps along the subgradient: what the chosen
objects bring to a node beyond the room that was sold there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.jit import in_threads
from controllers.ursa.methods import Request
from controllers.ursa.place.highs import INFINITE, Model, by_columns, solve
from controllers.ursa.place.market import Market
from controllers.ursa.place.pricing import BEYOND
from controllers.ursa.place.problem import Ints
from controllers.ursa.results import Timer
from controllers.ursa.state import State

STEPS = 8
PATIENCE = 4
ENOUGH = 1e-3
"""Part of the known cost: closer to it no step is taken."""
KNAPSACK_NODES = 200
KNAPSACK_GAP = 1e-4
SAFETY = 1e-12


@dataclass(frozen=True, eq=False)
class Cover:
    """A bound and the prices that prove it."""

    bound: float
    price: Float64


def cover_bound(market: Market, price: Float64, cost: float, timer: Timer) -> float:
    """The bound of `covered`."""
    return covered(market, price, cost, timer).bound


def covered(
    market: Market,
    price: Float64,
    cost: float,
    timer: Timer,
    *,
    steps: int = STEPS,
    exact: bool = True,
) -> Cover:
    """The best of the bounds at the prices of a few steps.

    Args:
        market: says over which plans the bound is.
        price: [N], where the steps begin.
        cost: of a plan that is known; infinite to take no step.
        timer: when no time is left, the best so far.
        steps: at most.
        exact: knapsacks are solved as integer programmes where that says more.

    Returns:
        A bound of at most `cost`; infinite when a hot node cannot be relieved by any plan.
    """
    if not market.evict:
        price = np.where(market.hot, 0.0, price)  # nothing comes there
    best = Cover(-INFINITE, price)
    direction = np.zeros(len(price))
    length, quiet = 1.0, 0
    for _ in range(steps):
        if timer.left() <= 0:
            break
        bound, over = evaluate_covers(market, price, exact=exact)
        if bound == INFINITE:
            return Cover(bound, price)
        quiet = 0 if bound > best.bound + 1e-5 * abs(best.bound) else quiet + 1
        if bound > best.bound:
            best = Cover(bound, price)
            direction = np.where((over > 0) | (price > 0), over, 0.0)
            if not market.evict:
                direction[market.hot] = 0.0
        else:
            length /= 2
        norm = float((direction**2).sum())
        near = best.bound >= cost * (1 - ENOUGH)
        if norm == 0 or quiet >= PATIENCE or near or not np.isfinite(cost):
            break
        step = length * max(cost - best.bound, 0.0) / norm
        price = np.maximum(best.price + step * direction, 0.0)
    return Cover(max(min(best.bound, cost), 0.0), best.price)


def any_plan_bound(instance: Instance, state: State, request: Request) -> float | None:
    """No plan that leaves no node hot costs less, whatever it moves; None when there is none.

    At prices of nothing: every object could go to the nearest node that might take it at all. That
    is quick, and low where near nodes are full.
    """
    market = Market(instance, state, evict=True, reach=request.reach)
    nothing = np.zeros(instance.nodes)
    bound = covered(market, nothing, INFINITE, request.timer, steps=1, exact=False).bound
    return bound if 0 < bound < INFINITE else None


def evaluate_covers(market: Market, price: Float64, *, exact: bool = True) -> tuple[float, Float64]:
    """(the bound at `price`, [N] what comes beyond the room that was sold)."""
    sold = market.room.copy()
    total = -float((price * market.room).sum())
    come = np.zeros(market.instance.nodes)
    if market.evict:
        nodes = np.flatnonzero(~market.hot & (price > 0))
        market.stock.fetch(nodes)
        at = market.stock.of(nodes)
        load, node = market.stock.load[at], market.stock.node[at]
        sells = load * price[node]
        value, target = market.least_exactly(nodes, price, sells)
        out = np.flatnonzero(value < sells)
        total += float((value - sells)[out].sum())
        sold += np.bincount(node[out], load[out], len(sold))
        come += np.bincount(target[out], load[out], len(come))
    for node, relief in zip(*reliefs(market, price, exact=exact), strict=True):
        total += relief.bound
        sold[node] += relief.load.sum()
        np.add.at(come, relief.target, relief.load)
    return total, come - sold


@dataclass(frozen=True, eq=False)
class Relief:
    """What leaves a hot node in the cheapest cover: a bound of it, and the objects.

    `beyond`: some of them go farther than the node's list reaches, so that it has to be widened.
    """

    bound: float
    load: Float64
    target: Int32
    beyond: bool


_NOTHING = Relief(0.0, np.empty(0), np.empty(0, np.int32), beyond=False)


def reliefs(market: Market, price: Float64, *, exact: bool = True) -> tuple[Ints, list[Relief]]:
    """The hot nodes and the cheapest cover of each at `price`."""
    hot = np.flatnonzero(market.hot)
    market.stock.fetch(hot)
    market.ways.open(hot)
    found: list[Relief] = [_NOTHING] * len(hot)
    pending = np.arange(len(hot))
    while len(pending):
        for i, relief in zip(pending, _relieved(market, hot[pending], price, exact), strict=True):
            found[i] = relief
        pending = np.array([i for i in pending if found[i].beyond], dtype=np.int64)
        market.ways.widen(hot[pending])
    return hot, found


def _relieved(market: Market, nodes: Ints, price: Float64, exact: bool) -> list[Relief]:
    at = market.stock.of(nodes)
    size = market.stock.end[nodes] - market.stock.first[nodes]
    load = market.stock.load[at]
    value, target = market.least(nodes, price, np.full(len(at), INFINITE))
    return relieve_each(
        market, nodes, load, value - load * price[np.repeat(nodes, size)], target, exact=exact
    )


def relieve_each(
    market: Market,
    nodes: Ints,
    load: Float64,
    value: Float64,
    target: Int32,
    *,
    exact: bool = True,
) -> list[Relief]:
    """The cheapest cover of each of `nodes`; the arrays are of their objects, node by node."""
    size = market.stock.end[nodes] - market.stock.first[nodes]
    end = np.cumsum(size)
    found: list[Relief] = [_NOTHING] * len(nodes)

    def work(chunk: int) -> None:
        for i in range(bounds[chunk], bounds[chunk + 1]):
            mine = slice(int(end[i] - size[i]), int(end[i]))
            demand = float(market.excess[nodes[i]])
            found[i] = _relieve(load[mine], value[mine], target[mine], demand, exact)

    # Every cover may take a programme: a few at a time for each thread.
    chunks = 1 + len(nodes) // 8
    bounds = np.linspace(0, len(nodes), chunks + 1).astype(np.int64)
    in_threads(work, chunks)
    return found


def _relieve(load: Float64, value: Float64, target: Int32, demand: float, exact: bool) -> Relief:
    paying = np.flatnonzero(value < 0)
    rest = demand * (1 - SAFETY) - float(load[paying].sum())
    able = np.flatnonzero(np.isfinite(value) & (value >= 0))
    bound, cover = least_cover(load[able], value[able], rest, exact=exact)
    out = np.concatenate([paying, able[cover]])
    beyond = bool((target[out] == BEYOND).any())
    kept = out[target[out] >= 0]
    return Relief(float(value[paying].sum()) + bound, load[kept], target[kept], beyond)


def least_cover(
    load: Float64, cost: Float64, demand: float, *, exact: bool = True
) -> tuple[float, Ints]:
    """Choose items whose loads sum up to `demand` at the least cost (costs at least 0).

    Without `exact` no integer programme is solved.

    Returns:
        (a lower bound of that cost, infinite when all items do not suffice; a cheap cover).
    """
    demand *= 1 - SAFETY
    nothing = np.empty(0, dtype=np.int64)
    if demand <= 0:
        return 0.0, nothing
    if float(load.sum()) < demand:
        return INFINITE, nothing
    counted = np.minimum(load, demand)
    order = np.lexsort((-counted, cost / np.maximum(counted, 1e-300)))
    items, price = counted[order], cost[order]
    filled, paid = np.cumsum(items), np.cumsum(price)
    last = int(np.searchsorted(filled, demand))
    last = min(last, len(items) - 1)
    before = filled[last] - items[last]
    ratio = price[last] / items[last]
    relaxed = float(paid[last] - price[last] + (demand - before) * ratio)
    best, cover = _cheap_cover(items, price, filled, paid, demand, last)
    reduced = price - ratio * items
    gap = max(best - relaxed, 0.0) * (1 + 1e-9) + 1e-15
    # So many at least, whichever these are: sharp where all cost about the same.
    fewest = int(np.searchsorted(np.cumsum(np.sort(items)[::-1]), demand)) + 1
    relaxed = max(relaxed, min(float(np.sort(price)[:fewest].sum()), best))
    inside = reduced < -gap
    open_ = np.flatnonzero(np.abs(reduced) <= gap)
    if not exact or best - relaxed <= KNAPSACK_GAP * best or not len(open_):
        return relaxed, order[cover]
    rest = demand - float(items[inside].sum())
    bound, picked = _solve(items[open_], price[open_], rest)
    bound += float(price[inside].sum())
    if picked is not None:
        cover = np.r_[np.flatnonzero(inside), open_[picked]]
    return min(max(bound, relaxed), best), order[cover]


def _cheap_cover(
    items: Float64, price: Float64, filled: Float64, paid: Float64, demand: float, last: int
) -> tuple[float, Ints]:
    """The best of: the first few items by ratio, and the cheapest one that completes them."""
    best, cover = float(paid[last]), np.arange(last + 1)
    for first in range(last + 1):
        missing = demand - (filled[first - 1] if first else 0.0)
        fits = first + np.flatnonzero(items[first:] >= missing)
        if len(fits):
            at = fits[np.argmin(price[fits])]
            total = float((paid[first - 1] if first else 0.0) + price[at])
            if total < best:
                best, cover = total, np.r_[np.arange(first), at]
    return best, cover


def _solve(items: Float64, price: Float64, rest: float) -> tuple[float, Ints | None]:
    count = len(items)
    start, row, value = by_columns(
        count, (np.zeros(count, dtype=np.int64), np.arange(count), items / rest)
    )
    scale = float(price.max(initial=0.0)) or 1.0
    model = Model(
        cost=price / scale,
        start=start,
        row=row,
        value=value,
        lower=np.array([1.0 - 1e-7]),
        upper=np.array([INFINITE]),
        integer=True,
    )
    found = solve(model, nodes=KNAPSACK_NODES, gap=KNAPSACK_GAP)
    if found.x is None:
        return 0.0, None
    return found.bound * scale, np.flatnonzero(found.x > 0.5)


def by_ratio(load: Float64, cost: Float64, demand: float) -> tuple[Ints, float]:
    """(the first few items by cost for what counts of their load, that ratio of the last of them),
    as many as cover `demand` or all; with nothing to cover none, and 0."""
    if demand <= 0 or not len(load):
        return np.empty(0, dtype=np.int64), 0.0
    counted = np.minimum(load, demand)
    ratio = cost / np.maximum(counted, 1e-300)
    order = np.lexsort((-counted, ratio))
    last = min(int(np.searchsorted(np.cumsum(counted[order]), demand)), len(order) - 1)
    return order[: last + 1], float(ratio[order[last]])
