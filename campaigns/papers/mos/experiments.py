"""The paper's experiments on microstores: the load of a cell's tenants (objects, workers, times),
and the division of the pool between the microstores (sections 1, 3 and 8.1).

One microstore serves the tenant of small objects (workloads A and B), the other serves the tenant
of large objects (C and D). The layout ``default`` has one store of everything: all proxies serve
each tenant and keep their own shares. A controller starts from the division.

Section 8.1's load over time (figures 11 and 12) consists of layers of workers that each run without
a break. Large objects (workload C) dominate stage 1. At 40 minutes small objects (A) spike and then
shift down until about 200 minutes, while C drops and slowly rises again. At 230 minutes A spikes
once more and C drops by half. The paper gives no numbers of processes: these are Hotbed's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from schemas.cells.mos import (
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


@dataclass(frozen=True)
class Layer:
    """Workers that begin and end together; times are minutes of the paper."""

    workers: int
    begins: float
    ends: float


def layers(steps: Steps, ends: float) -> tuple[Layer, ...]:
    """Return the fewest layers of workers with the numbers of workers in `steps`. ValueError:
    `steps` do not begin at 0 or do not rise."""
    times = [at for at, _ in steps] + [ends]
    if not steps or times[0] != 0 or any(b <= a for a, b in pairwise(times)):
        raise ValueError(f"steps must begin at 0 and rise to the end, not {list(steps)!r}")
    found: dict[tuple[float, float], int] = {}
    for level in range(1, max(count for _, count in steps) + 1):
        for stretch in _stretches(steps, ends, level):
            found[stretch] = found.get(stretch, 0) + 1
    return tuple(Layer(count, *stretch) for stretch, count in sorted(found.items()))


def _stretches(steps: Steps, ends: float, level: int) -> list[tuple[float, float]]:
    """Return the periods with at least `level` workers."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for at, count in steps:
        if count >= level and since is None:
            since = at
        elif count < level and since is not None:
            found.append((since, at))
            since = None
    return found if since is None else [*found, (since, ends)]


TENANT = {"A": "small", "B": "small", "C": "large", "D": "large"}
"""Tenant of each workload."""
MIX = {"A": (90, 5, 5), "B": (5, 90, 5), "C": (90, 5, 5), "D": (5, 90, 5)}
"""Table 1: percent of GET, PUT and DELETE."""
SMALL_KB = 128
CONTAINERS = {"small": 4, "large": 2}
KB, MB = 1000, 1_000_000


@dataclass(frozen=True)
class StoredObjects:
    """Objects that one workload reads: `containers` of `each` objects of `least` to `most` bytes,
    uniformly distributed; their names begin with `prefix`."""

    letter: str
    tenant: str
    prefix: str
    containers: int
    each: int
    least: int
    most: int

    @property
    def mean(self) -> float:
        """Mean size in bytes."""
        return (self.least + self.most) / 2


@dataclass(frozen=True)
class DriverLoad:
    """One run of a driver: `workers` of a workload. From `begins_s` on, `rampup_s` do not count,
    and the next `seconds` do. `mix` is in percent: reads, writes, deletions."""

    name: str
    objects: StoredObjects
    mix: tuple[int, int, int]
    workers: int
    begins_s: float
    rampup_s: float
    seconds: float

    @property
    def letter(self) -> str:
        """Workload letter of Table 1."""
        return self.objects.letter

    @property
    def ends_s(self) -> float:
        """Second at which the workers end."""
        return self.begins_s + self.rampup_s + self.seconds


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
        count = fixed_count(parameters)
    containers = min(CONTAINERS[tenant], count)
    return StoredObjects(letter, tenant, prefix, containers, -(-count // containers), least, most)


def fixed_count(parameters: ObjectSizes) -> int:
    """Return the number of objects of one size in figure 2: at most 200, and at most 64 MB."""
    fit = 64 * MB // (parameters.object_kb * KB)
    return int(max(4, min(parameters.small_objects, fit)))


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
            workers=layer.workers,
            begins_s=minute * layer.begins,
            rampup_s=0.0,
            seconds=minute * (layer.ends - layer.begins),
        )
        for letter in parameters.letters
        for number, layer in enumerate(layers(course.steps[letter], course.ends))
    )


def length_s(parameters: MosCell) -> float:
    """Return the seconds of a cell's load."""
    return max(load.ends_s for load in loads_of(parameters))


def measured(parameters: MosCell) -> tuple[float, float]:
    """Return begin and end of a cell's measured time, in seconds from the load's start."""
    loads = loads_of(parameters)
    return max(min(load.begins_s + load.rampup_s for load in loads), 0.0), length_s(parameters)


# ---- Division of the pool ----

MEGABIT = 125_000.0
"""A megabit in bytes."""
SMALL, LARGE = "small", "large"
TOGETHER, APART = "default", "static"
"""Layouts: all proxies serve every tenant, or each tenant has its microstore's proxies."""

STATIC_CPU, STATIC_NETWORK = 0.75, 0.30
"""Shares of the pool for the small objects' store in section 8.1's Static; the other store has the
rest."""


@dataclass(frozen=True)
class Share:
    """Total resources of a microstore: cores of its proxies and storage servers, bytes a second
    between its proxies and clients, and worker processes of each proxy."""

    proxy_cores: float
    storage_cores: float
    network: float
    proxy_workers: int = 1


@dataclass(frozen=True)
class MicrostorePool:
    """Resources to divide, the smallest step of each, storage servers of each microstore, and disks
    of each server. `machines`: each microstore's first resources, if whole machines are assigned
    instead of shares."""

    total: Share = Share(0.8, 0.8, 400 * MEGABIT)
    step: Share = Share(0.1, 0.1, 20 * MEGABIT)
    storage_servers: int = 2
    disks: int = 3
    machines: Mapping[str, Share] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskClass:
    """A class of disks: mean positioning time in seconds, and bandwidth in bytes a second."""

    positioning: float
    bandwidth: float


SSD, HDD = DiskClass(0.0002, 15e6), DiskClass(0.012, 3e6)
"""Disks of section 3: SATA SSDs and HDDs of about 500 and 100 MB/s, slowed down like the network
(docs/mos-experiments.md). A hard disk still has its positioning time."""


@dataclass(frozen=True)
class Division:
    """A layout, each microstore's share, and the classes of the disks of every storage server.
    Without classes, the disks are as in the spec."""

    layout: str
    shares: Mapping[str, Share]
    disks: tuple[DiskClass, ...] = ()


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


def even(pool: MicrostorePool) -> Division:
    """Return section 8.1's Default: one store of everything with equal proxies."""
    total = pool.total
    half = Share(total.proxy_cores / 2, total.storage_cores / 2, total.network / 2)
    return Division(TOGETHER, {SMALL: half, LARGE: half})


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


def unfit(parameters: MosCell, pool: MicrostorePool) -> str | None:
    """Return why a cell does not fit a pool of machines or of shares; None if it fits."""
    if not pool.machines:
        if not isinstance(parameters, TwoStores) or parameters.setup != "mos":
            return None
        return (
            "the setup mos assigns whole machines, and the pool has none: the spec needs "
            "pool.machine, as in testbed/specs/mos-machines.yaml"
        )
    if isinstance(parameters, TwoStores) and parameters.setup in ("static", "mos"):
        return None
    return (
        "the pool consists of whole machines (pool.machine), which only load and adaptation with "
        "the setups static and mos can use"
    )


def problem(division: Division, pool: MicrostorePool, *, bounded: bool) -> str | None:
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
