"""The swap phase for loads of several dimensions.

As in `swap`: the hottest node, by its highest ratio of load to threshold, gives away roles until it
is cold. A role is worth the part of the node's excess that it carries, summed over the dimensions
in which the node is hot; the role worth most that some node can take goes first. In a dimension
where primaries and secondaries carry the same (bytes stored) swaps relieve nothing.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import group_by_node, objects_on
from controllers.ursa.general.units import Ints, Units, VectorState
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.jit import njit
from controllers.ursa.swap import Swaps, up_to_date


def swap_phase(units: Units, state: VectorState, *, success: float = 1.0, seed: int = 0) -> Swaps:
    """Swap roles until no swap is applicable; `state` is changed. Parameters as of `swap`."""
    hot = np.flatnonzero(state.hot(units)).astype(np.int32)
    if len(hot) == 0 or units.replicas == 1:
        return Swaps(np.empty(0, np.int32), np.empty(0, np.int8))
    unit, column, slot = objects_on(units.placed, hot, state.primary)
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
    """[G], the parts of the node's excess that each carries, summed over dimensions."""
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
    """Rounds of swaps until one has none; candidates of each hot node in their order."""
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
    """Whether giving away `shed` lowers a load that is too high, and makes no other too high."""
    some = False
    for d in range(len(load)):
        if shed[d] > 0 and load[d] > capacity[d]:
            some = True
        if shed[d] < 0 and load[d] - shed[d] > capacity[d]:
            return False
    return some


@njit
def _receiver(nodes: Int32, shed: Float64, capacity: Float64, unit: Float64, load: Float64) -> int:
    """Which of the secondaries' nodes has most room left in its scarcest dimension; -1 for none."""
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
    """The highest ratio of load to threshold; 1 and less is cold."""
    heat = 0.0
    for d in range(len(load)):
        if load[d] > capacity[d]:
            heat = max(heat, load[d] / capacity[d] if capacity[d] > 0 else np.inf)
            # A ratio may round to 1 where the comparison tells them apart.
            heat = max(heat, 1.0 + 1e-15)
    return heat
