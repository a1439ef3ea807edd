"""Runs of PriorityMeister's experiments with chosen values, to test the analysis. Never shown as a
result."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.load import LoadedRun
from analysis.papers.prioritymeister.runs import STATED
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.session import typed_cells
from campaigns.papers.prioritymeister.mixes import labels_of
from schemas.cells.prioritymeister import OneDisk, PmCell
from schemas.run import Summary
from tests.analysis.synthetic_runs import record

ALONE = {"A": 0.01, "B": 0.012, "C": 0.1, "D": 0.02, "I": 0.1, "J": 0.1, "K": 0.002}
PERCENTS = ("p50", "p90", "p95", "p99", "p99.9")
REQUESTS = 13_000.0

Within = Callable[[PmCell, str], float]


def as_in_the_paper(cell: PmCell, workload: str) -> float:
    """Return a share of requests within the SLO that satisfies every claim of the paper."""
    if cell.policy == "pm":
        if cell.scenario == "buckets":
            bad = {"fast": "C", "slow": "A"}.get(getattr(cell, "limiters", "all"))
            return 0.9 if workload == bad else 1.0
        if cell.scenario == "levels":
            return 0.9 if cell.network_levels == 1 and workload in ("V1", "V2") else 1.0
        if cell.scenario == "burst":
            return {"F": 1.0, "G": 0.9995, "H": 0.995}.get(cell.burst, 0.9995)
        return 0.9995
    if cell.scenario == "misbehave":
        return 0.5 if cell.misbehaves else 1.0
    if cell.scenario == "burst":
        lower = 0.02 if cell.cake_upper == 1.2 else 0.0
        return {"F": 0.995, "G": 0.97, "H": 0.95}.get(cell.burst, 0.98) - lower
    if isinstance(cell, OneDisk) and cell.policy == "byslo":
        if cell.permutation is not None:
            return 0.99 if cell.permutation == "421" else 1.0
        return 0.995 if workload in ("A", "B") else 1.0
    return 0.995 if workload in ("B", "J") else 1.0


def extra_of(cell: PmCell, block: int, within: Within) -> dict[str, float]:
    """Return the numbers of a run's summary."""
    found: dict[str, float] = {"events": 1.0}
    for index, name in enumerate(labels_of(cell)):
        if cell.policy == "inputs":
            for column, value in zip(("storage", "network", "scv"), STATED[name], strict=True):
                if value is not None:
                    found[f"{name}_{column}"] = 1.2 if (name, column) == ("E", "storage") else value
            found[f"{name}_requests"] = REQUESTS
            continue
        alone = ALONE.get(name, 0.03) * (1 + 0.05 * block)
        slo, inside = cell.given_slos.get(name, cell.k * alone), within(cell, name)
        times = 0.5 if inside >= 0.999 else 3.0
        if cell.policy != "pm":
            times *= 1 + 0.01 * block
        # Blocks differ, by nothing in the mean of six.
        inside = 1 - (1 - inside) * (1 + 0.02 * (block - 2.5))
        found |= {
            f"{name}_requests": REQUESTS,
            f"{name}_misses": round(REQUESTS * (1 - inside)),
            f"{name}_slo_s": slo,
            f"{name}_alone_s": alone,
            f"{name}_within": inside,
            f"{name}_max_s": 2 * times * slo,
            f"{name}_max_whole_s": 2 * times * slo,
        }
        found |= {f"{name}_{p}_s": times * slo * (1 + 0.1 * i) for i, p in enumerate(PERCENTS)}
        if cell.policy == "pm":
            found[f"{name}_priority"] = float(2 - index if cell.scenario == "misbehave" else index)
            found[f"{name}_level_network-out"] = float(index + 1)
            found[f"{name}_planned"] = float(within(cell, name) >= 0.999)
            if cell.mode == "hold" and cell.as_planned:
                found[f"{name}_bound_ratio"] = 0.92 + 0.01 * block
    if cell.scenario in ("disk", "burst"):
        found |= {"L_requests": 500.0, "L_bytes_s": 4e7, "L_required_bytes_s": 3e7}
        found |= {"utilisation s0:disk": 0.9, "utilisation s0->switch": 0.2}
    return found


