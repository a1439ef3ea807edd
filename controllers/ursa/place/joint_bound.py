"""A lower bound over all choices of objects, by prices on both ends of a move.

Give every node n a price mu_n >= 0 for a unit of load. Moving object i from s to j then costs its
distance plus ``load * (mu_j - mu_s)``. By Lagrangian duality no set of moves that leaves no node
hot costs less than

    sum over n of mu_n (L_n - C_n) + sum over i of min(0, min over j of that),

whatever the prices are. Out of a hot node must go at least its excess e_s, and an object counts
for no more than that: with cover prices alpha_s >= 0 on hot nodes a move costs another
``min(load, e_s) * alpha_s`` less, and the sum of ``alpha_s * e_s`` is added to the bound.

Only objects on nodes with a price count, and of these only such whose prices pay for the way to the
nearest target. The prices come from the linear relaxation of choosing and placing together, solved
by column generation from a plan that is known. `cover_bound` makes more of the same prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64
from controllers.ursa.jit import in_threads
from controllers.ursa.place.highs import INFINITE, Model, by_columns, solve
from controllers.ursa.place.market import Market
from controllers.ursa.place.moves_model import Pairs
from controllers.ursa.place.problem import Ints
from controllers.ursa.place.relaxation import batched, components, ranks
from controllers.ursa.results import Timer

ROUNDS = 60
BATCH_COLUMNS = 4000
TARGETS = 3
OBJECTS_A_NODE = 40
TOLERANCE = 1e-6
GAIN = 1e-5


@dataclass(frozen=True, eq=False)
class Prices:
    """What a unit of load is worth.

    Attributes:
        load: [N], mu: on a node, whether it comes or goes.
        cover: [N], alpha: of what leaves a hot node, up to the node's excess.
    """

    load: Float64
    cover: Float64


@dataclass(eq=False)
class Joint:
    """Where the joint relaxation stands.

    Attributes:
        price: mu and alpha.
        bound: certified.
        pairs: columns generated.
        x: [pairs], their values.
        reduced: [pairs], cost at the prices, with what the object itself is worth added: at least
            0 (up to tolerance) in the optimum.
        rounds: programmes solved.
        converged: no move of negative cost is missing, so that the bound is the relaxation's value.
    """

    price: Prices
    bound: float
    pairs: Pairs
    x: Float64
    reduced: Float64
    rounds: int = 0
    converged: bool = False


def paid(market: Market, node: NDArray[np.integer], load: Float64, price: Prices) -> Float64:
    """What the prices pay for objects of `load` that leave `node`, all [K]."""
    covered = np.minimum(load, market.excess[node])
    return np.asarray(load * price.load[node] + covered * price.cover[node])


def sources(market: Market, price: Prices) -> Ints:
    """Nodes that an object may leave and that have a price."""
    priced = (price.load > 0) | (price.cover > 0)
    return np.flatnonzero(priced if market.evict else priced & market.hot)


@dataclass(frozen=True, eq=False)
class _Offers:
    """The objects of priced nodes that could pay for a move.

    Attributes:
        at: [K], positions in the market's stock.
        paid, value: [K], what the prices pay, and the least cost plus priced load: less than paid.
    """

    at: Ints
    paid: Float64
    value: Float64


def _offers(market: Market, nodes: Ints, price: Prices) -> _Offers:
    market.stock.fetch(nodes)
    at = market.stock.of(nodes)
    pays = paid(market, market.stock.node[at], market.stock.load[at], price)
    value, _ = market.least_exactly(nodes, price.load, pays)
    good = np.flatnonzero(value < pays)
    return _Offers(at[good], pays[good], value[good])


def certify(market: Market, price: Prices) -> float:
    """The bound of the module's head, for any prices."""
    return _certified(market, price, _offers(market, sources(market, price), price))


def _certified(market: Market, price: Prices, offers: _Offers) -> float:
    fixed = -(price.load * market.room).sum() + (price.cover * market.excess).sum()
    return float(fixed + (offers.value - offers.paid).sum())


def joint_bound(market: Market, start: Pairs, timer: Timer) -> Joint:
    """Prices and bound, by column generation from the moves `start` that leave no node hot."""
    nodes = market.instance.nodes
    joint = Joint(
        Prices(np.zeros(nodes), np.zeros(nodes)),
        0.0,
        start,
        np.ones(len(start)),
        np.zeros(len(start)),
    )
    if not len(start):
        joint.converged = True
        return joint
    # What the known plan pays for a unit of load is a first guess of each hot node's price.
    guess = Prices(np.zeros(nodes), np.zeros(nodes))
    np.maximum.at(guess.load, start.source, 1.5 * start.cost / np.maximum(start.load, 1e-300))
    hot = np.flatnonzero(market.hot)
    _add(joint, _columns(market, _offers(market, hot, guess), guess, _Worth()), nodes)
    price = joint.price
    while joint.rounds < ROUNDS and timer.left() > 0:
        joint.rounds += 1
        price, worth = _solve(market, joint, price, timer)
        offers = _offers(market, sources(market, price), price)
        bound = _certified(market, price, offers)
        if bound > joint.bound:
            joint.bound, joint.price = bound, price
        value = float((joint.x * joint.pairs.cost).sum())
        new = _add(joint, _columns(market, offers, price, worth), nodes)
        joint.converged = new == 0 or value - joint.bound <= GAIN * abs(value)
        if joint.converged:
            break
    joint.reduced = reduced_costs(market, joint)
    return joint


