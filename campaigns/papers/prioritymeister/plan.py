"""Plans: measured traces and r-b curves, the plan of a topology, the placement of workloads on
servers, and the parameters of enforcers at devices, at hosts and at the switch's ports. The
parameters go to the NFS proxy and the network of a real testbed, and to the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from campaigns.papers.prioritymeister.topology import (
    NETWORK_STAGES,
    Links,
    PmWorkload,
    Topology,
)
from controllers.prioritymeister.estimators import (
    STAGES,
    StageCosts,
    TraceDemand,
    load_profile,
    measure,
)
from controllers.prioritymeister.limiters import Limiters, choose
from controllers.prioritymeister.prioritizer import (
    PlannedWorkload,
    PriorityPlan,
    StagePlan,
    make_plan,
)
from schemas.errors import UserError, not_allowed
from schemas.model import Model
from workloads.traces.reader import ReadingReport, TraceReader

Tell = Callable[[str], None]


def curve_of(
    demand: TraceDemand, stage: str, rates: Sequence[float] = ()
) -> dict[str, list[float]]:
    """Return ``rates`` and ``bursts``: the corners of a measured trace's curve, or `rates`."""
    curve = demand.curves[stage]
    if rates:
        return {"rates": list(rates), "bursts": curve.burst(list(rates)).tolist()}
    corners, bursts = curve.corners()
    return {"rates": corners.tolist(), "bursts": bursts.tolist()}


_RATES = "numbers of 0 or more, separated by commas"


def parse_rates(text: str | None) -> tuple[float, ...]:
    """Return the rates of the command line, separated by commas; UserError: one is below 0."""
    found = []
    for part in filter(None, (text or "").split(",")):
        try:
            rate = float(part)
        except ValueError:
            rate = math.nan
        if not 0 <= rate < math.inf:
            raise not_allowed("--rates", part.strip(), _RATES)
        found.append(rate)
    if text is not None and not found:
        raise not_allowed("--rates", text, _RATES)
    return tuple(found)


def costs_of(profile: Path | None, stage: str) -> StageCosts:
    """Return the estimators of a stage; raise UserError if it is unknown or needs a profile."""
    costs = StageCosts(None) if profile is None else load_profile(profile)
    costs.estimator(stage)
    return costs


def measure_trace(
    reader: TraceReader, costs: StageCosts, stages: Sequence[str] = STAGES, *, curves: bool = True
) -> tuple[TraceDemand, ReadingReport]:
    """Read a trace once; a UserError has its file, and the reason if there is no request."""
    try:
        demand = measure(reader, costs, stages, curves=curves)
    except UserError as error:
        if str(reader.path) in error.where or str(reader.path) in error.what:
            raise
        if not reader.report.requests:
            raise UserError(reader.nothing(), where=reader.path) from error
        raise error.at(reader.path) from error
    return demand, reader.report


class MeasuredTraces:
    """Traces at the devices of a topology, each read once; `base` is the folder of relative file
    names, and `tell` is called with messages for the user about malformed rows that were skipped.
    """

    def __init__(self, base: Path, tell: Tell = lambda _: None) -> None:
        self._base = base
        self._tell = tell
        self._profiles: dict[str, StageCosts] = {}
        self._known: dict[tuple[object, ...], TraceDemand] = {}

    def tenant(self, topology: Topology, workload: PmWorkload) -> PlannedWorkload:
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
) -> PriorityPlan:
    """Read every trace and profile of a topology, and return its plan; names of files are relative
    to the topology's `file`. See `MeasuredTraces` and `planned`.

    Raises:
        UserError: a file is wrong, a workload has no server, or a queue's load is above 100 %.
    """
    homeless = [w.name for w in topology.workloads if w.server is None]
    if homeless:
        raise UserError(
            "has no server",
            where=f"{file}: workload {homeless[0]}",
            do="name one, or choose it by hotbed pm place",
        )
    measured = MeasuredTraces(file.resolve().parent, tell)
    tenants = [measured.tenant(topology, workload) for workload in topology.workloads]
    try:
        return planned(topology, tenants, links=links)
    except UserError as error:
        raise error.at(file) from error


