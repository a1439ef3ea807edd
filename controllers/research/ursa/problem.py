"""Instances of several dimensions, nested fault domains and groups, as arrays of units.

A unit moves as one: a partition, or a group of partitions on the same nodes. Two replicas are kept
apart at the outermost level at which their domains differ: at this level and further in they may
not come together, further out they are together from the start. As the node is the innermost
domain, there is always such a level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads, njit
from controllers.ursa import select
from controllers.ursa.instance import (
    UNPLACED,
    Float64,
    Instance,
    Int32,
    MigrationPlan,
    Selection,
    SelectionTargets,
    between,
)
from controllers.ursa.place.problem import Bools, Lists, PlacementProblem, subproblem
from controllers.ursa.select import MoveList, NodeLoads
from controllers.ursa.state import Int8, chunks_of

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Units:
    """An instance as its units, U of them.

    Attributes:
        placed: where units are and what moves cost: `replica_node` is [U, l]. Its loads and fault
            domains are not looked at.
        primary, secondary: [U, D], load of a replica by role; sums where there are groups.
        capacity: [N, D].
        domain: [N, levels + 1], fault domains from the outermost on; the node itself comes last, as
            the domain that no two replicas share.
        members: [U], partitions of the unit: its move costs this multiple of the distance.
        size: [U], bytes of a replica; None where the instance has none.
        member_first, member: partitions of unit u are ``member[member_first[u]:member_first[u +
            1]]``; None where units are the partitions.
    """

    placed: Instance
    primary: Floats
    secondary: Floats
    capacity: Float64
    domain: Int32
    members: Float64
    size: Float64 | None = None
    member_first: Ints | None = None
    member: Ints | None = None

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.capacity)

    @property
    def dimensions(self) -> int:
        """D."""
        return int(self.capacity.shape[1])

    @property
    def replicas(self) -> int:
        """Number of replicas, l in the paper."""
        return self.placed.replicas

    def unit_load(self) -> Float64:
        """Return [D], a load that is neither much nor little: capacity of a node on average."""
        mean = self.capacity.mean(axis=0)
        return np.where(mean > 0, mean, 1.0)


@dataclass(eq=False)
class VectorState:
    """As `state.State`: primary [U] int8, load [N, D]."""

    primary: Int8
    load: Float64

    def over(self, units: Units) -> NDArray[np.bool_]:
        """Return [N, D], where a node is above its threshold."""
        return self.load > units.capacity

    def hot(self, units: Units) -> NDArray[np.bool_]:
        """Return [N], nodes above their threshold in any dimension."""
        return np.asarray(self.over(units).any(axis=1))


def units_of(instance: Instance) -> Units:
    """Return the units of an instance: groups, or every partition on its own."""
    nodes = np.arange(instance.nodes, dtype=np.int32)
    own = Units(
        placed=instance,
        primary=_columns(instance.primary_load),
        secondary=_columns(instance.secondary_load),
        capacity=_columns(instance.capacity).astype(np.float64),
        domain=np.column_stack([_columns(instance.fault_domain), nodes]).astype(np.int32),
        members=np.ones(instance.partitions),
        size=None if instance.size is None else instance.size.astype(np.float64),
    )
    return own if instance.group is None else _merged(own, instance.group)


def expanded(units: Units, plan: MigrationPlan) -> MigrationPlan:
    """Return a units' plan as a plan for partitions; replicas of a unit follow each other."""
    if units.member is None or units.member_first is None:
        return plan

    def each(unit: Int32, *others: Int32) -> list[Int32]:
        assert units.member is not None
        assert units.member_first is not None
        first, end = units.member_first[unit], units.member_first[unit + 1]
        owner = np.repeat(np.arange(len(unit)), end - first)
        start = np.cumsum(end - first) - (end - first)
        at = first[owner] + np.arange(len(owner)) - start[owner]
        return [units.member[at].astype(np.int32), *(array[owner] for array in others)]

    swap_partition, swap_replica = each(plan.swap_partition, plan.swap_replica)
    move_partition, move_replica, move_to = each(
        plan.move_partition, plan.move_replica, plan.move_to
    )
    move_round = plan.move_round
    if move_round is not None:
        move_round = each(plan.move_partition, move_round)[1]
    return replace(
        plan,
        swap_partition=swap_partition,
        swap_replica=swap_replica,
        move_partition=move_partition,
        move_replica=move_replica,
        move_to=move_to,
        move_round=move_round,
    )


