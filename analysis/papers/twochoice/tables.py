"""Results of every scheduler, as a table next to the figures."""

from __future__ import annotations

import pandas as pd

from analysis.core.columns import average
from analysis.core.figures import Table, interval_text, value_text
from analysis.papers.twochoice.runs import BEYOND, COLD, LABELS, PAPERS, cells, ratios

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
    """Return the paper's simulation: means over runs with 95 % intervals, by scheduler, ratio."""
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
                    interval_text(average(here, "response_s"), 4),
                    interval_text(average(here, "over"), 4),
                    value_text(average(here, "mean_s")),
                    value_text(average(here, "most")),
                    value_text(average(here, "straggler_most")),
                    value_text(average(here.assign(r=100 * here["redirected_share"]), "r")),
                    value_text(average(here, "messages_per_write")),
                )
            )
    return [Table("schedulers", "What every scheduler came to", HEADS, tuple(rows))] if rows else []
