"""DLR's runs: names, the paper's setting, and the columns that identify a block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

BLOCKS = ("ground", "campaign", "block")
"""Columns that identify a block of runs of this paper."""

OPS = ("write", "seq", "rand")
OP_NAMES = {"write": "Write", "seq": "Sequential read", "rand": "Random read"}
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


def active(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows without those of inert runs, which changed nothing and support nothing."""
    return rows[~rows["inert"].astype(bool)]