def planned(
    topology: Topology,
    tenants: Sequence[PlannedWorkload],
    *,
    order: Sequence[str] | None = None,
    links: Links | None = None,
) -> PriorityPlan:
    """Return the plan of some workloads on a topology's machines; see `make_plan`. `links` are the
    network's limits for the plan, if not the topology's own."""
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


def tenant_of(
    topology: Topology, workload: PmWorkload, demand: TraceDemand, speed: float = 1.0
) -> PlannedWorkload:
    """Return a workload with its token buckets. If the trace of a throughput SLO arrives at one
    instant, its span is the SLO's time."""
    limiters, largest = {}, {}
    span = workload.duration or demand.seconds or workload.slo.completion
    for stage in STAGES:
        curve = demand.curves[stage]
        if not span:
            raise UserError(
                f"all requests of {workload.trace} come at one instant: they have no mean rate",
                where=f"workload {workload.name}",
                do="add duration, the time that the trace stands for",
            )
        found = choose(curve, topology.buckets, curve.total / span)
        faster = speed if stage == "storage" else 1.0
        limiters[stage] = Limiters(found.rates / faster, found.bursts / faster, found.error)
        largest[stage] = demand.largest[stage] / faster
    tenant = PlannedWorkload(
        name=workload.name,
        slo_s=workload.slo.latency or 0.0,
        routes=topology.routes(workload),
        limiters=limiters,
        largest=largest,
    )
    if workload.slo.completion is None:
        return tenant
    return replace(tenant, slo_s=workload.slo.completion, throughput=True, spent_s=demand.seconds)


@dataclass(frozen=True)
class Place:
    """Place of a workload: its server and device, or None for both if no device can take it."""

    workload: str
    server: str | None
    device: str | None
    given: bool


@dataclass(frozen=True)
class WorkloadPlacement:
    """Places of all workloads, and the plan of the placed workloads."""

    placed: bool
    places: tuple[Place, ...]
    plan: PriorityPlan | None


def place(
    topology: Topology,
    file: Path,
    tell: Tell = lambda _: None,
    progress: Callable[[str, float], None] = lambda _name, _share: None,
) -> WorkloadPlacement:
    """Place workloads in the order of the file, each on the first device where all SLOs hold.

    Workloads with a server stay there. A device admits a workload if, with it, every workload
    placed so far meets its SLO by its bound. If no device admits it, it has no place, and later
    workloads are tried without it. `progress` is called with a workload's name and the share that
    is done.

    Raises:
        UserError: a file is wrong, no host has a requested device, or the workloads with a server
            do not meet their SLOs.
    """
    known = sorted({device for host in topology.hosts.values() for device in host.devices})
    for workload in topology.workloads:
        if workload.device is not None and workload.device not in known:
            where = f"{file}: workload {workload.name}.device"
            raise not_allowed(where, workload.device, ", ".join(known))
    measured = MeasuredTraces(file.resolve().parent, tell)
    tenants = [measured.tenant(topology, w) for w in topology.workloads if w.server is not None]
    plan = _fitting(topology, tenants) if tenants else None
    if tenants and plan is None:
        raise UserError(
            "the workloads that have a server do not all meet their SLOs",
            where=file,
            do="see hotbed pm plan, with those alone",
        )
    places = []
    for done, workload in enumerate(topology.workloads):
        progress(workload.name, done / len(topology.workloads))
        if workload.server is not None:
            device = topology.device_name(workload)
            places.append(Place(workload.name, workload.server, device, given=True))
            continue
        found = Place(workload.name, None, None, given=False)
        for candidate in _candidates(topology, workload):
            tenant = measured.tenant(topology, candidate)
            more = _fitting(topology, [*tenants, tenant])
            if more is not None:
                tenants.append(tenant)
                plan = more
                found = Place(workload.name, candidate.server, candidate.device, given=False)
                break
        places.append(found)
    return WorkloadPlacement(all(p.server is not None for p in places), tuple(places), plan)


