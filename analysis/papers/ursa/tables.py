"""Results of every method, as a table next to the figures."""

from __future__ import annotations

import pandas as pd

from analysis.core.columns import average
from analysis.core.figures import Table
from analysis.core.stats import Estimate
from analysis.papers.ursa.runs import LABELS, geometric, sizes
from schemas.cells.ursa import INPUTS

HEADS = ("kind", "size", "method", "n", "hot", "after swaps", "after", "moves", "cost", "seconds")


def tables(table: pd.DataFrame) -> list[Table]:
    """Return tables of means over instances: hot nodes before, after swaps and finally, and
    geometric means of cost, migrations and seconds with 95 % intervals."""
    rows = []
    planned = table[table["method"] != INPUTS]
    for kind in sorted(planned["kind"].unique()):
        its = planned[planned["kind"] == kind]
        for size in sizes(its):
            here = its[its["size"] == size]
            keys = here[["method", "selection", "series"]].drop_duplicates()
            for _, key in keys.sort_values(["method", "selection", "series"]).iterrows():
                same = (
                    here["series"].isna()
                    if pd.isna(key["series"])
                    else (here["series"] == key["series"])
                )
                mine = here[
                    (here["method"] == key["method"])
                    & (here["selection"] == key["selection"])
                    & same
                ]
                rows.append((kind.upper(), size, _name(key), *_numbers(mine)))
    return [Table("methods", "What every method came to", HEADS, tuple(rows))] if rows else []


def _name(key: pd.Series) -> str:
    parts = [LABELS.get(str(key["method"]), str(key["method"]))]
    if not pd.isna(key["series"]) and key["series"] != "DC+LP":
        parts.append(str(key["series"]))
    if key["selection"] != "highest":
        parts.append(f"{key['selection']} objects")
    return ", ".join(parts)


def _numbers(rows: pd.DataFrame) -> tuple[str, ...]:
    hot = [_mean(rows, name) for name in ("hot_before", "hot_after_swaps", "hot_after")]
    rest = [_interval(geometric(rows, name)) for name in ("moves", "cost", "decision_s")]
    limited = int(rows["limited"].sum()) if "limited" in rows.columns else 0
    if limited:
        rest[-1] += f" ({limited} ended by the limit)"
    return (str(len(rows)), *hot, *rest)


def _mean(rows: pd.DataFrame, name: str) -> str:
    found = average(rows, name)
    return "–" if found is None else f"{found.value:,.4g}"


def _interval(found: Estimate | None) -> str:
    if found is None:
        return "–"
    if found.n < 2:
        return f"{found.value:,.4g}"
    return f"{found.value:,.4g} [{found.low:,.3g}, {found.high:,.3g}]"
