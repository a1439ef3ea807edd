"""Estimates from a column of a table of runs (such as `analysis.core.load.table`)."""

from __future__ import annotations

import pandas as pd

from analysis.core.stats import Estimate, mean, ratio


def average(rows: pd.DataFrame, column: str, factor: float = 1.0) -> Estimate | None:
    """Return the mean over runs with a t interval, times `factor`; None if no run has a value."""
    values = rows[column].dropna().tolist() if column in rows.columns else []
    return mean([factor * value for value in values]) if values else None


def difference(treated: pd.DataFrame, baseline: pd.DataFrame, column: str) -> Estimate | None:
    """Return the mean of treated - baseline over the blocks (column ``seed``) that have both; None
    without such a block."""
    if column not in treated.columns or column not in baseline.columns:
        return None
    top, bottom = (its.set_index("seed")[column] for its in (treated, baseline))
    values = (top - bottom).dropna().tolist()
    return mean(values) if values else None


def paired(
    treated: pd.DataFrame, baseline: pd.DataFrame, column: str, *, comparisons: int = 1
) -> Estimate | None:
    """Return the geometric mean of treated/baseline over the blocks (column ``seed``) that have
    both with positive values; None without such a block."""
    if column not in treated.columns or column not in baseline.columns:
        return None
    top, bottom = (dict(zip(its["seed"], its[column], strict=True)) for its in (treated, baseline))
    seeds = [seed for seed in sorted(top.keys() & bottom.keys()) if top[seed] > 0 < bottom[seed]]
    if not seeds:
        return None
    return ratio([top[s] for s in seeds], [bottom[s] for s in seeds], comparisons=comparisons)
