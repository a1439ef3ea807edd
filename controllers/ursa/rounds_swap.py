"""The swap phase between rounds: the swaps of `swap.swap_phase`, with less work for each.

Few loads have changed since the last round, so that a hot node gives away a handful of roles where
it has a thousand. Its heaviest candidates are brought to the front and sorted; the rest is sorted
when a node needs it, and where secondaries lie is looked up when a role is tried. Between rounds
column 0 is the primary everywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import UInt64
from controllers.ursa.instance import Float32, Float64, Instance, Int32
from controllers.ursa.jit import in_threads, njit
from controllers.ursa.node_index import Ids, Ints, NodeIndex
from controllers.ursa.place.problem import Bools
from controllers.ursa.state import CHUNKS, State
from controllers.ursa.swap import Swaps, fill_heap, heat_of, receiver, sift, up_to_date

FRONT = 48
"""Candidates of a node that are sorted at first."""
MANY = 16  # nodes that are worth a second thread


def swap_phase(
    index: NodeIndex, instance: Instance, state: State, *, success: float = 1.0, seed: int = 0
) -> Swaps:
    """Swap roles until no swap is applicable; `state`, of which every primary is column 0, changes.

    Args:
        index: of the instance.
        instance, state, success, seed: as of `swap.swap_phase`.
    """
    hot = np.flatnonzero(state.hot(instance)).astype(np.int32)
    if len(hot) == 0 or instance.replicas == 1:
        return Swaps(np.empty(0, np.int32), np.empty(0, np.int8))
    start, partition, shed, keys = _candidates(index, instance, hot)
    late = np.zeros((0, 0), np.bool_)
    if success < 1.0:
        columns = np.arange(1, instance.replicas, dtype=np.int8)
        every = np.broadcast_to(columns, (len(partition), len(columns)))
        late = ~up_to_date(partition, every, success, seed)
    count, entry, which = _swap(
        hot,
        start,
        keys,
        partition,
        shed,
        late,
        instance.replica_node,
        instance.capacity,
        state.load,
    )
    swaps = Swaps(partition[entry[:count]], which[:count])
    state.primary[swaps.partition] = swaps.replica
    return swaps


def _candidates(
    index: NodeIndex, instance: Instance, hot: Int32
) -> tuple[Ints, Int32, Float64, UInt64]:
    """Primaries on hot nodes, by node and ascending.

    Returns:
        Where each node's begin [H + 1], partition, primary minus secondary load, and keys: they
        ascend as loads descend, their low half is the place in the other arrays. The FRONT least
        keys of each node come first, in order.
    """
    start = np.zeros(len(hot) + 1, np.int64)
    leading = np.zeros(len(hot), np.int64)
    chunks = CHUNKS if len(hot) >= MANY else 1
    bounds = np.linspace(0, len(hot), chunks + 1).astype(np.int64)

    def count(chunk: int) -> None:
        _count(
            bounds[chunk],
            bounds[chunk + 1],
            hot,
            index.begin,
            index.count,
            index.ids,
            instance.replicas,
            leading,
        )

    in_threads(count, chunks)
    np.cumsum(leading, out=start[1:])
    total = int(start[-1])
    partition, shed = np.empty(total, np.int32), np.empty(total)
    keys: UInt64 = np.empty(total, np.uint64)

    def work(chunk: int) -> None:
        first, end = int(bounds[chunk]), int(bounds[chunk + 1])
        _fill(
            first,
            end,
            hot,
            start,
            index.begin,
            index.count,
            index.ids,
            instance.replicas,
            instance.primary_load,
            instance.secondary_load,
            partition,
            shed,
        )
        a, b = int(start[first]), int(start[end])
        # As in `gather.heaviest_first`.
        heavy = np.maximum(shed[a:b].astype(np.float32), np.float32(0)) + np.float32(0)
        part = keys[a:b]
        np.subtract(np.uint64(0xFFFFFFFF), heavy.view(np.uint32), out=part)
        part <<= np.uint64(32)
        part |= np.arange(a, b, dtype=np.uint64)
        for h in range(first, end):
            mine = keys[start[h] : start[h + 1]]
            if len(mine) > FRONT:
                mine.partition(FRONT)
            mine[:FRONT].sort()

    in_threads(work, chunks)
    return start, partition, shed, keys


@njit
def _count(
    first: int,
    end: int,
    hot: Int32,
    begin: Ints,
    count: Ints,
    ids: Ids,
    replicas: int,
    leading: Ints,
) -> None:
    for h in range(first, end):
        node = hot[h]
        found = 0
        for at in range(begin[node], begin[node] + count[node]):
            found += ids[at] % replicas == 0
        leading[h] = found


@njit
def _fill(
    first: int,
    end: int,
    hot: Int32,
    start: Ints,
    begin: Ints,
    count: Ints,
    ids: Ids,
    replicas: int,
    primary_load: Float32,
    secondary_load: Float32,
    partition: Int32,
    shed: Float64,
) -> None:
    for h in range(first, end):
        node = hot[h]
        g = start[h]
        for at in range(begin[node], begin[node] + count[node]):
            if ids[at] % replicas == 0:
                partition[g] = ids[at] // replicas
                g += 1
        for i in range(start[h], g):
            p = partition[i]
            shed[i] = np.float64(primary_load[p]) - np.float64(secondary_load[p])


@njit
def _swap(
    hot: Int32,
    start: Ints,
    keys: UInt64,
    partition: Int32,
    shed: Float64,
    late: Bools,
    replica_node: Int32,
    capacity: Float32,
    load: Float64,
) -> tuple[int, Ints, NDArray[np.int8]]:
    """As `swap._swap`; the column that becomes primary is told, not the place among the others."""
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
        size = fill_heap(hot, capacity, load, heap, heat)
        while size > 0:
            h = heap[0]
            node = hot[h]
            best = -1
            g = np.int64(-1)
            at = pointer[h]
            while at < start[h + 1]:
                if at == start[h] + FRONT and not whole[h]:
                    keys[at : start[h + 1]].sort()
                    whole[h] = True
                g = np.int64(keys[at] & np.uint64(0xFFFFFFFF))
                if not shed[g] > 0:
                    break
                if not used[g]:
                    for k in range(len(nodes)):
                        nodes[k] = replica_node[partition[g], k + 1]
                        if len(late) and late[g, k]:
                            nodes[k] = -1
                    best = receiver(nodes, shed[g], capacity, load)
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
                heat[h] = heat_of(load[node], capacity[node])
            else:
                size -= 1
                heap[0] = heap[size]
            sift(heap, heat, 0, size)
    return count, entry, which
