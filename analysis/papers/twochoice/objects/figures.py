"""Figures 11 to 14 on real object servers, and figures beyond the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts
from analysis.papers.twochoice.objects.claims import PENDING, PROBED_MS, TABLE_MS
from analysis.papers.twochoice.objects.runs import HEAD_TO_HEAD, ON_RADOS, cells, rados, report
from analysis.papers.twochoice.panels import MARKERS, colour, label, points
from analysis.papers.twochoice.runs import (
    BOTH,
    COLLABORATIVE,
    FIXED,
    NATIVE,
    PREASSIGN,
    RANDOM,
    UNCACHED,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIB = 2**20
ENDED = "Seconds until the last process has ended"
STRAGGLERS = (("table2", "jobs of Table II"), ("fio", "fio on 1/8 of the disks"), ("none", "none"))
ON_RADOS_AMONG = (
    ("fio", "fio on 2 of 8 disks"),
    ("table2", "jobs of Table II"),
    ("none", "no stragglers"),
)
PENDING_COLOURS = {1: "#009E73", 2: "#56B4E9", 4: "#0072B2", 8: "#882255"}
CREATE_COLOUR, QUERY_COLOUR = "#D55E00", "#0072B2"
PAPER: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.2}

Array = npt.NDArray[np.float64]
Runs = Sequence[Sequence[dict[str, float]]]


def probing(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 11: probing time by the number of schedulers that probe at once."""
    rows = cells(evidence.table, "probe")
    if rows.empty:
        return Missing("probing by several numbers of schedulers")
    order = sorted(set(rows["schedulers"]))
    with style.figure(width=7.2, height=4.4) as (drawn, axes):
        panel, lines = axes[0], []
        for index, pending in enumerate(sorted(set(rows["pending"]))):
            found = points(rows[rows["pending"] == pending], "schedulers", _probed)
            lines.append(found)
            there = [place for place, at in enumerate(order) if at in found]
            these = [found[order[place]] for place in there]
            panel.errorbar(
                there,
                [one.value for one in these],
                yerr=np.array([one.error for one in these]).T.reshape(2, -1),
                fmt=f"{MARKERS[index]}-",
                color=PENDING_COLOURS.get(pending, "#444444"),
                markersize=5,
                linewidth=1.3,
                capsize=2.5,
                label=f"{pending} write{'s' * (pending > 1)}: {2 * pending} servers asked",
            )
        panel.axhline(PROBED_MS, **PAPER, label=f"paper: {PENDING} writes below 10 ms")
        style.magnitudes(panel)
        panel.set_xticks(range(len(order)), [str(at) for at in order])
        panel.set_xlabel("Schedulers that probe at the same time")
        panel.set_ylabel("Until the slowest answer (ms)")
        panel.set_title(counts(one for line in lines for one in line.values()), loc="left")
        style.legend(drawn, axes, columns=2)
        return style.save(drawn, folder, name)


def _probed(rows: pd.DataFrame) -> Estimate | None:
    return average(rows, "probe_mean_s", 1e3)


