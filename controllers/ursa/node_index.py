"""Which objects lie on each node, kept from round to round.

The first plan gathers the objects of hot nodes in a pass over all replicas. When plans follow each
other that pass is most of the time, so the lists of all nodes are made once and kept up: objects of
a node side by side, ascending, in a piece of one array that has some places to spare.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import Found, Int8
from controllers.ursa.instance import Instance, Int32
from controllers.ursa.jit import in_threads, njit
from controllers.ursa.state import CHUNKS

Ids = NDArray[np.signedinteger]
Ints = NDArray[np.int64]

Gather = Callable[[Instance, Int32, Int8 | None], Found]
"""What finds objects on nodes: `gather.objects_on`, or `NodeIndex.objects_on`."""

SPARE = 8  # one place to spare for so many objects
SPARE_LEAST = 64


class NodeIndex:
    """Objects by node; an object is ``partition * l + column``.

    Attributes:
        begin: [N], where the objects of a node begin in `ids`.
        count: [N], how many there are.
        ids: objects, ascending within a node.
    """

    def __init__(self, instance: Instance, coming: Int32 | None = None) -> None:
        """One pass that counts and one that writes; `instance.replica_node` is read, not kept.

        `coming`: nodes that objects are about to be put on, each once for every object.
        """
        self._replicas = instance.replicas
        flat = instance.replica_node.ravel()
        self.count: Ints = np.bincount(flat, minlength=instance.nodes).astype(np.int64)
        self._room: Ints = self.count + self.count // SPARE + SPARE_LEAST
        if coming is not None:
            self._room += np.bincount(coming, minlength=instance.nodes)
        self.begin: Ints = np.cumsum(self._room) - self._room
        kind = np.int32 if instance.replica_node.size < 2**31 else np.int64
        self.ids: Ids = np.empty(int(self._room.sum()), kind)
        _write(flat, self.begin.copy(), self.ids)

    def fits(self, move_to: Int32) -> bool:
        """Whether there are places for as many objects on these nodes."""
        coming = np.bincount(move_to, minlength=len(self.count))
        return bool((self.count + coming <= self._room).all())

    def objects_on(self, instance: Instance, nodes: Int32, primaries: Int8 | None = None) -> Found:
        """What `gather.objects_on` finds, node by node instead of partition by partition."""
        chunks = CHUNKS if len(nodes) >= CHUNKS else 1
        bounds = np.linspace(0, len(nodes), chunks + 1).astype(np.int64)
        found: list[Found | None] = [None] * chunks
        columns = np.zeros(0, np.int8) if primaries is None else primaries

        def work(chunk: int) -> None:
            mine = nodes[bounds[chunk] : bounds[chunk + 1]]
            most = int(self.count[mine].sum())
            partition = np.empty(most, np.int32)
            column = np.empty(most, np.int8)
            slot = np.empty(most, np.int32)
            count = _read(
                mine,
                int(bounds[chunk]),
                self.begin,
                self.count,
                self.ids,
                self._replicas,
                columns,
                partition,
                column,
                slot,
            )
            found[chunk] = (partition[:count], column[:count], slot[:count])

        in_threads(work, chunks)
        parts = [part for part in found if part is not None]
        return (
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
            np.concatenate([part[2] for part in parts]),
        )


@njit
def _write(flat: Int32, at: Ints, ids: Ids) -> None:
    for i in range(len(flat)):
        node = flat[i]
        ids[at[node]] = i
        at[node] += 1


@njit
def _read(
    nodes: Int32,
    first_slot: int,
    begin: Ints,
    count: Ints,
    ids: Ids,
    replicas: int,
    primaries: Int8,
    partition: Int32,
    column: Int8,
    slot: Int32,
) -> int:
    """Write the objects of `nodes`; with `primaries` those that are the primary alone."""
    found = 0
    for h in range(len(nodes)):
        node = nodes[h]
        for at in range(begin[node], begin[node] + count[node]):
            p = ids[at] // replicas
            k = ids[at] - p * replicas
            if len(primaries) and primaries[p] != k:
                continue
            partition[found] = p
            column[found] = k
            slot[found] = first_slot + h
            found += 1
    return found


@njit
def find(begin: Ints, count: Ints, ids: Ids, replicas: int, node: int, partition: int) -> int:
    """Where the objects of `node` from `partition` on begin in `ids` (one at most is of it)."""
    low, high = begin[node], begin[node] + count[node]
    wanted = partition * replicas
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return int(low)


@njit
def remove(begin: Ints, count: Ints, ids: Ids, replicas: int, node: int, partition: int) -> None:
    """Take the object of `partition` off `node`."""
    at = find(begin, count, ids, replicas, node, partition)
    count[node] -= 1
    for i in range(at, begin[node] + count[node]):
        ids[i] = ids[i + 1]


@njit
def insert(
    begin: Ints, count: Ints, ids: Ids, replicas: int, node: int, partition: int, column: int
) -> None:
    """Put an object on `node`, where there is a place to spare."""
    at = find(begin, count, ids, replicas, node, partition)
    for i in range(begin[node] + count[node], at, -1):
        ids[i] = ids[i - 1]
    ids[at] = partition * replicas + column
    count[node] += 1
