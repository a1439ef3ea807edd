"""HtoC and SA, the baselines of section 5.1.

**HtoC**, hottest to coldest, after Kunkle and Schindler: "Iteratively eliminates hot-spots until no
hot-spots exist by moving the hottest objects in a hot-spot node into the coldest node." Nodes are
ordered by load over threshold. The objects are highest-load-first, as for ALP; one that fits
nowhere stays, and the node's next ones are tried.

**SA**, simulated annealing: "SA randomly moves the objects into other nodes to minimize the load
variance", with "eight parameters to tune", at most 10K migrations and 30 minutes. The paper names
two of the eight. The other six are ours and tuned by random search on instances that no campaign
uses (docs/ursa.md), for what favours SA most: the least cost at which it leaves no node hot and
loads that deviate no more than after ALP-fast.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.jit import njit
from controllers.ursa.instance import Float64, Instance, Int32, between
from controllers.ursa.methods import MethodRequest
from controllers.ursa.select import Result, moves_of
from controllers.ursa.state import PlanState, group_by_node, object_load, objects_on


def htoc(instance: Instance, state: PlanState, request: MethodRequest) -> Result:
    """Return the moves, from the hottest node on; a mover, see `controllers.ursa.methods`."""
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
    return moves_of(instance, state, *table.T.astype(np.int32)), None, {}


class _Cold:
    """The nodes that are not hot, the coldest first, and where replicas are by now."""

    def __init__(self, instance: Instance, state: PlanState, reach: float | None) -> None:
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
        """Let a node take part (again) if it is not hot."""
        if self.load[node] <= self._capacity[node]:
            ratio = float(self.load[node] / self._capacity[node]) if self._capacity[node] else 1.0
            heapq.heappush(self._heap, (ratio, node))

    def _domains(self, partition: int, replica: int) -> set[int]:
        """Return the fault domains of the partition's other replicas, at old and new places."""
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


BLOCK = 1 << 14


@dataclass(frozen=True)
class Annealing:
    """Seven of the eight parameters; the eighth, 30 minutes, is what `--time-limit 1800` gives.

    Attributes:
        hot_share: part of the proposals that take an object from a hot node; the others take any.
        start_accept: chance of accepting the average worsening at the start; sets the temperature.
        cooling: factor on the temperature after each step.
        step_proposals: proposals at one temperature, but at most 20 an object.
        end_temperature: stop below this part of the first temperature.
        patience: stop after this many proposals without one accepted.
        max_migrations: stop after this number of accepted moves (the paper: 10K).
    """

    hot_share: float = 0.98
    start_accept: float = 0.25
    cooling: float = 0.9
    step_proposals: int = 1 << 10
    end_temperature: float = 2.5e-3
    patience: int = 5 << 14
    max_migrations: int = 10_000


def sa(instance: Instance, state: PlanState, request: MethodRequest) -> Result:
    """Return annealing's moves with usual parameters; a mover, see `controllers.ursa.methods`."""
    return anneal(instance, state, request, Annealing())


def anneal(
    instance: Instance, state: PlanState, request: MethodRequest, chosen: Annealing
) -> Result:
    """Move objects at random to lower the variance of the nodes' loads.

    No proposal is taken that breaks C2, makes a node hot or costs more than allowed. An object may
    move several times: its migration is from where it was at first to where it ends.
    """
    walk = _ProposalWalk(instance, state, request)
    temperature = walk.first_temperature(chosen.start_accept)
    lowest = temperature * chosen.end_temperature
    proposals = min(chosen.step_proposals, 20 * instance.replica_node.size)
    quiet = 0
    while temperature > lowest and quiet < chosen.patience:
        if walk.accepted >= chosen.max_migrations or request.timer.left() <= 0:
            break
        before = walk.accepted
        with request.timer.phase("place.anneal"):
            for block in _blocks(proposals):
                walk.step(block, chosen.hot_share, temperature, chosen.max_migrations)
        quiet = 0 if walk.accepted > before else quiet + proposals
        temperature *= chosen.cooling
    return walk.result()


def _blocks(proposals: int) -> list[int]:
    return [min(BLOCK, proposals - done) for done in range(0, proposals, BLOCK)]


