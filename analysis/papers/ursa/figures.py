"""Figures 1, 3, 4 and 7 to 13, the table of methods, and the parts of the report.

Figures 1 and 3 show inputs of the planner: the paper shows Hotmail's clusters; these are generated
instances of the same shape, as section 5.1 describes it. Figures 7 to 11 are about the planner:
means over instances with 95 % intervals, geometric means on logarithmic axes. Figures 4, 12 and 13
show response times on a running store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.evidence import average, geometric
from analysis.core.figures import (
    FigureEntry,
    Missing,
    Table,
    bytes_text,
    interval_text,
    value_text,
)
from analysis.core.load import LoadedRun
from analysis.core.panels import MARKERS, Look, Points, bars, counts, lines, points
from analysis.core.papers import Part
from analysis.core.stats import Estimate
from analysis.papers.ursa import runs
from analysis.papers.ursa.claims import LIVE_CLAIMS, PLANNER_CLAIMS, SIMULATED_CLAIMS
from analysis.papers.ursa.statements import (
    LIVE_STATEMENTS,
    PLANNER_STATEMENTS,
    SIMULATED_STATEMENTS,
)
from schemas.cells.dlr import OpenLoopWrites
from schemas.cells.ursa import INPUTS
from schemas.settling import HOLD_S, STABLE_S, WINDOW_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INPUTS_FILE = "inputs.json"
POINTS = 400
SCATTER = 3000
GRID, GRID_OF_TEN = 300, 50
"""Grid of response times: columns, and rows in each factor of ten."""
TAIL = 1.5


def _described(evidence: Evidence, rows: pd.DataFrame) -> list[Mapping[str, Any]]:
    """Return the cells' descriptions of their instances."""
    return [run.report(INPUTS_FILE) for run in evidence.runs_of(rows)]


def _largest(evidence: Evidence) -> pd.DataFrame:
    """Return the rows with descriptions of the largest instances."""
    rows = evidence.table[evidence.table["method"] == INPUTS]
    return rows[rows["nodes"] == rows["nodes"].max()] if len(rows) else rows


def skew(evidence: Evidence) -> Figure | Missing:
    """Draw figure 1: load over capacity of the nodes, the hottest first, by kind of data."""
    rows = _largest(evidence)
    if rows.empty:
        return Missing("a cell that describes its instance (method inputs)")
    with style.figure(height=4.0) as (drawn, (axes,)):
        for kind in runs.KINDS:
            mine = rows[rows["kind"] == kind]
            if mine.empty:
                continue
            found = _described(evidence, mine)
            x = np.linspace(0, 1, POINTS)
            curves = np.array(
                [np.interp(x, np.linspace(0, 1, len(one["ratio"])), one["ratio"]) for one in found]
            )
            hot = 100 * mine["hot_share"].mean()
            text = f"{runs.LABELS[kind]}: {hot:.1f} % of the nodes hot"
            axes.plot(100 * x, 100 * curves.mean(axis=0), color=runs.COLOURS[kind], label=text)
            low, high = 100 * curves.min(axis=0), 100 * curves.max(axis=0)
            axes.fill_between(100 * x, low, high, color=runs.COLOURS[kind], alpha=0.25, linewidth=0)
        axes.axhline(70, color="black", linestyle="--", linewidth=1, label="hot above 70 % (paper)")
        axes.set_xlabel("Nodes, the hottest first (%)")
        axes.set_ylabel("Load over capacity (%)")
        axes.set_ylim(0, None)
        axes.set_xlim(0, 100)
        axes.set_title(f"{rows['size'].iloc[0]}, {_instances(rows)}", loc="left")
        return style.legend(drawn, [axes], columns=2)


