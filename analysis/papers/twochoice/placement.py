"""Writes given to servers of each load (figure 4), over runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.core.claims import Evidence
from analysis.core.stats import Estimate, mean
from analysis.papers.twochoice.runs import bursts, cells, ratios

STRAGGLERS = -1
"""The stragglers' load in a table of loads."""

COMMON = 10.0
"""Minimum mean number of servers of a load for a meaningful maximum: with few servers, the maximum
is over few draws."""

COLUMNS = ("seed", "load", "servers", "most", "largest", "mean")


def ratio_shown(table: pd.DataFrame, series: Sequence[str]) -> float | None:
    """Return the straggler ratio of figure 4: the smallest above zero with runs of all these
    schedulers. In the campaigns this ratio has fewer than ten stragglers, as the paper says. None
    if no ratio qualifies."""
    found = [share for share in ratios(*(cells(table, name) for name in series)) if share > 0]
    return found[0] if found else None


def given(evidence: Evidence, series: str, share: float) -> pd.DataFrame:
    """Return rows by run and load (`STRAGGLERS`: all), `COLUMNS`; see `dataplane/sim/burst`."""
    rows = cells(evidence.table, series, straggler_ratio=share)
    found = []
    for index, seed in zip(rows["index"], rows["seed"], strict=True):
        for row in bursts(evidence.runs[int(index)].folder)["loads"]:
            load = STRAGGLERS if row["straggler"] else int(row["load"])
            found.append((seed, load, *(float(row[name]) for name in COLUMNS[2:])))
    return pd.DataFrame(found, columns=list(COLUMNS))


def by_load(rows: pd.DataFrame, column: str) -> dict[int, Estimate]:
    """Return the mean over runs of a column, by load."""
    loads = sorted(set(rows["load"].tolist()))
    return {load: mean(rows[rows["load"] == load][column].tolist()) for load in loads}


def common(rows: pd.DataFrame) -> list[int]:
    """Return loads of at least `COMMON` servers, without stragglers."""
    return [
        load
        for load, servers in by_load(rows, "servers").items()
        if servers.value >= COMMON and load != STRAGGLERS
    ]


def of_loads(rows: pd.DataFrame, column: str, loads: Sequence[int]) -> pd.Series:
    """Return, by seed, a column's mean over the servers with the given loads."""
    chosen = rows[rows["load"].isin(loads)]
    weighted = (chosen[column] * chosen["servers"]).groupby(chosen["seed"]).sum()
    return weighted / chosen["servers"].groupby(chosen["seed"]).sum()
