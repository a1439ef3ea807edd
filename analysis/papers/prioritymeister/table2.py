"""Table 2: the paper's description of its traces, and the values of the stand-ins."""

from __future__ import annotations

import pandas as pd

from analysis.core.figures import Table
from analysis.core.stats import mean
from analysis.papers.prioritymeister.runs import cells

STATED: dict[str, tuple[float | None, float | None, float | None]] = {
    "A": (0.05, 0.05, 1.3),
    "B": (0.05, 0.05, 14.0),
    "C": (0.55, 0.05, 2.2),
    "D": (0.10, 0.05, 23.0),
    "E": (1.00, 0.15, 145.0),
    "F": (0.25, 0.05, 1.0),
    "G": (0.25, 0.05, 20.0),
    "H": (0.25, 0.05, 40.0),
    "I": (0.35, 0.20, 1.0),
    "J": (0.45, 0.25, 1.0),
    "K": (None, 0.35, 3.6),
}
"""Storage load, network load and C_A^2 by workload; E's storage load is "> 100 %"."""
COLUMNS = ("storage", "network", "scv")
MORE_THAN = ("E", "storage")
_HEADS = (
    "workload",
    "storage load",
    "paper",
    "network load",
    "paper ",
    "C_A²",
    "paper  ",
    "traces",
)


def deviations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return measured over stated values, a row per trace and column: ``seed``, ``workload``,
    ``column``, ``ratio``. E's storage load, stated only as a bound, is left out."""
    parts = []
    for _, row in rows.iterrows():
        for name, stated in zip(COLUMNS, STATED[str(row["workload"])], strict=True):
            if (
                stated is not None
                and (row["workload"], name) != MORE_THAN
                and row[name] is not None
            ):
                parts.append((row["seed"], row["workload"], name, float(row[name]) / stated))
    return pd.DataFrame(parts, columns=["seed", "workload", "column", "ratio"])


def farthest(rows: pd.DataFrame) -> pd.Series:
    """Return the ratio that is farthest from 1, by seed."""
    found = deviations(rows)
    found = found.assign(off=(found["ratio"] - 1).abs()).sort_values("off")
    return found.groupby("seed")["ratio"].last()


def described(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of cells that describe their traces."""
    return cells(table, "table2", "inputs", k=...)


def tables(table: pd.DataFrame) -> list[Table]:
    """Return Table 2 with the paper's values next to ours."""
    rows = described(table)
    made = []
    for label, stated in STATED.items():
        mine = rows[rows["workload"] == label]
        if mine.empty:
            continue
        texts: list[str] = [label]
        for name, value in zip(COLUMNS, stated, strict=True):
            known = mine[name].dropna().astype(float).tolist()
            found = mean(known).value if known else None
            texts += [_text(found, name), _text(value, name, (label, name) == MORE_THAN)]
        made.append((*texts, str(mine["seed"].nunique())))
    return [Table("table2", "Table 2: the stand-ins' traces", _HEADS, tuple(made))] if made else []


def _text(value: float | None, name: str, more: bool = False) -> str:
    if value is None:
        return "N/A"
    words = f"{value:.3g}" if name == "scv" else f"{100 * value:.3g} %"
    return f"> {words}" if more else words
