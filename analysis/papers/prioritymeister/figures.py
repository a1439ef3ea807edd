"""Figures of the PriorityMeister paper and figures beyond it, and the tables next to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core import stats, style
from analysis.core.claims import Evidence
from analysis.core.evidence import average, by_block, known
from analysis.core.figures import Missing, Table
from analysis.core.load import LoadedRun
from analysis.core.panels import Look, Points, lines, points
from analysis.core.stats import Estimate
from analysis.papers.prioritymeister import runs
from analysis.papers.prioritymeister.claims import (
    CAKE_SHARE,
    QUESTIONS,
    K,
    Question,
    label,
    shape_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Panel = tuple[str, Callable[["Axes"], object]]
"""Title of a panel, and the function that draws it."""

MS = 1e3
MISSED = "#CC3311"
BAR_WIDTH = 0.8
PERCENTS = tuple(runs.PERCENTILES.values())[:-1]
"""Percentiles that runs report, if at least ten requests are slower."""
TICKS = (50.0, 90.0, 99.0, 99.9)
GRID = np.logspace(0, -5, 200)
"""Shares of slower requests at which curves of several runs are combined."""
HIGHEST = 99.97
"""End of the axis of percentiles."""
C2 = {"F": "1", "G": "20", "H": "40", "B": "14"}
SHAPES = {"balanced": "balanced gaps", "sharp": "sharp bursts"}
LIMITERS = {
    "all": Look("several buckets", "#0072B2"),
    "fast": Look("one: fast, shallow", "#CC3311"),
    "slow": Look("one: slow, deep", "#228833"),
}
SCENARIOS = {
    "disk": "disk (5, 6, 11)",
    "burst": "burst (1, 7)",
    "misbehave": "misbehave (8)",
    "buckets": "buckets (4)",
    "network": "network (9)",
    "levels": "levels",
}
_NEEDS_DISK = "the scenario disk with given SLOs"


# Panels.


def draw(
    panels: Sequence[Panel],
    size: tuple[float, float],
    *,
    columns: int | None = None,
    lettered: bool = True,
    small: bool = False,
    slo: bool = False,
    alike: float | None = None,
    legend: int = 6,
) -> Figure:
    """Draw a figure with one legend above all panels, and save it.

    `size` is the width of the figure and the height of a row of panels; `columns` None is a single
    row. Titles begin with (a), (b) and so on if `lettered`. `slo` names dashed lines as the SLO in
    the legend, which has `legend` columns. With `alike`, all panels have one vertical axis, which
    ends at this factor above the highest limit.
    """
    across = columns or len(panels)
    rows = -(-len(panels) // across)
    with style.figure(rows, across, width=size[0], height=size[1] * rows) as (drawn, axes):
        for index, (panel, (title, content)) in enumerate(zip(axes, panels, strict=False)):
            content(panel)
            text = f"({'abcdef'[index]}) {title}" if lettered else title
            written = panel.set_title(text, loc="left")
            if small:
                written.set_fontsize("small")
        shown = axes[: len(panels)]
        for panel in axes[len(panels) :]:
            panel.set_visible(False)
        if alike is not None:
            limits = [panel.get_ylim() for panel in shown]
            for panel in shown:
                panel.set_ylim(min(low for low, _ in limits), alike * max(top for _, top in limits))
        if slo:
            axes[0].plot([], [], "--", color="black", linewidth=1.1, label="SLO")
        return style.legend(drawn, axes, columns=legend)


def slo_line(axes: Axes, rows: pd.DataFrame, colour: str = "black") -> None:
    """Draw the SLO of a workload's rows, the median over blocks, as a dashed line."""
    found = rows["slo_s"].dropna().astype(float)
    if len(found):
        axes.axhline(MS * float(found.median()), color=colour, linestyle="--", linewidth=1.1)


def _note(axes: Axes, text: str, xy: tuple[float, float], colour: str) -> None:
    """Write a line of text into a panel, at a place in shares of its width and height."""
    axes.annotate(text, xy, xycoords="axes fraction", fontsize="x-small", va="top", color=colour)


