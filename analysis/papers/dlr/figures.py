"""Figures 1, 3 to 11 and S1: cost of disturbance, load against throughput, controllers, DLR over
time. Means of runs, or ratios to default Ceph paired by block, with 95 % intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import stats, style
from analysis.core.claims import Evidence
from analysis.core.evidence import average, known, quotient, values_of, where
from analysis.core.figures import FigureEntry, Missing, bytes_text
from analysis.core.load import LoadedRun
from analysis.core.panels import Look, Points, bars, counts, errors, lines, points
from analysis.core.papers import Part
from analysis.core.pooling import random_effects
from analysis.core.stats import Estimate, amount
from analysis.papers.dlr import runs
from analysis.papers.dlr.claims import CLAIMS, STATED, block_ratios, shape_logs
from analysis.papers.dlr.statements import STATEMENTS
from schemas.cells.dlr import Bench

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = list[tuple[Look, Points]]

_NUMBERS = {one.id: one.paper_value or 0.0 for one in STATED}
"""The paper's 14 numbers by claim."""


def _stated_ratio(scenario: str, what: str, op: str) -> float:
    """Return the paper's number for DLR over default Ceph (sections V-C and V-D). The paper states
    no values for write or for reweight."""
    gain = _NUMBERS[f"dlr-{scenario}-{op}-{what}"]
    return 1 + gain if what == "throughput" else 1 - gain


def _looks(controllers: Sequence[str]) -> dict[str, Look]:
    """Return the appearance of controllers, in the papers' order."""
    return {
        name: Look(style.label(name), style.colour(name)) for name in style.in_order(controllers)
    }


def _controllers(rows: pd.DataFrame) -> list[str]:
    return [str(name) for name in rows["controller"].dropna().unique()]


def degradation(evidence: Evidence, scenario: str, what: str) -> Figure | Missing:
    """Draw figures 1a-d: each mode with and without disturbance, absolute, mean of runs with 95 %
    confidence interval. The diamond marks the paper's worst case."""
    metric = "throughput_mb_s" if what == "throughput" else "latency_s"
    sides: dict[str, dict[str, Estimate]] = {"none": {}, scenario: {}}
    for op in runs.OPS:
        rows = {
            side: runs.select(evidence.table, op=op, scenario=side, controller="default")
            for side in sides
        }
        found = {side: average(its, metric) for side, its in rows.items()}
        for side, one in found.items():
            if one is not None and None not in found.values():
                sides[side][runs.OP_NAMES[op]] = one
    calm, hot = sides.values()
    if not calm:
        return Missing(f"runs of default Ceph with scenario none and {scenario}")
    with style.figure() as (drawn, (axes,)):
        series = [(Look("no disturbance", "#4477AA"), calm), (Look(scenario, "#EE6677"), hot)]
        changes = {op: hot[op].value / calm[op].value for op in calm}
        stated = _NUMBERS[f"{scenario}-{what}"]
        worst = (min if what == "throughput" else max)(changes, key=lambda op: changes[op])
        factor = 1 - stated if what == "throughput" else stated
        diamond = {(scenario, worst): calm[worst].value * factor}
        places = bars(axes, list(calm), series, stated=diamond, stated_text="paper's worst change")
        for op, change in changes.items():
            axes.annotate(
                f"{change - 1:+.0%}" if what == "throughput" else f"{change:.2f}x",
                (places[scenario, op], 0),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color="white",
                fontweight="bold",
            )
        axes.set_ylabel("Throughput (MB/s)" if what == "throughput" else "Mean latency (s)")
        axes.set_title(f"Rados bench {what} under {scenario} ({counts(series)})")
        return style.legend(drawn, [axes])


