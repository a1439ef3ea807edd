"""Instances of several dimensions, nested fault domains and groups, as arrays of units.

A unit moves as one: a partition, or a group of partitions on the same nodes.

**Swaps.** As in `controllers.ursa.swap`: the hottest node, by its highest ratio of load to
threshold, gives away roles until it is cold. A role is worth the part of the node's excess that it
carries, summed over the dimensions in which the node is hot; the role worth most that some node can
take goes first. In a dimension where primaries and secondaries carry the same (bytes stored) swaps
relieve nothing.

**Selection.** Highest-load-first of one dimension takes the object that removes most of the excess,
until nothing of it is left. With several dimensions an object removes a part of each excess: what
counts is the sum, over the dimensions in which the node is hot, of the part of that dimension's
excess which is still there and which the object carries. This is the greedy algorithm for covering
problems. It takes at most ``1 + ln(d / last)`` times the fewest objects that suffice, with d
dimensions in excess and `last` the parts that were left before its last object (Wolsey 1982). With
one dimension it is highest-load-first. Where objects have prices, relief is weighed against them.
Afterwards objects without which the others suffice stay, the lightest first, and the last one is
exchanged for the lightest that suffices.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads, njit
from controllers.ursa.instance import (
    Float64,
    Instance,
    Int32,
    MigrationPlan,
    Moves,
    Selection,
    SelectionTargets,
)
from controllers.ursa.place.problem import (
    PlacementProblem,
    nested_domains,
    problem_of,
    ragged,
)
from controllers.ursa.select import Bools, NodeLoads, object_id, placed_moves
from controllers.ursa.state import PlanState, chunks_of, group_by_node, objects_on
from controllers.ursa.swap import Swaps, up_to_date

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

    def over(self, state: PlanState) -> Bools:
        """Return [N, D], where a node is above its threshold; loads of states are [N, D] here."""
        return state.load > self.capacity

    def loads(self, state: PlanState) -> NodeLoads:
        """Return the nodes as the functions of `select` take them."""
        return NodeLoads(state.load, self.capacity, self.domain, self.replicas)

    def problem(
        self, load: Float64, selection: Selection, max_move_cost: float | None
    ) -> PlacementProblem:
        """Return the problem of placing `selection`; `load` still counts its objects in place."""
        return problem_of(
            self.placed,
            selection,
            load=load,
            capacity=self.capacity,
            levels=self.domain,
            members=self.members[selection.partition],
            max_move_cost=max_move_cost,
        )

    def placed_moves(self, selection: Selection, placement: SelectionTargets) -> Moves:
        """Return the moves of the units that found a node; the cost is that of all members."""
        moves = placed_moves(self.placed, selection, placement)
        return replace(moves, cost=moves.cost * self.members[moves.object // self.replicas])

    def unit_load(self) -> Float64:
        """Return [D], a load that is neither much nor little: capacity of a node on average."""
        mean = self.capacity.mean(axis=0)
        return np.where(mean > 0, mean, 1.0)


def units_of(instance: Instance) -> Units:
    """Return the units of an instance: groups, or every partition on its own."""
    own = Units(
        placed=instance,
        primary=_columns(instance.primary_load),
        secondary=_columns(instance.secondary_load),
        capacity=_columns(instance.capacity).astype(np.float64),
        domain=nested_domains(instance),
        members=np.ones(instance.partitions),
        size=None if instance.size is None else instance.size.astype(np.float64),
    )
    return own if instance.group is None else _merged(own, instance.group)


def expanded(units: Units, plan: MigrationPlan) -> MigrationPlan:
    """Return a units' plan as a plan for partitions; replicas of a unit follow each other."""
    if units.member is None or units.member_first is None:
        return plan
    member, first, size = units.member, units.member_first, np.diff(units.member_first)
    swap, at = ragged(first[plan.swap_partition], size[plan.swap_partition])
    swap_partition = member[at].astype(np.int32)
    move, at = ragged(first[plan.move_partition], size[plan.move_partition])
    return replace(
        plan,
        swap_partition=swap_partition,
        swap_replica=plan.swap_replica[swap],
        move_partition=member[at].astype(np.int32),
        move_replica=plan.move_replica[move],
        move_to=plan.move_to[move],
        move_round=None if plan.move_round is None else plan.move_round[move],
    )


def initial_state(units: Units) -> PlanState:
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
    return PlanState(np.zeros(count, dtype=np.int8), partial.sum(axis=0))


