"""Run folders of simulated bursts and of object servers with chosen values, to test the analysis.
Never shown as a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.papers.twochoice.objects import TABLE1
from analysis.papers.twochoice.runs import (
    BEYOND,
    BURST_STANDARD,
    BURSTS_FILE,
    COLD,
    HEAD_TO_HEAD,
    LEARNERS,
    OBJECT_STANDARD,
    ON_RADOS,
    PAPERS,
    RADOS,
    RADOS_AMONG,
    REPORT_FILE,
)
from tests.analysis.synthetic_runs import written

RATIOS = (0.0, 0.01, 0.1, 0.5)
FEW = 0.008
RESPONSE = {
    "fixed": 1.5,
    "random": 1.8,
    "two-choice": 1.35,
    "collaborative": 0.9,
    "preassign": 1.1,
    "both": 0.6,
    "preassign-cold": 1.2,
    "both-cold": 0.7,
    "prequal": 2.0,
    "oracle": 0.4,
}
GROWS = frozenset({"two-choice", "collaborative"})
LIGHT = {"fixed": 10, "random": 10, "two-choice": 18, "collaborative": 22, "preassign": 14}
MOST = {"fixed": 10, "random": 20, "two-choice": 27, "collaborative": 33, "preassign": 20}
LOADS = {4: 2.0, 7: 64.0, 10: 400.0, 13: 64.0}
"""Number of servers by load."""


def loads_of(scheduler: str, block: int) -> list[dict[str, Any]]:
    """Return the writes given to servers, by their load."""
    avoided = scheduler not in ("fixed", "random")
    rows = [(0, True, 8.0, 0.0 if avoided else MOST[scheduler], 0.0 if avoided else 10.0)]
    for load, servers in LOADS.items():
        most = MOST.get(scheduler, 14) + (0.1 * block if scheduler != "fixed" else 0)
        mean = LIGHT.get(scheduler, 12) if load < 10 else 10
        rows.append((load, False, servers, most, mean))
    names = ("load", "straggler", "servers", "most", "mean")
    return [dict(zip(names, row, strict=True)) | {"largest": row[3], "bursts": 10} for row in rows]


def write_bursts(
    campaign: Path, series: str, share: float, block: int, *, cell: Any = None, **values: float
) -> Path:
    """Write one finished run; `cell` changes parameters, `values` numbers of the summary."""
    scheduler, cold = series.removesuffix("-cold"), series.endswith("-cold")
    parameters: dict[str, Any] = BURST_STANDARD | {
        "scheduler": scheduler,
        "history": "cold" if cold else "learned",
        "straggler_ratio": share,
        "rounds": 10,
        "learn_rounds": 20 if scheduler in LEARNERS and not cold else 0,
    }
    parameters |= cell or {}
    grown = 1 + share if scheduler in GROWS else 1.0
    hit = share > 0 and scheduler in ("fixed", "random", "two-choice")
    if not parameters["cache_s"]:
        grown = 1 / UNCACHED
    if not share and scheduler in ("fixed", "random"):
        grown = 0.8
    loads = loads_of(scheduler, block)
    numbers = {
        "response_s": RESPONSE[series] * grown * (1 + 0.02 * block),
        "best_s": 0.4,
        "mean_s": 0.3,
        "most": float(MOST.get(scheduler, 14)),
        "straggler_most": float(loads[0]["most"]),
        "straggler_writes": (10.0 + block) * hit,
        "hit": float(hit),
        "calm_most": float(MOST.get(scheduler, 14)) + 0.1 * block,
        "stragglers": round(share * parameters["servers"]),
        "redirected_share": 0.5 if parameters["choices"] == "home+random" else 0.999,
        "messages_per_write": 2.0 if scheduler == "fixed" else 6.0,
    }
    where = {"ground": "sim", "phase": "simulate", "site": "bursts"}
    folder = written(campaign, block, "twochoice", parameters, numbers | values, **where)
    learned = [0.9, 0.8, 0.7][: parameters["learn_rounds"]]
    bursts = {"loads": loads, "history": [], "learning": learned}
    (folder / BURSTS_FILE).write_text(json.dumps(bursts))
    return folder


def _burst_cells(variations: bool) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Yield series, straggler ratio and other parameters of every cell for the figures. Without
    variations, yield only cells for the claims."""
    for series in (*PAPERS, *COLD, *BEYOND):
        for share in RATIOS:
            yield series, share, {}
    for series in (*PAPERS, *BEYOND):
        yield series, FEW, {}
        for servers, processes in ((10_000, 1_000_000), (1000, 10_000)):
            learn = {"learn_rounds": 5} if series in LEARNERS else {}
            if learn or servers > 1000:
                yield series, 0.1, {"servers": servers, "processes": processes, **learn}
        if variations:
            yield series, 0.1, {"processes_per_node": 100}
            if series != "both":
                yield series, 0.1, {"spread_s": 0.02}
            yield series, 0.1, {"load_mean": 5.0, "load_sd": 1.0}
    for cache_s in (BURST_STANDARD["cache_s"], 0.0):
        yield "both", 0.1, {"spread_s": 0.02, "cache_s": cache_s}
    for series in ("two-choice", "collaborative", "preassign", "both") if variations else ():
        for choices in ("random+random", "home+random"):
            yield series, 0.1, {"choices": choices, "redirects": True}


def write_all_bursts(artifacts: Path, blocks: int = 6, *, variations: bool = True) -> Path:
    """Write every simulated run for the figures or, without variations, only for the claims."""
    campaign = artifacts / "twochoice-full"
    for block in range(blocks):
        for series, share, cell in _burst_cells(variations):
            write_bursts(campaign, series, share, block, cell=cell)
    return campaign


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
CACHE_S: float = OBJECT_STANDARD["cache_s"]
SCHEDULERS = (1, 16, 128)
SHARES = {"fixed": 0.25, "both": 0.05}
"""Deviation across servers in figure 13."""