def normalized(evidence: Evidence, scenario: str, what: str) -> Figure | Missing:
    """Draw figures 6a-b and 8a-b: controllers over default Ceph, paired by block, geometric mean
    with 95 % confidence interval. Rand is in IOPS as in the paper; inert cells are hatched."""
    table = evidence.table
    looks = _looks(_controllers(table[table["scenario"] == scenario]))
    mine = partial(runs.select, table, scenario=scenario)
    series: Series = [(look, _by_op(mine, what, controller=name)) for name, look in looks.items()]
    inert = {
        (look.label, runs.OP_NAMES[op])
        for (name, look), (_, found) in zip(looks.items(), series, strict=True)
        for op in runs.OPS
        if runs.OP_NAMES[op] in found and mine(op=op, controller=name)["inert"].all()
    }
    if not any(found for look, found in series if look.label != style.label("default")):
        return Missing(f"blocks with default and another controller under {scenario}")
    groups = [
        runs.OP_NAMES[op]
        for op in runs.OPS
        if any(runs.OP_NAMES[op] in found for _, found in series)
    ]
    stated = {
        (style.label("dlr"), runs.OP_NAMES[op]): _stated_ratio(scenario, what, op)
        for op in ("seq", "rand")
    }
    better = "higher" if what == "throughput" else "lower"
    title = f"{scenario.capitalize()}: {what} by controller ({better} is better, {{}})"
    axis = what.capitalize()
    return _over_default(groups, series, title=title, what=axis, stated=stated, hatched=inert)


def _by_op(
    rows: Callable[..., pd.DataFrame],
    what: str = "throughput",
    ops: Sequence[str] = runs.OPS,
    **treated: object,
) -> dict[str, Estimate]:
    """Return ratios of `treated` runs to default Ceph by operation, paired by block; `rows` selects
    runs by parameters."""
    return known(
        {
            runs.OP_NAMES[op]: quotient(
                rows(op=op, **treated),
                rows(op=op, controller="default"),
                runs.metric_of(op, what),
                keys=runs.BLOCKS,
            )
            for op in ops
        }
    )


def _over_default(
    groups: Sequence[str],
    series: Series,
    *,
    title: str,
    what: str = "Throughput",
    **more: Any,
) -> Figure:
    """Draw bars of ratios to default Ceph; ``{}`` in the title is the number of blocks."""
    with style.figure(width=7.2) as (drawn, (axes,)):
        bars(axes, groups, series, **more)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_ylabel(f"{what} / default Ceph")
        axes.set_title(title.format(counts(series, "")))
        return style.legend(drawn, [axes])


SIGNALS = {
    "node": Look("the node's disk pressure\n(%iowait or its stand-in)", "#0072B2"),
    "osd": Look("the OSD's own pressure\n(without fio's)", "#56B4E9"),
    "op_r_latency": Look("the OSD's read latency\n(op_r_latency)", "#CC79A7"),
}


def by_signal(evidence: Evidence) -> Figure | Missing:
    """Draw DLR over default Ceph under heterogeneity for each signal, paired by block (beyond the
    paper)."""
    hot = partial(runs.select, evidence.table, scenario="heterogeneity")
    series: Series = [
        (look, found)
        for signal, look in SIGNALS.items()
        if (found := _by_op(hot, controller="dlr", signal=signal))
    ]
    if len(series) < 2:
        return Missing("DLR runs steered by the OSD's own pressure and by op_r_latency")
    names = runs.OP_NAMES.values()
    groups = [op for op in names if sum(op in found for _, found in series) > 1]
    return _over_default(groups, series, title="DLR by signal, heterogeneity ({})")


def reweight_limits(evidence: Evidence) -> Figure | Missing:
    """Draw reweight-by-utilization without limits, as in the paper, and with those of later
    releases, over default Ceph: on FileStore, where it sees fio's files, and on BlueStore (beyond
    the paper)."""
    looks = _looks(["default", "reweight", "reweight-capped"])
    stores = {"filestore": "FileStore", "bluestore": "BlueStore"}
    by_controller: dict[str, dict[str, Estimate]] = {name: {} for name in looks}
    for store, title in stores.items():
        hot = partial(runs.select, evidence.table, scenario="heterogeneity", objectstore=store)
        for controller, found in by_controller.items():
            by_op = _by_op(hot, ops=("seq", "rand"), controller=controller)
            found |= {f"{op}, {title}": one for op, one in by_op.items()}
    series: Series = [(look, by_controller[name]) for name, look in looks.items()]
    if not all(found for _, found in series):
        return Missing("blocks with default, reweight and reweight-capped under heterogeneity")
    title = "reweight-by-utilization and its limits ({})"
    return _over_default(list(series[0][1]), series, title=title)


