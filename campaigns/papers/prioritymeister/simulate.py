"""Simulation of topologies by dataplane/cmd/pmsim: scenarios, results, and the ground `sim` of
experiments. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field, field_validator

from campaigns.papers.prioritymeister.experiment import (
    WINDOW_S,
    MeasuredRequests,
    PmExperiment,
    PmOutcome,
)
from campaigns.papers.prioritymeister.mixes import PmMachines
from campaigns.papers.prioritymeister.plan import (
    NETWORK_OF,
    EnforcedPolicy,
    NetworkParameters,
    Tell,
    device_queue,
    network_parameters,
    plan_of,
    storage_parameters,
)
from campaigns.papers.prioritymeister.topology import NETWORK_STAGES, Topology
from controllers.prioritymeister.estimators import load_profile
from controllers.prioritymeister.prioritizer import PriorityPlan
from schemas.cells.prioritymeister import PLANNED
from schemas.durable import read_json
from schemas.errors import UserError, not_allowed
from schemas.model import Model
from testbed.simulated import programs, sources
from workloads.traces.reader import TraceReader
from workloads.traces.requests import save

SCENARIO_SCHEMA = 1
RESULTS_SCHEMA = 1
NETWORKS = ("auto", "priority", "levels", "fifo", "off")
PROGRAM = sources.DATAPLANE / "bin" / "pmsim"
TOPOLOGY_FILE = "topology.yaml"

Progress = Callable[[float], None]
Trace = tuple[Path, str, int | None]
"""File, format and disk of a workload's trace."""


@dataclass(frozen=True)
class SimulationSetting(EnforcedPolicy):
    """Policy and settings for simulating a topology.

    `network` is ``priority`` (levels and token buckets of the plan), ``levels`` (by SLO), ``fifo``,
    ``off`` (messages take no time), or ``auto``, the policy's own. `seed` is of noise: `noise_cv`
    is the coefficient of variation of a lognormal factor, with mean 1, of service times. Nothing
    arrives from `duration_s` on; requests in the system are still served. `closed` has the requests
    in flight of workloads that are replayed in a closed loop, whatever the trace's times (workload
    L); with a duration the trace repeats until its end. `traces` are replayed files instead of the
    planned ones (figures 4 and 8). `service` has the profile of the real service by device queue;
    by default the planned one, which the enforcer always charges (figure 10). `frame` is the bytes
    of a packet, infinite for whole messages; None means the topology's frames. `series_s` is the
    length of the windows of `WorkloadResult.series`; 0 for none.
    """

    network: str = "auto"
    seed: int = 1
    duration_s: float | None = None
    closed: Mapping[str, int] = field(default_factory=dict)
    traces: Mapping[str, Path] = field(default_factory=dict)
    service: Mapping[str, Path] = field(default_factory=dict)
    noise_cv: float = 0.0
    frame: float | None = None
    series_s: float = 0.0


# Results.


