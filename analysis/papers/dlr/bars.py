"""Bar figures: 1a-d (cost of disturbance), 6a-b and 8a-b (controllers, normalized)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts, mean
from analysis.papers.dlr.compare import OP_NAMES, OPS, compare, metric_of, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STATED_DEGRADATION = {
    ("heterogeneity", "throughput"): 0.54,
    ("heterogeneity", "latency"): 2.2,
    ("interference", "throughput"): 0.55,
    ("interference", "latency"): 2.3,
}
_STATED_NORMALIZED = {
    ("heterogeneity", "throughput", "seq"): 1.45,
    ("heterogeneity", "throughput", "rand"): 1.65,
    ("heterogeneity", "latency", "seq"): 0.70,
    ("heterogeneity", "latency", "rand"): 0.59,
    ("interference", "throughput", "seq"): 1.09,
    ("interference", "throughput", "rand"): 1.19,
    ("interference", "latency", "seq"): 0.92,
    ("interference", "latency", "rand"): 0.84,
}
"""Sections V-C and V-D: DLR over default. The paper states no values for write or for reweight."""


def _means(rows: pd.DataFrame, metric: str) -> Estimate | None:
    values = rows[metric].dropna().tolist()
    return mean(values) if values else None


def degradation(
    evidence: Evidence, folder: Path, name: str, scenario: str, what: str
) -> Path | Missing:
    """Draw figures 1a-d: each mode with and without disturbance, absolute, mean of runs with 95 %
    confidence interval. The diamond marks the paper's worst case."""
    found: list[tuple[str, Estimate, Estimate]] = []
    for op in OPS:
        metric = "throughput_mb_s" if what == "throughput" else "latency_s"
        calm = _means(select(evidence.table, op=op, scenario="none", controller="default"), metric)
        hot = _means(select(evidence.table, op=op, scenario=scenario, controller="default"), metric)
        if calm is not None and hot is not None:
            found.append((op, calm, hot))
    if not found:
        return Missing(f"runs of default Ceph with scenario none and {scenario}")
    with style.figure() as (drawn, (axes,)):
        for side, colour, text in ((0, "#4477AA", "no disturbance"), (1, "#EE6677", scenario)):
            for index, (_, calm, hot) in enumerate(found):
                estimate = (calm, hot)[side]
                axes.bar(
                    index + (side - 0.5) * 0.36,
                    estimate.value,
                    0.34,
                    color=colour,
                    yerr=np.array(estimate.error).reshape(2, 1),
                    capsize=3,
                    label=text if index == 0 else None,
                )
        stated = _STATED_DEGRADATION[scenario, what]
        changes = [hot.value / calm.value for _, calm, hot in found]
        worst = int(np.argmin(changes) if what == "throughput" else np.argmax(changes))
        factor = 1 - stated if what == "throughput" else stated
        style.paper_marker(
            axes, worst + 0.18, found[worst][1].value * factor, text="paper's worst change"
        )
        for index, change in enumerate(changes):
            text = f"{change - 1:+.0%}" if what == "throughput" else f"{change:.2f}x"
            axes.annotate(
                text,
                (index + 0.18, 0),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color="white",
                fontweight="bold",
            )
        axes.set_xticks(range(len(found)), [OP_NAMES[op] for op, _, _ in found])
        axes.set_ylabel("Throughput (MB/s)" if what == "throughput" else "Mean latency (s)")
        n = counts(estimate for _, *both in found for estimate in both)
        axes.set_title(f"Rados bench {what} under {scenario} ({n} runs)")
        axes.margins(y=0.2)
        style.legend(drawn, [axes])
        return style.save(drawn, folder, name)


def normalized(
    evidence: Evidence, folder: Path, name: str, scenario: str, what: str
) -> Path | Missing:
    """Draw figures 6a-b and 8a-b: controllers over default Ceph, paired by block, geometric mean
    with 95 % confidence interval. Rand is in IOPS as in the paper; inert cells are hatched."""
    rows = evidence.table[evidence.table["scenario"] == scenario]
    controllers = style.in_order([str(c) for c in rows["controller"].dropna().unique()])
    found = _over_default(evidence.table, controllers, scenario, what)
    if not any(controller != "default" for _, controller in found):
        return Missing(f"blocks with default and another controller under {scenario}")
    ops = [op for op in OPS if any(key[0] == op for key in found)]
    width = 0.8 / len(controllers)
    places = {
        (op, controller): index + (place - (len(controllers) - 1) / 2) * width
        for index, op in enumerate(ops)
        for place, controller in enumerate(controllers)
    }
    with style.figure(width=7.2) as (drawn, (axes,)):
        for controller in controllers:
            mine = {places[key]: bar for key, bar in found.items() if key[1] == controller}
            _controller_bars(axes, mine, controller, width * 0.94)
        stated = [(op, _STATED_NORMALIZED.get((scenario, what, op))) for op in ops]
        marked = [(op, value) for op, value in stated if value is not None and (op, "dlr") in found]
        for op, value in marked:
            style.paper_marker(axes, places[op, "dlr"], value)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(ops)), [OP_NAMES[op] for op in ops])
        axes.set_ylabel(f"{'Throughput' if what == 'throughput' else 'Latency'} / default Ceph")
        better = "higher" if what == "throughput" else "lower"
        n = counts(estimate for estimate, _ in found.values())
        axes.set_title(f"{scenario.capitalize()}: {what} by controller ({better} is better, {n})")
        ends = [(places[key], estimate.high) for key, (estimate, _) in found.items()]
        values = [estimate.value for estimate, _ in found.values()]
        style.limit_intervals(axes, [*values, *(value for _, value in marked)], ends)
        style.legend(drawn, [axes])
        return style.save(drawn, folder, name)


def _over_default(
    table: pd.DataFrame, controllers: Sequence[str], scenario: str, what: str
) -> dict[tuple[str, str], tuple[Estimate, bool]]:
    """Return, by operation and controller, the ratio to default Ceph, and True if it was inert in
    every run. Pairs without a block that has both are left out."""
    found: dict[tuple[str, str], tuple[Estimate, bool]] = {}
    for op in OPS:
        base = select(table, op=op, scenario=scenario, controller="default")
        for controller in controllers:
            treated = select(table, op=op, scenario=scenario, controller=controller)
            estimate = compare(treated, base, metric_of(op, what))
            if estimate is not None:
                found[op, controller] = (estimate, bool(treated["inert"].all()))
    return found


def _controller_bars(
    axes: Axes, bars: Mapping[float, tuple[Estimate, bool]], controller: str, width: float
) -> None:
    """Draw the bars of a controller at their places; the first one is in the legend."""
    for index, (x, (estimate, inert)) in enumerate(bars.items()):
        axes.bar(
            x,
            estimate.value,
            width,
            color=style.colour(controller),
            hatch="//" if inert else None,
            edgecolor="white",
            yerr=np.array(estimate.error).reshape(2, 1),
            capsize=2.5,
            label=style.label(controller) if index == 0 else None,
        )
