"""Measured tails against proven bounds as a table. A broken bound is the first row; runs without a
proven bound are the last rows.

Next to the measurement is the plan: the bound that it compared with the SLO, and the number of runs
in which it proved the SLO. If the plan did not prove an SLO, a missed SLO breaks no promise.
"""

from __future__ import annotations

import pandas as pd

from analysis.core.figures import Table
from analysis.papers.prioritymeister.beyond_claims import BROKEN, proven
from analysis.papers.prioritymeister.unproven import unbounded, unproven

_HEADS = (
    *("scenario", "workload", "runs", "SLO (ms)", "planned bound (ms)", "SLO proven"),
    *("median of bound", "most of bound", "verdict"),
)
_UNKNOWN = "-"


def bound_tables(table: pd.DataFrame) -> list[Table]:
    """Return one row per scenario and workload. Before them is one row per broken bound; after them
    are the rows without a proven bound, with the missing facts."""
    rows, lacking, without = proven(table), unproven(table), unbounded(table)
    if rows.empty and lacking.empty and without.empty:
        return []
    ratio = rows["bound_ratio"].astype(float)
    rows = rows.assign(ratio=ratio)
    broken = rows[ratio > BROKEN]
    made = [
        (
            f"BROKEN in run {row['run_id']}: {row['scenario']}",
            str(row["workload"]),
            "1",
            *_planned(broken.loc[[index]]),
            f"{row['ratio']:.4g}",
            f"{row['ratio']:.4g}",
            "BROKEN: a bug in the planner, the enforcer or the model",
        )
        for index, row in broken.iterrows()
    ]
    for (scenario, workload), mine in rows.groupby(["scenario", "workload"]):
        held = int((mine["ratio"] <= BROKEN).sum())
        verdict = "held" if held == len(mine) else f"BROKEN in {len(mine) - held} of {len(mine)}"
        made.append(
            (
                str(scenario),
                str(workload),
                str(mine["run_id"].nunique()),
                *_planned(mine),
                f"{mine['ratio'].median():.3g}",
                f"{mine['ratio'].max():.3g}",
                verdict,
            )
        )
    for found in (lacking, without):
        for (scenario, workload, why), mine in found.groupby(["scenario", "workload", "why"]):
            runs, words = str(mine["run_id"].nunique()), f"not proven: {why}"
            nothing = (_UNKNOWN, _UNKNOWN)
            made.append((str(scenario), str(workload), runs, *_planned(mine), *nothing, words))
    title = "Longest latencies against proven bounds"
    if len(broken):
        title += f": {len(broken)} BROKEN"
    return [Table("bounds", title, _HEADS, tuple(made))]


def _planned(rows: pd.DataFrame) -> tuple[str, str, str]:
    """Return the SLO, the bound that the plan compares with it (with blocking, if planned so), and
    the number of runs in which the plan proves the SLO."""
    against = rows["bound_s"].where(~rows["blocking"].astype(bool), rows["bound_blocking_s"])
    known = rows["planned"].dropna().astype(float)
    words = f"{known.sum():.0f} of {len(known)}" if len(known) else _UNKNOWN
    return _range(rows["slo_s"]), _range(against), words


def _range(seconds: pd.Series) -> str:
    """Format the shortest to the longest time, in milliseconds."""
    known = seconds.dropna().astype(float)
    if known.empty:
        return _UNKNOWN
    low, high = _milliseconds(known.min()), _milliseconds(known.max())
    return low if low == high else f"{low} to {high}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 0.1 else f"{1e3 * seconds:,.0f}"