def redirecting(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 12: the growing redirect table's length, and times of create and query."""
    rows = cells(evidence.table, "table")
    if rows.empty:
        return Missing("a redirect table that was timed")
    runs = [report(evidence.runs[int(index)].folder)["rows"] for index in rows["index"]]
    with style.figure(1, 2, width=10.0, height=4.2) as (drawn, axes):
        _over(axes[0], runs, "entries", 1.0, ("live entries", "#444444"))
        axes[0].set_ylabel("Live entries of the table")
        for what, shade in (("create", CREATE_COLOUR), ("query", QUERY_COLOUR)):
            _over(axes[1], runs, f"{what}_seconds", 1e3, (what, shade))
        axes[1].axhline(TABLE_MS, **PAPER, label="paper: below 5 ms")
        axes[1].set_ylabel("What a client waits for it (ms)")
        style.magnitudes(axes[1])
        axes[0].set_ylim(0, None)
        for panel, title in zip(axes, ("(a) Length", "(b) Requests"), strict=True):
            panel.set_xlabel("Writes to the object so far")
            panel.set_title(f"{title} (n = {len(runs)} runs)", loc="left")
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


def _over(panel: Axes, runs: Runs, column: str, factor: float, line: tuple[str, str]) -> None:
    """Draw the mean over runs and their range, over the writes so far; `line`: text and colour."""
    text, shade = line
    at = np.array([[row["writes"] for row in run] for run in runs]).mean(axis=0)
    values = factor * np.array([[row[column] for row in run] for run in runs])
    panel.plot(at, values.mean(axis=0), color=shade, linewidth=1.3, label=text)
    panel.fill_between(at, values.min(axis=0), values.max(axis=0), color=shade, alpha=0.2, lw=0)


def balances(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 13: each server's share of all jobs, with fixed and dynamic placement."""
    rows = cells(evidence.table, "balance")
    both = sorted(
        set(rows[rows["scheduler"] == FIXED]["seed"]) & set(rows[rows["scheduler"] == BOTH]["seed"])
    )
    if not both:
        return Missing("all jobs of Table II with fixed placement and with both strategies")
    with style.figure(1, 2, width=10.4, height=4.0) as (drawn, axes):
        top = 0.0
        for panel, series, letter in zip(axes, (FIXED, BOTH), "ab", strict=True):
            its = rows[rows["scheduler"] == series]
            one = its[its["seed"] == both[0]].iloc[0]
            told = report(evidence.runs[int(one["index"])].folder)["apps"]
            written = np.array([app["server_bytes"] for app in told], dtype=float).sum(axis=0) / MIB
            panel.bar(range(len(written)), written, color=colour(series), width=0.8)
            panel.axhline(written.mean(), color="black", linewidth=1.0)
            top = max(top, written.max())
            fullest = average(its, "fullest")
            assert fullest is not None
            panel.set_title(
                f"({letter}) {label(series)}: fullest {_interval(fullest)} of the mean, "
                f"n = {fullest.n}",
                loc="left",
            )
            panel.set_xlabel("Object server")
            panel.set_ylabel("Written (MiB)")
        for panel in axes:
            panel.set_ylim(0, 1.08 * top)
        return style.save(drawn, folder, name)


def _interval(one: Estimate) -> str:
    if one.n < 2:
        return f"{one.value:.2f}"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def completions(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 14: end times of processes, as a distribution."""
    rows = cells(evidence.table, "burst", stragglers="table2")
    shown = [s for s in (FIXED, NATIVE, BOTH) if (rows["scheduler"] == s).any()]
    if len(shown) < 2:
        return Missing("bursts among the jobs of Table II with two schedulers")
    with style.figure(width=7.2, height=4.6) as (drawn, axes):
        panel, runs = axes[0], []
        for series in shown:
            its = rows[rows["scheduler"] == series]
            ends = np.array([_ends(evidence, int(index)) for index in its["index"]])
            runs.append(len(ends))
            share = (np.arange(ends.shape[1]) + 1) / ends.shape[1]
            middle = np.median(ends, axis=0)
            panel.plot(middle, share, color=colour(series), linewidth=1.6, label=label(series))
            low, high = ends.min(axis=0), ends.max(axis=0)
            panel.fill_betweenx(share, low, high, color=colour(series), alpha=0.18, lw=0)
            panel.plot([middle[-1]], [1.0], marker="v", color=colour(series), clip_on=False)
        panel.set_xlim(0, None)
        panel.set_ylim(0, 1.02)
        panel.set_xlabel("Completion time of a process (s)")
        panel.set_ylabel("Share of the processes")
        many = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        panel.set_title(f"Median over blocks and their range (n = {many} runs)", loc="left")
        style.legend(drawn, axes)
        return style.save(drawn, folder, name)


def _ends(evidence: Evidence, index: int) -> Array:
    """Return the end times of the measured job's processes, ascending."""
    apps = report(evidence.runs[index].folder)["apps"]
    return np.sort([s for app in apps if not app["background"] for s in app["rank_seconds"]])


def head_to_head(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw, beyond the paper, every scheduler on the same servers, by the cause of stragglers."""
    series = (*HEAD_TO_HEAD, RANDOM, COLLABORATIVE, PREASSIGN)
    rows = cells(evidence.table, "burst", stragglers=...)
    panels = [(key, text) for key, text in STRAGGLERS if (rows["stragglers"] == key).any()]
    if not panels:
        return Missing("bursts with several schedulers")
    with style.figure(1, len(panels), width=4.0 * len(panels) + 1.5, height=4.4) as (drawn, axes):
        for panel, (key, text) in zip(axes, panels, strict=True):
            here = rows[rows["stragglers"] == key]
            found = {one: average(here[here["scheduler"] == one], "seconds") for one in series}
            there = {one: value for one, value in found.items() if value is not None}
            draw_bars(panel, there)
            panel.set_title(
                f"Stragglers: {text} ({counts(there.values())})", loc="left", fontsize="small"
            )
            panel.set_ylabel(ENDED)
        return style.save(drawn, folder, name)


def remembered(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw, beyond the paper, both strategies with and without loads remembered of others."""
    panels = []
    for experiment, column, setting, text, axis in (
        ("balance", "fullest", {}, "All jobs of Table II", "Fullest server, of the mean"),
        ("burst", "seconds", {"stragglers": "table2"}, "A burst among them", ENDED),
    ):
        rows = cells(evidence.table, experiment, **setting)
        alone = cells(evidence.table, experiment, cache_s=0.0, **setting)
        found = {one: average(rows[rows["scheduler"] == one], column) for one in (FIXED, BOTH)}
        found[UNCACHED] = average(alone[alone["scheduler"] == BOTH], column)
        there = {one: value for one, value in found.items() if value is not None}
        if UNCACHED in there:
            panels.append((there, text, axis))
    if not panels:
        return Missing("both strategies without remembered loads")
    with style.figure(1, len(panels), width=4.2 * len(panels) + 1.0, height=4.4) as (drawn, axes):
        for panel, (there, text, axis) in zip(axes, panels, strict=True):
            draw_bars(panel, there)
            panel.set_title(f"{text} ({counts(there.values())})", loc="left", fontsize="small")
            panel.set_ylabel(axis)
        return style.save(drawn, folder, name)


def on_rados(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw, beyond the paper, CRUSH, DLR and every agent scheduler on a Ceph with eight OSDs."""
    wanted = [(key, text, 2) for key, text in ON_RADOS_AMONG]
    wanted.append((*ON_RADOS_AMONG[0], 1))
    panels = []
    for key, text, copies in wanted:
        here = rados(evidence.table, key, copies=copies)
        found = {one: average(here[here["scheduler"] == one], "seconds") for one in ON_RADOS}
        there = {one: value for one, value in found.items() if value is not None}
        if there:
            copied = "two copies" if copies == 2 else "one copy"
            panels.append((f"{text}, {copied}", there))
    if not panels:
        return Missing("bursts on RADOS with several schedulers")
    with style.figure(1, len(panels), width=4.2 * len(panels) + 1.5, height=4.4) as (drawn, axes):
        for panel, (text, there) in zip(axes, panels, strict=True):
            draw_bars(panel, there)
            panel.set_title(f"{text} ({counts(there.values())})", loc="left", fontsize="small")
            panel.set_ylabel(ENDED)
        return style.save(drawn, folder, name)


def draw_bars(panel: Axes, found: dict[str, Estimate]) -> None:
    """Draw a bar with its interval for each scheduler."""
    for place, (series, one) in enumerate(found.items()):
        panel.bar([place], [one.value], color=colour(series), width=0.7)
        if one.n > 1:
            error = np.array(one.error).reshape(2, 1)
            panel.errorbar([place], [one.value], yerr=error, color="black", capsize=3, linewidth=1)
    names = [label(series) for series in found]
    panel.set_xticks(range(len(names)), names, rotation=30, ha="right")
    values = [one.value for one in found.values()]
    ends = [(float(place), one.high) for place, one in enumerate(found.values()) if one.n > 1]
    style.limit_intervals(panel, values, ends)
