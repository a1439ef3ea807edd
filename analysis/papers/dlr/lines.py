"""Line figures: 3 and 4 (load against throughput), 5 (threshold), 10 (object sizes)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing, bytes_text
from analysis.core.stats import Estimate, counts, mean
from analysis.papers.dlr.compare import OP_NAMES, select, sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOG_ROOM = 3.0
"""A logarithmic axis extends by this factor on both sides; wider intervals are cut there."""

_OFFERED = {"A": "10 %", "B": "25 %", "C": "50 %", "D": "75 %", "E": "100 %"}


def _error_bars(
    axes: Axes,
    x: Sequence[float],
    estimates: Sequence[Estimate],
    *,
    colour: str,
    text: str,
    fmt: str,
) -> None:
    axes.errorbar(
        x,
        [estimate.value for estimate in estimates],
        yerr=np.array([estimate.error for estimate in estimates]).T,
        fmt=fmt,
        color=colour,
        capsize=3,
        label=text,
    )


def _heights(axes: Axes, x: Sequence[float], estimates: Sequence[Estimate]) -> None:
    """Start the vertical axis at 0 and keep it readable if few runs make an interval very wide."""
    ends = [(at, e.high) for at, e in zip(x, estimates, strict=True)]
    style.limit_intervals(axes, [e.value for e in estimates], ends)


def _signal(rows: pd.DataFrame) -> str:
    names = {"io_pressure": "I/O pressure (stands in for %iowait)", "iowait": "%iowait"}
    used = [names.get(str(name), str(name)) for name in rows["signal_used"].dropna().unique()]
    return " / ".join(used) or "pressure"


def load_mix(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 3: mean pressure over OSD nodes and sequential read throughput for mixes A-E. The
    paper grows fio's files from 250 MB to 4 GB. On the local site the mixes are offered loads of 10
    to 100 % of each node's disk, with labels that say so."""
    rows = evidence.table
    rows = rows[(rows["scenario"] == "mix") & (rows["op"] == "seq")]
    mixes = sorted(str(mix) for mix in rows["mix"].dropna().unique())
    if len(mixes) < 2:
        return Missing("sequential reads under load mixes A-E (scenario mix)")
    pressure = [mean(rows[rows["mix"] == mix]["pressure_mean"].tolist()) for mix in mixes]
    speed = [mean(rows[rows["mix"] == mix]["throughput_mb_s"].tolist()) for mix in mixes]
    local = set(rows["ground"]) <= {"local", "sim", "fake"}
    places = list(range(len(mixes)))
    with style.figure() as (drawn, (axes,)):
        axes.bar(
            places,
            [estimate.value for estimate in pressure],
            0.55,
            color="#DDCC77",
            yerr=np.array([estimate.error for estimate in pressure]).T,
            capsize=3,
            label=_signal(rows),
        )
        axes.set_ylabel("Mean over OSD nodes (%)")
        axes.set_ylim(0, 119)
        other = axes.twinx()
        other.grid(False)
        _error_bars(other, places, speed, colour="#0072B2", text="throughput", fmt="o-")
        _heights(other, places, speed)
        other.set_ylabel("Sequential read (MB/s)")
        axes.set_xticks(
            places, [f"{mix}\n{_OFFERED[mix]} offered" if local else mix for mix in mixes]
        )
        axes.set_xlabel("Server load mix")
        axes.set_title(f"Mean pressure and sequential read throughput ({counts(speed)} runs)")
        style.legend(drawn, [axes, other])
        return style.save(drawn, folder, name)


