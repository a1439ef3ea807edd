"""The swap phase: roles change before data moves (section 3, first paragraphs).

"We can iteratively swap the primaries in the hottest node and the secondaries in the cold node
until no swap operation is applicable." The hottest node, by load over threshold, gives away the
primary with the heaviest role (primary minus secondary load), to the secondary with the most room,
until it is cold: so the fewest roles change. A swap that makes the receiver hot is not applicable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads, njit
from controllers.ursa.instance import Float32, Float64, Instance, Int32
from controllers.ursa.state import (
    Gather,
    Ints,
    PlanState,
    UInt64,
    chunks_of,
    objects_on,
    places,
    sorted_keys,
)


@dataclass(frozen=True, eq=False)
class Swaps:
    """Swaps in the order of application: [S] partition, and the column that becomes primary."""

    partition: Int32
    replica: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.partition)


def swap_phase(
    instance: Instance,
    state: PlanState,
    *,
    success: float = 1.0,
    seed: int = 0,
    gather: Gather = objects_on,
    front: int | None = None,
) -> Swaps:
    """Swap roles until no swap is applicable; `state`, in which column 0 is primary, is changed.

    Args:
        instance, state: the problem.
        success: part of the replicas with a successful swap (0.9 in the paper's evaluation): an
            outdated secondary cannot become primary, which only a trial shows.
        seed: chooses the outdated replicas: a property of the replica, not of the order.
        gather: finds the objects of hot nodes.
        front: candidates of a node that are sorted at first; None for all. Fewer are quicker where
            nodes give away a few roles each.
    """
    hot = np.flatnonzero(state.hot(instance)).astype(np.int32)
    if len(hot) == 0 or instance.replicas == 1:
        return Swaps(np.empty(0, np.int32), np.empty(0, np.int8))
    gathered, _, slot = gather(instance, hot, True)
    start, place = places(slot, len(hot))
    partition, shed = np.empty(len(place), np.int32), np.empty(len(place))

    def fill(chunk: int) -> None:
        part = slice(int(bounds[chunk]), int(bounds[chunk + 1]))
        loads = instance.primary_load, instance.secondary_load
        _fill(gathered[part], place[part], *loads, partition, shed)

    chunks = chunks_of(len(place))
    bounds = np.linspace(0, len(place), chunks + 1).astype(np.int64)
    in_threads(fill, chunks)
    keys = sorted_keys(shed.astype(np.float32), start, front)
    others = np.empty((len(keys) if front is None else 0, instance.replicas - 1), np.int32)
    if front is None:
        # Arranged in parallel in the order of trial: the swaps then read adjacent memory.
        tried = np.empty(len(keys), np.int32), np.empty(len(keys))

        def arrange(chunk: int) -> None:
            part = slice(int(bounds[chunk]), int(bounds[chunk + 1]))
            to = tried[0][part], tried[1][part], others[part]
            _arrange(keys[part], partition, shed, instance.replica_node, *to)

        in_threads(arrange, chunks)
        partition, shed = tried
    late = np.zeros((0, 0), np.bool_)
    if success < 1.0:
        columns = np.arange(1, instance.replicas, dtype=np.int8)
        every = np.broadcast_to(columns, (len(partition), len(columns)))
        late = ~up_to_date(partition, every, success, seed)
        if front is None:
            others[late] = -1
    count, entry, which = _swap(
        hot,
        start,
        keys,
        len(partition) if front is None else front,
        partition,
        shed,
        late,
        others,
        instance.replica_node,
        instance.capacity,
        state.load,
    )
    swaps = Swaps(partition[entry[:count]], which[:count])
    state.primary[swaps.partition] = swaps.replica
    return swaps


@njit
def _fill(
    gathered: Int32,
    place: Ints,
    primary_load: Float32,
    secondary_load: Float32,
    partition: Int32,
    shed: Float64,
) -> None:
    """Write each candidate and primary minus secondary load to its place (in float64: a difference
    of two float32 need not be one)."""
    for i in range(len(gathered)):
        p = gathered[i]
        partition[place[i]] = p
        shed[place[i]] = np.float64(primary_load[p]) - np.float64(secondary_load[p])


def up_to_date(
    partition: Int32, columns: NDArray[np.int8], success: float, seed: int
) -> NDArray[np.bool_]:
    """Return [G, l-1], True if a secondary is current: a hash (splitmix64) of seed and object."""
    offset = np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    bits: UInt64 = partition.astype(np.uint64)[:, None] * np.uint64(128) + columns.astype(np.uint64)
    bits = bits + offset
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits = bits ^ (bits >> np.uint64(31))
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 < success)


@njit
def _arrange(
    keys: UInt64,
    partition: Int32,
    shed: Float64,
    replica_node: Int32,
    to_partition: Int32,
    to_shed: Float64,
    to_others: Int32,
) -> None:
    """Write candidates and nodes of secondaries in the order of `keys`."""
    for at in range(len(keys)):
        g = np.int64(keys[at] & np.uint64(0xFFFFFFFF))
        to_partition[at], to_shed[at] = partition[g], shed[g]
        for k in range(to_others.shape[1]):
            to_others[at, k] = replica_node[partition[g], k + 1]


@njit
def _swap(  # noqa: PLR0912, PLR0915 - one search, in one compiled loop
    hot: Int32,
    start: Ints,
    keys: UInt64,
    front: int,
    partition: Int32,
    shed: Float64,
    late: NDArray[np.bool_],
    others: Int32,
    replica_node: Int32,
    capacity: Float32,
    load: Float64,
) -> tuple[int, Ints, NDArray[np.int8]]:
    """Swap in rounds until one has none: a node that became cold has room for others' roles.

    Return the number of swaps, and for each its candidate and the column that becomes primary.
    """
    entry = np.empty(len(shed), np.int64)
    which = np.empty(len(shed), np.int8)
    used = np.zeros(len(shed), np.bool_)
    whole = np.zeros(len(hot), np.bool_)
    heap = np.empty(len(hot), np.int64)
    heat = np.empty(len(hot))
    pointer = np.empty(len(hot), np.int64)
    nodes = np.empty(replica_node.shape[1] - 1, np.int32)
    count = 0
    before = -1
    while count > before:
        before = count
        pointer[:] = start[:-1]
        size = _fill_heap(hot, capacity, load, heap, heat)
        while size > 0:
            h = heap[0]
            node = hot[h]
            best = -1
            g = np.int64(-1)
            at = pointer[h]
            while at < start[h + 1]:
                if at == start[h] + front and not whole[h]:
                    keys[at : start[h + 1]].sort()
                    whole[h] = True
                g = at if len(others) else np.int64(keys[at] & np.uint64(0xFFFFFFFF))
                if not shed[g] > 0:
                    break
                if not used[g]:
                    for k in range(len(nodes)):
                        if len(others):
                            nodes[k] = others[at, k]
                        elif len(late) and late[g, k]:
                            nodes[k] = -1
                        else:
                            nodes[k] = replica_node[partition[g], k + 1]
                    best = _receiver(nodes, shed[g], capacity, load)
                    if best >= 0:
                        break
                at += 1
            pointer[h] = at + 1
            if best >= 0:
                load[node] -= shed[g]
                load[nodes[best]] += shed[g]
                used[g] = True
                entry[count] = g
                which[count] = best + 1
                count += 1
            if best >= 0 and load[node] > capacity[node]:
                heat[h] = _heat_of(load[node], capacity[node])
            else:
                size -= 1
                heap[0] = heap[size]
            _sift(heap, heat, 0, size)
    return count, entry, which


@njit
def _receiver(nodes: Int32, shed: float, capacity: Float32, load: Float64) -> int:
    """Return the secondary's node with most room left after it took `shed`; -1 for none."""
    best = -1
    most = -1.0
    for j in range(len(nodes)):
        if nodes[j] >= 0:
            after = load[nodes[j]] + shed
            room = capacity[nodes[j]] - after
            # Not room >= 0: a difference may round to 0 where a comparison differs.
            if after <= capacity[nodes[j]] and room > most:
                best = j
                most = room
    return best


@njit
def _fill_heap(
    hot: Int32, capacity: Float32, load: Float64, heap: NDArray[np.int64], heat: Float64
) -> int:
    size = 0
    for h in range(len(hot)):
        if load[hot[h]] > capacity[hot[h]]:
            heat[h] = _heat_of(load[hot[h]], capacity[hot[h]])
            heap[size] = h
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift(heap, heat, at, size)
    return size


@njit
def _heat_of(load: float, capacity: float) -> float:
    return load / capacity if capacity > 0 else np.inf


@njit
def _sift(heap: NDArray[np.int64], heat: Float64, at: int, size: int) -> None:
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
