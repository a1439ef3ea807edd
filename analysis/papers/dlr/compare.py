"""Paired comparisons of DLR cells."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from analysis.core.claims import Evidence, Measured, NotRun
from analysis.core.stats import Estimate, ratio

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
    """Return rows in the paper's setting with the `wanted` parameters.

    Other parameters have `STANDARD`'s value. Of a campaign's runs the longest count unless
    `duration_s` is given: cells that one figure shortens must not get into another figure.
    """
    chosen = np.ones(len(table), dtype=bool)
    if "duration_s" not in wanted and len(table):
        longest = table.groupby("campaign")["duration_s"].transform("max")
        chosen &= (table["duration_s"].isna() | (table["duration_s"] == longest)).to_numpy(bool)
    for name, value in {**STANDARD, **wanted}.items():
        chosen &= (table[name] == value).to_numpy(bool, na_value=False)
    return table[chosen]  # once: every text column is copied


def sweep(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows of the duration with the most values of `column`: one figure's cells."""
    if table.empty:
        return table
    values = table.groupby("duration_s")[column].nunique()
    return table[table["duration_s"] == values.idxmax()] if len(values) else table


def metric_of(op: str, what: str) -> str:
    """Return the paper's metric (section V-B): MB/s for write and seq, IOPS for rand; latency."""
    if what == "latency":
        return "latency_s"
    return "iops" if op == "rand" else "throughput_mb_s"


_PAIR = ["ground", "campaign", "block"]


def paired(treated: pd.DataFrame, baseline: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return columns ``treated`` and ``baseline``: the metric of both cells of every block that has
    both. If a block holds a cell more than once (another grid of the same campaign), its mean
    counts."""
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
    """Return the ratio treated/baseline over blocks, or None if no block has both."""
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
    """Return the ratio of `treated` to `baseline` cells of one operation, without inert cells."""
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
