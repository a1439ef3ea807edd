"""The swap phase: roles change before data moves (section 3, first paragraphs).

"We can iteratively swap the primaries in the hottest node and the secondaries in the cold node
until no swap operation is applicable." The hottest node is the one whose load is highest against
its threshold. It gives away the primary whose role is heaviest (primary minus secondary load), to
the secondary with the most room, until it is cold: so the fewest roles change. A swap that would
make the receiving node hot is not applicable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import UInt64, heaviest_first, objects_on, places
from controllers.ursa.instance import Float32, Float64, Instance, Int32
from controllers.ursa.jit import in_threads, njit
from controllers.ursa.state import State, chunks_of


@dataclass(frozen=True, eq=False)
class Swaps:
    """Swaps in the order of application.

    Attributes:
        partition: [S].
        replica: [S], the column that becomes primary, int8.
    """

    partition: Int32
    replica: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.partition)


def swap_phase(instance: Instance, state: State, *, success: float = 1.0, seed: int = 0) -> Swaps:
    """Swap roles until no swap is applicable; `state` is changed.

    Args:
        instance: the problem.
        state: loads and primaries, changed in place.
        success: part of the replicas whose swap succeeds. The paper's evaluation takes 0.9: a
            secondary that is out of date cannot become primary, and is found to be so by trying.
        seed: which replicas are out of date: a property of the replica, not of the order.
    """
    hot = np.flatnonzero(state.hot(instance)).astype(np.int32)
    if len(hot) == 0 or instance.replicas == 1:
        return Swaps(np.empty(0, np.int32), np.empty(0, np.int8))
    found = _candidates(instance, state, hot)
    if success < 1.0:
        late = ~up_to_date(found.partition, found.columns(), success, seed)
        found.nodes[late] = -1
    count, entry, which = _swap(
        hot, found.start, found.shed, found.nodes, instance.capacity, state.load
    )
    entry, which = entry[:count], which[:count]
    # The j-th of the other columns is column j, or j + 1 from the primary on.
    column = which + (which >= found.primary[entry])
    swaps = Swaps(found.partition[entry], column.astype(np.int8))
    state.primary[swaps.partition] = swaps.replica
    return swaps


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Primaries on hot nodes, grouped by node, in each group by descending `shed`.

    Attributes:
        start: [H + 1], where each hot node's begin.
        partition, primary: [G], and the column that is primary.
        shed: [G] float64, primary minus secondary load (a difference of two float32 need not be
            one).
        nodes: [G, l-1], nodes of the secondaries, by ascending column; -1 for one out of date.
    """

    start: NDArray[np.int64]
    partition: Int32
    primary: NDArray[np.int8]
    shed: Float64
    nodes: Int32

    def columns(self) -> NDArray[np.int8]:
        """[G, l-1], columns of the secondaries."""
        others = np.arange(self.nodes.shape[1], dtype=np.int8)[None, :]
        return (others + (others >= self.primary[:, None])).astype(np.int8)


def _candidates(instance: Instance, state: State, hot: Int32) -> _Candidates:
    partition, column, slot = objects_on(instance, hot, primaries=state.primary)
    start, place = places(slot, len(hot))
    count, others = len(partition), instance.replicas - 1
    grouped = _empty(start, count, others)

    def fill(chunk: int) -> None:
        _fill(
            bounds[chunk],
            bounds[chunk + 1],
            partition,
            column,
            place,
            instance.replica_node,
            instance.primary_load,
            instance.secondary_load,
            grouped.partition,
            grouped.primary,
            grouped.shed,
            grouped.nodes,
        )

    chunks = chunks_of(count)
    bounds = np.linspace(0, count, chunks + 1).astype(np.int64)
    in_threads(fill, chunks)
    order = heaviest_first(grouped.shed.astype(np.float32), start)
    # In the order in which they will be tried: the swaps then read what lies side by side.
    tried = _empty(start, count, others)

    def arrange(chunk: int) -> None:
        _arrange(
            bounds[chunk],
            bounds[chunk + 1],
            order,
            grouped.partition,
            grouped.primary,
            grouped.shed,
            grouped.nodes,
            tried.partition,
            tried.primary,
            tried.shed,
            tried.nodes,
        )

    in_threads(arrange, chunks)
    return tried


def _empty(start: NDArray[np.int64], count: int, others: int) -> _Candidates:
    return _Candidates(
        start,
        np.empty(count, np.int32),
        np.empty(count, np.int8),
        np.empty(count),
        np.empty((count, others), np.int32),
    )


