"""Panels of PriorityMeister's figures: bars by policy, and latency against percentile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.stats import Estimate
from analysis.papers.prioritymeister.runs import BEYOND, WORKLOADS, bootstrap, latency, met

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

MS = 1e3
MISSED = "#CC3311"
BAR_WIDTH = 0.8
PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles that runs report, if at least ten requests are slower."""
TICKS = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


def workload_colour(name: str) -> str:
    """Return a workload's colour, the same in every figure."""
    return WORKLOADS.get(name, "#444444")


def slo_line(axes: Axes, rows: pd.DataFrame, name: str, *, style: str = "--") -> None:
    """Draw the SLO of a workload, the median over blocks, dashed in its colour."""
    found = rows[rows["workload"] == name]["slo_s"].dropna().astype(float)
    if len(found):
        axes.axhline(
            MS * float(found.median()), color=workload_colour(name), linestyle=style, linewidth=1.1
        )


def bars(
    axes: Axes,
    rows: pd.DataFrame,
    groups: Sequence[tuple[str, pd.DataFrame]],
    percent: float,
    workloads: Sequence[str],
) -> None:
    """Draw latency at a percentile: groups of bars, one bar per workload, medians over blocks with
    95 % bootstrap intervals. Red numbers above a bar count the runs that missed the SLO. A bar
    hatched up to the top stands for requests that were never answered. No bar is drawn if a run has
    too few requests for the percentile.

    Args:
        axes: axes to draw on; the vertical axis becomes logarithmic.
        rows: all rows of the panel, for the SLOs.
        groups: name and rows of each group.
        percent: the percentile.
        workloads: workloads in order.
    """
    width = BAR_WIDTH / max(1, len(workloads))
    endless: list[tuple[float, str, str]] = []
    for w, name in enumerate(workloads):
        label: str | None = name
        for g, (_, found) in enumerate(groups):
            mine = found[found["workload"] == name]
            values = mine[f"p{percent:g}_s"].astype(float)
            estimate = None if values.isna().any() else bootstrap(values.tolist())
            if estimate is None:
                continue
            x = g + (w - (len(workloads) - 1) / 2) * width
            shown = estimate.map(lambda s: MS * s)
            colour = workload_colour(name)
            if np.isinf(shown.value):
                endless.append((x, colour, f"{int((~met(mine, percent)).sum())}/{len(mine)}"))
                continue
            axes.bar(x, shown.value, 0.92 * width, color=colour, label=label)
            label = None
            error = np.array(shown.error).reshape(2, 1)
            axes.errorbar(x, shown.value, yerr=error, color="black", linewidth=0.9, capsize=2)
            missed, count = int((~met(mine, percent)).sum()), len(mine)
            if missed:
                axes.annotate(
                    f"{missed}/{count}",
                    (x, max(shown.value, shown.high)),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=6,
                    color=MISSED,
                    rotation=90,
                )
        slo_line(axes, rows, name)
    style.magnitudes(axes)
    axes.set_xticks(range(len(groups)), [name for name, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    _room_above(axes)
    _without_end(axes, endless, 0.92 * width)
    axes.set_ylabel("Latency (ms)")


def _without_end(axes: Axes, bars: Sequence[tuple[float, str, str]], width: float) -> None:
    """Draw bars (place, colour, missed runs) of infinite latencies, up to the top of the axis."""
    for x, colour, missed in bars:
        edges = (x - width / 2, x + width / 2)
        axes.axvspan(*edges, facecolor="none", edgecolor=colour, hatch="///", linewidth=0.8)
        axes.text(
            x,
            0.5,
            f"never answered, {missed}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="center",
            fontsize=7,
            color=MISSED,
            rotation=90,
        )


def _room_above(axes: Axes) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.12)


def tail_curve(evidence: Evidence, row: pd.Series) -> tuple[Floats, Floats] | None:
    """Return the share of slower requests [k] and latency in ms [k] of a run's workload, as far as
    ten requests are slower; None if no histogram is kept."""
    path: Path = evidence.runs[int(row["index"])].folder / "latency.parquet"
    if not path.exists():
        return None
    kept = pd.read_parquet(path)
    mine = kept[kept["tenant"] == row["workload"]].sort_values("low_ns")
    count = mine["count"].to_numpy(float)
    total = float(row["requests"])
    slower = 1 - np.cumsum(count) / total
    shown = slower * total >= BEYOND - 0.5
    return slower[shown], mine["high_ns"].to_numpy(float)[shown] * 1e-6


GRID = np.logspace(0, -5, 200)
"""Shares of slower requests at which curves of several runs are combined."""


def tails(
    axes: Axes,
    evidence: Evidence,
    rows: pd.DataFrame,
    *,
    colour: str,
    label: str,
    style: str = "-",
) -> None:
    """Draw latency against percentile: the median of the runs of one workload, and their range."""
    curves = []
    for _, row in rows.iterrows():
        found = tail_curve(evidence, row)
        if found is None or len(found[0]) < 2:
            continue
        slower, ms = found
        at = np.interp(-np.log10(GRID), -np.log10(slower), ms)
        at[(slower.min() > GRID) | (slower.max() < GRID)] = np.nan
        curves.append(at)
    if not curves:
        return
    stacked = np.array(curves)
    known = ~np.isnan(stacked).any(axis=0)
    x, shown = -np.log10(GRID[known]), stacked[:, known]
    axes.plot(x, np.median(shown, axis=0), style, color=colour, label=label, linewidth=1.4)
    if len(curves) > 1:
        low, high = shown.min(axis=0), shown.max(axis=0)
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def percentile_axis(axes: Axes, *, most: float = 99.97) -> None:
    """Set up the axes of `tails`: horizontal percentiles, higher ones to the right, and a
    logarithmic vertical axis."""
    ticks = [tick for tick in TICKS if tick <= most + 0.02]
    axes.set_xticks([-np.log10(1 - tick / 100) for tick in ticks], [f"{t:g}" for t in ticks])
    axes.set_xlim(-np.log10(0.5), -np.log10(1 - most / 100))
    style.magnitudes(axes)
    axes.set_xlabel("Percentile")
    axes.set_ylabel("Latency (ms)")


legend = partial(style.legend, columns=6)
"""Draws one legend above all panels, each text once."""


def named_slo(axes: Axes) -> None:
    """Add a legend entry for the dashed lines."""
    axes.plot([], [], "--", color="black", linewidth=1.1, label="SLO")


def share_limits(axes: Sequence[Axes]) -> None:
    """Set the same vertical axis for all panels."""
    limits = [panel.get_ylim() for panel in axes]
    for panel in axes:
        panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def k_of(rows: pd.DataFrame) -> str:
    """Format the values of k in the rows: ``k = 2``."""
    return "k = " + ", ".join(f"{k:g}" for k in sorted(rows["k"].unique()))


def blocks(rows: pd.DataFrame) -> str:
    """Format the number of blocks in the rows: ``n = 4``."""
    found = rows.groupby("variant")["seed"].nunique()
    if found.empty:
        return "n = 0"
    low, high = int(found.min()), int(found.max())
    return f"n = {high}" if low == high else f"n = {low} to {high}"


def share_line(
    axes: Axes,
    points: Sequence[tuple[float, Estimate]],
    *,
    colour: str,
    label: str,
    style: str = "o-",
) -> None:
    """Draw shares in percent with 95 % intervals over blocks, cut at 0 and 100 %."""
    x = [place for place, _ in points]
    found = [one.map(lambda v: min(max(100 * v, 0.0), 100.0)) for _, one in points]
    error = np.array([one.error for one in found]).T.reshape(2, -1)
    axes.errorbar(
        x,
        [one.value for one in found],
        yerr=error,
        fmt=style,
        color=colour,
        label=label,
        markersize=4.5,
        linewidth=1.3,
        elinewidth=0.9,
        capsize=2,
    )


def known_percent(rows: pd.DataFrame, most: float = 99.9) -> float:
    """Return the highest percentile up to `most` in all rows: lower with few requests."""
    known = [p for p in PERCENTS if p <= most and rows[f"p{p:g}_s"].notna().all()]
    return max(known, default=most)


def shown_workloads(rows: pd.DataFrame) -> list[str]:
    """Return the workloads with a latency SLO, by name."""
    return sorted(set(latency(rows)["workload"]))
