"""A sharper bound over all choices of objects that leave hot nodes for nodes that are not hot.

Only the room of the targets is relaxed, by prices lambda >= 0. What is left falls apart into one
minimum knapsack for each hot node: the cheapest set of its objects that covers its excess, an
object costing the least ``cost + load * lambda`` over the targets that it may go to. Objects stay
whole in it, so that nothing is lost on the side of the hot nodes. The prices are improved by a few
steps along the subgradient: what the knapsacks put on a node beyond its room.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import Float64
from controllers.ursa.place.highs import INFINITE, Model, by_columns, solve
from controllers.ursa.place.joint_bound import Market
from controllers.ursa.place.problem import Ints
from controllers.ursa.results import Timer

STEPS = 6
KNAPSACK_NODES = 200
KNAPSACK_GAP = 1e-4
SAFETY = 1e-12


def cover_bound(market: Market, price: Float64, cost: float, timer: Timer) -> float:
    """The best of the bounds at the prices of STEPS steps.

    Args:
        market: without eviction.
        price: [N], where the steps begin.
        cost: of a plan that is known.
        timer: when no time is left, the best so far.
    """
    best = 0.0
    price = np.where(market.hot, 0.0, price)
    room = np.maximum(market.takes, 0.0)
    hot = np.flatnonzero(market.hot)
    for step in range(STEPS):
        total, used = 0.0, np.zeros(market.instance.nodes)
        for node in hot:
            if timer.left() <= 0:
                return min(best, cost)
            total += _relieve(market, int(node), price, used)
        bound = total - float((price * room).sum())
        best = max(best, bound)
        over = np.where((used > room) | (price > 0), used - room, 0.0)
        norm = float((over**2).sum())
        if norm == 0 or timer.left() <= 0 or not np.isfinite(bound):
            break
        length = max(cost - bound, 0.0) / norm / (1 + step / 4)
        price = np.maximum(price + length * over, 0.0)
    return min(best, cost)


def _relieve(market: Market, node: int, price: Float64, used: Float64) -> float:
    """A lower bound of what it costs to make `node` cold; adds to `used` where its objects go."""
    (mine,) = market.objects(np.array([node], dtype=np.int32))
    demand = float(market.excess[node])
    reach = 4 * market.near(node)
    while True:
        # Beyond the list every target costs at least as much as its end: still a bound.
        nodes, costs, complete = market.targets(node, reach)
        end = INFINITE if complete or not len(costs) else float(costs[-1])
        net = costs[None, :] + mine.load[:, None] * price[nodes][None, :]
        net[~market.fits(mine, nodes)] = INFINITE
        inside = net.min(axis=1, initial=INFINITE)
        least = np.minimum(inside, end)
        able = np.flatnonzero(np.isfinite(least))
        bound, taken = least_cover(mine.load[able], least[able], demand)
        chosen = able[taken]
        beyond = inside[chosen] > end
        if not beyond.any():
            break
        reach = 2 * end
    if len(chosen):
        np.add.at(used, nodes[net[chosen].argmin(axis=1)], mine.load[chosen])
    return bound


def least_cover(load: Float64, cost: Float64, demand: float) -> tuple[float, Ints]:
    """Choose items whose loads sum up to `demand` at the least cost (costs at least 0).

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
    inside = reduced < -gap
    open_ = np.flatnonzero(np.abs(reduced) <= gap)
    if best - relaxed <= 1e-9 * best or not len(open_):
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
