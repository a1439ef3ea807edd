"""Who goes first at which stage: the greedy prioritizer (4.3) and its fit to few levels (4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.system import System

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HOPELESS = 1e12  # stands for an infinite latency where latencies are added up


@dataclass(frozen=True)
class Stop:
    """A workload at one stage: the system of queues, and its flow there."""

    stage: str
    system: int
    flow: int


@dataclass(frozen=True)
class Goal:
    """What a workload is promised: `slo_s` seconds, of which `spent_s` are gone beforehand.

    Of a latency nothing is. Of the time in which a whole trace is to be done (a throughput SLO,
    section 3.2), its length is: the last request arrives that late.
    """

    slo_s: float
    stops: tuple[Stop, ...]
    spent_s: float = 0.0


@dataclass
class Order:
    """Ranks of flows in each system: of two flows the one with the lower rank goes first.

    `met` tells of each workload whether it met its SLO when its last stage was decided.
    """

    ranks: list[Integers]
    met: Mask


def prioritize(
    systems: Sequence[System], goals: Sequence[Goal], *, blocking: bool = False
) -> Order:
    """The greedy algorithm of section 4.3, from the lowest priority up.

    Whoever meets its SLO below all that are undecided takes the lowest priority: the order of
    those above does not matter to it. When nobody does, the workload that misses its SLO by least
    takes the lowest priority at the stage where that costs it least, and keeps its chance at its
    other stages. `blocking` chooses the bound that SLOs are held against, see `System.bound`.
    """
    undecided = [np.ones(len(system.flows), np.bool_) for system in systems]
    ranks = [np.zeros(len(system.flows), np.int64) for system in systems]
    settled: list[dict[Stop, float]] = [{} for _ in goals]
    met = np.zeros(len(goals), np.bool_)
    # Loose SLOs first: who can wait longest is most likely to go last.
    queue = sorted(range(len(goals)), key=lambda w: -(goals[w].slo_s - goals[w].spent_s))
    step = sum(len(goal.stops) for goal in goals)

    def latencies(w: int) -> dict[Stop, float]:
        """Of each stage of a workload: as decided, or when lowest of the undecided."""
        return {
            stop: settled[w][stop]
            if stop in settled[w]
            else systems[stop.system].bound(stop.flow, undecided[stop.system], blocking=blocking)
            for stop in goals[w].stops
        }

    def settle(w: int, stop: Stop, latency: float) -> None:
        nonlocal step
        step -= 1
        settled[w][stop] = latency
        undecided[stop.system][stop.flow] = False
        ranks[stop.system][stop.flow] = step

    failed: dict[int, dict[Stop, float]] = {}  # since somebody was last decided
    while queue:
        w = queue.pop(0)
        found = latencies(w)
        if goals[w].spent_s + sum(found.values()) <= goals[w].slo_s:
            for stop in goals[w].stops[::-1]:
                if stop not in settled[w]:
                    settle(w, stop, found[stop])
            met[w] = True
            failed = {}
            continue
        failed[w] = found
        queue.append(w)
        if len(failed) < len(queue):
            continue
        w = min(failed, key=lambda k: _violation(goals[k], failed[k]))
        open_stops = [stop for stop in goals[w].stops if stop not in settled[w]]
        stop = min(open_stops, key=lambda s: failed[w][s])
        settle(w, stop, failed[w][stop])
        if len(open_stops) == 1:
            queue.remove(w)
        failed = {}
    return Order(ranks, met)


def _violation(goal: Goal, latencies: dict[Stop, float]) -> float:
    return goal.spent_s + sum(min(v, _HOPELESS) for v in latencies.values()) - goal.slo_s


def levels(
    system: System,
    flows: Sequence[int],
    ranks: Integers,
    slos: Floats,
    count: int,
    *,
    blocking: bool = False,
) -> Integers:
    """Section 4.7: ranks folded into `count` levels, 0 the highest; of `flows` only.

    Flows keep their order and are cut into stretches, so that the sum over flows of violation by
    SLO is least; who shares a level may be held up by all of it. What a workload spends at other
    stages and its SLO add the same to every choice and are left out.

    Args:
        system: of queues, in which `flows` alone compete with each other.
        flows: indices of flows.
        ranks: [all flows] from `prioritize`.
        slos: [all flows] seconds.
        count: levels that the network has.
        blocking: see `System.bound`.

    Returns:
        [all flows] level, -1 for those not among `flows`.
    """
    order = sorted(flows, key=lambda f: ranks[f])
    n = len(order)
    result = np.full(len(system.flows), -1, np.int64)
    if n <= count:
        result[order] = np.arange(n)
        return result
    # stretch[i, j]: cost of those from place i to j - 1 on one level, everyone above before them.
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
