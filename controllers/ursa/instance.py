"""The load-balancing problem, distances, and the results that the phases hand to each other.

An object is one replica of one partition. Column k of `replica_node` is the k-th replica; column 0
is the primary when the instance begins (which column is primary later is `state.State.primary`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Euclidean:
    """Nodes in the plane, `node_xy` [N, 2]; a move costs the straight distance (section 5.1)."""

    node_xy: Float32


@dataclass(frozen=True, eq=False)
class Racks:
    """Nodes in racks, `rack` [N]; a move costs `rack_distance` [R, R] from rack (row) to rack
    (column), and the diagonal within a rack.
    """

    rack: Int32
    rack_distance: Float32


Distance = Euclidean | Racks


@dataclass(frozen=True, eq=False)
class Instance:
    """One load-balancing problem (definition 1), checked by `io.instance_from` when it was read.

    With loads of D > 1 dimensions and nested fault domains arrays have a column for each.

    Attributes:
        replica_node: [P, l] in C order, node of each replica; no node twice in a row.
        primary_load, secondary_load: [P] or [P, D], load of the primary and of each other replica.
        capacity: [N] or [N, D]; a node is hot when its load is *greater* in any dimension (C1).
        fault_domain: [N] or [N, levels], column 0 the outermost; two replicas of a partition are
            never moved into one domain (C2).
        distance: cost of a move.
        dimension: names of the dimensions; empty when they have none.
        group: [P], or None: partitions of one group are on the same nodes and move together.
        size: [P], bytes of each replica of the partition (`bytes` in the file), or None.
        origin: [P, l], node that sends a replica's data, from which a move's cost counts; None: its
            own. In some stores another replica sends; only `live` knows that.
        partition_names, node_names: [P] and [N] names for people; empty: the numbers are the names.
        load_unit: unit of loads for people, if it is known.
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
    partition_names: Sequence[str] = ()
    node_names: Sequence[str] = ()
    load_unit: str = ""

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
        """True for the paper's model: one dimension, one level, single partitions."""
        return self.dimensions == 1 and self.levels == 1 and self.group is None

    def levels_apart(self) -> Int32:
        """Return [N, levels], fault domains from the outermost on that keep replicas apart in a
        placement: in the paper's model its one level, else the node itself is the last one."""
        return self.fault_domain[:, None] if self.plain else nested_domains(self)

    def members_of(self, partition: NDArray[np.integer]) -> Float64:
        """Return [M], number of partitions that move with each of these."""
        return np.ones(len(partition))

    def sender(self, partition: NDArray[np.integer], replica: NDArray[np.integer]) -> Int32:
        """Return [M], node from which each of these replicas would be copied."""
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


def nested_domains(instance: Instance) -> Int32:
    """Return [N, levels + 1], fault domains from the outermost on, the node itself last."""
    nodes = np.arange(instance.nodes, dtype=np.int32)
    return np.column_stack([instance.fault_domain, nodes]).astype(np.int32)


def between(distance: Distance, source: NDArray[np.integer], to: NDArray[np.integer]) -> Float64:
    """Return cost of moving one object from node `source` to node `to`; the arrays broadcast."""
    if isinstance(distance, Euclidean):
        first = distance.node_xy[source].astype(np.float64)
        second = distance.node_xy[to].astype(np.float64)
        # Not numpy.hypot: a reader would check a cost with the plain formula.
        return np.asarray(np.sqrt(((first - second) ** 2).sum(axis=-1)))
    cost = distance.rack_distance[distance.rack[source], distance.rack[to]]
    return np.asarray(cost, dtype=np.float64)


class Nearest:
    """The nearest of some candidate nodes (ids ascending), for many sources at once.

    What comes first for a small `k` comes first again for a larger one.
    """

    def __init__(self, distance: Distance, candidates: Int32) -> None:
        self._distance = distance
        self.candidates = np.ascontiguousarray(candidates, dtype=np.int32)
        if isinstance(distance, Euclidean):
            from scipy.spatial import cKDTree

            points = distance.node_xy[self.candidates].astype(np.float64)
            # Built quickly: trees are many, and asked for few nodes each.
            quick = {"balanced_tree": False, "compact_nodes": False}
            self._tree = cKDTree(points, **quick) if len(points) else None
        else:
            racks = distance.rack[self.candidates]
            self._by_rack = self.candidates[np.argsort(racks, kind="stable")]
            self._count = np.bincount(racks, minlength=len(distance.rack_distance))
            self._start = np.concatenate(([0], np.cumsum(self._count)))

    def __len__(self) -> int:
        return len(self.candidates)

    def query(self, sources: Int32, k: int) -> tuple[Int32, Float64]:
        """Return ([S, k] ids, [S, k] costs) of the `k` nearest candidates; all if there are fewer.

        A source that is a candidate itself finds itself too. Between nodes that are equally far the
        order is arbitrary but always the same.
        """
        k = min(k, len(self.candidates))
        if k == 0 or len(sources) == 0:
            return np.empty((len(sources), k), np.int32), np.empty((len(sources), k))
        if isinstance(self._distance, Euclidean):
            assert self._tree is not None
            points = self._distance.node_xy[sources].astype(np.float64)
            _, found = self._tree.query(points, k=np.arange(1, k + 1))
            nodes = self.candidates[found]
        else:
            nodes = self._by_racks(self._distance, sources, k)
        return nodes, between(self._distance, np.asarray(sources)[:, None], nodes)

    def within(self, sources: Int32, radius: float) -> list[Int32]:
        """Return, for each source, the candidates that cost at most `radius`, ascending by id."""
        if len(self.candidates) == 0 or len(sources) == 0:
            return [np.empty(0, np.int32) for _ in range(len(sources))]
        if isinstance(self._distance, Euclidean):
            assert self._tree is not None
            points = self._distance.node_xy[sources].astype(np.float64)
            # A little more than asked for, then the formula of `between` decides.
            found = self._tree.query_ball_point(points, radius * (1 + 1e-9), return_sorted=True)
            several = [self.candidates[np.asarray(rows, dtype=np.int64)] for rows in found]
        else:
            table = self._distance.rack_distance
            several = []
            for source in sources:
                near = np.flatnonzero(table[self._distance.rack[source]] <= radius)
                parts = [self._by_rack[self._start[r] : self._start[r + 1]] for r in near]
                several.append(np.sort(np.concatenate([np.empty(0, np.int32), *parts])))
        return [
            nodes[between(self._distance, np.asarray(source), nodes) <= radius]
            for source, nodes in zip(sources, several, strict=True)
        ]

    def _by_racks(self, distance: Racks, sources: Int32, k: int) -> Int32:
        racks, inverse = np.unique(distance.rack[sources], return_inverse=True)
        rows = np.empty((len(racks), k), np.int32)
        for row, rack in enumerate(racks):
            order = np.argsort(distance.rack_distance[rack], kind="stable")
            ends = np.cumsum(self._count[order])
            order = order[: int(np.searchsorted(ends, k)) + 1]
            parts = [self._by_rack[self._start[r] : self._start[r + 1]] for r in order]
            rows[row] = np.concatenate(parts)[:k]
        return rows[inverse]


