"""Figures 7 to 11: effect of swaps, choice of objects, time to solve programmes, and ALP against
the optimum and the baselines. Means over instances with 95 % intervals; geometric means on
logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.papers.ursa.panels import counts, draw, line, stated_line
from analysis.papers.ursa.runs import ALGORITHM, KINDS, LABELS, OURS, cells, geometric, sizes

COST = "Cost (sum of distances; side = 1)"
SECONDS = "Time to decide (s)"
MOVES = "Migrations"
STATED_LEFT = 1 / 3
STATED_SECONDS = 130.0
STATED_AT = "10K-10M"

COMBINATIONS = ("NONE+ILP", "DC+ILP", "NONE+LP", "DC+LP")
METHODS = (ALGORITHM, OURS, "htoc", "sa")
SMALL = ("opt", ALGORITHM, OURS, "sa")


def swaps(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 7: (a) hot spots that swaps leave, (b) numbers of swaps and migrations."""
    rows = cells(evidence.table, OURS)
    rows = rows[rows["partitions"] >= LARGE]
    if rows.empty:
        return Missing("plans by alp for instances of several sizes")
    order = sizes(rows)
    with style.figure(1, 2, width=10.0, height=4.4) as (drawn, axes):
        left, right = axes
        shares, numbers = [], []
        for kind in KINDS:
            mine = rows[rows["kind"] == kind]
            mine = mine[mine["hot_before"] > 0]
            mine = mine.assign(left=100 * mine["hot_after_swaps"] / mine["hot_before"])
            shares.append(line(kind, mine, "left", average))
            numbers.append(line(kind, mine, "swaps", geometric, label=f"{kind.upper()}: swaps"))
            moved = f"{kind.upper()}: migrations"
            numbers.append(line(kind, mine, "moves", geometric, style=":", label=moved))
        draw(left, order, shares, log=False)
        stated_line(left, 100 * STATED_LEFT, "paper: about one third")
        left.set_ylabel("Hot spots left after swaps (%)")
        left.set_ylim(0, None)
        left.set_title(f"(a) After swaps alone ({counts(shares)})", loc="left")
        draw(right, order, numbers)
        right.set_ylabel("Operations")
        right.set_title(f"(b) Until no node is hot ({counts(numbers)})", loc="left")
        style.legend(drawn, axes, columns=5)
        return style.save(drawn, folder, name)


LARGE = 100_000
"""Minimum partitions of one of the paper's large data sets (0.1K-0.1M)."""


