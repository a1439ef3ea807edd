"""Studies of traces, profiles and topologies: results that `hotbed pm` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from campaigns.papers.prioritymeister.links import Links
from campaigns.papers.prioritymeister.topology import Topology, Workload
from controllers.prioritymeister.curve import Curve
from controllers.prioritymeister.demand import Demand, measure
from controllers.prioritymeister.estimators import STAGES, Costs
from controllers.prioritymeister.limiters import Limiters, choose
from controllers.prioritymeister.plan import Plan, Tenant, make_plan
from controllers.prioritymeister.profiles import load_profile
from schemas.errors import UserError
from workloads.traces.reader import Report, TraceReader

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Curves:
    """Requested r-b curve: its corners, or the exact burst of each rate."""

    rates: tuple[float, ...]
    bursts: tuple[float, ...]


def curve_of(demand: Demand, stage: str, rates: Sequence[float] = ()) -> Curves:
    """Return the corners of a measured trace's curve, or the bursts of `rates`."""
    curve: Curve = demand.curves[stage]
    if rates:
        return Curves(tuple(rates), tuple(curve.burst(list(rates)).tolist()))
    found_rates, bursts = curve.corners()
    return Curves(tuple(found_rates.tolist()), tuple(bursts.tolist()))


def parse_rates(text: str | None) -> tuple[float, ...]:
    """Return the rates of the command line, which are separated by commas.

    Raises:
        UserError: a rate is not a number of 0 or more.
    """
    found = []
    for part in filter(None, (text or "").split(",")):
        try:
            rate = float(part)
        except ValueError:
            rate = math.nan
        if not 0 <= rate < math.inf:
            raise UserError(f"--rates: {part.strip()!r} is not a rate; write numbers of 0 or more.")
        found.append(rate)
    if text is not None and not found:
        raise UserError("--rates is empty: write numbers separated by commas, or leave it out.")
    return tuple(found)


def costs_of(profile: Path | None, stage: str) -> Costs:
    """Return the estimators of a stage; raise UserError if it is unknown or needs a profile."""
    costs = Costs(None) if profile is None else load_profile(profile)
    try:
        costs.estimator(stage)
    except UserError as error:
        raise UserError(f"{error}.") from error
    return costs


def measure_trace(
    reader: TraceReader, costs: Costs, stages: Sequence[str] = STAGES, *, curves: bool = True
) -> tuple[Demand, Report]:
    """Read a trace once; a UserError has its file, and the reason if there is no request."""
    try:
        demand = measure(reader, costs, stages, curves=curves)
    except UserError as error:
        if str(reader.path) in str(error):
            raise
        if not reader.report.requests:
            raise UserError(f"{reader.path}: {reader.nothing()}.") from error
        raise UserError(f"{reader.path}: {error}.") from error
    return demand, reader.report


class Measured:
    """Traces at the devices of a topology, each read once.

    Args:
        base: folder for relative file names.
        tell: called with messages for the user (about malformed rows that were skipped).
    """

    def __init__(self, base: Path, tell: Tell = lambda _: None) -> None:
        self._base = base
        self._tell = tell
        self._profiles: dict[str, Costs] = {}
        self._known: dict[tuple[object, ...], Demand] = {}

    def tenant(self, topology: Topology, workload: Workload) -> Tenant:
        """Return a placed workload of a topology; raise UserError if a file is wrong."""
        device = topology.device_of(workload)
        if device.profile not in self._profiles:
            self._profiles[device.profile] = load_profile(self._base / device.profile)
        key = (workload.trace, workload.format, workload.disk, device.profile)
        if key not in self._known:
            path = self._base / workload.trace
            reader = TraceReader(path, format=workload.format, disk=workload.disk)
            self._known[key], report = measure_trace(reader, self._profiles[device.profile])
            if report.malformed:
                self._tell(report.sentence(path))
        lag = self._profiles[device.profile].overhead.latency / device.speed
        tenant = tenant_of(topology, workload, self._known[key], device.speed)
        return replace(tenant, lag=lag)


def plan_of(
    topology: Topology, file: Path, tell: Tell = lambda _: None, *, links: Links | None = None
) -> Plan:
    """Read every trace and profile of a topology, and return its plan.

    Args:
        topology: checked.
        file: the topology's file; names in it are relative to its folder.
        tell: see `Measured`.
        links: see `planned`.

    Raises:
        UserError: a file is wrong, a workload has no server, or a queue's load is above 100 %.
    """
    homeless = [w.name for w in topology.workloads if w.server is None]
    if homeless:
        raise UserError(
            f"{file}: workload {homeless[0]} has no server: name one, or let hotbed pm place "
            "choose it."
        )
    measured = Measured(file.resolve().parent, tell)
    tenants = [measured.tenant(topology, workload) for workload in topology.workloads]
    try:
        return planned(topology, tenants, links=links)
    except UserError as error:
        raise UserError(f"{file}: {error}.") from error


def planned(
    topology: Topology,
    tenants: Sequence[Tenant],
    *,
    order: Sequence[str] | None = None,
    links: Links | None = None,
) -> Plan:
    """Return the plan of some workloads on a topology's machines.

    Args:
        topology: hosts and links.
        tenants: workloads with their announced traces.
        order: see `make_plan`.
        links: the network's limits for the plan, if not the topology's own `links`.
    """
    kept = topology.kept if links is None else links
    devices = {f"{name}:{d}" for name, host in topology.hosts.items() for d in host.devices}
    queues = topology.queues()
    return make_plan(
        [kept.kept(tenant) for tenant in tenants],
        {name: rate if name in devices else rate * kept.share for name, rate in queues.items()},
        network_levels=topology.network_levels,
        blocking=topology.blocking,
        order=order,
        frame=kept.frame,
        overshoot=kept.overshoot,
    )


def tenant_of(topology: Topology, workload: Workload, demand: Demand, speed: float = 1.0) -> Tenant:
    """Return a workload with its token buckets.

    If the trace of a throughput SLO arrives at one instant, its span is the SLO's time.
    """
    limiters, largest = {}, {}
    span = workload.duration or demand.seconds or workload.slo.completion
    for stage in STAGES:
        curve = demand.curves[stage]
        if not span:
            raise UserError(
                f"workload {workload.name}: all requests of {workload.trace} come at one instant, "
                "so that it has no mean rate: add duration, the time that the trace stands for."
            )
        found = choose(curve, topology.buckets, curve.total / span)
        faster = speed if stage == "storage" else 1.0
        limiters[stage] = Limiters(found.rates / faster, found.bursts / faster, found.error)
        largest[stage] = demand.largest[stage] / faster
    tenant = Tenant(
        name=workload.name,
        slo_s=workload.slo.latency or 0.0,
        routes=topology.routes(workload),
        limiters=limiters,
        largest=largest,
    )
    if workload.slo.completion is None:
        return tenant
    return replace(tenant, slo_s=workload.slo.completion, throughput=True, spent_s=demand.seconds)
