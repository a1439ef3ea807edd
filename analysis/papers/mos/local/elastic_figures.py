"""Figures 8 to 10: two tenants at several loads under Default, Static and MOS++."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts
from analysis.papers.mos.local.panels import errors
from analysis.papers.mos.local.runs import cells, colour, label, shown, values_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = {"default": "s", "static": "^", "mos": "v", "mos-pp": "o"}
Point = tuple[str, Estimate, Estimate]
"""Workers of A and C, value on the horizontal axis, value on the vertical axis."""


def overall(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 8: throughput and bandwidth of both tenants together, one point per load."""
    return _scatter(
        evidence,
        folder,
        name,
        ("qps", 1.0, "Overall throughput (QPS)"),
        ("mb_s", 1.0, "Overall bandwidth (MB/s)"),
        fitted=True,
    )


def small_tail(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 9: throughput and p95 of workload A."""
    return _scatter(
        evidence,
        folder,
        name,
        ("A_qps", 1.0, "Throughput of A (QPS)"),
        ("A_p95_s", 1e3, "95th percentile of A's reads (ms)"),
    )


def large_tail(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 10: bandwidth and p95 of workload C."""
    return _scatter(
        evidence,
        folder,
        name,
        ("C_mb_s", 1.0, "Bandwidth of C (MB/s)"),
        ("C_p95_s", 1.0, "95th percentile of C's reads (s)"),
    )


def _scatter(
    evidence: Evidence,
    folder: Path,
    name: str,
    across: tuple[str, float, str],
    up: tuple[str, float, str],
    *,
    fitted: bool = False,
) -> Path | Missing:
    rows = cells(evidence.table, "load")
    order = shown(rows)
    found = {setup: _points(rows[rows["setup"] == setup], across, up) for setup in order}
    found = {setup: points for setup, points in found.items() if points}
    if len(found) < 2:
        return Missing("workloads A and C at once, at several loads, with two setups")
    with style.figure(width=7.2, height=4.8) as (drawn, axes):
        panel = axes[0]
        every: list[Estimate] = []
        for setup, points in found.items():
            _draw(panel, setup, points)
            every += [one for _, one, _ in points]
            if fitted and len(points) > 1:
                _line(panel, setup, points)
        panel.set_xlim(0, None)
        panel.set_ylim(0, None)
        panel.set_xlabel(across[2])
        panel.set_ylabel(up[2])
        panel.set_title(f"Numbers: workers of A/C ({counts(every)})", loc="left")
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def _points(
    rows: pd.DataFrame, across: tuple[str, float, str], up: tuple[str, float, str]
) -> list[Point]:
    found = []
    for small in values_of(rows, "small_workers"):
        its = rows[rows["small_workers"] == small]
        for large in values_of(its, "large_workers"):
            here = its[its["large_workers"] == large]
            x, y = (average(here, column, factor) for column, factor, _ in (across, up))
            if x is not None and y is not None:
                found.append((f"{small:g}/{large:g}", x, y))
    return found


def _draw(panel: Axes, setup: str, points: Sequence[Point]) -> None:
    xs, ys = [x for _, x, _ in points], [y for _, _, y in points]
    panel.errorbar(
        [x.value for x in xs],
        [y.value for y in ys],
        xerr=errors(xs),
        yerr=errors(ys),
        fmt=MARKS.get(setup, "D"),
        color=colour(setup),
        markersize=6,
        capsize=2,
        elinewidth=0.8,
        label=label(setup),
    )
    for text, x, y in points:
        panel.annotate(
            text,
            (x.value, y.value),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize="x-small",
            color=colour(setup),
        )


def _line(panel: Axes, setup: str, points: Sequence[Point]) -> None:
    """Draw the linear regression, dotted as in the paper."""
    xs = np.array([x.value for _, x, _ in points])
    ys = np.array([y.value for _, _, y in points])
    if np.ptp(xs) <= 0:
        return
    slope, rest = np.polyfit(xs, ys, 1)
    ends = np.array([xs.min(), xs.max()])
    panel.plot(ends, slope * ends + rest, ":", color=colour(setup), linewidth=1.2)
