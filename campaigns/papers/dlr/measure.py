"""Measurements of a cell: its samples and latencies as tables, and its summary.

Open-loop writes also have ``requests.parquet``: t_s (intended start, float64), latency_s (float64,
NaN if the write never ended), pg (string).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from campaigns.engine.write_cell import SampleRow, write_latency, write_samples
from campaigns.papers.dlr.cell import CellSetting
from campaigns.papers.dlr.loads import cell_of
from schemas.cells.dlr import CONTROLLER_LEAD_INTERVALS
from schemas.run import OpSummary, Summary
from schemas.settling import HOLD_S, STABLE_S, settled_from
from testbed.agent.openloop.writer import bounds_us
from workloads import collect as benchmarked
from workloads.open_loop import OpenLoopResult
from workloads.rados_bench import BenchResult

if TYPE_CHECKING:
    import pandas as pd

STEADY_AFTER_INTERVALS = CONTROLLER_LEAD_INTERVALS
"""Control intervals at the start of a run that its steady part excludes."""
OP = "open"
_SERIES = {
    "latency_mean_s": "latency_s",
    "latency_max_s": "latency_max_s",
    "done": "iops",
    "intended": "intended",
    "outstanding": "in_flight",
    "oldest_s": "oldest_s",
}


def collect(
    setting: CellSetting,
    nodes: Sequence[str],
    result: BenchResult,
    recording: Sequence[Mapping[str, Any]],
    disturbance: Mapping[str, Any],
) -> Summary:
    """Write `samples.parquet`, and return the run's summary.

    There is no `latency.parquet`, because rados bench reports no distribution.

    Args:
        setting: the cell.
        nodes: nodes with OSDs.
        result: result of the workload.
        recording: the recorder's samples.
        disturbance: answer of the verb disturb-log.
    """
    write_samples(setting.folder, benchmarked.rows(result, recording))
    pressure = benchmarked.pressure_mean(result, recording)
    return Summary(
        whole=[benchmarked.whole(result)],
        steady=[benchmarked.steady(result, steady_from_s(setting))],
        pressure_mean={node: value for node, value in pressure.items() if node in nodes},
        extra=disturbing_reads(disturbance),
    )


def steady_from_s(setting: CellSetting) -> float:
    """Return the second from which a run's steady part counts, after the workload's start."""
    return min(STEADY_AFTER_INTERVALS * setting.interval_s, setting.duration_s / 2)


def disturbing_reads(disturbance: Mapping[str, Any]) -> dict[str, float]:
    """Return the reads a second of each node's load, from the answer of the verb disturb-log."""
    reads = benchmarked.load_iops(disturbance["outputs"])
    return {f"hot_iops.{node}": iops for node, iops in reads.items()}


def mean_pressure(
    samples: pd.DataFrame, nodes: Sequence[str], ends_s: float = math.inf
) -> dict[str, float]:
    """Return the mean of each node's signal from second 0 on, in percent."""
    within = samples[
        samples["t_s"].between(0, ends_s) & (samples["metric"] == benchmarked.PRESSURE)
    ]
    means = within.groupby("node")["value"].mean()
    return {node: float(means[node]) for node in nodes if node in means.index}


def recorded_rows(recording: Iterable[Mapping[str, Any]], began: float) -> Iterator[SampleRow]:
    """Return a recorder's samples as rows; times count from `began` (epoch)."""
    return benchmarked.recorded_rows(recording, lambda wall: wall - began)


def collect_writes(
    setting: CellSetting,
    result: OpenLoopResult,
    recorded: Iterable[SampleRow],
    *,
    nodes: Sequence[str],
    extra: Mapping[str, float] | None = None,
) -> Summary:
    """Write samples, latencies and requests of open-loop writes, and return the run's summary.

    Args:
        setting: the cell.
        result: the writer's result.
        recorded: the recorder's samples, see `recorded_rows`.
        nodes: nodes with OSDs.
        extra: further numbers of the summary.
    """
    folder = setting.folder
    samples = write_samples(folder, [*_client_rows(result), *recorded])
    write_latency(
        folder,
        (
            (0.0, OP, "bench", benchmarked.CLIENT, 1000 * low, 1000 * high, count)
            for bucket, count in sorted(result.histogram.counts.items())
            for low, high in [bounds_us(bucket)]
        ),
    )
    _request_table(result).to_parquet(folder / "requests.parquet", index=False)
    (folder / "logs" / "open-loop.jsonl").write_text(result.raw)
    called = cell_of(setting).balance_after_s * setting.time_scale  # "L" in figure 12
    return Summary(
        whole=[_summary(result, 0.0, setting)],
        steady=[_summary(result, called, setting)],
        pressure_mean=mean_pressure(samples, nodes),
        extra=_load_facts(folder) | outcome(result, called) | dict(extra or {}),
    )


def outcome(result: OpenLoopResult, called_s: float) -> dict[str, float]:
    """Return counts and settling times (absent if response times never became stable).

    Settling times count from the call. `settled_s`: the store then stays stable for `HOLD_S`, for
    99 % of the writes, see `schemas.settling`. `settled_good_s`: until the end of the run.
    `settled_strict_s`: the same without any slow write afterwards. The last two depend on the
    length of the run.
    """
    found = {
        "called_s": called_s,
        "intended": float(result.intended),
        "outstanding": float(result.outstanding),
        "late": float(result.late),
        "late_max_s": result.late_max_s,
        "held": float(result.held),
    }
    strict = result.settled_s(STABLE_S, called_s)
    if strict is not None:
        found["settled_strict_s"] = max(0.0, strict - called_s)
    starts = [at for at, _, _ in result.requests]
    took = [latency for _, latency, _ in result.requests]
    for name, hold_s in (("settled_s", HOLD_S), ("settled_good_s", math.inf)):
        settled = settled_from(starts, took, called_s, hold_s)
        if settled is not None:
            found[name] = settled - called_s
    return found


def _load_facts(folder: Path) -> dict[str, float]:
    try:
        load = json.loads((folder / "logs" / "load.json").read_text())
    except OSError:
        return {}
    return {"hot_osds": float(len(load["hot_osds"])), "load_off": float(load["off"])}


def _summary(result: OpenLoopResult, from_s: float, setting: CellSetting) -> OpSummary:
    """Return totals of the writes that should start from `from_s` on and ended."""
    done = [late for at, late, _ in result.requests if late is not None and at >= from_s]
    seconds = max(setting.duration_s - from_s, 1e-9)
    size = cell_of(setting).object_size
    ordered = sorted(done)
    return OpSummary(
        op=OP,
        seconds=seconds,
        operations=len(done),
        bytes=len(done) * size,
        throughput_mb_s=len(done) * size / seconds / 1e6,
        iops=len(done) / seconds,
        latency_mean_s=fmean(done) if done else None,
        latency_max_s=ordered[-1] if done else None,
        latency_p50_s=_quantile(ordered, 0.50),
        latency_p99_s=_quantile(ordered, 0.99),
        errors=result.failed,
    )


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1)]


def _client_rows(result: OpenLoopResult) -> Iterator[SampleRow]:
    for row in result.series:
        for name, metric in _SERIES.items():
            value = row.get(name)
            if value is not None:
                yield float(row["t_s"]), benchmarked.CLIENT, metric, float(value)


def _request_table(result: OpenLoopResult) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {
            "t_s": pd.array([at for at, _, _ in result.requests], dtype="float64"),
            "latency_s": pd.array(
                [math.nan if late is None else late for _, late, _ in result.requests],
                dtype="float64",
            ),
            "pg": [pg for _, _, pg in result.requests],
        }
    )
