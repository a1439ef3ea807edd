"""Run a scenario in the simulator (dataplane/cmd/pmsim), and read its results."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from campaigns.papers.prioritymeister.parameters import PLANNED
from campaigns.papers.prioritymeister.scenario import Scenario, Setting, Trace, scenario_of
from campaigns.papers.prioritymeister.simulated import (
    Bound,
    DeviceResult,
    Enforced,
    LinkResult,
    Results,
    TraceRead,
    WorkloadResult,
)
from campaigns.papers.prioritymeister.study import Tell, plan_of
from campaigns.papers.prioritymeister.topology import Topology
from controllers.prioritymeister.plan import Plan
from schemas.errors import StoreError, UserError
from testbed.simulated import sources
from workloads.traces.reader import TraceReader
from workloads.traces.requests import save

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
    setting: Setting,
    *,
    plan: Plan | None = None,
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
        out, said = _talk(process, text, progress)
    finally:
        timer.cancel()
        process.kill()  # after an interrupt it would compute in vain
        process.wait()
    if late.is_set():
        raise StoreError(f"the simulation did not end within {limit_s:g} s of real time.")
    if process.returncode == 2 and said.startswith("pmsim: "):  # a crashed Go program also ends so
        raise UserError(f"{said.removeprefix('pmsim: ').rstrip('.')}.")
    try:
        answer = json.loads(out)
    except ValueError as error:
        why = f": {said[:200]}" if said else ""
        raise StoreError(
            f"the simulator ended with exit code {process.returncode}{why}."
        ) from error
    assert isinstance(answer, dict)
    return answer


def _talk(process: subprocess.Popen[str], text: str, progress: Progress) -> tuple[str, str]:
    """Return the simulator's output, and its last error line."""
    assert process.stdin and process.stdout and process.stderr
    said = ""
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
        elif not said or line.startswith("pmsim: "):
            said = line.strip()
    reading.join()
    process.wait()
    return "".join(out), said


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