def selection(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 8: highest-load-first against random objects: (a) cost, (b) migrations."""
    ways = ("highest", "random")
    found = {way: cells(evidence.table, OURS, kind="s1", selection=way) for way in ways}
    if found["random"].empty:
        return Missing("plans by alp with selection highest and random")
    order = sizes(found["random"])
    rows = {way: its[its["size"].isin(order)] for way, its in found.items()}
    with style.figure(1, 2, width=9.6, height=4.2) as (drawn, axes):
        for panel, column, text in zip(axes, ("cost", "moves"), (COST, MOVES), strict=True):
            lines = [line(way, rows[way], column, geometric) for way in ways]
            draw(panel, order, lines)
            panel.set_ylabel(text)
            mark = "(a) Cost" if column == "cost" else "(b) Migrations"
            panel.set_title(f"{mark} ({counts(lines)})", loc="left")
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def speedup(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 9: dividing and relaxing: (a) cost, (b) time to decide."""
    table = evidence.table
    varied = table[table["series"].isin(COMBINATIONS[:3])]
    if varied.empty:
        return Missing("plans by algorithm1 with divide none and dc, program ilp and lp")
    order = sizes(varied)
    kind = str(varied["kind"].mode().iloc[0])
    rows = {series: cells(table, ALGORITHM, kind=kind, series=series) for series in COMBINATIONS}
    rows = {series: its[its["size"].isin(order)] for series, its in rows.items()}
    with style.figure(1, 2, width=9.6, height=4.4) as (drawn, axes):
        for panel, column, text in zip(axes, ("cost", "decision_s"), (COST, SECONDS), strict=True):
            lines = [line(series, rows[series], column, geometric) for series in COMBINATIONS]
            draw(panel, order, lines)
            panel.set_ylabel(text)
            mark = "(a) Cost" if column == "cost" else "(b) Time"
            panel.set_title(f"{mark}, {kind.upper()} ({counts(lines)})", loc="left")
        style.legend(drawn, axes, columns=5)
        return style.save(drawn, folder, name)


def optimum(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 10: ALP and the exact optimum: (a) cost, (b) time to decide."""
    table = evidence.table
    exact = cells(table, "opt")
    if exact.empty:
        return Missing("plans by opt for small instances")
    order, kind = sizes(exact), str(exact["kind"].mode().iloc[0])
    rows = {method: cells(table, method, kind=kind) for method in SMALL}
    rows = {method: _same(its, exact) for method, its in rows.items()}
    with style.figure(1, 2, width=9.6, height=4.4) as (drawn, axes):
        for panel, column, text in zip(axes, ("cost", "decision_s"), (COST, SECONDS), strict=True):
            lines = [line(method, rows[method], column, geometric) for method in SMALL]
            draw(panel, order, lines)
            panel.set_ylabel(text)
            mark = "(a) Cost" if column == "cost" else "(b) Time"
            panel.set_title(f"{mark}, {kind.upper()} ({counts(lines)})", loc="left")
        style.legend(drawn, axes, columns=3)
        return style.save(drawn, folder, name)


def _same(rows: pd.DataFrame, exact: pd.DataFrame) -> pd.DataFrame:
    """Return runs for the instances that OPT solved and that needed moves."""
    solved = exact[(exact["hot_after_swaps"] > 0) & (exact["hot_after"] == 0)]
    keys = set(zip(solved["size"], solved["seed"], strict=True))
    return rows[[key in keys for key in zip(rows["size"], rows["seed"], strict=True)]]


def methods(
    evidence: Evidence, folder: Path, name: str, kinds: Sequence[str] = ("s1",)
) -> Path | Missing:
    """Draw figure 11: (a) cost, (b) time, (c) migrations, (d) standard deviation of the nodes'
    loads; one row of panels per kind."""
    table = evidence.table[evidence.table["partitions"] >= LARGE]
    rows = {kind: {method: cells(table, method, kind=kind) for method in METHODS} for kind in kinds}
    there = [kind for kind in kinds if not rows[kind]["sa"].empty]
    if not there:
        return Missing(f"plans by alp, algorithm1, htoc and sa of kind {' or '.join(kinds)}")
    columns = 2 if len(there) == 1 else 4
    panels_in = 4 * len(there) // columns
    width = 9.6 if columns == 2 else 16.0
    with style.figure(panels_in, columns, width=width, height=3.7 * panels_in) as (drawn, axes):
        for index, kind in enumerate(there):
            _methods_of(axes[4 * index : 4 * index + 4], kind, rows[kind])
        style.legend(drawn, axes, columns=3 if columns == 2 else 6)
        return style.save(drawn, folder, name)


def _methods_of(axes: Sequence[object], kind: str, rows: dict[str, pd.DataFrame]) -> None:
    from matplotlib.axes import Axes

    everything = pd.concat([its for its in rows.values() if len(its)])
    order = sizes(everything[everything["method"] != OURS])
    shown = {method: _with_change(its[its["size"].isin(order)]) for method, its in rows.items()}
    texts = {
        "cost": ("(a) Cost", COST),
        "decision_s": ("(b) Time", SECONDS),
        "moves": ("(c) Migrations", MOVES),
        "sd_change": ("(d) Deviation", "Deviation of the nodes' loads\nover that before"),
    }
    for panel, (column, (mark, text)) in zip(axes, texts.items(), strict=True):
        assert isinstance(panel, Axes)
        lines = [line(method, shown[method], column, geometric) for method in METHODS]
        draw(panel, order, lines, log=column != "sd_change")
        if column == "decision_s" and kind == "s1" and STATED_AT in order:
            style.paper_marker(panel, order.index(STATED_AT), STATED_SECONDS)
            panel.set_ylim(top=max(panel.get_ylim()[1], 2 * STATED_SECONDS))
        if column == "sd_change":
            stated_line(panel, 1.0, LABELS["none"])
        panel.set_ylabel(text)
        panel.set_title(f"{mark}, {kind.upper()} ({counts(lines)})", loc="left")


def _with_change(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the change in the nodes' load deviation by the plan; 1 is no change."""
    if rows.empty:
        return rows
    return rows.assign(sd_change=rows["load_sd_after"] / rows["load_sd_before"])
