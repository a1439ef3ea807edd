"""Profile of a device measured with fio: the cost of a request of each kind and size.

``by-size`` (solid state): bandwidth at each size of random requests, several in flight, as in
WorkloadCompactor. ``by-distance`` (disks; section 4.2), at several places of the device: the time
of a small request after one at a given distance, and the bandwidth of long requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import UserError
from workloads.errors import WorkloadError
from workloads.fio import read_jobs

SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
SMALL = 4096
LARGE = 1 << 20
PLACES = 5
_KINDS = ("read", "write")


@dataclass(frozen=True)
class Measurement:
    """Job of fio: random requests of `size` within `span` bytes from `begin`, or sequential."""

    kind: str
    size: int
    begin: int
    span: int
    depth: int
    sequential: bool = False

    @property
    def name(self) -> str:
        order = "seq" if self.sequential else "rand"
        return f"{self.kind}-{order}-{self.size}-{self.begin}-{self.span}"


@dataclass(frozen=True)
class ProfilePlan:
    """Measurements for a device of `capacity` bytes.

    Args:
        kind: ``by-size`` or ``by-distance``.
        capacity: bytes that may be used, from the device's start.
        depth: requests in flight of ``by-size``; a distance is measured with one.
        writes: measure writes too, which destroys the stored data. Without it, writes count as
            costly as reads.
        seconds: length of each measurement.
    """

    kind: str
    capacity: int
    depth: int = 32
    writes: bool = False
    seconds: float = 2.0
    measurements: tuple[Measurement, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.kind not in {"by-size", "by-distance"}:
            raise UserError(f"profile kind {self.kind!r}", allowed="by-size, by-distance")
        if self.capacity < 64 * LARGE:
            raise UserError(
                f"{self.capacity} bytes are too few to profile", allowed="at least 64 MiB"
            )
        if not 1 <= self.depth <= 1024 or not 0.1 <= self.seconds <= 3600:
            raise UserError("depth must be 1 to 1024, seconds 0.1 to 3600")
        made = self._by_size() if self.kind == "by-size" else self._by_distance()
        object.__setattr__(self, "measurements", tuple(made))

    @property
    def kinds(self) -> tuple[str, ...]:
        return _KINDS if self.writes else _KINDS[:1]

    @property
    def total_s(self) -> float:
        """Return the seconds that all measurements take."""
        return self.seconds * len(self.measurements)

    def _by_size(self) -> list[Measurement]:
        return [
            Measurement(kind, size, 0, self.capacity, self.depth)
            for kind in self.kinds
            for size in SIZES
        ]

    def _by_distance(self) -> list[Measurement]:
        made = []
        for kind in self.kinds:
            for begin in self.places():
                zone = self._zone()
                made.append(Measurement(kind, LARGE, begin, zone, 1, sequential=True))
                made += [Measurement(kind, SMALL, begin, s, 1) for s in self._spans() if s <= zone]
            whole = [s for s in self._spans() if s > self._zone()]
            made += [Measurement(kind, SMALL, 0, span, 1) for span in whole]
        return made

    def places(self) -> list[int]:
        """Return the places on the device for measurements of distances, in bytes."""
        return [place * self._zone() for place in range(PLACES)]

    def _zone(self) -> int:
        return self.capacity // PLACES // LARGE * LARGE

    def _spans(self) -> list[int]:
        """Return the spans of random requests; their mean distance is a third of each."""
        spans = []
        span = LARGE
        while span < self.capacity:
            spans.append(span)
            span *= 8
        return [*spans, self.capacity // LARGE * LARGE]

    def job_file(self, target: str) -> str:
        """Return a fio job file that measures everything, one measurement after the other."""
        jobs = {}
        for m in self.measurements:
            order = m.kind if m.sequential else f"rand{m.kind}"
            jobs[m.name] = [f"rw={order}", f"bs={m.size}", f"iodepth={m.depth}"]
            jobs[m.name] += [f"offset={m.begin}", f"size={m.span}"]
        return job_text([f"filename={target}", "ioengine=libaio"], self.seconds, jobs)


def job_text(own: Sequence[str], seconds: float, jobs: Mapping[str, Sequence[str]]) -> str:
    """Return a fio job file: `jobs` by name, one after the other, each `seconds` long. `own` are
    settings of all jobs in addition to those that every profile needs."""
    lines = ["[global]", *own, "direct=1", "time_based=1", f"runtime={round(1000 * seconds)}ms"]
    lines += ["randrepeat=1", "norandommap=1", "stonewall", "allow_file_create=0"]
    lines.append("group_reporting=0")
    for name, settings in jobs.items():
        lines += [f"[{name}]", *settings]
    return "\n".join(lines) + "\n"


def build(plan: ProfilePlan, output: str) -> dict[str, Any]:
    """Return the profile (docs/prioritymeister.md) from fio's JSON output of `plan.job_file`.

    Raises:
        WorkloadError: fio's output is not JSON, or a measurement is missing, failed or empty.
    """
    jobs = jobs_of(output)
    if plan.kind == "by-size":
        return _size_profile(plan, jobs)
    return {"type": "storageTable", "history": 8} | {
        kind: _distance_table(plan, kind if kind in plan.kinds else "read", jobs) for kind in _KINDS
    }


def jobs_of(output: str) -> dict[str, Mapping[str, Any]]:
    """Return fio's jobs by name; raise WorkloadError if there are none."""
    return {str(job.get("jobname")): job for job in read_jobs(output)[1]}


