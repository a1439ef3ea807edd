"""Figures of the PriorityMeister paper and figures beyond it, and the tables next to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core import stats, style
from analysis.core.claims import Evidence
from analysis.core.evidence import average, by_block
from analysis.core.figures import Missing, Table
from analysis.core.panels import Look, Points, lines, points
from analysis.core.stats import Estimate
from analysis.papers.prioritymeister.claims import (
    CAKE_SHARE,
    K_NETWORK,
    K_NORMAL,
    K_ORDERS,
    WHY_ESTIMATOR,
    WHY_HIGH,
    WHY_LOW,
    WHY_NETWORK,
    WHY_ORDERS,
    K,
    Question,
    shape_of,
)
from analysis.papers.prioritymeister.runs import (
    BEYOND,
    BROKEN,
    COLOURS,
    COLUMNS,
    LABELS,
    MORE_THAN,
    POLICIES,
    STATED,
    TAIL,
    WORKLOADS,
    bootstrap,
    cells,
    described,
    deviations,
    latency,
    met,
    proven,
    settings,
    unbounded,
    unproven,
    unproven_text,
    variants,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

MS = 1e3
MISSED = "#CC3311"
BAR_WIDTH = 0.8
PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles that runs report, if at least ten requests are slower."""
TICKS = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
GRID = np.logspace(0, -5, 200)
"""Shares of slower requests at which curves of several runs are combined."""
C2 = {"F": "1", "G": "20", "H": "40", "B": "14"}
SHAPES = {"balanced": "balanced gaps", "sharp": "sharp bursts"}
REQUESTS = "#4477AA"
LIMITERS = {
    "all": ("#0072B2", "several buckets"),
    "fast": ("#CC3311", "one: fast, shallow"),
    "slow": ("#228833", "one: slow, deep"),
}
BELOW = (("A", "medium"), ("C", "low"))
SCENARIOS = {
    "disk": "disk (5, 6, 11)",
    "burst": "burst (1, 7)",
    "misbehave": "misbehave (8)",
    "buckets": "buckets (4)",
    "network": "network (9)",
    "levels": "levels",
}
_NEEDS_DISK = f"the scenario disk with k = {K:g}"
_LETTERS = "abcdef"


# Panels.


def workload_colour(name: str) -> str:
    """Return a workload's colour, the same in every figure."""
    return WORKLOADS.get(name, "#444444")


def slo_line(axes: Axes, rows: pd.DataFrame, name: str, *, style: str = "--") -> None:
    """Draw the SLO of a workload, the median over blocks, dashed in its colour."""
    found = rows[rows["workload"] == name]["slo_s"].dropna().astype(float)
    if len(found):
        axes.axhline(
            MS * float(found.median()), color=workload_colour(name), linestyle=style, linewidth=1.1
        )