def bars(
    axes: Axes,
    rows: pd.DataFrame,
    groups: Sequence[tuple[str, pd.DataFrame]],
    percent: float,
    workloads: Sequence[str],
) -> None:
    """Draw latency at a percentile: groups of bars, one bar per workload, medians over blocks with
    95 % bootstrap intervals, on a logarithmic axis. `rows` are all rows of the panel, for the SLOs.

    Red numbers above a bar count the runs that missed the SLO. A bar hatched up to the top stands
    for requests that were never answered. No bar is drawn if a run has too few requests for the
    percentile.
    """
    width = BAR_WIDTH / max(1, len(workloads))
    endless: list[tuple[float, str, str]] = []
    for w, name in enumerate(workloads):
        in_legend: str | None = name
        colour = runs.WORKLOADS[name]
        for g, (_, found) in enumerate(groups):
            mine = found[found["workload"] == name]
            values = mine[f"p{percent:g}_s"].astype(float)
            estimate = None if values.isna().any() else runs.bootstrap(values.tolist())
            if estimate is None:
                continue
            x = g + (w - (len(workloads) - 1) / 2) * width
            shown = estimate.map(lambda s: MS * s)
            missed = int((~runs.met(mine, percent)).sum())
            if np.isinf(shown.value):
                endless.append((x, colour, f"never answered, {missed}/{len(mine)}"))
                continue
            axes.bar(x, shown.value, 0.92 * width, color=colour, label=in_legend)
            in_legend = None
            error = np.array(shown.error).reshape(2, 1)
            axes.errorbar(x, shown.value, yerr=error, color="black", linewidth=0.9, capsize=2)
            if missed:
                axes.annotate(
                    f"{missed}/{len(mine)}",
                    (x, max(shown.value, shown.high)),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=6,
                    color=MISSED,
                    rotation=90,
                )
        slo_line(axes, rows[rows["workload"] == name], colour)
    style.magnitudes(axes)
    axes.set_xticks(range(len(groups)), [name for name, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.12)  # room for the texts above bars
    for x, colour, text in endless:
        edges = (x - 0.46 * width, x + 0.46 * width)
        axes.axvspan(*edges, facecolor="none", edgecolor=colour, hatch="///", linewidth=0.8)
        axes.text(
            x,
            0.5,
            text,
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="center",
            fontsize=7,
            color=MISSED,
            rotation=90,
        )
    axes.set_ylabel("Latency (ms)")


def tail_curve(evidence: Evidence, row: pd.Series) -> tuple[Floats, Floats] | None:
    """Return the share of slower requests [k] and latency in ms [k] of a run's workload, as far as
    ten requests are slower; None if no histogram is kept."""
    workload = row["workload"]

    def histogram(run: LoadedRun) -> list[list[int]] | None:
        path = run.file("latency.parquet")
        if not path.exists():
            return None
        kept = pd.read_parquet(path)
        mine = kept[kept["tenant"] == workload].sort_values("low_ns")
        return [mine["high_ns"].tolist(), mine["count"].tolist()]

    found = evidence.runs[int(row["index"])].reduced(f"latencies of {workload}", histogram)
    if found is None:
        return None
    high_ns, counts = (np.array(values, dtype=float) for values in found)
    total = float(row["requests"])
    slower = 1 - np.cumsum(counts) / total
    shown = slower * total >= runs.BEYOND - 0.5
    return slower[shown], high_ns[shown] * 1e-6


def tails(axes: Axes, evidence: Evidence, rows: pd.DataFrame, look: Look) -> None:
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
    axes.plot(x, np.median(shown, axis=0), "-", color=look.colour, label=look.label, linewidth=1.4)
    if len(curves) > 1:
        low, high = shown.min(axis=0), shown.max(axis=0)
        axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)


def percentile_axis(axes: Axes) -> None:
    """Set up the axes of `tails`: horizontal percentiles, higher ones to the right, and a
    logarithmic vertical axis."""
    axes.set_xticks([-np.log10(1 - tick / 100) for tick in TICKS], [f"{t:g}" for t in TICKS])
    axes.set_xlim(-np.log10(0.5), -np.log10(1 - HIGHEST / 100))
    style.magnitudes(axes)
    axes.set_xlabel("Percentile")
    axes.set_ylabel("Latency (ms)")


def tails_by_workload(
    axes: Axes, evidence: Evidence, rows: pd.DataFrame, everyone: pd.DataFrame
) -> None:
    """Draw the tails of every workload of `everyone` that has rows, with its SLO."""
    for workload in shown_workloads(everyone):
        look = Look(workload, runs.WORKLOADS[workload])
        tails(axes, evidence, rows[rows["workload"] == workload], look)
        slo_line(axes, everyone[everyone["workload"] == workload], look.colour)
    percentile_axis(axes)


def shares(
    axes: Axes,
    series: Sequence[tuple[Look, Points]],
    order: Sequence[Any],
    ticks: Iterable[str],
    texts: tuple[str, str],
) -> None:
    """Draw shares in percent as lines with 95 % intervals over blocks, cut at 0 and 100 %; `texts`
    are those of the axes."""
    shown = [
        (look, {at: one.map(lambda v: min(max(100 * v, 0.0), 100.0)) for at, one in found.items()})
        for look, found in series
    ]
    lines(axes, shown, order, list(ticks))
    axes.set_xlabel(texts[0])
    axes.set_ylabel(texts[1])