UNPLACED = -1


class Timer:
    """Seconds of each phase and the rest of the time limit, on the clock that is given.

    Algorithms read no clock but this one, which stands still in tests. A phase within a phase is
    named with a dot, such as ``place.lp``, and is not counted twice.
    """

    def __init__(self, clock: Callable[[], float], limit_s: float | None = None) -> None:
        self._clock = clock
        self._start = clock()
        self._limit_s = limit_s
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to phase `name`."""
        start = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - start

    def total(self) -> float:
        """Return seconds of all phases."""
        return sum(seconds for name, seconds in self.seconds.items() if "." not in name)

    def left(self) -> float:
        """Return seconds left (0 when over); infinite without a limit."""
        if self._limit_s is None:
            return float("inf")
        return max(0.0, self._limit_s - (self._clock() - self._start))


@dataclass(frozen=True, eq=False)
class Selection:
    """Objects that leave nodes which swaps left hot (phase 1 of section 3.2), grouped by node.

    [M] partition, replica (the column), present node, and load in its present role.
    """

    partition: Int32
    replica: NDArray[np.int8]
    node: Int32
    load: Float64

    def __len__(self) -> int:
        return len(self.partition)


@dataclass(frozen=True, eq=False)
class SelectionTargets:
    """Targets `move_to` [M] of a selection, UNPLACED where there is none.

    `lower_bound` is the certified least cost of placing *all* of it, None without a proof; `notes`
    are facts about the method for the summary.
    """

    move_to: Int32
    lower_bound: float | None = None
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves that are possible, or that were decided, in an order of application.

    [M] object (``partition * l + replica``), nodes, load ([M, D] with several dimensions), cost.
    """

    object: NDArray[np.int64]
    source: Int32
    to: Int32
    load: Float64
    cost: Float64

    @classmethod
    def none(cls, load: Float64) -> Moves:
        """Return no moves; `load` [N] or [N, D] says in how many dimensions."""
        nowhere = np.empty(0, np.int32)
        return cls(np.empty(0, np.int64), nowhere, nowhere, load[:0], np.empty(0))

    def __len__(self) -> int:
        return len(self.object)

    def where(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> Moves:
        """Return the moves that `keep` picks, in its order."""
        return Moves(*(value[keep] for value in vars(self).values()))

    def __add__(self, other: Moves) -> Moves:
        mine, others = vars(self).values(), vars(other).values()
        return Moves(*(np.concatenate(pair) for pair in zip(mine, others, strict=True)))

    def load_after(self, load: Float64) -> Float64:
        """Return [N] or [N, D], the loads once all of these moves are done, one after the other."""
        after = load.copy()
        np.subtract.at(after, self.source, self.load)
        np.add.at(after, self.to, self.load)
        return after


@dataclass(frozen=True)
class RoundBudget:
    """Limits of one round, None for no limit; swaps move nothing and are free.

    `max_moves` replicas, `size` bytes, `node_size` bytes that leave any one node and that come to
    it; a plan has at most `rounds` rounds.
    """

    max_moves: int | None = None
    size: float | None = None
    node_size: float | None = None
    rounds: int = 1


@dataclass(frozen=True, eq=False)
class MigrationPlan:
    """Swaps, then moves, both in the order of application.

    Attributes:
        swap_partition, swap_replica: [S], `swap_replica` is the column that becomes primary.
        move_partition, move_replica, move_to: [M].
        still_hot: nodes that the plan leaves hot, ascending.
        summary: the JSON of `hotbed ursa plan`; empty for a plan read from a file.
        move_round, budget: [M] ascending from 0, and its limits; None where nothing limits moves.
    """

    swap_partition: Int32
    swap_replica: Int32
    move_partition: Int32
    move_replica: Int32
    move_to: Int32
    still_hot: Int32
    summary: dict[str, object] = field(default_factory=dict)
    move_round: Int32 | None = None
    budget: RoundBudget | None = None
