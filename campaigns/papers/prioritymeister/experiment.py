"""An experiment, its outcome, and its SLOs. Any ground can run it: simulated (`sim`), or a real NFS
server and real links (`local`).

A cell gives the SLO of each workload (section 5.2: "each workload has its own latency SLO"), or
follows a rule: the SLO of a workload is k times its own 99.9th percentile alone, from the same
trace on the same machines and the same counted requests. k is swept. Two experiments of the paper
have another base:

- figure 7 keeps one SLO while the burstiness grows: k times the percentile of F, the least bursty;
- figure 11 gives three SLO numbers to three workloads in all six orders: k times 1, 2 and 4 times
  the largest percentile of A, B and C alone. Some workload can thus meet each order.

The twelve workloads of the scenario `levels` have SLOs 1 to 8 times as loose, in turn.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from campaigns.papers.prioritymeister.mixes import (
    CONSTANT_FILE,
    DISK,
    DISK_FILE,
    TENANTS,
    Mix,
    PmMachines,
    SentRequests,
    labels_of,
)
from campaigns.papers.prioritymeister.plan import EnforcedPolicy, MeasuredTraces, planned
from campaigns.papers.prioritymeister.topology import Topology
from controllers.prioritymeister.estimators import load_profile, measure
from controllers.prioritymeister.limiters import RbCurve
from controllers.prioritymeister.prioritizer import PriorityPlan, StagePlan, WorkloadPlan
from schemas.cells.prioritymeister import MULTIPLES, Buckets, OneBurst, OneDisk, PmCell
from schemas.errors import not_allowed
from workloads.traces.reader import TraceReader

Integers = npt.NDArray[np.int64]

BEYOND = 10
"""Least number of slower requests for reporting a percentile."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
WINDOW_S = 10.0
"""Seconds of a window of the time series (figure 1)."""


@dataclass(frozen=True)
class MeasuredRequests:
    """Requests of a workload that arrived in the measured half (in a closed loop: that ended in
    it).

    `misses` counts requests slower than the SLO one by one; it is None without an SLO. Latencies
    count from the trace's time on; `max_whole_s` is of the whole run. `low_ns`, `high_ns` and
    `count` [k] are a histogram, intervals rising. `series` has arrived requests and SLO misses by
    window of the whole run. Unfinished requests, without an answer, count as missed and as
    infinitely long.
    """

    requests: int
    misses: int | None
    mean_s: float
    max_s: float
    max_whole_s: float
    low_ns: Integers
    high_ns: Integers
    count: Integers
    bytes: int
    series: tuple[tuple[int, int], ...] = ()
    unfinished: int = 0

    def percentile(self, percent: float) -> float | None:
        """Return the latency in seconds that `percent` of the requests do not exceed, to the
        histogram's width. Infinite without answers, None with fewer than ten requests beyond it."""
        if self.requests * (1 - percent / 100) < BEYOND * (1 - 1e-9):
            return None
        rank = math.ceil(self.requests * percent / 100 * (1 - 1e-12))
        reached = np.cumsum(self.count)
        if not len(reached) or rank > reached[-1]:
            return math.inf
        return float(self.high_ns[np.searchsorted(reached, rank)]) * 1e-9

    @property
    def within(self) -> float | None:
        """Share of the requests within the SLO."""
        if self.misses is None or not self.requests:
            return None
        return 1.0 - self.misses / self.requests


@dataclass(frozen=True)
class Conditions:
    """Conditions of a workload's bound that real machines kept; a model keeps all.

    Attributes:
        why_not: the condition that was not kept, so that this run proves nothing; None if all were.
        late_s: largest delay of the load generator. A latency counts from the trace's time. A
            request sent later is answered at most as much later. Token buckets pass late requests
            at once and hold up only early ones.
        behind_s: largest delay of the server relative to its charges; None if unknown.
        allowed_s: the delay that the bound allows, the profile's ``overhead.latency``.
        network: True if the network stage was enforced as planned.
        unanswered: requests of the whole run without a reply at its end.
        width: width of the latencies' intervals, as a share of the latency.
    """

    why_not: str | None = None
    late_s: float = 0.0
    behind_s: float | None = None
    allowed_s: float = 0.0
    network: bool = True
    unanswered: int = 0
    width: float = 0.0

    def ratio(self, longest_s: float, bound_s: float) -> float:
        """Return the ratio of the longest latency to its limit, both in seconds."""
        return longest_s * (1 - self.width) / (bound_s + self.late_s)


MODELLED = Conditions()
"""Conditions of a simulation: nothing is late, and the network is enforced as planned."""