def shapes(evidence: Evidence) -> Figure | Missing:
    """Draw DLR over default Ceph under heterogeneity on each shape of `dlr-shapes`: geometric mean
    and blocks, pooled by random effects; apart from them the calibrated disk and boundaries."""
    table, ops = evidence.table, ("seq", "rand")
    found = {op: shape_logs(table, op, "throughput") for op in ops}
    if any(len(logs) < 2 for logs in found.values()):
        return Missing("runs of dlr-shapes on several specs")
    boundaries = sorted({disk for disk in table["disk"] if disk.startswith(runs.BOUNDARY)})
    with style.figure(1, len(ops), width=10, height=4.4) as (drawn, axes):
        for axis, op in zip(axes, ops, strict=True):
            rows = [
                (f"{disk}, {osds} OSDs", [float(np.exp(log)) for log in logs])
                for (disk, osds), logs in found[op].items()
            ]
            pooled = random_effects(list(found[op].values()))
            apart = [("calibrated disk", block_ratios(table, op, "throughput", {}))]
            apart += [
                (disk, block_ratios(table, op, "throughput", {"disk": disk})) for disk in boundaries
            ]
            low, high = np.exp(pooled.interval())
            middle = float(np.exp(pooled.mean))
            names = [*(text for text, _ in rows), "pooled", *(text for text, one in apart if one)]
            for place, (_, ratios) in enumerate(rows):
                axis.plot(ratios, [place] * len(ratios), "o", color="#88BBDD", markersize=4)
                axis.plot(_geometric(ratios), place, "s", color=style.colour("dlr"))
            width = [[middle - low], [high - middle]]
            axis.errorbar(middle, len(rows), xerr=width, fmt="D", color="black", capsize=4)
            for place, ratios in enumerate([one for _, one in apart if one], len(rows) + 1):
                axis.plot(ratios, [place] * len(ratios), "o", color="#BBBBBB", markersize=4)
                axis.plot(_geometric(ratios), place, "s", color="#777777")
            axis.axvline(1, color="black", linewidth=0.8)
            stated = _stated_ratio("heterogeneity", "throughput", op)
            axis.axvline(stated, linestyle=":")
            axis.set_yticks(range(len(names)), names)
            axis.invert_yaxis()
            axis.set_xlabel(f"Throughput / default Ceph\n(dotted: the paper, {stated:g})")
            blocks = sum(len(ratios) for _, ratios in rows)
            axis.set_title(f"{runs.OP_NAMES[op]}, heterogeneity (n = {blocks} blocks)")
        return drawn


def _geometric(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))


_LOG_ROOM = 3.0
"""A logarithmic axis extends by this factor on both sides; wider intervals are cut there."""

_NOUNS = {"write": "writes", "seq": "sequential reads", "rand": "random reads"}
_OFFERED = {"A": "10 %", "B": "25 %", "C": "50 %", "D": "75 %", "E": "100 %"}


def _heights(axes: Axes, *found: Points, order: Sequence[Any] = ()) -> None:
    """Start the vertical axis at 0 and keep it readable if few runs make an interval very wide.
    Lines are over settings by value, or over their places in `order`."""
    shown = [(at, one) for its in found for at, one in its.items()]
    ends = [(order.index(at) if order else at, one.high) for at, one in shown]
    style.limit_intervals(axes, [one.value for _, one in shown], ends)


def _signal(rows: pd.DataFrame) -> str:
    names = {"io_pressure": "I/O pressure (stands in for %iowait)", "iowait": "%iowait"}
    used = [names.get(str(name), str(name)) for name in rows["signal_used"].dropna().unique()]
    return " / ".join(used) or "pressure"


