"""Load of a cell's tenants: objects, workers and times."""

from __future__ import annotations

from dataclasses import dataclass

from campaigns.papers.mos.course import COURSES, layers
from schemas.cells.mos import Adaptation, Alone, MosCell, Setups, Sizes, SteadyLoad

TENANT = {"A": "small", "B": "small", "C": "large", "D": "large"}
"""Tenant of each workload."""
MIX = {"A": (90, 5, 5), "B": (5, 90, 5), "C": (90, 5, 5), "D": (5, 90, 5)}
"""Table 1: percent of GET, PUT and DELETE."""
SMALL_KB = 128
CONTAINERS = {"small": 4, "large": 2}
KB, MB = 1000, 1_000_000


@dataclass(frozen=True)
class Objects:
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
class Load:
    """One run of a driver: `workers` of a workload. From `begins_s` on, `rampup_s` do not count,
    and the next `seconds` do. `mix` is in percent: reads, writes, deletions."""

    name: str
    objects: Objects
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


def objects_of(parameters: MosCell, letter: str) -> Objects:
    """Return the objects that a workload reads."""
    tenant = TENANT[letter]
    small = tenant == "small"
    count = parameters.small_objects if small else parameters.large_objects
    least, most = (KB, SMALL_KB * KB) if small else (MB, parameters.large_mb * MB)
    prefix = letter.lower()
    if not small:
        prefix += f"{parameters.large_mb}mb"
    if isinstance(parameters, Sizes):
        tenant, prefix = "large", f"s{parameters.object_kb}kb"
        least = most = parameters.object_kb * KB
        count = fixed_count(parameters)
    containers = min(CONTAINERS[tenant], count)
    return Objects(letter, tenant, prefix, containers, -(-count // containers), least, most)


def fixed_count(parameters: Sizes) -> int:
    """Return the number of objects of one size in figure 2: at most 200, and at most 64 MB."""
    fit = 64 * MB // (parameters.object_kb * KB)
    return int(max(4, min(parameters.small_objects, fit)))


def loads_of(parameters: MosCell) -> tuple[Load, ...]:
    """Return the load of every driver of a cell."""
    if isinstance(parameters, Adaptation):
        return _over_time(parameters)
    assert isinstance(parameters, Setups | SteadyLoad | Alone)
    settle = 0.0
    if isinstance(parameters, SteadyLoad):
        settle = parameters.epoch_s * parameters.settle_epochs
    found = []
    for letter in parameters.letters:
        objects = objects_of(parameters, letter)
        if isinstance(parameters, Alone):
            workers = parameters.workers
        else:
            small = TENANT[letter] == "small"
            workers = parameters.small_workers if small else parameters.large_workers
        found.append(
            Load(
                name=letter.lower(),
                objects=objects,
                mix=(100, 0, 0) if isinstance(parameters, Sizes) else MIX[letter],
                workers=workers,
                begins_s=0.0,
                rampup_s=parameters.rampup_s + settle,
                seconds=parameters.seconds,
            )
        )
    return tuple(found)


def _over_time(parameters: Adaptation) -> tuple[Load, ...]:
    """Return figure 11's load: workers that come and go; their starting time counts."""
    course, minute = COURSES[parameters.course], parameters.minute_s
    return tuple(
        Load(
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
