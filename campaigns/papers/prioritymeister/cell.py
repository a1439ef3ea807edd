"""One cell, from its parameters to the files of its run folder, on any ground.

``summary.json`` has for each workload w: ``w_requests``, ``w_misses``, ``w_unfinished``,
``w_slo_s``, ``w_alone_s``, ``w_p50_s`` to ``w_p99.99_s`` (only with ten slower requests),
``w_max_s``, ``w_max_whole_s``, ``w_within`` (share within the SLO); ``w_alone_s`` only if its SLO
follows the rule. A copy has ``w_bytes_s`` and ``w_required_bytes_s``. Cake adds ``cake_upper``. A
plan adds ``w_priority``, ``w_bound_s``, ``w_bound_blocking_s`` and, if the bound is proven for the
run, ``w_bound_ratio`` (longest latency by bound). Real machines add ``w_late_s`` (its load
generator's maximum, added to the bound), ``w_behind_s`` and ``w_allowed_s`` (its server, in the run
and in the bound). They also add ``w_network_kept`` (1 if enforced as planned) and
``w_unanswered``; see `experiment.Conditions`.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from campaigns.engine.job import Job, Phases
from campaigns.engine.write_cell import write_cell, write_latency, write_samples
from campaigns.papers.prioritymeister.experiment import (
    BEYOND,
    MODELLED,
    PERCENTILES,
    WINDOW_S,
    Conditions,
    MeasuredRequests,
    PmExperiment,
    PmOutcome,
    alone_experiment,
    cell_experiment,
    curve_alone,
    measured_alone,
    single_bucket,
    slos,
)
from campaigns.papers.prioritymeister.mixes import Mix, PmMachines, build, labels_of, larger
from campaigns.papers.prioritymeister.traces import WholeTrace, file_of, measured, statistics
from controllers.prioritymeister.estimators import load_profile
from schemas.cells.prioritymeister import INPUTS, PM, PmCell
from schemas.durable import read_json, write_file
from schemas.errors import HotbedError, UserError
from schemas.run import Run
from workloads.traces.reader import TraceReader
from workloads.traces.standins import TABLE2

if TYPE_CHECKING:
    from campaigns.engine.plan import Cell


class PmGround(Protocol):
    """A ground for experiments."""

    @property
    def name(self) -> str:
        """Name: ``sim`` or ``local``."""

    @property
    def machines(self) -> PmMachines:
        """The ground's machines."""

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        """Run an experiment to its end; raise HotbedError if it could not run."""


LONGEST = "100"
"""Percentile of the longest latency."""
ATTEMPTS = 3
"""Attempts at a measurement while attempts are spoiled."""


_LONGER = "give longer traces (seconds) or a lower slo_percentile"


def needed(percent: float) -> int:
    """Return the requests that give ten beyond a percentile; one for the longest latency."""
    return math.ceil(BEYOND / (1 - percent / 100) - 1e-6) if percent < 100 else 1


def require_requests(experiment: PmExperiment, percent: float, where: str) -> None:
    """Raise UserError if an experiment's one workload sends too few requests, in the half that
    counts, for an SLO made of a percentile; `where` begins the error's sentence."""
    ((name, sent),) = experiment.replays.items()
    begin = experiment.measured_from_s * 1e9
    count = sum(int(np.count_nonzero(one.time_ns >= begin)) for one in TraceReader(sent.file))
    if count < needed(percent):
        raise UserError(
            f"workload {name} sends {count:,} requests in the half that counts, and an SLO made of "
            f"the {percent:g}th percentile needs {needed(percent):,}",
            where=where,
            do=_LONGER,
        )