def slos_of(rows: pd.DataFrame) -> str:
    """Format the SLOs of the rows: ``A 400 ms, C 300 ms`` if given, else ``k = 2``."""
    if rows["slos"].notna().all():
        each = rows.dropna(subset=["slo_s"]).groupby("workload")["slo_s"].median()
        return ", ".join(f"{name} {MS * float(slo):.0f} ms" for name, slo in each.items())
    return "k = " + ", ".join(f"{k:g}" for k in sorted(rows["k"].unique()))


def blocks(rows: pd.DataFrame) -> str:
    """Format the number of blocks in the rows: ``n = 4``."""
    return stats.range_text(rows.groupby("variant")["seed"].nunique())


def known_percent(rows: pd.DataFrame) -> float:
    """Return the highest percentile in all rows: lower with few requests."""
    return max((p for p in PERCENTS if rows[f"p{p:g}_s"].notna().all()), default=99.9)


def shown_workloads(rows: pd.DataFrame) -> list[str]:
    """Return the workloads with a latency SLO, by name."""
    return sorted(set(runs.latency(rows)["workload"]))


def _within(rows: pd.DataFrame) -> Estimate | None:
    """Return the share of requests within the SLO, as the mean over blocks."""
    return average(by_block(rows, "within"), "within")


def _by_policy(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(label(name), rows[rows["variant"] == name]) for name in runs.variants(rows)]


def _by_percent(
    rows: pd.DataFrame, groups: Sequence[tuple[str, pd.DataFrame]], word: str
) -> list[Panel]:
    """Return a panel of bars for each percentile that any row has; `word` follows the number."""
    workloads = shown_workloads(rows)
    return [
        (
            f"{percent:g}{word} ({slos_of(rows)}, {blocks(rows)})",
            partial(bars, rows=rows, groups=groups, percent=percent, workloads=workloads),
        )
        for percent in PERCENTS[1:]
        if rows[f"p{percent:g}_s"].notna().any()
    ]


# Figures 5, 6, 10 and 11: tails of workloads that share a disk, under every policy.


def tail_bars(evidence: Evidence) -> Figure | Missing:
    """Draw figure 5: latency of A, B and C by policy, one panel per percentile."""
    rows = runs.latency(runs.cells(evidence.table, "disk", given=True))
    if rows.empty:
        return Missing(_NEEDS_DISK)
    panels = _by_percent(rows, _by_policy(rows), "th percentile")
    return draw(panels, (11.0, 3.3), columns=2, slo=True)


def tail_lines(evidence: Evidence) -> Figure | Missing:
    """Draw figure 6: latency at every percentile, one panel per policy."""
    rows = runs.latency(runs.cells(evidence.table, "disk", given=True))
    if rows.empty:
        return Missing(_NEEDS_DISK)
    panels: list[Panel] = [
        (
            f"{text} ({slos_of(mine)}, {blocks(mine)})",
            partial(tails_by_workload, evidence=evidence, rows=mine, everyone=rows),
        )
        for text, mine in _by_policy(rows)
    ]
    return draw(panels, (12.0, 3.1), columns=4, lettered=False, slo=True, alike=1.0)


def estimators(evidence: Evidence) -> Figure | Missing:
    """Draw figure 10: PM with the device's profile and with the constant estimator."""
    rows = runs.latency(runs.cells(evidence.table, "disk", "pm", given=True, estimator=...))
    if not {"profile", "constant"} <= set(rows["estimator"]):
        return Missing(f"{_NEEDS_DISK} and both estimators")
    both = set(rows[rows["estimator"] == "constant"]["seed"])
    rows = rows[rows["seed"].isin(both)]
    groups = [
        (text, rows[rows["estimator"] == kind])
        for kind, text in (("profile", "device's\nprofile"), ("constant", "constant\nbase time"))
    ]
    panels = _by_percent(rows, groups, "th")
    return draw(panels, (12.0, 3.5), slo=True, alike=1.0)


def permutations(evidence: Evidence) -> Figure | Missing:
    """Draw figure 11: 99.9th percentiles, a panel per assignment of three SLOs to A, B and C."""
    rows = runs.latency(runs.cells(evidence.table, "disk", given=True, permutation=...))
    rows = rows[rows["permutation"].notna()]
    if rows.empty:
        return Missing(f"{_NEEDS_DISK} and permutations")
    panels: list[Panel] = []
    for _, mine in rows.groupby("permutation"):
        groups, workloads = _by_policy(mine), shown_workloads(mine)
        content = partial(bars, rows=mine, groups=groups, percent=99.9, workloads=workloads)
        panels.append((f"SLOs: {slos_of(mine)} ({blocks(mine)})", content))
    return draw(panels, (13.0, 3.3), columns=3, slo=True, alike=1.0)