def _fitting(topology: Topology, tenants: list[PlannedWorkload]) -> PriorityPlan | None:
    """Return the plan if all SLOs hold, else None."""
    try:
        plan = planned(topology, tenants)
    except UserError:  # loaded above 100 %
        return None
    return plan if plan.met else None


def _candidates(topology: Topology, workload: PmWorkload) -> Iterator[PmWorkload]:
    """Yield the workload on every device that it can reach, in the order of the file."""
    for name, host in topology.hosts.items():
        for device in host.devices:
            if workload.device not in {None, device}:
                continue
            candidate = workload.model_copy(update={"server": name, "device": device})
            try:
                topology.check(candidate)
            except ValueError:  # on another switch, or the client itself
                continue
            yield candidate


POLICIES = ("pm", "ps", "cake", "edf", "byslo", "mclock", "none")
"""Policies of the enforcer (section 5.3, mClock, and first come first served)."""
MODES = ("hold", "best-effort")
_DEEPEST = 65536  # the enforcer's limit

NetworkMode = Literal["priority", "levels", "fifo"]
NETWORK_OF: Mapping[str, NetworkMode] = {"pm": "priority", "byslo": "levels"}
"""Network enforcement by policy; the others have none (section 5.3)."""


@dataclass(frozen=True)
class EnforcedPolicy:
    """A policy of the storage enforcers and its parameters; raises UserError for an unknown name or
    a `depth` out of range.

    `mode` is of pm. `depth` is the number of concurrent requests at a device, 0 for any. `cake` has
    Cake's own parameters (interval, percentile, step, upper, floor) that differ from the default.
    `reservations` are mClock's by workload, seconds of the device per second; None for the rate of
    the slowest bucket, which is the workload's mean.
    """

    policy: str = "pm"
    mode: str = "hold"
    depth: int = 1
    cake: Mapping[str, float] = field(default_factory=dict)
    reservations: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise not_allowed("policy", self.policy, ", ".join(POLICIES))
        if self.mode not in MODES:
            raise not_allowed("mode", self.mode, ", ".join(MODES))
        if not 0 <= self.depth <= _DEEPEST:
            raise not_allowed("depth", self.depth, f"0 (any number) to {_DEEPEST}")


_CLASSES = 7  # class selectors above best effort: cs1 to cs7
_MOST_LEVELS = 63  # DSCP has six bits, and 0 is best effort
_ANY: Mapping[str, Sequence[str]] = {}


class NetworkLevel(Model):
    """A level of the network, 1 is the first, and the mark of its packets."""

    level: int
    dscp: int
    name: str


class NetworkFlow(Model):
    """Messages of a workload from a host: its requests (``network-in``) or its server's replies.

    `pairs` are (bytes per second, bytes) of token buckets that all apply; empty means no limit.
    `source` and `destination` are addresses, empty if unknown.
    """

    workload: str
    stage: Literal["network-in", "network-out"]
    to: str
    level: int
    dscp: int
    pairs: tuple[tuple[float, float], ...]
    source: tuple[str, ...] = ()
    destination: tuple[str, ...] = ()


class HostNetwork(Model):
    """Outgoing link of a host: its queue, rate in bytes per second, and flows."""

    queue: str
    rate: float
    flows: tuple[NetworkFlow, ...]


class NetworkParameters(Model):
    """Network enforcement (section 4.6) at every host that sends, and at switch ports.

    `ports` are the queues after the first of every route, with their rates in bytes per second.
    They serve by strict priority of `dscp` and limit nothing.
    """

    policy: str
    mode: NetworkMode
    levels: tuple[NetworkLevel, ...]
    hosts: dict[str, HostNetwork]
    ports: dict[str, float]


