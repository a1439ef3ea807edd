"""Scenario of the simulator (dataplane/nfssim), from a topology and a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.papers.prioritymeister.plan import (
    NETWORK_OF,
    NetworkFlow,
    NetworkParameters,
    check_policy,
    device_queue,
    measure_trace,
    network_parameters,
    storage_parameters,
)
from campaigns.papers.prioritymeister.topology import PmWorkload, Topology
from controllers.prioritymeister.demand import TraceDemand
from controllers.prioritymeister.estimators import STAGES, DistanceProfile, StageCosts
from controllers.prioritymeister.plan import PriorityPlan, WorkloadPlan
from controllers.prioritymeister.profiles import load_profile, parse_profile, read_document
from schemas.errors import UserError
from workloads.traces.reader import TraceReader

SCENARIO_SCHEMA = 1
NETWORKS = ("auto", "priority", "levels", "fifo", "off")


@dataclass(frozen=True)
class Closed:
    """Closed loop like workload L's: `in_flight` requests in flight, whatever the trace's times.
    With `repeat`, the trace repeats until the duration is over."""

    in_flight: int = 1
    repeat: bool = True


@dataclass(frozen=True)
class DiskModel:
    """The disk of dataplane/service, which a testbed's queue disk is: mean positioning time in
    seconds over random offsets, bytes per second, and size in bytes."""

    positioning_mean_s: float
    bandwidth: float
    size: int


@dataclass(frozen=True)
class Service:
    """Real service of a device: a profile's work, `speed` times as fast, or a disk's."""

    profile: Path | None = None
    speed: float = 1.0
    disk: DiskModel | None = None


@dataclass(frozen=True)
class WorkloadProof:
    """A workload's bound: the paper's, and the bound with whole requests and packets. `completion`
    is True for a bound of the whole trace (a completion SLO). `why_not` is None if it applies."""

    proven_s: float
    blocking_s: float
    completion: bool
    why_not: str | None


@dataclass(frozen=True)
class SimulationSetting:
    """Settings for simulating a topology.

    Attributes:
        policy: policy of the storage enforcers.
        mode: mode of pm: ``hold`` or ``best-effort``.
        depth: concurrent requests at a device; 0 means any number.
        network: ``priority`` (levels and token buckets of the plan), ``levels`` (by SLO), ``fifo``,
            ``off`` (messages take no time); ``auto`` means the policy's own.
        seed: seed of noise, and of offsets if a disk needs them and a trace has none.
        duration_s: end of arrivals; requests in the system are still served.
        window: seconds [from, until) of every trace, moved to 0.
        closed: workloads that are replayed in a closed loop.
        traces: replayed files instead of the planned ones (figures 4 and 8).
        service: real service by device queue; by default the planned one. The enforcer always
            charges the planned one (figure 10).
        positioning: ``stream``: a device with distance-dependent work treats each workload's
            requests as if alone; ``device``: its head is where the last request of any workload
            left it.
        noise_cv: coefficient of variation of a lognormal factor, with mean 1, of service times.
        frame: bytes of a packet, infinite for whole messages; None means the topology's frames.
        series_s: length of the windows of `WorkloadResult.series`; 0 for none.
        only: workloads to simulate; None means all.
        cake: Cake's own parameters, by the enforcer's names.
        weights: weights of ps, cake and mclock, by workload.
        reservations: mclock's, by workload; by default mean rates.
        slos: latency SLOs in seconds instead of the topology's.
    """

    policy: str = "pm"
    mode: str = "hold"
    depth: int = 1
    network: str = "auto"
    seed: int = 1
    duration_s: float | None = None
    window: tuple[float, float] | None = None
    closed: Mapping[str, Closed] = field(default_factory=dict)
    traces: Mapping[str, Path] = field(default_factory=dict)
    service: Mapping[str, Service] = field(default_factory=dict)
    positioning: str = "stream"
    noise_cv: float = 0.0
    frame: float | None = None
    series_s: float = 0.0
    only: tuple[str, ...] | None = None
    cake: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    reservations: Mapping[str, float] | None = None
    slos: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """A workload's trace in a topology: file, format and disk."""

    path: Path
    format: str = "auto"
    disk: int | None = None


@dataclass(frozen=True)
class Scenario:
    """Input of the simulator: its JSON, except the traces' files, which `simulate` fills in.

    `proofs` are bounds by workload, empty without a plan.
    """

    document: dict[str, Any]
    traces: Mapping[str, Trace]
    policy: str
    mode: str
    network: str
    slos: Mapping[str, float | None]
    proofs: Mapping[str, WorkloadProof]