def initial_state(units: Units) -> VectorState:
    """Return the first state: column 0 is primary; loads take one parallel pass of replicas."""
    count = units.placed.partitions
    chunks = chunks_of(count)
    partial = np.zeros((chunks, units.nodes, units.dimensions))
    bounds = np.linspace(0, count, chunks + 1).astype(np.int64)

    def work(chunk: int) -> None:
        _add_loads(
            units.placed.replica_node,
            units.primary,
            units.secondary,
            bounds[chunk],
            bounds[chunk + 1],
            partial[chunk],
        )

    in_threads(work, chunks)
    return VectorState(np.zeros(count, dtype=np.int8), partial.sum(axis=0))


def object_load(
    units: Units, state: VectorState, unit: Int32, replica: NDArray[np.integer]
) -> Float64:
    """Return [M, D], the load of objects in their present role."""
    is_primary = (state.primary[unit] == replica)[:, None]
    return np.where(is_primary, units.primary[unit], units.secondary[unit]).astype(np.float64)


def _columns(array: NDArray[Any]) -> NDArray[Any]:
    return array[:, None] if array.ndim == 1 else array


def _merged(own: Units, group: Int32) -> Units:
    ids, first, index = np.unique(group, return_index=True, return_inverse=True)
    member = np.argsort(index, kind="stable")
    member_first = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.bincount(index, minlength=len(ids)), out=member_first[1:])

    def sums(load: Floats) -> Float64:
        # In float64, as a checker sums them: a sum in float32 would be another load.
        each = [np.bincount(index, load[:, d], len(ids)) for d in range(load.shape[1])]
        return np.column_stack(each).astype(np.float64)

    return replace(
        own,
        placed=replace(
            own.placed, replica_node=np.ascontiguousarray(own.placed.replica_node[first])
        ),
        primary=sums(own.primary),
        secondary=sums(own.secondary),
        members=np.diff(member_first).astype(np.float64),
        size=None if own.size is None else sums(own.size[:, None])[:, 0],
        member_first=member_first,
        member=member,
    )


@njit
def _add_loads(
    replica_node: Int32, primary: Floats, secondary: Floats, first: int, end: int, load: Float64
) -> None:
    for u in range(first, end):
        for k in range(replica_node.shape[1]):
            node = replica_node[u, k]
            for d in range(primary.shape[1]):
                load[node, d] += primary[u, d] if k == 0 else secondary[u, d]


class Arrays(NamedTuple):
    """A problem's arrays as the compiled loops take them; see `VectorProblem`."""

    loads: Float64
    rooms: Float64
    source: Int32
    levels: Int32
    others: Int32
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32


