"""Figure 1: four workloads at once, with and without separate proxies."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts
from analysis.papers.mos.local.panels import grouped
from analysis.papers.mos.local.runs import DEFAULT, cells, colour, label, shown
from analysis.papers.mos.local.setups_claims import DROP, PARTITION

BOTH_SMALL, BOTH_LARGE = "A + B", "C + D"


def setups(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 1(a) to (c): throughput, bandwidth and latency of the setups."""
    rows = cells(evidence.table, "setups")
    order = shown(rows)
    if len(order) < 2:
        return Missing("workloads A to D at once with two setups")
    with style.figure(1, 3, width=12.0, height=4.2) as (drawn, axes):
        parts = (
            ("(a) Throughput of small objects", "Throughput (QPS)", "qps", ("A", "B", BOTH_SMALL)),
            ("(b) Bandwidth of large objects", "Bandwidth (MB/s)", "mb_s", ("C", "D", BOTH_LARGE)),
            ("(c) Latency", "Mean latency (s)", "mean_s", ("A", "B", "C", "D")),
        )
        for panel, (title, unit, measure, groups) in zip(axes, parts, strict=True):
            found = {setup: _of(rows[rows["setup"] == setup], measure, groups) for setup in order}
            series = [(label(setup), colour(setup), found[setup]) for setup in order]
            grouped(panel, groups, series, _stated(found, measure))
            every = [one for its in found.values() for one in its.values()]
            if measure == "mean_s" and every:
                style.magnitudes(panel)
                panel.set_ylim(
                    0.5 * min(one.value for one in every), 3 * max(one.value for one in every)
                )
            panel.set_title(f"{title} ({counts(every)})", loc="left", fontsize="small")
            panel.set_ylabel(unit)
            panel.set_xlabel("Workload")
        style.legend(drawn, axes, columns=5)
        return style.save(drawn, folder, name)


def _of(rows: pd.DataFrame, measure: str, groups: tuple[str, ...]) -> dict[str, Estimate]:
    columns = {BOTH_SMALL: f"small_{measure}", BOTH_LARGE: f"large_{measure}"}
    found = {}
    for group in groups:
        one = average(rows, columns.get(group, f"{group}_{measure}"))
        if one is not None:
            found[group] = one
    return found


def _stated(found: dict[str, dict[str, Estimate]], measure: str) -> dict[tuple[str, str], float]:
    """Return the paper's ratios applied to our Default."""
    default = found.get(DEFAULT, {})
    stated = {}
    if measure == "qps" and BOTH_SMALL in default:
        for setup, factor in PARTITION.items():
            stated[label(setup), BOTH_SMALL] = factor * default[BOTH_SMALL].value
    if measure == "mb_s" and BOTH_LARGE in default:
        whole = default[BOTH_LARGE].value
        stated[label("favors-small"), BOTH_LARGE] = whole / (sum(DROP) / 2)
        stated[label("favors-large"), BOTH_LARGE] = whole
    return stated
