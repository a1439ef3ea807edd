"""DLR's runs: names, the paper's setting, and the columns that identify a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.load import LoadedRun, table
from schemas.run import Run

BLOCKS = ("ground", "campaign", "block")
"""Columns that identify a block of runs of this paper."""

OPS = ("write", "seq", "rand")
OP_NAMES = {"write": "Write", "seq": "Sequential read", "rand": "Random read"}
STANDARD: Mapping[str, object] = {
    "object_size": 4 * 2**20,
    "concurrency": 16,
    "signal": "node",
    "variant": "{}",
    "objectstore": "bluestore",
    "disk": "",
}
"""The paper's setting (section V-C) unless a figure varies it, on today's store and the calibrated
disk."""

BOUNDARY = "SSD"
"""Beginning of a disk's text if the disk is a boundary, shown apart from the shapes."""
BOUNDARY_S = 1e-3
"""Positioning below this is that of a boundary."""

SHAPES = "dlr-shapes"
"""Campaign on disks that were not used for calibration; a spec's name follows."""


def tabulate(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return `analysis.core.load.table` with two more columns: ``objectstore``, and ``disk``, the
    shape of the disks in runs of `SHAPES`, else empty."""
    found = table(runs)
    return found.assign(
        objectstore=[
            one.run.provenance.calibration.get("objectstore", "bluestore") for one in runs
        ],
        disk=[_disk(one.run) for one in runs],
    )


def _disk(run: Run) -> str:
    if not run.campaign.startswith(SHAPES):
        return ""
    groups: Mapping[str, Any] = run.provenance.calibration.get("groups", {})
    shapes = [group["disk"] for group in groups.values() if group.get("disk")]
    if not shapes:
        return "unknown"
    disk = shapes[0]
    text = f"{1000 * disk['positioning']:.3g} ms, {disk['bandwidth'] / 1e6:.3g} MB/s"
    return f"{BOUNDARY}, {text}" if disk["positioning"] < BOUNDARY_S else text


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
