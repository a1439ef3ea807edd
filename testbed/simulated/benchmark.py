"""Modelled benchmark and its result, in the terms of rados bench and of a run's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from testbed.simulated.process import rows_of

Op = Literal["write", "seq", "rand"]


@dataclass(frozen=True)
class Benchmark:
    """Benchmark like rados bench: every client node keeps `concurrency` operations in flight for
    `duration_s` (virtual) seconds. Operations in flight then still end.

    ``seq`` reads the prefilled objects in order, and starts again after the last; ``rand`` reads
    them in random order; ``write`` writes new ones.
    """

    op: Op
    object_size: int = 4 * 2**20
    concurrency: int = 16
    duration_s: float = 180.0


@dataclass(frozen=True)
class BenchmarkSecond:
    """One second of a benchmark: `t_s` is its end, counted from the benchmark's start (the last one
    may be shorter). `latency_s` is the mean over the operations that finished in it, None if none
    did."""

    t_s: float
    seconds: float
    operations: int
    throughput_mb_s: float  # 10^6 bytes per second
    iops: float
    latency_s: float | None
    in_flight: int


@dataclass(frozen=True)
class BenchmarkResult:
    """A finished benchmark. `started_s` is on the store's clock (`SimulatedCeph.now_s`); `seconds`
    lasts until the end of the last operation, as in rados bench. `in_time` operations finished
    within the benchmark's own time. Latencies are in seconds, None without operations; `histogram`
    has (low_ns, high_ns, count) as in latency.parquet. `fio_reads` is the number of fio's reads on
    each node since the store was made."""

    benchmark: Benchmark
    started_s: float
    seconds: float
    operations: int
    in_time: int
    bytes: int
    latency_mean_s: float | None
    latency_min_s: float | None
    latency_max_s: float | None
    histogram: tuple[tuple[int, int, int], ...]
    series: tuple[BenchmarkSecond, ...]
    fio_reads: Mapping[str, int]

    @property
    def throughput_mb_s(self) -> float:
        """Throughput in 10^6 bytes per second."""
        return self.bytes / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def iops(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds if self.seconds else 0.0

    def quantile_s(self, q: float) -> float | None:
        """Return the latency of quantile `q` of the operations, exact to a bucket's width."""
        rank, seen = q * sum(count for _, _, count in self.histogram), 0
        for low, high, count in self.histogram:
            seen += count
            if seen >= rank:
                return (low + high) / 2e9
        return None


class SampleRow(NamedTuple):
    """A row of samples.parquet. `t_s` counts from the benchmark's start, so earlier samples are
    negative; without a benchmark it counts from the store's start."""

    t_s: float
    node: str
    metric: str
    value: float


def seconds_of(
    flat: Sequence[float], benchmark: Benchmark, seconds: float
) -> tuple[BenchmarkSecond, ...]:
    """Return the series from (finished, sum of latencies, in flight) for each second."""
    series: list[BenchmarkSecond] = []
    rows = rows_of(flat, 3)
    if len(rows) > 1 and len(rows) - 1 >= seconds:  # an empty last second
        operations, latency, in_flight = rows.pop()
        rows[-1] = [rows[-1][0] + operations, rows[-1][1] + latency, in_flight]
    for index, (operations, latency, in_flight) in enumerate(rows):
        took = min(1.0, seconds - index)
        series.append(
            BenchmarkSecond(
                t_s=index + took,
                seconds=took,
                operations=int(operations),
                throughput_mb_s=operations * benchmark.object_size / took / 1e6,
                iops=operations / took,
                latency_s=latency / operations if operations else None,
                in_flight=int(in_flight),
            )
        )
    return tuple(series)