class ResultModel(Model):
    """Part of the results; a field may have another name in the simulator's answer."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class Latencies(Model):
    """Latencies of some requests; `buckets` are [from, below, count] in nanoseconds, if requested.

    Percentiles are the middle of a bucket, which is at most 1/64 of its value wide; `mean` and
    `max` are exact. All are 0 without requests.
    """

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    p99_99: float
    max: float
    buckets: tuple[tuple[int, int, int], ...] = ()


class ReplayPart(Model):
    """Requests of a whole replay or of its second half; `slo_misses` is counted one by one."""

    requests: int
    slo_misses: int | None
    bytes: int
    latency: Latencies
    reads: Latencies
    writes: Latencies


class Enforced(ResultModel):
    """Counts of the device's enforcer: requests without room in a bucket on arrival, requests
    dispatched out of profile, seconds charged, and the weight at the end."""

    held: int
    out_of_profile: int
    work_s: float = Field(validation_alias="work")
    weight: float


class Bound(Model):
    """The proven latency and the measured maximum.

    `proven_s` is the paper's bound (fluid). `blocking_s` is the bound with whole requests and
    packets, to which a measurement is compared. `applies` is False if nothing is proven, and
    `why_not` is the reason. For a completion SLO, `measured_s` is the time of the last reply.
    """

    proven_s: float
    blocking_s: float
    measured_s: float
    applies: bool
    why_not: str | None

    @property
    def held(self) -> bool | None:
        """True if the bound held; None if it does not apply."""
        if not self.applies:
            return None
        # A bucket allows 1e-9 of its burst more, and every queue rounds to a nanosecond.
        return self.measured_s <= self.blocking_s * (1 + 1e-8) + 1e-8


class TraceRead(Model):
    """Reader's report on a workload's trace."""

    requests: int
    last_arrival_s: float
    malformed: int
    first_malformed: str | None


class WorkloadResult(ResultModel):
    """Results of a workload.

    A latency counts from the trace's time to the last byte of the reply (closed loop: from the time
    of sending). `second_half` are requests that arrived (closed loop: were answered) from `half_s`
    on. `stages` splits latencies by stage. In the storage stage, `device_wait` is the time before
    the device and `device_service` the time in it. A row of `series` has the begin of a window, its
    arrived requests, their misses, and their longest latency.
    """

    name: str
    mode: str
    slo_s: float | None
    completed_s: float = Field(validation_alias="completed")
    half_s: float = Field(validation_alias="half")
    max_backlog: int
    whole: ReplayPart
    second_half: ReplayPart
    stages: dict[str, Latencies]
    device_wait: Latencies
    device_service: Latencies
    enforcer: Enforced
    bound: Bound | None = None
    series: tuple[tuple[float, int, int, float], ...]
    trace: TraceRead


class DeviceResult(ResultModel):
    """Results of a device. `utilisation` is its busy share of the time until arrivals ended,
    `charged_s` the estimated work, `max_queue` the most requests waiting or served at a time.
    `lag_s` is its largest delay relative to its charges (docs/prioritymeister.md). A
    bound with this delay as the profile's ``overhead.latency`` holds."""

    name: str
    requests: int = Field(validation_alias="pieces")
    charged_s: float = Field(validation_alias="cost")
    busy_s: float = Field(validation_alias="busy")
    utilisation: float
    max_queue: int
    lag_s: float = Field(validation_alias="lag")


class LinkResult(ResultModel):
    """Results of one direction of a link, as for a device, in frames and bytes."""

    name: str
    frames: int = Field(validation_alias="pieces")
    bytes: float = Field(validation_alias="cost")
    busy_s: float = Field(validation_alias="busy")
    utilisation: float
    max_queue: int


class Results(ResultModel):
    """All results of a simulation. Only `cpu_s` and `wall_s` differ between equal simulations."""

    schema_version: int = RESULTS_SCHEMA
    policy: str
    mode: str
    network: str
    seed: int
    length_s: float = Field(validation_alias="length")
    end_s: float = Field(validation_alias="end")
    events: int
    cpu_s: float = Field(validation_alias="cpu")
    wall_s: float = Field(validation_alias="wall")
    workloads: tuple[WorkloadResult, ...]
    devices: tuple[DeviceResult, ...]
    links: tuple[LinkResult, ...]

    @field_validator("links", "devices", mode="before")
    @classmethod
    def _none(cls, given: object) -> object:
        return given or ()

    @property
    def broken_bounds(self) -> tuple[str, ...]:
        """Workloads with an exceeded proven bound; it is empty unless there is an error."""
        return tuple(
            w.name for w in self.workloads if w.bound is not None and w.bound.held is False
        )


# The simulator's input.


@dataclass(frozen=True)
class Scenario:
    """Input of the simulator: its JSON, except the traces' files, which `simulate` fills in.

    `slos` are latencies in seconds, None for a completion SLO.
    """

    document: dict[str, Any]
    traces: Mapping[str, Trace]
    policy: str
    mode: str
    network: str
    slos: Mapping[str, float | None]