def load_mix(evidence: Evidence, op: str = "seq") -> Figure | Missing:
    """Draw figure 3: mean pressure over OSD nodes and throughput for mixes A-E. The paper shows
    sequential reads and reports similar results for the others. It grows fio's files from 250 MB to
    4 GB. On the local site the mixes are offered loads of 10 to 100 % of each node's disk, with
    labels that say so."""
    rows = where(evidence.table, scenario="mix", op=op)
    mixes = [str(mix) for mix in values_of(rows, "mix")]
    if len(mixes) < 2:
        return Missing(f"{_NOUNS[op]} under load mixes A-E (scenario mix)")
    pressure, speed = (points(rows, "mix", one) for one in ("pressure_mean", "throughput_mb_s"))
    local = set(rows["ground"]) <= {"local", "sim", "fake"}
    ticks = [f"{mix}\n{_OFFERED[mix]} offered" if local else mix for mix in mixes]
    with style.figure() as (drawn, (axes,)):
        bars(axes, mixes, [(Look(_signal(rows), "#DDCC77"), pressure)])
        axes.set_ylabel("Mean over OSD nodes (%)")
        axes.set_ylim(0, 119)
        other = axes.twinx()
        other.grid(False)
        series = [(Look("throughput", "#0072B2"), speed)]
        lines(other, series, mixes, ticks)
        _heights(other, speed, order=mixes)
        other.set_ylabel(f"{runs.OP_NAMES[op]} (MB/s)")
        axes.set_xticks(range(len(mixes)), ticks)
        axes.set_xlabel("Server load mix")
        axes.set_title(f"Mean pressure, and throughput of {_NOUNS[op]} ({counts(series)})")
        return style.legend(drawn, [axes, other])


def load_spread(evidence: Evidence) -> Figure | Missing:
    """Draw figure 4: throughput against the spread of pressure over nodes, mean load constant."""
    rows = where(evidence.table, scenario="spread", op="seq")
    spreads = values_of(rows, "spread")
    if len(spreads) < 2:
        return Missing("sequential reads with several spreads of load (scenario spread)")
    groups = [rows[rows["spread"] == value] for value in spreads]
    with style.figure() as (drawn, (axes,)):
        x = [amount(group["pressure_sd"].tolist()) for group in groups]
        y = [amount(group["throughput_mb_s"].tolist()) for group in groups]
        axes.errorbar(
            [estimate.value for estimate in x],
            [estimate.value for estimate in y],
            xerr=errors(x),
            yerr=errors(y),
            fmt="o-",
            color="#0072B2",
            capsize=3,
        )
        for number, (value, place, height) in enumerate(zip(spreads, x, y, strict=True)):
            axes.annotate(
                f"{50 * (1 - value):.0f} / {50 * (1 + value):.0f} %",
                (place.value, height.value),
                xytext=(4, -15 if number % 2 else 7),  # neighbours may be close together
                textcoords="offset points",
                fontsize="small",
            )
        axes.set_xlabel(f"Standard deviation over nodes (percentage points)\nof {_signal(rows)}")
        axes.set_ylabel("Sequential read (MB/s)")
        _heights(axes, dict(zip([estimate.value for estimate in x], y, strict=True)))
        axes.margins(x=0.15)
        n = stats.counts(y)
        axes.set_title(f"Spread of load over nodes, mean offered load held at 50 % ({n})")
        return drawn


_THETAS = {
    "theta_i": (r"$\theta_i$", 0.2, "imbalance"),
    "theta_h": (r"$\theta_h$ (%)", 50.0, "upper"),
    "theta_l": (r"$\theta_l$ (%)", 20.0, "lower"),
}
"""Symbol, the paper's value and name of each threshold (section IV-D)."""