def shape(evidence: Evidence) -> Figure | Missing:
    """Draw figure 3 as a shape: load against capacity of the nodes, and the loads of partitions."""
    rows = _largest(evidence)
    if rows.empty:
        return Missing("a cell that describes its instance (method inputs)")
    kind = next(kind for kind in runs.KINDS if (rows["kind"] == kind).any())
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
        left.set_title(f"{runs.LABELS[kind]}, {rows['size'].iloc[0]}, one instance", loc="left")
        for index, each in enumerate(found):
            right.plot(
                each["partition_load"],
                100 * np.array(each["partition_share"]),
                color=runs.COLOURS[kind],
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
        return style.legend(drawn, [left, right], columns=4)


def _instances(rows: pd.DataFrame) -> str:
    count = int(rows.groupby("kind")["seed"].nunique().max())
    return f"{count} instance{'s' if count > 1 else ''} of a kind"


COST = "Cost (sum of distances; side = 1)"
SECONDS = "Time to decide (s)"
MOVES = "Migrations"
STATED_LEFT = 1 / 3
STATED_SECONDS = 130.0
STATED_AT = "10K-10M"
METHODS = (runs.ALP, runs.OURS, "htoc", "sa")
SMALL = ("opt", runs.ALP, runs.OURS, "sa")

ROOM = 8.0  # maximum length of an interval on a logarithmic axis, below and above all points
MARGIN = 1.5

Estimator = Callable[[pd.DataFrame, str], Estimate | None]


def _look(name: str, names: Collection[str], **changes: str) -> Look:
    """Return the appearance of a method or kind: its marker is that of its place among `names`."""
    marker = MARKERS[list(names).index(name) % len(MARKERS)]
    return replace(Look(runs.LABELS.get(name, name), runs.COLOURS[name], marker), **changes)


def _by_size(rows: pd.DataFrame, column: str, estimate: Estimator = geometric) -> Points:
    """Return estimates of a column by size."""
    return points(rows, "size", lambda here: estimate(here, column))


def _limited(rows: pd.DataFrame) -> set[str]:
    """Return sizes with decisions that their time limit ended."""
    return set(rows.loc[rows["limited"] > 0, "size"]) if "limited" in rows.columns else set()


def _draw(
    panel: Axes,
    order: Sequence[str],
    series: Sequence[tuple[Look, Points]],
    ringed: Sequence[Collection[str]] = (),
    *,
    log: bool = True,
) -> None:
    """Draw lines over the sizes in `order`, with circles where time limits ended decisions."""
    lines(panel, series, order, order, ringed=ringed, ring="some ended by their time limit")
    found = [one for _, these in series for one in these.values()]
    if log:
        style.magnitudes(panel)
    if log and found:
        # Two differing instances have an interval of many magnitudes.
        low, high = min(one.value for one in found), max(one.value for one in found)
        ends = [end for one in found for end in (one.low, one.high) if np.isfinite(end) and end > 0]
        least, most = min([low, *ends]), max([high, *ends])
        panel.set_ylim(max(least, low / ROOM) / MARGIN, min(most, high * ROOM) * MARGIN)
    panel.tick_params(axis="x", rotation=20 if len(order) > 3 else 0)
    panel.set_xlabel("nodes-partitions")


def _stated_line(panel: Axes, value: float, text: str) -> None:
    """Draw a statement about all sizes as a dashed line."""
    panel.axhline(value, color="black", linestyle="--", linewidth=1.0, label=text)


def swaps(evidence: Evidence) -> Figure | Missing:
    """Draw figure 7: (a) hot spots that swaps leave, (b) numbers of swaps and migrations."""
    rows = runs.cells(evidence.table, runs.ALP)
    rows = rows[rows["partitions"] >= runs.LARGE]
    if rows.empty:
        return Missing("plans by alp for instances of several sizes")
    order = runs.sizes(rows)
    with style.figure(1, 2, width=10.0, height=4.4) as (drawn, axes):
        left, right = axes
        shares, numbers = [], []
        for kind in runs.KINDS:
            mine = rows[(rows["kind"] == kind) & (rows["hot_before"] > 0)]
            mine = mine.assign(left=100 * mine["hot_after_swaps"] / mine["hot_before"])
            shares.append((_look(kind, runs.KINDS), _by_size(mine, "left", average)))
            swapped = _look(kind, runs.KINDS, label=f"{kind.upper()}: swaps")
            moved = _look(kind, runs.KINDS, label=f"{kind.upper()}: migrations", line=":")
            numbers += [(swapped, _by_size(mine, "swaps")), (moved, _by_size(mine, "moves"))]
        _draw(left, order, shares, log=False)
        _stated_line(left, 100 * STATED_LEFT, "paper: about one third")
        left.set_ylabel("Hot spots left after swaps (%)")
        left.set_ylim(0, None)
        left.set_title(f"(a) After swaps alone ({counts(shares, '')})", loc="left")
        _draw(right, order, numbers)
        right.set_ylabel("Operations")
        right.set_title(f"(b) Until no node is hot ({counts(numbers, '')})", loc="left")
        return style.legend(drawn, axes, columns=5)


_AXES = {"cost": COST, "decision_s": SECONDS, "moves": MOVES}


def _compared(
    rows: dict[str, pd.DataFrame],
    order: Sequence[str],
    titles: dict[str, str],
    *,
    columns: int,
) -> Figure:
    """Draw one panel for each column in `titles`, with one line for each method in `rows`."""
    with style.figure(1, len(titles), width=9.6, height=4.4) as (drawn, axes):
        for panel, (column, title) in zip(axes, titles.items(), strict=True):
            series = [(_look(one, rows), _by_size(rows[one], column)) for one in rows]
            _draw(panel, order, series, [_limited(rows[one]) for one in rows])
            panel.set_ylabel(_AXES[column])
            panel.set_title(f"{title} ({counts(series, '')})", loc="left")
        return style.legend(drawn, axes, columns=columns)


def selection(evidence: Evidence) -> Figure | Missing:
    """Draw figure 8: highest-load-first against random objects: (a) cost, (b) migrations."""
    ways = ("highest", "random")
    found = {way: runs.cells(evidence.table, runs.ALP, kind="s1", selection=way) for way in ways}
    if found["random"].empty:
        return Missing("plans by alp with selection highest and random")
    order = runs.sizes(found["random"])
    rows = {way: its[its["size"].isin(order)] for way, its in found.items()}
    titles = {"cost": "(a) Cost", "moves": "(b) Migrations"}
    return _compared(rows, order, titles, columns=3)


def speedup(evidence: Evidence) -> Figure | Missing:
    """Draw figure 9: dividing and relaxing: (a) cost, (b) time to decide."""
    table = evidence.table
    varied = table[table["series"].isin(runs.COMBINATIONS[:3])]
    if varied.empty:
        return Missing("plans by alp with divide none and dc, program ilp and lp")
    order, kind = runs.sizes(varied), str(varied["kind"].mode().iloc[0])
    rows = {
        series: runs.cells(table, runs.ALP, kind=kind, series=series)
        for series in runs.COMBINATIONS
    }
    rows = {series: its[its["size"].isin(order)] for series, its in rows.items()}
    titles = {"cost": f"(a) Cost, {kind.upper()}", "decision_s": f"(b) Time, {kind.upper()}"}
    return _compared(rows, order, titles, columns=5)


def optimum(evidence: Evidence) -> Figure | Missing:
    """Draw figure 10: ALP and the exact optimum: (a) cost, (b) time to decide."""
    exact = runs.cells(evidence.table, "opt")
    if exact.empty:
        return Missing("plans by opt for small instances")
    order, kind = runs.sizes(exact), str(exact["kind"].mode().iloc[0])
    rows = {method: runs.cells(evidence.table, method, kind=kind) for method in SMALL}
    rows = {method: _same(its, exact) for method, its in rows.items()}
    titles = {"cost": f"(a) Cost, {kind.upper()}", "decision_s": f"(b) Time, {kind.upper()}"}
    return _compared(rows, order, titles, columns=3)


def _same(rows: pd.DataFrame, exact: pd.DataFrame) -> pd.DataFrame:
    """Return runs for the instances that OPT solved and that needed moves."""
    solved = exact[(exact["hot_after_swaps"] > 0) & (exact["hot_after"] == 0)]
    keys = set(zip(solved["size"], solved["seed"], strict=True))
    here = [key in keys for key in zip(rows["size"], rows["seed"], strict=True)]
    return rows[np.array(here, dtype=bool)]


def methods(evidence: Evidence, kinds: Sequence[str] = ("s1",)) -> Figure | Missing:
    """Draw figure 11: (a) cost, (b) time, (c) migrations, (d) standard deviation of the nodes'
    loads; one row of panels per kind."""
    table = evidence.table[evidence.table["partitions"] >= runs.LARGE]
    rows = {
        kind: {method: runs.cells(table, method, kind=kind) for method in METHODS} for kind in kinds
    }
    there = [kind for kind in kinds if len(rows[kind]["sa"])]
    if not there:
        return Missing(f"plans by alp, alp-fast, htoc and sa of kind {' or '.join(kinds)}")
    columns = 2 if len(there) == 1 else 4
    panels_in = 4 * len(there) // columns
    width = 9.6 if columns == 2 else 16.0
    with style.figure(panels_in, columns, width=width, height=3.7 * panels_in) as (drawn, axes):
        for index, kind in enumerate(there):
            _methods_of(axes[4 * index : 4 * index + 4], kind, rows[kind])
        return style.legend(drawn, axes, columns=3 if columns == 2 else 6)


def _methods_of(axes: Sequence[Axes], kind: str, rows: dict[str, pd.DataFrame]) -> None:
    everything = pd.concat([its for its in rows.values() if len(its)])
    order = runs.sizes(everything[everything["method"] != runs.OURS])
    shown = {
        method: its[its["size"].isin(order)].assign(
            sd_change=lambda its: its["load_sd_after"] / its["load_sd_before"]
        )
        for method, its in rows.items()
    }
    texts = {
        "cost": ("(a) Cost", COST),
        "decision_s": ("(b) Time", SECONDS),
        "moves": ("(c) Migrations", MOVES),
        "sd_change": ("(d) Deviation", "Deviation of the nodes' loads\nover that before"),
    }
    for panel, (column, (mark, text)) in zip(axes, texts.items(), strict=True):
        series = [(_look(one, METHODS), _by_size(shown[one], column)) for one in METHODS]
        ringed = [_limited(shown[one]) for one in METHODS]
        _draw(panel, order, series, ringed, log=column != "sd_change")
        if column == "decision_s" and kind == "s1" and STATED_AT in order:
            style.paper_marker(panel, order.index(STATED_AT), STATED_SECONDS)
            panel.set_ylim(top=max(panel.get_ylim()[1], 2 * STATED_SECONDS))
        if column == "sd_change":
            _stated_line(panel, 1.0, runs.LABELS["none"])
        panel.set_ylabel(text)
        panel.set_title(f"{mark}, {kind.upper()} ({counts(series, '')})", loc="left")


PAPER_SLOW = (20.0, 10.0)
"""Figure 4: "more than 10 seconds at ... 20 writes/s in write requests for 32MB block size"."""

_STRICTER = (
    ("censored_good_s", "s", "mean time until stable to the run's end"),
    ("censored_strict_s", "x", "mean time until the last slow write"),
)
_LATENCIES = (("latency_p99_s", "99th percentile", "-"), ("latency_mean_s", "mean", "--"))
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def load(evidence: Evidence) -> Figure | Missing:
    """Draw figure 4: response time against the writes per second of one node."""
    rows = evidence.table[evidence.table["scenario"] == "single"]
    if rows.empty:
        return Missing("open-loop writes to one node at several rates (scenario single)")
    series = []
    for index, (size, mine) in enumerate(rows.groupby("object_size")):
        for column, words, line in _LATENCIES:
            text = f"{bytes_text(int(str(size)))} writes, {words}"
            look = Look(text, _PALETTE[index % len(_PALETTE)], line=line)
            series.append((look, _above_zero(points(mine, "rate", column))))
    rates = sorted({rate for _, found in series for rate in found})
    with style.figure() as (drawn, (panel,)):
        lines(panel, series, rates, to_scale=True)
        style.paper_marker(panel, *PAPER_SLOW, text="the paper: 32 MB writes, more than this")
        panel.axhline(STABLE_S, color="black", linewidth=0.8, linestyle=":")
        style.magnitudes(panel)
        panel.set_xlim(left=0)
        panel.set_xlabel("writes a second on the node")
        panel.set_ylabel("response time (s)")
        panel.set_title(f"{counts(series)} at each rate", loc="left")
        return style.legend(drawn, [panel], columns=2)


def _above_zero(found: Points) -> Points:
    """Cut intervals that extend below zero: a logarithmic axis cannot show their ends."""
    return {at: replace(one, low=max(one.low, 0.1 * one.value)) for at, one in found.items()}


def response(evidence: Evidence) -> Figure | Missing:
    """Draw figure 12: response time of each request over time, by network and controller."""
    rows = runs.rebalancing(evidence.table)
    networks = [network for network in runs.NETWORKS if (rows["network"] == network).any()]
    if not networks:
        return Missing("open-loop writes with hot nodes (scenario skew) under ursa and HtoC")
    size = runs.live_sizes(rows)[-1]
    rows = rows[rows["size"] == size]
    networks = [network for network in networks if (rows["network"] == network).any()]
    shown = [c for c in runs.CONTROLLERS if (rows["controller"] == c).any()]
    with style.figure(
        len(networks), len(shown), width=2.6 * len(shown) + 0.8, height=2.3 * len(networks) + 0.7
    ) as (drawn, axes):
        for place, panel in enumerate(axes):
            network, controller = networks[place // len(shown)], shown[place % len(shown)]
            mine = rows[(rows["network"] == network) & (rows["controller"] == controller)]
            _requests(panel, evidence, mine)
            if place < len(shown):
                panel.set_title(runs.CONTROLLERS[controller][0], fontsize="medium")
            if place % len(shown) == 0:
                panel.set_ylabel(f"{network}, {size}\nresponse time (s)")
            if place >= len(axes) - len(shown):
                panel.set_xlabel("elapsed time (s)")
        _same_limits(axes)
        return drawn


def _requests(panel: Axes, evidence: Evidence, rows: pd.DataFrame) -> None:
    """Draw the requests of one run: the first block's."""
    style.magnitudes(panel)
    panel.axhline(STABLE_S, color="black", linewidth=0.8, linestyle=":")
    if rows.empty:
        panel.text(0.5, 0.5, "not run", ha="center", va="center", transform=panel.transAxes)
        return
    first = rows.sort_values(["block", "campaign"]).iloc[:1]
    row, (run,) = first.iloc[0], evidence.runs_of(first)
    _, colour = runs.CONTROLLERS[str(row["controller"])]
    t_s, latency_s = run.reduced("response times", _response_times)
    panel.scatter(t_s, latency_s, s=2, color=colour, alpha=0.35, linewidths=0, rasterized=True)
    panel.axvline(float(row["called_s"]), color="black", linewidth=0.9)
    panel.text(float(row["called_s"]), 0.02, " L", transform=panel.get_xaxis_transform())
    if pd.notna(row["settled_s"]):
        at = float(row["called_s"]) + float(row["settled_s"])
        panel.axvline(at, color=colour, linewidth=1.2, linestyle="--")
        words = f"stable after {row['settled_s']:.0f} s (for {HOLD_S:g} s)"
    else:
        words = "not stable"
    text = panel.text(0.97, 0.95, words, transform=panel.transAxes, ha="right", va="top")
    text.set(fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _response_times(loaded: LoadedRun) -> list[list[float]]:
    """Return start and response times of a run's answered requests on a grid finer than the
    picture's, each point once."""
    done = pd.read_parquet(loaded.file("requests.parquet")).dropna(subset=["latency_s"])
    step = max(float(np.ptp(done["t_s"])) / GRID, 1e-9) if len(done) else 1.0
    at = np.rint(done["t_s"].to_numpy(float) / step)
    height = np.rint(np.log10(done["latency_s"].to_numpy(float).clip(1e-6)) * GRID_OF_TEN)
    points = np.unique(np.column_stack([at, height]), axis=0)
    return [(points[:, 0] * step).tolist(), (10 ** (points[:, 1] / GRID_OF_TEN)).tolist()]


def _same_limits(axes: Sequence[Axes]) -> None:
    low = min(panel.get_ylim()[0] for panel in axes)
    high = max(panel.get_ylim()[1] for panel in axes)
    right = max(panel.get_xlim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(max(low, 1e-3), 2 * high)
        panel.set_xlim(0, right)


def settling(evidence: Evidence) -> Figure | Missing:
    """Draw figure 13: time until stable, number of migrations, and their cost, by size."""
    rows = runs.rebalancing(evidence.table, network=runs.CONTROLLED)
    if rows.empty:
        return Missing(
            f"open-loop writes with hot nodes (scenario skew), network {runs.CONTROLLED}"
        )
    order = runs.live_sizes(rows)
    by_controller = {name: rows[rows["controller"] == name] for name in runs.CONTROLLERS}
    unsettled = {
        (runs.CONTROLLERS[name][0], str(size))
        for name, mine in by_controller.items()
        for size in mine.loc[mine["settled_s"].isna(), "size"]
    }
    texts = {
        "censored_s": "seconds until stable",
        "moves": "migrations",
        "cost": "cost of migrations (distance)",
    }
    with style.figure(1, 3, width=9.6, height=3.4) as (drawn, axes):
        for panel, (column, words) in zip(axes, texts.items(), strict=True):
            found = [
                (Look(*runs.CONTROLLERS[name]), points(mine, "size", column))
                for name, mine in by_controller.items()
            ]
            censored = unsettled if column == "censored_s" else ()
            places = bars(panel, order, [one for one in found if one[1]], hatched=censored)
            if column == "censored_s":
                _stricter(panel, by_controller, places)
            panel.set_ylabel(words)
            panel.set_xlabel("OSDs-placement groups")
        if unsettled:
            axes[0].set_title("hatched: some never became stable", fontsize="small")
        return style.legend(drawn, axes)


def _stricter(
    panel: Axes, rows: dict[str, pd.DataFrame], places: dict[tuple[str, str], float]
) -> None:
    """Mark means of stricter settling times at the bars; no mark hides another at its place."""
    for column, marker, text in _STRICTER:
        for name, mine in rows.items():
            for size, here in mine.groupby("size"):
                panel.plot(
                    places[runs.CONTROLLERS[name][0], str(size)],
                    here[column].mean(),
                    marker=marker,
                    markersize=6,
                    markerfacecolor="none",
                    linestyle="none",
                    color="black",
                    label=text,
                )


HEADS = ("kind", "size", "method", "n", "hot", "after swaps", "after", "moves", "cost", "seconds")


def tables(table: pd.DataFrame) -> list[Table]:
    """Return tables of means over instances: hot nodes before, after swaps and finally, and
    geometric means of cost, migrations and seconds with 95 % intervals."""
    planned = table[table["method"] != INPUTS]
    keys = ["kind", "nodes", "partitions", "size", "method", "selection", "series"]
    rows = tuple(
        (str(kind).upper(), str(size), _name(str(method), str(selection), series), *_numbers(mine))
        for (kind, _, _, size, method, selection, series), mine in planned.groupby(
            keys, dropna=False
        )
    )
    return [Table("methods", "Results of every method", HEADS, rows)] if rows else []


def _name(method: str, selection: str, series: Any) -> str:
    parts = [runs.LABELS.get(method, method)]
    if not pd.isna(series) and series != "DC+LP":
        parts.append(str(series))
    if selection != "highest":
        parts.append(f"{selection} objects")
    return ", ".join(parts)


def _numbers(rows: pd.DataFrame) -> tuple[str, ...]:
    counted = ("hot_before", "hot_after_swaps", "hot_after")
    hot = [value_text(average(rows, name), ",.4g") for name in counted]
    numbers = (geometric(rows, name) for name in ("moves", "cost", "decision_s"))
    rest = [interval_text(one, ",.4g", ",.3g") for one in numbers]
    limited = int(rows["limited"].sum()) if "limited" in rows.columns else 0
    if limited:
        rest[-1] += f" ({limited} ended by the limit)"
    return (str(len(rows)), *hot, *rest)


BANNER = (
    "<b>Simulated</b> where a figure says so: the planner's decisions for generated instances, as "
    "in section 5.1 of the paper. Costs and numbers of operations depend only on the "
    "algorithms; seconds depend on the machine that planned. The instances are not "
    "the paper's, which are not public (docs/ursa.md)."
)

_MEAN = "Geometric means over instances with 95 % intervals; all methods plan for the same ones."
_LIMIT = "A circle: its time limit ended some decisions, and the best plan until then counts."

PLANNER_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "1",
        "Skew of the nodes' load",
        "Inputs, not a result: the paper shows Hotmail's clusters, these are generated. Bands: all "
        "instances.",
        skew,
    ),
    FigureEntry(
        "3",
        "Loads, as a shape",
        "Inputs, not a result. The paper shows one server's requests over a week, which vary by "
        "about 10 times; a generated instance has no time: here are its nodes' loads against their "
        "capacities, and its partitions' loads.",
        shape,
    ),
    FigureEntry(
        "7",
        "Effect of swaps and migrations",
        "Means over instances with 95 % intervals (numbers of operations: geometric ones). The "
        "paper states one third, and no numbers of operations.",
        swaps,
    ),
    FigureEntry(
        "8",
        "Choice of the objects that leave",
        f"{_MEAN} Both placed by ALP. The paper states no numbers.",
        selection,
    ),
    FigureEntry(
        "9",
        "Dividing and relaxing",
        f"Algorithm 1 in its four variants. {_MEAN} {_LIMIT} The paper leaves out "
        "NONE+ILP and DC+ILP at 150-150K, which took it more than two days.",
        speedup,
    ),
    FigureEntry(
        "10",
        "ALP and the optimum",
        f"Small instances that OPT relieved and in which something had to move. {_MEAN} {_LIMIT} "
        "The sizes are those of section 5.2; the paper's are not in its text.",
        optimum,
    ),
    FigureEntry("11", "ALP, HtoC and SA", f"{_MEAN} {_LIMIT}", partial(methods, kinds=("s1",))),
    FigureEntry(
        "11-tight",
        "The same on tight and clustered instances (not in the paper)",
        f"{_MEAN} {_LIMIT}",
        partial(methods, kinds=("s2", "s3")),
    ),
)

_ONE = (
    "The first block's run of each. L: the controller decides. Dotted: 1 s, the limit for stable."
)
_SETTLED = (
    f"Stable: from then on, for {HOLD_S:g} s, 99 % of the writes of every {WINDOW_S:g} s are "
    f"answered within {STABLE_S:g} s. Squares: the same to the end of the run; crosses: every "
    "later write is. Runs that never become stable count with their observed time."
)

LIVE_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "4",
        "Response time against the load on one node",
        "Open-loop writes: a latency counts from when the write was due. The paper's system is its "
        "own store on Azure, with larger blocks.",
        load,
    ),
    FigureEntry(
        "12",
        "Response time of each request over elapsed time",
        f"{_ONE} Stable after: for {HOLD_S:g} s. The paper, 30-900: ALP stable about 30 s (Random) "
        "and 140 s (Controlled) before HtoC.",
        response,
    ),
    FigureEntry(
        "13",
        "Time until stable and migrations, Controlled",
        f"Means over blocks with 95 % intervals. {_SETTLED} The paper: two times faster at "
        "50-2500, and a similar number of migrations.",
        settling,
    ),
)