class AloneLatencies:
    """Percentiles of workloads alone, by experiment. They are kept in memory and, with a folder, on
    disk, because a measurement on a real testbed takes as long as a run."""

    def __init__(
        self, folder: Path | None = None, *, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Set up; `tell` is called with a sentence before each measurement."""
        self._folder = folder
        self._tell = tell
        self._known: dict[str, dict[str, float]] = {}

    def percentile(self, ground: PmGround, experiment: PmExperiment, percent: float) -> float:
        """Return the latency, in seconds, at a percentile of an experiment with one workload. Raise
        UserError if there are too few requests, HotbedError if the measurement failed."""
        (name,) = experiment.replays
        key = f"{ground.name}-{experiment.digest()}"
        if key not in self._known:
            self._known[key] = self._read(key) or self._measure(ground, experiment, name, key)
        known = self._known[key]
        found = known.get(f"{percent:g}")
        if found is None:
            raise UserError(
                f"{known['requests']:,.0f} requests counted alone, and an SLO made of the "
                f"{percent:g}th percentile needs {needed(percent):,} that are answered",
                where=f"workload {name}",
                do=_LONGER,
            )
        return found

    def _measure(
        self, ground: PmGround, experiment: PmExperiment, name: str, key: str
    ) -> dict[str, float]:
        for _ in range(ATTEMPTS):
            self._tell(
                f"measuring what workload {name} has alone, {experiment.seconds:.0f} s, for its SLO"
            )
            outcome = ground.carry_out(experiment)
            if outcome.spoiled is None:
                break
        else:
            raise HotbedError(f"workload {name} alone was not measured: {outcome.spoiled}.")
        result = outcome.results[name]
        found = {"requests": float(result.requests)}
        for percent in PERCENTILES:
            value = result.percentile(percent)
            if value is not None and math.isfinite(value):
                found[f"{percent:g}"] = value
        if result.requests and not result.unfinished and math.isfinite(result.max_s):
            found[LONGEST] = result.max_s
        if self._folder is not None:
            (self._folder / key).mkdir(parents=True, exist_ok=True)
            for file, text in outcome.logs.items():
                write_file(self._folder / key / file, text)
            write_file(self._folder / f"{key}.json", json.dumps(found) + "\n")
        return found

    def _read(self, key: str) -> dict[str, float] | None:
        if self._folder is None or not (path := self._folder / f"{key}.json").is_file():
            return None
        found: dict[str, float] = read_json(path)
        return found


KEPT_MIXES = 3
PLAN_FILE, CURVE_FILE = "plan.json", "curve.json"
CURVE_POINTS = 400


class PmCellMaker:
    """Maker of cells on a ground; it keeps traces, and latencies of workloads alone."""

    def __init__(
        self,
        ground: PmGround,
        *,
        remembered: Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Set up. `remembered`: folder for latencies of workloads alone, if measuring takes long;
        `tell`: called before each measurement."""
        self._ground = ground
        self._alone = AloneLatencies(remembered, tell=tell)
        self._mixes: OrderedDict[tuple[object, ...], tuple[Any, Mix]] = OrderedDict()

    def close(self) -> None:
        """Remove the traces."""
        while self._mixes:
            self._drop()

    def foresee(self, cells: Iterable[Cell]) -> None:
        """Check the traces of cells for the requests that their SLOs need, before any cell runs: on
        a testbed, measuring a workload alone takes as long as a cell. A UserError names block and
        workload."""
        seen = set()
        for cell in cells:
            parameters = cell.parameters
            if not isinstance(parameters, PmCell) or parameters.policy == INPUTS:
                continue
            for name, where in measured_alone(parameters):
                percent = parameters.slo_percentile
                key = (cell.block, cell.seed, where.contents(), name, percent)
                if key in seen:
                    continue
                seen.add(key)
                mix = self._mix(where, cell.seed, cell.block)
                alone = alone_experiment(where, mix, self._ground.machines, cell.seed, name)
                require_requests(alone, percent, f"block {cell.block} of {parameters.scenario}")

    def make(self, job: Job, folder: Path) -> Run:
        """Run a cell and write its files into `folder`, `run.json` last. Raise UserError if the
        cell is impossible, for example because its traces are too short."""
        parameters = PM.check(job.parameters, f"run {job.run_id}")
        phases = Phases()
        with phases("traces"):
            mix = self._mix(parameters, job.seed, job.block)
        if parameters.policy == INPUTS:
            with phases("describe"):
                return write_cell(folder, job, described(mix), phases)
        extra, outcome = self._run(parameters, mix, job, phases, folder)
        return write_cell(
            folder, job, extra, phases, spoiled=outcome.spoiled, settings=outcome.settings
        )

    def _run(
        self, parameters: PmCell, mix: Mix, job: Job, phases: Phases, folder: Path
    ) -> tuple[dict[str, float], PmOutcome]:
        with phases("alone"):
            alone = dict(self._measured_alone(parameters, job))
        promised = slos(parameters, alone)
        machines = self._ground.machines
        with phases("plan"):
            experiment = cell_experiment(parameters, mix, promised, machines, job.seed)
        with phases("run"):
            outcome = self._ground.carry_out(experiment)
        with phases("count"):
            extra = numbers(parameters, mix, experiment, outcome, promised)
            extra |= {f"{name}_alone_s": value for name, value in alone.items()}
            write_tables(folder, experiment, outcome)
            for name, text in outcome.logs.items():
                (folder / "logs").mkdir(exist_ok=True)
                (folder / "logs" / name).write_text(text)
            if experiment.plan is not None:
                text = json.dumps(asdict(experiment.plan), default=float)
                (folder / PLAN_FILE).write_text(text + "\n")
            if parameters.scenario == "buckets":
                (folder / CURVE_FILE).write_text(json.dumps(curve(parameters, mix)) + "\n")
        return extra, outcome

    def _measured_alone(self, parameters: PmCell, job: Job) -> Iterator[tuple[str, float]]:
        for name, where in measured_alone(parameters):
            mix = self._mix(where, job.seed, job.block)
            alone = alone_experiment(where, mix, self._ground.machines, job.seed, name)
            percent = parameters.slo_percentile
            yield name, self._alone.percentile(self._ground, alone, percent)

    def _mix(self, parameters: PmCell, seed: int, block: int) -> Mix:
        """Return the traces of a cell; cells of a block with the same traces run in a row."""
        shared = parameters.model_dump(exclude={*_OF_POLICY})
        key = (json.dumps(shared, sort_keys=True), seed, block)
        if key not in self._mixes:
            while len(self._mixes) >= KEPT_MIXES:
                self._drop()
            holder = tempfile.TemporaryDirectory(prefix="hotbed-pm-")
            machines, where = self._ground.machines, Path(holder.name)
            mix = build(parameters, seed, machines, where, block=block)
            self._mixes[key] = (holder, mix)
        self._mixes.move_to_end(key)
        return self._mixes[key][1]

    def _drop(self) -> None:
        _, (holder, _) = self._mixes.popitem(last=False)
        holder.cleanup()


_OF_POLICY = {"policy", "mode", "k", "slo_percentile", "permutation", "estimator", "limiters"}
_OF_POLICY |= {"buckets", "network_levels", "cake_upper", "depth", "frame", "blocking"}
_OF_POLICY |= {"slos", "counted"}
"""Parameters that do not affect the traces."""


def numbers(
    parameters: PmCell,
    mix: Mix,
    experiment: PmExperiment,
    outcome: PmOutcome,
    promised: Mapping[str, float],
) -> dict[str, float]:
    """Return the numbers of the run's summary."""
    found = dict(outcome.extra)
    half = experiment.seconds - experiment.measured_from_s
    for load in mix.loads:
        name, result = load.name, outcome.results[load.name]
        found |= {f"{name}_{key}": value for key, value in _latencies(result).items()}
        if load.completion_s is not None:
            found[f"{name}_bytes_s"] = result.bytes / half
            found[f"{name}_required_bytes_s"] = load.required
            continue
        found[f"{name}_slo_s"] = promised[name]
        if result.misses is not None:
            found[f"{name}_misses"] = float(result.misses)
        if result.within is not None:
            found[f"{name}_within"] = result.within
    if parameters.policy == "cake":
        found["cake_upper"] = parameters.cake_upper
    if experiment.plan is not None:
        found |= _proven(parameters, mix, experiment, outcome)
    return found


def _latencies(result: MeasuredRequests) -> dict[str, float]:
    found = {
        "requests": float(result.requests),
        "unfinished": float(result.unfinished),
        "mean_s": result.mean_s,
        "max_s": result.max_s,
        "max_whole_s": result.max_whole_s,
    }
    for percent in PERCENTILES:
        value = result.percentile(percent)
        if value is not None:
            found[f"p{percent:g}_s"] = value
    return {key: value for key, value in found.items() if math.isfinite(value)}


def _proven(
    parameters: PmCell, mix: Mix, experiment: PmExperiment, outcome: PmOutcome
) -> dict[str, float]:
    """Return the plan's numbers, and the ratios of longest latencies (whole run) to bounds."""
    assert experiment.plan is not None
    found: dict[str, float] = {"plan_met": float(experiment.plan.met)}
    ratios = []
    kept = larger(mix) is None
    for planned in experiment.plan.workloads:
        name = planned.name
        found[f"{name}_planned"] = float(planned.met)
        for stage in planned.stages:
            key = "priority" if stage.stage == "storage" else f"level_{stage.stage}"
            found[f"{name}_{key}"] = float(stage.priority if stage.level is None else stage.level)
        if not math.isfinite(planned.bound_blocking):
            continue
        found[f"{name}_bound_s"] = planned.bound
        found[f"{name}_bound_blocking_s"] = planned.bound_blocking
        conditions = outcome.conditions.get(name, MODELLED)
        found |= _conditions(name, conditions)
        if kept and bound_holds(parameters, mix, name, conditions):
            longest = outcome.results[name].max_whole_s
            ratio = conditions.ratio(longest, planned.bound_blocking)
            found[f"{name}_bound_ratio"] = ratio
            ratios.append(ratio)
    found["bounds"] = float(len(ratios))
    found["bounds_broken"] = float(sum(ratio > 1 + 1e-6 for ratio in ratios))
    return found


def _conditions(name: str, conditions: Conditions) -> dict[str, float]:
    if conditions is MODELLED:
        return {}
    numbers_of: dict[str, float | None] = {
        "late_s": conditions.late_s,
        "behind_s": conditions.behind_s,
        "allowed_s": conditions.allowed_s,
        "network_kept": float(conditions.network),
        "unanswered": float(conditions.unanswered),
    }
    return {f"{name}_{key}": value for key, value in numbers_of.items() if value is not None}


def bound_holds(parameters: PmCell, mix: Mix, name: str, conditions: Conditions = MODELLED) -> bool:
    """Return True if the plan's bound is proven for a workload's run: every bucket of every
    workload is enforced, requests cost as planned, and the workload sends its announced trace.
    Misbehaviour of another workload does not matter if its requests are no larger than announced
    (`mixes.larger`)."""
    load = mix.load(name)
    return (
        parameters.policy == "pm"
        and parameters.mode == "hold"
        and parameters.depth == 1
        and parameters.as_planned
        and load.completion_s is None
        and not load.replay.closed
        and load.replay.file == mix.base / load.trace
        and conditions.why_not is None
    )


def write_tables(folder: Path, experiment: PmExperiment, outcome: PmOutcome) -> None:
    """Write `latency.parquet` (histograms of the measured half) and `samples.parquet` (arrived
    requests and SLO misses by window of the whole run). `t_s` counts from the start."""
    begins = experiment.measured_from_s
    write_latency(
        folder,
        (
            (begins, "request", name, "", *bucket)
            for name, result in outcome.results.items()
            for bucket in zip(
                result.low_ns.tolist(), result.high_ns.tolist(), result.count.tolist(), strict=True
            )
        ),
    )
    write_samples(
        folder,
        (
            (window * WINDOW_S, name, metric, float(value))
            for name, result in outcome.results.items()
            for window, pair in enumerate(result.series)
            for metric, value in zip(_SERIES, pair, strict=True)
        ),
    )


_SERIES = ("requests", "misses")


def curve(parameters: PmCell, mix: Mix) -> dict[str, list[Any]]:
    """Return figure 4a: the border of B's eligible pairs from its mean rate to the whole device,
    and B's possible single buckets."""
    exact = curve_alone(mix, labels_of(parameters)[0])
    rates = np.linspace(exact.mean_rate, 1.0, CURVE_POINTS)
    single = {name: list(single_bucket(name, exact)) for name in ("fast", "slow")}
    return {"rates": rates.tolist(), "bursts": exact.burst(rates).tolist(), **single}


def described(mix: Mix) -> dict[str, float]:
    """Return Table 2's columns of a mix's traces, as shares; with the storage load if any."""
    found: dict[str, float] = {}
    for load in mix.loads:
        host = mix.hosts[load.server]
        device = host.devices[load.device]
        reader = TraceReader(mix.base / load.trace)
        row, _ = statistics(reader, mix.base / device.profile, host.link)
        columns: Mapping[str, float | None] = {
            "storage": row.storage_load if TABLE2[load.name].storage_load is not None else None,
            "network": row.network_load,
            "scv": row.scv,
            "requests": float(row.requests),
        }
        found |= {f"{load.name}_{k}": v for k, v in columns.items() if v is not None}
    return found


def require_windows(cells: Iterable[Cell], disk: Path | None) -> None:
    """Check that real traces are long enough for the blocks with consecutive windows; raise
    UserError if one is too short or cannot be read. Each trace is read once.

    `disk` is the profile of the ground's disk. It is None on a testbed, which measures it: traces
    that play until they load the disk, and figure 9's, are then checked after measuring
    (`PmCellMaker.foresee`).
    """
    known: dict[tuple[Path, Path | None], WholeTrace] = {}
    for (folder, label, profile, load, seconds), blocks in _asked(cells, disk).items():
        path = file_of(Path(folder), label)
        if path is None:
            continue
        if (path, profile) not in known:
            costs = None if profile is None else load_profile(profile)
            known[path, profile] = measured(path, costs)
        known[path, profile].require(blocks, load=load, seconds=seconds)


_Asked = tuple[str, str, Path | None, float | None, float]


def _asked(cells: Iterable[Cell], disk: Path | None) -> dict[_Asked, int]:
    """Return blocks by folder, workload, profile (if the load counts), load and seconds."""
    found: dict[_Asked, int] = {}
    for cell in cells:
        parameters = cell.parameters
        if not isinstance(parameters, PmCell) or parameters.trace_windows != "consecutive":
            continue
        assert parameters.traces is not None, parameters
        profile = disk if parameters.device_profile is None else Path(parameters.device_profile)
        own = parameters.trace_load == "own"
        if disk is None and (not own or parameters.scenario == "network"):
            continue
        for label in _labels(parameters):
            load = TABLE2[label].storage_load if label in TABLE2 else None
            if load is None:  # not on a disk: a stand-in in any case
                continue
            key: _Asked = (parameters.traces, label, profile, load, parameters.seconds)
            if own:
                key = (parameters.traces, label, None, None, parameters.seconds)
            found[key] = max(found.get(key, 0), cell.block + 1)
    return found


def _labels(parameters: PmCell) -> dict[str, None]:
    """Return a cell's workloads, and those measured alone for its SLOs."""
    mixes = [parameters, *(where for _, where in measured_alone(parameters))]
    return dict.fromkeys(label for where in mixes for label in labels_of(where))
