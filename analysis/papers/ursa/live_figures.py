"""Figures 4, 12 and 13: response times on a running store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing, bytes_text
from analysis.core.stats import Estimate, counts, mean
from analysis.papers.ursa.live_runs import CONTROLLED, NETWORKS, rebalancing, sizes
from schemas.settling import HOLD_S, STABLE_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER_SLOW = (20.0, 10.0)
"""Figure 4: "more than 10 seconds at ... 20 writes/s in write requests for 32MB block size"."""

CONTROLLERS = ("default", "upmap", "htoc", "ursa")
_STRICTER = (
    ("censored_good_s", "s", "mean time until stable to the run's end"),
    ("censored_strict_s", "x", "mean time until the last slow write"),
)
_COLOURS = {"ursa": "#0072B2", "htoc": "#E69F00", "upmap": "#CC79A7", "default": "#777777"}
_LABELS = {
    "ursa": "Ursa (ALP)",
    "htoc": "HtoC",
    "upmap": "Ceph's upmap balancer",
    "default": "no rebalancing",
}
_MB = 1e6


def load(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4: response time against the writes per second of one node."""
    rows = evidence.table[evidence.table["scenario"] == "single"]
    if rows.empty:
        return Missing("open-loop writes to one node at several rates (scenario single)")
    with style.figure() as (drawn, axes):
        panel, found = axes[0], list[Estimate]()
        for index, (size, mine) in enumerate(rows.groupby("object_size")):
            found += _rates(panel, mine, f"{bytes_text(int(str(size)))} writes", index)
        style.paper_marker(panel, *PAPER_SLOW, text="the paper: 32 MB writes, more than this")
        panel.axhline(STABLE_S, color="black", linewidth=0.8, linestyle=":")
        style.magnitudes(panel)
        panel.set_xlim(left=0)
        panel.set_xlabel("writes a second on the node")
        panel.set_ylabel("response time (s)")
        panel.set_title(f"{counts(found)} runs at each rate", loc="left")
        style.legend(drawn, axes, columns=2)
        return style.save(drawn, folder, name)


def _rates(panel: Axes, rows: pd.DataFrame, label: str, index: int) -> list[Estimate]:
    found: list[Estimate] = []
    colour = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")[index % 4]
    for column, words, line in (
        ("latency_p99_s", "99th percentile", "-"),
        ("latency_mean_s", "mean", "--"),
    ):
        by_rate = rows.dropna(subset=[column]).groupby("rate")[column]
        points = {float(str(rate)): mean(values.tolist()) for rate, values in by_rate}
        _curve(panel, points, colour, line, f"{label}, {words}")
        found += points.values()
    return found


def _curve(panel: Axes, points: dict[float, Estimate], colour: str, line: str, label: str) -> None:
    x = sorted(points)
    y = [points[at].value for at in x]
    errors = np.array([points[at].error for at in x]).T if x else np.zeros((2, 0))
    # A log axis cannot show the end of an interval that extends below zero.
    errors[0] = np.minimum(errors[0], 0.9 * np.array(y))
    panel.errorbar(
        x, y, yerr=errors, color=colour, linestyle=line, marker="o", capsize=3, label=label
    )