def threshold(evidence: Evidence) -> Figure | Missing:
    """Draw figure 5: sequential read throughput of DLR over each threshold, the others as in the
    paper. The runs with theta_i = 0.2 have the paper's value of all three."""
    rows = where(evidence.table, controller="dlr", op="seq", scenario="interference")
    given = rows["variant"].map(json.loads)
    paper = given.map(lambda found: found == {"theta_i": 0.2})
    swept: dict[str, Points] = {}
    for theta, (_, chosen, _) in _THETAS.items():
        values = given.map(lambda found, theta=theta: found.get(theta) if len(found) == 1 else None)
        mine = rows.assign(**{theta: values.mask(paper, chosen)}).dropna(subset=[theta])
        found = points(mine, theta, "throughput_mb_s")
        if len(found) > 1:
            swept[theta] = found
    if not swept:
        return Missing("DLR runs with several values of a threshold")
    with style.figure(1, len(swept), width=4.4 * len(swept), height=3.8) as (drawn, axes):
        for axis, (theta, speed) in zip(axes, swept.items(), strict=True):
            symbol, chosen, word = _THETAS[theta]
            axis.bar(
                range(len(speed)),
                [estimate.value for estimate in speed.values()],
                0.6,
                color=[style.colour("dlr") if value == chosen else "#88BBDD" for value in speed],
                yerr=errors(list(speed.values())),
                capsize=3,
            )
            axis.set_xticks(range(len(speed)), [f"{value:g}" for value in speed])
            axis.set_xlabel(f"{symbol}: the paper chooses {chosen:g} (dark)")
            axis.set_title(f"DLR's {word} threshold ({stats.counts(speed.values())} runs)")
        axes[0].set_ylabel("Sequential read (MB/s)")
        return drawn


def object_sizes(evidence: Evidence, op: str = "seq") -> Figure | Missing:
    """Draw figure 10: throughput and latency over object sizes, both scenarios. The paper shows
    sequential reads and reports similar improvements for the others."""
    scenarios = ("heterogeneity", "interference")
    rows = runs.sweep(evidence.table, "object_size", op, *scenarios)
    shown = [s for s in scenarios if rows[rows["scenario"] == s]["object_size"].nunique() > 1]
    if not shown:
        return Missing(f"{_NOUNS[op]} with several object sizes")
    with style.figure(len(shown), 2, width=9, height=3.6 * len(shown)) as (drawn, axes):
        for row, scenario in enumerate(shown):
            for column, metric in enumerate(("throughput_mb_s", "latency_s")):
                _by_size(axes[2 * row + column], rows, scenario, metric)
        return style.legend(drawn, axes)


def _swept(rows: pd.DataFrame, column: str, metric: str) -> Series:
    """Return the mean over runs of each controller, by the values of a column."""
    series: Series = []
    for controller, look in _looks(_controllers(rows)).items():
        any_value = {column: ..., "duration_s": rows["duration_s"].iloc[0]}
        mine = runs.select(rows, controller=controller, **any_value)
        series.append((look, points(mine, column, metric)))
    return series


def _by_size(axes: Axes, rows: pd.DataFrame, scenario: str, metric: str) -> None:
    here = rows[rows["scenario"] == scenario]
    op, sizes = here["op"].iloc[0], values_of(here, "object_size")
    series: Series = [
        (look, {size / 2**20: one for size, one in found.items()})
        for look, found in _swept(here, "object_size", metric)
    ]
    axes.set_xscale("log", base=2)
    ticks = [bytes_text(int(size)) for size in sizes]
    lines(axes, series, [size / 2**20 for size in sizes], ticks, to_scale=True)
    axes.minorticks_off()
    if metric == "latency_s":
        style.magnitudes(axes)
        values = [one.value for _, found in series for one in found.values()]
        axes.set_ylim(min(values) / _LOG_ROOM, max(values) * _LOG_ROOM)
    else:
        _heights(axes, *(found for _, found in series))
    axes.set_xlabel("Object size")
    axes.set_ylabel(f"{runs.OP_NAMES[op]} (MB/s)" if metric == "throughput_mb_s" else "Latency (s)")
    axes.set_title(f"{scenario.capitalize()} ({counts(series)})")


