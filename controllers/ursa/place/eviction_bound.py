"""The bound over all plans, sharper where objects make room on a node by leaving it.

`cover_bound` sells room on a full node n by the unit of load: an object on it that is heavier than
all that would come pays for its way with the part that is used. And a hot node that sells room, to
keep others away, may be relieved in parts. Here what may come is looked at object by object. Object
i pays node n at most pi_in = min(lambda_n load_i, cap_i - distance) for being let in, where cap_i
is what i costs elsewhere or, when i stays in any case, what it would take to change that. The least
cost of i at these payments is no less than min(c_i, cap_i), with c_i as in `cover_bound`. What n
can earn is limited to P_n, the sum of what all would pay, and to p_n, that of objects which it has
room R_n for as it is, as long as nothing leaves it. For any prices and caps, no plan costs less
than the sum over hot nodes of the greater of

    the cheapest cover at costs min(c, cap), less P_n,
    the cheapest cover at these costs less lambda_n load, and lambda_n times the excess,

less the sum over other nodes of V_n, the greater of

    min(lambda_n R_n, max(p_n, P_n - d)), d being the distance of the nearest node,
    min(lambda_n R_n + all gains, P_n - least c_k), k being the objects whose leaving gains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place import pricing
from controllers.ursa.place.cover_bound import (
    ENOUGH,
    Cover,
    Relief,
    by_ratio,
    reliefs,
    relieve_each,
)
from controllers.ursa.place.highs import INFINITE
from controllers.ursa.place.market import Market
from controllers.ursa.place.problem import Ints
from controllers.ursa.results import Timer

STEPS = 30
PATIENCE = 6
FIRST_STEP, MOST_STEP = 0.3, 1.0
"""Of the logarithm of a price."""


def eviction_bound(market: Market, begin: Cover, cost: float, timer: Timer) -> Cover:
    """The better of `begin` and the bounds of this module at the prices of some steps from it.

    A price rises by a factor where more comes than was sold and falls where less does; the factor
    of a node grows as long as its price goes one way, and shrinks when that turns.

    Args:
        market: with eviction.
        begin: from `cover_bound.covered`.
        cost: of a plan that is known.
        timer: when no time is left, the best so far.
    """
    best, price = begin, _deterring(market, begin.price)
    if timer.left() > 0:
        # Where nothing is scarce but ways, other nodes' prices only do harm.
        free = _deterring(market, np.zeros(len(price)))
        best = max(best, Cover(evaluate_whole(market, free)[0], free), key=lambda c: c.bound)
    step = np.full(len(price), FIRST_STEP)
    way = np.zeros(len(price))
    quiet = 0
    for _ in range(STEPS):
        if timer.left() <= 0 or quiet > PATIENCE or best.bound >= cost * (1 - ENOUGH):
            break
        bound, over = evaluate_whole(market, price)
        quiet += 1
        if bound > best.bound:
            best, quiet = Cover(bound, price), 0
        now = np.where(price > 0, np.sign(over), 0.0)
        step *= np.where(now * way > 0, 1.2, np.where(now * way < 0, 0.5, 1.0))
        step, way = np.minimum(step, MOST_STEP), now
        price = price * np.exp(now * step)
    return Cover(min(best.bound, cost), best.price)


def _deterring(market: Market, price: Float64) -> Float64:
    """Prices at which it costs as much to enter a hot node as it costs that to lose as much."""
    objects = _hot_objects(market, price)
    return np.maximum(price, np.bincount(objects.hot, objects.ratio, len(price)))


@dataclass(frozen=True, eq=False)
class _HotObjects:
    """Hot nodes and what could leave them at given prices.

    Attributes:
        hot, ratio: [H], the nodes, and the cost of a unit of load that leaves.
        load, cap, target: of all their objects, node by node.
    """

    hot: Ints
    ratio: Float64
    load: Float64
    cap: Float64
    target: Int32


def evaluate_whole(market: Market, price: Float64) -> tuple[float, Float64]:
    """(the bound at `price`, [N] what comes beyond the room that was sold).

    The second is 0 where a price has no effect.
    """
    nodes = market.instance.nodes
    givers = np.flatnonzero(~market.hot & (price > 0))
    market.stock.fetch(givers)
    ours = _hot_objects(market, price)
    at = market.stock.of(givers)
    load, node = market.stock.load[at], market.stock.node[at]
    sells = load * price[node]
    value, target = market.least_exactly(givers, price, sells)
    pays = _Payments(market, price, np.r_[market.stock.of(ours.hot), at], np.r_[ours.cap, value])

    total, come, sold = 0.0, np.zeros(nodes), np.zeros(nodes)
    relief = relieve_each(market, ours.hot, ours.load, ours.cap, ours.target)
    for source, each in zip(ours.hot, _best(market, ours, price, pays.all, relief), strict=True):
        total += each.bound
        sold[source] = each.load.sum() - market.excess[source]
        np.add.at(come, each.target, each.load)
    if total == INFINITE:
        return INFINITE, np.zeros(nodes)

    worth = np.flatnonzero(value < sells)
    gain = np.bincount(node[worth], (sells - value)[worth], nodes)
    least = np.full(nodes, INFINITE)
    np.minimum.at(least, node[worth], value[worth])
    room = price * market.room
    market.ways.open(givers)
    near = np.zeros(nodes)
    near[givers] = market.ways.first(givers)
    closed = np.minimum(room, np.maximum(pays.small, pays.all - near))
    opened = np.minimum(pays.all - least, room + gain)
    leaves = opened > closed
    total -= float(np.where(leaves, opened, closed)[givers].sum())
    fully = leaves & (room + gain <= pays.all - least)  # all that can be sold is
    sold[givers] = np.where(
        leaves, pays.load, np.where(room <= closed, market.room, pays.small_load)
    )[givers]
    sold = np.where(fully, market.room, sold)
    out = worth[leaves[node[worth]]]
    sold += np.bincount(node[out], np.where(fully[node[out]], load[out], 0.0), nodes)
    out = out[(value[out] == least[node[out]]) | fully[node[out]]]
    come += np.bincount(target[out], load[out], nodes)
    return total, np.where(market.hot & (pays.all <= 0), 0.0, come - sold)


def _best(
    market: Market, ours: _HotObjects, price: Float64, earns: Float64, relief: list[Relief]
) -> list[Relief]:
    """The better of two bounds for each hot node, where others would come to it.

    Either it earns all that they would pay, or it sells all room that it gains by the unit.
    """
    bounds = np.array([each.bound for each in relief]) - earns[ours.hot]
    size = market.stock.end[ours.hot] - market.stock.first[ours.hot]
    source = np.repeat(ours.hot, size)
    by_unit = relieve_each(
        market, ours.hot, ours.load, ours.cap - ours.load * price[source], ours.target, exact=False
    )
    found = []
    for i, node in enumerate(ours.hot):
        other = by_unit[i].bound + float(price[node] * market.excess[node])
        first = bounds[i] >= other or earns[node] <= 0
        found.append(replace(relief[i] if first else by_unit[i], bound=max(bounds[i], other)))
    return found


def _hot_objects(market: Market, price: Float64) -> _HotObjects:
    """An object that is in no cheap cover pays nobody more than it would take to bring it there."""
    hot = np.flatnonzero(market.hot)
    nothing = np.where(market.hot, 0.0, price)
    reliefs(market, nothing, exact=False)  # lists are then as long as covers need them
    at = market.stock.of(hot)
    size = market.stock.end[hot] - market.stock.first[hot]
    end = np.cumsum(size)
    load = market.stock.load[at]
    value, target = market.least(hot, price, np.full(len(at), INFINITE))
    threshold = np.repeat(market.ways.first(hot), size)
    chosen = np.zeros(len(at), dtype=np.bool_)
    ratios = np.zeros(len(hot))
    for i, node in enumerate(hot):
        mine = slice(int(end[i] - size[i]), int(end[i]))
        able = np.flatnonzero(np.isfinite(value[mine]))
        excess = float(market.excess[node])
        taken, ratios[i] = by_ratio(load[mine][able], value[mine][able], excess)
        brought = ratios[i] * np.minimum(load[mine], excess)
        threshold[mine] = np.maximum(threshold[mine], brought)
        chosen[mine][able[taken]] = True
    stays = ~chosen & np.isfinite(value)
    return _HotObjects(
        hot, ratios, load, np.where(stays, np.minimum(value, threshold), value), target
    )


class _Payments:
    """What objects together would pay to be let in.

    Attributes:
        all, load: [N], the sum for each node, and the load of those that would pay its price in
            full.
        small, small_load: [N], the same of objects that a node has room for as it is.
    """

    def __init__(self, market: Market, price: Float64, objects: Ints, cap: Float64) -> None:
        stock, ways = market.stock, market.ways
        some = np.flatnonzero(np.isfinite(cap) & (cap > ways.first(stock.node[objects])))
        self.all, self.load, self.small, self.small_load = np.zeros((4, market.instance.nodes))
        pricing.payments(
            objects[some],
            stock.node,
            stock.load,
            stock.taken,
            ways.arrays(),
            market.terms(price),
            market.room,
            cap[some],
            (self.all, self.load, self.small, self.small_load),
        )
