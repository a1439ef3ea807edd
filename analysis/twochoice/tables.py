"""What every scheduler came to, as a table beside the figures."""

from __future__ import annotations

import pandas as pd

from analysis.figures import Table
from analysis.stats import Estimate
from analysis.twochoice.runs import BEYOND, COLD, LABELS, PAPERS, average, cells, ratios

HEADS = (
    "scheduler",
    "stragglers %",
    "n",
    "bursts",
    "response s",
    "over the best possible",
    "mean process s",
    "most on a server",
    "most on a straggler",
    "redirected %",
    "messages a write",
)


def tables(table: pd.DataFrame) -> list[Table]:
    """The paper's simulation: means over runs with 95 % intervals, by scheduler and ratio."""
    rows = []
    for series in (*PAPERS, *COLD, *BEYOND):
        its = cells(table, series)
        for share in ratios(its):
            here = its[its["straggler_ratio"] == share]
            here = here.assign(over=here["response_s"] / here["best_s"])
            rows.append(
                (
                    LABELS[series],
                    f"{100 * share:g}",
                    str(len(here)),
                    f"{here['rounds'].sum():g}",
                    _interval(average(here, "response_s")),
                    _interval(average(here, "over")),
                    _number(average(here, "mean_s")),
                    _number(average(here, "most")),
                    _number(average(here, "straggler_most")),
                    _number(average(here.assign(r=100 * here["redirected_share"]), "r")),
                    _number(average(here, "messages_per_write")),
                )
            )
    return [Table("schedulers", "What every scheduler came to", HEADS, tuple(rows))] if rows else []


def _number(found: Estimate | None) -> str:
    return "–" if found is None else f"{found.value:.3g}"


def _interval(found: Estimate | None) -> str:
    if found is None:
        return "–"
    if found.n < 2:
        return f"{found.value:.4g}"
    return f"{found.value:.4g} [{found.low:.4g}, {found.high:.4g}]"