# Figures 4, 8 and 9: a misbehaving workload, and the network.


def buckets(evidence: Evidence) -> Figure | Missing:
    """Draw figure 4: (a) B's r-b curve with the buckets that limit it, (b) and (c) the workloads
    below B while B sends far more than it announced."""
    rows = runs.cells(evidence.table, "buckets", "pm", k=K, misbehaves=True, limiters=...)
    if rows.empty:
        return Missing(f"the scenario buckets with all limiters, misbehaving, k = {K:g}")

    def below(axes: Axes, workload: str) -> None:
        mine = rows[rows["workload"] == workload]
        for limiters, look in LIMITERS.items():
            tails(axes, evidence, mine[mine["limiters"] == limiters], look)
        slo_line(axes, mine)
        percentile_axis(axes)

    run = evidence.runs[int(rows.sort_values(["block", "limiters"]).iloc[0]["index"])]
    outside, curve = _curve(run)
    more = f", {outside} faster" if outside else ""
    panels: list[Panel] = [(f"B's r-b curve, its buckets{more}", curve)]
    for workload, place in (("A", "medium"), ("C", "low")):
        count = rows[rows["workload"] == workload]["seed"].nunique()
        title = f"{workload}, {place} priority (n = {count})"
        panels.append((title, partial(below, workload=workload)))
    return draw(panels, (13.0, 4.0), slo=True)


def _curve(run: LoadedRun) -> tuple[int, Callable[[Axes], None]]:
    """Return the number of a run's buckets that are faster than the disk, and the function that
    draws B's curve with the others."""
    curve, plan = run.report("curve.json"), run.report("plan.json")
    first = next(one for one in plan["workloads"] if one["name"] == "B")
    pairs = np.array(next(s["pairs"] for s in first["stages"] if s["stage"] == "storage"))
    inside = pairs[pairs[:, 0] <= 1]

    def content(axes: Axes) -> None:
        axes.plot(100 * np.array(curve["rates"]), MS * np.array(curve["bursts"]), color="black")
        chosen = {"all": inside, **{which: np.array([curve[which]]) for which in ("fast", "slow")}}
        for limiters, found in chosen.items():
            axes.plot(
                100 * found[:, 0],
                MS * found[:, 1],
                color=LIMITERS[limiters].colour,
                linestyle="none",
                marker="x",
                markersize=8,
                markeredgewidth=2,
            )
        axes.set_xlabel("Rate (% of the disk)")
        axes.set_ylabel("Bucket (ms of the disk)")
        style.magnitudes(axes)

    return len(pairs) - len(inside), content


def misbehaving(evidence: Evidence) -> Figure | Missing:
    """Draw figure 8: 99.9th percentiles of D and C while D behaves, and of C while D misbehaves;
    lower percentiles if there are too few requests."""
    rows = runs.latency(runs.cells(evidence.table, "misbehave", given=True, misbehaves=...))
    if rows.empty or not rows["misbehaves"].any():
        return Missing("the scenario misbehave with given SLOs, behaving and misbehaving")

    def content(axes: Axes, mine: pd.DataFrame, workload: str) -> None:
        bars(axes, mine, _by_policy(mine), known_percent(mine), [workload])
        for text in axes.get_xticklabels():
            text.set(rotation=20, ha="right")

    panels: list[Panel] = []
    for workload, bad, words in (
        ("D", False, "D behaves"),
        ("C", False, "C, D behaves"),
        ("C", True, "C, D misbehaves"),
        ("D", True, "D misbehaves"),
    ):
        mine = rows[(rows["workload"] == workload) & (rows["misbehaves"] == bad)]
        if len(mine):
            percent = f"{known_percent(mine):g}th percentile"
            title = f"{words}: {percent} ({slos_of(mine)}, {blocks(mine)})"
            panels.append((title, partial(content, mine=mine, workload=workload)))
    return draw(panels, (12.0, 3.3), columns=2, slo=True)


def network(evidence: Evidence) -> Figure | Missing:
    """Draw figure 9: latency by percentile with a link as the bottleneck; one row per link."""
    table = runs.latency(runs.cells(evidence.table, "network", given=True, bottleneck=...))
    if table.empty:
        return Missing("the scenario network with given SLOs")
    panels: list[Panel] = []
    for link, words in (("egress", "server's link out"), ("ingress", "clients' link in")):
        here = table[table["bottleneck"] == link]
        for variant in ("pm", "byslo", "ps") if len(here) else ():
            mine = here[here["variant"] == variant]
            missed = sorted(set(mine[mine["within"].astype(float) < 0.999]["workload"]))
            text = f"; missed: {', '.join(missed)}" if missed else ""
            panels.append(
                (
                    f"{label(variant)}, {words} ({blocks(mine)}){text}",
                    partial(tails_by_workload, evidence=evidence, rows=mine, everyone=here),
                )
            )
    return draw(panels, (12.5, 3.6), columns=3, small=True, slo=True, alike=1.0)


