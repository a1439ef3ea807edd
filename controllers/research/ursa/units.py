"""Instances of several dimensions, nested fault domains and groups, as arrays of units.

A unit moves as one: a partition, or a group of partitions on the same nodes.

**Swaps.** As in `controllers.ursa.swap`: the hottest node, by its highest ratio of load to
threshold, gives away roles until it is cold. A role is worth the part of the node's excess that it
carries, summed over the dimensions in which the node is hot; the role worth most that some node can
take goes first.

**Selection.** An object removes a part of each excess: what counts is the sum, over the dimensions
in which the node is hot, of the part of that dimension's excess which is still there and which the
object carries. This greedy algorithm for covering problems takes at most ``1 + ln(d / last)`` times
the fewest objects that suffice, with d dimensions in excess and `last` the parts that were left
before its last object (Wolsey 1982). With one dimension it is highest-load-first. Where objects
have prices, relief is weighed against them. Afterwards objects without which the others suffice
stay, the lightest first, and the last one is exchanged for the lightest that suffices.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.jit import njit
from controllers.ursa.instance import (
    Float64,
    Instance,
    Int32,
    MigrationPlan,
    Selection,
    nested_domains,
)
from controllers.ursa.place.problem import ragged
from controllers.ursa.select import object_id
from controllers.ursa.state import PlanState, group_by_node, object_load, objects_on
from controllers.ursa.swap import Swaps, up_to_date

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Units(Instance):
    """An instance as its units: U of them in place of P partitions, with loads [U, D] and [N, D].

    Attributes:
        members: [U], partitions of the unit: its move costs this multiple of the distance.
        member_first, member: partitions of unit u are ``member[member_first[u]:member_first[u +
            1]]``; None where units are the partitions.
    """

    members: Float64 = field(kw_only=True)
    member_first: Ints | None = None
    member: Ints | None = None

    def levels_apart(self) -> Int32:
        """Return [N, levels + 1]: the node is the innermost domain that keeps replicas apart."""
        return nested_domains(self)

    def members_of(self, partition: NDArray[np.integer]) -> Float64:
        """Return [M], number of partitions that move with each of these units."""
        return np.asarray(self.members[partition])

    def unit_load(self) -> Float64:
        """Return [D], a load that is neither much nor little: capacity of a node on average."""
        mean = self.capacity.astype(np.float64).mean(axis=0)
        return np.where(mean > 0, mean, 1.0)


def units_of(instance: Instance) -> Units:
    """Return the units of an instance: groups, or every partition on its own."""
    fields: dict[str, Any] = {**vars(instance), "members": np.ones(instance.partitions)}
    for name in ("primary_load", "secondary_load", "capacity"):
        fields[name] = fields[name].reshape(len(fields[name]), instance.dimensions)
    fields["capacity"] = fields["capacity"].astype(np.float64)
    if instance.size is not None:
        fields["size"] = instance.size.astype(np.float64)
    own = Units(**fields)
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


def _merged(own: Units, group: Int32) -> Units:
    ids, first, index = np.unique(group, return_index=True, return_inverse=True)
    member = np.argsort(index, kind="stable")
    member_first = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.bincount(index, minlength=len(ids)), out=member_first[1:])

    def sums(load: NDArray[Any]) -> Any:
        # In float64, as a checker sums them: a sum in float32 would be another load.
        each = [np.bincount(index, load[:, d], len(ids)) for d in range(load.shape[1])]
        return np.column_stack(each).astype(np.float64)

    return replace(
        own,
        replica_node=np.ascontiguousarray(own.replica_node[first]),
        primary_load=sums(own.primary_load),
        secondary_load=sums(own.secondary_load),
        members=np.diff(member_first).astype(np.float64),
        group=None,
        size=None if own.size is None else sums(own.size[:, None])[:, 0],
        member_first=member_first,
        member=member,
    )


def swap_phase(units: Units, state: PlanState, *, success: float = 1.0, seed: int = 0) -> Swaps:
    """Swap roles until no swap is applicable; `state` is changed. Parameters as in `swap`."""
    hot = np.flatnonzero(state.hot(units).any(axis=1)).astype(np.int32)
    if len(hot) == 0 or units.replicas == 1:
        return Swaps(np.empty(0, np.int32), np.empty(0, np.int8))
    unit, column, slot = objects_on(units, hot, leading=True)
    shed = units.primary_load[unit].astype(np.float64) - units.secondary_load[unit]
    useful = np.flatnonzero(_relief(units, state, hot[slot], shed) > 0)
    unit, column, slot, shed = unit[useful], column[useful], slot[useful], shed[useful]
    start, order = group_by_node(slot, len(hot))
    relief = _relief(units, state, hot[slot], shed)
    order = order[np.lexsort((-relief[order], slot[order]))]
    unit, column, shed = unit[order], column[order], shed[order]
    others = np.arange(units.replicas - 1, dtype=np.int8)[None, :]
    columns = (others + (others >= column[:, None])).astype(np.int8)
    nodes = units.replica_node[unit[:, None], columns]
    if success < 1.0:
        nodes[~up_to_date(unit, columns, success, seed)] = -1
    scale = units.unit_load()
    count, entry, which = _swap(hot, start, shed, nodes, units.capacity, scale, state.load)
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
    capacity: NDArray[Any],
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
    """Return objects, `load` [M, D], that make each hot node cold; none of a node if all do not.

    `stay` are `object_id` of objects that must not be selected. With `price` [U], above 0, the sum
    of prices is kept small instead of the number of objects.
    """
    over = state.hot(units)
    hot = np.flatnonzero(over.any(axis=1)).astype(np.int32)
    unit, column, slot = objects_on(units, hot)
    start, order = group_by_node(slot, len(hot))
    unit, column = unit[order], column[order]
    load = object_load(units, state, unit, column)
    free = np.ones(len(unit), dtype=np.bool_)
    if stay is not None and len(stay):
        free = ~np.isin(object_id(units, unit, column), stay)
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

    `load` [n, d], `weight` [n] by which the lightest is chosen, `price` [n] above 0 with a sum that
    becomes small, `excess` [d] and the `rounding` [d] of it that may remain.
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
