"""What a simulation of PriorityMeister's system came to. Times are in seconds, sizes in bytes."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict

RESULTS_SCHEMA = 1


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Latencies(_Frozen):
    """Latencies of some requests; `buckets` are [from, below, count] in nanoseconds, where asked.

    Percentiles are the middle of a bucket, which is at most 1/64 of its value wide; `mean` and
    `max` are exact. All are 0 when there are none.
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
        """The latency of rank ceil(q n), from the buckets; None without any."""
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
        """The share of requests that met the SLO; None without an SLO or without requests."""
        if self.slo_misses is None or not self.requests:
            return None
        return 1 - self.slo_misses / self.requests


class Enforced(_Frozen):
    """What the device's enforcer counted: requests that found no room in a bucket when they came,
    that were dispatched out of profile, seconds charged, and the weight at the end."""

    held: int
    out_of_profile: int
    work_s: float
    weight: float


class Bound(_Frozen):
    """The proven latency beside the measured maximum.

    `proven_s` is the paper's bound (fluid), `blocking_s` that of whole requests and packets, which
    a measurement is held against. `applies` is False where nothing is proven, and `why_not` says
    why. Of a completion SLO, `measured_s` is when the last reply came.
    """

    proven_s: float
    blocking_s: float
    measured_s: float
    applies: bool
    why_not: str | None

    @property
    def held(self) -> bool | None:
        """Whether the bound held; None where it does not apply."""
        if not self.applies:
            return None
        # A bucket takes 1e-9 of its burst more, and every queue rounds to a nanosecond.
        return self.measured_s <= self.blocking_s * (1 + 1e-8) + 1e-8


class TraceRead(_Frozen):
    """What was read of a workload's trace."""

    requests: int
    last_arrival_s: float
    malformed: int
    first_malformed: str | None


class WorkloadResult(_Frozen):
    """What became of a workload.

    A latency counts from the trace's time to the last byte of the reply (closed loop: from when
    the request was sent). `second_half` are those that arrived (closed loop: were answered) from
    `half_s` on. `stages` splits
    latencies by stage; of the storage stage, `device_wait` is what was spent before the device and
    `device_service` what the device took. A row of `series` is the begin of a window, requests
    that arrived in it, misses among these, and their longest latency.
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
        """Whether a share `q` of the requests (0.999, say) met the latency SLO; None without."""
        share = (self.whole if whole else self.second_half).met_share
        return None if share is None else share >= q


class DeviceResult(_Frozen):
    """A device. `utilisation` is the share of the time until arrivals ended that it was busy,
    `charged_s` the estimated work, `max_queue` the most requests waiting or served at a time.
    `lag_s` is the most that it was behind what it was charged (docs/prioritymeister.md, "What a
    profile leaves out"): a bound that counts it as its profile's ``overhead.latency`` holds."""

    name: str
    requests: int
    charged_s: float
    busy_s: float
    utilisation: float
    max_queue: int
    lag_s: float


class LinkResult(_Frozen):
    """One direction of a link; as of a device, in frames and bytes."""

    name: str
    frames: int
    bytes: float
    busy_s: float
    utilisation: float
    max_queue: int


class Results(_Frozen):
    """All of a simulation. Only `cpu_s` and `wall_s` differ when it is run again."""

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
        """The workload of that name; KeyError when there is none."""
        for one in self.workloads:
            if one.name == name:
                return one
        raise KeyError(name)

    @property
    def broken_bounds(self) -> tuple[str, ...]:
        """Workloads whose proven bound was exceeded: there are none unless something is wrong."""
        return tuple(
            w.name for w in self.workloads if w.bound is not None and w.bound.held is False
        )
