"""Run folders of Ursa's planner and of open-loop writes with chosen values, to test the analysis.
Never shown as a result."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from schemas.cells.ursa import URSA
from schemas.run import OpSummary, Summary
from schemas.sizes import counts_of
from tests.analysis.synthetic_runs import written

SIZES = ("0.1K-0.1M", "5K-5M", "10K-10M")
COST = {"alp-fast": 1.0, "alp": 1.02, "htoc": 10.0, "sa": 150.0, "opt": 0.99}
SECONDS = {"alp-fast": 0.1, "alp": 1.0, "htoc": 0.5, "sa": 9.0, "opt": 4.0}
DEVIATION = {"alp-fast": 0.9, "alp": 0.9, "htoc": 0.9, "sa": 0.8, "opt": 0.9}
PLANNER = {"planner": {"processor": "made up", "cpus": 2}}
SETTLED = {"ursa": 40.0, "htoc": 100.0, "upmap": None, "default": None}
DISTANCE = {"ursa": 12.0, "htoc": 60.0}
CALLED_S = 30.0


def write_plan(
    campaign: Path, size: str, method: str, block: int, *, cell: Any = None, **values: float
) -> Path:
    """Write one finished plan; `cell` changes parameters, `values` numbers of the summary."""
    nodes, partitions = counts_of(size)
    wanted = {"nodes": nodes, "partitions": partitions, "method": method} | (cell or {})
    parameters = URSA.check(wanted, "cell").model_dump(mode="json")
    scale = nodes / 100 * (1 + 0.1 * block)
    numbers = {
        "hot_before": 6.0 * nodes / 100,
        "hot_after_swaps": 2.0 * nodes / 100,
        "hot_after": 0.0,
        "swaps": 30 * scale,
        "moves": 10 * scale,
        "cost": COST.get(method, 1.0) * scale,
        "decision_s": SECONDS.get(method, 1.0) * scale,
        "load_sd_before": 1.0,
        "load_sd_after": DEVIATION.get(method, 1.0),
        "limited": 0.0,
        "gap": 0.001 + 0.0001 * block,
        "note_optimal": 1.0,
        "input_mib": 1.0,
    }
    where = {"ground": "sim", "phase": "plan", "site": "synthetic", "hosts": PLANNER}
    return written(campaign, block, "ursa", parameters, numbers | values, **where)


def write_inputs(campaign: Path, size: str, kind: str, block: int) -> Path:
    """Write one description of an instance."""
    facts = {"ratio_p05": 0.05, "ratio_p95": 0.5 + 0.01 * block, "hot_share": 0.3}
    folder = write_plan(campaign, size, "inputs", block, cell={"kind": kind}, **facts)
    described = {
        "ratio": [1.0 - index / 200 for index in range(200)],
        "load": [1.0 + index / 100 for index in range(200)],
        "capacity": [2.0 + index / 50 for index in range(200)],
        "partition_share": [0.001, 0.01, 0.1, 1.0],
        "partition_load": [100.0, 20.0, 5.0, 1.0],
        "threshold": 0.7,
    }
    (folder / "inputs.json").write_text(json.dumps(described))
    return folder


def planner_cells() -> Iterator[tuple[str, str, dict[str, Any], dict[str, float]]]:
    """Yield size, method, parameters and values of every planning cell that the figures need."""
    for size in SIZES:
        for kind in ("s1", "s2", "s3"):
            for method in ("alp", "alp-fast", "htoc", "sa"):
                yield size, method, {"kind": kind}, {}
        yield size, "alp", {"selection": "random"}, {"cost": 1e6, "moves": 1e6}
    for size in ("50-50K", "150-150K"):
        for divide in ("none", "dc"):
            for program in ("ilp", "lp"):
                slow = 1.0 + 5 * (program == "ilp") + 2 * (divide == "none")
                cell = {"kind": "s2", "divide": divide, "program": program}
                yield size, "alp", cell, {"cost": 1.0, "decision_s": slow}
    for size in ("10-100", "20-400", "30-900"):
        for method in ("opt", "alp", "alp-fast", "sa"):
            yield size, method, {"kind": "s2"}, {"limited": float(method == "opt")}


def write_all(artifacts: Path, name: str = "ursa-full", blocks: int = 6) -> Path:
    """Write every run of the planner that the figures need."""
    campaign = artifacts / name
    for block in range(blocks):
        for kind in ("s1", "s2", "s3"):
            write_inputs(campaign, SIZES[-1], kind, block)
        for size, method, cell, values in planner_cells():
            write_plan(campaign, size, method, block, cell=cell, **values)
    return campaign


def write_open(
    campaign: Path,
    controller: str,
    block: int,
    *,
    osds: int = 10,
    pgs: int = 100,
    uplink: float | None = 300e6,
    ground: str = "local",
    scenario: str = "skew",
    rate: float = 24.0,
    p99: float = 3.0,
    first_s: float = 5.0,
    **values: Any,
) -> Path:
    """Write one finished run of open-loop writes; `first_s`: response time of the first five
    seconds; `values` change numbers of its summary."""
    parameters = {
        "op": "open",
        "scenario": scenario,
        "controller": controller,
        "rate": rate,
        "object_size": 262144,
        "duration_s": 360.0,
        "controller_parameters": {},
    }
    calibration = {
        "spec": f"ursa-{osds}",
        "pools": [{"name": "bench", "pg_num": pgs}],
        "racks": {"count": 2, "uplink": uplink},
    }
    extra: dict[str, float] = {"called_s": CALLED_S, "outstanding": 0.0}
    settled = values.pop("settled_s", SETTLED[controller])
    stable_s = math.inf
    if settled is not None:
        settled *= 1 + 0.05 * block
        extra["settled_strict_s"] = settled
        stable_s = CALLED_S + settled
    if controller in DISTANCE:
        moved = {"moves": 14.0, "first_moves": 12.0, "cost": DISTANCE[controller], "hot": 2.0}
        extra |= moved | values
    operation = OpSummary(
        op="open",
        seconds=180.0,
        operations=100,
        bytes=26214400,
        throughput_mb_s=0.1,
        iops=0.5,
        latency_mean_s=p99 / 5,
        latency_max_s=2 * p99,
        latency_p50_s=p99 / 10,
        latency_p99_s=p99,
        errors=0,
    )
    summary = Summary(whole=[operation], steady=[operation], pressure_mean={}, extra=extra)
    folder = written(
        campaign,
        block,
        "dlr",
        parameters,
        summary,
        ground=ground,
        calibration=calibration,
        name=f"{osds} {uplink}",
        time_scale=0.5,
        osd_count=osds,
    )
    times = [n / 10 for n in range(1800)]
    took = [first_s if t < 5.0 else 5.0 if t < stable_s else 0.1 for t in times]
    requests = pd.DataFrame({"t_s": times, "latency_s": took, "pg": "1.0"})
    requests.to_parquet(folder / "requests.parquet", index=False)
    return folder


def write_store(campaign: Path) -> Path:
    """Write every run on a store that figures 4, 12 and 13 need."""
    for block in range(6):
        for controller in SETTLED:
            write_open(campaign, controller, block)
            write_open(campaign, controller, block, osds=30, pgs=900)
            write_open(campaign, controller, block, osds=30, pgs=900, uplink=None)
        for rate, p99 in ((6.0, 0.2), (12.0, 0.3), (24.0, 4.0 + block)):
            write_open(campaign, "default", block, scenario="single", rate=rate, p99=p99)
    return campaign