def object_load(
    units: Units, state: PlanState, unit: Int32, replica: NDArray[np.integer]
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


def swap_phase(units: Units, state: PlanState, *, success: float = 1.0, seed: int = 0) -> Swaps:
    """Swap roles until no swap is applicable; `state` is changed. Parameters as of `swap`."""
    hot = np.flatnonzero(units.over(state).any(axis=1)).astype(np.int32)
    if len(hot) == 0 or units.replicas == 1:
        return Swaps(np.empty(0, np.int32), np.empty(0, np.int8))
    unit, column, slot = objects_on(units.placed, hot, leading=True)
    shed = units.primary[unit].astype(np.float64) - units.secondary[unit]
    useful = np.flatnonzero(_relief(units, state, hot[slot], shed) > 0)
    unit, column, slot, shed = unit[useful], column[useful], slot[useful], shed[useful]
    start, order = group_by_node(slot, len(hot))
    relief = _relief(units, state, hot[slot], shed)
    order = order[np.lexsort((-relief[order], slot[order]))]
    unit, column, shed = unit[order], column[order], shed[order]
    others = np.arange(units.replicas - 1, dtype=np.int8)[None, :]
    columns = (others + (others >= column[:, None])).astype(np.int8)
    nodes = units.placed.replica_node[unit[:, None], columns]
    if success < 1.0:
        nodes[~up_to_date(unit, columns, success, seed)] = -1
    count, entry, which = _swap(
        hot, start, shed, nodes, units.capacity, units.unit_load(), state.load
    )
    entry, which = entry[:count], which[:count]
    swaps = Swaps(unit[entry], columns[entry, which])
    state.primary[swaps.partition] = swaps.replica
    return swaps


def _relief(units: Units, state: PlanState, node: Int32, shed: Float64) -> Float64:
    """Return [G], the parts of the node's excess that each carries, summed over dimensions."""
    excess = state.load - units.capacity
    mine = excess[node]
    part = np.minimum(np.maximum(shed, 0.0), mine) / np.where(mine > 0, mine, 1.0)
    return np.asarray(np.where(mine > 0, part, 0.0).sum(axis=1))


@njit
def _swap(
    hot: Int32,
    start: Ints,
    shed: Float64,
    nodes: Int32,
    capacity: Float64,
    unit: Float64,
    load: Float64,
) -> tuple[int, Ints, NDArray[np.int8]]:
    """Swap in rounds until a round has no swap; each hot node takes candidates in order."""
    entry = np.empty(len(shed), np.int64)
    which = np.empty(len(shed), np.int8)
    used = np.zeros(len(shed), np.bool_)
    count = 0
    before = -1
    while count > before:
        before = count
        pointer = start[:-1].copy()
        heap = [(-_heat(load[hot[h]], capacity[hot[h]]), h) for h in range(len(hot))]
        heapq.heapify(heap)
        while len(heap) > 0:
            _, h = heapq.heappop(heap)
            node = hot[h]
            best = -1
            g = pointer[h]
            while g < start[h + 1]:
                if not used[g] and _relieves(load[node], capacity[node], shed[g]):
                    best = _receiver(nodes[g], shed[g], capacity, unit, load)
                    if best >= 0:
                        break
                g += 1
            pointer[h] = g + 1
            if best < 0:
                continue
            for d in range(shed.shape[1]):
                load[node, d] -= shed[g, d]
                load[nodes[g, best], d] += shed[g, d]
            used[g] = True
            entry[count] = g
            which[count] = best
            count += 1
            heap_again = _heat(load[node], capacity[node])
            if heap_again > 1.0:
                heapq.heappush(heap, (-heap_again, h))
    return count, entry, which


@njit
def _relieves(load: Float64, capacity: Float64, shed: Float64) -> bool:
    """Return True if giving away `shed` lowers a load that is too high, and makes none too high."""
    some = False
    for d in range(len(load)):
        if shed[d] > 0 and load[d] > capacity[d]:
            some = True
        if shed[d] < 0 and load[d] - shed[d] > capacity[d]:
            return False
    return some


@njit
def _receiver(nodes: Int32, shed: Float64, capacity: Float64, unit: Float64, load: Float64) -> int:
    """Return the secondary's node with most room in its scarcest dimension; -1 for none."""
    best = -1
    most = -1.0
    for j in range(len(nodes)):
        node = nodes[j]
        if node < 0:
            continue
        room = np.inf
        fits = True
        for d in range(len(shed)):
            after = load[node, d] + shed[d]
            if shed[d] > 0:
                fits = fits and after <= capacity[node, d]
                room = min(room, (capacity[node, d] - after) / unit[d])
        if fits and room > most:
            best = j
            most = room
    return best


@njit
def _heat(load: Float64, capacity: Float64) -> float:
    """Return the highest ratio of load to threshold; 1 and less is cold."""
    heat = 0.0
    for d in range(len(load)):
        if load[d] > capacity[d]:
            heat = max(heat, load[d] / capacity[d] if capacity[d] > 0 else np.inf)
            # A ratio may round to 1 where the comparison differs.
            heat = max(heat, 1.0 + 1e-15)
    return heat


ROUNDING = 1e-13
"""Part of a node's load that may be left of an excess: what running sums are off by."""


def most_relief_first(
    units: Units,
    state: PlanState,
    stay: NDArray[np.int64] | None = None,
    price: Float64 | None = None,
) -> Selection:
    """Return objects that make each hot node cold; none if even all of a node's would not do.

    Args:
        units: the problem.
        state: after the swaps.
        stay: `object_id` of objects that must not be selected.
        price: [U], above 0: relief is then weighed against it, for the least sum of prices instead
            of the fewest objects.

    Returns:
        A selection with `load` [M, D].
    """
    over = units.over(state)
    hot = np.flatnonzero(over.any(axis=1)).astype(np.int32)
    unit, column, slot = objects_on(units.placed, hot)
    start, order = group_by_node(slot, len(hot))
    unit, column = unit[order], column[order]
    load = object_load(units, state, unit, column)
    free = np.ones(len(unit), dtype=np.bool_)
    if stay is not None and len(stay):
        free = ~np.isin(object_id(units.placed, unit, column), stay)
    chosen: list[Ints] = []
    scale = units.unit_load()
    prices = np.ones(len(unit)) if price is None else price[unit]
    for index, node in enumerate(hot):
        mine = start[index] + np.flatnonzero(free[start[index] : start[index + 1]])
        dimensions = np.flatnonzero(over[node])
        excess = (state.load[node] - units.capacity[node])[dimensions]
        rounding = ROUNDING * state.load[node][dimensions]
        weight = (load[mine] / scale).sum(axis=1)
        part = np.ascontiguousarray(load[mine][:, dimensions])
        chosen.append(mine[cover(part, weight, prices[mine], excess, rounding)])
    picked = np.concatenate([np.empty(0, np.int64), *chosen])
    counts = np.array([len(part) for part in chosen], dtype=np.int64)
    return Selection(unit[picked], column[picked], np.repeat(hot, counts), load[picked])


@njit
def cover(
    load: Float64, weight: Float64, price: Float64, excess: Float64, rounding: Float64
) -> Ints:
    """Return objects with loads that sum up to the excess in each dimension, or none if all do not.

    Args:
        load: [n, d], at least 0.
        weight: [n], by which the lightest object is chosen.
        price: [n], above 0; the sum of the chosen ones becomes small.
        excess: [d], above 0.
        rounding: [d], the excess that may remain.
    """
    n, d = load.shape
    chosen = np.zeros(n, np.bool_)
    for k in range(d):
        if load[:, k].sum() < excess[k] - rounding[k]:
            return np.empty(0, np.int64)
    left = excess.copy()
    before = np.empty(d)
    # What an object removes never grows: the best is found among bounds from earlier looks.
    heap = [(-_gain(load[i], left, excess, rounding) / price[i], i) for i in range(n)]
    heapq.heapify(heap)
    last = -1
    while not _done(left, rounding) and len(heap) > 0:
        bound, i = heapq.heappop(heap)
        gain = _gain(load[i], left, excess, rounding) / price[i]
        if gain < -bound and len(heap) > 0 and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, i))
            continue
        for k in range(d):
            left[k] -= load[i, k]
        chosen[i] = True
        last = i
    if last < 0:
        return np.empty(0, np.int64)
    _drop(load, weight, price, chosen, left, rounding)
    if chosen[last]:
        for k in range(d):  # as one assignment its check of shapes takes a seventh of the compiling
            before[k] = left[k] + load[last, k]
        for i in range(n):
            better = price[i] < price[last] or (
                price[i] == price[last] and weight[i] < weight[last]
            )
            if better and not chosen[i] and _enough(load[i], before, rounding):
                chosen[last] = False
                chosen[i] = True
                last = i
    return np.flatnonzero(chosen)


@njit
def _gain(load: Float64, left: Float64, excess: Float64, rounding: Float64) -> float:
    gain = 0.0
    for k in range(len(left)):
        if left[k] > rounding[k]:
            gain += min(load[k], left[k]) / excess[k]
    return gain


@njit
def _done(left: Float64, rounding: Float64) -> bool:
    done = True
    for k in range(len(left)):
        done = done and left[k] <= rounding[k]
    return done


@njit
def _enough(load: Float64, left: Float64, rounding: Float64) -> bool:
    enough = True
    for k in range(len(left)):
        enough = enough and left[k] - load[k] <= rounding[k]
    return enough


@njit
def _drop(
    load: Float64,
    weight: Float64,
    price: Float64,
    chosen: NDArray[np.bool_],
    left: Float64,
    rounding: Float64,
) -> None:
    """Keep objects that are not needed, the dearest and lightest first; `left` changes with it."""
    picked = np.flatnonzero(chosen)
    picked = picked[np.argsort(weight[picked], kind="mergesort")]
    for at in np.argsort(-price[picked], kind="mergesort"):
        i = picked[at]
        if _enough(-load[i], left, rounding):
            chosen[i] = False
            for k in range(len(left)):
                left[k] += load[i, k]