def bars(
    axes: Axes,
    rows: pd.DataFrame,
    groups: Sequence[tuple[str, pd.DataFrame]],
    percent: float,
    workloads: Sequence[str],
) -> None:
    """Draw latency at a percentile: groups of bars, one bar per workload, medians over blocks with
    95 % bootstrap intervals. Red numbers above a bar count the runs that missed the SLO. A bar
    hatched up to the top stands for requests that were never answered. No bar is drawn if a run has
    too few requests for the percentile.

    Args:
        axes: axes to draw on; the vertical axis becomes logarithmic.
        rows: all rows of the panel, for the SLOs.
        groups: name and rows of each group.
        percent: the percentile.
        workloads: workloads in order.
    """
    width = BAR_WIDTH / max(1, len(workloads))
    endless: list[tuple[float, str, str]] = []
    for w, name in enumerate(workloads):
        label: str | None = name
        for g, (_, found) in enumerate(groups):
            mine = found[found["workload"] == name]
            values = mine[f"p{percent:g}_s"].astype(float)
            estimate = None if values.isna().any() else bootstrap(values.tolist())
            if estimate is None:
                continue
            x = g + (w - (len(workloads) - 1) / 2) * width
            shown = estimate.map(lambda s: MS * s)
            colour = workload_colour(name)
            if np.isinf(shown.value):
                endless.append((x, colour, f"{int((~met(mine, percent)).sum())}/{len(mine)}"))
                continue
            axes.bar(x, shown.value, 0.92 * width, color=colour, label=label)
            label = None
            error = np.array(shown.error).reshape(2, 1)
            axes.errorbar(x, shown.value, yerr=error, color="black", linewidth=0.9, capsize=2)
            missed, count = int((~met(mine, percent)).sum()), len(mine)
            if missed:
                axes.annotate(
                    f"{missed}/{count}",
                    (x, max(shown.value, shown.high)),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=6,
                    color=MISSED,
                    rotation=90,
                )
        slo_line(axes, rows, name)
    style.magnitudes(axes)
    axes.set_xticks(range(len(groups)), [name for name, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.12)  # room for the texts above bars
    _without_end(axes, endless, 0.92 * width)
    axes.set_ylabel("Latency (ms)")


def _without_end(axes: Axes, bars: Sequence[tuple[float, str, str]], width: float) -> None:
    """Draw bars (place, colour, missed runs) of infinite latencies, up to the top of the axis."""
    for x, colour, missed in bars:
        edges = (x - width / 2, x + width / 2)
        axes.axvspan(*edges, facecolor="none", edgecolor=colour, hatch="///", linewidth=0.8)
        axes.text(
            x,
            0.5,
            f"never answered, {missed}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="center",
            fontsize=7,
            color=MISSED,
            rotation=90,
        )


def tail_curve(evidence: Evidence, row: pd.Series) -> tuple[Floats, Floats] | None:
    """Return the share of slower requests [k] and latency in ms [k] of a run's workload, as far as
    ten requests are slower; None if no histogram is kept."""
    path: Path = evidence.runs[int(row["index"])].folder / "latency.parquet"
    if not path.exists():
        return None
    kept = pd.read_parquet(path)
    mine = kept[kept["tenant"] == row["workload"]].sort_values("low_ns")
    count = mine["count"].to_numpy(float)
    total = float(row["requests"])
    slower = 1 - np.cumsum(count) / total
    shown = slower * total >= BEYOND - 0.5
    return slower[shown], mine["high_ns"].to_numpy(float)[shown] * 1e-6


def tails(
    axes: Axes,
    evidence: Evidence,
    rows: pd.DataFrame,
    *,
    colour: str,
    label: str,
    style: str = "-",
) -> None:
    """Draw latency against percentile: the median of the runs of one workload, and their range."""
    curves = []
    for _, row in rows.iterrows():
        found = tail_curve(evidence, row)
        if found is None or len(found[0]) < 2:
            continue
        slower, ms = found
        at = np.interp(-np.log10(GRID), -np.log10(slower), ms)
        at[(slower.min() > GRID) | (slower.max() < GRID)] = np.nan
        curves.append(at)
    if not curves:
        return
    stacked = np.array(curves)
    known = ~np.isnan(stacked).any(axis=0)
    x, shown = -np.log10(GRID[known]), stacked[:, known]
    axes.plot(x, np.median(shown, axis=0), style, color=colour, label=label, linewidth=1.4)
    if len(curves) > 1:
        low, high = shown.min(axis=0), shown.max(axis=0)
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)


def percentile_axis(axes: Axes, *, most: float = 99.97) -> None:
    """Set up the axes of `tails`: horizontal percentiles, higher ones to the right, and a
    logarithmic vertical axis."""
    ticks = [tick for tick in TICKS if tick <= most + 0.02]
    axes.set_xticks([-np.log10(1 - tick / 100) for tick in ticks], [f"{t:g}" for t in ticks])
    axes.set_xlim(-np.log10(0.5), -np.log10(1 - most / 100))
    style.magnitudes(axes)
    axes.set_xlabel("Percentile")
    axes.set_ylabel("Latency (ms)")


def shares(
    axes: Axes, series: Sequence[tuple[Look, Points]], order: Sequence[Any], ticks: Sequence[str]
) -> None:
    """Draw shares in percent as lines with 95 % intervals over blocks, cut at 0 and 100 %."""
    shown = [
        (look, {at: one.map(lambda v: min(max(100 * v, 0.0), 100.0)) for at, one in found.items()})
        for look, found in series
    ]
    lines(axes, shown, order, ticks)


def finish(
    drawn: Figure,
    axes: Sequence[Axes],
    folder: Path,
    name: str,
    *,
    shown: int | None = None,
    slo: bool = False,
    alike: bool = False,
    columns: int = 6,
) -> Path:
    """Hide panels after the first `shown`, draw one legend above all panels, and save the figure.

    Args:
        drawn, axes, folder, name: the figure, its panels, and the name of its file.
        shown: number of panels with content; None for all.
        slo: True to name dashed lines as the SLO in the legend.
        alike: True to set the same vertical axis for all panels.
        columns: columns of the legend.
    """
    for panel in axes[len(axes) if shown is None else shown :]:
        panel.set_visible(False)
    if alike:
        limits = [panel.get_ylim() for panel in axes[:shown]]
        for panel in axes[:shown]:
            panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    if slo:
        axes[0].plot([], [], "--", color="black", linewidth=1.1, label="SLO")
    style.legend(drawn, axes, columns=columns)
    return style.save(drawn, folder, name)


def k_of(rows: pd.DataFrame) -> str:
    """Format the values of k in the rows: ``k = 2``."""
    return "k = " + ", ".join(f"{k:g}" for k in sorted(rows["k"].unique()))