def threads(evidence: Evidence) -> Figure | Missing:
    """Draw sequential read throughput over the number of operations in flight (section V-E: "with
    various thread counts"), by controller under heterogeneity."""
    rows = runs.sweep(evidence.table, "concurrency", "seq", "heterogeneity")
    depths = values_of(rows, "concurrency")
    if len(depths) < 2:
        return Missing("sequential reads with several numbers of operations in flight")
    series = _swept(rows, "concurrency", "throughput_mb_s")
    with style.figure() as (drawn, (axes,)):
        lines(axes, series, depths, [f"{depth:g}" for depth in depths])
        _heights(axes, *(found for _, found in series), order=depths)
        axes.set_xlabel("Operations in flight")
        axes.set_ylabel(f"{runs.OP_NAMES['seq']} (MB/s)")
        axes.set_title(f"Heterogeneity, 4 MB objects ({counts(series)})")
        return style.legend(drawn, [axes])


STEP_PARTS = ("sense_s", "decide_s", "act_s")


def affinity(evidence: Evidence, scenario: str) -> Figure | Missing:
    """Draw figures 6c and 8c: every OSD's primary affinity in one DLR run (the first block's), and
    below it the disturbed nodes."""
    for op in ("seq", "rand", "write"):
        rows = runs.select(evidence.table, op=op, scenario=scenario, controller="dlr")
        if len(rows):
            break
    else:
        return Missing(f"a DLR run under {scenario}")
    loaded = evidence.runs_of(rows.sort_values("block"))[0]
    course = {
        metric: loaded.reduced(f"course of {metric}", partial(_course, metric=metric))
        for metric in ("primary_affinity", "hot")
    }
    values, hot = (pd.DataFrame(its, columns=["node", "t_s", "value"]) for its in course.values())
    if values.empty:
        return Missing(f"samples of primary affinity in a DLR run under {scenario}")
    hot = hot.pivot_table(index="node", columns="t_s", values="value", aggfunc="last")
    rates = [3, 1] if len(hot) else [1]
    with style.figure(len(rates), 1, width=7.2, height=4.6) as (drawn, axes):
        _steps(axes[0], values)
        if len(hot):
            grid = axes[0].get_gridspec()
            assert grid is not None
            grid.set_height_ratios(rates)
            axes[1].pcolormesh(
                hot.columns.to_numpy(dtype=float),
                np.arange(len(hot)),
                hot.to_numpy(dtype=float),
                cmap="Reds",
                vmin=0,
                vmax=1.4,
                shading="nearest",
            )
            axes[1].set_yticks(np.arange(len(hot)), [str(node) for node in hot.index], fontsize=6)
            axes[1].set_ylabel("disturbed")
            axes[1].set_xlim(axes[0].get_xlim())
            axes[1].grid(False)
        axes[-1].set_xlabel(f"Time since the benchmark's start (s, time scale {_scale(loaded)})")
        axes[0].set_title(f"Primary affinity under DLR, {scenario}, {runs.OP_NAMES[op].lower()}")
        return drawn


def _course(loaded: LoadedRun, metric: str) -> dict[str, list[Any]]:
    """Return node, time (s) and value of a metric's samples."""
    samples = loaded.samples()
    mine = samples[samples["metric"] == metric]
    return {name: mine[name].tolist() for name in ("node", "t_s", "value")}


def _scale(loaded: LoadedRun) -> str:
    scale = loaded.run.time_scale
    return f"1/{1 / scale:g}" if scale < 1 else f"{scale:g}"


def _steps(axes: Axes, values: pd.DataFrame) -> None:
    import seaborn as sns

    nodes = sorted(values["node"].unique(), key=lambda node: int(str(node).split(".")[-1]))
    for index, (node, hue) in enumerate(
        zip(nodes, sns.color_palette("tab10", len(nodes)), strict=True)
    ):
        mine = values[values["node"] == node].sort_values("t_s")
        # A tiny offset separates lines with equal values.
        axes.step(mine["t_s"], mine["value"] + 0.004 * index, where="post", color=hue, label=node)
    axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1.08)
    axes.set_ylabel("Primary affinity")
    axes.legend(fontsize="x-small", ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))


