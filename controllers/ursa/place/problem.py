"""The placement of a given selection as a generalised assignment problem: equations (7) to (13).

Loads cannot be split and a move costs the same whatever the object's load is, so this is not a
transportation problem. An object that has been selected leaves its node: it is not offered that
node again, and the node's room counts it as gone, as the second term of (8) does.

`Lists` holds candidate targets in order of distance, for many objects at once and as many as are
asked for. R(i, r) of equations (9) and (10) is a prefix of a list. At the end are the compiled
loops of placement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controllers.jit import njit
from controllers.ursa.instance import (
    UNPLACED,
    Distance,
    Float64,
    Instance,
    Int32,
    Nearest,
    Selection,
    between,
)
from controllers.ursa.state import PlanState

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class ProblemArrays(NamedTuple):
    """A problem's arrays as the compiled loops take them; see `PlacementProblem`."""

    weight: Float64
    source: Int32
    room: Float64
    domain: Int32
    taken: Int32
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Nodes that each of M objects may go to, and the room of every node.

    Attributes:
        weight: [M], load of the object, L_i.
        source: [M], node that it leaves.
        sender: [M], node from which it is copied: the cost of a move counts from there.
        partition: [M].
        room: [N], C_j - L_*j + the load that has been selected to leave j; negative where a node
            stays hot whatever leaves.
        domain: [N], fault domain.
        taken: [M, l], domains of the partition's other replicas where they are now, -1 in the
            object's own column: I_iq of (12). The object's own domain is open to it.
        sibling: [M], objects ordered by partition; those of object i's partition, itself among
            them, are ``sibling[sibling_first[i]:sibling_end[i]]``: G_p of (11).
        sibling_first, sibling_end: [M].
        distance: cost of a move.
        reach: no move costs more; infinite without a limit.
    """

    weight: Float64
    source: Int32
    sender: Int32
    partition: Int32
    room: Float64
    domain: Int32
    taken: Int32
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32
    distance: Distance
    reach: float

    def __len__(self) -> int:
        return len(self.weight)

    contend_for_all: ClassVar[bool] = False
    """Objects without a place contend for every node of their lists, not only for nearer ones."""

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.room)

    def layout(self) -> ProblemArrays:
        """Return the layout for compiled loops."""
        return ProblemArrays(*(getattr(self, name) for name in ProblemArrays._fields))

    def allowed(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Bools:
        """Return True where an object fits on the node at its position, if all others were away."""
        ok: Bools = self.weight[objects] <= self.room[nodes]
        ok &= self.source[objects] != nodes
        domain = self.domain[nodes]
        for column in range(self.taken.shape[1]):
            ok &= self.taken[objects, column] != domain
        return ok

    def cost(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Float64:
        """Return [objects], cost of moving each object to the node at the same position."""
        return self.whole(objects, between(self.distance, self.sender[objects], nodes))

    def whole(self, objects: NDArray[np.integer], cost: Float64) -> Float64:
        """Return [objects], cost of moving them where one partition costs `cost`."""
        del objects
        return cost

    def toll(
        self, objects: NDArray[np.integer], nodes: NDArray[np.integer], price: Float64
    ) -> Float64:
        """Return [objects], cost of each object's load on its node, by prices [N]."""
        return np.asarray(self.weight[objects] * price[nodes])

    def rent(self, price: Float64) -> float:
        """Return cost of all room that has a price."""
        priced = np.flatnonzero(price > 0)
        return float((price[priced] * self.room[priced]).sum())

    def limit(self) -> Float64:
        """Return [N], or [N, D] with loads of several dimensions, room on the nodes."""
        return self.room

    def heaviness(self) -> Float64:
        """Return [M], by which objects are ordered."""
        return self.weight

    def loads_of(self, objects: NDArray[np.integer]) -> Float64:
        """Return [D, objects], loads by dimension."""
        return np.asarray(self.weight[objects][None])

    def fit_in_order(
        self, order: Ints, lists: Lists, length: Ints, move_to: Int32, used: Float64
    ) -> None:
        """Put objects on the first node with room among `length` of their list; see kernels."""
        start = lists.start[lists.group[order]]
        fit_in_order(order, start, length, lists.node, self.layout(), move_to, used)

    def meet(self, a: Ints, b: Ints, to_a: NDArray[np.integer], to_b: Int32) -> Bools:
        """Return True where objects a and b of one partition meet on nodes `to_a` and `to_b`."""
        del a, b
        return np.asarray(self.domain[to_a] == self.domain[to_b])

    def meeting(self, objects: Ints, row: Ints, target: Int32) -> tuple[Ints, Ints]:
        """Return (row, column) entries of (11): partitions with several objects for one domain.

        Args:
            objects: [m].
            row, target: [pairs], the place in `objects`, and the node.
        """
        _, inverse, count = np.unique(
            self.partition[objects], return_inverse=True, return_counts=True
        )
        column = np.flatnonzero(count[inverse[row]] > 1)
        if not len(column):
            return column, column
        domains = int(self.domain.max(initial=0)) + 1
        key = inverse[row[column]].astype(np.int64) * domains + self.domain[target[column]]
        _, extra = np.unique(key, return_inverse=True)
        return extra.astype(np.int64), column

    def load_of(self, move_to: Int32) -> Float64:
        """Return [N], or [N, D], the load that `move_to` puts on each node."""
        placed = move_to != UNPLACED
        load = np.bincount(move_to[placed], self.weight[placed], minlength=self.nodes)
        return load.astype(np.float64, copy=False)

    def crowded(self, move_to: Int32) -> Bools:
        """Return [N], nodes that `move_to` puts more on than they have room for."""
        used = self.load_of(move_to)
        return (used > 0) & (used > self.room)

    def without(self, used: Float64) -> PlacementProblem:
        """Return the same objects with less room on the nodes, as much less as `used`."""
        return replace(self, room=self.room - used)


