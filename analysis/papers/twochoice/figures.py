"""Figures 3 and 4: response against the share of stragglers, and writes given to servers of each
load. Means over runs with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.papers.twochoice import placement
from analysis.papers.twochoice.panels import counts, draw, percent, points
from analysis.papers.twochoice.runs import BEYOND, BOTH, COLD, FIXED, PAPERS, cells, ratios

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESPONSE = "Response time of the slowest process (s)"
SHARE = "Straggler servers (%)"
STATED_LOAD, STATED_SERVERS = 7, 60
BAR = "#D9D9D9"
READABLE = 0.03
NO_OTHER: Mapping[str, Any] = {}

response = partial(average, column="response_s")


def responses(
    evidence: Evidence, folder: Path, name: str, setting: Mapping[str, Any] = NO_OTHER
) -> Path | Missing:
    """Draw figure 3: (a) the paper's schedulers, (b) schedulers beyond the paper, on a logarithmic
    axis; as in the paper's simulation, or with other parameters."""
    panels = (("(a) The paper's", PAPERS), ("(b) Beyond", (FIXED, BOTH, *COLD, *BEYOND)))
    rows = {
        series: cells(evidence.table, series, **setting)
        for series in dict.fromkeys((*PAPERS, *COLD, *BEYOND))
    }
    if any(rows[series].empty for series in PAPERS):
        return Missing("the paper's six schedulers at several straggler ratios")
    # Figure 4's ratios were not run cold.
    order = ratios(*(rows[series] for series in (*PAPERS, *COLD) if len(rows[series])))
    with style.figure(1, 2, width=10.4, height=4.6) as (drawn, axes):
        for panel, (title, shown) in zip(axes, panels, strict=True):
            there = {s: rows[s][rows[s]["straggler_ratio"].isin(order)] for s in shown}
            lines = {s: points(its, "straggler_ratio", response) for s, its in there.items()}
            draw(panel, lines, order, _ticks(order), to_scale=True)
            panel.set_xlabel(SHARE)
            panel.set_ylabel(RESPONSE)
            panel.set_title(f"{title} ({counts(list(lines.values()))})", loc="left")
        axes[0].set_ylim(0, None)
        style.magnitudes(axes[1])
        style.legend(drawn, axes, columns=5)
        return style.save(drawn, folder, name)


def _ticks(order: Sequence[float]) -> list[str]:
    """Return ratios as tick labels; a ratio too close to the last readable one gets no label."""
    last = -1.0
    found = []
    for share, text in zip(order, percent(order), strict=True):
        found.append(text if share - last >= READABLE else "")
        last = share if found[-1] else last
    return found


def placements(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4: the most writes given to a server of a load, and (bars) such servers."""
    share = placement.ratio_shown(evidence.table, PAPERS)
    if share is None:
        return Missing("the paper's six schedulers with few stragglers")
    with style.figure(1, 2, width=10.4, height=4.8) as (drawn, axes):
        titles, rights = ("(a) The paper's", "(b) Beyond"), []
        for panel, title, shown in zip(axes, titles, (PAPERS, (BOTH, *BEYOND)), strict=True):
            given = {series: placement.given(evidence, series, share) for series in shown}
            given = {series: its for series, its in given.items() if len(its)}
            loads = _loads(given)
            right = _bars(panel, next(iter(given.values())), loads, note=panel is axes[0])
            lines = {
                series: {
                    float(load): one
                    for load, one in placement.by_load(its, "most").items()
                    if load in loads
                }
                for series, its in given.items()
            }
            ticks = ["stragglers" if load == placement.STRAGGLERS else str(load) for load in loads]
            draw(panel, lines, [float(load) for load in loads], ticks)
            panel.tick_params(axis="x", labelrotation=90)
            panel.set_xlabel("Load of a server before the burst (writes)")
            panel.set_ylabel("Most writes that a server is given")
            panel.set_ylim(-1, None)
            text = f"{title}, {100 * share:g} % stragglers ({counts(list(lines.values()))})"
            panel.set_title(text, loc="left")
            rights.append(right)
        style.legend(drawn, [*axes, *rights], columns=4)
        return style.save(drawn, folder, name)


def _loads(given: dict[str, pd.DataFrame]) -> list[int]:
    """Return loads that a server has in about every burst, in order, stragglers last."""
    rows = next(iter(given.values()))
    seeds = rows["seed"].nunique()
    held = placement.by_load(rows, "servers").items()
    loads = [load for load, one in held if one.value >= 1 and one.n == seeds]
    calm = [load for load in loads if load != placement.STRAGGLERS]
    return [*calm, *([placement.STRAGGLERS] if len(calm) < len(loads) else [])]


def _bars(panel: Axes, rows: pd.DataFrame, loads: list[int], *, note: bool) -> Axes:
    """Draw the number of servers of each load on a second axis on the right; return that axis."""
    right = panel.twinx()
    servers = {load: one.value for load, one in placement.by_load(rows, "servers").items()}
    right.bar(
        range(len(loads)),
        [servers.get(load, 0.0) for load in loads],
        color=BAR,
        width=0.8,
        zorder=0,
        label="servers of that load (right)",
    )
    right.set_ylabel("Servers of that load (bars)")
    right.grid(visible=False)
    if note and STATED_LOAD in loads:
        right.bar(
            [loads.index(STATED_LOAD)],
            [STATED_SERVERS],
            width=0.8,
            facecolor="none",
            edgecolor="black",
            linestyle="--",
            label="paper: about 60 servers of load 7 (right)",
        )
    if note and placement.STRAGGLERS in loads:
        style.paper_marker(
            panel, loads.index(placement.STRAGGLERS), 0, text="paper: none on stragglers"
        )
    # Lines above bars: the left axis is drawn last, with a transparent background.
    panel.set_zorder(right.get_zorder() + 1)
    panel.patch.set_visible(False)
    return right