def scenario_of(
    topology: Topology, file: Path, plan: PriorityPlan | None, setting: SimulationSetting
) -> Scenario:
    """Return the scenario of a checked topology; workloads without a server are left out.

    pm, mclock and network ``priority`` need a plan of the topology, or of one that includes these
    workloads.

    Raises:
        UserError: a name or number in the setting is unknown or out of range, or a profile cannot
            be read.
    """
    _check(topology, setting)
    base = file.resolve().parent
    placed = tuple(w for w in topology.workloads if w.server is not None)
    if not placed:
        raise UserError("no workload with a server is left to simulate", where=file)
    topology = topology.model_copy(update={"workloads": placed})
    mode = setting.network
    if mode == "auto":
        mode = NETWORK_OF.get(setting.policy, "fifo")
    frame = topology.kept.frame if setting.frame is None else setting.frame
    profiles: dict[str, Any] = {}

    def profile(name: str | Path) -> str:
        path = base / name
        if str(path) not in profiles:
            load_profile(path)
            profiles[str(path)] = read_json(path, f"profile {path}")
        return str(path)

    devices = {device_queue(topology, w): topology.device_of(w) for w in topology.workloads}
    links: list[dict[str, Any]] = []
    if mode != "off":
        links = _links(topology, network_parameters(topology, plan, mode=mode))  # type: ignore[arg-type]
    document = {
        "schema": SCENARIO_SCHEMA,
        "seed": setting.seed,
        "duration": setting.duration_s or 0.0,
        "frame": 0.0 if math.isinf(frame) else frame,
        "series": setting.series_s,
        "devices": [
            {
                "name": queue,
                "charged": {"profile": profile(device.profile), "speed": device.speed},
                "service": {
                    "profile": profile(setting.service.get(queue, device.profile)),
                    "speed": 1.0 if queue in setting.service else device.speed,
                    "noise": setting.noise_cv,
                },
                "parameters": _enforcer(topology, plan, setting, queue),
            }
            for queue, device in devices.items()
        ],
        "links": links,
        "workloads": [
            {
                "name": w.name,
                "trace": "",
                "closed": setting.closed.get(w.name, 0),
                "repeat": w.name in setting.closed and setting.duration_s is not None,
                "slo": w.slo.latency or 0.0,
                "network": profile(topology.device_of(w).profile),
                "in": [] if mode == "off" else list(topology.routes(w)["network-in"]),
                "device": device_queue(topology, w),
                "out": [] if mode == "off" else list(topology.routes(w)["network-out"]),
            }
            for w in topology.workloads
        ],
        "profiles": profiles,
    }
    return Scenario(
        document=document,
        traces={
            w.name: (setting.traces[w.name], "auto", None)
            if w.name in setting.traces
            else (base / w.trace, w.format, w.disk)
            for w in topology.workloads
        },
        policy=setting.policy,
        mode=setting.mode,
        network=mode,
        slos={w.name: w.slo.latency for w in topology.workloads},
    )


def closed_from(texts: Sequence[str]) -> dict[str, int]:
    """Return closed loops from the command line's ``WORKLOAD=N``; UserError for any other form."""
    found = {}
    for text in texts:
        name, _, count = text.partition("=")
        if not name or not count.isdigit() or int(count) < 1:
            raise not_allowed("--closed", text, "WORKLOAD=N, N requests in flight")
        found[name] = int(count)
    return found


def _check(topology: Topology, setting: SimulationSetting) -> None:
    if setting.network not in NETWORKS:
        raise not_allowed("network", setting.network, ", ".join(NETWORKS))
    names = {w.name for w in topology.workloads}
    devices = {q for q in topology.queues() if ":" in q}
    for what, given, known in (
        ("closed", setting.closed, names),
        ("traces", setting.traces, names),
        ("service", setting.service, devices),
    ):
        for name in given:
            if name not in known:
                raise not_allowed(what, name, ", ".join(sorted(known)))
    if setting.duration_s is not None and not 0 < setting.duration_s < math.inf:
        raise not_allowed("duration", setting.duration_s, "seconds above 0")
    if not 0 <= setting.noise_cv <= 10:
        raise not_allowed("noise", setting.noise_cv, "a coefficient of variation from 0 to 10")
    if not 0 <= setting.seed < 2**64:
        raise not_allowed("seed", setting.seed, "a whole number from 0 to 2^64 - 1")