def scenario_of(
    topology: Topology, file: Path, plan: PriorityPlan | None, setting: SimulationSetting
) -> Scenario:
    """Return the scenario of a topology.

    Args:
        topology: checked; workloads without a server are left out.
        file: the topology's file; names in it are relative to its folder.
        plan: plan of the topology, or of one that includes these workloads; pm, mclock and network
            ``priority`` need it. With a plan, results have bounds.
        setting: see `SimulationSetting`.

    Raises:
        UserError: a name or number in the setting is unknown or out of range, or a profile cannot
            be read.
    """
    _check(topology, setting)
    check_policy(setting.policy, setting.mode, plan)
    base = file.resolve().parent
    frame = topology.kept.frame if setting.frame is None else setting.frame
    workloads = [w for w in topology.workloads if _takes_part(w, setting)]
    if not workloads:
        raise UserError(f"{file}: no workload with a server is left to simulate.")
    names = tuple(w.name for w in workloads)
    mode = setting.network
    if mode == "auto":
        mode = NETWORK_OF.get(setting.policy, "fifo")
    profiles = _Profiles()
    links: list[dict[str, Any]] = []
    if mode != "off":
        network = network_parameters(
            topology,
            plan,
            policy=setting.policy,
            mode=mode,  # type: ignore[arg-type]
            slos=setting.slos,
            only=names,
        )
        links = _links(topology, network, workloads)
    document = {
        "schema": SCENARIO_SCHEMA,
        "seed": setting.seed,
        "duration": setting.duration_s or 0.0,
        "frame": 0.0 if math.isinf(frame) else frame,
        "series": setting.series_s,
        "devices": _devices(topology, plan, setting, base, profiles=profiles, workloads=workloads),
        "links": links,
        "workloads": [
            _workload(topology, w, setting, base, profiles, networked=mode != "off")
            for w in workloads
        ],
        "profiles": profiles.texts,
    }
    traces = {
        w.name: Trace(setting.traces[w.name])
        if w.name in setting.traces
        else Trace(base / w.trace, w.format, w.disk)
        for w in workloads
    }
    return Scenario(
        document=document,
        traces=traces,
        policy=setting.policy,
        mode=setting.mode,
        network=mode,
        slos={w.name: setting.slos.get(w.name, w.slo.latency) for w in workloads},
        proofs={}
        if plan is None
        else proofs(topology, base, plan, setting, network=mode, workloads=workloads),
    )


def closed_from(texts: Sequence[str], *, repeat: bool) -> dict[str, Closed]:
    """Return closed loops from the command line's ``WORKLOAD=N``.

    Raises:
        UserError: a text has another form.
    """
    found = {}
    for text in texts:
        name, _, count = text.partition("=")
        if not name or not count.isdigit() or int(count) < 1:
            raise UserError(f"--closed {text!r}: write WORKLOAD=N, N requests in flight.")
        found[name] = Closed(int(count), repeat)
    return found


def _takes_part(workload: PmWorkload, setting: SimulationSetting) -> bool:
    return workload.server is not None and (setting.only is None or workload.name in setting.only)


class _Profiles:
    """Profiles by file, each read once."""

    def __init__(self) -> None:
        self.texts: dict[str, Any] = {}

    def name(self, path: Path) -> str:
        """Return the name of a profile's file in the document; raise UserError if it is invalid."""
        if str(path) not in self.texts:
            document = read_document(path)
            parse_profile(document, f"profile {path}")
            self.texts[str(path)] = document
        return str(path)


def _devices(
    topology: Topology,
    plan: PriorityPlan | None,
    setting: SimulationSetting,
    base: Path,
    *,
    profiles: _Profiles,
    workloads: list[PmWorkload],
) -> list[dict[str, Any]]:
    found = {device_queue(topology, w): topology.device_of(w) for w in workloads}
    made = []
    for name, device in found.items():
        charged = {"profile": profiles.name(base / device.profile), "speed": device.speed}
        service: dict[str, Any] = {"positioning": setting.positioning, "noise": setting.noise_cv}
        truth = setting.service.get(name)
        if truth is None:
            service |= charged
        elif truth.disk is not None:
            service |= {
                "speed": truth.speed,
                "profile": "",
                "disk": {
                    "positioning_mean": truth.disk.positioning_mean_s,
                    "bandwidth": truth.disk.bandwidth,
                    "size": truth.disk.size,
                },
            }
        else:
            given = base / device.profile if truth.profile is None else truth.profile
            service |= {"profile": profiles.name(given), "speed": truth.speed}
        parameters = storage_parameters(
            topology,
            plan,
            name,
            policy=setting.policy,
            mode=setting.mode,
            depth=setting.depth,
            cake=setting.cake,
            weights=setting.weights,
            reservations=setting.reservations,
            slos=setting.slos,
            only=[w.name for w in workloads],
        )
        for entry in parameters["workloads"]:
            del entry["clients"]
        parameters.setdefault("cake", {})
        made.append(
            {"name": name, "charged": charged, "service": service, "parameters": parameters}
        )
    return made


