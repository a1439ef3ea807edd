"""Outcome of an experiment from the replayers' reports, and proof of a plan's bounds for the run.

A bound requires enforcement: token buckets and priorities at every disk *and* every link. The
server must keep up with its charged load, and requests must come at their traces' times. A run
reports each of these, or the reason why its bounds are not proven.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from campaigns.papers.prioritymeister.experiment import Conditions, MeasuredRequests, PmExperiment
from campaigns.papers.prioritymeister.plan import EnforcerParameters
from controllers.prioritymeister.profiles import load_profile
from schemas.errors import HotbedError
from testbed.stores.nfs.shaping import FRAME, bucket

LAG_S = 1e-3
"""A replayer with a 99th percentile of lateness above this spoils the run."""
HDR_WIDTH = 1e-3
"""Relative width of HDR histograms of latencies: three digits, rounded up."""


def result_of(report: Mapping[str, Any], window_s: float, seconds: float) -> MeasuredRequests:
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
    return MeasuredRequests(
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
        raise HotbedError(f"the replayer reports bins of {width:g} s, not of {window_s:g} s")
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


def conditions_of(
    experiment: PmExperiment,
    applied: EnforcerParameters,
    statuses: Mapping[str, Mapping[str, Any]],
    reports: Mapping[str, Mapping[str, Any]],
    *,
    switch_levels: int,
    frame: int = FRAME,
) -> dict[str, Conditions]:
    """Return the kept conditions by workload; empty without an enforced plan.

    Args:
        experiment: the finished experiment.
        applied: parameters of proxies and hosts, read back from them.
        statuses: status of each server's proxy at the end of the run (GET /status).
        reports: output of each replayer.
        switch_levels: priorities of the switch's ports.
        frame: bytes of the links' largest frame.
    """
    if experiment.plan is None:
        return {}
    network = network_differs(applied, switch_levels, frame)
    found = {}
    for workload in experiment.topology.workloads:
        name, report = workload.name, reports[workload.name]
        profile = load_profile(experiment.base / experiment.topology.device_of(workload).profile)
        behind = _behind(statuses[workload.server or ""])
        allowed = profile.overhead.latency
        unanswered = int(report["whole"]["unanswered"]["count"])
        found[name] = Conditions(
            why_not=network or _server_differs(behind, allowed) or _lost(unanswered),
            late_s=float(report["send_lag"]["max"]),
            behind_s=behind,
            allowed_s=allowed,
            network=network is None,
            unanswered=unanswered,
            width=HDR_WIDTH,
        )
    return found


def network_differs(
    applied: EnforcerParameters, switch_levels: int, frame: int = FRAME
) -> str | None:
    """Return why the network stage is not enforced as planned; None if it is."""
    if applied.network.mode != "priority":
        return "the network is not enforced"
    used = max(
        (flow.level for host in applied.network.hosts.values() for flow in host.flows), default=0
    )
    if used > switch_levels:
        return f"the plan has {used} network levels, and the switch {switch_levels}"
    for name, host in applied.network.hosts.items():
        for flow in host.flows:
            # A bucket as fast as the link is left out, because the link itself limits the flow.
            planned = [pair for pair in flow.pairs if pair[0] < host.rate]
            if any(bucket(*pair, frame) != pair for pair in planned):
                return f"host {name} keeps token buckets of {flow.workload} that let more through"
    return None


def _behind(status: Mapping[str, Any]) -> float | None:
    service = status.get("service")
    return None if service is None else float(service["lag_seconds"])


def _server_differs(behind: float | None, allowed: float) -> str | None:
    if behind is None:
        return "the proxy does not report the delay of its server"
    if behind <= allowed:
        return None
    says = (
        f"its profile allows {1e3 * allowed:.3g} ms"
        if allowed
        else "its profile has no overhead.latency, as if none ever was"
    )
    return f"the server was behind what it was charged by up to {1e3 * behind:.3g} ms, and {says}"


def _lost(unanswered: int) -> str | None:
    return f"{unanswered} requests were not answered by the end of the run" if unanswered else None


def as_text(conditions: Mapping[str, Conditions]) -> str:
    """Return JSON for a run's folder: why nothing is proven for each workload, or null."""
    return json.dumps({name: one.why_not for name, one in conditions.items()}, indent=1) + "\n"
