"""COSPerf's runs as a table, and the throughput of a workload over time.

All policies of a block have the same pool and loads, drawn from the block's seed. n counts runs.
Measures, as in figures 14 and 15: requests/s of small objects (A, B), bytes/s of large ones (C, D).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core.load import LoadedRun, origin
from analysis.core.stats import Estimate, ratio
from schemas.cells.mos import COSPERF, Modelled, RulesOfThumb

Array = npt.NDArray[np.float64]

SERIES_FILE = "microstores.json"
TENANTS = ("A", "B", "C", "D")
STATIC, MOS, MOS_PP = "static", "mos", "mos-pp"
POLICIES = (STATIC, MOS, MOS_PP)
LABELS = {STATIC: "Static", MOS: "MOS", MOS_PP: "MOS++"}

STANDARD = COSPERF.defaults(*(name for name in COSPERF.fields if name != "policy"))
"""Section 8.2's simulation, with Hotbed's reading of details that the paper omits."""

RESOURCES = {
    "proxy_cores": "cores of proxies",
    "storage_cores": "cores of storage servers",
    "network": "network",
}
"""Resources of the pool that microstores hold."""

WINDOW_MINUTES = 15.0
STAGES = {1: (0.0, 210.0), 2: (210.0, 420.0), 3: (420.0, 630.0), 4: (630.0, 840.0)}
CROWDED = (420.0, 500.0)
"""Stage 3 until C and D decrease: "up until around 500 min"."""

MODELLED = tuple(set(Modelled.model_fields) - set(RulesOfThumb.model_fields))
"""Parameters that only MOS++ has."""

COLUMNS = ("index", "run_id", "campaign", "block", "seed", "ground", "policy")


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: `COLUMNS`, the cell's parameters, all summary numbers, ``folder``."""
    rows = []
    for index, loaded in enumerate(runs):
        parameters = loaded.run.parameters
        row: dict[str, Any] = {
            **origin(index, loaded.run),
            "folder": loaded.folder,
        }
        rows.append(row | COSPERF.row(parameters) | loaded.summary.extra)
    if not rows:
        return pd.DataFrame(columns=[*COLUMNS, "folder", *STANDARD])
    found = pd.DataFrame(rows).sort_values("run_id", kind="stable")
    found = found.drop_duplicates(["policy", *STANDARD, "seed"], keep="last")
    return found.sort_values("index").reset_index(drop=True)


def cells(rows: pd.DataFrame, policy: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of a policy as in section 8.2, except for `setting`. Parameters that only
    MOS++ has are ignored for other policies."""
    wanted = STANDARD | setting
    if policy != MOS_PP:
        wanted = {k: v for k, v in wanted.items() if k not in MODELLED}
    holds = rows["policy"] == policy
    for name, value in wanted.items():
        holds &= rows[name] == value
    return rows[holds]


def paired(
    rows: pd.DataFrame, treated: str, baseline: str, **setting: Any
) -> list[tuple[Path, Path]]:
    """Return folders of two policies' runs in the same blocks."""
    top, bottom = (
        dict(zip(its["seed"], its["folder"], strict=True))
        for its in (cells(rows, treated, **setting), cells(rows, baseline, **setting))
    )
    return [(top[seed], bottom[seed]) for seed in sorted(top.keys() & bottom.keys())]


@lru_cache(maxsize=1024)
def series(folder: Path) -> dict[str, Any]:
    """Return a run's report, which extends its summary. A finished run's folder never changes."""
    found: dict[str, Any] = json.loads((folder / SERIES_FILE).read_text())
    return found


def measure(tenant: str) -> str:
    """Return the measure of a tenant, by its name in the series."""
    return "requests_s" if tenant in ("A", "B") else "bytes_s"


@dataclass(frozen=True)
class Windows:
    """Means over windows of `WINDOW_MINUTES`: their middles, in the paper's minutes, and values."""

    minutes: Array
    values: Array


def windows(folder: Path, tenant: str, name: str | None = None) -> Windows:
    """Return a tenant's throughput over time; see `measure`."""
    data = series(folder)
    values = np.array(data["tenants"][tenant][name or measure(tenant)])
    return _windows(data, values)


def held_share(folder: Path, stores: Sequence[str], resource: str) -> Windows:
    """Return the share of a pool resource that the given microstores hold, over time."""
    data = series(folder)
    held = np.sum([data["held"][store][resource] for store in stores], axis=0)
    return _windows(data, held / data["pool"][resource])


def _windows(data: dict[str, Any], values: Array) -> Windows:
    stretch = STAGES[4][1] / data["minutes"]
    seconds = np.array(data["seconds"])
    middles = (np.array(data["t_s"]) - seconds / 2) / 60 * stretch
    which = (middles // WINDOW_MINUTES).astype(int)
    order = np.unique(which)
    means = [float(np.average(values[which == at], weights=seconds[which == at])) for at in order]
    return Windows((order + 0.5) * WINDOW_MINUTES, np.array(means))


def mean_of(folder: Path, tenant: str, span: tuple[float, float] | None = None) -> float:
    """Return a tenant's mean throughput, between two minutes or all the time."""
    found = windows(folder, tenant)
    inside = found.minutes > -1 if span is None else _inside(found, span)
    return float(found.values[inside].mean())


def largest_gain(
    pairs: Sequence[tuple[Path, Path]], tenant: str, span: tuple[float, float]
) -> tuple[float, Estimate] | None:
    """Return the window between two minutes with the largest lead of the first runs: its middle and
    the geometric mean of the ratio. The interval is widened for the choice."""
    if not pairs:
        return None
    found = [(windows(a, tenant), windows(b, tenant)) for a, b in pairs]
    inside = np.flatnonzero(_inside(found[0][0], span))
    several = [
        (
            float(found[0][0].minutes[at]),
            ratio(
                [float(top.values[at]) for top, _ in found],
                [float(bottom.values[at]) for _, bottom in found],
                comparisons=len(inside),
            ),
        )
        for at in inside
    ]
    return max(several, key=lambda one: one[1].value)


def gain(pairs: Sequence[tuple[Path, Path]], tenants: Sequence[str] = TENANTS) -> Estimate | None:
    """Return the geometric mean of mean throughput ratios, over blocks and a block's tenants."""
    if not pairs:
        return None
    each = [
        float(np.exp(np.mean([np.log(mean_of(a, t) / mean_of(b, t)) for t in tenants])))
        for a, b in pairs
    ]
    return ratio(each, [1.0] * len(each))


def _inside(found: Windows, span: tuple[float, float]) -> npt.NDArray[np.bool_]:
    half = WINDOW_MINUTES / 2
    return (found.minutes - half >= span[0] - 1e-9) & (found.minutes - half < span[1] - 1e-9)
