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
by column generation from a plan that is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.distance import Nearest
from controllers.ursa.gather import group_by_node, objects_on
from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.jit import in_threads
from controllers.ursa.place.highs import INFINITE, Model, by_columns, solve
from controllers.ursa.place.moves_model import Pairs
from controllers.ursa.place.problem import Bools, Ints
from controllers.ursa.place.relaxation import batched, components
from controllers.ursa.results import Timer
from controllers.ursa.state import State, object_load

ROUNDS = 60
BATCH_COLUMNS = 4000
NEAREST = 32
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


@dataclass(eq=False)
class Objects:
    """The objects of one node that have a load, heaviest first.

    Attributes:
        object: [K], `partition * l + replica`.
        load: [K].
        taken: [K, l], fault domains of the partition's other replicas, -1 for its own column.
    """

    object: Ints
    load: Float64
    taken: Int32


@dataclass(eq=False)
class Market:
    """Instance and state, seen as objects that may leave and nodes that may take them.

    Attributes:
        instance, state: the problem, after the swaps.
        evict: whether objects may leave nodes that are not hot (the exact model), or only hot ones
            (the paper's phase 1). Without it a hot node takes nothing, and a node takes no object
            that it has no room for, and none beside another replica where that one is now.
        reach: no move costs more.
    """

    instance: Instance
    state: State
    evict: bool
    reach: float = INFINITE
    _objects: dict[int, Objects] = field(default_factory=dict)
    _lists: dict[int, tuple[Int32, Float64, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hot: Bools = self.state.hot(self.instance)
        capacity = self.instance.capacity.astype(np.float64)
        free = np.where(self.hot, -1.0, capacity - self.state.load)
        self.excess: Float64 = np.where(self.hot, self.state.load - capacity, 0.0)
        self.takes: Float64 = capacity if self.evict else free
        every = np.arange(self.instance.nodes, dtype=np.int32)
        self._nearest = Nearest(self.instance.distance, every)

    def fits(self, mine: Objects, nodes: Int32, who: Ints | None = None) -> Bools:
        """[objects, nodes], whether a node may take an object."""
        load = mine.load if who is None else mine.load[who]
        taken = mine.taken if who is None else mine.taken[who]
        ok: Bools = load[:, None] <= self.takes[nodes][None, :]
        if not self.evict:
            domain = self.instance.fault_domain[nodes]
            for column in range(taken.shape[1]):
                ok &= taken[:, column][:, None] != domain[None, :]
        return ok

    def near(self, node: int) -> float:
        """The cost of the nearest other node; infinite when there is none in reach."""
        _, costs, _ = self.targets(node, 0.0)
        return float(costs[0]) if len(costs) else INFINITE

    def objects(self, nodes: NDArray[np.integer]) -> list[Objects]:
        """Of each node."""
        missing = np.array([n for n in nodes if int(n) not in self._objects], dtype=np.int32)
        if len(missing):
            partition, replica, slot = objects_on(self.instance, missing)
            load = object_load(self.instance, self.state, partition, replica)
            start, order = group_by_node(slot, len(missing))
            for index, node in enumerate(missing):
                mine = order[start[index] : start[index + 1]]
                mine = mine[load[mine] > 0]
                mine = mine[np.argsort(-load[mine], kind="stable")]
                domains = self.instance.fault_domain[self.instance.replica_node[partition[mine]]]
                domains[np.arange(len(mine)), replica[mine]] = -1
                number = partition[mine].astype(np.int64) * self.instance.replicas + replica[mine]
                self._objects[int(node)] = Objects(number, load[mine], domains)
        return [self._objects[int(node)] for node in nodes]

    def targets(self, node: int, farther_than: float) -> tuple[Int32, Float64, bool]:
        """(nodes, costs, whether these are all), reaching beyond the given cost."""
        length = NEAREST
        while True:
            have = self._lists.get(node)
            if have is not None:
                nodes, costs, complete = have
                if complete or costs[-1] > farther_than:
                    return have
                length = 2 * len(nodes)
            found, cost = self._nearest.query(np.array([node], dtype=np.int32), length)
            complete = found.shape[1] < length or found.shape[1] == self.instance.nodes
            keep = (cost[0] <= self.reach) & (found[0] != node)
            complete |= bool(cost[0, -1] > self.reach)
            # One that finds only itself still has to look farther.
            if keep.any() or complete:
                self._lists[node] = (found[0][keep], cost[0][keep], complete)
            else:
                length *= 2

    def paid(self, node: NDArray[np.integer] | int, load: Float64, price: Prices) -> Float64:
        """What the prices pay for an object of `load` that leaves `node`."""
        covered = np.minimum(load, self.excess[node])
        return np.asarray(load * price.load[node] + covered * price.cover[node])

    def sources(self, price: Prices) -> Ints:
        """Nodes that an object may leave and that have a price."""
        priced = (price.load > 0) | (price.cover > 0)
        return np.flatnonzero(priced if self.evict else priced & self.hot)

    def net(self, node: int, mine: Objects, price: Prices) -> tuple[Ints, Int32, Float64, Float64]:
        """(objects, targets, costs, [objects, targets] net cost) of those that could pay."""
        paid = self.paid(node, mine.load, price)
        nodes, costs, _ = self.targets(node, float(paid.max(initial=0.0)))
        who = np.flatnonzero(paid > costs.min(initial=INFINITE))
        load = mine.load[who]
        net = costs[None, :] + load[:, None] * price.load[nodes][None, :] - paid[who][:, None]
        net[~self.fits(mine, nodes, who)] = INFINITE
        return who, nodes, costs, net


def certify(market: Market, price: Prices) -> float:
    """The bound of the module's head, for any prices."""
    over = market.state.load - market.instance.capacity.astype(np.float64)
    total = float((price.load * over).sum() + (price.cover * market.excess).sum())
    sources = market.sources(price)
    for node, mine in zip(sources, market.objects(sources), strict=True):
        *_, net = market.net(int(node), mine, price)
        if net.size:
            total += float(np.minimum(net.min(axis=1), 0.0).sum())
    return total


def joint_bound(market: Market, start: Pairs, timer: Timer) -> Joint:
    """Prices and bound, by column generation from the moves `start` that leave no node hot."""
    instance = market.instance
    hot = np.flatnonzero(market.hot)
    nothing = Prices(np.zeros(instance.nodes), np.zeros(instance.nodes))
    joint = Joint(nothing, 0.0, start, np.ones(len(start)), np.zeros(len(start)))
    if not len(start):
        joint.converged = True
        return joint
    # What the known plan pays for a unit of load is a first guess of each hot node's price.
    guess = Prices(np.zeros(instance.nodes), np.zeros(instance.nodes))
    np.maximum.at(guess.load, start.source, 1.5 * start.cost / np.maximum(start.load, 1e-300))
    _add(joint, _columns(market, hot, guess, _Worth()), instance.nodes)
    price = joint.price
    while joint.rounds < ROUNDS and timer.left() > 0:
        joint.rounds += 1
        price, worth = _solve(market, joint, price, timer)
        bound = certify(market, price)
        if bound > joint.bound:
            joint.bound, joint.price = bound, price
        value = float((joint.x * joint.pairs.cost).sum())
        more = _columns(market, market.sources(price), price, worth)
        new = _add(joint, more, instance.nodes)
        joint.converged = new == 0 or value - joint.bound <= GAIN * abs(value)
        if joint.converged:
            break
    joint.reduced = reduced_costs(market, joint)
    return joint


def reduced_costs(market: Market, joint: Joint) -> Float64:
    """[pairs], what a solution with that move costs above the bound, at least."""
    pairs, price = joint.pairs, joint.price
    net = pairs.cost + pairs.load * price.load[pairs.target]
    net -= market.paid(pairs.source, pairs.load, price)
    sources = np.unique(pairs.source)
    found, least = [np.empty(0, np.int64)], [np.empty(0)]
    for node, mine in zip(sources, market.objects(sources), strict=True):
        who, _, _, nets = market.net(int(node), mine, price)
        if nets.size:
            found.append(mine.object[who])
            least.append(np.minimum(nets.min(axis=1), 0.0))
    best = _Worth(np.concatenate(found), -np.concatenate(least))
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


def _columns(market: Market, sources: NDArray[np.integer], price: Prices, worth: _Worth) -> Pairs:
    """The best few moves of negative cost of the best few objects of each source."""
    parts = []
    for node, mine in zip(sources, market.objects(sources), strict=True):
        who, nodes, costs, net = market.net(int(node), mine, price)
        if not net.size:
            continue
        net = net + worth.of(mine.object[who])[:, None]
        least = net.min(axis=1)
        good = np.flatnonzero(least < -TOLERANCE * costs[0])
        good = good[np.argsort(least[good], kind="stable")][:OBJECTS_A_NODE]
        few = np.argsort(net[good], axis=1, kind="stable")[:, :TARGETS]
        row, at = np.repeat(good, few.shape[1]), few.ravel()
        ok = net[row, at] < -TOLERANCE * costs[0]
        row, at = row[ok], at[ok]
        source = np.full(len(row), node, dtype=np.int32)
        loads = mine.load[who[row]]
        parts.append(Pairs(mine.object[who[row]], source, nodes[at], loads, costs[at]))
    return joined(parts)


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
        room = market.instance.capacity[nodes].astype(np.float64) - market.state.load[nodes]
        scale = float(part.cost.mean()) or 1.0
        found = solve(
            Model(
                cost=part.cost / scale,
                start=start,
                row=rows,
                value=value,
                lower=np.r_[np.full(n + m, -INFINITE), np.where(excess > 0, 1.0, -INFINITE)],
                upper=np.r_[room / unit, np.ones(m), np.full(n, INFINITE)],
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