@dataclass(frozen=True, eq=False)
class VectorProblem(PlacementProblem):
    """A `PlacementProblem` of several dimensions; `weight` and `room` only list candidates.

    Attributes:
        loads: [M, D], of the objects.
        rooms: [N, D].
        levels: [N, levels + 1], fault domains, the node last.
        others: [M, l], nodes of the unit's other replicas now, -1 in the object's own column.
        members: [M], partitions of the unit: a move costs this multiple of its distance.
    """

    loads: Float64
    rooms: Float64
    levels: Int32
    others: Int32
    members: Float64
    contend_for_all: ClassVar[bool] = True

    def arrays(self) -> Arrays:
        """Return the arrays for compiled loops."""
        return Arrays(*(getattr(self, name) for name in Arrays._fields))

    def allowed(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Bools:
        """Return True where an object fits on the node at its position, if all others were away."""
        ok: Bools = self.source[objects] != nodes
        for d in range(self.loads.shape[1]):
            ok &= self.loads[objects, d] <= self.rooms[nodes, d]
        for column in range(self.others.shape[1]):
            other = self.others[objects, column]
            ok &= (other < 0) | ~self._meet_from(self.source[objects], other, nodes, other)
        return ok

    def meet(self, a: Ints, b: Ints, to_a: NDArray[np.integer], to_b: Int32) -> Bools:
        """Return True where objects a and b of one unit meet on nodes `to_a` and `to_b`."""
        return self._meet_from(self.source[a], self.source[b], to_a, to_b)

    def _meet_from(self, a: Int32, b: Int32, to_a: NDArray[np.integer], to_b: Int32) -> Bools:
        """Return True where replicas apart on nodes a and b come together on `to_a` and `to_b`."""
        level = (self.levels[a] != self.levels[b]).argmax(axis=1)
        return np.asarray(self.levels[to_a, level] == self.levels[to_b, level])

    def whole(self, objects: NDArray[np.integer], cost: Float64) -> Float64:
        """Return [objects], cost of moving whole units where one partition costs `cost`."""
        return np.asarray(cost * self.members[objects])

    def rent(self, price: Float64) -> float:
        """Return cost of all room that has a price."""
        return float((price * np.where(price > 0, self.rooms, 0)).sum())

    def limit(self) -> Float64:
        """Return [N, D], room on the nodes."""
        return self.rooms

    def heaviness(self) -> Float64:
        """Return [M], the most of an object's loads, each as part of a usual one."""
        return np.asarray((self.loads / self.units_of_load()).max(axis=1, initial=0.0))

    def loads_of(self, objects: NDArray[np.integer]) -> Float64:
        """Return [D, objects], loads by dimension."""
        return np.ascontiguousarray(self.loads[objects].T)

    def fit_in_order(
        self, order: Ints, lists: Lists, length: Ints, move_to: Int32, used: Float64
    ) -> None:
        """Put objects on the first node with room among `length` of their list; see kernels."""
        start = lists.start[lists.group[order]]
        fit_in_order(order, start, length, lists.node, self.arrays(), move_to, used)

    def meeting(self, objects: Ints, row: Ints, target: Int32) -> tuple[Ints, Ints]:
        """Return (row, column) entries of (11): of two replicas at most one goes to a domain.

        The level depends on where the two are now.
        """
        rows: list[Ints] = []
        columns: list[Ints] = []
        several, times = np.unique(self.partition[objects], return_counts=True)
        count = 0
        order = np.argsort(self.partition[objects[row]], kind="stable")
        sorted_units = self.partition[objects[row]][order]
        for unit in several[times > 1]:
            first, end = (np.searchsorted(sorted_units, unit, side) for side in ("left", "right"))
            mine = order[first:end]
            who = np.unique(row[mine])
            for index, a in enumerate(who):
                for b in who[:index]:
                    both = mine[(row[mine] == a) | (row[mine] == b)]
                    homes = self.levels[self.source[objects[[a, b]]]]
                    level = int((homes[0] != homes[1]).argmax())
                    found = self.levels[target[both], level]
                    domains, entry = np.unique(found, return_inverse=True)
                    rows.append(count + entry.astype(np.int64))
                    columns.append(both)
                    count += len(domains)
        nothing = np.empty(0, dtype=np.int64)
        return np.concatenate([nothing, *rows]), np.concatenate([nothing, *columns])

    def toll(
        self, objects: NDArray[np.integer], nodes: NDArray[np.integer], price: Float64
    ) -> Float64:
        """Return [objects], cost of each object's load on its node, by prices [N, D]."""
        total = np.zeros(len(objects))
        for d in range(self.loads.shape[1]):
            total += self.loads[objects, d] * price[nodes, d]
        return total

    def load_of(self, move_to: Int32) -> Float64:
        """Return [N, D], the load that `move_to` puts on each node."""
        used = np.zeros_like(self.rooms)
        placed = move_to != UNPLACED
        for d in range(used.shape[1]):
            used[:, d] = np.bincount(move_to[placed], self.loads[placed, d], self.nodes)
        return used

    def without(self, used: Float64) -> VectorProblem:
        """Return the same objects with less room on the nodes, as much less as `used`."""
        rooms = self.rooms - used
        return replace(self, rooms=rooms, room=_least_room(rooms, self.units_of_load()))

    def units_of_load(self) -> Float64:
        """Return [D], loads that count as equally much in the dimensions."""
        mean = self.loads.mean(axis=0) if len(self.loads) else np.ones(self.rooms.shape[1])
        return np.where(mean > 0, mean, 1.0)


def vector_problem(
    units: Units, state: VectorState, selection: Selection, max_move_cost: float | None
) -> VectorProblem:
    """Return the problem of placing `selection`; `state` still counts its objects in place."""
    count, dimensions = len(selection), units.dimensions
    loads = np.asarray(selection.load, np.float64).reshape(count, dimensions)
    leaving = np.zeros_like(state.load)
    for d in range(dimensions):
        leaving[:, d] = np.bincount(selection.node, loads[:, d], units.nodes)
    rooms = units.capacity - (state.load - leaving)
    # A node that is hot in one dimension may take nothing, even of objects that have no load there.
    rooms[(state.load - leaving > units.capacity * (1 + 1e-12)).any(axis=1)] = -1.0
    others = units.placed.replica_node[selection.partition].copy()
    others[np.arange(count), selection.replica] = -1
    empty = np.empty(0, np.int32)
    problem = VectorProblem(
        weight=np.zeros(count),
        source=selection.node,
        sender=selection.node,
        partition=selection.partition,
        room=np.zeros(units.nodes),
        domain=units.domain[:, -1],
        taken=np.empty((count, 0), np.int32),
        sibling=empty,
        sibling_first=empty,
        sibling_end=empty,
        distance=units.placed.distance,
        reach=np.inf if max_move_cost is None else float(max_move_cost),
        loads=loads,
        rooms=rooms,
        levels=units.domain,
        others=others,
        members=units.members[selection.partition],
    )
    problem = subproblem(problem, np.ones(count, dtype=np.bool_))  # type: ignore[assignment]
    unit = problem.units_of_load()
    # A node that takes an object has room for its least load, as parts of the usual ones.
    weight = (loads / unit).min(axis=1) if count else np.zeros(0)
    return replace(problem, weight=weight, room=_least_room(rooms, unit))


def _least_room(rooms: Float64, unit: Float64) -> Float64:
    return np.asarray((rooms / unit).min(axis=1))


def nodes_of(units: Units, state: VectorState) -> NodeLoads:
    """Return the nodes as the functions of `select` take them."""
    return NodeLoads(state.load, units.capacity, units.domain)


def placed_moves(units: Units, selection: Selection, placement: SelectionTargets) -> MoveList:
    """Return the moves of the objects that found a node, with costs of whole units."""
    moves = select.placed_moves(units.placed, selection, placement)
    return replace(moves, cost=moves.cost * units.members[moves.partition])


def move_list(units: Units, state: VectorState, unit: Int32, replica: Int32, to: Int32) -> MoveList:
    """Return moves of units, with costs of whole units."""
    source = units.placed.replica_node[unit, replica]
    return MoveList(
        partition=unit.astype(np.int32),
        replica=replica.astype(np.int8),
        source=source,
        to=to.astype(np.int32),
        load=object_load(units, state, unit, replica),
        cost=between(units.placed.distance, source, to) * units.members[unit],
    )


@njit
def _meet(levels: Int32, a: int, b: int, to_a: int, to_b: int) -> bool:
    """Return `VectorProblem.meet` of one pair."""
    for level in range(levels.shape[1]):
        if levels[a, level] != levels[b, level]:
            return bool(levels[to_a, level] == levels[to_b, level])
    return True


@njit
def apart(problem: Arrays, i: int, j: int, move_to: Int32) -> bool:
    """Return True if node j is clear of the unit's other replicas, at old and new places."""
    source = problem.source[i]
    for column in range(problem.others.shape[1]):
        other = problem.others[i, column]
        if other >= 0 and _meet(problem.levels, source, other, j, other):
            return False
    for at in range(problem.sibling_first[i], problem.sibling_end[i]):
        other = problem.sibling[at]
        if (
            other != i
            and move_to[other] >= 0
            and _meet(problem.levels, source, problem.source[other], j, move_to[other])
        ):
            return False
    return True


@njit
def fits(problem: Arrays, i: int, j: int, used: Float64, leaver: int) -> bool:
    """Return True if node j has room for object i in every dimension, without `leaver` (or -1)."""
    for d in range(problem.rooms.shape[1]):
        after = used[j, d] + problem.loads[i, d]
        if leaver >= 0:
            after -= problem.loads[leaver, d]
        if after > problem.rooms[j, d]:
            return False
    return True


@njit
def _put(problem: Arrays, i: int, j: int, move_to: Int32, used: Float64) -> None:
    for d in range(used.shape[1]):
        if move_to[i] >= 0:
            used[move_to[i], d] -= problem.loads[i, d]
        used[j, d] += problem.loads[i, d]
    move_to[i] = j


@njit
def fit_in_order(
    order: Ints,
    start: Ints,
    length: Ints,
    list_node: Int32,
    problem: Arrays,
    move_to: Int32,
    used: Float64,
) -> None:
    """Put objects in `order` on the first listed node with room; `move_to`, `used` change."""
    for at in range(len(order)):
        i = order[at]
        for position in range(start[at], start[at] + length[at]):
            j = list_node[position]
            if (
                j != problem.source[i]
                and fits(problem, i, j, used, -1)
                and apart(problem, i, j, move_to)
            ):
                _put(problem, i, j, move_to, used)
                break


@njit
def in_score_order(owner: Ints, node: Ints, problem: Arrays, move_to: Int32, used: Float64) -> None:
    """Put each owner on its node, pair by pair, if the owner is unplaced and the node has room."""
    for at in range(len(owner)):
        i, j = owner[at], node[at]
        if move_to[i] < 0 and fits(problem, i, j, used, -1) and apart(problem, i, j, move_to):
            _put(problem, i, j, move_to, used)


@njit
def exchange(  # noqa: PLR0912 - one search over direct moves and exchanges
    objects: Ints,
    first: Ints,
    end: Ints,
    node: Int32,
    target_cost: Float64,
    problem: Arrays,
    move_to: Int32,
    used: Float64,
    cost: Float64,
) -> None:
    """Place objects in their order, or move them nearer, ejecting another where that is cheapest.

    Targets of object i are ``node[first[i]:end[i]]``, the cheapest first. Who is ejected is one of
    the objects that have targets, and goes to one of these.
    """
    head = np.full(len(used), -1, np.int64)
    follow = np.full(len(move_to), -1, np.int64)
    for i in range(len(move_to) - 1, -1, -1):
        if move_to[i] >= 0 and end[i] > first[i]:
            follow[i] = head[move_to[i]]
            head[move_to[i]] = i
    for turn in range(len(objects)):
        i = objects[turn]
        home = move_to[i]
        now = cost[i] if home >= 0 else np.inf
        best = now * (1 - 1e-12) if home >= 0 else np.inf
        best_j, best_k, best_to, cost_i, cost_k = -1, -1, -1, 0.0, 0.0
        for at in range(first[i], end[i]):
            j, price = node[at], target_cost[at]
            if home >= 0 and price >= now:
                break
            if j == home or not apart(problem, i, j, move_to):
                continue
            if fits(problem, i, j, used, -1):
                if price < best:
                    best, best_j, best_k, cost_i = price, j, -1, price
                break  # what is farther is dearer
            k = head[j]
            while k >= 0:
                if k != i and fits(problem, i, j, used, k):
                    for at_k in range(first[k], end[k]):
                        to = node[at_k]
                        total = price + target_cost[at_k] - cost[k]
                        if total >= best:
                            break
                        if (
                            _other(to, j, home)
                            and fits(problem, k, to, used, -1)
                            and apart(problem, k, to, move_to)
                            and not _same(problem, i, k)
                        ):
                            best, best_j, best_k, best_to = total, j, k, to
                            cost_i, cost_k = price, target_cost[at_k]
                            break
                k = follow[k]
        if best_j < 0:
            continue
        if best_k >= 0:
            _relink(head, follow, best_k, best_j, best_to)
            _put(problem, best_k, best_to, move_to, used)
            cost[best_k] = cost_k
        _relink(head, follow, i, home, best_j)
        _put(problem, i, best_j, move_to, used)
        cost[i] = cost_i


@njit
def _other(node: int, first: int, second: int) -> bool:
    if node == first:
        return False
    return node != second


@njit
def _same(problem: Arrays, i: int, k: int) -> bool:
    """Return True if two objects are of one unit."""
    return bool(problem.sibling_first[i] == problem.sibling_first[k])


@njit
def _relink(head: Ints, follow: Ints, i: int, old: int, new: int) -> None:
    if old >= 0:
        if head[old] == i:
            head[old] = follow[i]
        else:
            at = head[old]
            while follow[at] != i:
                at = follow[at]
            follow[at] = follow[i]
    follow[i] = head[new]
    head[new] = i
