"""Rule for SLOs, fixed before any run, and the parameters of each policy.

The SLO of a workload is k times its own 99.9th percentile alone: the same trace on the same
machines, only requests that arrive in the second half. k is swept. Two experiments of the paper
have another base:

- figure 7 keeps one SLO while the burstiness grows: k times the percentile of F, the least bursty;
- figure 11 gives three SLO numbers to three workloads in all six orders: k times 1, 2 and 4 times
  the largest percentile of A, B and C alone. Some workload can thus meet each order.

The twelve workloads of the scenario `levels` have SLOs 1 to 8 times as loose, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from campaigns.papers.prioritymeister.experiment import Enforcement, Experiment
from campaigns.papers.prioritymeister.machines import CONSTANT_FILE, DISK, DISK_FILE, Machines
from campaigns.papers.prioritymeister.mixes import TENANTS, Mix, labels_of
from campaigns.papers.prioritymeister.study import Measured, planned
from campaigns.papers.prioritymeister.topology import Topology
from controllers.prioritymeister.curve import Curve
from controllers.prioritymeister.demand import measure
from controllers.prioritymeister.plan import Plan, StagePlan, WorkloadPlan
from controllers.prioritymeister.profiles import load_profile
from schemas.cells.prioritymeister import Buckets, OneBurst, OneDisk, PmCell
from workloads.traces.reader import TraceReader

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
    its mix. For figure 7 this is always F."""
    if isinstance(parameters, OneBurst) and parameters.burst in SHARED_SLO:
        return [(REFERENCE_BURST, parameters.model_copy(update={"burst": REFERENCE_BURST}))]
    return [(label, parameters) for label in labels_of(parameters)]


def slos(parameters: PmCell, alone: Mapping[str, float]) -> dict[str, float]:
    """Return the SLOs in seconds of a cell's latency-sensitive workloads.

    Args:
        parameters: the cell's parameters.
        alone: percentile `slo_percentile` of the latency of each of `measured_alone`, seconds.
    """
    k, labels = parameters.k, labels_of(parameters)
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


def alone_experiment(
    parameters: PmCell, mix: Mix, machines: Machines, seed: int, name: str
) -> Experiment:
    """Return the experiment that measures a workload alone, with its announced trace."""
    load = mix.load(name)
    told = replace(load.replay, file=mix.base / load.trace)
    whole = _experiment(
        parameters,
        mix,
        mix.topology(dict.fromkeys(mix.sensitive, PLACEHOLDER_S), parameters),
        None,
        seed=seed,
        machines=machines,
    )
    return replace(whole, replays={**whole.replays, name: told}, serves={}).alone(name)


def experiment(
    parameters: PmCell, mix: Mix, promised: Mapping[str, float], machines: Machines, seed: int
) -> Experiment:
    """Return a cell's experiment with its SLOs, and with a plan if the policy plans.

    Raises:
        UserError: no plan is possible.
    """
    topology = mix.topology(promised, parameters)
    if parameters.constant:
        topology = _charged_by(topology, CONSTANT_FILE)
    plan = plan_of_cell(parameters, mix, topology, machines) if parameters.planned else None
    return _experiment(parameters, mix, topology, plan, seed=seed, machines=machines)


def _experiment(
    parameters: PmCell,
    mix: Mix,
    topology: Topology,
    plan: Plan | None,
    *,
    seed: int,
    machines: Machines,
) -> Experiment:
    served = {}
    if parameters.constant:
        served = {f"{machines.server}:{DISK}": mix.base / DISK_FILE}
    return Experiment(
        name=f"{parameters.scenario}-{parameters.policy}",
        topology=topology,
        base=mix.base,
        replays={load.name: load.replay for load in mix.loads},
        enforcement=enforcement(parameters, mix),
        plan=plan,
        serves=served,
        seconds=parameters.seconds,
        measured_from_s=parameters.seconds / 2,
        frame=machines.kept(parameters.frame).frame,
        seed=seed,
    )


def enforcement(parameters: PmCell, mix: Mix) -> Enforcement:
    """Return the policy with its parameters. mClock reserves each workload's mean demand and
    divides the rest by equal weights. Shares of ps are equal."""
    reserved = {load.name: min(load.storage_load, 1.0) for load in mix.loads if load.device == DISK}
    return Enforcement(
        policy=parameters.policy,
        mode=parameters.mode,
        depth=parameters.depth,
        cake={"upper": parameters.cake_upper} if parameters.policy == "cake" else {},
        reservations=reserved if parameters.policy == "mclock" else {},
    )


def plan_of_cell(parameters: PmCell, mix: Mix, topology: Topology, machines: Machines) -> Plan:
    """Return PriorityMeister's plan for the announced traces, within the machines' limits.

    Figure 4's plan has the given order of priorities, and may have a single bucket for B.
    """
    known = Measured(mix.base)
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


def curve_alone(mix: Mix, name: str) -> Curve:
    """Return the exact r-b curve of a workload at its device (figure 4a)."""
    load = mix.load(name)
    device = mix.hosts[load.server].devices[load.device]
    costs = load_profile(mix.base / device.profile)
    demand = measure(TraceReader(mix.base / load.trace), costs, ["storage"])
    return demand.curves["storage"]


def single_bucket(limiters: str, curve: Curve) -> tuple[float, float]:
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
