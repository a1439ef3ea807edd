"""Figures 11 and 12: two tenants with changing load, and their resources under MOS++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.figures import Missing
from analysis.papers.mos.local.adaptation import LARGE, SMALL, free, share
from analysis.papers.mos.local.panels import BANDWIDTH_SLA, LATENCY_SLA
from analysis.papers.mos.local.runs import MOS_PP, cells, colour, label, report, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

WINDOW_MINUTES = 2.0
"""Length of the windows for rates and latencies, in minutes of the paper."""
SHARES = (
    ("proxy_cores", "CPU of proxies"),
    ("storage_cores", "CPU of storage servers"),
    ("network", "Network"),
)
HELD_COLOURS = {SMALL: "#0072B2", LARGE: "#E69F00", "free": "#DDDDDD"}
HELD_LABELS = {SMALL: "workload A's microstore", LARGE: "workload C's microstore", "free": "free"}


def throughput(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11(a): throughput of workload A."""
    return _over_time(evidence, (folder, name), ("A", "ops", 1.0), "Throughput of A (QPS)")


def latency(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11(b): mean read latency of workload A."""
    return _over_time(
        evidence,
        (folder, name),
        ("A", "latency", 1e3),
        "Mean latency of A's reads (ms)",
        sla=(LATENCY_SLA, "SLA of A (mean latency)"),
    )


def bandwidth(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11(c): bandwidth of workload C."""
    return _over_time(
        evidence,
        (folder, name),
        ("C", "bytes", 1e-6),
        "Bandwidth of C (MB/s)",
        sla=(BANDWIDTH_SLA, "SLA of C (bandwidth, by its workers)"),
    )


def _over_time(
    evidence: Evidence,
    file: tuple[Path, str],
    what: tuple[str, str, float],
    unit: str,
    sla: tuple[Mapping[str, Any], str] | None = None,
) -> Path | Missing:
    rows = cells(evidence.table, "adaptation")
    order = shown(rows)
    if len(order) < 2:
        return Missing("workloads A and C whose load changes, with two setups")
    letter, measure, factor = what
    with style.figure(width=8.6, height=4.0) as (drawn, axes):
        panel, numbers, told = axes[0], [], {}
        for setup in order:
            its = rows[rows["setup"] == setup]
            curves = []
            for _, row in its.iterrows():
                told = report(evidence.runs[int(row["index"])].folder)
                curves.append(windows(told["series"][letter], told["minute_s"], measure))
            numbers.append(len(curves))
            _band(panel, setup, [factor * one for one in curves])
        _stages(panel, told)
        if sla is not None:
            limit = promised(told, measure)
            at = (np.arange(len(limit)) + 0.5) * WINDOW_MINUTES
            panel.step(at, factor * limit, where="mid", **sla[0], label=sla[1])
        panel.set_ylim(0, None)
        panel.set_xlabel(f"Minutes of the paper (of {told['minute_s']:g} s here)")
        panel.set_ylabel(unit)
        panel.set_title(f"Mean over blocks and their range ({_counted(numbers)})", loc="left")
        style.legend(drawn, axes, columns=5)
        return style.save(drawn, *file)


def promised(told: Mapping[str, Any], measure: str) -> Floats:
    """Return the SLA in each window: a mean latency, or bytes per second as workers come and go
    (some runs report one number for all their seconds)."""
    each = np.broadcast_to(told["sla"]["bytes_s"], len(told["series"]["C"]["bytes"]))
    bytes_s = windows({"bytes_s": each.tolist()}, told["minute_s"], "bytes_s")
    if measure == "latency":
        return np.full(len(bytes_s), float(told["sla"]["latency_s"]))
    return bytes_s


def _counted(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"n = {high}" if low == high else f"n = {low} to {high}"


def windows(series: Mapping[str, Sequence[float]], minute_s: float, measure: str) -> Floats:
    """Return a number for each window of time.

    Args:
        series: values per second: ``ops``, ``bytes``, ``reads`` and ``read_s``, the sum of the read
            latencies.
        minute_s: seconds of one of the paper's minutes.
        measure: ``ops``, ``bytes`` or ``bytes_s`` (per second), or ``latency`` (seconds; NaN
            without a read).
    """
    width = max(1, round(WINDOW_MINUTES * minute_s))
    names = ("read_s", "reads") if measure == "latency" else (measure, None)
    top = _summed(series[names[0]], width)
    if names[1] is None:
        rates: Floats = top / width
        return rates
    below = _summed(series[names[1]], width)
    means: Floats = np.divide(top, below, out=np.full(len(top), np.nan), where=below > 0)
    return means


def _summed(values: Sequence[float], width: int) -> Floats:
    whole = len(values) // width * width
    found: Floats = np.asarray(values[:whole], dtype=float).reshape(-1, width).sum(axis=1)
    return found


def _band(panel: Axes, setup: str, curves: Sequence[Floats]) -> None:
    length = min(len(curve) for curve in curves)
    stacked = np.array([curve[:length] for curve in curves])
    at = (np.arange(length) + 0.5) * WINDOW_MINUTES
    known = ~np.isnan(stacked).all(axis=0)
    at, stacked = at[known], stacked[:, known]
    panel.plot(
        at, np.nanmean(stacked, axis=0), color=colour(setup), linewidth=1.6, label=label(setup)
    )
    if len(curves) > 1:
        low, high = np.nanmin(stacked, axis=0), np.nanmax(stacked, axis=0)
        panel.fill_between(at, low, high, color=colour(setup), alpha=0.18, lw=0)


def _stages(panel: Axes, told: Mapping[str, Any]) -> None:
    for number, begins in enumerate(told["course"]["stages"], start=1):
        at = begins / told["minute_s"]
        if number > 1:
            panel.axvline(at, color="black", linewidth=0.8, linestyle="-.")
        panel.annotate(
            f"stage {number}",
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -9),
            textcoords="offset points",
            fontsize="x-small",
        )


def resources(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 12: the shares of the pool under MOS++, in the first block's run."""
    rows = cells(evidence.table, "adaptation", setup=MOS_PP).sort_values("block")
    told = next(
        (
            found
            for index in rows["index"]
            if (found := report(evidence.runs[int(index)].folder)).get("held")
        ),
        None,
    )
    if told is None:
        return Missing("MOS++ with a load that changes")
    parts = [*SHARES]
    if told["pool"].get("hdds"):
        parts.append(("hdds", "HDDs"))
    with style.figure(len(parts), 1, width=8.6, height=1.5 + 1.5 * len(parts)) as (drawn, axes):
        for panel, (key, text) in zip(axes, parts, strict=True):
            _held(panel, told, key)
            panel.set_ylabel(f"{text}\n(% of the pool)", fontsize="small")
            _stages(panel, told)
        axes[-1].set_xlabel(f"Minutes of the paper (of {told['minute_s']:g} s here)")
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def _held(panel: Axes, told: Mapping[str, Any], key: str) -> None:
    minute, ends = told["minute_s"], told["course"]["ends"]
    times = [0.0, *(line["t_s"] for line in told["held"] if 0 < line["t_s"] < ends)]
    layers = {
        SMALL: [100 * share(told, t_s, SMALL, key) for t_s in times],
        LARGE: [100 * share(told, t_s, LARGE, key) for t_s in times],
        "free": [100 * max(0.0, free(told, t_s, key)) for t_s in times],
    }
    at = [*(t_s / minute for t_s in times), ends / minute]
    below = np.zeros(len(at))
    for who, values in layers.items():
        top = below + np.array([*values, values[-1]])
        panel.fill_between(
            at, below, top, step="post", color=HELD_COLOURS[who], label=HELD_LABELS[who], lw=0
        )
        below = top
    panel.set_ylim(0, 101)
    panel.set_xlim(0, ends / minute)