class EnforcerParameters(Model):
    """All parameters: the NFS proxy's ``parameters`` by device queue, and the network's."""

    policy: str
    storage: dict[str, dict[str, Any]]
    network: NetworkParameters


def load_addresses(path: Path) -> dict[str, tuple[str, ...]]:
    """Return addresses by host or workload from a JSON file: ``{name: [address, ...]}``."""
    try:
        return TypeAdapter(dict[str, tuple[str, ...]]).validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from error
    except ValidationError as error:
        wanted = "a JSON object {name: [address, ...]}"
        raise UserError("is no JSON of addresses", where=path, allowed=wanted) from error


def device_queue(topology: Topology, workload: PmWorkload) -> str:
    """Return the name of the queue of a workload's device, ``server:device``."""
    return topology.routes(workload)["storage"][0]


def device_queues(topology: Topology) -> tuple[str, ...]:
    """Return the devices that workloads use, in the order of the workloads."""
    used = (device_queue(topology, w) for w in topology.workloads if w.server is not None)
    return tuple(dict.fromkeys(used))


def parameters_of(
    topology: Topology,
    plan: PriorityPlan | None,
    enforced: EnforcedPolicy,
    addresses: Mapping[str, Sequence[str]] = _ANY,
) -> EnforcerParameters:
    """Return the parameters of all devices and of the network; see the two functions below."""
    storage = {
        device: storage_parameters(topology, plan, device, enforced, addresses)
        for device in device_queues(topology)
    }
    network = network_parameters(topology, plan, policy=enforced.policy, addresses=addresses)
    return EnforcerParameters(policy=enforced.policy, storage=storage, network=network)


def storage_parameters(
    topology: Topology,
    plan: PriorityPlan | None,
    device: str,
    enforced: EnforcedPolicy,
    addresses: Mapping[str, Sequence[str]] = _ANY,
) -> dict[str, Any]:
    """Return the ``parameters`` of nfsproxy's configuration for the enforcer of a device, by its
    queue.

    Schedulers of requests ignore a completion SLO. The plan has priorities and token buckets (pm)
    and mean rates (mclock). Clients' addresses are by workload or by host; a workload's own take
    precedence.

    Raises:
        UserError: no workload uses the device, or a plan is needed.
    """
    policy, reserved = enforced.policy, enforced.reservations
    found = []
    for workload in topology.workloads:
        if workload.server is None or device_queue(topology, workload) != device:
            continue
        entry: dict[str, Any] = {
            "name": workload.name,
            "clients": list(addresses.get(workload.name) or addresses.get(workload.client) or ()),
            "weight": 1.0,
        }
        if workload.slo.latency is not None:
            entry["slo"] = workload.slo.latency
        if policy == "pm":
            stage = _stage(plan, workload.name, "storage")
            entry |= {"priority": stage.priority, "pairs": [list(pair) for pair in stage.pairs]}
        if policy == "mclock":
            mean = min(rate for rate, _ in _stage(plan, workload.name, "storage").pairs)
            given = {workload.name: mean} if reserved is None else reserved
            entry["reservation"] = float(given.get(workload.name, 0.0))
        found.append(entry)
    if not found:
        used = ", ".join(device_queues(topology))
        raise UserError("no workload uses it", where=f"device {device}", allowed=used)
    made: dict[str, Any] = {"policy": policy, "depth": enforced.depth, "workloads": found}
    if policy == "pm":
        made["mode"] = enforced.mode
    if policy == "cake" and enforced.cake:
        made["cake"] = dict(enforced.cake)
    return made