def blocks(rows: pd.DataFrame) -> str:
    """Format the number of blocks in the rows: ``n = 4``."""
    found = rows.groupby("variant")["seed"].nunique()
    if found.empty:
        return "n = 0"
    low, high = int(found.min()), int(found.max())
    return f"n = {high}" if low == high else f"n = {low} to {high}"


def known_percent(rows: pd.DataFrame, most: float = 99.9) -> float:
    """Return the highest percentile up to `most` in all rows: lower with few requests."""
    known = [p for p in PERCENTS if p <= most and rows[f"p{p:g}_s"].notna().all()]
    return max(known, default=most)


def shown_workloads(rows: pd.DataFrame) -> list[str]:
    """Return the workloads with a latency SLO, by name."""
    return sorted(set(latency(rows)["workload"]))


def _within(rows: pd.DataFrame) -> Estimate | None:
    """Return the share of requests within the SLO, as the mean over blocks."""
    return average(by_block(rows, "within"), "within")


def _by_policy(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(LABELS[name], rows[rows["variant"] == name]) for name in variants(rows)]


def _percents(rows: pd.DataFrame) -> list[float]:
    """Return the percentiles that a figure shows, each in a panel."""
    return [p for p in PERCENTS[1:] if rows[f"p{p:g}_s"].notna().any()]


# Figures 5, 6, 10 and 11: tails of workloads that share a disk, under every policy.


