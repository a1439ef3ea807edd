"""Run folders of the planner with chosen values, to test the analysis. Never shown as a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from synthetic_runs import finished

from schemas.run import Summary
from schemas.sizes import counts_of

SIZES = ("0.1K-0.1M", "5K-5M", "10K-10M")
COST = {"alp": 1.0, "algorithm1": 1.02, "htoc": 10.0, "sa": 150.0, "opt": 0.99}
SECONDS = {"alp": 0.1, "algorithm1": 1.0, "htoc": 0.5, "sa": 9.0, "opt": 4.0}
DEVIATION = {"alp": 0.9, "algorithm1": 0.9, "htoc": 0.9, "sa": 0.8, "opt": 0.9}
PLANNER = {"planner": {"processor": "made up", "cpus": 2}}
DEFAULTS: dict[str, Any] = {
    "kind": "s1",
    "replicas": 3,
    "tail": 1.5,
    "load_max": None,
    "racks": 0,
    "swap_success": 0.9,
    "selection": "highest",
    "program": None,
    "divide": None,
    "first_radius": None,
    "radius_step": None,
    "max_move_cost": None,
    "time_limit_s": 60.0,
}


def write_plan(
    campaign: Path, size: str, method: str, block: int, *, cell: Any = None, **values: float
) -> Path:
    """Write one finished run; `cell` changes parameters, `values` numbers of the summary."""
    nodes, partitions = counts_of(size)
    parameters = DEFAULTS | {"nodes": nodes, "partitions": partitions, "method": method}
    if method == "algorithm1":
        parameters |= {"program": "lp", "divide": "dc"}
    parameters |= cell or {}
    run, folder = finished(
        campaign,
        block,
        "ursa",
        parameters,
        ground="sim",
        phase="plan",
        site="synthetic",
        hosts=PLANNER,
    )
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
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=numbers | values)
    (folder / "run.json").write_text(run.model_dump_json())
    (folder / "summary.json").write_text(summary.model_dump_json())
    return folder


def write_inputs(campaign: Path, size: str, kind: str, block: int) -> Path:
    """Write one description of an instance."""
    ratio = [1.0 - index / 200 for index in range(200)]
    facts = {"ratio_p05": 0.05, "ratio_p95": 0.5 + 0.01 * block, "hot_share": 0.3}
    folder = write_plan(campaign, size, "inputs", block, cell={"kind": kind}, **facts)
    described = {
        "ratio": ratio,
        "load": [1.0 + index / 100 for index in range(200)],
        "capacity": [2.0 + index / 50 for index in range(200)],
        "partition_share": [0.001, 0.01, 0.1, 1.0],
        "partition_load": [100.0, 20.0, 5.0, 1.0],
        "threshold": 0.7,
    }
    (folder / "inputs.json").write_text(json.dumps(described))
    return folder


def cells(sizes: tuple[str, ...] = SIZES) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """Yield (size, method, parameters, values) of every planning cell that the figures need."""
    for size in sizes:
        for kind in ("s1", "s2", "s3"):
            for method in ("alp", "algorithm1", "htoc", "sa"):
                yield size, method, {"kind": kind}, {}
        yield size, "alp", {"selection": "random"}, {"cost": 1e6, "moves": 1e6}
    for size in ("50-50K", "150-150K"):
        for divide in ("none", "dc"):
            for program in ("ilp", "lp"):
                slow = 1.0 + 5 * (program == "ilp") + 2 * (divide == "none")
                cell = {"kind": "s2", "divide": divide, "program": program}
                yield size, "algorithm1", cell, {"cost": 1.0, "decision_s": slow}
    for size in ("10-100", "20-400", "30-900"):
        for method in ("opt", "alp", "algorithm1", "sa"):
            yield size, method, {"kind": "s2"}, {"limited": float(method == "opt")}


def write_all(artifacts: Path, name: str = "ursa-full", blocks: int = 3) -> Path:
    """Write every run that the figures need."""
    campaign = artifacts / name
    for block in range(blocks):
        for kind in ("s1", "s2", "s3"):
            write_inputs(campaign, SIZES[-1], kind, block)
        for size, method, cell, values in cells():
            write_plan(campaign, size, method, block, cell=cell, **values)
    return campaign
