"""What Ursa plans for: where every replica is, what it costs in load, and how far nodes are.

An object is one replica of one partition. Column k of `replica_node` is the k-th replica; column 0
is the primary when the instance begins (which column is primary later is `state.State.primary`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Euclidean:
    """Nodes in the plane; the cost of a move is the straight distance (section 5.1, step 2).

    Attributes:
        node_xy: [N, 2], in the unit that costs are told in.
    """

    node_xy: Float32


@dataclass(frozen=True, eq=False)
class Racks:
    """Nodes in racks; the cost of a move depends on the two racks alone.

    Attributes:
        rack: [N], the rack of each node, 0 to R - 1.
        rack_distance: [R, R], cost of a move from rack (row) to rack (column); the diagonal is the
            cost within a rack.
    """

    rack: Int32
    rack_distance: Float32


Distance = Euclidean | Racks


@dataclass(frozen=True, eq=False)
class Instance:
    """One load-balancing problem (definition 1), checked by `io.instance_from` when it was read.

    With loads of D dimensions, D above 1, the three arrays of loads have a column for each; with
    nested fault domains theirs has a column for each level. Only `general` plans for these.

    Attributes:
        replica_node: [P, l] in C order, node of each replica; no node twice in a row.
        primary_load: [P] or [P, D], load of the replica that is primary, at least 0.
        secondary_load: [P] or [P, D], load of each other replica, at least 0.
        capacity: [N] or [N, D], threshold of each node: it is hot when its load is *greater*
            (constraint C1), in any dimension.
        fault_domain: [N] or [N, levels], at least 0, column 0 the outermost; two replicas of a
            partition are never moved into one domain (constraint C2).
        distance: what a move costs.
        dimension: names of the dimensions; empty when they have none.
        group: [P], or None: partitions of one group lie on the same nodes and move together.
        size: [P], bytes of each replica of the partition (`bytes` in the file), or None.
        origin: [P, l], node from which a replica's data is copied when the replica moves; None: its
            own. What a move costs is counted from there. Stores are known where another replica
            sends; only `live` says so.
    """

    replica_node: Int32
    primary_load: Float32
    secondary_load: Float32
    capacity: Float32
    fault_domain: Int32
    distance: Distance
    dimension: tuple[str, ...] = ()
    group: Int32 | None = None
    size: Float32 | None = None
    origin: Int32 | None = None

    @property
    def partitions(self) -> int:
        """P."""
        return int(self.replica_node.shape[0])

    @property
    def replicas(self) -> int:
        """l, replicas of each partition."""
        return int(self.replica_node.shape[1])

    @property
    def nodes(self) -> int:
        """N."""
        return int(self.capacity.shape[0])

    @property
    def dimensions(self) -> int:
        """D, dimensions of the load."""
        return 1 if self.capacity.ndim == 1 else int(self.capacity.shape[1])

    @property
    def levels(self) -> int:
        """Levels of fault domains."""
        return 1 if self.fault_domain.ndim == 1 else int(self.fault_domain.shape[1])

    @property
    def plain(self) -> bool:
        """What the paper's model covers: one dimension, one level, single partitions."""
        return self.dimensions == 1 and self.levels == 1 and self.group is None

    def sender(self, partition: NDArray[np.integer], replica: NDArray[np.integer]) -> Int32:
        """[M], node from which each of these replicas would be copied."""
        nodes = self.replica_node if self.origin is None else self.origin
        found: Int32 = nodes[partition, replica]
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the input arrays."""
        arrays = [self.replica_node, self.primary_load, self.secondary_load, self.capacity]
        arrays += [self.fault_domain, *vars(self.distance).values()]
        arrays += [array for array in (self.group, self.size, self.origin) if array is not None]
        return sum(int(array.nbytes) for array in arrays)