# Figures 1 and 7: PM and Cake under bursts of requests; Cake's own parameter.


def over_time(evidence: Evidence) -> Figure | Missing:
    """Draw figure 1: requests in 10 s, and missed SLOs among them under Cake and PM, in the first
    block's run."""
    panels: list[Panel] = []
    for workload, gaps, words in (
        ("F", "balanced", "low burstiness"),
        *(("B", gaps, f"burstier, {text}") for gaps, text in SHAPES.items()),
    ):
        rows = runs.cells(evidence.table, "burst", burst=workload, gaps=gaps, k=K)
        if len(rows):
            rows = runs.latency(rows)
            title = f"{workload}, C_A² = {C2[workload]}: {words}"
            first = rows[rows["block"] == rows["block"].min()]
            panels.append((title, partial(_course, evidence=evidence, rows=first)))
        elif workload == "F":
            break
    if len(panels) < 2:
        return Missing(f"the scenario burst with F and B under pm and cake, k = {K:g}")
    return draw(panels, (4.6 * len(panels), 3.6), small=True)


def _course(axes: Axes, evidence: Evidence, rows: pd.DataFrame) -> None:
    """Draw requests and misses over time of a block's runs under Cake and PM."""
    for variant, colour, height in (
        ("cake", runs.POLICIES["cake"].colour, 0.96),
        ("pm", "#228833", 0.89),
    ):
        run = rows[rows["variant"] == variant]
        if run.empty:
            continue
        row = run.iloc[0]
        loaded, workload = evidence.runs[int(row["index"])], str(row["workload"])
        for metric, hue, text in (
            ("requests", "#4477AA", "requests in 10 s"),
            ("misses", colour, f"{label(variant)}: SLO violations"),
        ):
            if metric == "misses" or variant == "cake":
                axes.plot(*runs.counted(loaded, metric, workload), color=hue, label=text)
        percent = 100 * (1 - float(row["within"]))
        text = f"{label(variant)}: {percent:.2f} % of the second half"
        _note(axes, text, (0.02, height), colour)
    half = float(rows["seconds"].iloc[0]) / 2
    axes.axvline(half, color="black", linestyle=":", linewidth=1)
    top = 1.25 * axes.get_ylim()[1]
    axes.set_ylim(-0.02 * top, top)  # a line of zeros is visible above the axis
    axes.set_xlabel("Time (s); counted from the dotted line on")
    axes.set_ylabel("Requests in 10 s")


def burstiness(evidence: Evidence) -> Figure | Missing:
    """Draw figure 7: latency by percentile of F, G and H; rows are shapes of the gaps."""
    rows = runs.latency(runs.cells(evidence.table, "burst", k=K))
    rows = rows[rows["burst"].isin(("F", "G", "H")) & rows["variant"].isin(("pm", "cake"))]
    shapes = [gaps for gaps in SHAPES if ((rows["gaps"] == gaps) & (rows["burst"] == "H")).any()]
    if not shapes:
        return Missing(f"the scenario burst with F, G and H under pm and cake, k = {K:g}")

    def content(axes: Axes, here: pd.DataFrame) -> None:
        for variant, height in (("pm", 0.96), ("cake", 0.88)):
            mine, look = here[here["variant"] == variant], runs.POLICIES[variant]
            tails(axes, evidence, mine, look)
            within = _within(mine)
            if within is not None:
                text = f"{look.label}: {100 * within.value:.2f} % within the SLO"
                _note(axes, text, (0.03, height), look.colour)
        slo_line(axes, here)
        percentile_axis(axes)

    workloads = [one for one in "FGH" if (rows["burst"] == one).any()]
    panels: list[Panel] = []
    for gaps in shapes:
        for workload in workloads:
            here = _of_shape(rows, workload, gaps)
            title = f"C_A² = {C2[workload]}, {SHAPES[shape_of(workload, gaps)]} ({blocks(here)})"
            panels.append((title, partial(content, here=here)))
    size = (4.0 * len(workloads), 3.4)
    return draw(panels, size, columns=len(workloads), small=True, slo=True, alike=3.0)


def _of_shape(rows: pd.DataFrame, workload: str, gaps: str) -> pd.DataFrame:
    return rows[(rows["burst"] == workload) & (rows["gaps"] == shape_of(workload, gaps))]