def response(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 12: response time of each request over time, by network and controller."""
    rows = rebalancing(evidence.table)
    networks = [network for network in NETWORKS if (rows["network"] == network).any()]
    if not networks:
        return Missing("open-loop writes with hot nodes (scenario skew) under ursa and HtoC")
    size = sizes(rows)[-1]
    rows = rows[rows["size"] == size]
    networks = [network for network in networks if (rows["network"] == network).any()]
    shown = [c for c in CONTROLLERS if (rows["controller"] == c).any()]
    with style.figure(
        len(networks), len(shown), width=2.6 * len(shown) + 0.8, height=2.3 * len(networks) + 0.7
    ) as (drawn, axes):
        for place, panel in enumerate(axes):
            network, controller = networks[place // len(shown)], shown[place % len(shown)]
            mine = rows[(rows["network"] == network) & (rows["controller"] == controller)]
            _requests(panel, evidence, mine)
            if place < len(shown):
                panel.set_title(_LABELS[controller], fontsize="medium")
            if place % len(shown) == 0:
                panel.set_ylabel(f"{network}, {size}\nresponse time (s)")
            if place >= len(axes) - len(shown):
                panel.set_xlabel("elapsed time (s)")
        _same_limits(axes)
        return style.save(drawn, folder, name)


def _requests(panel: Axes, evidence: Evidence, rows: pd.DataFrame) -> None:
    """Draw the requests of one run: the first block's."""
    style.magnitudes(panel)
    panel.axhline(STABLE_S, color="black", linewidth=0.8, linestyle=":")
    if rows.empty:
        panel.text(0.5, 0.5, "not run", ha="center", va="center", transform=panel.transAxes)
        return
    row = rows.sort_values(["block", "campaign"]).iloc[0]
    colour = _COLOURS[str(row["controller"])]
    requests = pd.read_parquet(evidence.runs[int(row["index"])].folder / "requests.parquet")
    done = requests.dropna(subset=["latency_s"])
    panel.scatter(
        done["t_s"], done["latency_s"], s=2, color=colour, alpha=0.35, linewidths=0, rasterized=True
    )
    panel.axvline(float(row["called_s"]), color="black", linewidth=0.9)
    panel.text(float(row["called_s"]), 0.02, " L", transform=panel.get_xaxis_transform())
    if pd.notna(row["settled_s"]):
        at = float(row["called_s"]) + float(row["settled_s"])
        panel.axvline(at, color=colour, linewidth=1.2, linestyle="--")
        words = f"stable after {row['settled_s']:.0f} s (for {HOLD_S:g} s)"
    else:
        words = "not stable"
    told = panel.text(0.97, 0.95, words, transform=panel.transAxes, ha="right", va="top")
    told.set(fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _same_limits(axes: Sequence[Axes]) -> None:
    low = min(panel.get_ylim()[0] for panel in axes)
    high = max(panel.get_ylim()[1] for panel in axes)
    right = max(panel.get_xlim()[1] for panel in axes)
    for panel in axes:
        panel.set_ylim(max(low, 1e-3), 2 * high)
        panel.set_xlim(0, right)


def settling(
    evidence: Evidence, folder: Path, name: str, *, network: str = CONTROLLED
) -> Path | Missing:
    """Draw figure 13: time until stable, number of migrations, and their cost, by size."""
    rows = rebalancing(evidence.table, network=network)
    if rows.empty:
        return Missing(f"open-loop writes with hot nodes (scenario skew), network {network}")
    order = sizes(rows)
    with style.figure(1, 3, width=9.6, height=3.4) as (drawn, axes):
        for panel, column, words in zip(
            axes,
            ("censored_s", "moves", "cost"),
            ("seconds until stable", "migrations", "cost of migrations (distance)"),
            strict=True,
        ):
            _bars(panel, rows, order, column)
            panel.set_ylabel(words)
            panel.set_xlabel("OSDs-placement groups")
        never = rows["settled_s"].isna().any()
        if never:
            axes[0].set_title("hatched: some never became stable", fontsize="small")
        handles, labels = axes[0].get_legend_handles_labels()
        for _, marker, words in _STRICTER:
            handles.append(Line2D([], [], **_mark(marker)))
            labels.append(words)
        drawn.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
        return style.save(drawn, folder, name)


def _mark(marker: str) -> dict[str, Any]:
    """Return the style of a mark that does not hide another mark at its place."""
    shape = {"marker": marker, "markersize": 6, "markerfacecolor": "none"}
    return {"linestyle": "none", "color": "black", **shape}


def _bars(panel: Axes, rows: pd.DataFrame, order: Sequence[str], column: str) -> None:
    shown = [c for c in CONTROLLERS if rows.loc[rows["controller"] == c, column].notna().any()]
    width = 0.8 / max(1, len(shown))
    for number, controller in enumerate(shown):
        mine = rows[rows["controller"] == controller]
        for place, size in enumerate(order):
            here = mine[mine["size"] == size].dropna(subset=[column])
            if here.empty:
                continue
            found = mean(here[column].astype(float).tolist())
            censored = column == "censored_s" and here["settled_s"].isna().any()
            panel.bar(
                place + (number - (len(shown) - 1) / 2) * width,
                found.value,
                width,
                yerr=np.array([found.error]).T,
                color=_COLOURS[controller],
                hatch="///" if censored else None,
                edgecolor="white",
                capsize=3,
                label=_LABELS[controller] if place == 0 else None,
            )
            if column == "censored_s":
                at = place + (number - (len(shown) - 1) / 2) * width
                for stricter, marker, _ in _STRICTER:
                    panel.plot(at, here[stricter].mean(), **_mark(marker))
    panel.set_xticks(range(len(order)), list(order))
