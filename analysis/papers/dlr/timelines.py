"""Figures over time: 6c and 8c (primary affinity), 7 and 9 (performance by interval), 11."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.core.load import LoadedRun
from analysis.core.stats import Estimate, counts, mean
from analysis.papers.dlr.compare import OP_NAMES, OPS, select

INTERVALS = 6  # the paper's 180 s in intervals of 30 s


def affinity(evidence: Evidence, folder: Path, name: str, scenario: str) -> Path | Missing:
    """Draw figures 6c and 8c: every OSD's primary affinity in one DLR run (the first block's), and
    below it the disturbed nodes."""
    for op in ("seq", "rand", "write"):
        rows = select(evidence.table, op=op, scenario=scenario, controller="dlr")
        if len(rows):
            break
    else:
        return Missing(f"a DLR run under {scenario}")
    loaded = evidence.runs[int(rows.sort_values("block")["index"].iloc[0])]
    samples = loaded.samples()
    values = samples[samples["metric"] == "primary_affinity"]
    if values.empty:
        return Missing(f"samples of primary affinity in a DLR run under {scenario}")
    hot = samples[samples["metric"] == "hot"].pivot_table(
        index="node", columns="t_s", values="value", aggfunc="last"
    )
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
        axes[0].set_title(f"Primary affinity under DLR, {scenario}, {OP_NAMES[op].lower()}")
        return style.save(drawn, folder, name)


def _scale(loaded: LoadedRun) -> str:
    scale = loaded.run.time_scale
    return f"1/{1 / scale:g}" if scale < 1 else f"{scale:g}"


def _steps(axes: object, values: pd.DataFrame) -> None:
    import seaborn as sns
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
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


def by_interval(evidence: Evidence, folder: Path, name: str, scenario: str) -> Path | Missing:
    """Draw figures 7 and 9: throughput in six equal parts of the run, mean over runs with 95 %
    confidence interval."""
    parts: dict[tuple[str, str], list[list[float]]] = {}
    for op in OPS:
        rows = evidence.table
        rows = rows[(rows["scenario"] == scenario) & (rows["op"] == op)]
        for controller in style.in_order([str(c) for c in rows["controller"].dropna().unique()]):
            mine = select(rows, controller=controller)
            series = [_parts(evidence.runs[int(index)]) for index in mine["index"]]
            kept = [values for values in series if values is not None]
            if kept:
                parts[op, controller] = kept
    ops = [op for op in OPS if any(key[0] == op for key in parts)]
    if not ops:
        return Missing(f"runs with per-second throughput under {scenario}")
    with style.figure(1, len(ops), width=4.2 * len(ops), height=3.6) as (drawn, axes):
        for axis, op in zip(axes, ops, strict=True):
            shown: list[tuple[float, Estimate]] = []
            for controller in style.in_order([c for o, c in parts if o == op]):
                runs = np.array(parts[op, controller])
                estimates = [mean(runs[:, part].tolist()) for part in range(INTERVALS)]
                shown += enumerate(estimates, start=1)
                axis.errorbar(
                    np.arange(1, INTERVALS + 1),
                    [estimate.value for estimate in estimates],
                    yerr=np.array([estimate.error for estimate in estimates]).T,
                    fmt="o-",
                    capsize=2.5,
                    color=style.colour(controller),
                    label=style.label(controller),
                )
            style.limit_intervals(
                axis,
                [estimate.value for _, estimate in shown],
                [(x, estimate.high) for x, estimate in shown],
            )
            axis.set_title(f"{OP_NAMES[op]}, {scenario} ({counts(one for _, one in shown)} runs)")
            axis.set_xlabel("Sixth of the run")
        axes[0].set_ylabel("Throughput (MB/s)")
        style.legend(drawn, axes, columns=5)
        return style.save(drawn, folder, name)


def _parts(loaded: LoadedRun) -> list[float] | None:
    """Return mean throughput in each part of the benchmark's duration. Later requests are left out:
    the benchmark had ended, and fewer and fewer requests were in flight."""
    t_s, values = loaded.series("throughput_mb_s", "client")
    spans = np.diff(t_s, prepend=0.0)  # a sample's time is its end
    share = (t_s - spans / 2) / (loaded.run.parameters["duration_s"] * loaded.run.time_scale)
    used = (spans > 0) & (share < 1) & ~np.isnan(values)
    part, spans, values = (share[used] * INTERVALS).astype(int), spans[used], values[used]
    seconds = np.bincount(part, weights=spans, minlength=INTERVALS)
    if not seconds.all():
        return None
    means = np.bincount(part, weights=values * spans, minlength=INTERVALS) / seconds
    return [float(mean) for mean in means]


def overhead(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11: seconds per step of DLR's Performance Monitor (sense) and Affinity Controller
    (decide and act), from the journals of every DLR run: mean of runs with interval."""
    rows = evidence.table[evidence.table["controller"] == "dlr"]
    steps = {"sense_s": [], "decide_s": [], "act_s": []}  # type: dict[str, list[float]]
    for index in rows["index"]:
        lines = [line for line in evidence.runs[int(index)].journal() if "step" in line]
        for key, values in steps.items():
            mine = [float(line[key]) for line in lines if line.get(key) is not None]
            if mine:
                values.append(float(np.mean(mine)))
    if not all(steps.values()):
        return Missing("journals of DLR runs")
    interval = 20 * float(rows["time_scale"].iloc[0])
    with style.figure(height=3) as (drawn, (axes,)):
        names = [
            "Performance Monitor\n(sense)",
            "Affinity Controller\n(decide)",
            "Affinity Controller\n(act)",
        ]
        estimates = [mean(values) for values in steps.values()]
        axes.barh(
            range(3),
            [1000 * estimate.value for estimate in estimates],
            0.6,
            color=["#88BBDD", "#0072B2", "#004466"],
            xerr=1000 * np.array([estimate.error for estimate in estimates]).T,
            capsize=3,
        )
        axes.set_yticks(range(3), names)
        axes.invert_yaxis()
        total = sum(estimate.value for estimate in estimates)
        axes.set_xlabel("Milliseconds a control step")
        axes.set_title(
            f"DLR's overhead: {1000 * total:.0f} ms of a {interval:.1f} s interval "
            f"({total / interval:.1%}), {counts(estimates)} runs"
        )
        return style.save(drawn, folder, name)
