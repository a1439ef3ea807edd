"""Figures 5, 6, 10 and 11: tails of workloads that share a disk, under every policy."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.papers.prioritymeister.claim_kinds import K_ORDERS, K
from analysis.papers.prioritymeister.panels import (
    bars,
    blocks,
    k_of,
    legend,
    named_slo,
    percentile_axis,
    share_limits,
    shown_workloads,
    slo_line,
    tails,
    workload_colour,
)
from analysis.papers.prioritymeister.runs import LABELS, cells, latency, variants

PERCENTS = (90.0, 95.0, 99.0, 99.9)
_NEEDS = f"the scenario disk with k = {K:g}"


def _groups(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(LABELS[name], rows[rows["variant"] == name]) for name in variants(rows)]


def tail_bars(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 5: latency of A, B and C by policy, one panel per percentile."""
    rows = latency(cells(evidence.table, "disk", k=K))
    if rows.empty:
        return Missing(_NEEDS)
    percents = [p for p in PERCENTS if rows[f"p{p:g}_s"].notna().any()]
    count = (len(percents) + 1) // 2
    with style.figure(count, 2, width=11.0, height=3.3 * count) as (drawn, axes):
        for panel, percent, mark in zip(axes, percents, "abcdef", strict=False):
            bars(panel, rows, _groups(rows), percent, shown_workloads(rows))
            panel.set_title(
                f"({mark}) {percent:g}th percentile ({k_of(rows)}, {blocks(rows)})", loc="left"
            )
        for panel in axes[len(percents) :]:
            panel.set_visible(False)
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def tail_lines(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 6: latency at every percentile, one panel per policy."""
    rows = latency(cells(evidence.table, "disk", k=K))
    if rows.empty:
        return Missing(_NEEDS)
    shown = variants(rows)
    columns = 4
    lines = -(-len(shown) // columns)
    with style.figure(lines, columns, width=12.0, height=3.1 * lines) as (drawn, axes):
        for panel, variant in zip(axes, shown, strict=False):
            mine = rows[rows["variant"] == variant]
            for workload in shown_workloads(rows):
                its = mine[mine["workload"] == workload]
                tails(panel, evidence, its, colour=workload_colour(workload), label=workload)
                slo_line(panel, rows, workload)
            percentile_axis(panel)
            panel.set_title(f"{LABELS[variant]} ({k_of(mine)}, {blocks(mine)})", loc="left")
        share_limits(axes[: len(shown)])
        for panel in axes[len(shown) :]:
            panel.set_visible(False)
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def estimators(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 10: PM with the device's profile and with the constant estimator."""
    rows = latency(cells(evidence.table, "disk", "pm", k=K, estimator=...))
    if not {"profile", "constant"} <= set(rows["estimator"]):
        return Missing(f"{_NEEDS} and both estimators")
    both = set(rows[rows["estimator"] == "constant"]["seed"])
    rows = rows[rows["seed"].isin(both)]
    groups = [
        (text, rows[rows["estimator"] == kind])
        for kind, text in (("profile", "device's\nprofile"), ("constant", "constant\nbase time"))
    ]
    percents = [p for p in PERCENTS if rows[f"p{p:g}_s"].notna().any()]
    with style.figure(1, len(percents), width=12.0, height=3.5) as (drawn, axes):
        for panel, percent, mark in zip(axes, percents, "abcdef", strict=False):
            bars(panel, rows, groups, percent, shown_workloads(rows))
            panel.set_title(f"({mark}) {percent:g}th ({k_of(rows)}, {blocks(rows)})", loc="left")
        share_limits(axes)
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def permutations(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11: 99.9th percentiles, a panel per assignment of three SLOs to A, B and C."""
    rows = latency(cells(evidence.table, "disk", k=K_ORDERS, permutation=...))
    rows = rows[rows["permutation"].notna()]
    if rows.empty:
        return Missing(f"the scenario disk with permutations and k = {K_ORDERS:g}")
    found = sorted(rows["permutation"].unique())
    with style.figure(2, 3, width=13.0, height=6.6) as (drawn, axes):
        for panel, permutation, mark in zip(axes, found, "abcdef", strict=False):
            mine = rows[rows["permutation"] == permutation]
            bars(panel, mine, _groups(mine), 99.9, shown_workloads(mine))
            words = ", ".join(f"{w} x{m}" for w, m in zip("ABC", permutation, strict=True))
            panel.set_title(f"({mark}) SLOs: {words} ({blocks(mine)})", loc="left")
        share_limits(axes[: len(found)])
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)
