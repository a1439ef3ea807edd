"""Simulation: the results of the simulator (dataplane/cmd/pmsim), its run, and the ground `sim` of
experiments. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.papers.prioritymeister.experiment import MeasuredRequests, PmExperiment, PmOutcome
from campaigns.papers.prioritymeister.mixes import PmMachines
from campaigns.papers.prioritymeister.plan import PLANNED, Tell, plan_of
from campaigns.papers.prioritymeister.scenario import (
    Closed,
    Scenario,
    Service,
    SimulationSetting,
    Trace,
    scenario_of,
)
from campaigns.papers.prioritymeister.topology import PmModel, Topology
from controllers.prioritymeister.plan import PriorityPlan
from schemas.errors import StoreError, UserError
from testbed.simulated import sources
from workloads.traces.reader import TraceReader
from workloads.traces.requests import save

RESULTS_SCHEMA = 1


class Latencies(PmModel):
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

    def quantile(self, q: float) -> float | None:
        """Return the latency of rank ceil(q n), from the buckets; None without buckets."""
        total = sum(count for _, _, count in self.buckets)
        rank, seen = max(1, math.ceil(q * total)), 0
        for low, high, count in self.buckets:
            seen += count
            if seen >= rank:
                return min((low + high) / 2e9, self.max)
        return None


class ReplayPart(PmModel):
    """Requests of a whole replay or of its second half; `slo_misses` is counted one by one."""

    requests: int
    slo_misses: int | None
    bytes: int
    latency: Latencies
    reads: Latencies
    writes: Latencies

    @property
    def met_share(self) -> float | None:
        """Share of requests that met the SLO; None without an SLO or without requests."""
        if self.slo_misses is None or not self.requests:
            return None
        return 1 - self.slo_misses / self.requests


class Enforced(PmModel):
    """Counts of the device's enforcer: requests without room in a bucket on arrival, requests
    dispatched out of profile, seconds charged, and the weight at the end."""

    held: int
    out_of_profile: int
    work_s: float
    weight: float


class Bound(PmModel):
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


class TraceRead(PmModel):
    """Reader's report on a workload's trace."""

    requests: int
    last_arrival_s: float
    malformed: int
    first_malformed: str | None


class WorkloadResult(PmModel):
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
    completed_s: float
    half_s: float
    max_backlog: int
    whole: ReplayPart
    second_half: ReplayPart
    stages: dict[str, Latencies]
    device_wait: Latencies
    device_service: Latencies
    enforcer: Enforced
    bound: Bound | None
    series: tuple[tuple[float, int, int, float], ...]
    trace: TraceRead

    def met(self, q: float, *, whole: bool = False) -> bool | None:
        """Return True if a share `q` of the requests (say 0.999) met the SLO; None without one."""
        share = (self.whole if whole else self.second_half).met_share
        return None if share is None else share >= q


class DeviceResult(PmModel):
    """Results of a device. `utilisation` is its busy share of the time until arrivals ended,
    `charged_s` the estimated work, `max_queue` the most requests waiting or served at a time.
    `lag_s` is its largest delay relative to its charges (docs/prioritymeister.md, "What a profile
    leaves out"). A bound with this delay as the profile's ``overhead.latency`` holds."""

    name: str
    requests: int
    charged_s: float
    busy_s: float
    utilisation: float
    max_queue: int
    lag_s: float


class LinkResult(PmModel):
    """Results of one direction of a link, as for a device, in frames and bytes."""

    name: str
    frames: int
    bytes: float
    busy_s: float
    utilisation: float
    max_queue: int


class Results(PmModel):
    """All results of a simulation. Only `cpu_s` and `wall_s` differ between equal simulations."""

    schema_version: int = RESULTS_SCHEMA
    policy: str
    mode: str
    network: str
    seed: int
    length_s: float
    end_s: float
    events: int
    cpu_s: float
    wall_s: float
    workloads: tuple[WorkloadResult, ...]
    devices: tuple[DeviceResult, ...]
    links: tuple[LinkResult, ...]

    def workload(self, name: str) -> WorkloadResult:
        """Return the workload with this name; raise KeyError if there is none."""
        for one in self.workloads:
            if one.name == name:
                return one
        raise KeyError(name)

    @property
    def broken_bounds(self) -> tuple[str, ...]:
        """Workloads with an exceeded proven bound; it is empty unless there is an error."""
        return tuple(
            w.name for w in self.workloads if w.bound is not None and w.bound.held is False
        )


PROGRAM = sources.DATAPLANE / "bin" / "pmsim"
LIMIT_S = 3600.0
"""Real seconds that a simulation may take."""

Progress = Callable[[float], None]


def simulate(
    scenario: Scenario,
    *,
    progress: Progress = lambda _share: None,
    limit_s: float = LIMIT_S,
    program: Path | None = None,
) -> Results:
    """Simulate a scenario. Equal scenarios give equal results, except for real times.

    Args:
        scenario: see `scenario_of`.
        progress: called regularly with the finished share of the arrivals' time.
        limit_s: limit in real seconds.
        program: the simulator; by default the one that `make setup` builds.

    Raises:
        UserError: a trace or a number of the scenario is wrong.
        StoreError: the simulator is missing, was built from other sources, died or took too long.
    """
    if program is None:
        program = PROGRAM
        sources.require(program.name)
    with tempfile.TemporaryDirectory(prefix="hotbed-pm-") as folder:
        files = _plain_files(scenario.traces, Path(folder))
        document = dict(scenario.document)
        document["workloads"] = [
            {**w, "trace": str(files[w["name"]].resolve())} for w in document["workloads"]
        ]
        answer = _run(program, json.dumps(document), progress, limit_s)
    return _results(scenario, answer)


def simulate_topology(
    topology: Topology,
    file: Path,
    setting: SimulationSetting,
    *,
    plan: PriorityPlan | None = None,
    tell: Tell = lambda _: None,
    progress: Progress = lambda _share: None,
) -> Results:
    """Simulate a topology; plan it first if no plan is given.

    Without a plan there are no bounds. A policy without need for a plan is simulated even if a
    queue's load is too high for planning.

    Raises:
        UserError: as in `plan_of`, `scenario_of` and `simulate`.
    """
    made = plan
    if made is None:
        try:
            made = plan_of(topology, file, tell)
        except UserError as error:
            if setting.policy in PLANNED or setting.network == "priority":
                raise
            tell(f"no bounds: {str(error).rstrip('.')}")
    return simulate(scenario_of(topology, file, made, setting), progress=progress)


def _plain_files(traces: Mapping[str, Trace], folder: Path) -> dict[str, Path]:
    """Return a file for each workload in the simulator's format, converted if necessary."""
    converted: dict[Trace, Path] = {}
    for trace in traces.values():
        if trace in converted:
            continue
        reader = TraceReader(trace.path, format=trace.format, disk=trace.disk)
        if reader.detected() == "plain":
            converted[trace] = trace.path
        else:
            converted[trace] = folder / f"{len(converted)}.csv"
            save(reader, converted[trace])
    return {name: converted[trace] for name, trace in traces.items()}


def _run(program: Path, text: str, progress: Progress, limit_s: float) -> dict[str, Any]:
    try:
        process = subprocess.Popen(
            [program, "run", "--progress"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise StoreError(
            f"the simulator {program} cannot be started ({error.strerror}): run `make setup`."
        ) from error
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit_s, stop)
    timer.start()
    try:
        out, complaint = _talk(process, text, progress)
    finally:
        timer.cancel()
        process.kill()  # after an interrupt it would compute in vain
        process.wait()
    if late.is_set():
        raise StoreError(f"the simulation did not end within {limit_s:g} s of real time.")
    # A crashed Go program has the same exit code.
    if process.returncode == 2 and complaint.startswith("pmsim: "):
        raise UserError(f"{complaint.removeprefix('pmsim: ').rstrip('.')}.")
    try:
        answer = json.loads(out)
    except ValueError as error:
        why = f": {complaint[:200]}" if complaint else ""
        raise StoreError(
            f"the simulator ended with exit code {process.returncode}{why}."
        ) from error
    assert isinstance(answer, dict)
    return answer


def _talk(process: subprocess.Popen[str], text: str, progress: Progress) -> tuple[str, str]:
    """Return the simulator's output, and its last error line."""
    assert process.stdin and process.stdout and process.stderr
    complaint = ""
    out: list[str] = []
    stdout = process.stdout
    reading = threading.Thread(target=lambda: out.append(stdout.read()), daemon=True)
    reading.start()
    try:
        process.stdin.write(text)
        process.stdin.close()
    except BrokenPipeError:
        pass  # the simulator's stderr has the reason
    for line in process.stderr:
        if line.startswith("progress "):
            progress(float(line.split()[1]))
        elif not complaint or line.startswith("pmsim: "):
            complaint = line.strip()
    reading.join()
    process.wait()
    return "".join(out), complaint


def _results(scenario: Scenario, answer: dict[str, Any]) -> Results:
    return Results(
        policy=scenario.policy,
        mode=scenario.mode,
        network=scenario.network,
        seed=answer["seed"],
        length_s=answer["length"],
        end_s=answer["end"],
        events=answer["events"],
        cpu_s=answer["cpu"],
        wall_s=answer["wall"],
        workloads=tuple(_workload(scenario, w) for w in answer["workloads"]),
        devices=tuple(
            DeviceResult(
                name=d["name"],
                requests=d["pieces"],
                charged_s=d["cost"],
                busy_s=d["busy"],
                utilisation=d["utilisation"],
                max_queue=d["max_queue"],
                lag_s=d["lag"],
            )
            for d in answer["devices"]
        ),
        links=tuple(
            LinkResult(
                name=d["name"],
                frames=d["pieces"],
                bytes=d["cost"],
                busy_s=d["busy"],
                utilisation=d["utilisation"],
                max_queue=d["max_queue"],
            )
            for d in answer["links"]
        ),
    )


def _workload(scenario: Scenario, found: dict[str, Any]) -> WorkloadResult:
    name = found["name"]
    proof = scenario.proofs.get(name)
    bound = None
    if proof is not None:
        longest = found["whole"]["latency"]["max"]
        bound = Bound(
            proven_s=proof.proven_s,
            blocking_s=proof.blocking_s,
            measured_s=found["completed"] if proof.completion else longest,
            applies=proof.why_not is None,
            why_not=proof.why_not,
        )
    enforcer = found["enforcer"]
    return WorkloadResult(
        name=name,
        mode=found["mode"],
        slo_s=scenario.slos.get(name),
        completed_s=found["completed"],
        half_s=found["half"],
        max_backlog=found["max_backlog"],
        whole=found["whole"],
        second_half=found["second_half"],
        stages=found["stages"],
        device_wait=found["device_wait"],
        device_service=found["device_service"],
        enforcer=Enforced(
            held=enforcer["held"],
            out_of_profile=enforcer["out_of_profile"],
            work_s=enforcer["work"],
            weight=enforcer["weight"],
        ),
        bound=bound,
        series=tuple((row[0], int(row[1]), int(row[2]), row[3]) for row in found["series"]),
        trace=TraceRead(
            requests=found["whole"]["requests"],
            last_arrival_s=found["last_arrival"],
            malformed=found["malformed"],
            first_malformed=found["first_malformed"] or None,
        ),
    )


TOPOLOGY_FILE = "topology.yaml"


class PmSimGround:
    """Virtual time: the real enforcers on a modelled disk and network."""

    name = "sim"
    machines = PmMachines()

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        """See `PmGround.carry_out`."""
        enforced = experiment.enforcement
        announced = {w.name: experiment.base / w.trace for w in experiment.topology.workloads}
        setting = SimulationSetting(
            policy=enforced.policy,
            mode=enforced.mode,
            depth=enforced.depth,
            seed=experiment.seed,
            duration_s=experiment.seconds,
            closed={
                name: Closed(in_flight=one.closed)
                for name, one in experiment.replays.items()
                if one.closed
            },
            traces={
                name: one.file
                for name, one in experiment.replays.items()
                if one.file != announced[name]
            },
            service={queue: Service(profile=file) for queue, file in experiment.serves.items()},
            frame=experiment.frame,
            series_s=experiment.window_s,
            cake=enforced.cake,
            reservations=enforced.reservations or None,
        )
        file = experiment.base / TOPOLOGY_FILE
        scenario = scenario_of(experiment.topology, file, experiment.plan, setting)
        return outcome_of(simulate(scenario), experiment.window_s)


def outcome_of(results: Results, window_s: float) -> PmOutcome:
    """Return the simulator's results in the form of every ground."""
    found = {one.name: _measured_requests(one, window_s) for one in results.workloads}
    extra = {"simulated_cpu_s": results.cpu_s, "events": float(results.events)}
    extra |= {f"utilisation {one.name}": one.utilisation for one in results.devices}
    extra |= {f"utilisation {one.name}": one.utilisation for one in results.links}
    return PmOutcome(found, extra=extra)


def _measured_requests(found: WorkloadResult, window_s: float) -> MeasuredRequests:
    half = found.second_half
    buckets = np.array(half.latency.buckets, np.int64).reshape(-1, 3)
    # A window without requests is missing in the simulator's series.
    counts = {round(row[0] / window_s): row[1:3] for row in found.series}
    return MeasuredRequests(
        requests=half.requests,
        misses=half.slo_misses,
        mean_s=half.latency.mean,
        max_s=half.latency.max,
        max_whole_s=found.whole.latency.max,
        low_ns=buckets[:, 0],
        high_ns=buckets[:, 1],
        count=buckets[:, 2],
        bytes=half.bytes,
        series=tuple(counts.get(n, (0, 0)) for n in range(max(counts, default=-1) + 1)),
    )