class _ProposalWalk:
    """Places of the objects, and the proposals drawn for them."""

    def __init__(self, instance: Instance, state: PlanState, request: MethodRequest) -> None:
        self._instance = instance
        self._state = state
        self._rng = np.random.Generator(np.random.PCG64(request.seed))
        self._reach = np.inf if request.max_move_cost is None else request.max_move_cost
        self._place = instance.replica_node.copy()
        self._load = state.load.copy()
        hot = state.hot(instance)
        self._on_hot = np.flatnonzero(hot[instance.replica_node.ravel()])
        self.accepted = 0

    def first_temperature(self, accept: float) -> float:
        """Return the temperature at which the average worsening is accepted with that chance."""
        objects, targets, _ = self._draw(BLOCK, 0.0)
        if not len(objects):
            return 0.0
        worse = self._change(objects, targets)
        worse = worse[worse > 0]
        return float(worse.mean() / -np.log(accept)) if len(worse) else 1.0

    def step(self, proposals: int, hot_share: float, temperature: float, most: int) -> None:
        """Draw proposals and take those that are allowed and accepted."""
        objects, targets, chance = self._draw(proposals, hot_share)
        near = np.ones(len(objects), dtype=np.bool_)
        if self._reach != np.inf:
            sender = self._instance.sender(*np.divmod(objects, self._instance.replicas))
            near = between(self._instance.distance, sender, targets) <= self._reach
        self.accepted = _walk_on(
            objects[near],
            targets[near],
            -np.log(chance[near]) * temperature,
            self._place,
            self._state.primary,
            self._instance.primary_load,
            self._instance.secondary_load,
            self._instance.capacity,
            self._instance.fault_domain,
            self._load,
            self.accepted,
            most,
        )

    def result(self) -> Result:
        """Return the objects that have moved, compared with the beginning."""
        partition, replica = np.nonzero(self._place != self._instance.replica_node)
        to = self._place[partition, replica]
        moves = moves_of(
            self._instance, self._state, partition.astype(np.int32), replica.astype(np.int8), to
        )
        return moves, None, {"accepted": self.accepted}

    def _draw(
        self, count: int, hot_share: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Float64]:
        everything = self._instance.replica_node.size
        if not everything:
            count = 0
        objects = self._rng.integers(max(everything, 1), size=count)
        if len(self._on_hot):
            from_hot = self._rng.random(count) < hot_share
            at = self._rng.integers(len(self._on_hot), size=count)
            objects = np.where(from_hot, self._on_hot[at], objects)
        targets = self._rng.integers(self._instance.nodes, size=count)
        return objects, targets, 1.0 - self._rng.random(count)

    def _change(self, objects: NDArray[np.int64], targets: NDArray[np.int64]) -> Float64:
        """Return the change of the sum of squared loads by each proposal alone."""
        partition, replica = np.divmod(objects, self._instance.replicas)
        primary = self._state.primary[partition] == replica
        load = np.where(
            primary,
            self._instance.primary_load[partition],
            self._instance.secondary_load[partition],
        ).astype(np.float64)
        source = self._place[partition, replica]
        return 2 * load * (self._load[targets] - self._load[source] + load)


@njit
def _walk_on(
    objects: NDArray[np.int64],
    targets: NDArray[np.int64],
    tolerated: Float64,
    place: Int32,
    primary: NDArray[np.int8],
    primary_load: NDArray[np.float32],
    secondary_load: NDArray[np.float32],
    capacity: NDArray[np.float32],
    domain: Int32,
    load: Float64,
    accepted: int,
    most: int,
) -> int:
    replicas = place.shape[1]
    for at in range(len(objects)):
        if accepted >= most:
            break
        partition, replica = objects[at] // replicas, objects[at] % replicas
        source, target = place[partition, replica], targets[at]
        weight = float(
            primary_load[partition] if primary[partition] == replica else secondary_load[partition]
        )
        if source == target or weight <= 0 or load[target] + weight > capacity[target]:
            continue
        # Metropolis: the sum of squares may grow by less than -T ln(u).
        if 2 * weight * (load[target] - load[source] + weight) >= tolerated[at]:
            continue
        apart = True
        for other in range(replicas):
            if other != replica and domain[place[partition, other]] == domain[target]:
                apart = False
        if apart:
            load[source] -= weight
            load[target] += weight
            place[partition, replica] = target
            accepted += 1
    return accepted
