"""Results of a simulation of PriorityMeister's system. Times are in seconds, sizes in bytes."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict

RESULTS_SCHEMA = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Latencies(_Frozen):
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


class Part(_Frozen):
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


class Enforced(_Frozen):
    """Counts of the device's enforcer: requests without room in a bucket on arrival, requests
    dispatched out of profile, seconds charged, and the weight at the end."""

    held: int
    out_of_profile: int
    work_s: float
    weight: float


class Bound(_Frozen):
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


class TraceRead(_Frozen):
    """Reader's report on a workload's trace."""

    requests: int
    last_arrival_s: float
    malformed: int
    first_malformed: str | None


class WorkloadResult(_Frozen):
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
    whole: Part
    second_half: Part
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


class DeviceResult(_Frozen):
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


class LinkResult(_Frozen):
    """Results of one direction of a link, as for a device, in frames and bytes."""

    name: str
    frames: int
    bytes: float
    busy_s: float
    utilisation: float
    max_queue: int


class Results(_Frozen):
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
