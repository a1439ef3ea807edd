"""Proof of a plan's bounds for a run on real machines, or the reason why there is none.

A bound requires enforcement: token buckets and priorities at every disk *and* every link. The
server must keep up with its charged load, and requests must come at their traces' times. A run
reports each of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.outcome import Conditions
from campaigns.papers.prioritymeister.parameters import Parameters
from controllers.prioritymeister.profiles import load_profile
from testbed.stores.nfs.shaping import FRAME, bucket

HDR_WIDTH = 1e-3
"""Relative width of HDR histograms of latencies: three digits, rounded up."""


def conditions_of(
    experiment: Experiment,
    told: Parameters,
    statuses: Mapping[str, Mapping[str, Any]],
    reports: Mapping[str, Mapping[str, Any]],
    *,
    switch_levels: int,
    frame: int = FRAME,
) -> dict[str, Conditions]:
    """Return the kept conditions by workload; empty without an enforced plan.

    Args:
        experiment: the finished experiment.
        told: parameters of proxies and hosts, read back from them.
        statuses: status of each server's proxy at the end of the run (GET /status).
        reports: output of each replayer.
        switch_levels: priorities of the switch's ports.
        frame: bytes of the links' largest frame.
    """
    if experiment.plan is None:
        return {}
    network = network_differs(told, switch_levels, frame)
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


def network_differs(told: Parameters, switch_levels: int, frame: int = FRAME) -> str | None:
    """Return why the network stage is not enforced as planned; None if it is."""
    if told.network.mode != "priority":
        return "the network is not enforced"
    used = max(
        (flow.level for host in told.network.hosts.values() for flow in host.flows), default=0
    )
    if used > switch_levels:
        return f"the plan has {used} network levels, and the switch {switch_levels}"
    for name, host in told.network.hosts.items():
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
        return "the proxy does not tell how far its server was behind"
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