def by_interval(evidence: Evidence, scenario: str) -> Figure | Missing:
    """Draw figures 7 and 9: throughput in six equal parts of the run, mean over runs with 95 %
    confidence interval."""
    by_op: dict[str, Series] = {}
    for op in runs.OPS:
        rows = where(evidence.table, scenario=scenario, op=op)
        for controller, look in _looks(_controllers(rows)).items():
            mine = runs.select(rows, controller=controller)
            parts = [runs.sixths(run) for run in evidence.runs_of(mine)]
            kept = np.array([values for values in parts if values is not None])
            if len(kept):
                found = {part + 1: amount(kept[:, part].tolist()) for part in range(runs.INTERVALS)}
                by_op.setdefault(op, []).append((look, found))
    if not by_op:
        return Missing(f"runs with per-second throughput under {scenario}")
    with style.figure(1, len(by_op), width=4.2 * len(by_op), height=3.6) as (drawn, axes):
        for axis, (op, series) in zip(axes, by_op.items(), strict=True):
            lines(axis, series, range(1, runs.INTERVALS + 1), to_scale=True)
            _heights(axis, *(found for _, found in series))
            axis.set_title(f"{runs.OP_NAMES[op]}, {scenario} ({counts(series)})")
            axis.set_xlabel("Sixth of the run")
        axes[0].set_ylabel("Throughput (MB/s)")
        return style.legend(drawn, axes, columns=5)


def overhead(evidence: Evidence) -> Figure | Missing:
    """Draw figure 11: seconds per step of DLR's Performance Monitor (sense) and Affinity Controller
    (decide and act), from the journals of every DLR run: mean of runs with interval."""
    rows = evidence.table[evidence.table["controller"] == "dlr"]
    steps: dict[str, list[float]] = {name: [] for name in STEP_PARTS}
    for run in evidence.runs_of(rows):
        means = run.reduced("seconds of a step", _step_means)
        for key, values in steps.items():
            if key in means:
                values.append(means[key])
    if not all(steps.values()):
        return Missing("journals of DLR runs")
    interval = 20 * float(rows["time_scale"].iloc[0])
    with style.figure(height=3) as (drawn, (axes,)):
        names = [
            "Performance Monitor\n(sense)",
            "Affinity Controller\n(decide)",
            "Affinity Controller\n(act)",
        ]
        estimates = [amount(values) for values in steps.values()]
        axes.barh(
            range(3),
            [1000 * estimate.value for estimate in estimates],
            0.6,
            color=["#88BBDD", "#0072B2", "#004466"],
            xerr=1000 * errors(estimates),
            capsize=3,
        )
        axes.set_yticks(range(3), names)
        axes.invert_yaxis()
        total = sum(estimate.value for estimate in estimates)
        axes.set_xlabel("Milliseconds a control step")
        axes.set_title(
            f"DLR's overhead: {1000 * total:.0f} ms of a {interval:.1f} s interval "
            f"({total / interval:.1%}), {stats.counts(estimates)} runs"
        )
        return drawn


def _step_means(loaded: LoadedRun) -> dict[str, float]:
    """Return the mean seconds of each part of a run's control steps, as far as journalled."""
    journal = [line for line in loaded.journal() if "step" in line]
    found: dict[str, list[float]] = {name: [] for name in STEP_PARTS}
    for line in journal:
        for name, times in found.items():
            if line.get(name) is not None:
                times.append(float(line[name]))
    return {name: float(np.mean(times)) for name, times in found.items() if times}


_BARS = (
    "Mean of runs with 95 % confidence intervals. Diamond: our value without disturbance, changed "
    "by the paper's worst case."
)
_PAIRED = (
    "Paired by block, geometric mean of ratios to default Ceph with 95 % confidence intervals."
)

_MEASURES = ("throughput", "latency")