@dataclass(frozen=True)
class PmOutcome:
    """Results of a finished experiment, by workload.

    `spoiled`: why the results do not count, such as a late load generator. `extra`: numbers for the
    run's summary. `logs`: texts for the run's folder, by name. `conditions`: those of real
    machines, by workload. `settings`: the nodes' settings, as read back
    (`campaigns.engine.judge.MachineLoad`).
    """

    results: Mapping[str, MeasuredRequests]
    spoiled: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Conditions] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PmExperiment:
    """An experiment: everything that runs at once.

    `base` is the folder for the topology's relative file names. Planner and enforcers charge
    requests by the topology's profiles; `serves` has a device's real profile by queue (``s0:disk``)
    if it differs (figure 10). `plan` is None if the policy has none. Arrivals after `seconds` are
    dropped; requests that arrive from `measured_from_s` on count (section 5.3: the second half;
    else 0, the whole trace).
    `frame` is the bytes of the largest packets.
    """

    name: str
    topology: Topology
    base: Path
    replays: Mapping[str, SentRequests]
    enforcement: EnforcedPolicy
    plan: PriorityPlan | None
    serves: Mapping[str, Path]
    seconds: float
    measured_from_s: float
    frame: float = 9038.0
    seed: int = 0

    def alone(self, name: str) -> PmExperiment:
        """Return a workload alone on the same machines, first come first served, for SLOs."""
        workload = next(one for one in self.topology.workloads if one.name == name)
        return replace(
            self,
            name=f"{self.name}-alone-{name}",
            topology=self.topology.model_copy(update={"workloads": (workload,)}),
            replays={name: self.replays[name]},
            enforcement=EnforcedPolicy("none", depth=self.enforcement.depth),
            plan=None,
        )

    def digest(self) -> str:
        """Return sixteen hex digits of all that can change the result: file contents, not names."""
        body: dict[str, Any] = {
            "hosts": self.topology.model_dump(mode="json", exclude={"workloads"}),
            "workloads": [
                w.model_dump(mode="json", exclude={"trace", "slo"}) for w in self.topology.workloads
            ],
            "replays": [
                (name, _contents(one.file), one.closed) for name, one in self.replays.items()
            ],
            "devices": sorted(
                _contents(self.base / device.profile)
                for host in self.topology.hosts.values()
                for device in host.devices.values()
            ),
            "serves": sorted((queue, _contents(path)) for queue, path in self.serves.items()),
            "enforcement": repr(self.enforcement),
            "plan": repr(self.plan),
            "times": [self.seconds, self.measured_from_s, WINDOW_S, self.frame],
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _contents(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


SHARED_SLO = ("F", "G", "H")
REFERENCE_BURST = "F"
"""Figure 7: workload with the latency alone that the SLO of F, G and H is based on."""
FAST_RATE = 0.9
"""Figure 4: rate of the fast and shallow bucket; the slow and deep bucket has the workload's mean
rate."""
PLACEHOLDER_S = 1.0
"""SLO of a workload alone, which no policy uses."""
LOOSEST = 8.0


def measured_alone(parameters: PmCell) -> list[tuple[str, PmCell]]:
    """Return the workloads that must have run alone before a cell has SLOs, each with the cell of
    its mix; none if the cell gives its SLOs. For figure 7 this is always F."""
    if parameters.slos is not None:
        return []
    if isinstance(parameters, OneBurst) and parameters.burst in SHARED_SLO:
        return [(REFERENCE_BURST, parameters.model_copy(update={"burst": REFERENCE_BURST}))]
    return [(label, parameters) for label in labels_of(parameters)]


def slos(parameters: PmCell, alone: Mapping[str, float]) -> dict[str, float]:
    """Return the SLOs in seconds of a cell's latency-sensitive workloads; `alone` is the percentile
    `slo_percentile`, in seconds, of each of `measured_alone`. Raise UserError if given SLOs are not
    of the cell's workloads."""
    k, labels = parameters.k, labels_of(parameters)
    if parameters.slos is not None:
        return _given(parameters, labels)
    if isinstance(parameters, OneBurst) and parameters.burst in SHARED_SLO:
        return dict.fromkeys(labels, k * alone[REFERENCE_BURST])
    if isinstance(parameters, OneDisk) and parameters.permutation is not None:
        base = max(alone[label] for label in labels)
        return {
            label: k * int(multiple) * base
            for label, multiple in zip(labels, parameters.permutation, strict=True)
        }
    if parameters.scenario == "levels":
        spread = [LOOSEST ** (index / (TENANTS - 1)) for index in range(TENANTS)]
        return {
            label: k * loose * alone[label] for label, loose in zip(labels, spread, strict=True)
        }
    return {label: k * alone[label] for label in labels}


def _given(parameters: PmCell, labels: tuple[str, ...]) -> dict[str, float]:
    found = parameters.given_slos
    if sorted(found) != sorted(labels):
        raise not_allowed("slos", parameters.slos, f"one for each of {', '.join(labels)}")
    if isinstance(parameters, OneDisk) and parameters.permutation is not None:
        numbers = dict(zip(MULTIPLES, sorted(found.values()), strict=True))
        return {
            label: numbers[which]
            for label, which in zip(labels, parameters.permutation, strict=True)
        }
    return found


def alone_experiment(
    parameters: PmCell, mix: Mix, machines: PmMachines, seed: int, name: str
) -> PmExperiment:
    """Return the experiment that measures a workload alone, with its announced trace."""
    load = mix.load(name)
    announced = replace(load.replay, file=mix.base / load.trace)
    every = _experiment(
        parameters,
        mix,
        mix.topology(dict.fromkeys(mix.sensitive, PLACEHOLDER_S), parameters),
        None,
        seed=seed,
        machines=machines,
    )
    return replace(every, replays={**every.replays, name: announced}, serves={}).alone(name)


def cell_experiment(
    parameters: PmCell, mix: Mix, promised: Mapping[str, float], machines: PmMachines, seed: int
) -> PmExperiment:
    """Return a cell's experiment with its SLOs, and with a plan if the policy plans; raise
    UserError if no plan is possible."""
    topology = mix.topology(promised, parameters)
    if parameters.constant:
        topology = _charged_by(topology, CONSTANT_FILE)
    plan = plan_of_cell(parameters, mix, topology, machines) if parameters.planned else None
    return _experiment(parameters, mix, topology, plan, seed=seed, machines=machines)


def _experiment(
    parameters: PmCell,
    mix: Mix,
    topology: Topology,
    plan: PriorityPlan | None,
    *,
    seed: int,
    machines: PmMachines,
) -> PmExperiment:
    served = {}
    if parameters.constant:
        served = {f"{machines.server}:{DISK}": mix.base / DISK_FILE}
    return PmExperiment(
        name=f"{parameters.scenario}-{parameters.policy}",
        topology=topology,
        base=mix.base,
        replays={load.name: load.replay for load in mix.loads},
        enforcement=enforcement(parameters, mix),
        plan=plan,
        serves=served,
        seconds=parameters.seconds,
        measured_from_s=parameters.seconds / 2 if parameters.counted == "half" else 0.0,
        frame=machines.kept(parameters.frame).frame,
        seed=seed,
    )


def enforcement(parameters: PmCell, mix: Mix) -> EnforcedPolicy:
    """Return the policy with its parameters. mClock reserves each workload's mean demand and
    divides the rest by equal weights. Shares of ps are equal."""
    reserved = {load.name: min(load.storage_load, 1.0) for load in mix.loads if load.device == DISK}
    return EnforcedPolicy(
        policy=parameters.policy,
        mode=parameters.mode,
        depth=parameters.depth,
        cake={"upper": parameters.cake_upper} if parameters.policy == "cake" else {},
        reservations=(reserved or None) if parameters.policy == "mclock" else None,
    )


def plan_of_cell(
    parameters: PmCell, mix: Mix, topology: Topology, machines: PmMachines
) -> PriorityPlan:
    """Return PriorityMeister's plan for the announced traces, within the machines' limits. Figure
    4's plan has the given order of priorities, and may have a single bucket for B."""
    known = MeasuredTraces(mix.base)
    tenants = [known.tenant(topology, one) for one in topology.workloads]
    plan_for = partial(planned, links=machines.kept(parameters.frame))
    if not isinstance(parameters, Buckets):
        return plan_for(topology, tenants)
    order = labels_of(parameters)
    plan = plan_for(topology, tenants, order=order)
    if parameters.limiters == "all":
        return plan
    first = labels_of(parameters)[0]
    pair = single_bucket(parameters.limiters, curve_alone(mix, first))
    return replace(
        plan, workloads=tuple(_limited(w, pair) if w.name == first else w for w in plan.workloads)
    )


def curve_alone(mix: Mix, name: str) -> RbCurve:
    """Return the exact r-b curve of a workload at its device (figure 4a)."""
    load = mix.load(name)
    device = mix.hosts[load.server].devices[load.device]
    costs = load_profile(mix.base / device.profile)
    demand = measure(TraceReader(mix.base / load.trace), costs, ["storage"])
    return demand.curves["storage"]


def single_bucket(limiters: str, curve: RbCurve) -> tuple[float, float]:
    """Return the one bucket that B has instead of all its own: rate and burst on the border."""
    rate = FAST_RATE if limiters == "fast" else curve.mean_rate
    return rate, float(curve.burst([rate])[0])


def _limited(workload: WorkloadPlan, pair: tuple[float, float]) -> WorkloadPlan:
    def stage(one: StagePlan) -> StagePlan:
        return replace(one, pairs=(pair,)) if one.stage == "storage" else replace(one, pairs=())

    return replace(workload, stages=tuple(stage(one) for one in workload.stages))


def _charged_by(topology: Topology, profile: str) -> Topology:
    """Return the same machines with disk requests charged by another profile."""
    hosts = {
        name: host.model_copy(
            update={
                "devices": {
                    key: device.model_copy(update={"profile": profile}) if key == DISK else device
                    for key, device in host.devices.items()
                }
            }
        )
        for name, host in topology.hosts.items()
    }
    return topology.model_copy(update={"hosts": hosts})
