"""Run folders of real object servers with chosen values, to test the analysis. Never shown as a
result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic_runs import finished

from analysis.papers.twochoice.objects.claims import TABLE1
from analysis.papers.twochoice.objects.runs import (
    HEAD_TO_HEAD,
    ON_RADOS,
    RADOS,
    RADOS_AMONG,
    REPORT_FILE,
    STANDARD,
)
from schemas.run import Summary

SERVERS, PROCESSES = 64, 512
SECONDS = {
    "fixed": 90.0,
    "two-choice": 75.0,
    "both": 60.0,
    "prequal": 70.0,
    "oracle": 50.0,
    "random": 100.0,
    "collaborative": 65.0,
    "preassign": 68.0,
    "crush": 96.0,
    "dlr": 97.0,
}
UNCACHED = 0.8
"""Ratio of seconds and deviations to those with remembered loads."""
CACHE_S: float = STANDARD["cache_s"]
SCHEDULERS = (1, 16, 128)
SHARES = {"fixed": 0.25, "both": 0.05}
"""Deviation across servers in figure 13."""


def write_run(
    campaign: Path,
    block: int,
    report: Any,
    values: dict[str, float],
    *,
    spec: str = "twochoice-64",
    **cell: Any,
) -> Path:
    """Write one finished run."""
    parameters: dict[str, Any] = STANDARD | {
        "scheduler": "both",
        "stragglers": "none",
        "pending": 4,
        "schedulers": 1,
    }
    parameters |= cell
    run, folder = finished(
        campaign, block, "twochoice-objects", parameters, calibration={"spec": spec}
    )
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=values)
    (folder / REPORT_FILE).write_text(json.dumps(report))
    (folder / "summary.json").write_text(summary.model_dump_json())
    (folder / "run.json").write_text(run.model_dump_json())
    return folder


def write_burst(
    campaign: Path, scheduler: str, stragglers: str, block: int, *, cache_s: float = CACHE_S
) -> None:
    """Write figure 14's run: with fixed placement some processes end early and others late."""
    last = SECONDS[scheduler] * (1 + 0.03 * block) * (0.7 if stragglers == "none" else 1)
    last *= 1 if cache_s else UNCACHED
    power = 2.5 if scheduler == "fixed" else 1.0
    early = 0.1 if scheduler == "fixed" else 0.6
    ends = [
        last * (early + (1 - early) * ((rank + 1) / PROCESSES) ** power)
        for rank in range(PROCESSES)
    ]
    app = {"name": "measured-1", "scheduler": scheduler, "background": False, "rank_seconds": ends}
    app["server_bytes"] = [1 << 24] * SERVERS
    other = {"name": "x", "background": True, "rank_seconds": [1.0], "server_bytes": [1] * SERVERS}
    values = {
        "seconds": last,
        "process_mean_s": sum(ends) / len(ends),
        "process_p10_s": ends[PROCESSES // 10],
        "fullest": 1.1,
        "redirected_share": 0.4,
        "probes_per_write": 2.0,
        "read_back": 2560.0,
        "read_redirected": 1000.0,
        "read_bad": 0.0,
        "read_query_mean_s": 0.002,
        "disk_busy_mean": 0.9,
        "processors_busy": 0.6,
        "writes": 2560.0,  # of all processes; the cell's parameter is for one
    }
    write_run(
        campaign,
        block,
        {"apps": [app, other]},
        values,
        experiment="burst",
        scheduler=scheduler,
        stragglers=stragglers,
        cache_s=cache_s,
    )


def write_rados(campaign: Path, scheduler: str, stragglers: str, block: int, copies: int) -> None:
    """Write a burst on a Ceph store; CRUSH's placement is not reported."""
    last = SECONDS[scheduler] * (1 + 0.03 * block) * copies / 2
    values = {
        "seconds": last,
        "process_mean_s": 0.8 * last,
        "disk_busy_mean": 0.9,
        "disk_busy_most": 1.0,
        "read_back": 320.0,
        "read_bad": 0.0,
        "writes": 320.0,
    }
    if scheduler not in ("crush", "dlr"):
        values |= {"fullest": 1.1, "redirected_share": 0.4}
    cell = RADOS | RADOS_AMONG[stragglers] | {"copies": copies}
    write_run(
        campaign,
        block,
        {"apps": []},
        values,
        spec="twochoice-rados",
        experiment="burst",
        scheduler=scheduler,
        stragglers=stragglers,
        **cell,
    )


def write_balance(campaign: Path, scheduler: str, block: int, *, cache_s: float = CACHE_S) -> None:
    """Write figure 13's run: a ramp over servers, steeper with fixed placement."""
    share = SHARES[scheduler] * (1 if cache_s else UNCACHED)
    written = [int((1 + share * ((7 * s) % SERVERS / 16 - 2)) * 2**25) for s in range(SERVERS)]
    app = {"name": "AstroPhysics-0-a", "background": False, "rank_seconds": [1.0]}
    app["server_bytes"] = written
    values = {
        "seconds": (SECONDS[scheduler] + block) * (1 if cache_s else UNCACHED),
        "spread": share * (1 + 0.02 * block),
        "fullest": 1 + 2 * share * (1 + 0.02 * block),
        "process_mean_s": 20.0,
        "redirected_share": 0.4,
    }
    cell = {"scheduler": scheduler, "cache_s": cache_s}
    write_run(campaign, block, {"apps": [app]}, values, experiment="balance", **cell)


def write_micro(campaign: Path, block: int) -> None:
    """Write figures 11 and 12, and Table I with the paper's values."""
    noise = 1 + 0.05 * block
    for pending in (1, 4):
        for schedulers in SCHEDULERS:
            took = 1e-3 * (0.5 + 0.1 * pending) * schedulers**0.3 * noise
            write_run(
                campaign,
                block,
                {},
                {"probe_mean_s": took},
                spec="twochoice-16",
                experiment="probe",
                pending=pending,
                schedulers=schedulers,
            )
    rows = [
        {
            "writes": 80 * n,
            "entries": 20 + (n * 7 + block) % 5,
            "create_seconds": 0.012 * noise,
            "query_seconds": 0.0008 * noise,
        }
        for n in range(1, 51)
    ]
    values = {
        "create_p99_s": 0.03 * noise,
        "query_p99_s": 0.002 * noise,
        "entries_most": 24.0,
        "creates": 3750.0,
    }
    write_run(campaign, block, {"rows": rows}, values, spec="twochoice-16", experiment="table")
    for size, by_pending in TABLE1.items():
        for pending, percent in by_pending.items():
            write_run(
                campaign,
                block,
                {},
                {"delay": percent / 100 * noise, "probe_mean_s": 1e-3},
                spec="twochoice-16",
                experiment="delay",
                size_kib=size,
                pending=pending,
            )


def write_all(artifacts: Path, blocks: int = 2) -> Path:
    """Write the runs of both campaigns into one folder."""
    campaign = artifacts / "twochoice-local"
    for block in range(blocks):
        for stragglers in ("table2", "fio", "none"):
            for scheduler in HEAD_TO_HEAD:
                write_burst(campaign, scheduler, stragglers, block)
        for scheduler in ("random", "collaborative", "preassign"):
            write_burst(campaign, scheduler, "table2", block)
        for stragglers in RADOS_AMONG:
            for scheduler in ON_RADOS:
                write_rados(campaign, scheduler, stragglers, block, 2)
        for scheduler in HEAD_TO_HEAD:
            write_rados(campaign, scheduler, "fio", block, 1)
        for scheduler in SHARES:
            write_balance(campaign, scheduler, block)
        write_balance(campaign, "both", block, cache_s=0.0)
        write_burst(campaign, "both", "table2", block, cache_s=0.0)
        write_micro(campaign, block)
    return campaign
