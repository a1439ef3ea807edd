"""One cell on real microstores, from its parameters to the files of its run folder (`make`).

Steps in order, ended in reverse order: cleaning, objects to read, the pool's division, empty
caches, recorder, the setup's controller if any, drivers. Then, for sections 1, 3 and 8.1: the load
of the cell's tenants (`loads_of`), the division of the pool between the microstores
(`division_of`), and the parameters of the controller.

One microstore serves the tenant of small objects (workloads A and B), the other serves the tenant
of large objects (C and D). The layout ``default`` has one store of everything: all proxies serve
each tenant and keep their own shares. A controller starts from the division.

Section 8.1's load over time (figures 11 and 12) consists of layers of workers that each run without
a break. Large objects (workload C) dominate stage 1. At 40 minutes small objects (A) spike and then
shift down until about 200 minutes, while C drops and slowly rises again. At 230 minutes A spikes
once more and C drops by half. The paper gives no numbers of processes: these are Hotbed's.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.engine.job import JOURNAL_FILE, Job, Phases
from campaigns.engine.judge import spoiled
from campaigns.engine.write_cell import write_cell
from campaigns.grounds.live import Recorder
from campaigns.papers.mos import drives, measure
from campaigns.papers.mos.drives import KB, DriverLoad, StoredObjects
from campaigns.papers.mos.profile.fit import fit, most_of
from campaigns.papers.mos.profile.points import place, read_points
from campaigns.papers.mos.swift import (
    APART,
    LARGE,
    MEGABIT,
    SMALL,
    TOGETHER,
    DiskClass,
    Division,
    MicrostorePool,
    Share,
    Swift,
    even,
    recorded,
)
from controllers.journal import controller_summary, read_journal
from controllers.microstores.performance import ClassTable
from schemas.cells.mos import (
    MOS,
    Adaptation,
    Disks,
    MosCell,
    ObjectSizes,
    OneStore,
    OneWorkload,
    Setups,
    SteadyLoad,
    TwoStores,
)
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
    objects = [objects_of(parameters, letter) for letter in parameters.letters]
    with phases("objects"):
        swift.ensure_objects(objects)
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
            swift.forget_objects(objects)
            raise
    settings = {**cell.settings, **recorded(division, swift.live.cores)}
    return write_cell(folder, job, found, phases, spoiled=why, settings=settings)


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
        self._meter = live.meter(*clients, disks=swift.chosen_disks, core_speed=True)
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
            report["course"] = course_of(parameters)
            report["minute_s"] = parameters.minute_s
            # Upper bound of A's mean latency, and lower bound of C's bytes in each second.
            promised = measure.promised(loads_of(parameters), length, parameters.bandwidth_sla_mb_s)
            report["sla"] = {
                "latency_s": parameters.latency_sla_ms / 1e3,
                "bytes_s": promised.tolist(),
            }
            found |= measure.stage_numbers(sent, report["course"])
            found |= measure.shares_within(sent, report["sla"], parameters.minute_s)
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
        """Return the effective cores of the proxies that serve the cell's tenants."""
        tenants = {one.load.objects.tenant for one in self._drives}
        together = division.layout == "default"
        return self._swift.live.cores.factor * sum(
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
        found = controller_summary(journal)
        changes = {"changes": found.pop("actions"), "failed_changes": found.pop("failed_actions")}
        del found["failed_steps"]
        return changes | found


# ---- Load ----

Steps = Sequence[tuple[float, int]]
"""Minutes of the paper, rising from 0, each with the number of workers from then on."""


@dataclass(frozen=True)
class Course:
    """Numbers of workers of A and C, and the beginnings of the stages, in the paper's minutes."""

    steps: Mapping[str, Steps]
    stages: tuple[float, float, float]
    ends: float


COURSES: Mapping[str, Course] = {
    "paper": Course(
        steps={
            "A": ((0, 2), (40, 24), (80, 18), (110, 12), (140, 8), (170, 4), (230, 32)),
            "C": ((0, 12), (40, 2), (80, 4), (110, 6), (140, 8), (170, 12), (230, 6)),
        },
        stages=(0, 40, 230),
        ends=280,
    ),
    "short": Course(
        steps={
            "A": ((0, 2), (10, 24), (19, 18), (23, 12), (27, 8), (30, 4), (33, 32)),
            "C": ((0, 12), (10, 2), (19, 4), (23, 6), (27, 8), (30, 12), (33, 6)),
        },
        stages=(0, 10, 33),
        ends=42,
    ),
}
"""``paper`` has the paper's lengths of stages; ``short`` omits most of the time without changes.
A's first spike lasts three epochs of 3 minutes. A controller sees the spike in one of them, and its
second half is measured."""


def layers(steps: Steps, ends: float) -> list[tuple[float, float, int]]:
    """Return the fewest layers (begin, end, workers) with the numbers of workers in `steps`."""
    found: Counter[tuple[float, float]] = Counter()
    begun: list[float] = []  # of every worker that is there, the earliest first
    for at, count in (*steps, (ends, 0)):
        while len(begun) > count:
            found[begun.pop(), at] += 1
        begun += [at] * (count - len(begun))
    return [(*layer, workers) for layer, workers in sorted(found.items())]


TENANT = {"A": "small", "B": "small", "C": "large", "D": "large"}
"""Tenant of each workload."""
MIX = {"A": (90, 5, 5), "B": (5, 90, 5), "C": (90, 5, 5), "D": (5, 90, 5)}
"""Table 1: percent of GET, PUT and DELETE."""
SMALL_KB = 128
CONTAINERS = {"small": 4, "large": 2}
MB = 1_000_000


def objects_of(parameters: MosCell, letter: str) -> StoredObjects:
    """Return the objects that a workload reads."""
    tenant = TENANT[letter]
    small = tenant == "small"
    count = parameters.small_objects if small else parameters.large_objects
    least, most = (KB, SMALL_KB * KB) if small else (MB, parameters.large_mb * MB)
    prefix = letter.lower()
    if not small:
        prefix += f"{parameters.large_mb}mb"
    if isinstance(parameters, ObjectSizes):
        tenant, prefix = "large", f"s{parameters.object_kb}kb"
        least = most = parameters.object_kb * KB
        count = max(4, min(parameters.small_objects, 64 * MB // most))  # at most 64 MB
    containers = min(CONTAINERS[tenant], count)
    return StoredObjects(letter, tenant, prefix, containers, -(-count // containers), least, most)


def loads_of(parameters: MosCell) -> tuple[DriverLoad, ...]:
    """Return the load of every driver of a cell."""
    if isinstance(parameters, Adaptation):
        return _over_time(parameters)
    assert isinstance(parameters, Setups | SteadyLoad | OneStore)
    settle = 0.0
    if isinstance(parameters, SteadyLoad):
        settle = parameters.epoch_s * parameters.settle_epochs
    found = []
    for letter in parameters.letters:
        objects = objects_of(parameters, letter)
        if isinstance(parameters, OneStore):
            workers = parameters.workers
        else:
            small = TENANT[letter] == "small"
            workers = parameters.small_workers if small else parameters.large_workers
        found.append(
            DriverLoad(
                name=letter.lower(),
                objects=objects,
                mix=(100, 0, 0) if isinstance(parameters, ObjectSizes) else MIX[letter],
                workers=workers,
                begins_s=0.0,
                rampup_s=parameters.rampup_s + settle,
                seconds=parameters.seconds,
            )
        )
    return tuple(found)


def _over_time(parameters: Adaptation) -> tuple[DriverLoad, ...]:
    """Return figure 11's load: workers that come and go; their starting time counts."""
    course, minute = COURSES[parameters.course], parameters.minute_s
    return tuple(
        DriverLoad(
            name=f"{letter.lower()}-{number}",
            objects=objects_of(parameters, letter),
            mix=MIX[letter],
            workers=workers,
            begins_s=minute * begins,
            rampup_s=0.0,
            seconds=minute * (ends - begins),
        )
        for letter in parameters.letters
        for number, (begins, ends, workers) in enumerate(layers(course.steps[letter], course.ends))
    )


def length_s(parameters: MosCell) -> float:
    """Return the seconds of a cell's load."""
    return max(load.ends_s for load in loads_of(parameters))


def measured(parameters: MosCell) -> tuple[float, float]:
    """Return begin and end of a cell's measured time, in seconds from the load's start."""
    loads = loads_of(parameters)
    return max(min(load.begins_s + load.rampup_s for load in loads), 0.0), length_s(parameters)


def course_of(parameters: Adaptation) -> dict[str, Any]:
    """Return the beginnings of the stages, the end of A's first spike and the end, in seconds."""
    course, minute = COURSES[parameters.course], parameters.minute_s
    spike_ends = next(at for at, _ in course.steps["A"] if at > course.stages[1])
    return {
        "stages": [minute * at for at in course.stages],
        "spike_ends": minute * spike_ends,
        "ends": minute * course.ends,
    }


# ---- Division of the pool ----

STATIC_CPU, STATIC_NETWORK = 0.75, 0.30
"""Shares of the pool for the small objects' store in section 8.1's Static; the other store has the
rest."""

SSD, HDD = DiskClass(0.0002, 15e6), DiskClass(0.012, 3e6)
"""Disks of section 3: SATA SSDs and HDDs of about 500 and 100 MB/s, slowed down like the network
(docs/mos.md). A hard disk still has its positioning time."""


def division_of(parameters: MosCell, pool: MicrostorePool) -> Division:
    """Return the initial division of a cell."""
    if pool.machines:
        return Division(APART, pool.machines)
    if isinstance(parameters, Setups):
        return _section_1(parameters, pool)
    if isinstance(parameters, TwoStores):
        return even(pool) if parameters.setup == "default" else static(pool)
    assert isinstance(parameters, OneStore)
    return _alone(parameters, pool)


def _section_1(parameters: Setups, pool: MicrostorePool) -> Division:
    """Return figure 1's division: equal storage, one proxy with many cores, one fast link."""
    storage = parameters.storage_cores * pool.storage_servers
    slim = Share(parameters.slim_cores, storage, parameters.slim_mbit * MEGABIT)
    wide = Share(parameters.wide_cores, storage, parameters.wide_mbit * MEGABIT)
    if parameters.setup == "favors-small":
        return Division(APART, {SMALL: wide, LARGE: slim})
    layout = TOGETHER if parameters.setup == "default" else APART
    return Division(layout, {SMALL: slim, LARGE: wide})


def static(pool: MicrostorePool) -> Division:
    """Return section 8.1's Static: the best division by rules of thumb; MOS starts from it."""
    total = pool.total

    def of(cpu: float, network: float) -> Share:
        return Share(
            round(cpu * total.proxy_cores, 6),
            round(cpu * total.storage_cores, 6),
            round(network * total.network, 3),
        )

    return Division(
        APART,
        {SMALL: of(STATIC_CPU, STATIC_NETWORK), LARGE: of(1 - STATIC_CPU, 1 - STATIC_NETWORK)},
    )


def _alone(parameters: OneStore, pool: MicrostorePool) -> Division:
    """Return section 3's division: one workload alone. A second proxy is the other microstore's."""
    storage = parameters.storage_cores * pool.storage_servers
    one = Share(
        parameters.proxy_cores,
        storage,
        parameters.network_mbit * MEGABIT,
        parameters.proxy_workers,
    )
    disks: tuple[DiskClass, ...] = ()
    if isinstance(parameters, Disks):
        disks = (SSD,) * parameters.ssds + (HDD,) * parameters.hdds
    if parameters.proxies == 2:
        half = Share(one.proxy_cores, storage / 2, one.network, one.proxy_workers)
        return Division(TOGETHER, {SMALL: half, LARGE: half}, disks)
    tenant = TENANT[parameters.workload] if isinstance(parameters, OneWorkload) else LARGE
    idle = SMALL if tenant == LARGE else LARGE
    return Division(APART, {tenant: one, idle: pool.step}, disks)


def divided(parameters: MosCell, pool: MicrostorePool, testbed: str) -> Division:
    """Return the initial division of a cell. UserError: the testbed's pool cannot be divided like
    this."""
    division = division_of(parameters, pool)
    why = _unfit(parameters, pool) or _problem(division, pool, isinstance(parameters, TwoStores))
    if why is not None:
        raise UserError(why, where=f"{parameters.label()} on testbed {testbed}")
    return division


def _unfit(parameters: MosCell, pool: MicrostorePool) -> str | None:
    """Return why a cell does not fit a pool of machines or of shares; None if it fits."""
    if not pool.machines:
        if not isinstance(parameters, TwoStores) or not parameters.assigns_machines:
            return None
        return (
            f"the setup {parameters.setup} assigns whole machines, and the pool has none: the "
            "spec needs pool.machine, as in testbed/specs/mos-machines.yaml"
        )
    if isinstance(parameters, TwoStores) and (
        parameters.setup == "static" or parameters.assigns_machines
    ):
        return None
    return (
        "the pool consists of whole machines (pool.machine), which only load and adaptation with "
        "the setups static, mos and mos-at-once can use"
    )


def _problem(division: Division, pool: MicrostorePool, bounded: bool) -> str | None:
    """Return why a pool cannot be divided like this; None if it can. `bounded`: True if the shares
    must fit into the pool; else they are an experiment's own."""
    if division.disks and len(division.disks) != pool.disks:
        return (
            f"it needs {len(division.disks)} disks in each storage server, which has {pool.disks}"
        )
    for name, text in (
        ("proxy_cores", "cores of proxies"),
        ("storage_cores", "cores of storage servers"),
        ("network", "bytes a second"),
    ):
        total = getattr(pool.total, name)
        given = sum(getattr(share, name) for share in division.shares.values())
        if bounded and given > total * (1 + 1e-6):
            return f"it needs {given:g} {text}, and the pool has {total:g}"
        for store, share in division.shares.items():
            if bounded and getattr(share, name) < getattr(pool.step, name) * (1 - 1e-6):
                return (
                    f"microstore {store} would get {getattr(share, name):g} {text}, less than a "
                    f"step of {getattr(pool.step, name):g}"
                )
    return None


# ---- Parameters of a controller: the SLAs of both tenants (sections 6 and 8.1), and cospurf ----


def controller_parameters(parameters: TwoStores, pool: Share) -> dict[str, Any]:
    """Return the parameters of MOS, which has no SLAs, or of MOS++ on a pool."""
    if parameters.assigns_machines:
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
