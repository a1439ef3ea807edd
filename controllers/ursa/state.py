"""Loads of nodes, roles of replicas, and the objects on given nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads, njit
from controllers.ursa.instance import Float32, Float64, Instance, Int32

# Fixed, not the number of processors: sums of floats depend on how they are split.
CHUNKS = 8
SMALL = 1 << 16


@dataclass(eq=False)
class PlanState:
    """Roles and loads while a plan is made; phases change them in place.

    Attributes:
        primary: [P] int8, the column of `replica_node` that is primary now.
        load: [N] or [N, D], float32 loads summed in float64.
    """

    primary: NDArray[np.int8]
    load: Float64

    def hot(self, instance: Instance) -> NDArray[np.bool_]:
        """Return [N] or [N, D], where nodes are above their threshold."""
        return self.load > instance.capacity


def chunks_of(rows: int) -> int:
    """Return the number of parts for work on these rows; it is the same on every machine."""
    return 1 if rows < SMALL else CHUNKS


def initial_state(instance: Instance) -> PlanState:
    """Return the first state: column 0 is primary; loads take one parallel pass of replicas."""
    partitions = instance.partitions
    chunks = chunks_of(partitions)
    partial = np.zeros((chunks, instance.nodes, *instance.primary_load.shape[1:]))
    add = _add_loads if instance.primary_load.ndim == 1 else _add_vectors
    bounds = np.linspace(0, partitions, chunks + 1).astype(np.int64)

    def work(chunk: int) -> None:
        add(
            instance.replica_node,
            instance.primary_load,
            instance.secondary_load,
            bounds[chunk],
            bounds[chunk + 1],
            partial[chunk],
        )

    in_threads(work, chunks)
    return PlanState(np.zeros(partitions, dtype=np.int8), partial.sum(axis=0))


@njit
def _add_loads(
    replica_node: Int32,
    primary_load: NDArray[np.float32],
    secondary_load: NDArray[np.float32],
    first: int,
    end: int,
    load: Float64,
) -> None:
    replicas = replica_node.shape[1]
    for p in range(first, end):
        load[replica_node[p, 0]] += primary_load[p]
        secondary = secondary_load[p]
        for k in range(1, replicas):
            load[replica_node[p, k]] += secondary


@njit
def _add_vectors(
    replica_node: Int32,
    primary_load: NDArray[Any],
    secondary_load: NDArray[Any],
    first: int,
    end: int,
    load: Float64,
) -> None:
    for p in range(first, end):
        for k in range(replica_node.shape[1]):
            node = replica_node[p, k]
            for d in range(primary_load.shape[1]):
                load[node, d] += primary_load[p, d] if k == 0 else secondary_load[p, d]


def object_load(
    instance: Instance, state: PlanState, partition: Int32, replica: NDArray[np.integer]
) -> Float64:
    """Return [M] or [M, D], the load of objects in their present role."""
    is_primary = state.primary[partition] == replica
    if instance.primary_load.ndim > 1:
        is_primary = is_primary[:, None]
    loads = np.where(
        is_primary, instance.primary_load[partition], instance.secondary_load[partition]
    )
    return loads.astype(np.float64)


Int8 = NDArray[np.int8]
Ints = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt64 = NDArray[np.uint64]
Found = tuple[Int32, Int8, Int32]
Gather = Callable[[Instance, Int32, bool], Found]
"""A function that finds objects on nodes, as `objects_on` does."""


def objects_on(instance: Instance, nodes: Int32, leading: bool = False) -> Found:
    """Return (partition, column, index into `nodes`) of the objects on these distinct nodes.

    One parallel pass over all replicas, or over column 0 alone if `leading`; partitions ascend.
    """
    slot = np.zeros(instance.nodes, np.int32)
    slot[nodes] = np.arange(len(nodes), dtype=np.int32)
    # A bit a node stays in the fastest cache where a slot a node does not.
    wanted = np.zeros(instance.nodes, np.bool_)
    wanted[nodes] = True
    bits = np.packbits(wanted, bitorder="little")
    columns = 1 if leading else instance.replicas

    def gather(first: int, end: int) -> Found:
        # Room for the most that there can be: what is not written to takes no memory.
        most = (end - first) * columns
        found = np.empty(most, np.int32), np.empty(most, np.int8), np.empty(most, np.int32)
        count = _gather(instance.replica_node, columns, first, end, bits, slot, *found)
        return found[0][:count], found[1][:count], found[2][:count]

    return found_in_chunks(gather, instance.partitions, chunks_of(instance.partitions))


def found_in_chunks(gather: Callable[[int, int], Found], rows: int, chunks: int) -> Found:
    """Join what ``gather(first, end)`` finds in each of `chunks` parts of `rows`, in parallel."""
    bounds = np.linspace(0, rows, chunks + 1).astype(np.int64)
    found: list[Found] = [_NOTHING] * chunks

    def work(chunk: int) -> None:
        found[chunk] = gather(int(bounds[chunk]), int(bounds[chunk + 1]))

    in_threads(work, chunks)
    partition, column, slot = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return partition, column, slot


_NOTHING: Found = np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int32)


def group_by_node(slot: Int32, count: int) -> tuple[Ints, Ints]:
    """Return ([count + 1] where groups of gathered objects begin, the stable order of grouping)."""
    start, place = places(slot, count)
    order = np.empty(len(slot), np.int64)
    order[place] = np.arange(len(slot))
    return start, order


def places(slot: Int32, count: int) -> tuple[Ints, Ints]:
    """Return the place of each gathered object in groups: the inverse of `group_by_node`'s order.

    Writing to it costs less than reading through the order: objects are read in sequence.
    """
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(slot, minlength=count), out=start[1:])
    place = np.empty(len(slot), np.int64)
    _places(slot, start[:-1].copy(), place)
    return start, place


def heaviest_first(values: Float32, start: Ints) -> Ints:
    """Return positions of each group by descending value, equal ones by ascending position.

    `values` [G] are in groups, which begin at `start`; values below 0 count as 0.
    """
    keys = sorted_keys(values, start)
    keys &= np.uint64(0xFFFFFFFF)
    return keys.view(np.int64)


def sorted_keys(values: Float32, start: Ints, front: int | None = None) -> UInt64:
    """Return keys that ascend within each group as values descend; their low half is the position.

    With `front`, only the least so many keys of each group come first, in order.
    """
    # Plain integers are sorted, ten times as fast as by indirection: the high half is the
    # complement of the value's bits (in the order of the values, as these are not negative). Plus
    # 0: a negative zero has its highest bit set.
    keys: UInt64 = np.empty(len(values), np.uint64)

    def work(chunk: int) -> None:
        groups = range(bounds[chunk], bounds[chunk + 1])
        first, end = int(start[groups.start]), int(start[groups.stop])
        part = keys[first:end]
        heavy = np.maximum(values[first:end], np.float32(0)) + np.float32(0)
        np.subtract(np.uint64(0xFFFFFFFF), heavy.view(np.uint32), out=part)
        part <<= np.uint64(32)
        part |= np.arange(first, end, dtype=np.uint64)
        for group in groups:
            mine = keys[start[group] : start[group + 1]]
            if front is not None and len(mine) > front:
                mine.partition(front)
                mine = mine[:front]
            mine.sort()

    chunks = chunks_of(len(values))
    bounds = np.linspace(0, len(start) - 1, chunks + 1).astype(np.int64)
    in_threads(work, chunks)
    return keys


@njit
def _places(slot: Int32, at: Ints, place: Ints) -> None:
    for i in range(len(slot)):
        place[i] = at[slot[i]]
        at[slot[i]] += 1


@njit
def _gather(
    replica_node: Int32,
    columns: int,
    first: int,
    end: int,
    bits: UInt8,
    slot: Int32,
    partition: Int32,
    column: Int8,
    where: Int32,
) -> int:
    count = 0
    for p in range(first, end):
        for k in range(columns):
            n = replica_node[p, k]
            if (bits[n >> 3] >> (n & 7)) & 1:
                partition[count] = p
                column[count] = k
                where[count] = slot[n]
                count += 1
    return count