_WITHIN = "Requests within the SLO (%)"


def others(evidence: Evidence) -> Figure | Missing:
    """Draw the share of requests within the SLO against burstiness, for every policy."""
    rows = runs.latency(runs.cells(evidence.table, "burst", k=K))
    rows = rows[rows["burst"].isin(("F", "G", "H"))]
    if rows[rows["variant"] == "none"].empty:
        return Missing(f"the scenario burst with F, G and H under every policy, k = {K:g}")

    def content(axes: Axes, gaps: str) -> None:
        series = []
        for variant in runs.variants(rows):
            mine = rows[rows["variant"] == variant]
            found = {one: _within(_of_shape(mine, one, gaps)) for one in "FGH"}
            series.append((runs.POLICIES[variant], known(found)))
        ticks = ["1 (F)", "20 (G)", "40 (H)"]
        shares(axes, series, "FGH", ticks, ("C_A²", _WITHIN))
        axes.axhline(100 * CAKE_SHARE, color="black", linestyle=":", label="paper: Cake < 96 %")

    return _by_shape(rows, content, "", legend=4)


def _by_shape(
    rows: pd.DataFrame,
    content: Callable[..., object],
    who: str,
    *,
    legend: int = 6,
) -> Figure:
    """Draw a panel for each shape of gaps that has rows."""
    panels: list[Panel] = [
        (f"{who}{text} ({blocks(rows)})", partial(content, gaps=gaps))
        for gaps, text in SHAPES.items()
        if (rows["gaps"] == gaps).any()
    ]
    return draw(panels, (5.2 * len(panels), 3.8), legend=legend)


def cake_upper(evidence: Evidence) -> Figure | Missing:
    """Draw the effect of Cake's upper bound."""
    rows = runs.latency(runs.cells(evidence.table, "burst", "cake", k=K, cake_upper=...))
    swept = sorted(rows["cake_upper"].unique())
    if len(swept) < 2:
        return Missing(f"the scenario burst under cake with several cake_upper, k = {K:g}")

    def content(axes: Axes, gaps: str) -> None:
        series = [
            (
                Look(f"{workload}, C_A² = {C2[workload]}", colour),
                points(_of_shape(rows, workload, gaps), "cake_upper", _within),
            )
            for workload, colour in (("F", "#0072B2"), ("G", "#E69F00"), ("H", "#D55E00"))
        ]
        ticks = [f"{upper:g}" for upper in swept]
        shares(axes, series, swept, ticks, ("Cake's upper bound of SLO / p99", _WITHIN))

    return _by_shape(rows, content, "Cake, ")


# Figures beyond the paper: settings that each policy meets, bounds, levels, Table 2, causes.


def share_of_settings(evidence: Evidence) -> Figure | Missing:
    """Draw the share of blocks in which a policy meets all SLOs, against k."""
    found = runs.settings(evidence.table)
    swept = sorted(found["k"].unique())
    if len(swept) < 2:
        return Missing("the scenario disk with several k")
    series = [
        (
            runs.POLICIES[one],
            points(found[found["variant"] == one], "k", "met"),
        )
        for one in runs.variants(found)
    ]

    def content(axes: Axes) -> None:
        texts = (
            "k: SLO over the workload's own 99.9th percentile alone",
            "Blocks in which all SLOs are met (%)",
        )
        shares(axes, series, swept, [f"{k:g}" for k in swept], texts)
        axes.set_ylim(-5, 105)

    count = stats.counts(one for _, of_policy in series for one in of_policy.values())
    title = f"A, B, C and a copy on one disk, 99.9th percentile ({count})"
    return draw([(title, content)], (7.6, 4.4), lettered=False, legend=4)


