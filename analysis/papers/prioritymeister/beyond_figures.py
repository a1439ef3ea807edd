"""Figures beyond the paper: settings that each policy meets, bounds, levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.papers.prioritymeister.beyond_claims import BROKEN, proven
from analysis.papers.prioritymeister.panels import MISSED, legend, share_line
from analysis.papers.prioritymeister.runs import (
    COLOURS,
    LABELS,
    POLICIES,
    average,
    by_block,
    cells,
    latency,
    met,
)
from analysis.papers.prioritymeister.settings import settings
from analysis.papers.prioritymeister.table2 import COLUMNS, STATED, described, deviations
from analysis.papers.prioritymeister.unproven import sentence

SCENARIOS = {
    "disk": "disk (5, 6, 11)",
    "burst": "burst (1, 7)",
    "misbehave": "misbehave (8)",
    "buckets": "buckets (4)",
    "network": "network (9)",
    "levels": "levels",
}


def share_of_settings(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the share of blocks in which a policy meets all SLOs, against k."""
    found = settings(evidence.table)
    if found["k"].nunique() < 2:
        return Missing("the scenario disk with several k")
    swept = sorted(found["k"].unique())
    with style.figure(width=7.6, height=4.4) as (drawn, (axes,)):
        shown = [one for one in POLICIES if one in set(found["variant"])]
        for index, variant in enumerate(shown):
            mine = found[found["variant"] == variant]
            points = []
            for place, k in enumerate(swept):
                one = average(mine[mine["k"] == k].set_index("seed")["met"])
                if one is not None:
                    points.append((place + 0.05 * (index - (len(shown) - 1) / 2), one))
            share_line(axes, points, colour=COLOURS[variant], label=LABELS[variant])
        axes.set_xticks(range(len(swept)), [f"{k:g}" for k in swept])
        axes.set_xlabel("k: SLO over the workload's own 99.9th percentile alone")
        axes.set_ylabel("Blocks in which all SLOs are met (%)")
        axes.set_ylim(-5, 105)
        count = found.groupby(["variant", "k"])["seed"].nunique()
        words = (
            f"n = {count.min()}"
            if count.min() == count.max()
            else f"n = {count.min()} to {count.max()}"
        )
        axes.set_title(f"A, B, C and a copy on one disk, 99.9th percentile ({words})", loc="left")
        legend(drawn, [axes], columns=4)
        return style.save(drawn, folder, name)


def bounds(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the longest latency of each workload in each run over its proven bound."""
    rows = proven(evidence.table)
    if rows.empty:
        lacking = sentence(evidence.table)
        needed = "any run of pm (hold)"
        return Missing(f"{needed} whose bound is proven: {lacking}" if lacking else needed)
    order = [one for one in SCENARIOS if (rows["scenario"] == one).any()]
    random = np.random.default_rng(1)
    with style.figure(width=8.4, height=4.2) as (drawn, (axes,)):
        for place, scenario in enumerate(order):
            mine = rows[rows["scenario"] == scenario]
            ratio = mine["bound_ratio"].astype(float).to_numpy()
            x = place + random.uniform(-0.3, 0.3, len(ratio))
            broken = ratio > BROKEN
            axes.plot(x[~broken], ratio[~broken], ".", color="#0072B2", markersize=4, alpha=0.6)
            axes.plot(x[broken], ratio[broken], "X", color=MISSED, markersize=9)
            text = f"{mine['run_id'].nunique()} runs, max {ratio.max():.2g}"
            axes.annotate(
                text, (place, 1.25), ha="center", fontsize="x-small", annotation_clip=False
            )
        axes.axhline(1, color="black", linewidth=1.2, label="proven bound (with blocking)")
        axes.plot([], [], ".", color="#0072B2", label="a workload of a run")
        if (rows["bound_ratio"].astype(float) > BROKEN).any():
            axes.plot([], [], "X", color=MISSED, label="broken: a bug")
        style.magnitudes(axes)
        axes.set_ylim(None, max(2.0, 1.6 * rows["bound_ratio"].astype(float).max()))
        axes.set_xticks(range(len(order)), [SCENARIOS[one] for one in order])
        axes.set_xlim(-0.6, len(order) - 0.4)
        axes.set_ylabel("Longest latency / bound")
        legend(drawn, [axes])
        return style.save(drawn, folder, name)


def levels(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the number of network levels that twelve workloads need (section 4.7)."""
    rows = latency(cells(evidence.table, "levels", "pm"))
    swept = sorted(rows["network_levels"].unique(), key=lambda n: n or np.inf)
    if len(swept) < 2:
        return Missing("the scenario levels with several network_levels")
    ks = sorted(rows["k"].unique())
    with style.figure(1, 2, width=10.5, height=3.9) as (drawn, axes):
        for panel, column, mark in zip(axes, ("met", "planned"), "ab", strict=True):
            for k, colour in zip(ks, ("#D55E00", "#0072B2", "#009E73", "#999999"), strict=False):
                mine = rows[rows["k"] == k]
                mine = mine.assign(met=met(mine, 99.9).astype(float))
                points = []
                for place, count in enumerate(swept):
                    one = average(by_block(mine[mine["network_levels"] == count], column))
                    if one is not None:
                        points.append((float(place), one))
                share_line(panel, points, colour=colour, label=f"k = {k:g}")
            panel.set_xticks(range(len(swept)), [f"{n}" if n else "12" for n in swept])
            panel.set_xlabel("Network levels (the paper's switch: 7)")
            panel.set_ylim(-5, 105)
            panel.set_ylabel("Workloads (%)")
            words = "meet their SLO at the 99.9th" if column == "met" else "proven to meet it"
            blocks = rows["seed"].nunique()
            panel.set_title(f"({mark}) Of twelve, {words} (n = {blocks})", loc="left")
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def stand_ins(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the stand-ins over the values of Table 2."""
    found = deviations(described(evidence.table))
    if found.empty:
        return Missing("a cell that describes its traces (scenario table2)")
    marks = dict(zip(COLUMNS, ("o", "s", "D"), strict=True))
    texts = {"storage": "storage load", "network": "network load", "scv": "C_A²"}
    with style.figure(width=7.6, height=3.6) as (drawn, (axes,)):
        for index, column in enumerate(COLUMNS):
            mine = found[found["column"] == column]
            x = [list(STATED).index(w) + 0.2 * (index - 1) for w in mine["workload"]]
            axes.plot(
                x, 100 * (mine["ratio"] - 1), marks[column], label=texts[column], markersize=4
            )
        axes.axhline(0, color="black", linewidth=1, label="Table 2")
        axes.set_xticks(range(len(STATED)), list(STATED))
        axes.set_xlabel("Workload (L is a copy; E's storage load, > 100 %, and K's are left out)")
        axes.set_ylabel("Difference from Table 2 (%)")
        axes.set_title(f"Stand-ins of {found['seed'].nunique()} blocks", loc="left")
        legend(drawn, [axes])
        return style.save(drawn, folder, name)
