"""The share of settings that each policy meets: a setting is a block's traces and a k."""

from __future__ import annotations

import pandas as pd

from analysis.papers.prioritymeister.runs import BLIND, at_k, cells, latency, met, variants

TAIL = 99.9


def settings(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per policy, k and block of the scenario `disk`: ``variant``, ``k``, ``seed``,
    ``met`` (1 if all latency SLOs were met at the 99.9th percentile). Policies that do not depend
    on k ran once and are compared with every k of PM's runs."""
    rows = latency(cells(table, "disk"))
    swept = sorted(rows[rows["variant"] == "pm"]["k"].unique())
    parts = []
    for name in variants(rows):
        mine = rows[rows["variant"] == name]
        blind = name in BLIND
        for k in swept:
            found = mine[mine["k"] == k]
            if found.empty and blind:
                found = at_k(mine.drop_duplicates(["seed", "workload"]), k, TAIL)
            if found.empty:
                continue
            whole = found.assign(met=met(found, TAIL).astype(float)).groupby("seed")["met"].min()
            parts.append(whole.reset_index().assign(variant=name, k=k))
    columns = ["variant", "k", "seed", "met"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


def share_met(table: pd.DataFrame, variant: str) -> pd.Series:
    """Return the share of swept k at which a policy met all SLOs, by seed; complete blocks only."""
    found = settings(table)
    mine = found[found["variant"] == variant]
    if mine.empty:
        return pd.Series(dtype=float)
    wide = mine.pivot_table(index="seed", columns="k", values="met")
    return wide.dropna().mean(axis=1)