def _enforcer(
    topology: Topology, plan: PriorityPlan | None, setting: SimulationSetting, queue: str
) -> dict[str, Any]:
    made = storage_parameters(topology, plan, queue, setting)
    for entry in made["workloads"]:
        del entry["clients"]
    return {"cake": {}, **made}


def _links(topology: Topology, network: NetworkParameters) -> list[dict[str, Any]]:
    """Return every link that a message passes: hosts with token buckets, ports only with levels."""
    flows = {(f.workload, f.stage): f for host in network.hosts.values() for f in host.flows}
    entries: dict[str, list[dict[str, Any]]] = {}
    for workload in topology.workloads:
        for stage in NETWORK_STAGES:
            flow, route = flows[workload.name, stage], topology.routes(workload)[stage]
            for queue in route:
                entry: dict[str, Any] = {"name": f"{workload.name}/{stage.split('-')[1]}"}
                if network.mode != "fifo":
                    pairs = [list(pair) for pair in flow.pairs] if queue == route[0] else []
                    entry |= {"priority": flow.level, "pairs": pairs}
                entries.setdefault(queue, []).append(entry)
    bandwidth = topology.queues()
    policy = "none" if network.mode == "fifo" else "pm"
    common: dict[str, Any] = {"policy": policy, "depth": 1, "cake": {}}
    return [
        {"name": queue, "rate": bandwidth[queue], "parameters": {**common, "workloads": each}}
        for queue, each in entries.items()
    ]


# Runs of the simulator.


def simulate(scenario: Scenario, *, progress: Progress = lambda _share: None) -> Results:
    """Simulate a scenario. Equal scenarios give equal results, except for real times. `progress` is
    called with the finished share of the arrivals' time.

    Raises:
        UserError: a trace or a number of the scenario is wrong.
        StoreError: the simulator is missing, was built from other sources, died or took too long.
    """
    sources.require(PROGRAM.name)
    with tempfile.TemporaryDirectory(prefix="hotbed-pm-") as folder:
        plain = _plain_files(scenario.traces, Path(folder))
        workloads = [{**w, "trace": str(plain[w["name"]])} for w in scenario.document["workloads"]]
        document = {**scenario.document, "workloads": workloads}
        answer = programs.answer_of(PROGRAM, document, "--progress", progress=progress)
    shared = {"policy": scenario.policy, "mode": scenario.mode, "network": scenario.network}
    found = [_completed(one, scenario.slos[one["name"]]) for one in answer["workloads"]]
    return Results.model_validate({**answer, **shared, "workloads": found})


def _completed(found: dict[str, Any], slo_s: float | None) -> dict[str, Any]:
    """Return the simulator's results of a workload with its SLO and its trace."""
    trace = TraceRead(
        requests=found["whole"]["requests"],
        last_arrival_s=found["last_arrival"],
        malformed=found["malformed"],
        first_malformed=found["first_malformed"] or None,
    )
    return {**found, "slo_s": slo_s, "trace": trace}


def simulate_topology(
    topology: Topology,
    file: Path,
    setting: SimulationSetting,
    *,
    tell: Tell = lambda _: None,
    progress: Progress = lambda _share: None,
) -> Results:
    """Plan a topology and simulate it with its own traces, profiles and frames; compare with the
    plan's bounds. A policy without need for a plan is simulated without bounds if a queue's load is
    too high for planning. Errors are those of `plan_of`, `scenario_of` and `simulate`."""
    plan = None
    try:
        plan = plan_of(topology, file, tell)
    except UserError as error:
        if setting.policy in PLANNED or setting.network == "priority":
            raise
        tell(f"no bounds: {str(error).rstrip('.')}")
    results = simulate(scenario_of(topology, file, plan, setting), progress=progress)
    return results if plan is None else with_bounds(results, plan, setting)


