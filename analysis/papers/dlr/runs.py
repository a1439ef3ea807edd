"""DLR's runs: names, the paper's setting, the columns that identify a block, and numbers that are
reduced from a run's samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.evidence import Rows
from analysis.core.load import LoadedRun, table
from schemas.run import Run

SAMPLES = "samples.parquet"
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
    """Return rows in the paper's setting with the `wanted` parameters; ``...`` selects any value.

    Other parameters have `STANDARD`'s value. Of a campaign's runs the longest count unless
    `duration_s` is given: cells that one figure shortens must not get into another figure.
    """
    chosen = np.ones(len(table), dtype=bool)
    for name, value in {**wanted, **STANDARD, **wanted}.items():  # first those that few rows have
        if value is not ... and chosen.any():
            chosen &= (table[name] == value).to_numpy(bool, na_value=False)
    if "duration_s" not in wanted and chosen.any():
        longest = table.groupby("campaign")["duration_s"].transform("max")
        chosen &= (table["duration_s"].isna() | (table["duration_s"] == longest)).to_numpy(bool)
    return table[chosen]  # once: every text column is copied


def sweep(table: pd.DataFrame, column: str, op: str, *scenarios: object) -> pd.DataFrame:
    """Return the runs of an operation in these scenarios that have the duration with the most
    values of `column`: one figure's cells."""
    rows = table[(table["op"] == op) & table["scenario"].isin(scenarios)]
    values = rows.groupby("duration_s")[column].nunique()
    return rows[rows["duration_s"] == values.idxmax()] if len(values) else rows


def metric_of(op: str, what: str) -> str:
    """Return the paper's metric (section V-B): MB/s for write and seq, IOPS for rand; latency."""
    if what == "latency":
        return "latency_s"
    return "iops" if op == "rand" else "throughput_mb_s"


def active(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows without those of inert runs, which changed nothing and support nothing."""
    return rows[~rows["inert"].astype(bool)]


def at_work(**wanted: object) -> Rows:
    """Select the runs of `select` that are `active`."""
    return lambda table: active(select(table, **wanted))


INTERVALS = 6  # the paper's 180 s in intervals of 30 s


def sixths(loaded: LoadedRun) -> list[float] | None:
    """Return mean throughput in each sixth of the benchmark (figures 7 and 9); None if a sixth has
    no sample."""
    return loaded.reduced("sixths of the benchmark", _sixths)


def _sixths(loaded: LoadedRun) -> list[float] | None:
    """Return mean throughput in each part of the benchmark's duration. Later requests are left out:
    the benchmark had ended, and fewer and fewer requests were in flight."""
    if not loaded.file(SAMPLES).exists():
        return None
    t_s, values = loaded.series("throughput_mb_s", "client")
    spans = np.diff(t_s, prepend=0.0)  # a sample's time is its end
    share = (t_s - spans / 2) / _duration(loaded)
    used = (spans > 0) & (share < 1) & ~np.isnan(values)
    part, spans, values = (share[used] * INTERVALS).astype(int), spans[used], values[used]
    seconds = np.bincount(part, weights=spans, minlength=INTERVALS)
    if not seconds.all():
        return None
    means = np.bincount(part, weights=values * spans, minlength=INTERVALS) / seconds
    return [float(mean) for mean in means]


def _duration(loaded: LoadedRun) -> float:
    """Return the benchmark's duration in seconds of the run."""
    return float(loaded.run.parameters["duration_s"] * loaded.run.time_scale)


COURSES = (
    *("hot_affinity", "calm_affinity", "low_primaries", "full_primaries"),
    *("fell", "stepped", "ended", "rose"),
)
"""Numbers of `courses`: mean affinity of disturbed and of other OSDs at the benchmark's end, mean
number of primaries of OSDs with an affinity below 1 and of those at 1; spells of disturbance in
which an OSD's affinity fell, and fell at least twice; spells that ended with an affinity below 1
and two control intervals of the benchmark left, and those after which the affinity rose."""


def courses(loaded: LoadedRun) -> dict[str, float]:
    """Return `COURSES` of a run (figures 6c and 8c), those that its samples have."""
    return loaded.reduced("affinity of disturbed OSDs", _courses)


def _courses(loaded: LoadedRun) -> dict[str, float]:
    if not loaded.file(SAMPLES).exists():
        return {}
    samples = loaded.samples()
    samples = samples[samples["t_s"] <= _duration(loaded)]
    affinity, primaries = (
        _wide(samples, name, "osd.") for name in ("primary_affinity", "primaries")
    )
    hot = _wide(samples, "hot", "osd").reindex(affinity.index, method="ffill")
    if affinity.empty or list(hot.columns) != list(affinity.columns):
        return {}
    found: dict[str, float] = {}
    last = affinity.iloc[-1]
    disturbed = hot.iloc[-1] > 0
    found |= {"hot_affinity": last[disturbed].mean(), "calm_affinity": last[~disturbed].mean()}
    if len(primaries):
        counts = primaries.iloc[-1].reindex(last.index)
        found |= {
            "low_primaries": counts[last < 1].mean(),
            "full_primaries": counts[last == 1].mean(),
        }
    found |= dict.fromkeys(("fell", "stepped", "ended", "rose"), 0.0)
    room = 2 * loaded.run.parameters.get("interval_s", 20.0) * loaded.run.time_scale
    for osd in affinity.columns:
        spells = (hot[osd].diff() != 0).cumsum()
        parts = [part for _, part in affinity[osd].groupby(spells)]
        is_hot = hot[osd].groupby(spells).first()
        for part, after, disturbs in zip(parts, [*parts[1:], None], is_hot, strict=True):
            if not disturbs > 0:
                continue
            falls = int((part.diff() < 0).sum())
            found["fell"] += falls > 0
            found["stepped"] += falls > 1
            if after is None or after.index[-1] - after.index[0] < room or part.iloc[-1] >= 1:
                continue
            found["ended"] += 1
            found["rose"] += after.max() > part.iloc[-1]
    return {name: float(value) for name, value in found.items() if not np.isnan(value)}


def _wide(samples: pd.DataFrame, metric: str, prefix: str) -> pd.DataFrame:
    """Return a metric by time and number of OSD. OSD N is that of node N, named ``osdN``."""
    mine = samples[(samples["metric"] == metric) & samples["node"].str.startswith(prefix)]
    numbers = mine["node"].str.removeprefix(prefix).astype(int)
    return mine.assign(osd=numbers).pivot_table(
        index="t_s", columns="osd", values="value", aggfunc="last"
    )