def part_of(jobs: Mapping[str, Mapping[str, Any]], m: Measurement) -> Mapping[str, Any]:
    """Return fio's report of a measurement; raise WorkloadError if missing, failed or empty."""
    job = jobs.get(m.name)
    if job is None:
        raise WorkloadError(f"fio did not report the measurement {m.name}.")
    part: Mapping[str, Any] = job[m.kind]
    if job.get("error") or not part.get("total_ios"):
        raise WorkloadError(f"fio's measurement {m.name} failed (error {job.get('error')}).")
    return part


def _size_profile(plan: ProfilePlan, jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found = {(m.kind, m.size): float(part_of(jobs, m)["bw_bytes"]) for m in plan.measurements}
    rows = [
        {
            "requestSize": size,
            "readBandwidth": found["read", size],
            "writeBandwidth": found.get(("write", size), found["read", size]),
        }
        for size in SIZES
    ]
    return {"type": "storageSSD", "bandwidthTable": rows}


def _distance_table(
    plan: ProfilePlan, kind: str, jobs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return base time and bandwidth by place and distance; both directions count alike."""
    mine = [m for m in plan.measurements if m.kind == kind]
    bandwidth = {m.begin: float(part_of(jobs, m)["bw_bytes"]) for m in mine if m.sequential}
    random = [m for m in mine if not m.sequential]
    latency = {(m.begin, m.span): float(part_of(jobs, m)["lat_ns"]["mean"]) / 1e9 for m in random}
    spans = sorted({m.span for m in random})
    base = []
    for begin in plan.places():
        near = [_at(latency, begin, span) - SMALL / bandwidth[begin] for span in spans]
        base.append([*reversed(_positive(near)), *_positive(near)])
    distances = [span / 3 for span in spans]
    return {
        "offsets": plan.places(),
        "distances": [*(-d for d in reversed(distances)), *distances],
        "base": base,
        "bandwidth": [[bandwidth[begin]] * 2 * len(spans) for begin in plan.places()],
    }


def _at(latency: Mapping[tuple[int, int], float], begin: int, span: int) -> float:
    """Return the latency of a span; for one wider than a place's zone, the whole device's."""
    return latency.get((begin, span), latency.get((0, span), 0.0))


def _positive(values: Sequence[float]) -> list[float]:
    return [max(0.0, value) for value in values]