def with_bounds(results: Results, plan: PriorityPlan, setting: SimulationSetting) -> Results:
    """Return the results with the plan's bounds.

    A bound holds for a workload that keeps to its trace, if the requests of the other workloads are
    no larger than planned. The others may do anything else (section 3.2).
    """
    planned, general = {w.name: w for w in plan.workloads}, _nothing_proven(results, setting)
    found = []
    for workload in results.workloads:
        one, why_not = planned[workload.name], general
        left_out = [s for s in one.stages if results.network == "off" and s.stage != "storage"]
        if why_not is None and workload.name in setting.closed:
            why_not = "its requests come when others are answered, not at its trace's times"
        elif why_not is None and one.slo_kind == "throughput" and setting.duration_s:
            why_not = "its bound is of the whole trace"
        longest = workload.whole.latency.max
        bound = Bound(
            proven_s=one.bound - sum(s.bound for s in left_out),
            blocking_s=one.bound_blocking - sum(s.bound_blocking for s in left_out),
            measured_s=workload.completed_s if workload.slo_s is None else longest,
            applies=why_not is None,
            why_not=why_not,
        )
        found.append(workload.model_copy(update={"bound": bound}))
    return results.model_copy(update={"workloads": tuple(found)})


def _nothing_proven(results: Results, setting: SimulationSetting) -> str | None:
    """Return a reason why no workload has a proven bound."""
    if setting.policy != "pm":
        return f"policy {setting.policy} proves nothing"
    if setting.mode != "hold":
        return "best effort lets out of profile what the bound does not count"
    if setting.depth != 1:
        return "more than one request may be at the device, and is not interrupted"
    if results.network not in {"priority", "off"}:
        return f"the network is {results.network}, not enforced as planned"
    if setting.noise_cv > 0:
        return "service times vary, and the bound is of estimated ones"
    return None


def _plain_files(traces: Mapping[str, Trace], folder: Path) -> dict[str, Path]:
    """Return a file for each workload in the simulator's format, converted if necessary."""
    converted: dict[Trace, Path] = {}
    for trace in dict.fromkeys(traces.values()):
        path, form, disk = trace
        reader = TraceReader(path, format=form, disk=disk)
        converted[trace] = path.resolve()
        if reader.detected() != "plain":
            converted[trace] = folder / f"{len(converted)}.csv"
            save(reader, converted[trace])
    return {name: converted[trace] for name, trace in traces.items()}


class PmSimGround:
    """Virtual time: the real enforcers on a modelled disk and network."""

    name = "sim"
    machines = PmMachines()

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        """See `PmGround.carry_out`."""
        replays = experiment.replays
        announced = {w.name: experiment.base / w.trace for w in experiment.topology.workloads}
        setting = SimulationSetting(
            **vars(experiment.enforcement),
            seed=experiment.seed,
            duration_s=experiment.seconds,
            closed={name: one.closed for name, one in replays.items() if one.closed},
            traces={n: one.file for n, one in replays.items() if one.file != announced[n]},
            service=experiment.serves,
            frame=experiment.frame,
            series_s=WINDOW_S,
        )
        file = experiment.base / TOPOLOGY_FILE
        results = simulate(scenario_of(experiment.topology, file, experiment.plan, setting))
        extra = {"simulated_cpu_s": results.cpu_s, "events": float(results.events)}
        extra |= {f"utilisation {one.name}": one.utilisation for one in results.devices}
        extra |= {f"utilisation {one.name}": one.utilisation for one in results.links}
        whole = experiment.measured_from_s == 0
        found = {one.name: _measured(one, whole=whole) for one in results.workloads}
        return PmOutcome(found, extra=extra)


def _measured(found: WorkloadResult, *, whole: bool) -> MeasuredRequests:
    """Return a workload's results in the form of every ground; those of the whole trace, or of its
    second half."""
    part = found.whole if whole else found.second_half
    buckets = np.array(part.latency.buckets, np.int64).reshape(-1, 3)
    # A window without requests is missing in the simulator's series.
    counts = {round(row[0] / WINDOW_S): row[1:3] for row in found.series}
    return MeasuredRequests(
        requests=part.requests,
        misses=part.slo_misses,
        mean_s=part.latency.mean,
        max_s=part.latency.max,
        max_whole_s=found.whole.latency.max,
        low_ns=buckets[:, 0],
        high_ns=buckets[:, 1],
        count=buckets[:, 2],
        bytes=part.bytes,
        series=tuple(counts.get(n, (0, 0)) for n in range(max(counts, default=-1) + 1)),
    )
