"""Figures 1 and 3: inputs of the planner. The paper shows Hotmail's clusters; these are generated
instances of the same shape, as section 5.1 describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.papers.ursa.runs import COLOURS, KINDS, LABELS
from schemas.cells.ursa import INPUTS

INPUTS_FILE = "inputs.json"
POINTS = 400
SCATTER = 3000
TAIL = 1.5


def _described(evidence: Evidence, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the cells' descriptions of their instances."""
    folders = [evidence.runs[int(index)].folder for index in rows["index"]]
    return [json.loads((folder / INPUTS_FILE).read_text()) for folder in folders]


def _largest(evidence: Evidence) -> pd.DataFrame:
    """Return the rows with descriptions of the largest instances."""
    rows = evidence.table[evidence.table["method"] == INPUTS]
    return rows[rows["nodes"] == rows["nodes"].max()] if len(rows) else rows


def skew(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 1: load over capacity of the nodes, the hottest first, by kind of data."""
    rows = _largest(evidence)
    if rows.empty:
        return Missing("a cell that describes its instance (method inputs)")
    with style.figure(height=4.0) as (drawn, (axes,)):
        for kind in KINDS:
            mine = rows[rows["kind"] == kind]
            if mine.empty:
                continue
            found = _described(evidence, mine)
            x = np.linspace(0, 1, POINTS)
            curves = np.array(
                [np.interp(x, np.linspace(0, 1, len(one["ratio"])), one["ratio"]) for one in found]
            )
            hot = 100 * mine["hot_share"].mean()
            text = f"{LABELS[kind]}: {hot:.1f} % of the nodes hot"
            axes.plot(100 * x, 100 * curves.mean(axis=0), color=COLOURS[kind], label=text)
            low, high = 100 * curves.min(axis=0), 100 * curves.max(axis=0)
            axes.fill_between(100 * x, low, high, color=COLOURS[kind], alpha=0.25, linewidth=0)
        axes.axhline(70, color="black", linestyle="--", linewidth=1, label="hot above 70 % (paper)")
        axes.set_xlabel("Nodes, the hottest first (%)")
        axes.set_ylabel("Load over capacity (%)")
        axes.set_ylim(0, None)
        axes.set_xlim(0, 100)
        axes.set_title(f"{rows['size'].iloc[0]}, {_instances(rows)}", loc="left")
        style.legend(drawn, [axes], columns=2)
        return style.save(drawn, folder, name)


def shape(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 3 as a shape: load against capacity of the nodes, and the loads of partitions."""
    rows = _largest(evidence)
    if rows.empty:
        return Missing("a cell that describes its instance (method inputs)")
    kind = next(kind for kind in KINDS if (rows["kind"] == kind).any())
    mine = rows[rows["kind"] == kind]
    found = _described(evidence, mine)
    with style.figure(1, 2, width=9.2, height=4.0) as (drawn, (left, right)):
        one = found[0]
        step = max(1, len(one["load"]) // SCATTER)
        load, capacity = np.array(one["load"])[::step], np.array(one["capacity"])[::step]
        hot = np.array(one["ratio"])[::step] > one["threshold"]
        for which, colour, text in ((~hot, "#0072B2", "cold"), (hot, "#D55E00", "hot")):
            left.plot(capacity[which], load[which], ".", color=colour, markersize=3, label=text)
        style.magnitudes(left, "x")
        style.magnitudes(left)
        left.set_xlabel("Capacity of a node over the mean")
        left.set_ylabel("Load of a node over the mean")
        left.set_title(f"{LABELS[kind]}, {rows['size'].iloc[0]}, one instance", loc="left")
        for index, each in enumerate(found):
            right.plot(
                each["partition_load"],
                100 * np.array(each["partition_share"]),
                color=COLOURS[kind],
                alpha=0.6,
                label=_instances(mine) if index == 0 else None,
            )
        x = np.array(found[0]["partition_load"])
        reference = 100 * (x / x.min()) ** -TAIL
        right.plot(x, reference, "--", color="black", linewidth=1, label=f"power law, {TAIL:g}")
        style.magnitudes(right, "x")
        style.magnitudes(right)
        right.set_xlabel("Load of a partition over the mean")
        right.set_ylabel("Partitions with at least so much (%)")
        right.set_title("Partitions", loc="left")
        style.legend(drawn, [left, right], columns=4)
        return style.save(drawn, folder, name)


def _instances(rows: pd.DataFrame) -> str:
    count = int(rows.groupby("kind")["seed"].nunique().max())
    return f"{count} instance{'s' if count > 1 else ''} of a kind"
