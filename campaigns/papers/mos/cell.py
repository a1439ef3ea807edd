"""One cell on real microstores, from its parameters to the files of its run folder.

Steps in order, ended in reverse order: cleaning, objects to read, the pool's division, empty
caches, recorder, the setup's controller if any, drivers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.engine.job import JOURNAL_FILE, Job, Phases
from campaigns.engine.judge import spoiled
from campaigns.engine.write_cell import write_cell
from campaigns.grounds.live import Recorder
from campaigns.papers.mos import drives, measure
from campaigns.papers.mos.experiments import (
    LARGE,
    SMALL,
    Division,
    MicrostorePool,
    Share,
    division_of,
    length_s,
    loads_of,
    measured,
    problem,
    unfit,
)
from campaigns.papers.mos.profile.fit import fit, most_of
from campaigns.papers.mos.profile.points import place, read_points
from campaigns.papers.mos.swift import Swift
from controllers.journal import controller_summary, read_journal
from controllers.microstores.performance import ClassTable
from schemas.cells.mos import MOS, Adaptation, MosCell, TwoStores
from schemas.errors import UserError
from schemas.run import Run
from testbed.simulated.cosperf.machines import local

REPORT_FILE = "mos.json"
LOGS = "logs"
SLACK_S = 180.0
LATE_S = 1.0
"""Maximum delay of a driver without a ramp-up."""
PLENTY = 1e6
"""Requests a second of disks that all microstores share and that limit none."""

Numbers = dict[str, float]


def make(swift: Swift, job: Job, folder: Path) -> Run:
    """Run a cell and write its files into `folder`, `run.json` last. UserError: the testbed lacks
    what the cell needs. HotbedError: a node, a store, a driver or a controller failed."""
    parameters = MOS.check(job.parameters, f"run {job.run_id}")
    pool = swift.pool()
    division = divided(parameters, pool, swift.live.name)
    phases = Phases()
    with phases("clean"):
        swift.live.quiet("controller", "recorder")
    with phases("objects"):
        swift.ensure_objects(parameters)
    with phases("divide"):
        swift.divide(division)
        sent = drives.drives_of(loads_of(parameters), swift.access(), swift.clients)
        swift.drop_caches()
    cell = _LoadedCell(swift, parameters, job, folder, sent)
    with phases("workload"):
        cell.run()
    with phases("collect"):
        try:
            found, why = cell.collect(division, pool)
        except measure.ObjectsGone:
            swift.forget_objects(parameters)
            raise
    return write_cell(folder, job, found, phases, spoiled=why, settings=cell.settings)


def divided(parameters: MosCell, pool: MicrostorePool, testbed: str) -> Division:
    """Return the initial division of a cell. UserError: the testbed's pool cannot be divided like
    this."""
    why = unfit(parameters, pool)
    division = division_of(parameters, pool)
    why = why or problem(division, pool, bounded=isinstance(parameters, TwoStores))
    if why is not None:
        raise UserError(why, where=f"{parameters.label()} on testbed {testbed}")
    return division


class _LoadedCell:
    """The part of a cell in which load runs, and its measure."""

    def __init__(
        self,
        swift: Swift,
        parameters: MosCell,
        job: Job,
        folder: Path,
        sent: Sequence[drives.ProxyDriver],
    ) -> None:
        self._swift, self._parameters = swift, parameters
        self._job, self._folder, self._drives = job, folder, sent
        live = swift.live
        clients = [live.testbed.node(name) for name in dict.fromkeys(one.client for one in sent)]
        self._meter = live.meter(*clients, disks=swift.chosen_disks)
        self._recorder = Recorder(live.agent, job.run_id)
        self._start = 0.0

    @property
    def settings(self) -> Mapping[str, Any]:
        """The nodes' settings, as read back."""
        return self._meter.load.settings

    def run(self) -> None:
        """Run the load to its end."""
        live = self._swift.live
        with ExitStack() as stack:
            stack.enter_context(self._recorder.recording(length_s(self._parameters) + SLACK_S))
            stack.enter_context(self._controller())
            stack.enter_context(self._meter.measured())
            self._start = drives.drive(
                live.agent,
                live.shell_to,
                self._drives,
                seed=self._job.seed,
                folder=self._folder / LOGS,
            )

    def _controller(self) -> AbstractContextManager[None]:
        """Run the setup's controller, if it has one."""
        parameters = self._parameters
        if not isinstance(parameters, TwoStores) or not parameters.controlled:
            return nullcontext()
        return self._swift.live.controller(
            parameters.setup,
            parameters=controller_parameters(parameters, self._swift.pool().total),
            seed=self._job.seed,
            interval_s=parameters.epoch_s,
            journal=self._folder / JOURNAL_FILE,
        )

    def collect(self, division: Division, pool: MicrostorePool) -> tuple[Numbers, str | None]:
        """Write the run's tables and report; return its numbers, and why it does not count."""
        parameters, logs = self._parameters, self._folder / LOGS
        length = length_s(parameters)
        sent = measure.gather(self._drives, logs, self._start, length)
        measure.refuse_lost(sent)
        window = measured(parameters)
        found = measure.numbers_of(sent, *window)
        report: dict[str, Any] = self._report(sent, division, pool)
        if isinstance(parameters, Adaptation):
            found |= measure.stage_numbers(parameters, sent)
            report["course"] = measure.course_of(parameters)
            report["minute_s"] = parameters.minute_s
            # Upper bound of A's mean latency, and lower bound of C's bytes in each second.
            promised = measure.promised(parameters).tolist()
            report["sla"] = {"latency_s": parameters.latency_sla_ms / 1e3, "bytes_s": promised}
        samples = self._recorder.fetch(logs)
        proxies = sorted({one.access.proxy for one in self._drives})
        if pool.machines:  # proxies come and go
            proxies = list(self._swift.live.names("proxy"))
        found |= measure.usage_of(
            samples,
            (self._start + window[0], self._start + window[1]),
            proxies=proxies,
            storage=self._swift.storage,
            # Held resources change if machines come and go or a controller assigns shares.
            held=0.0 if pool.machines or parameters.controlled else self._held(division),
            ops_s=found["qps"],
        )
        found["storage_servers"] = float(pool.storage_servers)
        if parameters.controlled:
            found |= self._controlled(report)
        (self._folder / REPORT_FILE).write_text(json.dumps(report) + "\n")
        measure.write_tables(self._folder, samples, sent, self._start)
        load = replace(self._meter.load, stalled=self._recorder.stalled)
        found |= load.numbers()
        found["late_s"] = max(one.late_s for one in sent.values())
        return found, spoiled(load, self._job.limits) or self._late(found["late_s"])

    def _late(self, late_s: float) -> str | None:
        """Return why the cell is spoiled if a driver began after the start of the measured time."""
        allowed = max(LATE_S, min(one.load.rampup_s for one in self._drives))
        if late_s <= allowed:
            return None
        return f"a driver began {late_s:.1f} s late (at most {allowed:g} s)"

    def _held(self, division: Division) -> float:
        """Return the cores of the proxies that serve the cell's tenants."""
        tenants = {one.load.objects.tenant for one in self._drives}
        together = division.layout == "default"
        return sum(
            share.proxy_cores
            for name, share in division.shares.items()
            if together or name in tenants
        )

    def _report(
        self, sent: Mapping[str, measure.Sent], division: Division, pool: MicrostorePool
    ) -> dict[str, Any]:
        return {
            "series": {letter: one.as_json() for letter, one in sent.items()},
            "latencies": {letter: one.latencies() for letter, one in sent.items()},
            "division": asdict(division),
            "pool": {k: v for k, v in asdict(pool.total).items() if k != "proxy_workers"},
        }

    def _controlled(self, report: dict[str, Any]) -> Numbers:
        journal = read_journal(self._folder / JOURNAL_FILE)
        report["held"] = measure.held_of(journal.steps, self._start)
        steps = controller_summary(journal)
        found = {"changes": steps["actions"], "failed_changes": steps["failed_actions"]}
        found["steps"] = steps["steps"]
        for name in ("sense_s", "decide_s", "act_s"):
            for key in (name, f"{name}_max"):
                if key in steps:
                    found[key] = steps[key]
        return found


