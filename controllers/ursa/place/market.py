"""Objects that may leave and the nodes that may take them, in flat arrays for compiled loops.

`Market` says which class of plans is looked at. With ``evict`` any object may leave any node: the
exact model, (1) to (6). Without, objects leave hot nodes only and go to nodes that are not hot and
have room for them as they are: the paper's phase 1 with every choice of objects.

The compiled loops find the cheapest ways out of nodes at given prices. Their `ways` are a market's
lists: (start, length, complete, node, cost); `terms` are (price, takes, domain), all [N]. Lists
ascend by cost and prices are not negative, so that a search ends where a list's cost reaches the
best value so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads, njit
from controllers.ursa.instance import Float64, Instance, Int32, Nearest
from controllers.ursa.place.problem import Bools, Ints, ragged
from controllers.ursa.state import (
    PlanState,
    chunks_of,
    heaviest_first,
    object_load,
    objects_on,
    places,
)

NOWHERE = -1
BEYOND = -2
"""In place of a target: the nearest target is beyond the end of the list."""

WayLists = tuple[Ints, Ints, Bools, Int32, Float64]
Terms = tuple[Float64, Float64, Int32]


@njit
def _takes(load: float, j: int, taken: Int32, terms: Terms) -> bool:
    """Return True if node j may take an object of that load with siblings in domains `taken`."""
    free: bool = load <= terms[1][j]
    for column in range(len(taken)):
        free &= taken[column] != terms[2][j]
    return free


@njit
def least(
    nodes: Ints,
    first: Ints,
    end: Ints,
    load: Float64,
    taken: Int32,
    ways: WayLists,
    terms: Terms,
    limit: Float64,
    value: Float64,
    target: Int32,
) -> None:
    start, length, complete, way_node, way_cost = ways
    price = terms[0]
    at = 0
    for n in nodes:
        begin = start[n]
        stop = begin + length[n]
        beyond = np.inf
        if not complete[n]:
            beyond = way_cost[stop - 1] if stop > begin else 0.0
        for k in range(first[n], end[n]):
            best = limit[at]
            where = NOWHERE
            position = begin
            # A price is never negative, so that nothing farther than the best can be better.
            while position < stop and way_cost[position] < best:
                j = way_node[position]
                total = way_cost[position] + load[k] * price[j]
                if total < best and _takes(load[k], j, taken[k], terms):
                    best, where = total, j
                position += 1
            if position == stop and beyond < best:
                best, where = beyond, BEYOND
            value[at], target[at] = best, where
            at += 1


@njit
def best_targets(
    objects: Ints,
    node: Int32,
    load: Float64,
    taken: Int32,
    ways: WayLists,
    terms: Terms,
    limit: Float64,
    target: Int32,
    cost: Float64,
) -> None:
    start, length, _, way_node, way_cost = ways
    price = terms[0]
    count = target.shape[1]
    best = np.empty(count)
    for i in range(len(objects)):
        k = objects[i]
        best[:] = limit[i]
        for position in range(start[node[k]], start[node[k]] + length[node[k]]):
            if way_cost[position] >= best[count - 1]:
                break
            j = way_node[position]
            total = way_cost[position] + load[k] * price[j]
            if total < best[count - 1] and _takes(load[k], j, taken[k], terms):
                at = count - 1
                while at > 0 and total < best[at - 1]:
                    best[at] = best[at - 1]
                    target[i, at], cost[i, at] = target[i, at - 1], cost[i, at - 1]
                    at -= 1
                best[at], target[i, at], cost[i, at] = total, j, way_cost[position]


@njit
def within(
    objects: Ints,
    node: Int32,
    load: Float64,
    taken: Int32,
    ways: WayLists,
    terms: Terms,
    most: Float64,
    number: Ints,
    target: Int32,
    cost: Float64,
) -> None:
    """Count in number[i] the targets of object i with cost plus priced load at most most[i]; write
    them to `target` and `cost`, one object after the other, if these are not empty.
    """
    start, length, _, way_node, way_cost = ways
    write = len(target) > 0
    at = 0
    for i in range(len(objects)):
        k = objects[i]
        number[i] = 0
        for position in range(start[node[k]], start[node[k]] + length[node[k]]):
            if way_cost[position] > most[i]:
                break
            j = way_node[position]
            total = way_cost[position] + load[k] * terms[0][j]
            if total <= most[i] and _takes(load[k], j, taken[k], terms):
                number[i] += 1
                if write:
                    target[at], cost[at] = j, way_cost[position]
                    at += 1


@njit
def payments(
    objects: Ints,
    node: Int32,
    load: Float64,
    taken: Int32,
    ways: WayLists,
    terms: Terms,
    room: Float64,
    cap: Float64,
    sums: tuple[Float64, Float64, Float64, Float64],
) -> None:
    """Add up what each object would pay each node, at most cap - cost; see `_Payments`."""
    start, length, _, way_node, way_cost = ways
    earns, weight, small, small_weight = sums
    for i in range(len(objects)):
        k = objects[i]
        for position in range(start[node[k]], start[node[k]] + length[node[k]]):
            left = cap[i] - way_cost[position]
            if left <= 0:
                break
            j = way_node[position]
            full = load[k] * terms[0][j]
            if full > 0 and _takes(load[k], j, taken[k], terms):
                fits = load[k] <= room[j]
                earns[j] += min(full, left)
                if fits:
                    small[j] += min(full, left)
                if full <= left:
                    weight[j] += load[k]
                    if fits:
                        small_weight[j] += load[k]


INFINITE = float("inf")
NEAREST = 32


class Stock:
    """Objects that have a load, of the nodes asked for so far, heaviest first within each node.

    Attributes:
        first, end: [N], places of a node's objects; first is -1 until they are fetched.
        object, load, node: [K], `object` is ``partition * l + replica``.
        taken: [K, l], fault domains of the partition's other replicas, -1 in its own column;
            [K, 0] where domains are not looked at.
    """

    def __init__(self, instance: Instance, state: PlanState, *, domains: bool) -> None:
        self._instance, self._state, self._domains = instance, state, domains
        self.first = np.full(instance.nodes, -1, dtype=np.int64)
        self.end = np.full(instance.nodes, -1, dtype=np.int64)
        self.object: Ints = np.empty(0, dtype=np.int64)
        self.load: Float64 = np.empty(0)
        self.node: Int32 = np.empty(0, dtype=np.int32)
        self.taken: Int32 = np.empty((0, instance.replicas if domains else 0), dtype=np.int32)

    def fetch(self, nodes: NDArray[np.integer]) -> None:
        """Gather the missing objects of these nodes, in one pass."""
        missing = np.unique(nodes[self.first[nodes] < 0]).astype(np.int32)
        if not len(missing):
            return
        instance = self._instance
        partition, replica, slot = objects_on(instance, missing)
        load = object_load(instance, self._state, partition, replica)
        loaded = load > 0
        partition, replica = partition[loaded], replica[loaded]
        slot, load = slot[loaded], load[loaded]
        start, place = places(slot, len(missing))
        order = np.empty(len(place), dtype=np.int64)
        order[place] = np.arange(len(place))
        order = order[heaviest_first(load[order].astype(np.float32), start)]
        partition, replica = partition[order], replica[order]
        self.first[missing] = len(self.object) + start[:-1]
        self.end[missing] = len(self.object) + start[1:]
        number = partition.astype(np.int64) * instance.replicas + replica
        self.object = np.concatenate([self.object, number])
        self.load = np.concatenate([self.load, load[order]])
        self.node = np.concatenate([self.node, missing[slot[order]]])
        taken = np.empty((len(order), 0), dtype=np.int32)
        if self._domains:
            taken = instance.fault_domain[instance.replica_node[partition]]
            taken[np.arange(len(order)), replica] = -1
        self.taken = np.concatenate([self.taken, taken])

    def of(self, nodes: NDArray[np.integer]) -> Ints:
        """Return positions of the objects of `nodes` (fetched and distinct), node by node."""
        return ragged(self.first[nodes], self.end[nodes] - self.first[nodes])[1]


class Ways:
    """For each node the nearest other nodes that may take anything, as far as was asked for.

    A node's list is ``start:start + length`` of `node` and `cost`, ascending by cost; `complete`
    lists hold every such node in reach. [N] each.
    """

    def __init__(self, nearest: Nearest, nodes: int, reach: float) -> None:
        self._nearest, self._reach = nearest, reach
        self.start = np.zeros(nodes, dtype=np.int64)
        self.length = np.zeros(nodes, dtype=np.int64)
        self.complete: Bools = np.zeros(nodes, dtype=np.bool_)
        self._asked = np.zeros(nodes, dtype=np.int64)
        self.node: Int32 = np.empty(0, dtype=np.int32)
        self.cost: Float64 = np.empty(0)

    def arrays(self) -> WayLists:
        """Return the lists for the compiled loops."""
        return self.start, self.length, self.complete, self.node, self.cost

    def open(self, nodes: NDArray[np.integer]) -> None:
        """Make sure that lists have been begun."""
        fresh = np.unique(nodes[self._asked[nodes] == 0])
        self._widen(fresh, NEAREST)

    def widen(self, nodes: NDArray[np.integer]) -> None:
        """Double the lengths of the lists."""
        nodes = np.unique(nodes)
        for asked in np.unique(self._asked[nodes]):
            self._widen(nodes[self._asked[nodes] == asked], max(NEAREST, 2 * int(asked)))

    def last(self, nodes: NDArray[np.integer]) -> Float64:
        """Return the least cost of a node that the list lacks; infinite where it lacks none."""
        last = np.zeros(len(nodes))
        some = self.length[nodes] > 0
        last[some] = self.cost[(self.start + self.length - 1)[nodes[some]]]
        last[self.complete[nodes]] = INFINITE
        return last

    def first(self, nodes: NDArray[np.integer]) -> Float64:
        """Return the cost of the nearest; infinite when there is none in reach."""
        some = self.length[nodes] > 0
        cost = np.full(len(nodes), INFINITE)
        cost[some] = self.cost[self.start[nodes[some]]]
        return cost

    def _widen(self, nodes: NDArray[np.integer], length: int) -> None:
        nodes = nodes[~self.complete[nodes]]
        if not len(nodes):
            return
        found, cost = self._nearest.query(nodes.astype(np.int32), length)
        keep = (cost <= self._reach) & (found != nodes[:, None])
        whole = found.shape[1] == len(self._nearest)
        self.complete[nodes] = whole | (cost > self._reach).any(axis=1)
        self._asked[nodes] = length
        self.length[nodes] = keep.sum(axis=1)
        tops = len(self.node) + np.cumsum(self.length[nodes])
        self.start[nodes] = tops - self.length[nodes]
        self.node = np.concatenate([self.node, found[keep]])
        self.cost = np.concatenate([self.cost, cost[keep]])


@dataclass(eq=False)
class Market:
    """Instance and state after the swaps: objects that may leave, and nodes that may take them.

    Attributes:
        evict: True if objects may leave any node (the exact model), False if only hot nodes (the
            paper's phase 1). If False, a hot node takes nothing, and a node takes no object without
            room for it, and none in the present domain of another replica.
        reach: highest cost of a move.
        room, excess: [N], free capacity, negative for a hot node; load that a hot node must lose.
        takes: [N], no heavier object may come.
    """

    instance: Instance
    state: PlanState
    evict: bool
    reach: float = INFINITE
    hot: Bools = field(init=False)
    room: Float64 = field(init=False)
    excess: Float64 = field(init=False)
    takes: Float64 = field(init=False)
    stock: Stock = field(init=False)
    ways: Ways = field(init=False)

    def __post_init__(self) -> None:
        capacity = self.instance.capacity.astype(np.float64)
        self.hot = self.state.hot(self.instance)
        self.room = capacity - self.state.load
        self.excess = np.where(self.hot, -self.room, 0.0)
        self.takes = capacity if self.evict else np.where(self.hot, -1.0, self.room)
        self.stock = Stock(self.instance, self.state, domains=not self.evict)
        takers = np.flatnonzero(self.takes > 0).astype(np.int32)
        nearest = Nearest(self.instance.distance, takers)
        self.ways = Ways(nearest, self.instance.nodes, self.reach)

    def least(
        self, nodes: NDArray[np.integer], price: Float64, limit: Float64
    ) -> tuple[Float64, Int32]:
        """Return each object's cheapest exit, cost plus priced load and where, of distinct `nodes`.

        Costs from `limit` [objects] on are ignored: the value is then the limit, to NOWHERE. BEYOND
        means that the value is only a bound on nodes beyond the node's list.
        """
        which: Ints = nodes.astype(np.int64)
        self.ways.open(nodes)
        size = self.stock.end[nodes] - self.stock.first[nodes]
        begin = np.concatenate([[0], np.cumsum(size)])
        value, target = np.empty(int(begin[-1])), np.empty(int(begin[-1]), dtype=np.int32)
        stock, ways = self.stock, self.ways

        def work(chunk: int) -> None:
            part = slice(bounds[chunk], bounds[chunk + 1])
            inside = slice(begin[part.start], begin[part.stop])
            least(
                which[part],
                stock.first,
                stock.end,
                stock.load,
                stock.taken,
                ways.arrays(),
                self.terms(price),
                limit[inside],
                value[inside],
                target[inside],
            )

        chunks = chunks_of(len(value))
        bounds = np.linspace(0, len(nodes), chunks + 1).astype(np.int64)
        in_threads(work, chunks)
        return value, target

    def least_exactly(
        self, nodes: NDArray[np.integer], price: Float64, limit: Float64
    ) -> tuple[Float64, Int32]:
        """Return `least` with lists that are widened until nothing is beyond them."""
        self.ways.open(nodes)
        size = self.stock.end[nodes] - self.stock.first[nodes]
        value, target = self.least(nodes, price, limit)
        owner = np.repeat(np.arange(len(nodes)), size)
        while (short := np.unique(owner[target == BEYOND])).size:
            self.ways.widen(nodes[short])
            at = np.flatnonzero(np.isin(owner, short))
            value[at], target[at] = self.least(nodes[short], price, limit[at])
        return value, target

    def best_targets(
        self, objects: Ints, price: Float64, limit: Float64, count: int
    ) -> tuple[Ints, Int32, Float64]:
        """Return (index into `objects`, target, cost) of the `count` best targets below `limit`.

        `objects` are positions in `stock`, of nodes with open lists.
        """
        target = np.full((len(objects), count), NOWHERE, dtype=np.int32)
        cost = np.zeros((len(objects), count))
        self.look(best_targets, objects, price, limit, target, cost)
        row, column = np.nonzero(target != NOWHERE)
        return row, target[row, column], cost[row, column]

    def count_within(self, objects: Ints, price: Float64, most: Float64) -> int:
        """Return the number of moves that `within` would return."""
        self._widen_to(objects, most)
        return int(self._within(objects, price, most, 0)[0].sum())

    def within(self, objects: Ints, price: Float64, most: Float64) -> tuple[Ints, Int32, Float64]:
        """Return (index into `objects`, target, cost) of moves: cost + priced load <= `most`."""
        count = self.count_within(objects, price, most)
        number, target, cost = self._within(objects, price, most, count)
        return np.repeat(np.arange(len(objects)), number), target, cost

    def _widen_to(self, objects: Ints, most: Float64) -> None:
        """Widen the lists until they reach `most`."""
        stock, ways = self.stock, self.ways
        farthest = np.zeros(self.instance.nodes)
        np.maximum.at(farthest, stock.node[objects], most)
        nodes = np.unique(stock.node[objects]).astype(np.int64)
        ways.open(nodes)
        while len(nodes := nodes[ways.last(nodes) <= farthest[nodes]]):
            ways.widen(nodes)

    def _within(
        self, objects: Ints, price: Float64, most: Float64, count: int
    ) -> tuple[Ints, Int32, Float64]:
        """Return (targets of each object, all targets, their costs); a `count` of 0 only counts."""
        number = np.zeros(len(objects), dtype=np.int64)
        target, cost = np.empty(count, dtype=np.int32), np.empty(count)
        self.look(within, objects, price, most, number, target, cost)
        return number, target, cost

    def look(self, loop: Callable[..., None], objects: Ints, price: Float64, *rest: Any) -> None:
        """Call a compiled loop over `objects`, positions in the stock."""
        stock = self.stock
        arrays = stock.node, stock.load, stock.taken, self.ways.arrays(), self.terms(price)
        loop(objects, *arrays, *rest)

    def terms(self, price: Float64) -> Terms:
        """Return the terms for the compiled loops."""
        return price, self.takes, self.instance.fault_domain
