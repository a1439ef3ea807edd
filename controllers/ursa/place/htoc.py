"""HtoC, hottest to coldest: the baseline of section 5.1, after Kunkle and Schindler.

"Iteratively eliminates hot-spots until no hot-spots exist by moving the hottest objects in a
hot-spot node into the coldest node." Hot and cold are told by load over threshold. The objects are
highest-load-first, as for ALP; one that fits nowhere stays, and the node's next ones are tried.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.distance import between
from controllers.ursa.gather import group_by_node, objects_on
from controllers.ursa.instance import Float64, Instance
from controllers.ursa.methods import Request
from controllers.ursa.results import Moves
from controllers.ursa.state import State, object_load


def moves(instance: Instance, state: State, request: Request) -> Moves:
    """The moves, from the hottest node on; a mover, see `controllers.ursa.methods`."""
    hot = np.flatnonzero(state.hot(instance)).astype(np.int32)
    partition, replica, slot = objects_on(instance, hot)
    load = object_load(instance, state, partition, replica)
    start, order = group_by_node(slot, len(hot))
    made: list[tuple[int, int, int]] = []
    cold = _Cold(instance, state, request.max_move_cost)
    heat = _ratio(state.load, instance.capacity)
    for index in np.lexsort((hot, -heat[hot])):
        if request.timer.left() <= 0:
            break
        mine = order[start[index] : start[index + 1]]
        mine = mine[load[mine] > 0]
        mine = mine[np.lexsort((mine, -load[mine]))]
        source = int(hot[index])
        for at in mine:
            if cold.load[source] <= instance.capacity[source]:
                break
            to = cold.take(int(partition[at]), int(replica[at]), source, float(load[at]))
            if to >= 0:
                made.append((int(partition[at]), int(replica[at]), to))
        cold.offer(source)
    table = np.array(made, dtype=np.int64).reshape(-1, 3)
    return Moves(
        table[:, 0].astype(np.int32), table[:, 1].astype(np.int8), table[:, 2].astype(np.int32)
    )


class _Cold:
    """The nodes that are not hot, the coldest first, and where replicas are by now."""

    def __init__(self, instance: Instance, state: State, reach: float | None) -> None:
        self.load = state.load.copy()
        self._instance = instance
        self._reach = reach
        self._moved: dict[tuple[int, int], int] = {}
        self._capacity = instance.capacity.astype(np.float64)
        nodes = np.flatnonzero(~state.hot(instance))
        ratio = _ratio(state.load, instance.capacity)
        self._heap = [(float(ratio[j]), int(j)) for j in nodes]
        heapq.heapify(self._heap)
        # What the roomiest node had at first: nothing that weighs more needs to be tried.
        self._most = float((self._capacity - state.load)[nodes].max(initial=-1.0))

    def take(self, partition: int, replica: int, source: int, load: float) -> int:
        """Put an object on the coldest node that may take it; -1 when there is none."""
        if load > self._most:
            return -1
        taken = self._domains(partition, replica)
        passed, found = [], -1
        while self._heap:
            entry = heapq.heappop(self._heap)
            j = entry[1]
            if (
                self.load[j] + load <= self._capacity[j]
                and int(self._instance.fault_domain[j]) not in taken
                and self._near(partition, replica, j)
            ):
                found = j
                break
            passed.append(entry)
        for entry in passed:
            heapq.heappush(self._heap, entry)
        if found >= 0:
            self.load[found] += load
            self.load[source] -= load
            self._moved[partition, replica] = found
            self.offer(found)
        return found

    def offer(self, node: int) -> None:
        """Let a node take part (again) when it is not hot."""
        if self.load[node] <= self._capacity[node]:
            ratio = float(self.load[node] / self._capacity[node]) if self._capacity[node] else 1.0
            heapq.heappush(self._heap, (ratio, node))

    def _domains(self, partition: int, replica: int) -> set[int]:
        """Fault domains of the partition's other replicas, where they were and where they went."""
        nodes = set()
        for column, node in enumerate(self._instance.replica_node[partition]):
            if column != replica:
                nodes |= {int(node), self._moved.get((partition, column), int(node))}
        return {int(self._instance.fault_domain[node]) for node in nodes}

    def _near(self, partition: int, replica: int, node: int) -> bool:
        if self._reach is None:
            return True
        sender = self._instance.sender(np.array([partition]), np.array([replica]))
        cost = between(self._instance.distance, sender, np.array([node]))
        return float(cost[0]) <= self._reach


def _ratio(load: Float64, capacity: NDArray[np.float32]) -> Float64:
    """Load over threshold; infinite for a load on a node of threshold 0, 1 for none on it."""
    ratio = np.full(len(load), np.inf)
    ratio[load <= 0] = 1.0
    has = capacity > 0
    ratio[has] = load[has] / capacity[has]
    return ratio
