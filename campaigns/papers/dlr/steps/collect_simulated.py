"""Collection of a modelled benchmark into a run folder's files. They are a live run's files and the
distribution of latencies, which rados bench does not print.

On the testbed's own size, throughput counts like rados bench's, until the last operation has ended,
so that the run is comparable to real runs. A store with its own size has thousands of operations in
flight, and the slowest end long after the others. Its throughput counts the operations within the
benchmark's own time (`in_own_time`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import pandas as pd

from campaigns.papers.dlr.services import CellSetting
from campaigns.papers.dlr.steps.collect import STEADY_AFTER_INTERVALS, controller_summary, is_inert
from controllers.journal import read_journal
from schemas.run import OpSummary, Summary
from testbed.simulated import BenchmarkResult, Sample
from workloads import collect as tidied
from workloads.rados_bench import BenchResult, RadosBench, Segment
from workloads.rados_output import Sample as Second

TENANT = "bench"
BEYOND = 10  # least requests beyond a reported percentile


def collect(
    setting: CellSetting,
    result: BenchmarkResult,
    samples: Sequence[Sample],
    *,
    fio_s: Mapping[str, float],
    statistics: Mapping[str, float],
    detail_nodes: int,
) -> Summary:
    """Write `samples.parquet` and `latency.parquet`, and return the run's summary.

    Args:
        setting: the cell; its journal must already be in its folder.
        result: result of the benchmark.
        samples: samples of the recorder and the benchmark.
        fio_s: virtual seconds of load on each node.
        statistics: the simulator's statistics.
        detail_nodes: with more nodes, only means are kept.
    """
    folder = setting.folder
    sample_table(samples).to_parquet(folder / "samples.parquet", index=False)
    latency_table(result).to_parquet(folder / "latency.parquet", index=False)
    journal = read_journal(folder / "journal.jsonl")
    bench = as_rados_bench(result)
    if setting.parameters.osds is not None:
        bench = in_own_time(bench, result.in_time)
    from_s = min(STEADY_AFTER_INTERVALS * setting.interval_s, setting.duration_s / 2)
    reads = {
        f"hot_iops.{node}": result.fio_reads[node] / seconds
        for node, seconds in sorted(fio_s.items())
        if seconds > 0
    }
    if len(result.fio_reads) > detail_nodes and reads:
        reads = {"hot_iops": fmean(reads.values())}
    own = {f"simulated.{name}": statistics[name] for name in ("now_s", "events", "epoch")}
    return Summary(
        whole=[with_percentiles(tidied.whole(bench), result)],
        steady=[tidied.steady(bench, from_s)],
        pressure_mean=pressure_mean(samples, bench.seconds),
        controller=controller_summary(journal),
        inert=is_inert(journal),
        extra=reads | own,
    )


def sample_table(samples: Sequence[Sample]) -> pd.DataFrame:
    """Return columns t_s (float64), node, metric (strings), value (float64), like
    `workloads.collect.tidy`."""
    frame = pd.DataFrame(sorted(samples), columns=list(tidied.COLUMNS))
    return frame.astype({"t_s": "float64", "node": "str", "metric": "str", "value": "float64"})


def latency_table(result: BenchmarkResult) -> pd.DataFrame:
    """Return the whole run's histogram: one row per bucket, `t_s` 0."""
    low, high, count = zip(*result.histogram, strict=True) if result.histogram else ((), (), ())
    rows = len(low)
    return pd.DataFrame(
        {
            "t_s": pd.array([0.0] * rows, dtype="float64"),
            "op": [result.benchmark.op] * rows,
            "tenant": [TENANT] * rows,
            "node": [tidied.CLIENT] * rows,
            "low_ns": pd.array(low, dtype="int64"),
            "high_ns": pd.array(high, dtype="int64"),
            "count": pd.array(count, dtype="int64"),
        }
    )


def as_rados_bench(result: BenchmarkResult) -> BenchResult:
    """Return the result as rados bench's, so that the same code summarizes both."""
    benchmark = result.benchmark
    return BenchResult(
        bench=RadosBench(
            op=benchmark.op,
            object_size=benchmark.object_size,
            concurrency=benchmark.concurrency,
            duration_s=benchmark.duration_s,
            run_name="simulated",
        ),
        seconds=result.seconds,
        operations=result.operations,
        bytes=result.bytes,
        latency_mean_s=result.latency_mean_s or 0.0,
        latency_sd_s=None,
        latency_max_s=result.latency_max_s or 0.0,
        latency_min_s=result.latency_min_s or 0.0,
        incorrect=0,
        series=tuple(
            Second(s.t_s, None, s.throughput_mb_s, s.iops, s.latency_s, s.in_flight)
            for s in result.series
        ),
        segments=(Segment(result.started_s, 0.0, result.seconds),),
        cpu_s=None,
        raw=(),
    )


def in_own_time(bench: BenchResult, operations: int) -> BenchResult:
    """Return `bench` with the throughput of its own duration, in which `operations` finished.

    Latencies remain those of all operations, because without late operations they would be too
    short. The series ends with the last second that began within the duration.
    """
    duration_s = bench.bench.duration_s
    # A second's time is its end, and the last second is shorter.
    seconds = math.ceil(duration_s - 1e-6)
    return replace(
        bench,
        seconds=duration_s,
        operations=operations,
        bytes=operations * bench.bench.object_size,
        series=tuple(second for second in bench.series if second.t_s <= seconds),
        segments=tuple(replace(part, seconds=duration_s) for part in bench.segments),
    )


def with_percentiles(summary: OpSummary, result: BenchmarkResult) -> OpSummary:
    """Return the summary with median and 99th percentile, if enough requests are beyond them."""
    found = {
        name: result.quantile_s(q)
        for name, q in (("latency_p50_s", 0.5), ("latency_p99_s", 0.99))
        if result.operations * (1 - q) >= BEYOND
    }
    return summary.model_copy(update=found)


def pressure_mean(samples: Sequence[Sample], seconds: float) -> dict[str, float]:
    """Return the mean of each node's signal over the measured time, in percent."""
    values: dict[str, list[float]] = {}
    for sample in samples:
        wanted = sample.metric == tidied.PRESSURE and 0 <= sample.t_s <= seconds
        if wanted and math.isfinite(sample.value):
            values.setdefault(sample.node, []).append(sample.value)
    return {node: fmean(found) for node, found in sorted(values.items())}
