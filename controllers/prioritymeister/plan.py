"""Plan: from workloads, their token buckets and the machines to priorities and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister.estimators import STAGES
from controllers.prioritymeister.limiters import Limiters
from controllers.prioritymeister.prioritizer import Goal, Stop, levels, prioritize
from controllers.prioritymeister.system import ROUNDING, QueueFlow, System
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]

LEVELS = 7
"""Priorities of a port of the paper's switch (section 5.4)."""
FRAME = 1538.0
"""Bytes that a full Ethernet frame keeps a link busy: a lower priority may finish as many."""
_STORAGE, _NETWORK = 0, 1


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
    """Return priorities, levels and bounds of all workloads.

    Args:
        tenants: workloads; names differ.
        queues: bandwidth of every queue in its work per second (1 of a device).
        network_levels: priorities of the network; None for one per workload.
        blocking: hold SLOs against the bound that counts blocking.
        order: names of all workloads, the first served first, if given (figure 4 of the paper):
            at every stage.
        frame: bytes of the largest packet, as it keeps a link busy.
        overshoot: bytes that a network's token bucket lets through beyond its burst, as bounds
            count them; enforcers use the burst.

    Raises:
        UserError: a queue is loaded above 100 %, or paths form a cycle.
    """
    model = _QueueModel(tenants, queues, frame, overshoot)
    model.check_loads()
    chosen = (
        prioritize(model.systems, model.goals, blocking=blocking).ranks
        if order is None
        else model.ranks_of(order)
    )
    network = model.systems[_NETWORK]
    level = model.network_levels(chosen[_NETWORK], network_levels, blocking=blocking)
    ranks = [chosen[_STORAGE], level]
    places = [_places(chosen[s], model.stage_of[s]) for s in (_STORAGE, _NETWORK)]
    plans = []
    for tenant, goal in zip(tenants, model.goals, strict=True):
        stages = []
        for stop in goal.stops:
            system, rank = model.systems[stop.system], ranks[stop.system]
            others = rank <= rank[stop.flow]
            limits = tenant.limiters[stop.stage]
            pairs = zip(limits.rates.tolist(), limits.bursts.tolist(), strict=True)
            stages.append(
                StagePlan(
                    stage=stop.stage,
                    queues=tuple(tenant.routes[stop.stage]),
                    priority=int(places[stop.system][stop.flow]),
                    level=int(level[stop.flow]) + 1 if system is network else None,
                    pairs=tuple(pairs),
                    error=limits.error,
                    bound=system.bound(stop.flow, others),
                    bound_blocking=system.bound(stop.flow, others, blocking=True),
                )
            )
        plans.append(_workload(tenant, tuple(stages), blocking=blocking))
    return PriorityPlan(all(p.met for p in plans), tuple(plans), model.loads())


def _workload(
    tenant: PlannedWorkload, stages: tuple[StagePlan, ...], *, blocking: bool
) -> WorkloadPlan:
    bound = tenant.spent_s + sum(stage.bound for stage in stages)
    whole = tenant.spent_s + sum(stage.bound_blocking for stage in stages)
    return WorkloadPlan(
        name=tenant.name,
        slo_kind="throughput" if tenant.throughput else "latency",
        slo=tenant.slo_s,
        bound=bound,
        bound_blocking=whole,
        met=(whole if blocking else bound) <= tenant.slo_s,
        stages=stages,
    )


