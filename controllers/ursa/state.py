"""Loads of nodes, and which replica of each partition is primary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.jit import in_threads, njit

# Fixed, not the number of processors: sums of floats depend on how they are split.
CHUNKS = 8
SMALL = 1 << 16


@dataclass(eq=False)
class State:
    """What changes while a plan is made; phases change it in place.

    Attributes:
        primary: [P] int8, the column of `replica_node` that is primary now.
        load: [N], float32 loads summed in float64.
    """

    primary: NDArray[np.int8]
    load: Float64

    def hot(self, instance: Instance) -> NDArray[np.bool_]:
        """[N], nodes above their threshold."""
        return self.load > instance.capacity

    def copy(self) -> State:
        """One that can be changed on its own."""
        return State(self.primary.copy(), self.load.copy())


def chunks_of(rows: int) -> int:
    """Into how many parts work on so many rows is split, whatever the machine."""
    return 1 if rows < SMALL else CHUNKS


def initial_state(instance: Instance) -> State:
    """Column 0 is primary everywhere; loads in one pass over the replicas, in parallel."""
    partitions, nodes = instance.partitions, instance.nodes
    chunks = chunks_of(partitions)
    partial = np.zeros((chunks, nodes))
    bounds = np.linspace(0, partitions, chunks + 1).astype(np.int64)

    def work(chunk: int) -> None:
        _add_loads(
            instance.replica_node,
            instance.primary_load,
            instance.secondary_load,
            bounds[chunk],
            bounds[chunk + 1],
            partial[chunk],
        )

    in_threads(work, chunks)
    return State(np.zeros(partitions, dtype=np.int8), partial.sum(axis=0))


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


def object_load(
    instance: Instance, state: State, partition: Int32, replica: NDArray[np.integer]
) -> Float64:
    """[M], the load of objects in their present role."""
    is_primary = state.primary[partition] == replica
    loads = np.where(
        is_primary, instance.primary_load[partition], instance.secondary_load[partition]
    )
    return loads.astype(np.float64)
