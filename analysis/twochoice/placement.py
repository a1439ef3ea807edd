"""What servers of each load were given (figure 4), over runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.claims import Evidence
from analysis.stats import Estimate, mean
from analysis.twochoice.runs import bursts, cells, ratios

STRAGGLERS = -1
"""Stands for the stragglers' load in a table of loads."""

COMMON = 10.0
"""Servers of a load, on average, from which on what they were given at most says something: with
few the most is that of few draws."""

COLUMNS = ("seed", "load", "servers", "most", "largest", "mean")


def ratio_shown(table: pd.DataFrame, series: Sequence[str]) -> float | None:
    """The straggler ratio of figure 4: the least above zero that all of these schedulers were run
    at; in the campaigns that has fewer than ten stragglers, as the paper says. None: there is none,
    or one of them was not run."""
    found = [share for share in ratios(*(cells(table, name) for name in series)) if share > 0]
    return found[0] if found else None


def given(evidence: Evidence, series: str, share: float) -> pd.DataFrame:
    """One row a run and load (`STRAGGLERS` for them all): `COLUMNS`, see `dataplane/sim/burst`."""
    rows = cells(evidence.table, series, straggler_ratio=share)
    found = []
    for index, seed in zip(rows["index"], rows["seed"], strict=True):
        for row in bursts(evidence.runs[int(index)].folder)["loads"]:
            load = STRAGGLERS if row["straggler"] else int(row["load"])
            found.append((seed, load, *(float(row[name]) for name in COLUMNS[2:])))
    return pd.DataFrame(found, columns=list(COLUMNS))


def by_load(rows: pd.DataFrame, column: str) -> dict[int, Estimate]:
    """Mean over runs of a column, by load."""
    loads = sorted(set(rows["load"].tolist()))
    return {load: mean(rows[rows["load"] == load][column].tolist()) for load in loads}


def common(rows: pd.DataFrame) -> list[int]:
    """Loads that `COMMON` servers have, stragglers left out."""
    return [
        load
        for load, servers in by_load(rows, "servers").items()
        if servers.value >= COMMON and load != STRAGGLERS
    ]


def of_loads(rows: pd.DataFrame, column: str, loads: Sequence[int]) -> pd.Series:
    """By seed: a column's mean over the servers of some loads."""
    chosen = rows[rows["load"].isin(loads)]
    weighted = (chosen[column] * chosen["servers"]).groupby(chosen["seed"]).sum()
    return weighted / chosen["servers"].groupby(chosen["seed"]).sum()
