"""The rule that SLOs come from, fixed before anything ran, and what each policy is told.

The SLO of a workload is k times its own 99.9th percentile alone: the same trace on the same
machines, nobody else there, requests that arrive in the second half. k is swept. Two experiments
of the paper have another base:

- figure 7 holds one SLO while the burstiness grows: k times what F, the least bursty, has alone;
- figure 11 gives three SLO numbers to three workloads in all six orders: k times 1, 2 and 4 times
  the largest that A, B and C have alone, so that each order can be met by somebody.

The twelve workloads of the scenario `levels` have SLOs 1 to 8 times as loose, in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from campaigns.prioritymeister.experiment import Enforcement, Experiment
from campaigns.prioritymeister.machines import CONSTANT_FILE, DISK, DISK_FILE, Machines
from campaigns.prioritymeister.mixes import TENANTS, Mix, labels_of
from campaigns.prioritymeister.study import Measured, planned
from campaigns.prioritymeister.topology import Topology
from controllers.prioritymeister.curve import Curve
from controllers.prioritymeister.demand import measure
from controllers.prioritymeister.plan import Plan, StagePlan, WorkloadPlan
from controllers.prioritymeister.profiles import load_profile
from schemas.cells.prioritymeister import Buckets, OneBurst, OneDisk, PmCell
from workloads.traces.reader import TraceReader

SHARED_SLO = ("F", "G", "H")
REFERENCE_BURST = "F"
"""Figure 7: whose latency alone the SLO of F, G and H is made of."""
FAST_RATE = 0.9
"""Figure 4: the rate of the bucket that is fast and shallow; the slow and deep one has the
workload's mean rate."""
PLACEHOLDER_S = 1.0
"""An SLO where nobody looks at it: of a workload alone."""
LOOSEST = 8.0


def measured_alone(parameters: PmCell) -> list[tuple[str, PmCell]]:
    """The workloads that must have run alone before a cell has SLOs, and the cell in whose mix
    each is: of figure 7 F counts, whatever runs."""
    if isinstance(parameters, OneBurst) and parameters.burst in SHARED_SLO:
        return [(REFERENCE_BURST, parameters.model_copy(update={"burst": REFERENCE_BURST}))]
    return [(label, parameters) for label in labels_of(parameters)]


def slos(parameters: PmCell, alone: Mapping[str, float]) -> dict[str, float]:
    """SLOs in seconds of a cell's latency-sensitive workloads.

    Args:
        parameters: the cell's.
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
    """What measures a workload alone, the trace being what it announced."""
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
    """A cell's experiment: SLOs in place, planned where the policy plans.

    Raises:
        UserError: it cannot be planned for.
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
    """The policy with its parameters. mClock reserves for each workload what it asks for on
    average; the rest goes by equal weights. Shares of ps are equal."""
    reserved = {load.name: min(load.storage_load, 1.0) for load in mix.loads if load.device == DISK}
    return Enforcement(
        policy=parameters.policy,
        mode=parameters.mode,
        depth=parameters.depth,
        cake={"upper": parameters.cake_upper} if parameters.policy == "cake" else {},
        reservations=reserved if parameters.policy == "mclock" else {},
    )


def plan_of_cell(parameters: PmCell, mix: Mix, topology: Topology, machines: Machines) -> Plan:
    """PriorityMeister's plan of the traces that the workloads announced, for what the machines
    keep of it.

    Figure 4's has the given order of priorities, and may have one bucket of B alone.
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
    """The exact r-b curve of a workload at its device (figure 4a)."""
    load = mix.load(name)
    device = mix.hosts[load.server].devices[load.device]
    costs = load_profile(mix.base / device.profile)
    demand = measure(TraceReader(mix.base / load.trace), costs, ["storage"])
    return demand.curves["storage"]


def single_bucket(limiters: str, curve: Curve) -> tuple[float, float]:
    """The one bucket that B has instead of all of its own: rate and burst on the border."""
    rate = FAST_RATE if limiters == "fast" else curve.mean_rate
    return rate, float(curve.burst([rate])[0])


def _limited(workload: WorkloadPlan, pair: tuple[float, float]) -> WorkloadPlan:
    def stage(one: StagePlan) -> StagePlan:
        return replace(one, pairs=(pair,)) if one.stage == "storage" else replace(one, pairs=())

    return replace(workload, stages=tuple(stage(one) for one in workload.stages))


def _charged_by(topology: Topology, profile: str) -> Topology:
    """The same machines, requests of whose disks are estimated by another profile."""
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