@njit
def _fill(
    first: int,
    end: int,
    partition: Int32,
    column: NDArray[np.int8],
    place: NDArray[np.int64],
    replica_node: Int32,
    primary_load: Float32,
    secondary_load: Float32,
    to_partition: Int32,
    to_primary: NDArray[np.int8],
    to_shed: Float64,
    to_nodes: Int32,
) -> None:
    for i in range(first, end):
        p = partition[i]
        g = place[i]
        to_partition[g] = p
        to_primary[g] = column[i]
        to_shed[g] = np.float64(primary_load[p]) - np.float64(secondary_load[p])
        j = 0
        for k in range(replica_node.shape[1]):
            if k != column[i]:
                to_nodes[g, j] = replica_node[p, k]
                j += 1


@njit
def _arrange(
    first: int,
    end: int,
    order: NDArray[np.int64],
    partition: Int32,
    primary: NDArray[np.int8],
    shed: Float64,
    nodes: Int32,
    to_partition: Int32,
    to_primary: NDArray[np.int8],
    to_shed: Float64,
    to_nodes: Int32,
) -> None:
    for i in range(first, end):
        g = order[i]
        to_partition[i] = partition[g]
        to_primary[i] = primary[g]
        to_shed[i] = shed[g]
        for j in range(nodes.shape[1]):
            to_nodes[i, j] = nodes[g, j]


def up_to_date(
    partition: Int32, columns: NDArray[np.int8], success: float, seed: int
) -> NDArray[np.bool_]:
    """[G, l-1], whether the secondary is up to date: a hash (splitmix64) of seed and object."""
    offset = np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    bits: UInt64 = partition.astype(np.uint64)[:, None] * np.uint64(128) + columns.astype(np.uint64)
    bits = bits + offset
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits = bits ^ (bits >> np.uint64(31))
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 < success)


@njit
def _swap(
    hot: Int32,
    start: NDArray[np.int64],
    shed: Float64,
    nodes: Int32,
    capacity: Float32,
    load: Float64,
) -> tuple[int, NDArray[np.int64], NDArray[np.int8]]:
    """Rounds of swaps until one has none: a node that became cold has room for others' roles."""
    entry = np.empty(len(shed), np.int64)
    which = np.empty(len(shed), np.int8)
    used = np.zeros(len(shed), np.bool_)
    heap = np.empty(len(hot), np.int64)
    heat = np.empty(len(hot))
    pointer = np.empty(len(hot), np.int64)
    count = 0
    before = -1
    while count > before:
        before = count
        pointer[:] = start[:-1]
        size = fill_heap(hot, capacity, load, heap, heat)
        while size > 0:
            h = heap[0]
            node = hot[h]
            best = -1
            g = pointer[h]
            while g < start[h + 1] and shed[g] > 0:
                if not used[g]:
                    best = receiver(nodes[g], shed[g], capacity, load)
                    if best >= 0:
                        break
                g += 1
            pointer[h] = g + 1
            if best >= 0:
                load[node] -= shed[g]
                load[nodes[g, best]] += shed[g]
                used[g] = True
                entry[count] = g
                which[count] = best
                count += 1
            if best >= 0 and load[node] > capacity[node]:
                heat[h] = heat_of(load[node], capacity[node])
            else:
                size -= 1
                heap[0] = heap[size]
            sift(heap, heat, 0, size)
    return count, entry, which


@njit
def receiver(nodes: Int32, shed: float, capacity: Float32, load: Float64) -> int:
    """Which of the secondaries' nodes has most room left after it took `shed`; -1 for none."""
    best = -1
    most = -1.0
    for j in range(len(nodes)):
        if nodes[j] >= 0:
            after = load[nodes[j]] + shed
            room = capacity[nodes[j]] - after
            # Not room >= 0: a difference may round to 0 what a comparison tells apart.
            if after <= capacity[nodes[j]] and room > most:
                best = j
                most = room
    return best


@njit
def fill_heap(
    hot: Int32, capacity: Float32, load: Float64, heap: NDArray[np.int64], heat: Float64
) -> int:
    size = 0
    for h in range(len(hot)):
        if load[hot[h]] > capacity[hot[h]]:
            heat[h] = heat_of(load[hot[h]], capacity[hot[h]])
            heap[size] = h
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        sift(heap, heat, at, size)
    return size


@njit
def heat_of(load: float, capacity: float) -> float:
    return load / capacity if capacity > 0 else np.inf


@njit
def sift(heap: NDArray[np.int64], heat: Float64, at: int, size: int) -> None:
    """Restore the heap below `at`: the hottest first, between equals the lower index."""
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(heap, heat, child + 1, child):
            child += 1
        if not _before(heap, heat, child, at):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@njit
def _before(heap: NDArray[np.int64], heat: Float64, a: int, b: int) -> bool:
    if heat[heap[a]] != heat[heap[b]]:
        return bool(heat[heap[a]] > heat[heap[b]])
    return bool(heap[a] < heap[b])
