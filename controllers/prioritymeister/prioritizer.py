"""Prioritizer: from workloads, their token buckets and the machines to priorities and bounds: the
greedy algorithm (section 4.3), its fit to few network levels (4.7), and the whole plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.estimators import STAGES
from controllers.prioritymeister.limiters import Limiters
from controllers.prioritymeister.network_calculus import ROUNDING, QueueFlow, System
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LEVELS = 7
"""Priorities of a port of the paper's switch (section 5.4)."""
FRAME = 1538.0
"""Bytes that a full Ethernet frame keeps a link busy: a lower priority may finish as many."""
_HOPELESS = 1e12  # replaces an infinite latency in sums
_STORAGE, _NETWORK = 0, 1


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
    """Fold ranks into `count` levels (section 4.7), 0 the highest; -1 for flows that are not in
    `flows`.

    Flows keep their order and are cut into stretches, so that the sum over flows of violation by
    SLO is least; all flows of a level may hold up each other. In the queues only `flows` compete
    with each other. `ranks` and `slos` (seconds) are of all flows. The time that a workload spends
    at other stages, and its SLO, add the same to every choice and are left out.
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


# The whole plan.


@dataclass(frozen=True)
class PlannedWorkload:
    """Workload in the planner's view.

    `routes` names the queues that it passes at each stage; `limiters` and `largest` (the most work
    of one request) are in the units of the stage. For a throughput SLO, `spent_s` is the length of
    the trace, and `slo_s` the time in which all of it must be done. `lag` is the time by which its
    device may be behind the charged work (`estimators.Overhead.latency`), seconds.
    """

    name: str
    slo_s: float
    routes: Mapping[str, tuple[str, ...]]
    limiters: Mapping[str, Limiters]
    largest: Mapping[str, float]
    throughput: bool = False
    spent_s: float = 0.0
    lag: float = 0.0


@dataclass(frozen=True)
class StagePlan:
    """Workload at a stage: its enforcer's settings, and its bounds.

    `priority` counts from 1, the first, among the workloads of the stage; `level` is the network's
    (None at a device). `pairs` are (rate, burst) of the token buckets, `error` their largest excess
    over the exact arrival curve, as a share. `bound` is in seconds, the paper's; `bound_blocking`
    counts requests and packets of lower priority that are not interrupted.
    """

    stage: str
    queues: tuple[str, ...]
    priority: int
    level: int | None
    pairs: tuple[tuple[float, float], ...]
    error: float
    bound: float
    bound_blocking: float


@dataclass(frozen=True)
class WorkloadPlan:
    """Workload with SLO and bound in seconds, both of a latency, or both of the whole trace."""

    name: str
    slo_kind: str
    slo: float
    bound: float
    bound_blocking: float
    met: bool
    stages: tuple[StagePlan, ...]


@dataclass(frozen=True)
class QueueLoad:
    """Queue with its bandwidth in its work per second, and the share taken by mean rates."""

    queue: str
    bandwidth: float
    load: float


@dataclass(frozen=True)
class PriorityPlan:
    """Settings of all enforcers, and their proof."""

    met: bool
    workloads: tuple[WorkloadPlan, ...]
    queues: tuple[QueueLoad, ...]


def make_plan(
    tenants: Sequence[PlannedWorkload],
    queues: Mapping[str, float],
    *,
    network_levels: int | None = LEVELS,
    blocking: bool = False,
    order: Sequence[str] | None = None,
    frame: float = FRAME,
    overshoot: float = 0.0,
) -> PriorityPlan:
    """Return priorities, levels and bounds of all workloads; names of workloads differ.

    Args:
        tenants: workloads.
        queues: bandwidth of every queue in its work per second (1 of a device).
        network_levels: priorities of the network; None for one per workload.
        blocking: hold SLOs against the bound that counts blocking.
        order: names of all workloads, the first served first at every stage, if given (figure 4).
        frame: bytes of the largest packet, as it keeps a link busy.
        overshoot: bytes that a network's token bucket lets through beyond its burst, as bounds
            count them; enforcers use the burst.

    Raises:
        UserError: a queue is loaded above 100 %, or paths form a cycle.
    """
    index: list[dict[str, int]] = [{}, {}]
    flows: list[list[QueueFlow]] = [[], []]
    stops: list[list[Stop]] = [[], []]
    goals: list[Goal] = []
    for tenant in tenants:
        own = []
        for stage in (stage for stage in STAGES if tenant.routes.get(stage)):
            side = _STORAGE if stage == "storage" else _NETWORK
            path = tuple(index[side].setdefault(q, len(index[side])) for q in tenant.routes[stage])
            limits, piece = tenant.limiters[stage], tenant.largest[stage]
            bursts = limits.bursts
            if side == _NETWORK:
                piece, bursts = min(piece, frame), bursts + overshoot
            own.append(Stop(stage, side, len(flows[side])))
            flows[side].append(QueueFlow(path, limits.rates, bursts, piece))
        goals.append(Goal(tenant.slo_s, tuple(own), tenant.spent_s))
        for stop in own:
            stops[stop.system].append(stop)
    lags: dict[str, float] = {}
    for tenant in tenants:
        for name in tenant.routes.get("storage", ()):
            lags[name] = max(lags.get(name, 0.0), tenant.lag)
    systems = [
        System([queues[q] for q in names], flow, list(names), [lags.get(q, 0.0) for q in names])
        for names, flow in zip(index, flows, strict=True)
    ]
    loads = tuple(
        QueueLoad(name, queues[name], system.load(queue))
        for names, system in zip(index, systems, strict=True)
        for name, queue in names.items()
    )
    _check_loads(loads, tenants)
    owner = {(s.system, s.flow): t for t, g in zip(tenants, goals, strict=True) for s in g.stops}
    if order is None:
        ranks = prioritize(systems, goals, blocking=blocking).ranks
    else:
        ranks = [
            np.array([order.index(owner[s.system, s.flow].name) for s in side], np.int64)
            for side in stops
        ]
    network = systems[_NETWORK]
    level = np.full(len(network.flows), -1, np.int64)
    slos = np.array([owner[_NETWORK, flow].slo_s for flow in range(len(network.flows))])
    for apart in _apart(network):
        most = len(apart) if network_levels is None else network_levels
        found = levels(network, apart, ranks[_NETWORK], slos, most, blocking=blocking)
        level[apart] = found[apart]
    place: dict[Stop, int] = {}
    for stage in STAGES:
        of_stage = [stop for side in stops for stop in side if stop.stage == stage]
        by_rank = sorted(of_stage, key=lambda stop: ranks[stop.system][stop.flow])
        place |= {stop: number for number, stop in enumerate(by_rank, start=1)}
    served = [ranks[_STORAGE], level]
    plans = []
    for tenant, goal in zip(tenants, goals, strict=True):
        stages = []
        for stop in goal.stops:
            system, rank = systems[stop.system], served[stop.system]
            others = rank <= rank[stop.flow]
            limits = tenant.limiters[stop.stage]
            stages.append(
                StagePlan(
                    stage=stop.stage,
                    queues=tuple(tenant.routes[stop.stage]),
                    priority=place[stop],
                    level=int(level[stop.flow]) + 1 if system is network else None,
                    pairs=tuple(zip(limits.rates.tolist(), limits.bursts.tolist(), strict=True)),
                    error=limits.error,
                    bound=system.bound(stop.flow, others),
                    bound_blocking=system.bound(stop.flow, others, blocking=True),
                )
            )
        bound = tenant.spent_s + sum(stage.bound for stage in stages)
        whole = tenant.spent_s + sum(stage.bound_blocking for stage in stages)
        plans.append(
            WorkloadPlan(
                name=tenant.name,
                slo_kind="throughput" if tenant.throughput else "latency",
                slo=tenant.slo_s,
                bound=bound,
                bound_blocking=whole,
                met=(whole if blocking else bound) <= tenant.slo_s,
                stages=tuple(stages),
            )
        )
    return PriorityPlan(all(p.met for p in plans), tuple(plans), loads)


def _check_loads(loads: Sequence[QueueLoad], tenants: Sequence[PlannedWorkload]) -> None:
    """Raise UserError for the fullest queue above 100 %."""
    worst = max(loads, key=lambda q: q.load, default=None)
    if worst is None or worst.load <= 1 + ROUNDING:
        return
    who = [t.name for t in tenants if any(worst.queue in route for route in t.routes.values())]
    shown = ", ".join(who[:5]) + (f" and {len(who) - 5} more" if len(who) > 5 else "")
    share = f"{100 * worst.load:.1f}"
    if share == "100.0":  # the sentence must not contradict itself
        share = f"{100 * worst.load:.9g}"
    raise UserError(
        f"queue {worst.queue} is loaded to {share} % by the mean rates of {shown}",
        allowed="at most 100 %",
        do="move a workload away or give it more bandwidth",
    )


def _apart(network: System) -> list[list[int]]:
    """Return the network's flows in groups that share no queue, even indirectly: directions and
    servers that meet at no queue are levelled separately."""
    groups: list[tuple[set[int], list[int]]] = []
    for flow, each in enumerate(network.flows):
        queues, flows = set(each.path), [flow]
        rest = []
        for passed, members in groups:
            if passed & queues:
                queues |= passed
                flows = members + flows
            else:
                rest.append((passed, members))
        groups = [*rest, (queues, flows)]
    return [sorted(flows) for _, flows in groups]