def assignment_problem(
    instance: Instance, state: PlanState, selection: Selection, max_move_cost: float | None
) -> PlacementProblem:
    """Return the problem of placing `selection`; `state` still counts its objects in place."""
    leaving = np.bincount(selection.node, selection.load, minlength=instance.nodes)
    taken = instance.fault_domain[instance.replica_node[selection.partition]]
    taken[np.arange(len(selection)), selection.replica] = -1
    sibling, first, end = _siblings(selection.partition)
    return PlacementProblem(
        weight=selection.load.astype(np.float64),
        source=selection.node,
        sender=instance.sender(selection.partition, selection.replica),
        partition=selection.partition,
        room=instance.capacity.astype(np.float64) - (state.load - leaving),
        domain=instance.fault_domain,
        taken=taken,
        sibling=sibling,
        sibling_first=first,
        sibling_end=end,
        distance=instance.distance,
        reach=np.inf if max_move_cost is None else float(max_move_cost),
    )


def subproblem(problem: PlacementProblem, keep: Bools) -> PlacementProblem:
    """Return the problem of the objects in `keep`; the others are gone, not back in place."""
    sibling, first, end = _siblings(problem.partition[keep])
    return replace(
        problem,
        weight=problem.weight[keep],
        source=problem.source[keep],
        sender=problem.sender[keep],
        partition=problem.partition[keep],
        taken=problem.taken[keep],
        sibling=sibling,
        sibling_first=first,
        sibling_end=end,
    )


def _siblings(partition: Int32) -> tuple[Int32, Int32, Int32]:
    order = np.argsort(partition, kind="stable").astype(np.int32)
    ordered = partition[order]
    first = np.searchsorted(ordered, partition, side="left").astype(np.int32)
    end = np.searchsorted(ordered, partition, side="right").astype(np.int32)
    return order, first, end