def bounds(evidence: Evidence) -> Figure | Missing:
    """Draw the longest latency of each workload in each run over its proven bound."""
    rows = runs.proven(evidence.table)
    if rows.empty:
        lacking = runs.unproven_text(evidence.table)
        needed = "any run of pm (hold)"
        return Missing(f"{needed} with a proven bound: {lacking}" if lacking else needed)
    order = [one for one in SCENARIOS if (rows["scenario"] == one).any()]
    highest = rows["bound_ratio"].astype(float).max()

    def content(axes: Axes) -> None:
        random = np.random.default_rng(1)
        for place, scenario in enumerate(order):
            mine = rows[rows["scenario"] == scenario]
            ratio = mine["bound_ratio"].astype(float).to_numpy()
            x = place + random.uniform(-0.3, 0.3, len(ratio))
            broken = ratio > runs.BROKEN
            axes.plot(x[~broken], ratio[~broken], ".", color="#0072B2", markersize=4, alpha=0.6)
            axes.plot(x[broken], ratio[broken], "X", color=MISSED, markersize=9)
            text, at = f"{mine['run_id'].nunique()} runs, max {ratio.max():.2g}", (place, 1.25)
            axes.annotate(text, at, ha="center", fontsize="x-small", annotation_clip=False)
        axes.axhline(1, color="black", linewidth=1.2, label="proven bound (with blocking)")
        axes.plot([], [], ".", color="#0072B2", label="a workload of a run")
        if highest > runs.BROKEN:
            axes.plot([], [], "X", color=MISSED, label="broken: a bug")
        style.magnitudes(axes)
        axes.set_ylim(None, max(2.0, 1.6 * highest))
        axes.set_xticks(range(len(order)), [SCENARIOS[one] for one in order])
        axes.set_xlim(-0.6, len(order) - 0.4)
        axes.set_ylabel("Longest latency / bound")

    return draw([("", content)], (8.4, 4.2), lettered=False)


def levels(evidence: Evidence) -> Figure | Missing:
    """Draw the number of network levels that twelve workloads need (section 4.7)."""
    rows = runs.latency(runs.cells(evidence.table, "levels", "pm"))
    rows = rows.assign(met=runs.met(rows, runs.TAIL).astype(float))
    swept = sorted(rows["network_levels"].unique(), key=lambda n: n or np.inf)
    if len(swept) < 2:
        return Missing("the scenario levels with several network_levels")
    colours = ("#D55E00", "#0072B2", "#009E73", "#999999")

    def content(axes: Axes, column: str) -> None:
        series = [
            (
                Look(f"k = {k:g}", colour),
                points(
                    rows[rows["k"] == k],
                    "network_levels",
                    lambda some: average(by_block(some, column), column),
                ),
            )
            for k, colour in zip(sorted(rows["k"].unique()), colours, strict=False)
        ]
        texts = ("Network levels (the paper's switch: 7)", "Workloads (%)")
        shares(axes, series, swept, [f"{n}" if n else "12" for n in swept], texts)
        axes.set_ylim(-5, 105)

    n = rows["seed"].nunique()
    panels: list[Panel] = [
        (f"Of twelve, {words} (n = {n})", partial(content, column=column))
        for column, words in (
            ("met", "meet their SLO at the 99.9th"),
            ("planned", "proven to meet it"),
        )
    ]
    return draw(panels, (10.5, 3.9))


def stand_ins(evidence: Evidence) -> Figure | Missing:
    """Draw the stand-ins over the values of Table 2."""
    found = runs.deviations(runs.described(evidence.table))
    if found.empty:
        return Missing("a cell that describes its traces (scenario table2)")
    looks = (("o", "storage load"), ("s", "network load"), ("D", "C_A²"))

    def content(axes: Axes) -> None:
        for index, (column, (mark, text)) in enumerate(zip(runs.COLUMNS, looks, strict=True)):
            mine = found[found["column"] == column]
            x = [list(runs.STATED).index(w) + 0.2 * (index - 1) for w in mine["workload"]]
            axes.plot(x, 100 * (mine["ratio"] - 1), mark, label=text, markersize=4)
        axes.axhline(0, color="black", linewidth=1, label="Table 2")
        axes.set_xticks(range(len(runs.STATED)), list(runs.STATED))
        axes.set_xlabel("Workload (L is a copy; E's storage load, > 100 %, and K's are left out)")
        axes.set_ylabel("Difference from Table 2 (%)")

    title = f"Stand-ins of {found['seed'].nunique()} blocks"
    return draw([(title, content)], (7.6, 3.6), lettered=False)


def causes(evidence: Evidence) -> Figure | Missing:
    """Draw a panel for each question with runs, a row for each setting with runs, and a mark for
    each policy."""
    panels: list[Panel] = []
    for question in QUESTIONS:
        found = _answers(evidence, question)
        if any(setting != "base" for _, setting in found):
            title = f"{question.title} ({stats.counts(found.values())})"
            panels.append((title, partial(_draw_answers, question=question, found=found)))
    if not panels:
        return Missing("the campaign pm-why")
    columns = min(3, len(panels))
    return draw(panels, (5 * columns + 1, 3.2), columns=columns, small=True)


def _answers(evidence: Evidence, question: Question) -> dict[tuple[str, str], Estimate]:
    """Return a question's value by policy and setting."""
    found: dict[tuple[str, str], Estimate | None] = {}
    for at in product(question.policies, question.settings):
        rows = question.rows(*at)(evidence.table)
        if len(rows):
            found[at] = average(question.value(rows).to_frame("value"), "value")
    return known(found)


