"""Runs on real machines without a proven bound of the plan, with the unmet condition of each; and
workloads without a bound in the plan.

A simulation meets all assumptions of a bound. Real machines may not: see
`campaigns.papers.prioritymeister.outcome.Conditions`. Its numbers are in every run's summary.
"""

from __future__ import annotations

import pandas as pd

from analysis.core.claims import is_simulated

MODELLED = "sim"


def kept(table: pd.DataFrame) -> pd.Series:
    """Return True for rows that can have a bound: modelled, or with reported enforcement."""
    return table["ground"].eq(MODELLED) | table["network_kept"].notna()


def unproven(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of PM (hold) on real machines without a proven bound; ``why``: reason."""
    real = ~table["ground"].map(lambda ground: is_simulated(str(ground))).astype(bool)
    planned = table["bound_blocking_s"].notna() & table["slo_s"].notna()
    without = table["bound_ratio"].isna() | ~kept(table)
    found = table[real & planned & (table["variant"] == "pm") & without]
    return found.assign(why=[_why(row) for _, row in found.iterrows()])


def unbounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of PM (hold), on any ground, of workloads that higher priorities can starve: the
    plan has no finite bound for them; ``why`` says so."""
    without = table["bound_blocking_s"].isna() & table["bound_ratio"].isna()
    told = table["planned"].eq(0.0) & table["slo_s"].notna()
    found = table[(table["variant"] == "pm") & told & without]
    return found.assign(why="the plan has no finite bound for the workload")


def _why(row: pd.Series) -> str:
    network, behind, allowed = (row[name] for name in ("network_kept", "behind_s", "allowed_s"))
    if pd.isna(network):
        return "the run does not tell what was enforced"
    if not network:
        return "the network was not enforced as planned"
    if pd.isna(behind):
        return "the proxy did not tell how far its server was behind"
    if behind > allowed:
        return (
            "the server was further behind its charges than its profile allows"
            if allowed
            else "the profile tells no overhead of the server"
        )
    if row["unanswered"]:
        return "requests were not answered"
    return "the workload was not held to what it announced"


def sentence(table: pd.DataFrame) -> str | None:
    """Return the number of unproven bounds with reasons, commonest first; None if all are."""
    found = unproven(table)
    if found.empty:
        return None
    counts = found["why"].value_counts()
    reasons = ", ".join(f"{count} as {why}" for why, count in counts.items())
    behind = found["behind_s"].astype(float).max()
    most = "" if pd.isna(behind) else f" (servers were behind by up to {1e3 * behind:.3g} ms)"
    return f"{len(found)} bounds of runs on real machines are not proven: {reasons}{most}"
