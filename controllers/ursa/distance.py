"""What a move between nodes costs, and which nodes are nearest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Distance, Euclidean, Float64, Int32, Racks


def between(distance: Distance, source: NDArray[np.integer], to: NDArray[np.integer]) -> Float64:
    """Cost of moving one object from node `source` to node `to`; the arrays broadcast."""
    if isinstance(distance, Euclidean):
        first = distance.node_xy[source].astype(np.float64)
        second = distance.node_xy[to].astype(np.float64)
        # Not numpy.hypot: the plain formula is what a reader would check a cost with.
        return np.asarray(np.sqrt(((first - second) ** 2).sum(axis=-1)))
    cost = distance.rack_distance[distance.rack[source], distance.rack[to]]
    return np.asarray(cost, dtype=np.float64)


class Nearest:
    """The nearest of some candidate nodes, for many sources at once.

    Built once for a set of candidates (such as the cold nodes), asked as often as needed with a
    growing `k`: what came first for a smaller `k` comes first again.

    Args:
        distance: of the instance.
        candidates: ids of nodes, ascending.
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
        """The `k` nearest candidates of each source, nearest first.

        A source that is a candidate itself finds itself too. Between nodes that are equally far
        the order is arbitrary but always the same.

        Returns:
            Node ids [S, k'] and costs [S, k'] with k' = min(k, number of candidates).
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
        """For each source the candidates that cost at most `radius`, ascending by id."""
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
