"""Outcome of an experiment, from the replayers' reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from campaigns.papers.prioritymeister.outcome import Result
from schemas.errors import HotbedError

LAG_S = 1e-3
"""A replayer with a 99th percentile of lateness above this spoils the run."""


def result_of(report: Mapping[str, Any], window_s: float, seconds: float) -> Result:
    """Return a workload's result from its replayer's report.

    In the report, a request without an answer counts with its waiting time; the result counts it
    separately, as infinitely long.

    Args:
        report: output of `replay run`.
        window_s: window of the series, in whole bins of the report.
        seconds: length of the experiment.
    """
    part = report["second_half"]
    counts = {(low, below): count for low, below, count in part["latency"].get("buckets") or ()}
    for low, below, count in part["unanswered"].get("buckets") or ():
        counts[low, below] -= count
    rows = sorted((low, below - 1, count) for (low, below), count in counts.items() if count)
    low_ns, high_ns, count = np.array(rows, np.int64).reshape(-1, 3).T
    return Result(
        requests=int(part["requests"]),
        misses=None if part["slo_misses"] is None else int(part["slo_misses"]),
        mean_s=float(part["latency"]["mean"]),
        max_s=float(part["latency"]["max"]),
        max_whole_s=float(report["whole"]["latency"]["max"]),
        low_ns=low_ns,
        high_ns=high_ns,
        count=count,
        bytes=int(part["bytes"]),
        series=series_of(report["timeline"], window_s, seconds),
        unfinished=int(part["unanswered"]["count"]),
    )


def series_of(
    timeline: Mapping[str, Any], window_s: float, seconds: float
) -> tuple[tuple[int, int], ...]:
    """Return arrived requests and SLO misses in each window of an experiment (figure 1)."""
    width = float(timeline["bin_s"])
    if window_s < width:
        raise HotbedError(f"the replayer tells stretches of {width:g} s, not of {window_s:g} s")
    windows = [[0, 0] for _ in range(max(1, -int(-seconds // window_s)))]
    for place, one in enumerate(timeline["bins"] or ()):
        window = windows[min(int(place * width / window_s), len(windows) - 1)]
        window[0] += int(one["requests"])
        window[1] += int(one["slo_misses"])
    return tuple((arrived, missed) for arrived, missed in windows)


def late(reports: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why a run's replayers spoil it; None if they kept the traces' times."""
    for workload, report in reports.items():
        lag = float(report["send_lag"]["p99"])
        if lag > LAG_S:
            return (
                f"the replayer of {workload} was late by {1e3 * lag:.2f} ms at the 99th "
                f"percentile, above {1e3 * LAG_S:g} ms"
            )
    return None


def numbers_of(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the replayers' numbers for a run's summary, by name and workload."""
    found: dict[str, float] = {}
    for workload, report in reports.items():
        found[f"send_lag_p99_s.{workload}"] = float(report["send_lag"]["p99"])
        found[f"send_lag_max_s.{workload}"] = float(report["send_lag"]["max"])
        found[f"max_outstanding.{workload}"] = float(report["max_outstanding"])
        found[f"max_backlog.{workload}"] = float(report["max_backlog"])
        found[f"started.{workload}"] = float(report["started"])
    first = min((float(report["started"]) for report in reports.values()), default=0.0)
    last = max((float(report["started"]) for report in reports.values()), default=0.0)
    return found | {"start_spread_s": last - first}