# Parameters of a controller: the SLAs of both tenants (sections 6 and 8.1), and cospurf.


def controller_parameters(parameters: TwoStores, pool: Share) -> dict[str, Any]:
    """Return the parameters of MOS, which has no SLAs, or of MOS++ on a pool."""
    if parameters.setup == "mos":
        return {}
    bandwidth = {"bandwidth_mb_s": parameters.bandwidth_sla_mb_s, "per_worker": True}
    return {
        "model": model(place(parameters.profile), parameters.large_mb, pool),
        "tenants": {
            SMALL: {"workload": "A", "sla": {"latency_ms": parameters.latency_sla_ms}},
            LARGE: {"workload": "C", "sla": bandwidth},
        },
    }


@cache
def model(profile: Path, large_mb: int, pool: Share) -> dict[str, Any]:
    """Return cospurf of the points in the file `profile`, for large objects of 1 to `large_mb` MB.
    Disks are never a limit. Curves are extended linearly to the whole pool. Otherwise a table
    promises nothing beyond its last point, and no store would get more than was measured."""
    points = read_points(profile).runs
    seen = most_of(points)
    most = replace(
        seen,
        proxy_cores=max(seen.proxy_cores, pool.proxy_cores),
        storage_cores=max(seen.storage_cores, pool.storage_cores),
        network=max(seen.network, pool.network),
    )
    known = fit(points, most, profile.stem)
    large = sized(known.tables["C"], known.tables["A"], large_mb)
    found = replace(known, tables={**known.tables, "C": large}).to_json()
    for table in found["classes"].values():
        table["curves"] |= {"ssds": [[0.0, PLENTY]], "hdds": [[0.0, 0.0]]}
    return found


def sized(large: ClassTable, small: ClassTable, large_mb: float) -> ClassTable:
    """Return the table for large objects of 1 to `large_mb` MB. The network carries bytes. The CPU
    cost of a request rises with its bytes, on the line through both classes."""
    usual = local("C")
    wanted = usual.payload * (1 + large_mb) * 1e6 / (usual.low + usual.high)
    factor = wanted / large.workload.mean_bytes
    if math.isclose(factor, 1):
        return large
    size = large.workload.mean_bytes
    at = (factor * size - small.workload.mean_bytes) / (size - small.workload.mean_bytes)

    def faster(name: str) -> float:
        costs = []
        for table in (small, large):
            amount, rate = getattr(table, name).points[-1]
            costs.append(amount / rate)
        low, high = costs
        return high / (low + at * (high - low)) if high > low else 1.0

    found = large.resized(replace(large.workload, mean_bytes=factor * size))
    curves = {
        name: getattr(found, name).times(faster(name)) for name in ("proxy_cores", "storage_cores")
    }
    return replace(found, idle_s=large.idle_s / faster("proxy_cores"), **curves)