def network_parameters(
    topology: Topology,
    plan: PriorityPlan | None,
    *,
    policy: str = "pm",
    mode: NetworkMode | None = None,
    addresses: Mapping[str, Sequence[str]] = _ANY,
) -> NetworkParameters:
    """Return the parameters of hosts and switch ports.

    Levels and token buckets of pm are the plan's, separate for each direction. byslo has levels by
    SLO and no limits. All other policies do not enforce in the network (section 5.3); `mode` may
    change that.

    Raises:
        UserError: a plan is needed, or there are more levels than DSCP has values.
    """
    chosen = NETWORK_OF.get(policy, "fifo") if mode is None else mode
    bandwidth = topology.queues()
    by_slo = _levels_by_slo(topology) if chosen == "levels" else {}
    flows: dict[str, list[NetworkFlow]] = {}
    ports: dict[str, float] = {}
    for workload in topology.workloads:
        if workload.server is None:
            continue
        routes = topology.routes(workload)
        client = tuple(addresses.get(workload.name) or addresses.get(workload.client) or ())
        server = tuple(addresses.get(workload.server) or ())
        for stage in NETWORK_STAGES:
            first, *rest = routes[stage]
            ports |= {queue: bandwidth[queue] for queue in rest}
            level = by_slo.get(workload.name, 1)
            pairs: tuple[tuple[float, float], ...] = ()
            if chosen == "priority":
                planned = _stage(plan, workload.name, stage)
                level, pairs = planned.level or 1, planned.pairs
            inwards = stage == "network-in"
            flow = NetworkFlow(
                workload=workload.name,
                stage=stage,
                to=workload.server if inwards else workload.client,
                level=level,
                dscp=0,
                pairs=pairs,
                source=client if inwards else server,
                destination=server if inwards else client,
            )
            flows.setdefault(first, []).append(flow)
    most = max((flow.level for each in flows.values() for flow in each), default=0)
    marks = _marks(0 if chosen == "fifo" else most)
    dscp = {mark.level: mark.dscp for mark in marks}
    hosts = {
        queue.split("->")[0]: HostNetwork(
            queue=queue,
            rate=bandwidth[queue],
            flows=tuple(f.model_copy(update={"dscp": dscp.get(f.level, 0)}) for f in each),
        )
        for queue, each in flows.items()
    }
    return NetworkParameters(
        policy=policy, mode=chosen, levels=marks, hosts=hosts, ports=dict(sorted(ports.items()))
    )


def _stage(plan: PriorityPlan | None, workload: str, stage: str) -> StagePlan:
    if plan is None:
        raise UserError("priorities and token buckets come from a plan", do="make a plan")
    for one in plan.workloads:
        if one.name == workload:
            return next(s for s in one.stages if s.stage == stage)
    raise UserError(f"workload {workload} is not in the plan", do="make a plan with it")


def _levels_by_slo(topology: Topology) -> dict[str, int]:
    """Return bySLO's levels: equal SLOs share a level, and workloads without a latency SLO get the
    last. If there are more SLOs than levels, SLOs are distributed evenly."""
    each = {w.name: w.slo.latency or float("inf") for w in topology.workloads}
    ranks = {slo: rank for rank, slo in enumerate(sorted(set(each.values())))}
    count = topology.network_levels or len(ranks)
    fold = max(len(ranks), count)
    return {name: 1 + ranks[slo] * count // fold for name, slo in each.items()}


def _marks(most: int) -> tuple[NetworkLevel, ...]:
    """Return the DSCP of levels 1 to `most`: cs7, cs6, .. cs1, or 63, 62, .. for more levels."""
    if most > _MOST_LEVELS:
        raise UserError(
            f"there are {most} network levels, and DSCP has {_MOST_LEVELS}",
            do=f"write network_levels: {_MOST_LEVELS} or fewer in the topology",
        )
    found = []
    for level in range(1, most + 1):
        few, many = _CLASSES + 1 - level, _MOST_LEVELS + 1 - level
        dscp, name = (8 * few, f"cs{few}") if most <= _CLASSES else (many, str(many))
        found.append(NetworkLevel(level=level, dscp=dscp, name=name))
    return tuple(found)
