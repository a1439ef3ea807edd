"""Samples and summary of a finished benchmark and its recordings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from schemas.run import OpSummary
from workloads.errors import WorkloadError
from workloads.fio import parse_fio
from workloads.rados_bench import BenchResult
from workloads.rados_output import RadosSample

CLIENT = "client"
PRESSURE = "pressure"
Row = tuple[float, str, str, float]


def rows(bench: BenchResult, recording: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the samples of a run: (t_s, node, metric, value).

    `t_s` counts measured time from the benchmark's start, without gaps (between the passes of
    `seq`). Samples in a gap are left out, earlier ones are negative.

    Args:
        bench: the finished benchmark.
        recording: the recorder's samples, {"wall": epoch, "values": {node: {metric: value}}}.
    """
    yield from _client_rows(bench.series)
    yield from recorded_rows(recording, bench.measured)


def _client_rows(series: Sequence[RadosSample]) -> Iterator[Row]:
    for sample in series:
        values = {
            "throughput_mb_s": sample.throughput_mb_s,
            "iops": sample.iops,
            "latency_s": sample.latency_s,
            "in_flight": float(sample.in_flight),
        }
        for metric, value in values.items():
            if value is not None:
                yield sample.t_s, CLIENT, metric, value


def recorded_rows(
    recording: Iterable[Mapping[str, Any]], at: Callable[[float], float | None]
) -> Iterator[Row]:
    """Yield (t_s, node, metric, value) of a recorder's samples, {"wall": epoch, "values": {node:
    {metric: value}}}; `at` maps an epoch to t_s, or to None if the sample does not count."""
    for line in recording:
        t_s = at(float(line["wall"]))
        if t_s is None:
            continue
        for node, metrics in line["values"].items():
            for metric, value in metrics.items():
                if value is not None and math.isfinite(value):
                    yield t_s, str(node), str(metric), float(value)


def whole(bench: BenchResult) -> OpSummary:
    """Return the benchmark's own totals."""
    return OpSummary(
        op=bench.bench.op,
        seconds=bench.seconds,
        operations=bench.operations,
        bytes=bench.bytes,
        throughput_mb_s=bench.throughput_mb_s,
        iops=bench.iops,
        latency_mean_s=bench.latency_mean_s,
        latency_sd_s=bench.latency_sd_s,
        latency_max_s=bench.latency_max_s,
        errors=bench.incorrect,
    )


def steady(bench: BenchResult, from_s: float) -> OpSummary:
    """Return the benchmark from `from_s` seconds of measured time on, from its per-second series.

    Values that the series does not give (standard deviation, maximum) are None.

    Raises:
        WorkloadError: nothing was measured after `from_s`.
    """
    seconds = operations = latency = finished = 0.0
    before = 0.0
    for sample in bench.series:
        span, before = sample.t_s - before, sample.t_s
        # A second that began before `from_s` does not count.
        if sample.t_s - span < from_s - 1e-6:
            continue
        seconds += span
        operations += sample.iops * span
        if sample.latency_s is not None:
            latency += sample.latency_s * sample.iops * span
            finished += sample.iops * span
    if seconds <= 0:
        raise WorkloadError(
            f"the benchmark measured {bench.seconds:.1f} s, nothing of it after the first "
            f"{from_s:.1f} s: make it longer or the control interval shorter."
        )
    count = round(operations)
    bytes_ = count * bench.bench.object_size
    return OpSummary(
        op=bench.bench.op,
        seconds=seconds,
        operations=count,
        bytes=bytes_,
        throughput_mb_s=bytes_ / seconds / 1e6,
        iops=operations / seconds,
        latency_mean_s=latency / finished if finished else None,
    )


def pressure_mean(
    bench: BenchResult, recording: Sequence[Mapping[str, Any]], metric: str = PRESSURE
) -> dict[str, float]:
    """Return the mean of each node's signal over the measured time, percent."""
    values: dict[str, list[float]] = {}
    for t_s, node, name, value in recorded_rows(recording, bench.measured):
        if name == metric and 0 <= t_s <= bench.seconds:
            values.setdefault(node, []).append(value)
    return {node: fmean(found) for node, found in sorted(values.items())}


def load_iops(outputs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the random reads per second of the disturbance, by node, while it ran there.

    Args:
        outputs: `outputs` of the agent's verb disturb-log. A fio that was killed before its
            report is left out.
    """
    operations: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for output in outputs:
        try:
            result = parse_fio(output["stdout"])
        except WorkloadError:
            continue
        node = str(output["node"])
        operations[node] = operations.get(node, 0.0) + result.operations
        seconds[node] = seconds.get(node, 0.0) + result.seconds
    return {node: operations[node] / seconds[node] for node in operations if seconds[node] > 0}