def _links(
    topology: Topology, network: NetworkParameters, workloads: list[PmWorkload]
) -> list[dict[str, Any]]:
    """Return every link that a message passes: hosts with token buckets, ports only with levels."""
    flows: dict[tuple[str, str], tuple[str, NetworkFlow]] = {
        (flow.workload, flow.stage): (host.queue, flow)
        for host in network.hosts.values()
        for flow in host.flows
    }
    entries: dict[str, list[dict[str, Any]]] = {}
    for workload in workloads:
        for stage, suffix in (("network-in", "in"), ("network-out", "out")):
            first, flow = flows[workload.name, stage]
            for queue in topology.routes(workload)[stage]:
                entry: dict[str, Any] = {"name": f"{workload.name}/{suffix}"}
                if network.mode != "fifo":
                    pairs = [list(pair) for pair in flow.pairs] if queue == first else []
                    entry |= {"priority": flow.level, "pairs": pairs}
                entries.setdefault(queue, []).append(entry)
    bandwidth = topology.queues()
    common: dict[str, Any] = {
        "policy": "none" if network.mode == "fifo" else "pm",
        "depth": 1,
        "cake": {},
    }
    return [
        {"name": queue, "rate": bandwidth[queue], "parameters": {**common, "workloads": each}}
        for queue, each in entries.items()
    ]


def _workload(
    topology: Topology,
    workload: PmWorkload,
    setting: SimulationSetting,
    base: Path,
    profiles: _Profiles,
    *,
    networked: bool,
) -> dict[str, Any]:
    routes = topology.routes(workload)
    slo = setting.slos.get(workload.name, workload.slo.latency)
    made: dict[str, Any] = {
        "name": workload.name,
        "trace": "",
        "closed": 0,
        "repeat": False,
        "slo": slo or 0.0,
        "network": profiles.name(base / topology.device_of(workload).profile),
        "in": list(routes["network-in"]) if networked else [],
        "device": device_queue(topology, workload),
        "out": list(routes["network-out"]) if networked else [],
    }
    closed = setting.closed.get(workload.name)
    if closed is not None:
        made |= {"closed": closed.in_flight, "repeat": closed.repeat}
    if setting.window is not None:
        made["window"] = list(setting.window)
    return made


def _check(topology: Topology, setting: SimulationSetting) -> None:
    if setting.network not in NETWORKS:
        raise UserError(f"network {setting.network!r}: there are {', '.join(NETWORKS)}.")
    if setting.positioning not in {"stream", "device"}:
        raise UserError(f"positioning {setting.positioning!r}: there are stream and device.")
    names = {w.name for w in topology.workloads}
    for what, given in (
        ("closed", setting.closed),
        ("traces", setting.traces),
        ("only", setting.only or ()),
        ("weights", setting.weights),
        ("slos", setting.slos),
        ("reservations", setting.reservations or {}),
    ):
        for name in given:
            if name not in names:
                raise UserError(
                    f"{what}: there is no workload {name!r}; known are {', '.join(sorted(names))}."
                )
    queues = topology.queues()
    for name in setting.service:
        if name not in queues or ":" not in name:
            known = ", ".join(sorted(q for q in queues if ":" in q))
            raise UserError(f"service: there is no device {name!r}; known are {known}.")
    for name, closed in setting.closed.items():
        if closed.in_flight < 1:
            raise UserError(
                f"closed loop of {name}: {closed.in_flight} in flight, write 1 or more."
            )
        if closed.repeat and not setting.duration_s:
            raise UserError(
                f"closed loop of {name}: a trace that is repeated has no end: give a duration."
            )
    _check_numbers(setting)


def _check_numbers(setting: SimulationSetting) -> None:
    if setting.duration_s is not None and not 0 < setting.duration_s < math.inf:
        raise UserError(f"duration {setting.duration_s:g}: write seconds above 0.")
    if not 0 <= setting.noise_cv <= 10:
        raise UserError(
            f"noise is {setting.noise_cv:g}; write a coefficient of variation from 0 to 10."
        )
    if not 0 <= setting.seed < 2**64:
        raise UserError(f"seed {setting.seed}: write a whole number from 0 to 2^64 - 1.")


def proofs(
    topology: Topology,
    base: Path,
    plan: PriorityPlan,
    setting: SimulationSetting,
    *,
    network: str,
    workloads: list[PmWorkload],
) -> dict[str, WorkloadProof]:
    """Return the bounds by workload; see `WorkloadProof`.

    A bound holds for a workload that keeps to its trace, if the requests of the other workloads are
    no larger than planned. The others may do anything else (section 3.2).
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
        found[workload.name] = WorkloadProof(
            proven_s=one.bound - sum(s.bound for s in left_out),
            blocking_s=one.bound_blocking - sum(s.bound_blocking for s in left_out),
            completion=one.slo_kind == "throughput",
            why_not=general or _own(topology, base, setting, workload, one),
        )
    return found


def _general(topology: Topology, setting: SimulationSetting, network: str) -> str | None:
    """Return a reason why no workload has a proven bound."""
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
    topology: Topology,
    base: Path,
    setting: SimulationSetting,
    workload: PmWorkload,
    plan: WorkloadPlan,
) -> str | None:
    """Return a reason why one workload has no proven bound."""
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
    topology: Topology, base: Path, setting: SimulationSetting, workloads: list[PmWorkload]
) -> str | None:
    """Return a reason if a workload replays another trace with larger requests than planned."""
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


def _measured(reader: TraceReader, costs: StageCosts) -> TraceDemand:
    return measure_trace(reader, costs, curves=False)[0]