def _places(ranks: npt.NDArray[np.int64], stages: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return priorities from 1 within each stage."""
    found = np.zeros(len(ranks), np.int64)
    for stage in set(stages):
        flows = [f for f, s in enumerate(stages) if s == stage]
        for place, flow in enumerate(sorted(flows, key=lambda f: ranks[f]), start=1):
            found[flow] = place
    return found


class _QueueModel:
    """The two systems of queues, and the workload of each flow."""

    def __init__(
        self,
        tenants: Sequence[PlannedWorkload],
        queues: Mapping[str, float],
        frame: float,
        overshoot: float,
    ) -> None:
        self._tenants = tenants
        index: list[dict[str, int]] = [{}, {}]
        flows: list[list[QueueFlow]] = [[], []]
        self.stage_of: list[list[str]] = [[], []]
        self._owner: list[list[int]] = [[], []]
        self.goals: list[Goal] = []
        for place, tenant in enumerate(tenants):
            stops = []
            for stage in STAGES:
                route = tenant.routes.get(stage, ())
                if not route:
                    continue
                side = _STORAGE if stage == "storage" else _NETWORK
                path = tuple(index[side].setdefault(name, len(index[side])) for name in route)
                limits = tenant.limiters[stage]
                piece = tenant.largest[stage]
                bursts = limits.bursts
                if side == _NETWORK:
                    piece, bursts = min(piece, frame), bursts + overshoot
                stops.append(Stop(stage, side, len(flows[side])))
                flows[side].append(QueueFlow(path, limits.rates, bursts, piece))
                self.stage_of[side].append(stage)
                self._owner[side].append(place)
            self.goals.append(Goal(tenant.slo_s, tuple(stops), tenant.spent_s))
        self._names = [list(names) for names in index]
        self._queues = queues
        lags: dict[str, float] = {}
        for tenant in tenants:
            for name in tenant.routes.get("storage", ()):
                lags[name] = max(lags.get(name, 0.0), tenant.lag)
        self.systems = [
            System(
                [queues[name] for name in names],
                flow,
                names,
                [lags.get(name, 0.0) for name in names],
            )
            for names, flow in zip(self._names, flows, strict=True)
        ]

    def loads(self) -> tuple[QueueLoad, ...]:
        """Return the loads of all queues that a workload passes."""
        return tuple(
            QueueLoad(name, self._queues[name], system.load(queue))
            for names, system in zip(self._names, self.systems, strict=True)
            for queue, name in enumerate(names)
        )

    def check_loads(self) -> None:
        """Raise UserError for the fullest queue above 100 %."""
        worst = max(self.loads(), key=lambda q: q.load, default=None)
        if worst is None or worst.load <= 1 + ROUNDING:
            return
        who = [
            t.name
            for t in self._tenants
            if any(worst.queue in route for route in t.routes.values())
        ]
        shown = ", ".join(who[:5]) + (f" and {len(who) - 5} more" if len(who) > 5 else "")
        share = f"{100 * worst.load:.1f}"
        if share == "100.0":  # the sentence must not contradict itself
            share = f"{100 * worst.load:.9g}"
        raise UserError(
            f"queue {worst.queue} is loaded to {share} % by the mean rates of {shown}",
            allowed="at most 100 %",
            do="move a workload away or give it more bandwidth",
        )

    def ranks_of(self, order: Sequence[str]) -> list[npt.NDArray[np.int64]]:
        """Return the ranks of the flows in each system by a given order of workloads."""
        place = {name: index for index, name in enumerate(order)}
        return [
            np.array([place[self._tenants[w].name] for w in owners], np.int64)
            for owners in self._owner
        ]

    def network_levels(
        self, ranks: npt.NDArray[np.int64], count: int | None, *, blocking: bool
    ) -> npt.NDArray[np.int64]:
        """Return the levels of the network's flows; with `count` None each has its own.

        Directions and servers that meet at no queue are levelled separately.
        """
        system = self.systems[_NETWORK]
        slos = np.array([self._tenants[w].slo_s for w in self._owner[_NETWORK]])
        found = np.full(len(system.flows), -1, np.int64)
        for flows in self._apart():
            most = len(flows) if count is None else count
            part = levels(system, flows, ranks, slos, most, blocking=blocking)
            found[flows] = part[flows]
        return found

    def _apart(self) -> list[list[int]]:
        """Return the network's flows in groups that share no queue, even indirectly."""
        groups: list[tuple[set[int], list[int]]] = []
        for flow, each in enumerate(self.systems[_NETWORK].flows):
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