def run_of(cell: PmCell, block: int, extra: dict[str, float], ground: str) -> LoadedRun:
    """Return a finished run without a folder."""
    parameters = cell.model_dump(mode="json")
    run = record("pm-quick", block, "prioritymeister", parameters, ground=ground, site="modelled")
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=extra)
    loaded = LoadedRun(run, summary, Path("nowhere") / run.run_id)
    if getattr(cell, "burst", None) == "B":
        loaded.kept.update(over_time(cell.seconds, 60.0 + block))
    return loaded


def over_time(seconds: float, missed: float, calm: float = 4.0) -> dict[str, list[list[float]]]:
    """Return requests and misses of B in ten seconds each: in a tenth of them a burst of 100
    requests, some of them `missed`; otherwise 50, and `calm`."""
    t_s = np.arange(0.0, seconds, 10.0)
    burst = np.arange(len(t_s)) % 10 == 0
    counts = {"requests": (100.0, 50.0), "misses": (missed, calm)}
    return {
        f"{name} of B": [t_s.tolist(), np.where(burst, high, low).tolist()]
        for name, (high, low) in counts.items()
    }


def cells(name: str, without: Collection[str] = ()) -> Iterator[PmCell]:
    """Yield every cell of a campaign once, except those of the grids `without`."""
    file = find_campaign(name)
    seen = set()
    for grid, typed in typed_cells(load_campaign(file), file).items():
        for cell in () if grid in without else typed:
            key = json.dumps(cell.model_dump(mode="json"), sort_keys=True)
            if key not in seen:
                seen.add(key)
                yield cell


def all_runs(
    within: Within = as_in_the_paper, blocks: int = 2, ground: str = "sim"
) -> list[LoadedRun]:
    """Return the runs of pm-full that feed figures."""
    return [
        run_of(cell, block, extra_of(cell, block, within), ground)
        for cell in cells("pm-full", without=("disk-copy", "burst-copy", "network-rule"))
        for block in range(blocks)
    ]


def why_runs(within: Within, blocks: int = 2) -> list[LoadedRun]:
    """Return every run of pm-why."""
    found = [
        run_of(cell, block, extra_of(cell, block, within), "sim")
        for cell in cells("pm-why")
        for block in range(blocks)
    ]
    named = (one.run.model_copy(update={"campaign": "pm-why"}) for one in found)
    return [replace(one, run=run) for one, run in zip(found, named, strict=True)]


@cache
def _series(workloads: tuple[str, ...]) -> pa.Table:
    """Return requests and misses of each workload in thirty windows of ten seconds."""
    rows = product(workloads, range(30), (("requests", 800.0), ("misses", 9.0)))
    return pa.Table.from_pylist(
        [
            {"t_s": 10.0 * window, "node": name, "metric": metric, "value": value}
            for name, window, (metric, value) in rows
        ]
    )


def write(loaded: LoadedRun, artifacts: Path) -> None:
    """Write a run as files, with the histograms and series that figures read."""
    folder = artifacts / loaded.run.campaign / loaded.run.run_id / "attempt-1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(loaded.run.model_dump_json())
    (folder / "summary.json").write_text(loaded.summary.model_dump_json())
    names = [k.removesuffix("_slo_s") for k in loaded.summary.extra if k.endswith("_slo_s")]
    if not names:
        return
    slo_ns = np.array([int(1e9 * loaded.summary.extra[f"{name}_slo_s"]) for name in names])
    low = np.linspace(slo_ns // 20, 2 * slo_ns, 100).astype(np.int64)
    count = np.round(REQUESTS * np.diff(-np.append(0.9 ** np.arange(100), 0))).astype(int)
    latency = {
        "tenant": np.repeat(names, 100),
        "low_ns": low.T.ravel(),
        "high_ns": (low + slo_ns // 60).T.ravel(),
        "count": np.tile(count, len(names)),
    }
    pq.write_table(pa.table(latency), folder / "latency.parquet")
    pq.write_table(_series(tuple(names)), folder / "samples.parquet")
    if loaded.run.parameters["scenario"] == "buckets":
        rates = np.linspace(0.05, 1, 50)
        curve = {"rates": rates.tolist(), "bursts": (0.5 / rates).tolist()}
        curve |= {"fast": [0.9, 0.01], "slow": [0.05, 10.0]}
        (folder / "curve.json").write_text(json.dumps(curve))
        stages: list[dict[str, Any]] = [
            {"stage": "storage", "pairs": [[20.0, 0.01], [0.5, 1.0], [0.05, 10.0]]}
        ]
        plan = {"workloads": [{"name": "B", "stages": stages}]}
        (folder / "plan.json").write_text(json.dumps(plan))