def _by_controller(scenario: str, figure: int) -> Iterator[FigureEntry]:
    """Yield the figures of a scenario by controller, and the next figure by time interval."""
    for panel, what in zip("ab", _MEASURES, strict=True):
        yield FigureEntry(
            f"{figure}{panel}",
            f"{what.capitalize()} by controller, {scenario}",
            _PAIRED,
            partial(normalized, scenario=scenario, what=what),
            str(figure),
        )
    yield FigureEntry(
        f"{figure}c",
        f"Primary affinity, {scenario}",
        "One run of DLR; the lines have a small offset, so that all are visible.",
        partial(affinity, scenario=scenario),
        str(figure),
    )
    yield FigureEntry(
        f"{figure + 1}",
        f"Throughput by time interval, {scenario}",
        "Each point is the mean over runs of one sixth of the run, with 95 % interval.",
        partial(by_interval, scenario=scenario),
    )


def _other_modes(
    figure: str, title: str, caption: str, draw: Callable[..., Figure | Missing]
) -> Iterator[FigureEntry]:
    """Yield a figure for the modes that the paper does not draw."""
    for op in ("rand", "write"):
        text = f"{title}, {_NOUNS[op]}"
        yield FigureEntry(f"{figure}-{op}", text, caption, partial(draw, op=op))


FIGURES: tuple[FigureEntry, ...] = (
    *(
        FigureEntry(
            f"1{panel}",
            f"{what.capitalize()} with {words}",
            _BARS,
            partial(degradation, scenario=scenario, what=what),
            "1",
        )
        for scenario, words, panels in (
            ("heterogeneity", "four slow nodes", "ab"),
            ("interference", "moving hotspots", "cd"),
        )
        for panel, what in zip(panels, _MEASURES, strict=True)
    ),
    FigureEntry(
        "3",
        "Mean pressure and throughput",
        "Five load mixes on every OSD node; on modelled disks these are offered loads.",
        load_mix,
    ),
    *_other_modes(
        "3",
        "Mean pressure and throughput",
        "Section IV-B: similar results for the other benchmarks.",
        load_mix,
    ),
    FigureEntry(
        "4",
        "Spread of pressure and throughput",
        "The mean offered load is 50 %; half the nodes get more, half less (labels).",
        load_spread,
    ),
    FigureEntry(
        "5",
        "DLR's thresholds",
        "Sequential reads under moving hotspots; each threshold is swept with the others as in the "
        "paper.",
        threshold,
    ),
    *_by_controller("heterogeneity", 6),
    *_by_controller("interference", 8),
    FigureEntry(
        "10",
        "Object sizes",
        "Sequential reads, mean of runs with 95 % confidence intervals.",
        object_sizes,
    ),
    *_other_modes(
        "10",
        "Object sizes",
        "Section V-E: similar improvements with the other benchmarks.",
        object_sizes,
    ),
    FigureEntry(
        "10-threads",
        "Operations in flight",
        "Section V-E: similar improvements with various thread counts.",
        threads,
    ),
    FigureEntry(
        "11",
        "DLR's overhead",
        "From the journals of every DLR run, mean of runs with 95 % confidence intervals.",
        overhead,
        not_simulated="virtual time does not pass while a controller decides",
    ),
    FigureEntry(
        "reweight",
        "reweight-by-utilization and its limits (not in the paper)",
        _PAIRED,
        reweight_limits,
    ),
    FigureEntry(
        "shapes",
        "Shapes that were not used for calibration (not in the paper)",
        "Blocks (dots), their geometric means (squares), and the mean over shapes by random "
        "effects with its 95 % confidence interval (diamond). Below it, apart: the calibrated "
        "disk, and an SSD if one was simulated.",
        shapes,
        command="hotbed run dlr-shapes --spec testbed/specs/dlr-hdd7200-8.yaml",
    ),
    FigureEntry("S1", "DLR by signal (not in the paper)", _PAIRED, by_signal, "signals"),
)

PARTS = (
    Part((*CLAIMS, *STATEMENTS), FIGURES, models=(Bench,), sized=False, tabulate=runs.tabulate),
)
