"""Paired comparisons of DLR cells: which runs stand against which."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.claims import Evidence, Measured, NotRun
from analysis.stats import Estimate, ratio

OPS = ("write", "seq", "rand")
OP_NAMES = {"write": "Write", "seq": "Sequential read", "rand": "Random read"}
CONTROLLERS = ("default", "reweight", "dlr", "dlr-auto", "dlr-pg", "upmap", "oracle")
STANDARD: Mapping[str, object] = {
    "object_size": 4 * 2**20,
    "concurrency": 16,
    "signal": "node",
    "variant": "{}",
}
"""The paper's setting (section V-C) unless a figure varies it."""


def select(table: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """Rows in the paper's setting with the `wanted` parameters.

    What is not named takes `STANDARD`'s value, and of a campaign's runs the longest count unless
    `duration_s` is named: cells that one figure shortens do not get into another.
    """
    chosen = np.ones(len(table), dtype=bool)
    if "duration_s" not in wanted and len(table):
        longest = table.groupby("campaign")["duration_s"].transform("max")
        chosen &= (table["duration_s"].isna() | (table["duration_s"] == longest)).to_numpy(bool)
    for name, value in {**STANDARD, **wanted}.items():
        chosen &= (table[name] == value).to_numpy(bool, na_value=False)
    return table[chosen]  # once: every column of texts is copied


def sweep(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows of the duration at which `column` takes the most values: one figure's cells."""
    if table.empty:
        return table
    values = table.groupby("duration_s")[column].nunique()
    return table[table["duration_s"] == values.idxmax()] if len(values) else table


def metric_of(op: str, what: str) -> str:
    """The paper's metric (section V-B): MB/s for write and seq, IOPS for rand; or latency."""
    if what == "latency":
        return "latency_s"
    return "iops" if op == "rand" else "throughput_mb_s"


_PAIR = ["ground", "campaign", "block"]


def paired(treated: pd.DataFrame, baseline: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Columns ``treated`` and ``baseline``: the metric of both cells of every block that has
    both. A block that holds a cell more than once (another grid of the same campaign) counts
    once, by its mean."""
    top = treated.groupby(_PAIR)[metric].mean().rename("treated")
    bottom = baseline.groupby(_PAIR)[metric].mean().rename("baseline")
    return pd.concat([top, bottom], axis=1, join="inner").dropna()


def compare(
    treated: pd.DataFrame,
    baseline: pd.DataFrame,
    metric: str,
    *,
    comparisons: int = 1,
) -> Estimate | None:
    """Ratio treated/baseline over blocks, None when no block has both."""
    pairs = paired(treated, baseline, metric)
    pairs = pairs[(pairs > 0).all(axis=1)]
    if pairs.empty:
        return None
    return ratio(pairs["treated"].tolist(), pairs["baseline"].tolist(), comparisons=comparisons)


def effect_of(
    evidence: Evidence,
    *,
    op: str,
    what: str,
    treated: Mapping[str, object],
    baseline: Mapping[str, object],
    comparisons: int = 1,
) -> Measured | NotRun:
    """Ratio of `treated` cells to `baseline` cells of one operation; inert cells are left out."""
    metric = metric_of(op, what)
    top = select(evidence.table, op=op, **treated)
    bottom = select(evidence.table, op=op, **baseline)
    inert = int(top["inert"].sum() + bottom["inert"].sum()) if len(top) + len(bottom) else 0
    estimate = compare(
        top[~top["inert"].astype(bool)],
        bottom[~bottom["inert"].astype(bool)],
        metric,
        comparisons=comparisons,
    )
    if estimate is None:
        if inert:
            return NotRun(f"all {inert} cells of the baseline were inert: it changed nothing")
        return NotRun(f"no block has both cells for {op}")
    grounds = sorted(set(top["ground"]))
    note = f"{inert} inert cells left out" if inert else None
    return Measured(estimate, "+".join(grounds), float(top["time_scale"].iloc[0]), note)
