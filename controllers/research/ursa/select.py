"""Swaps and selection where a node may be hot in several dimensions.

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

import numpy as np
from numpy.typing import NDArray

from controllers.jit import njit
from controllers.research.ursa.problem import Ints, Units, VectorState, object_load
from controllers.ursa.instance import Float64, Int32, Selection
from controllers.ursa.select import object_id
from controllers.ursa.state import group_by_node, objects_on
from controllers.ursa.swap import Swaps, up_to_date


def swap_phase(units: Units, state: VectorState, *, success: float = 1.0, seed: int = 0) -> Swaps:
    """Swap roles until no swap is applicable; `state` is changed. Parameters as of `swap`."""
    hot = np.flatnonzero(state.hot(units)).astype(np.int32)
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


def _relief(units: Units, state: VectorState, node: Int32, shed: Float64) -> Float64:
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
    state: VectorState,
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
    over = state.over(units)
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
    """Return objects whose loads sum up to the excess in each dimension; none when all do not.

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
