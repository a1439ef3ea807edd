"""Which bounds of a plan a simulation is held against, and why others say nothing about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from campaigns.prioritymeister.parameters import device_queue
from campaigns.prioritymeister.study import measure_trace
from campaigns.prioritymeister.topology import Topology, Workload
from controllers.prioritymeister.demand import Demand
from controllers.prioritymeister.estimators import STAGES, Costs, DistanceProfile
from controllers.prioritymeister.plan import Plan, WorkloadPlan
from controllers.prioritymeister.profiles import load_profile
from workloads.traces.reader import TraceReader

if TYPE_CHECKING:
    from campaigns.prioritymeister.scenario import Setting


@dataclass(frozen=True)
class Proof:
    """A workload's bound: the paper's, that of whole requests and packets, whether it is of the
    whole trace (a completion SLO), and why it does not apply (None: it does)."""

    proven_s: float
    blocking_s: float
    completion: bool
    why_not: str | None


def proofs(
    topology: Topology,
    base: Path,
    plan: Plan,
    setting: Setting,
    *,
    network: str,
    workloads: list[Workload],
) -> dict[str, Proof]:
    """By workload; see `Proof`.

    A bound holds for a workload that keeps to its trace, whatever the others do (section 3.2), as
    long as their requests are no larger than those they were planned with.
    """
    planned = {w.name: w for w in plan.workloads}
    general = _general(topology, setting, network) or _larger(topology, base, setting, workloads)
    found = {}
    for workload in workloads:
        if workload.name not in planned:
            continue
        one = planned[workload.name]
        stages = [s for s in one.stages if network != "off" or s.stage == "storage"]
        left_out = [s for s in one.stages if s not in stages]
        found[workload.name] = Proof(
            proven_s=one.bound - sum(s.bound for s in left_out),
            blocking_s=one.bound_blocking - sum(s.bound_blocking for s in left_out),
            completion=one.slo_kind == "throughput",
            why_not=general or _own(topology, base, setting, workload, one),
        )
    return found


def _general(topology: Topology, setting: Setting, network: str) -> str | None:
    """What takes the proof from all workloads."""
    if setting.policy != "pm":
        return f"policy {setting.policy} proves nothing"
    if setting.mode != "hold":
        return "best effort lets out of profile what the bound does not count"
    if setting.depth != 1:
        return "more than one request may be at the device, and is not interrupted"
    if network not in {"priority", "off"}:
        return f"the network is {network}, not enforced as planned"
    counted = topology.kept.frame
    if (setting.frame or 0.0) > counted and network != "off":
        return f"frames are longer than the {counted:g} bytes that the bound counts"
    if setting.noise_cv > 0:
        return "service times vary, and the bound is of estimated ones"
    return None


def _own(
    topology: Topology, base: Path, setting: Setting, workload: Workload, plan: WorkloadPlan
) -> str | None:
    """What takes the proof from one workload."""
    if workload.name in setting.traces:
        return "it replays another trace than was planned with"
    if workload.name in setting.closed:
        return "its requests come when others are answered, not at its trace's times"
    device = device_queue(topology, workload)
    if device in setting.service:
        return "its device takes other times than were planned with"
    profile = load_profile(base / topology.device_of(workload).profile)
    if setting.positioning == "device" and isinstance(profile.storage, DistanceProfile):
        return "its requests cost more between others' than alone"
    if plan.slo_kind == "throughput" and (setting.window or setting.duration_s):
        return "its bound is of the whole trace"
    return None


def _larger(
    topology: Topology, base: Path, setting: Setting, workloads: list[Workload]
) -> str | None:
    """A workload that replays another trace, with larger requests than were planned with."""
    for workload in workloads:
        if workload.name not in setting.traces:
            continue
        costs = load_profile(base / topology.device_of(workload).profile)
        planned = _measured(
            TraceReader(base / workload.trace, format=workload.format, disk=workload.disk), costs
        )
        replayed = _measured(TraceReader(setting.traces[workload.name]), costs)
        if any(replayed.largest[s] > planned.largest[s] * (1 + 1e-12) for s in STAGES):
            return f"{workload.name} sends larger requests than were planned with"
    return None


def _measured(reader: TraceReader, costs: Costs) -> Demand:
    return measure_trace(reader, costs, curves=False)[0]