def ragged(start: NDArray[np.integer], length: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return (owner, position) of every element of the runs ``start[i] : start[i] + length[i]``."""
    lengths = length.astype(np.int64)
    owner = np.repeat(np.arange(len(start), dtype=np.int64), lengths)
    before = np.cumsum(lengths) - lengths
    position = np.arange(len(owner), dtype=np.int64) + (start.astype(np.int64) - before)[owner]
    return owner, position


FIRST_LIST = 8
MOST_ALIKE = 0.75


class Lists:
    """Lists of candidates, widened on demand.

    Attributes:
        group: [M], the list of each object.
        start, length: [G], place of each list in `node` and `cost`.
        complete: [G], the list holds every node in reach that has room.
        node, cost: candidates and the cost of a move there, ascending within a list.
    """

    def __init__(
        self, problem: PlacementProblem, objects: NDArray[np.integer] | None = None
    ) -> None:
        """Begin with empty lists for `objects` (by default all of the problem's)."""
        self._problem = problem
        chosen = np.arange(len(problem)) if objects is None else np.asarray(objects)
        alike = _alike(_octaves(problem.weight[chosen]), problem.room)
        self._octaves, rank = np.unique(alike, return_inverse=True)
        key = problem.sender[chosen].astype(np.int64) * max(1, len(self._octaves)) + rank
        keys, group = np.unique(key, return_inverse=True)
        self.group = np.full(len(problem), -1, dtype=np.int64)
        self.group[chosen] = group
        self._source = (keys // max(1, len(self._octaves))).astype(np.int32)
        self._octave = (keys % max(1, len(self._octaves))).astype(np.int64)
        self.start = np.zeros(len(keys), dtype=np.int64)
        self.length = np.zeros(len(keys), dtype=np.int64)
        self.complete = np.zeros(len(keys), dtype=np.bool_)
        self.node: Int32 = np.zeros(0, dtype=np.int32)
        self.cost: Float64 = np.zeros(0)
        self._search: dict[int, Nearest] = {}

    def __len__(self) -> int:
        return len(self.start)

    def last(self) -> Float64:
        """Return [G], the least cost of a node that a list lacks (infinite if complete)."""
        last = np.zeros(len(self))
        filled = self.length > 0
        last[filled] = self.cost[self.start[filled] + self.length[filled] - 1]
        last[self.complete] = np.inf
        return last

    def beyond(self, objects: Ints) -> Float64:
        """Return [objects], least cost of a node that the object's list lacks."""
        return self._problem.whole(objects, self.last()[self.group[objects]])

    def widen(self, groups: NDArray[np.integer], length: int) -> None:
        """Make the lists of `groups` hold the `length` nearest nodes, or all there are."""
        groups = groups[~self.complete[groups] & (self.length[groups] < length)]
        nodes, costs, tops = [self.node], [self.cost], len(self.node)
        for octave in np.unique(self._octave[groups]):
            mine = groups[self._octave[groups] == octave]
            searcher = self._searcher(int(octave))
            node, cost = searcher.query(self._source[mine], length)
            whole = node.shape[1] == len(searcher)
            in_reach = cost <= self._problem.reach
            lengths = in_reach.sum(axis=1)
            self.complete[mine] = whole | (lengths < node.shape[1])
            self.length[mine] = lengths
            self.start[mine] = tops + np.cumsum(lengths) - lengths
            nodes.append(node[in_reach])
            costs.append(cost[in_reach])
            tops += int(lengths.sum())
        self.node = np.concatenate(nodes).astype(np.int32)
        self.cost = np.concatenate(costs)

    def candidates(
        self, objects: NDArray[np.integer], farthest: Float64 | None = None
    ) -> tuple[Ints, Int32, Float64]:
        """Return (object, node, cost) of each allowed pair in the lists, by object, then ascending.

        With `farthest` [G], of one partition, only pairs that cost at most that.
        """
        groups = self.group[objects]
        length = self.length if farthest is None else self._within(farthest)
        owner, position = ragged(self.start[groups], length[groups])
        found = np.asarray(objects, dtype=np.int64)[owner]
        nodes = self.node[position]
        ok = self._problem.allowed(found, nodes)
        found = found[ok]
        return found, nodes[ok], self._problem.whole(found, self.cost[position[ok]])

    def _within(self, farthest: Float64) -> Ints:
        """Return [G], number of each list's nodes that cost at most `farthest`."""
        group, position = ragged(self.start, self.length)
        near = self.cost[position] <= farthest[group]
        return np.bincount(group[near], minlength=len(self))

    def _searcher(self, octave: int) -> Nearest:
        if octave not in self._search:
            least = _least_of_octave(self._octaves[octave])
            nodes = np.flatnonzero((self._problem.room >= least) & (self._problem.room >= 0))
            self._search[octave] = Nearest(self._problem.distance, nodes.astype(np.int32))
        return self._search[octave]


def nearest_fit(
    problem: PlacementProblem, lists: Lists, objects: NDArray[np.integer]
) -> tuple[Int32, Float64]:
    """Return the nearest allowed node of each of `objects` and its cost, or (-1, infinite).

    Lists are widened until each object has found a node or its list is complete.
    """
    node = np.full(len(objects), -1, dtype=np.int32)
    cost = np.full(len(objects), np.inf)
    pending = np.arange(len(objects))
    length = FIRST_LIST
    while len(pending):
        groups = lists.group[objects[pending]]
        lists.widen(np.unique(groups), length)
        owner, position = ragged(lists.start[groups], lists.length[groups])
        nodes = lists.node[position]
        ok = np.flatnonzero(problem.allowed(objects[pending][owner], nodes))
        found, first = np.unique(owner[ok], return_index=True)
        node[pending[found]] = nodes[ok[first]]
        cost[pending[found]] = lists.cost[position[ok[first]]]
        missing = np.ones(len(pending), dtype=np.bool_)
        missing[found] = False
        pending = pending[missing & ~lists.complete[groups]]
        length *= 4
    return node, problem.whole(objects, cost)


def _octaves(weight: Float64) -> Ints:
    """Return the e with 2**e <= weight < 2**(e + 1); very low for a load of zero."""
    exponent = np.frexp(weight)[1].astype(np.int64) - 1
    exponent[weight <= 0] = -2000
    return exponent


def _alike(octave: Ints, room: Float64) -> Ints:
    """Return, for each octave, the lowest below it that at most a third more nodes can take."""
    octaves, inverse = np.unique(octave, return_inverse=True)
    ordered = np.sort(room)
    stands_for, count, lowest = octaves.copy(), np.inf, 0
    for at, this in enumerate(octaves):
        enough = len(room) - int(np.searchsorted(ordered, _least_of_octave(this)))
        if at == 0 or enough < MOST_ALIKE * count:
            lowest, count = this, enough
        stands_for[at] = lowest
    return stands_for[inverse]


def _least_of_octave(octave: int) -> float:
    return 0.0 if octave <= -2000 else float(np.ldexp(1.0, int(octave)))


class Targets(NamedTuple):
    """Targets of each object, the cheapest first: see `rounding.Choices`."""

    first: Ints
    end: Ints
    node: Int32
    cost: Float64


@njit
def apart(
    i: int,
    domain: int,
    layout: ProblemArrays,
    move_to: Int32,
) -> bool:
    """Return True if `domain` has no other replica of object i's partition, old or new: (11), (12).

    `move_to` is [M], the targets decided so far.
    """
    for column in range(layout.taken.shape[1]):
        if layout.taken[i, column] == domain:
            return False
    for at in range(layout.sibling_first[i], layout.sibling_end[i]):
        other = layout.sibling[at]
        if other != i and move_to[other] >= 0 and layout.domain[move_to[other]] == domain:
            return False
    return True


@njit
def fit_in_order(
    order: Ints,
    start: Ints,
    length: Ints,
    list_node: Int32,
    layout: ProblemArrays,
    move_to: Int32,
    used: Float64,
) -> None:
    """Put objects in `order` on the first listed node with room; `move_to`, `used` change."""
    for at in range(len(order)):
        i = order[at]
        w = layout.weight[i]
        for position in range(start[at], start[at] + length[at]):
            j = list_node[position]
            if j == layout.source[i] or used[j] + w > layout.room[j]:
                continue
            if apart(i, layout.domain[j], layout, move_to):
                move_to[i] = j
                used[j] += w
                break


@njit
def in_score_order(
    owner: Ints,
    node: Ints,
    layout: ProblemArrays,
    move_to: Int32,
    used: Float64,
) -> None:
    """Put each owner on its node, pair by pair, if the owner is unplaced and the node has room."""
    for at in range(len(owner)):
        i, j = owner[at], node[at]
        w = layout.weight[i]
        if move_to[i] >= 0 or used[j] + w > layout.room[j]:
            continue
        if apart(i, layout.domain[j], layout, move_to):
            move_to[i] = j
            used[j] += w


@njit
def link(move_to: Int32, listed: Bools, head: Ints, follow: Ints) -> None:
    """Link the objects on each node into ascending lists, if `listed` holds."""
    for i in range(len(move_to) - 1, -1, -1):
        if listed[i] and move_to[i] >= 0:
            follow[i] = head[move_to[i]]
            head[move_to[i]] = i


@njit
def _unlink(head: Ints, follow: Ints, i: int, j: int) -> None:
    at = head[j]
    if at == i:
        head[j] = follow[i]
        return
    while follow[at] != i:
        at = follow[at]
    follow[at] = follow[i]


@njit
def exchange(  # noqa: PLR0912 - one search over direct moves and exchanges
    objects: Ints,
    targets: Targets,
    layout: ProblemArrays,
    move_to: Int32,
    used: Float64,
    cost: Float64,
    head: Ints,
    follow: Ints,
) -> None:
    """Run `rounding.insert`; `head` [N] and `follow` [M] list the objects on each node."""
    first, end, node, target_cost = targets
    weight, room, domain = layout.weight, layout.room, layout.domain
    for turn in range(len(objects)):
        i = objects[turn]
        home = move_to[i]
        alone = layout.sibling_end[i] - layout.sibling_first[i] == 1
        w = weight[i]
        now = cost[i] if home >= 0 else np.inf
        gain = 1e-12 * now if home >= 0 else -np.inf  # a change has to save more than this
        best_j, best_k, best_to = -1, -1, -1
        best_total = now - gain
        best_cost_i, best_cost_k = 0.0, 0.0
        for at in range(first[i], end[i]):
            j, price = node[at], target_cost[at]
            if price >= best_total and home >= 0 and price >= now:
                break
            if j == home or not apart(i, domain[j], layout, move_to):
                continue
            if used[j] + w <= room[j]:
                if price < best_total:
                    best_j, best_k, best_total, best_cost_i = j, -1, price, price
                continue
            k = head[j]
            while k >= 0:
                if k != i and used[j] - weight[k] + w <= room[j]:
                    for at_k in range(first[k], end[k]):
                        to = node[at_k]
                        total = price + target_cost[at_k] - cost[k]
                        if total >= best_total:
                            break
                        freed = w if to == home else 0.0
                        if (
                            to != j
                            and used[to] - freed + weight[k] <= room[to]
                            and (alone or domain[to] != domain[j])
                            and apart(k, domain[to], layout, move_to)
                        ):
                            best_j, best_k, best_to, best_total = j, k, to, total
                            best_cost_i, best_cost_k = price, target_cost[at_k]
                            break
                k = follow[k]
        if best_j < 0:
            continue
        if home >= 0:
            _unlink(head, follow, i, home)
            used[home] -= w
        if best_k >= 0:
            _unlink(head, follow, best_k, best_j)
            used[best_j] -= weight[best_k]
            used[best_to] += weight[best_k]
            move_to[best_k], cost[best_k] = best_to, best_cost_k
            follow[best_k] = head[best_to]
            head[best_to] = best_k
        move_to[i], cost[i] = best_j, best_cost_i
        used[best_j] += w
        follow[i] = head[best_j]
        head[best_j] = i