def _draw_answers(
    axes: Axes, question: Question, found: Mapping[tuple[str, str], Estimate]
) -> None:
    asked = [one for one in question.settings if one in {setting for _, setting in found}]
    for (policy, setting), one in found.items():
        offset = 0.16 * (question.policies.index(policy) - (len(question.policies) - 1) / 2)
        shown = one.map(lambda value: question.scale * value)
        axes.errorbar(
            shown.value,
            asked.index(setting) + offset,
            xerr=np.array(shown.error).reshape(2, 1),
            fmt="o",
            color=runs.POLICIES[policy].colour,
            label=label(policy),
            markersize=4.5,
            elinewidth=0.9,
            capsize=2,
        )
    axes.set_yticks(range(len(asked)), [question.settings[one][0] for one in asked])
    axes.set_ylim(len(asked) - 0.4, -0.6)
    if asked[0] == "base":
        axes.axhline(0.5, color="black", linewidth=0.6, linestyle=":")


# Tables next to the figures.

_BOUND_HEADS = (
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
    rows, lacking, without = runs.proven(table), runs.unproven(table), runs.unbounded(table)
    if rows.empty and lacking.empty and without.empty:
        return []
    rows = rows.assign(ratio=rows["bound_ratio"].astype(float))
    broken = rows[rows["ratio"] > runs.BROKEN]
    made = []
    for index, row in broken.iterrows():
        place = f"BROKEN in run {row['run_id']}: {row['scenario']}"
        verdict = "BROKEN: a bug in the planner, the enforcer or the model"
        made.append(_bound_row(place, row["workload"], broken.loc[[index]], verdict, digits=4))
    for (scenario, workload), mine in rows.groupby(["scenario", "workload"]):
        wrong = int((mine["ratio"] > runs.BROKEN).sum())
        verdict = f"BROKEN in {wrong} of {len(mine)}" if wrong else "held"
        made.append(_bound_row(scenario, workload, mine, verdict))
    for found in (lacking, without):
        for (scenario, workload, why), mine in found.groupby(["scenario", "workload", "why"]):
            made.append(_bound_row(scenario, workload, mine, f"not proven: {why}"))
    title = "Longest latencies against proven bounds"
    if len(broken):
        title += f": {len(broken)} BROKEN"
    return [Table("bounds", title, _BOUND_HEADS, tuple(made))]


def _bound_row(
    place: object, workload: object, rows: pd.DataFrame, verdict: str, digits: int = 3
) -> tuple[str, ...]:
    """Return a row of the table: with the SLO, the bound that the plan compares with it (with
    blocking, if planned so), the number of runs in which the plan proves the SLO, and the measured
    ratios if the rows have any."""
    against = rows["bound_s"].where(~rows["blocking"].astype(bool), rows["bound_blocking_s"])
    known = rows["planned"].dropna().astype(float)
    met_by_plan = f"{known.sum():.0f} of {len(known)}" if len(known) else _UNKNOWN
    ratios = (_UNKNOWN, _UNKNOWN)
    if "ratio" in rows.columns:
        ratios = (f"{rows['ratio'].median():.{digits}g}", f"{rows['ratio'].max():.{digits}g}")
    times = (_range(rows["slo_s"]), _range(against))
    count = str(rows["run_id"].nunique())
    return (str(place), str(workload), count, *times, met_by_plan, *ratios, verdict)


def _range(seconds: pd.Series) -> str:
    """Format the shortest to the longest time, in milliseconds."""
    known = seconds.dropna().astype(float)
    if known.empty:
        return _UNKNOWN
    low, high = (
        f"{MS * s:.3g}" if s < 0.1 else f"{MS * s:,.0f}" for s in (known.min(), known.max())
    )
    return low if low == high else f"{low} to {high}"


def table2(table: pd.DataFrame) -> list[Table]:
    """Return Table 2 with the paper's values next to ours."""
    made = []
    for workload, mine in runs.described(table).groupby("workload"):
        texts = [str(workload)]
        for name, value in zip(runs.COLUMNS, runs.STATED[str(workload)], strict=True):
            known = mine[name].dropna().astype(float).tolist()
            more = "> " if (workload, name) == runs.MORE_THAN else ""
            texts.append(_load_text(stats.mean(known).value if known else None, name))
            texts.append(more + _load_text(value, name))
        made.append((*texts, str(mine["seed"].nunique())))
    title = "Table 2: the stand-ins' traces"
    return [Table("table2", title, _TABLE2_HEADS, tuple(made))] if made else []


def _load_text(value: float | None, name: str) -> str:
    if value is None:
        return "N/A"
    return f"{value:.3g}" if name == "scv" else f"{100 * value:.3g} %"
