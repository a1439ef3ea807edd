"""Figures 4 and 8: effect of a misbehaving workload on the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.papers.prioritymeister.claim_kinds import K_NORMAL, K
from analysis.papers.prioritymeister.panels import (
    bars,
    blocks,
    k_of,
    known_percent,
    legend,
    named_slo,
    percentile_axis,
    share_limits,
    slo_line,
    tails,
    workload_colour,
)
from analysis.papers.prioritymeister.runs import LABELS, cells, latency, variants

LIMITERS = {
    "all": ("#0072B2", "several buckets"),
    "fast": ("#CC3311", "one: fast, shallow"),
    "slow": ("#228833", "one: slow, deep"),
}
BELOW = (("A", "medium"), ("C", "low"))


def buckets(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4: (a) B's r-b curve with the buckets that limit it, (b) and (c) the workloads
    below B while B sends far more than it announced."""
    rows = cells(evidence.table, "buckets", "pm", k=K, misbehaves=True, limiters=...)
    if rows.empty:
        return Missing(f"the scenario buckets with all limiters, misbehaving, k = {K:g}")
    with style.figure(1, 3, width=13.0, height=4.0) as (drawn, axes):
        _curve(axes[0], evidence, rows)
        for panel, (workload, place), mark in zip(axes[1:], BELOW, "bc", strict=True):
            mine = rows[rows["workload"] == workload]
            for limiters, (colour, text) in LIMITERS.items():
                its = mine[mine["limiters"] == limiters]
                tails(panel, evidence, its, colour=colour, label=text)
            slo = float(mine["slo_s"].astype(float).median())
            panel.axhline(1e3 * slo, color="black", linestyle="--", linewidth=1.1)
            percentile_axis(panel)
            title = f"({mark}) {workload}, {place} priority (n = {mine['seed'].nunique()})"
            panel.set_title(title, loc="left")
        named_slo(axes[1])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def _curve(panel: Any, evidence: Evidence, rows: pd.DataFrame) -> None:
    """Draw the first block's curve."""
    run = evidence.runs[int(rows.sort_values(["block", "limiters"]).iloc[0]["index"])]
    curve = json.loads((run.folder / "curve.json").read_text())
    plan = json.loads((run.folder / "plan.json").read_text())
    panel.plot(100 * np.array(curve["rates"]), 1e3 * np.array(curve["bursts"]), color="black")
    first = next(one for one in plan["workloads"] if one["name"] == "B")
    pairs = np.array(next(s["pairs"] for s in first["stages"] if s["stage"] == "storage"))
    inside = pairs[pairs[:, 0] <= 1]
    style_of = {"linestyle": "none", "marker": "x", "markersize": 8, "markeredgewidth": 2}
    panel.plot(100 * inside[:, 0], 1e3 * inside[:, 1], color=LIMITERS["all"][0], **style_of)
    for which in ("fast", "slow"):
        rate, burst = curve[which]
        panel.plot([100 * rate], [1e3 * burst], color=LIMITERS[which][0], **style_of)
    panel.set_xlabel("Rate (% of the disk)")
    panel.set_ylabel("Bucket (ms of the disk)")
    style.magnitudes(panel)
    outside = len(pairs) - len(inside)
    more = f", {outside} faster" if outside else ""
    panel.set_title(f"(a) B's r-b curve, its buckets{more}", loc="left")


def misbehaving(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 8: 99.9th percentiles of D and C while D behaves, and of C while D misbehaves;
    lower percentiles if there are too few requests."""
    rows = latency(cells(evidence.table, "misbehave", k=K_NORMAL, misbehaves=...))
    if rows.empty or not rows["misbehaves"].any():
        return Missing(f"the scenario misbehave with k = {K_NORMAL:g}, behaving and misbehaving")
    panels_of = (
        ("D", False, "D behaves"),
        ("C", False, "C, D behaves"),
        ("C", True, "C, D misbehaves"),
        ("D", True, "D misbehaves"),
    )
    with style.figure(2, 2, width=12.0, height=6.6) as (drawn, axes):
        for panel, (workload, bad, words), mark in zip(axes, panels_of, "abcd", strict=True):
            mine = rows[(rows["workload"] == workload) & (rows["misbehaves"] == bad)]
            groups = [(LABELS[v], mine[mine["variant"] == v]) for v in variants(mine)]
            percent = known_percent(mine)
            bars(panel, mine, groups, percent, [workload])
            for text in panel.get_xticklabels():
                text.set(rotation=20, ha="right")
            panel.set_title(
                f"({mark}) {words}: {percent:g}th percentile ({k_of(mine)}, {blocks(mine)})",
                loc="left",
            )
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def network(evidence: Evidence, folder: Path, name: str, k: float = 1.5) -> Path | Missing:
    """Draw figure 9: latency by percentile with a link as the bottleneck; one row per link."""
    table = latency(cells(evidence.table, "network", k=k, bottleneck=...))
    if table.empty:
        return Missing(f"the scenario network with k = {k:g}")
    links = [one for one in ("egress", "ingress") if (table["bottleneck"] == one).any()]
    words = {"egress": "server's link out", "ingress": "clients' link in"}
    with style.figure(len(links), 3, width=12.5, height=3.6 * len(links)) as (drawn, axes):
        for place, panel in enumerate(axes):
            link, variant = links[place // 3], ("pm", "byslo", "ps")[place % 3]
            mine = table[(table["bottleneck"] == link) & (table["variant"] == variant)]
            for workload in ("C", "I", "J", "K"):
                its = mine[mine["workload"] == workload]
                tails(panel, evidence, its, colour=workload_colour(workload), label=workload)
                slo_line(panel, table[table["bottleneck"] == link], workload)
            percentile_axis(panel)
            missed = _missed(mine)
            title = f"({'abcdef'[place]}) {LABELS[variant]}, {words[link]} ({blocks(mine)}){missed}"
            panel.set_title(title, loc="left", fontsize="small")
        share_limits(axes)
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def _missed(rows: pd.DataFrame) -> str:
    within = rows["within"].astype(float)
    missed = sorted(set(rows[within < 0.999]["workload"]))
    return f"; missed: {', '.join(missed)}" if missed else ""