def reduced_costs(market: Market, joint: Joint) -> Float64:
    """[pairs], what a solution with that move costs above the bound, at least."""
    pairs, price = joint.pairs, joint.price
    net = pairs.cost + pairs.load * price.load[pairs.target]
    net -= paid(market, pairs.source, pairs.load, price)
    offers = _offers(market, np.unique(pairs.source).astype(np.int64), price)
    best = _Worth(market.stock.object[offers.at], offers.paid - offers.value)
    return np.maximum(net + best.of(pairs.object), 0.0)


class _Worth:
    """A number for some objects, 0 for all others."""

    def __init__(self, objects: Ints | None = None, value: Float64 | None = None) -> None:
        objects = np.empty(0, np.int64) if objects is None else objects
        value = np.empty(0) if value is None else value
        order = np.argsort(objects, kind="stable")
        self._objects, self._value = objects[order], value[order]

    def of(self, objects: Ints) -> Float64:
        """[len(objects)]."""
        if not len(self._objects):
            return np.zeros(len(objects))
        at = np.minimum(np.searchsorted(self._objects, objects), len(self._objects) - 1)
        return np.where(self._objects[at] == objects, self._value[at], 0.0)


def _columns(market: Market, offers: _Offers, price: Prices, worth: _Worth) -> Pairs:
    """The best few moves of negative cost of the best few objects of each source."""
    stock = market.stock
    node = stock.node[offers.at]
    eps = TOLERANCE * market.ways.first(node)
    # Below this an object's cost plus priced load must be, for its move to be worth a column.
    limit = offers.paid - worth.of(stock.object[offers.at]) - eps
    gain = limit - offers.value
    good = np.flatnonzero(gain > 0)
    good = good[np.lexsort((-gain[good], node[good]))]
    good = good[ranks(node[good]) < OBJECTS_A_NODE]
    at = offers.at[good]
    row, target, cost = market.best_targets(at, price.load, limit[good], TARGETS)
    at = at[row]
    return Pairs(stock.object[at], stock.node[at], target, stock.load[at], cost)


def joined(parts: list[Pairs]) -> Pairs:
    """All of them."""
    empty = Pairs(
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        np.empty(0, np.int32),
        np.empty(0),
        np.empty(0),
    )
    names = ("object", "source", "target", "load", "cost")
    return Pairs(*(np.concatenate([getattr(p, n) for p in [empty, *parts]]) for n in names))


def _add(joint: Joint, more: Pairs, nodes: int) -> int:
    """Add the pairs that are not there yet; how many these are."""
    have = joint.pairs.object * nodes + joint.pairs.target
    new = more.where(~np.isin(more.object * nodes + more.target, have))
    joint.pairs = joined([joint.pairs, new])
    joint.x = np.concatenate([joint.x, np.zeros(len(new))])
    return len(new)


def _solve(market: Market, joint: Joint, price: Prices, timer: Timer) -> tuple[Prices, _Worth]:
    """(prices, worth of objects) of the programme over the columns there are."""
    pairs, n = joint.pairs, market.instance.nodes
    label, _ = components(pairs.source, pairs.target, n, n)
    # Nodes are on both sides: a component of sources and one of targets may share a hot node.
    label, _ = components(
        np.r_[pairs.source, pairs.target], label[np.r_[pairs.source, pairs.source]], n, 2 * n
    )
    order = np.argsort(label[pairs.source], kind="stable")
    batch = batched(label[pairs.source][order], BATCH_COLUMNS)
    pieces = [order[batch == b] for b in range(int(batch.max(initial=-1)) + 1)]
    price = Prices(price.load.copy(), price.cover.copy())
    objects: list[Ints] = [np.empty(0, np.int64)] * len(pieces)
    worths: list[Float64] = [np.empty(0)] * len(pieces)

    def work(piece: int) -> None:
        at = pieces[piece]
        part = pairs.where(at)
        nodes, place = np.unique(np.r_[part.source, part.target], return_inverse=True)
        source, target = place[: len(part)], place[len(part) :]
        objects[piece], row = np.unique(part.object, return_inverse=True)
        unit = np.zeros(len(nodes))
        np.maximum.at(unit, place, np.r_[part.load, part.load])
        index = np.arange(len(part))
        n, m = len(nodes), len(objects[piece])
        excess = market.excess[nodes]
        leaves = np.flatnonzero(excess[source] > 0)
        covers = np.minimum(part.load, excess[source])[leaves] / excess[source[leaves]]
        start, rows, value = by_columns(
            len(part),
            (source, index, -part.load / unit[source]),
            (target, index, part.load / unit[target]),
            (n + row, index, 1.0),
            (n + m + source[leaves], leaves, covers),
        )
        scale = float(part.cost.mean()) or 1.0
        found = solve(
            Model(
                cost=part.cost / scale,
                start=start,
                row=rows,
                value=value,
                lower=np.r_[np.full(n + m, -INFINITE), np.where(excess > 0, 1.0, -INFINITE)],
                upper=np.r_[market.room[nodes] / unit, np.ones(m), np.full(n, INFINITE)],
            ),
            seconds=timer.left(),
        )
        if found.x is None or found.status != "optimal":
            worths[piece] = np.zeros(m)
            return
        joint.x[at] = found.x
        price.load[nodes] = found.price[:n] * scale / unit
        price.cover[nodes] = found.price[n + m :] * scale / np.where(excess > 0, excess, INFINITE)
        worths[piece] = found.price[n : n + m] * scale

    in_threads(work, len(pieces))
    none, nothing = np.empty(0, np.int64), np.empty(0)
    return price, _Worth(np.concatenate([none, *objects]), np.concatenate([nothing, *worths]))