def _write_objects(
    campaign: Path, block: int, report: Any, numbers: dict[str, float], spec: str, **cell: Any
) -> None:
    usual = {"scheduler": "both", "stragglers": "none", "pending": 4, "schedulers": 1}
    parameters = OBJECT_STANDARD | usual | cell
    where = {"calibration": {"spec": spec}}
    folder = written(campaign, block, "twochoice-objects", parameters, numbers, **where)
    (folder / REPORT_FILE).write_text(json.dumps(report))


def write_burst(
    campaign: Path, scheduler: str, stragglers: str, block: int, *, cache_s: float = CACHE_S
) -> None:
    """Write figure 14's run: with fixed placement some processes end early and others late."""
    last = SECONDS[scheduler] * (1 + 0.03 * block) * (0.7 if stragglers == "none" else 1)
    last *= 1 if cache_s else UNCACHED
    early, power = (0.1, 2.5) if scheduler == "fixed" else (0.6, 1.0)
    done = [(rank + 1) / PROCESSES for rank in range(PROCESSES)]
    ends = [last * (early + (1 - early) * share**power) for share in done]
    written = [1 << 24] * SERVERS
    app = {"scheduler": scheduler, "background": False, "rank_seconds": ends}
    other = {"background": True, "rank_seconds": [1.0], "server_bytes": written}
    numbers = {
        "seconds": last,
        "process_mean_s": sum(ends) / len(ends),
        "process_p10_s": ends[PROCESSES // 10],
        "process_p50_s": ends[PROCESSES // 2],
        "probe_mean_s": 0.001 * (1 + 0.03 * block),
        "register_mean_s": 0.004,
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
    cell = {"scheduler": scheduler, "stragglers": stragglers, "cache_s": cache_s}
    report = {"apps": [app | {"server_bytes": written}, other]}
    _write_objects(campaign, block, report, numbers, "twochoice-64", experiment="burst", **cell)


def write_rados(campaign: Path, scheduler: str, stragglers: str, block: int, copies: int) -> None:
    """Write a burst on a Ceph store; CRUSH's placement is not reported."""
    last = SECONDS[scheduler] * (1 + 0.03 * block) * copies / 2
    numbers = {
        "seconds": last,
        "process_mean_s": 0.8 * last,
        "disk_busy_mean": 0.9,
        "disk_busy_most": 1.0,
        "read_back": 320.0,
        "read_bad": 0.0,
        "writes": 320.0,
    }
    if scheduler not in ("crush", "dlr"):
        numbers |= {"fullest": 1.1, "redirected_share": 0.4}
    cell = RADOS | RADOS_AMONG[stragglers] | {"copies": copies, "experiment": "burst"}
    cell |= {"scheduler": scheduler, "stragglers": stragglers}
    _write_objects(campaign, block, {"apps": []}, numbers, "twochoice-rados", **cell)


def write_balance(campaign: Path, scheduler: str, block: int, *, cache_s: float = CACHE_S) -> None:
    """Write figure 13's run: a ramp over servers, steeper with fixed placement."""
    share = SHARES[scheduler] * (1 if cache_s else UNCACHED)
    written = [int((1 + share * ((7 * s) % SERVERS / 16 - 2)) * 2**25) for s in range(SERVERS)]
    numbers = {
        "seconds": (SECONDS[scheduler] + block) * (1 if cache_s else UNCACHED),
        "spread": share * (1 + 0.02 * block),
        "fullest": 1 + 2 * share * (1 + 0.02 * block),
        "process_mean_s": 20.0,
        "redirected_share": 0.4,
        "home_fullest": 1.05 + 0.01 * block,
    }
    report = {"apps": [{"background": False, "rank_seconds": [1.0], "server_bytes": written}]}
    cell = {"experiment": "balance", "scheduler": scheduler, "cache_s": cache_s}
    _write_objects(campaign, block, report, numbers, "twochoice-64", **cell)


def write_micro(campaign: Path, block: int) -> None:
    """Write figures 11 and 12, and Table I with the paper's values."""
    noise = 1 + 0.05 * block

    def write(report: Any, numbers: dict[str, float], **cell: Any) -> None:
        _write_objects(campaign, block, report, numbers, "twochoice-16", **cell)

    for pending in (1, 4):
        for schedulers in SCHEDULERS:
            took = 1e-3 * (0.5 + 0.1 * pending) * schedulers**0.3 * noise
            cell = {"pending": pending, "schedulers": schedulers}
            write({}, {"probe_mean_s": took}, experiment="probe", **cell)
    rows = [
        {
            "writes": 80 * n,
            "entries": 20 + (n * 7 + block) % 5,
            "create_seconds": 0.012 * noise,
            "query_seconds": 0.0008 * noise,
        }
        for n in range(1, 51)
    ]
    longest = {"entries_most": 24.0, "creates": 3750.0}
    timed = {"create_p99_s": 0.03 * noise, "query_p99_s": 0.002 * noise}
    write({"rows": rows}, timed | longest, experiment="table")
    for size, by_pending in TABLE1.items():
        for pending, percent in by_pending.items():
            numbers = {"delay": percent / 100 * noise, "probe_mean_s": 1e-3}
            write({}, numbers, experiment="delay", size_kib=size, pending=pending)


def write_all_objects(artifacts: Path, blocks: int = 6) -> Path:
    """Write the runs of all campaigns on object servers into one folder."""
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