def load_spread(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4: throughput against the spread of pressure over nodes, mean load constant."""
    rows = evidence.table
    rows = rows[(rows["scenario"] == "spread") & (rows["op"] == "seq")]
    spreads = sorted(float(value) for value in rows["spread"].dropna().unique())
    if len(spreads) < 2:
        return Missing("sequential reads with several spreads of load (scenario spread)")
    groups = [rows[rows["spread"] == value] for value in spreads]
    with style.figure() as (drawn, (axes,)):
        x = [mean(group["pressure_sd"].tolist()) for group in groups]
        y = [mean(group["throughput_mb_s"].tolist()) for group in groups]
        axes.errorbar(
            [estimate.value for estimate in x],
            [estimate.value for estimate in y],
            xerr=np.array([estimate.error for estimate in x]).T,
            yerr=np.array([estimate.error for estimate in y]).T,
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
        _heights(axes, [estimate.value for estimate in x], y)
        axes.margins(x=0.15)
        axes.set_title(f"Spread of load over nodes, mean offered load held at 50 % ({counts(y)})")
        return style.save(drawn, folder, name)


def threshold(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 5: sequential read throughput of DLR for several theta_i."""
    rows = evidence.table
    rows = rows[(rows["controller"] == "dlr") & (rows["op"] == "seq")]
    thetas = rows["variant"].map(lambda text: json.loads(text).get("theta_i"))
    rows = rows.assign(theta_i=thetas).dropna(subset=["theta_i"])
    values = sorted(float(value) for value in rows["theta_i"].unique())
    if len(values) < 2:
        return Missing("DLR runs with several values of theta_i")
    speed = [mean(rows[rows["theta_i"] == v]["throughput_mb_s"].tolist()) for v in values]
    with style.figure() as (drawn, (axes,)):
        colours = [style.colour("dlr") if value == 0.2 else "#88BBDD" for value in values]
        axes.bar(
            range(len(values)),
            [estimate.value for estimate in speed],
            0.6,
            color=colours,
            yerr=np.array([estimate.error for estimate in speed]).T,
            capsize=3,
        )
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        axes.set_xlabel(r"$\theta_i$ (the paper chooses 0.2, dark)")
        axes.set_ylabel("Sequential read (MB/s)")
        axes.set_title(f"DLR's imbalance threshold ({counts(speed)} runs)")
        return style.save(drawn, folder, name)


def object_sizes(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 10: sequential read throughput and latency over object sizes, both scenarios."""
    scenarios = ("heterogeneity", "interference")
    table = evidence.table
    rows = sweep(table[(table["op"] == "seq") & table["scenario"].isin(scenarios)], "object_size")
    shown = [s for s in scenarios if rows[rows["scenario"] == s]["object_size"].nunique() > 1]
    if not shown:
        return Missing("sequential reads with several object sizes")
    with style.figure(len(shown), 2, width=9, height=3.6 * len(shown)) as (drawn, axes):
        for row, scenario in enumerate(shown):
            for column, metric in enumerate(("throughput_mb_s", "latency_s")):
                _by_size(axes[2 * row + column], rows, scenario, metric)
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def _by_size(axes: Axes, rows: pd.DataFrame, scenario: str, metric: str) -> None:
    here = rows[rows["scenario"] == scenario]
    duration = here["duration_s"].iloc[0]

    def rows_of(controller: str, size: int) -> pd.DataFrame:
        return select(here, controller=controller, object_size=size, duration_s=duration)

    drawn: list[tuple[float, Estimate]] = []
    for controller in style.in_order([str(c) for c in here["controller"].unique()]):
        mine = [
            (int(size), rows_of(controller, size)[metric].dropna())
            for size in sorted(here["object_size"].unique())
        ]
        mine = [(size, values) for size, values in mine if len(values)]
        if not mine:
            continue
        points = [(size / 2**20, mean(values.tolist())) for size, values in mine]
        drawn += points
        _error_bars(
            axes,
            [size for size, _ in points],
            [estimate for _, estimate in points],
            colour=style.colour(controller),
            text=style.label(controller),
            fmt="o-",
        )
    axes.set_xscale("log", base=2)
    sizes = sorted(here["object_size"].unique())
    axes.set_xticks([size / 2**20 for size in sizes], [bytes_text(int(size)) for size in sizes])
    axes.minorticks_off()
    if metric == "latency_s":
        style.magnitudes(axes)
        values = [estimate.value for _, estimate in drawn]
        axes.set_ylim(min(values) / _LOG_ROOM, max(values) * _LOG_ROOM)
    else:
        _heights(axes, [size for size, _ in drawn], [estimate for _, estimate in drawn])
    axes.set_xlabel("Object size")
    axes.set_ylabel(f"{OP_NAMES['seq']} (MB/s)" if metric == "throughput_mb_s" else "Latency (s)")
    axes.set_title(f"{scenario.capitalize()} ({counts(one for _, one in drawn)} runs)")
