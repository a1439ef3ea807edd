"""The objects on a few nodes, out of all replicas: one pass, in parallel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float32, Instance, Int32
from controllers.ursa.jit import in_threads, njit
from controllers.ursa.state import chunks_of

Int8 = NDArray[np.int8]
UInt8 = NDArray[np.uint8]
UInt64 = NDArray[np.uint64]
Found = tuple[Int32, Int8, Int32]


def objects_on(instance: Instance, nodes: Int32, primaries: Int8 | None = None) -> Found:
    """Objects that lie on the given nodes.

    Args:
        instance: where replicas are.
        nodes: distinct ids.
        primaries: [P], the column to look at; None for every column.

    Returns:
        Partition, column, and index into `nodes` of each object, by ascending partition.
    """
    slot = np.zeros(instance.nodes, np.int32)
    slot[nodes] = np.arange(len(nodes), dtype=np.int32)
    # A bit a node stays in the fastest cache where a slot a node does not.
    wanted = np.zeros(instance.nodes, np.bool_)
    wanted[nodes] = True
    bits = np.packbits(wanted, bitorder="little")
    partitions = instance.partitions
    chunks = chunks_of(partitions)
    bounds = np.linspace(0, partitions, chunks + 1).astype(np.int64)
    found: list[Found | None] = [None] * chunks

    def work(chunk: int) -> None:
        first, end = int(bounds[chunk]), int(bounds[chunk + 1])
        columns = instance.replicas if primaries is None else 1
        # Room for the most that there can be: what is not written to takes no memory.
        most = (end - first) * columns
        partition, column, where = (
            np.empty(most, np.int32),
            np.empty(most, np.int8),
            np.empty(most, np.int32),
        )
        if primaries is None:
            count = _gather(instance.replica_node, first, end, bits, slot, partition, column, where)
        else:
            count = _gather_primaries(
                instance.replica_node, primaries, first, end, bits, slot, partition, column, where
            )
        found[chunk] = (partition[:count], column[:count], where[:count])

    in_threads(work, chunks)
    parts = [part for part in found if part is not None]
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
    )


def group_by_node(slot: Int32, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bring what is gathered into groups.

    Returns:
        [count + 1] where each group starts, and the order that groups it, stable within each.
    """
    start = _starts(slot, count)
    order = np.empty(len(slot), np.int64)
    _counting_sort(slot, start[:-1].copy(), order)
    return start, order


def places(slot: Int32, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each thing gathered goes when groups are made: the inverse of `group_by_node`'s order.

    Writing to it costs less than reading through the order: it fills `count` places at a time, one
    after the other, while what is read comes as it lies.
    """
    start = _starts(slot, count)
    place = np.empty(len(slot), np.int64)
    _places(slot, start[:-1].copy(), place)
    return start, place


def heaviest_first(values: Float32, start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of each group by descending value, equal ones by ascending position.

    Args:
        values: [G], float32, already in groups; what is below 0 counts as 0.
        start: where groups start, as from `group_by_node`.
    """
    # Plain integers are sorted, ten times as fast as by indirection: the high half is the
    # complement of the value's bits (in the order of the values, as these are not negative), the
    # low half the position. Plus 0: a negative zero has its highest bit set.
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
            keys[start[group] : start[group + 1]].sort()
        part &= np.uint64(0xFFFFFFFF)

    chunks = chunks_of(len(values))
    bounds = np.linspace(0, len(start) - 1, chunks + 1).astype(np.int64)
    in_threads(work, chunks)
    return keys.view(np.int64)


def _starts(slot: Int32, count: int) -> NDArray[np.int64]:
    """[count + 1], where each group starts."""
    start = np.zeros(count + 1, np.int64)
    _count(slot, start[1:])
    return np.cumsum(start)


@njit
def _count(slot: Int32, number: NDArray[np.int64]) -> None:
    for i in range(len(slot)):
        number[slot[i]] += 1


@njit
def _places(slot: Int32, at: NDArray[np.int64], place: NDArray[np.int64]) -> None:
    for i in range(len(slot)):
        place[i] = at[slot[i]]
        at[slot[i]] += 1


@njit
def _counting_sort(slot: Int32, at: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    for i in range(len(slot)):
        order[at[slot[i]]] = i
        at[slot[i]] += 1


@njit
def _gather(
    replica_node: Int32,
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
        for k in range(replica_node.shape[1]):
            n = replica_node[p, k]
            if (bits[n >> 3] >> (n & 7)) & 1:
                partition[count] = p
                column[count] = k
                where[count] = slot[n]
                count += 1
    return count


@njit
def _gather_primaries(
    replica_node: Int32,
    primaries: Int8,
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
        k = primaries[p]
        n = replica_node[p, k]
        if (bits[n >> 3] >> (n & 7)) & 1:
            partition[count] = p
            column[count] = k
            where[count] = slot[n]
            count += 1
    return count
