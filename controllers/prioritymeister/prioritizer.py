"""Priorities at each stage: the greedy prioritizer (4.3) and its fit to few levels (4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.system import System

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HOPELESS = 1e12  # replaces an infinite latency in sums


@dataclass(frozen=True)
class Stop:
    """Workload at one stage: the system of queues, and its flow there."""

    stage: str
    system: int
    flow: int


@dataclass(frozen=True)
class Goal:
    """SLO of a workload: `slo_s` seconds, with `spent_s` gone beforehand.

    `spent_s` is 0 for a latency. For a throughput SLO (the time in which a whole trace must be
    done, section 3.2) it is the trace's length: the last request arrives that late.
    """

    slo_s: float
    stops: tuple[Stop, ...]
    spent_s: float = 0.0


@dataclass
class Order:
    """Ranks of flows in each system: of two flows, the one with the lower rank goes first.

    `met` is True for each workload that met its SLO when its last stage was decided.
    """

    ranks: list[Integers]
    met: Mask


def prioritize(
    systems: Sequence[System], goals: Sequence[Goal], *, blocking: bool = False
) -> Order:
    """Run the greedy algorithm of section 4.3, from the lowest priority up.

    A workload that meets its SLO below all undecided ones takes the lowest priority: the order of
    the others above does not matter to it. If there is none, the workload that misses its SLO by
    least takes the lowest priority at the stage where this costs it least, and keeps its chance at
    its other stages. `blocking` chooses the bound to compare SLOs with, see `System.bound`.
    """
    undecided = [np.ones(len(system.flows), np.bool_) for system in systems]
    ranks = [np.zeros(len(system.flows), np.int64) for system in systems]
    affected = [system.affected() for system in systems]
    owner = {(s.system, s.flow): w for w, goal in enumerate(goals) for s in goal.stops}
    latency: dict[Stop, float] = {}  # as decided, or when lowest of the undecided
    met = np.zeros(len(goals), np.bool_)
    step = sum(len(goal.stops) for goal in goals)
    # Loose SLOs first: a workload that can wait longest most likely goes last.
    todo = sorted(range(len(goals)), key=lambda w: goals[w].slo_s - goals[w].spent_s)
    failed: set[int] = set()

    def is_open(stop: Stop) -> bool:
        return bool(undecided[stop.system][stop.flow])

    def settle(stop: Stop) -> None:
        """Give a stop the lowest priority; the flows that gain may now meet their SLOs."""
        nonlocal step
        step -= 1
        undecided[stop.system][stop.flow] = False
        ranks[stop.system][stop.flow] = step
        for flow in affected[stop.system][stop.flow]:
            w = owner[stop.system, flow]
            for other in goals[w].stops:
                if (other.system, other.flow) == (stop.system, flow) and is_open(other):
                    latency.pop(other, None)
                    if w in failed:
                        failed.remove(w)
                        todo.append(w)

    while todo or failed:
        if todo:
            w = todo.pop()
            for stop in goals[w].stops:
                if stop not in latency:
                    system, others = systems[stop.system], undecided[stop.system]
                    latency[stop] = system.bound(stop.flow, others, blocking=blocking)
            if _violation(goals[w], latency) > 0:
                failed.add(w)
                continue
            met[w] = True
            for stop in goals[w].stops[::-1]:
                if is_open(stop):
                    settle(stop)
            continue
        w = min(failed, key=lambda k: (_violation(goals[k], latency), k))
        open_stops = [stop for stop in goals[w].stops if is_open(stop)]
        if len(open_stops) == 1:
            failed.remove(w)
        settle(min(open_stops, key=lambda stop: latency[stop]))
    return Order(ranks, met)


def _violation(goal: Goal, latencies: dict[Stop, float]) -> float:
    return goal.spent_s + sum(min(latencies[s], _HOPELESS) for s in goal.stops) - goal.slo_s


def levels(
    system: System,
    flows: Sequence[int],
    ranks: Integers,
    slos: Floats,
    count: int,
    *,
    blocking: bool = False,
) -> Integers:
    """Fold ranks into `count` levels (section 4.7), 0 the highest; for `flows` only.

    Flows keep their order and are cut into stretches, so that the sum over flows of violation by
    SLO is least; all flows of a level may hold up each other. The time that a workload spends at
    other stages, and its SLO, add the same to every choice and are left out.

    Args:
        system: queues in which only `flows` compete with each other.
        flows: indices of flows.
        ranks: [all flows] from `prioritize`.
        slos: [all flows] seconds.
        count: levels of the network.
        blocking: see `System.bound`.

    Returns:
        [all flows] level, -1 for flows that are not in `flows`.
    """
    order = sorted(flows, key=lambda f: ranks[f])
    n = len(order)
    result = np.full(len(system.flows), -1, np.int64)
    if n <= count:
        result[order] = np.arange(n)
        return result
    # stretch[i, j]: cost of places i to j - 1 on one level, with all flows above before them.
    stretch = np.zeros((n + 1, n + 1))
    above = np.zeros(len(system.flows), np.bool_)
    for j in range(1, n + 1):
        above[order[j - 1]] = True
        bounds = (system.bound(f, above, blocking=blocking) for f in order[:j])
        each = [min(b, _HOPELESS) / slos[f] for f, b in zip(order[:j], bounds, strict=True)]
        stretch[:j, j] = np.cumsum(each[::-1])[::-1]
    best = np.full((count + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    cut = np.zeros((count + 1, n + 1), np.int64)
    for level in range(1, count + 1):
        for j in range(level, n + 1):
            costs = best[level - 1, :j] + stretch[:j, j]
            cut[level, j] = int(np.argmin(costs))
            best[level, j] = costs[cut[level, j]]
    end = n
    for level in range(count, 0, -1):
        begin = int(cut[level, end])
        result[order[begin:end]] = level - 1
        end = begin
    return result
