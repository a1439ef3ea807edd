"""Measured tails against proven bounds as a table; a broken bound is its first row, and what is
not proven of runs on real machines its last ones."""

from __future__ import annotations

import pandas as pd

from analysis.figures import Table
from analysis.prioritymeister.beyond_claims import BROKEN, proven
from analysis.prioritymeister.unproven import unproven

_HEADS = ("scenario", "workload", "runs", "median of bound", "most of bound", "verdict")


def bound_tables(table: pd.DataFrame) -> list[Table]:
    """A row a scenario and workload; before them one for every bound that was broken, after them
    those of which nothing is proven, with what was missing."""
    rows, lacking = proven(table), unproven(table)
    if rows.empty and lacking.empty:
        return []
    ratio = rows["bound_ratio"].astype(float)
    broken = rows.assign(ratio=ratio)[ratio > BROKEN]
    made = [
        (
            f"BROKEN in run {row['run_id']}: {row['scenario']}",
            str(row["workload"]),
            "1",
            f"{row['ratio']:.4g}",
            f"{row['ratio']:.4g}",
            "BROKEN: a bug in the planner, the enforcer or the model",
        )
        for _, row in broken.iterrows()
    ]
    for (scenario, workload), mine in rows.assign(ratio=ratio).groupby(["scenario", "workload"]):
        held = int((mine["ratio"] <= BROKEN).sum())
        verdict = "held" if held == len(mine) else f"BROKEN in {len(mine) - held} of {len(mine)}"
        made.append(
            (
                str(scenario),
                str(workload),
                str(mine["run_id"].nunique()),
                f"{mine['ratio'].median():.3g}",
                f"{mine['ratio'].max():.3g}",
                verdict,
            )
        )
    for (scenario, workload, why), mine in lacking.groupby(["scenario", "workload", "why"]):
        runs = str(mine["run_id"].nunique())
        made.append((str(scenario), str(workload), runs, "-", "-", f"not proven: {why}"))
    title = "Longest latencies against proven bounds"
    if len(broken):
        title += f": {len(broken)} BROKEN"
    return [Table("bounds", title, _HEADS, tuple(made))]