SIMULATED_FIGURES: tuple[FigureEntry, ...] = tuple(
    replace(
        entry,
        id=f"{entry.id}-sim",
        title=f"{entry.title} (simulated)",
    )
    for entry in LIVE_FIGURES
)

PLANNER = Part(
    (*PLANNER_CLAIMS, *PLANNER_STATEMENTS),
    PLANNER_FIGURES,
    "ursa",
    True,
    tabulate=runs.planner_table,
    tables=tables,
)
LIVE = Part(
    (*LIVE_CLAIMS, *LIVE_STATEMENTS),
    LIVE_FIGURES,
    simulated=False,
    models=(OpenLoopWrites,),
    tabulate=runs.live_table,
    command="hotbed run ursa-live --figure {figure}",
)
SIMULATED = Part(
    (*SIMULATED_CLAIMS, *SIMULATED_STATEMENTS),
    SIMULATED_FIGURES,
    simulated=True,
    models=(OpenLoopWrites,),
    tabulate=runs.live_table,
    command="hotbed run ursa-live-50 --figure {figure}",
)
"""Open-loop writes on a modelled store: fifty OSDs, or the stores run with ``--ground sim``."""

PARTS: tuple[Part, ...] = (PLANNER, LIVE, SIMULATED)
"""All figures and claims of the paper. Each part uses the runs of one ground; runs of different
grounds are never pooled."""
