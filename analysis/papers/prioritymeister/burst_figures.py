"""Figures 1 and 7: PM and Cake under bursts of requests; Cake's own parameter."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.papers.prioritymeister.claim_kinds import CAKE_SHARE, K
from analysis.papers.prioritymeister.panels import (
    blocks,
    legend,
    named_slo,
    percentile_axis,
    share_line,
    tails,
)
from analysis.papers.prioritymeister.runs import (
    COLOURS,
    LABELS,
    average,
    by_block,
    cells,
    latency,
    variants,
)

C2 = {"F": "1", "G": "20", "H": "40", "B": "14"}
SHAPES = {"balanced": "balanced gaps", "sharp": "sharp bursts"}
REQUESTS = "#4477AA"


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
        legend(drawn, axes)
        return style.save(drawn, folder, name)


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
    lines, columns = len(shapes), len(labels)
    with style.figure(lines, columns, width=4.0 * columns, height=3.4 * lines) as (drawn, axes):
        for place, panel in enumerate(axes):
            gaps, label = shapes[place // columns], labels[place % columns]
            shape = "balanced" if label == "F" else gaps
            here = rows[(rows["burst"] == label) & (rows["gaps"] == shape)]
            for index, variant in enumerate(("pm", "cake")):
                mine = here[here["variant"] == variant]
                tails(panel, evidence, mine, colour=COLOURS[variant], label=LABELS[variant])
                within = average(by_block(mine, "within"))
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
            panel.set_title(f"({'abcdef'[place]}) {title}", loc="left", fontsize="small")
        limits = [panel.get_ylim() for panel in axes]
        for panel in axes:
            panel.set_ylim(min(a for a, _ in limits), 3 * max(b for _, b in limits))
        named_slo(axes[0])
        legend(drawn, axes)
        return style.save(drawn, folder, name)


def others(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the share of requests within the SLO against burstiness, for every policy."""
    rows = latency(cells(evidence.table, "burst", k=K))
    rows = rows[rows["burst"].isin(("F", "G", "H"))]
    if rows[rows["variant"] == "none"].empty:
        return Missing(f"the scenario burst with F, G and H under every policy, k = {K:g}")
    shapes = [gaps for gaps in SHAPES if (rows["gaps"] == gaps).any()]
    with style.figure(1, len(shapes), width=5.2 * len(shapes), height=3.8) as (drawn, axes):
        for panel, gaps, mark in zip(axes, shapes, "ab", strict=False):
            order = variants(rows)
            for index, variant in enumerate(order):
                mine = rows[rows["variant"] == variant]
                points = []
                for place, label in enumerate("FGH"):
                    shape = "balanced" if label == "F" else gaps
                    here = mine[(mine["burst"] == label) & (mine["gaps"] == shape)]
                    within = average(by_block(here, "within"))
                    if within is not None:
                        points.append((place + 0.05 * (index - (len(order) - 1) / 2), within))
                share_line(panel, points, colour=COLOURS[variant], label=LABELS[variant])
            panel.axhline(
                100 * CAKE_SHARE, color="black", linestyle=":", label="paper: Cake < 96 %"
            )
            panel.set_xticks(range(3), ["1 (F)", "20 (G)", "40 (H)"])
            panel.set_xlabel("C_A²")
            panel.set_ylabel("Requests within the SLO (%)")
            panel.set_title(f"({mark}) {SHAPES[gaps]} ({blocks(rows)})", loc="left")
        legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


def cake_upper(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the effect of Cake's upper bound."""
    rows = latency(cells(evidence.table, "burst", "cake", k=K, cake_upper=...))
    swept = sorted(rows["cake_upper"].unique())
    if len(swept) < 2:
        return Missing(f"the scenario burst under cake with several cake_upper, k = {K:g}")
    shapes = [gaps for gaps in SHAPES if (rows["gaps"] == gaps).any()]
    with style.figure(1, len(shapes), width=5.2 * len(shapes), height=3.8) as (drawn, axes):
        for panel, gaps, mark in zip(axes, shapes, "ab", strict=False):
            for label, colour in (("F", "#0072B2"), ("G", "#E69F00"), ("H", "#D55E00")):
                shape = "balanced" if label == "F" else gaps
                here = rows[(rows["burst"] == label) & (rows["gaps"] == shape)]
                points = []
                for place, upper in enumerate(swept):
                    within = average(by_block(here[here["cake_upper"] == upper], "within"))
                    if within is not None:
                        points.append((float(place), within))
                share_line(panel, points, colour=colour, label=f"{label}, C_A² = {C2[label]}")
            panel.set_xticks(range(len(swept)), [f"{upper:g}" for upper in swept])
            panel.set_xlabel("Cake's upper bound of SLO / p99")
            panel.set_ylabel("Requests within the SLO (%)")
            panel.set_title(f"({mark}) Cake, {SHAPES[gaps]} ({blocks(rows)})", loc="left")
        legend(drawn, axes)
        return style.save(drawn, folder, name)