def tail_bars(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 5: latency of A, B and C by policy, one panel per percentile."""
    rows = latency(cells(evidence.table, "disk", k=K))
    if rows.empty:
        return Missing(_NEEDS_DISK)
    percents = _percents(rows)
    count = (len(percents) + 1) // 2
    with style.figure(count, 2, width=11.0, height=3.3 * count) as (drawn, axes):
        for panel, percent, mark in zip(axes, percents, _LETTERS, strict=False):
            bars(panel, rows, _by_policy(rows), percent, shown_workloads(rows))
            panel.set_title(
                f"({mark}) {percent:g}th percentile ({k_of(rows)}, {blocks(rows)})", loc="left"
            )
        return finish(drawn, axes, folder, name, shown=len(percents), slo=True)


def tail_lines(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 6: latency at every percentile, one panel per policy."""
    rows = latency(cells(evidence.table, "disk", k=K))
    if rows.empty:
        return Missing(_NEEDS_DISK)
    shown = variants(rows)
    columns = 4
    count = -(-len(shown) // columns)
    with style.figure(count, columns, width=12.0, height=3.1 * count) as (drawn, axes):
        for panel, variant in zip(axes, shown, strict=False):
            mine = rows[rows["variant"] == variant]
            for workload in shown_workloads(rows):
                its = mine[mine["workload"] == workload]
                tails(panel, evidence, its, colour=workload_colour(workload), label=workload)
                slo_line(panel, rows, workload)
            percentile_axis(panel)
            panel.set_title(f"{LABELS[variant]} ({k_of(mine)}, {blocks(mine)})", loc="left")
        return finish(drawn, axes, folder, name, shown=len(shown), slo=True, alike=True)


def estimators(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 10: PM with the device's profile and with the constant estimator."""
    rows = latency(cells(evidence.table, "disk", "pm", k=K, estimator=...))
    if not {"profile", "constant"} <= set(rows["estimator"]):
        return Missing(f"{_NEEDS_DISK} and both estimators")
    both = set(rows[rows["estimator"] == "constant"]["seed"])
    rows = rows[rows["seed"].isin(both)]
    groups = [
        (text, rows[rows["estimator"] == kind])
        for kind, text in (("profile", "device's\nprofile"), ("constant", "constant\nbase time"))
    ]
    percents = _percents(rows)
    with style.figure(1, len(percents), width=12.0, height=3.5) as (drawn, axes):
        for panel, percent, mark in zip(axes, percents, _LETTERS, strict=False):
            bars(panel, rows, groups, percent, shown_workloads(rows))
            panel.set_title(f"({mark}) {percent:g}th ({k_of(rows)}, {blocks(rows)})", loc="left")
        return finish(drawn, axes, folder, name, slo=True, alike=True)


def permutations(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11: 99.9th percentiles, a panel per assignment of three SLOs to A, B and C."""
    rows = latency(cells(evidence.table, "disk", k=K_ORDERS, permutation=...))
    rows = rows[rows["permutation"].notna()]
    if rows.empty:
        return Missing(f"the scenario disk with permutations and k = {K_ORDERS:g}")
    found = sorted(rows["permutation"].unique())
    with style.figure(2, 3, width=13.0, height=6.6) as (drawn, axes):
        for panel, permutation, mark in zip(axes, found, _LETTERS, strict=False):
            mine = rows[rows["permutation"] == permutation]
            bars(panel, mine, _by_policy(mine), 99.9, shown_workloads(mine))
            words = ", ".join(f"{w} x{m}" for w, m in zip("ABC", permutation, strict=True))
            panel.set_title(f"({mark}) SLOs: {words} ({blocks(mine)})", loc="left")
        return finish(drawn, axes, folder, name, shown=len(found), slo=True, alike=True)


# Figures 4, 8 and 9: a misbehaving workload, and the network.


def buckets(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4: (a) B's r-b curve with the buckets that limit it, (b) and (c) the workloads
    below B while B sends far more than it announced."""
    rows = cells(evidence.table, "buckets", "pm", k=K, misbehaves=True, limiters=...)
    if rows.empty:
        return Missing(f"the scenario buckets with all limiters, misbehaving, k = {K:g}")
    with style.figure(1, 3, width=13.0, height=4.0) as (drawn, axes):
        _curve(axes[0], evidence, rows)
        for panel, (workload, place), mark in zip(axes[1:], BELOW, "bc", strict=True):
            mine = rows[rows["workload"] == workload]
            for limiters, (colour, text) in LIMITERS.items():
                its = mine[mine["limiters"] == limiters]
                tails(panel, evidence, its, colour=colour, label=text)
            slo = float(mine["slo_s"].astype(float).median())
            panel.axhline(1e3 * slo, color="black", linestyle="--", linewidth=1.1)
            percentile_axis(panel)
            title = f"({mark}) {workload}, {place} priority (n = {mine['seed'].nunique()})"
            panel.set_title(title, loc="left")
        return finish(drawn, axes, folder, name, slo=True)


def _curve(panel: Any, evidence: Evidence, rows: pd.DataFrame) -> None:
    """Draw the first block's curve."""
    run = evidence.runs[int(rows.sort_values(["block", "limiters"]).iloc[0]["index"])]
    curve = json.loads((run.folder / "curve.json").read_text())
    plan = json.loads((run.folder / "plan.json").read_text())
    panel.plot(100 * np.array(curve["rates"]), 1e3 * np.array(curve["bursts"]), color="black")
    first = next(one for one in plan["workloads"] if one["name"] == "B")
    pairs = np.array(next(s["pairs"] for s in first["stages"] if s["stage"] == "storage"))
    inside = pairs[pairs[:, 0] <= 1]
    style_of = {"linestyle": "none", "marker": "x", "markersize": 8, "markeredgewidth": 2}
    panel.plot(100 * inside[:, 0], 1e3 * inside[:, 1], color=LIMITERS["all"][0], **style_of)
    for which in ("fast", "slow"):
        rate, burst = curve[which]
        panel.plot([100 * rate], [1e3 * burst], color=LIMITERS[which][0], **style_of)
    panel.set_xlabel("Rate (% of the disk)")
    panel.set_ylabel("Bucket (ms of the disk)")
    style.magnitudes(panel)
    outside = len(pairs) - len(inside)
    more = f", {outside} faster" if outside else ""
    panel.set_title(f"(a) B's r-b curve, its buckets{more}", loc="left")


def misbehaving(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 8: 99.9th percentiles of D and C while D behaves, and of C while D misbehaves;
    lower percentiles if there are too few requests."""
    rows = latency(cells(evidence.table, "misbehave", k=K_NORMAL, misbehaves=...))
    if rows.empty or not rows["misbehaves"].any():
        return Missing(f"the scenario misbehave with k = {K_NORMAL:g}, behaving and misbehaving")
    panels = [
        (rows[(rows["workload"] == workload) & (rows["misbehaves"] == bad)], workload, words)
        for workload, bad, words in (
            ("D", False, "D behaves"),
            ("C", False, "C, D behaves"),
            ("C", True, "C, D misbehaves"),
            ("D", True, "D misbehaves"),
        )
    ]
    panels = [one for one in panels if len(one[0])]
    with style.figure(2, 2, width=12.0, height=6.6) as (drawn, axes):
        for panel, (mine, workload, words), mark in zip(axes, panels, _LETTERS, strict=False):
            percent = known_percent(mine)
            bars(panel, mine, _by_policy(mine), percent, [workload])
            for text in panel.get_xticklabels():
                text.set(rotation=20, ha="right")
            panel.set_title(
                f"({mark}) {words}: {percent:g}th percentile ({k_of(mine)}, {blocks(mine)})",
                loc="left",
            )
        return finish(drawn, axes, folder, name, shown=len(panels), slo=True)


def network(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 9: latency by percentile with a link as the bottleneck; one row per link."""
    table = latency(cells(evidence.table, "network", k=K_NETWORK, bottleneck=...))
    if table.empty:
        return Missing(f"the scenario network with k = {K_NETWORK:g}")
    links = [one for one in ("egress", "ingress") if (table["bottleneck"] == one).any()]
    words = {"egress": "server's link out", "ingress": "clients' link in"}
    with style.figure(len(links), 3, width=12.5, height=3.6 * len(links)) as (drawn, axes):
        for place, panel in enumerate(axes):
            link, variant = links[place // 3], ("pm", "byslo", "ps")[place % 3]
            mine = table[(table["bottleneck"] == link) & (table["variant"] == variant)]
            for workload in ("C", "I", "J", "K"):
                its = mine[mine["workload"] == workload]
                tails(panel, evidence, its, colour=workload_colour(workload), label=workload)
                slo_line(panel, table[table["bottleneck"] == link], workload)
            percentile_axis(panel)
            missed = _missed(mine)
            title = f"({_LETTERS[place]}) {LABELS[variant]}, {words[link]} ({blocks(mine)}){missed}"
            panel.set_title(title, loc="left", fontsize="small")
        return finish(drawn, axes, folder, name, slo=True, alike=True)


def _missed(rows: pd.DataFrame) -> str:
    within = rows["within"].astype(float)
    missed = sorted(set(rows[within < 0.999]["workload"]))
    return f"; missed: {', '.join(missed)}" if missed else ""


# Figures 1 and 7: PM and Cake under bursts of requests; Cake's own parameter.


def over_time(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 1: requests in 10 s, and missed SLOs among them under Cake and PM, in the first
    block's run."""
    chosen = [("F", "balanced", "low burstiness")]
    rows = {
        (label, gaps): cells(evidence.table, "burst", burst=label, gaps=gaps, k=K)
        for label, gaps in (("F", "balanced"), ("B", "balanced"), ("B", "sharp"))
    }
    chosen += [
        ("B", gaps, f"burstier, {SHAPES[gaps]}") for gaps in SHAPES if not rows["B", gaps].empty
    ]
    if rows["F", "balanced"].empty or len(chosen) < 2:
        return Missing(f"the scenario burst with F and B under pm and cake, k = {K:g}")
    with style.figure(1, len(chosen), width=4.6 * len(chosen), height=3.6) as (drawn, axes):
        for panel, (label, gaps, words), mark in zip(axes, chosen, "abc", strict=False):
            mine = latency(rows[label, gaps])
            mine = mine[mine["block"] == mine["block"].min()]
            for variant, colour in (("cake", COLOURS["cake"]), ("pm", "#228833")):
                run = mine[mine["variant"] == variant]
                if run.empty:
                    continue
                row = run.iloc[0]
                series = _series(evidence, row)
                if variant == "cake":
                    panel.plot(series["requests"], color=REQUESTS, label="requests in 10 s")
                percent = 100 * (1 - float(row["within"]))
                text = f"{LABELS[variant]}: SLO violations"
                panel.plot(series["misses"], color=colour, label=text)
                panel.annotate(
                    f"{LABELS[variant]}: {percent:.2f} % of the second half",
                    (0.02, 0.96 if variant == "cake" else 0.89),
                    xycoords="axes fraction",
                    fontsize="x-small",
                    va="top",
                    color=colour,
                )
            half = float(mine["seconds"].iloc[0]) / 2
            panel.axvline(half, color="black", linestyle=":", linewidth=1)
            top = 1.25 * panel.get_ylim()[1]
            panel.set_ylim(-0.02 * top, top)  # a line of zeros is visible above the axis
            panel.set_xlabel("Time (s); counted from the dotted line on")
            panel.set_ylabel("Requests in 10 s")
            title = f"({mark}) {label}, C_A² = {C2[label]}: {words}"
            panel.set_title(title, loc="left", fontsize="small")
        return finish(drawn, axes, folder, name)


def _series(evidence: Evidence, row: pd.Series) -> pd.DataFrame:
    """Return columns requests and misses by second."""
    samples = evidence.runs[int(row["index"])].samples()
    mine = samples[samples["node"] == row["workload"]]
    wide: pd.DataFrame = mine.pivot_table(index="t_s", columns="metric", values="value")
    return wide


def burstiness(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 7: latency by percentile of F, G and H; rows are shapes of the gaps."""
    rows = latency(cells(evidence.table, "burst", k=K))
    rows = rows[rows["burst"].isin(("F", "G", "H")) & rows["variant"].isin(("pm", "cake"))]
    shapes = [gaps for gaps in SHAPES if ((rows["gaps"] == gaps) & (rows["burst"] == "H")).any()]
    if not shapes:
        return Missing(f"the scenario burst with F, G and H under pm and cake, k = {K:g}")
    labels = [label for label in "FGH" if (rows["burst"] == label).any()]
    count, columns = len(shapes), len(labels)
    with style.figure(count, columns, width=4.0 * columns, height=3.4 * count) as (drawn, axes):
        for place, panel in enumerate(axes):
            gaps, label = shapes[place // columns], labels[place % columns]
            shape = shape_of(label, gaps)
            here = rows[(rows["burst"] == label) & (rows["gaps"] == shape)]
            for index, variant in enumerate(("pm", "cake")):
                mine = here[here["variant"] == variant]
                tails(panel, evidence, mine, colour=COLOURS[variant], label=LABELS[variant])
                within = _within(mine)
                if within is not None:
                    panel.annotate(
                        f"{LABELS[variant]}: {100 * within.value:.2f} % within the SLO",
                        (0.03, 0.96 - 0.08 * index),
                        xycoords="axes fraction",
                        fontsize="x-small",
                        va="top",
                        color=COLOURS[variant],
                    )
            slo = here["slo_s"].astype(float).median()
            panel.axhline(1e3 * slo, color="black", linestyle="--", linewidth=1.1)
            percentile_axis(panel)
            title = f"C_A² = {C2[label]}, {SHAPES[shape]} ({blocks(here)})"
            panel.set_title(f"({_LETTERS[place]}) {title}", loc="left", fontsize="small")
        limits = [panel.get_ylim() for panel in axes]
        for panel in axes:
            panel.set_ylim(min(a for a, _ in limits), 3 * max(b for _, b in limits))
        return finish(drawn, axes, folder, name, slo=True)


def _by_burst(rows: pd.DataFrame, gaps: str) -> Points:
    """Return the share of requests within the SLO by workload F, G, H."""
    found = {
        label: _within(rows[(rows["burst"] == label) & (rows["gaps"] == shape_of(label, gaps))])
        for label in "FGH"
    }
    return {label: one for label, one in found.items() if one is not None}


def others(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the share of requests within the SLO against burstiness, for every policy."""
    rows = latency(cells(evidence.table, "burst", k=K))
    rows = rows[rows["burst"].isin(("F", "G", "H"))]
    if rows[rows["variant"] == "none"].empty:
        return Missing(f"the scenario burst with F, G and H under every policy, k = {K:g}")
    shapes = [gaps for gaps in SHAPES if (rows["gaps"] == gaps).any()]
    with style.figure(1, len(shapes), width=5.2 * len(shapes), height=3.8) as (drawn, axes):
        for panel, gaps, mark in zip(axes, shapes, "ab", strict=False):
            series = [
                (Look(LABELS[one], COLOURS[one]), _by_burst(rows[rows["variant"] == one], gaps))
                for one in variants(rows)
            ]
            shares(panel, series, "FGH", ["1 (F)", "20 (G)", "40 (H)"])
            panel.axhline(
                100 * CAKE_SHARE, color="black", linestyle=":", label="paper: Cake < 96 %"
            )
            panel.set_xlabel("C_A²")
            panel.set_ylabel("Requests within the SLO (%)")
            panel.set_title(f"({mark}) {SHAPES[gaps]} ({blocks(rows)})", loc="left")
        return finish(drawn, axes, folder, name, columns=4)


def cake_upper(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the effect of Cake's upper bound."""
    rows = latency(cells(evidence.table, "burst", "cake", k=K, cake_upper=...))
    swept = sorted(rows["cake_upper"].unique())
    if len(swept) < 2:
        return Missing(f"the scenario burst under cake with several cake_upper, k = {K:g}")
    shapes = [gaps for gaps in SHAPES if (rows["gaps"] == gaps).any()]
    with style.figure(1, len(shapes), width=5.2 * len(shapes), height=3.8) as (drawn, axes):
        for panel, gaps, mark in zip(axes, shapes, "ab", strict=False):
            series = []
            for label, colour in (("F", "#0072B2"), ("G", "#E69F00"), ("H", "#D55E00")):
                shape = shape_of(label, gaps)
                here = rows[(rows["burst"] == label) & (rows["gaps"] == shape)]
                look = Look(f"{label}, C_A² = {C2[label]}", colour)
                series.append((look, points(here, "cake_upper", _within)))
            shares(panel, series, swept, [f"{upper:g}" for upper in swept])
            panel.set_xlabel("Cake's upper bound of SLO / p99")
            panel.set_ylabel("Requests within the SLO (%)")
            panel.set_title(f"({mark}) Cake, {SHAPES[gaps]} ({blocks(rows)})", loc="left")
        return finish(drawn, axes, folder, name)


# Figures beyond the paper: settings that each policy meets, bounds, levels, Table 2, causes.


def share_of_settings(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the share of blocks in which a policy meets all SLOs, against k."""
    found = settings(evidence.table)
    if found["k"].nunique() < 2:
        return Missing("the scenario disk with several k")
    swept = sorted(found["k"].unique())
    with style.figure(width=7.6, height=4.4) as (drawn, (axes,)):
        series = [
            (
                Look(LABELS[one], COLOURS[one]),
                points(found[found["variant"] == one], "k", lambda rows: average(rows, "met")),
            )
            for one in POLICIES
            if one in set(found["variant"])
        ]
        shares(axes, series, swept, [f"{k:g}" for k in swept])
        axes.set_xlabel("k: SLO over the workload's own 99.9th percentile alone")
        axes.set_ylabel("Blocks in which all SLOs are met (%)")
        axes.set_ylim(-5, 105)
        count = stats.counts(one for _, of_policy in series for one in of_policy.values())
        axes.set_title(f"A, B, C and a copy on one disk, 99.9th percentile ({count})", loc="left")
        return finish(drawn, [axes], folder, name, columns=4)


def bounds(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the longest latency of each workload in each run over its proven bound."""
    rows = proven(evidence.table)
    if rows.empty:
        lacking = unproven_text(evidence.table)
        needed = "any run of pm (hold)"
        return Missing(f"{needed} with a proven bound: {lacking}" if lacking else needed)
    order = [one for one in SCENARIOS if (rows["scenario"] == one).any()]
    random = np.random.default_rng(1)
    with style.figure(width=8.4, height=4.2) as (drawn, (axes,)):
        for place, scenario in enumerate(order):
            mine = rows[rows["scenario"] == scenario]
            ratio = mine["bound_ratio"].astype(float).to_numpy()
            x = place + random.uniform(-0.3, 0.3, len(ratio))
            broken = ratio > BROKEN
            axes.plot(x[~broken], ratio[~broken], ".", color="#0072B2", markersize=4, alpha=0.6)
            axes.plot(x[broken], ratio[broken], "X", color=MISSED, markersize=9)
            text = f"{mine['run_id'].nunique()} runs, max {ratio.max():.2g}"
            axes.annotate(
                text, (place, 1.25), ha="center", fontsize="x-small", annotation_clip=False
            )
        axes.axhline(1, color="black", linewidth=1.2, label="proven bound (with blocking)")
        axes.plot([], [], ".", color="#0072B2", label="a workload of a run")
        if (rows["bound_ratio"].astype(float) > BROKEN).any():
            axes.plot([], [], "X", color=MISSED, label="broken: a bug")
        style.magnitudes(axes)
        axes.set_ylim(None, max(2.0, 1.6 * rows["bound_ratio"].astype(float).max()))
        axes.set_xticks(range(len(order)), [SCENARIOS[one] for one in order])
        axes.set_xlim(-0.6, len(order) - 0.4)
        axes.set_ylabel("Longest latency / bound")
        return finish(drawn, [axes], folder, name)


def levels(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the number of network levels that twelve workloads need (section 4.7)."""
    rows = latency(cells(evidence.table, "levels", "pm"))
    swept = sorted(rows["network_levels"].unique(), key=lambda n: n or np.inf)
    if len(swept) < 2:
        return Missing("the scenario levels with several network_levels")
    ks = sorted(rows["k"].unique())
    with style.figure(1, 2, width=10.5, height=3.9) as (drawn, axes):
        for panel, column, mark in zip(axes, ("met", "planned"), "ab", strict=True):
            series = []
            for k, colour in zip(ks, ("#D55E00", "#0072B2", "#009E73", "#999999"), strict=False):
                mine = rows[rows["k"] == k]
                mine = mine.assign(met=met(mine, TAIL).astype(float))
                found = {
                    count: average(by_block(mine[mine["network_levels"] == count], column), column)
                    for count in swept
                }
                known = {count: one for count, one in found.items() if one is not None}
                series.append((Look(f"k = {k:g}", colour), known))
            shares(panel, series, swept, [f"{n}" if n else "12" for n in swept])
            panel.set_xlabel("Network levels (the paper's switch: 7)")
            panel.set_ylim(-5, 105)
            panel.set_ylabel("Workloads (%)")
            words = "meet their SLO at the 99.9th" if column == "met" else "proven to meet it"
            blocks = rows["seed"].nunique()
            panel.set_title(f"({mark}) Of twelve, {words} (n = {blocks})", loc="left")
        return finish(drawn, axes, folder, name)


def stand_ins(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the stand-ins over the values of Table 2."""
    found = deviations(described(evidence.table))
    if found.empty:
        return Missing("a cell that describes its traces (scenario table2)")
    marks = dict(zip(COLUMNS, ("o", "s", "D"), strict=True))
    texts = {"storage": "storage load", "network": "network load", "scv": "C_A²"}
    with style.figure(width=7.6, height=3.6) as (drawn, (axes,)):
        for index, column in enumerate(COLUMNS):
            mine = found[found["column"] == column]
            x = [list(STATED).index(w) + 0.2 * (index - 1) for w in mine["workload"]]
            axes.plot(
                x, 100 * (mine["ratio"] - 1), marks[column], label=texts[column], markersize=4
            )
        axes.axhline(0, color="black", linewidth=1, label="Table 2")
        axes.set_xticks(range(len(STATED)), list(STATED))
        axes.set_xlabel("Workload (L is a copy; E's storage load, > 100 %, and K's are left out)")
        axes.set_ylabel("Difference from Table 2 (%)")
        axes.set_title(f"Stand-ins of {found['seed'].nunique()} blocks", loc="left")
        return finish(drawn, [axes], folder, name)


_CAUSES = (
    (WHY_ORDERS, "Figure 11: permutations in which all SLOs are met", 1.0),
    (WHY_NETWORK, "Figure 9: runs in which all SLOs are met (%)", 100.0),
    (WHY_ESTIMATOR, "Figure 10: plans of the same order (%)", 100.0),
    (WHY_LOW, "Figure 7, F (C_A² = 1): requests that miss (%)", 100.0),
    (WHY_HIGH, "Figure 7, H (C_A² = 40): requests that miss (%)", 100.0),
)


def causes(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw a panel for each question with runs, a row for each setting with runs, and a mark for
    each policy."""
    answers = [(*one, _answers(evidence, one[0])) for one in _CAUSES]
    asked = [one for one in answers if any(setting for _, setting in one[3])]
    if not asked:
        return Missing("the campaign pm-why")
    columns = min(3, len(asked))
    count = -(-len(asked) // columns)
    with style.figure(count, columns, width=5 * columns + 1, height=3.2 * count) as (drawn, axes):
        for panel, (question, title, scale, found), mark in zip(
            axes, asked, _LETTERS, strict=False
        ):
            _draw_answers(panel, question, scale, found)
            text = f"({mark}) {title} ({stats.counts(found.values())})"
            panel.set_title(text, loc="left", fontsize="small")
        return finish(drawn, axes, folder, name, shown=len(asked))


def _answers(evidence: Evidence, question: Question) -> dict[tuple[str, int], Estimate]:
    """Return a question's value by policy and setting; setting 0 is the figure's own."""
    found = {}
    for policy in question.policies:
        for place, setting in enumerate(question.settings):
            rows = question.rows(policy, setting)(evidence.table)
            one = None if rows.empty else average(question.value(rows).to_frame("value"), "value")
            if one is not None:
                found[policy, place] = one
    return found


def _draw_answers(
    axes: Axes, question: Question, scale: float, found: Mapping[tuple[str, int], Estimate]
) -> None:
    settings = sorted({setting for _, setting in found})
    for (policy, setting), one in found.items():
        offset = 0.16 * (question.policies.index(policy) - (len(question.policies) - 1) / 2)
        shown = one.map(lambda value: scale * value)
        axes.errorbar(
            shown.value,
            settings.index(setting) + offset,
            xerr=np.array(shown.error).reshape(2, 1),
            fmt="o",
            color=COLOURS[policy],
            label=LABELS[policy],
            markersize=4.5,
            elinewidth=0.9,
            capsize=2,
        )
    axes.set_yticks(range(len(settings)), [question.settings[one].words for one in settings])
    axes.set_ylim(len(settings) - 0.4, -0.6)
    if settings[0] == 0:
        axes.axhline(0.5, color="black", linewidth=0.6, linestyle=":")


# Tables next to the figures.

_HEADS = (
    *("scenario", "workload", "runs", "SLO (ms)", "planned bound (ms)", "SLO proven"),
    *("median of bound", "most of bound", "verdict"),
)
_UNKNOWN = "-"
_TABLE2_HEADS = (
    *("workload", "storage load", "paper", "network load", "paper "),
    *("C_A²", "paper  ", "traces"),
)


def bound_tables(table: pd.DataFrame) -> list[Table]:
    """Return measured tails against proven bounds: one row per scenario and workload. Before them
    is one row per broken bound; after them are the rows without a proven bound, with the reasons.

    Next to the measurement is the plan: the bound that it compared with the SLO, and the number of
    runs in which it proved the SLO. If the plan did not prove an SLO, a missed SLO breaks no
    promise.
    """
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


def table2(table: pd.DataFrame) -> list[Table]:
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
            found = stats.mean(known).value if known else None
            texts += [_load_text(found, name), _load_text(value, name, (label, name) == MORE_THAN)]
        made.append((*texts, str(mine["seed"].nunique())))
    return (
        [Table("table2", "Table 2: the stand-ins' traces", _TABLE2_HEADS, tuple(made))]
        if made
        else []
    )


def _load_text(value: float | None, name: str, more: bool = False) -> str:
    if value is None:
        return "N/A"
    words = f"{value:.3g}" if name == "scv" else f"{100 * value:.3g} %"
    return f"> {words}" if more else words
