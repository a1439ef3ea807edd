"""Figures and tables of the two-choice paper, and figures beyond it: means over runs with 95 %
intervals.

Section III: figures 3 and 4, simulated. Section VI: figures 11 to 14 and Table I, on object
servers. Each is a part with runs of its own; runs of different grounds are never pooled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.evidence import average, known, quotient, values_of
from analysis.core.figures import (
    COUNT,
    FigureEntry,
    Missing,
    Table,
    interval,
    interval_text,
    tabulated,
    total,
    value,
)
from analysis.core.panels import MARKERS, Estimator, Look, Points, counts, errors, lines, points
from analysis.core.papers import Part
from analysis.core.stats import Estimate, amount, range_text
from analysis.papers.twochoice.claims import BURST_CLAIMS, SCALE_LEARN
from analysis.papers.twochoice.objects import OBJECT_CLAIMS, PENDING, PROBED_MS, TABLE1, TABLE_MS
from analysis.papers.twochoice.runs import (
    BEYOND,
    BOTH,
    BURSTS_FILE,
    COLD,
    COLLABORATIVE,
    FIXED,
    HEAD_TO_HEAD,
    NATIVE,
    ON_RADOS,
    ONE_CHOICE,
    ORACLE,
    PAIRED,
    PAPERS,
    PREASSIGN,
    PREQUAL,
    RADOS_AMONG,
    RANDOM,
    REPORT_FILE,
    STRAGGLERS,
    TWO_CHOICES,
    UNCACHED,
    burst_table,
    by_load,
    few_stragglers,
    loads_given,
    look,
    object_table,
    on_osds,
    on_servers,
    reports,
    shared_ratios,
    simulated,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANNER = (
    "<b>Simulated</b> where a figure says so: bursts of writes on modelled servers, as in section "
    "III of the paper, placed by the very code that places writes on a store. The paper's figures "
    "3 and 4 are simulations too; their pictures are not in its text, which states relations and "
    "hardly a number (docs/twochoice.md)."
)

RESPONSE = "Response time of the slowest process (s)"
SHARE = "Straggler servers (%)"
ENDED = "Seconds until the last process has ended"
SCALE_RATIO = 0.1
STATED_LOAD, STATED_SERVERS = 7, 60
READABLE = 0.03
BURST_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
BAR, DARK = "#D9D9D9", "#444444"
PENDING_COLOURS = {1: "#009E73", 2: "#56B4E9", 4: "#0072B2", 8: "#882255"}
CREATE_COLOUR, QUERY_COLOUR = "#D55E00", "#0072B2"
BOUND: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.2}
MIB = 2**20

AMONG = {"table2": "jobs of Table II", "fio": "fio on 1/8 of the disks", "none": "none"}
AMONG_ON_RADOS = {
    "fio": "fio on 2 of 8 disks",
    "table2": "jobs of Table II",
    "none": "no stragglers",
}
COPIES = {2: "two copies", 1: "one copy"}

Series = Mapping[str, Points]
"""Estimates by setting, of each scheduler."""


def _by(
    rows: Mapping[str, pd.DataFrame], parameter: str, of: str | Estimator = "response_s"
) -> dict[str, dict[Any, Estimate]]:
    return {series: points(its, parameter, of) for series, its in rows.items()}


def _draw(
    panel: Axes,
    found: Series,
    order: Sequence[Any],
    ticks: Sequence[str] | None,
    *,
    title: str,
    x: str,
    y: str,
    to_scale: bool = False,
) -> None:
    """Draw a line for each scheduler; ``{}`` in the title is the number of runs."""
    series = [(look(name), its) for name, its in found.items()]
    lines(panel, series, order, ticks, to_scale=to_scale)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.set_title(title.format(counts(series)), loc="left")


def _percent(ratios: Sequence[float]) -> list[str]:
    return [f"{100 * ratio:g}" for ratio in ratios]


def responses(evidence: Evidence, **setting: Any) -> Figure | Missing:
    """Draw figure 3: (a) the paper's schedulers, (b) schedulers beyond the paper, on a logarithmic
    axis; as in the paper's simulation, or with other parameters."""
    panels = (("(a) The paper's ({})", PAPERS), ("(b) Beyond ({})", (FIXED, BOTH, *COLD, *BEYOND)))
    rows = {
        series: simulated(evidence.table, series, **setting) for series in (*PAPERS, *COLD, *BEYOND)
    }
    if any(rows[series].empty for series in PAPERS):
        return Missing("the paper's six schedulers at several straggler ratios")
    # Figure 4's ratios were not run cold.
    order = shared_ratios(*(rows[series] for series in (*PAPERS, *COLD) if len(rows[series])))
    ticks = _readable(order)
    with style.figure(1, 2, width=10.4, height=4.6) as (drawn, axes):
        for panel, (title, shown) in zip(axes, panels, strict=True):
            there = {s: rows[s][rows[s]["straggler_ratio"].isin(order)] for s in shown}
            found = _by(there, "straggler_ratio")
            _draw(panel, found, order, ticks, title=title, x=SHARE, y=RESPONSE, to_scale=True)
        axes[0].set_ylim(0, None)
        style.magnitudes(axes[1])
        return style.legend(drawn, axes, columns=5)


def _readable(order: Sequence[float]) -> list[str]:
    """Return ratios as tick labels; a ratio too close to the last readable one gets no label."""
    last = -1.0
    found = []
    for ratio, text in zip(order, _percent(order), strict=True):
        found.append(text if ratio - last >= READABLE else "")
        last = ratio if found[-1] else last
    return found


def placements(evidence: Evidence) -> Figure | Missing:
    """Draw figure 4: the most writes given to a server of a load, and (bars) such servers."""
    ratio = few_stragglers(evidence.table, PAPERS)
    if ratio is None:
        return Missing("the paper's six schedulers with few stragglers")
    with style.figure(1, 2, width=10.4, height=4.8) as (drawn, axes):
        titles, rights = ("(a) The paper's", "(b) Beyond"), []
        for panel, title, shown in zip(axes, titles, (PAPERS, (BOTH, *BEYOND)), strict=True):
            given = {series: loads_given(evidence, series, ratio) for series in shown}
            given = {series: its for series, its in given.items() if len(its)}
            first = next(iter(given.values()))
            loads = _frequent(first)
            rights.append(_number_of_servers(panel, first, loads, note=panel is axes[0]))
            ticks = ["stragglers" if load == STRAGGLERS else str(load) for load in loads]
            _draw(
                panel,
                {
                    series: {at: one for at, one in by_load(its, "most").items() if at in loads}
                    for series, its in given.items()
                },
                loads,
                ticks,
                title=f"{title}, {100 * ratio:g} % stragglers ({{}})",
                x="Load of a server before the burst (writes)",
                y="Most writes that a server is given",
            )
            panel.tick_params(axis="x", labelrotation=90)
            panel.set_ylim(-1, None)
        return style.legend(drawn, [*axes, *rights], columns=4)


def _frequent(rows: pd.DataFrame) -> list[int]:
    """Return loads that a server has in about every burst, in order, stragglers last."""
    seeds = rows["seed"].nunique()
    held = by_load(rows, "servers").items()
    loads = [load for load, one in held if one.value >= 1 and one.n == seeds]
    return sorted(loads, key=lambda load: (load == STRAGGLERS, load))


def _number_of_servers(panel: Axes, rows: pd.DataFrame, loads: list[int], *, note: bool) -> Axes:
    """Draw the number of servers of each load on a second axis on the right; return that axis."""
    right = panel.twinx()
    servers = {load: one.value for load, one in by_load(rows, "servers").items()}
    right.bar(
        range(len(loads)),
        [servers.get(load, 0.0) for load in loads],
        color=BAR,
        width=0.8,
        zorder=0,
        label="servers of that load (right)",
    )
    right.set_ylabel("Servers of that load (bars)")
    right.grid(visible=False)
    if note and STATED_LOAD in loads:
        right.bar(
            [loads.index(STATED_LOAD)],
            [STATED_SERVERS],
            width=0.8,
            facecolor="none",
            edgecolor="black",
            linestyle="--",
            label="paper: about 60 servers of load 7 (right)",
        )
    if note and STRAGGLERS in loads:
        style.paper_marker(panel, loads.index(STRAGGLERS), 0, text="paper: none on stragglers")
    # Lines above bars: the left axis is drawn last, with a transparent background.
    panel.set_zorder(right.get_zorder() + 1)
    panel.patch.set_visible(False)
    return right


def learning(evidence: Evidence) -> Figure | Missing:
    """Draw the response in the first bursts of servers that have learned nothing yet."""
    rows = pd.concat(
        [simulated(evidence.table, series, learn_rounds=...) for series in (PREASSIGN, BOTH)]
    )
    most = rows["learn_rounds"].max() if len(rows) else 0
    rows = rows[rows["learn_rounds"] == most]
    shares = values_of(rows, "straggler_ratio")
    if most < 2 or not shares:
        return Missing("preassign or both with several bursts to learn in")
    if len(shares) > 2:
        shares = [share for share in (0.01, 0.1) if share in shares] or shares[:2]
    with style.figure(1, len(shares), width=10.0, height=4.2) as (drawn, axes):
        for panel, share in zip(axes, shares, strict=True):
            here = rows[rows["straggler_ratio"] == share]
            for series in (PREASSIGN, BOTH):
                its = reports(evidence, here[here["series"] == series], BURSTS_FILE)
                if its:
                    _band(panel, np.array([one["learning"] for one in its]), look(series))
            panel.set_xscale("log")
            ticks = [each for each in BURST_TICKS if each <= most]
            panel.set_xticks(ticks, [str(each) for each in ticks])
            panel.set_xlabel("Burst since the servers knew nothing")
            panel.set_ylabel(RESPONSE)
            n = rows["seed"].nunique()
            panel.set_title(f"{100 * share:g} % stragglers (n = {n} runs)", loc="left")
            panel.set_ylim(0, None)
        return style.legend(drawn, axes)


def _band(panel: Axes, curves: np.ndarray, of: Look) -> None:
    found = [amount(column.tolist()) for column in curves.T]
    x = np.arange(1, len(found) + 1)
    panel.plot(x, [one.value for one in found], color=of.colour, label=of.label)
    low, high = [one.low for one in found], [one.high for one in found]
    panel.fill_between(x, low, high, color=of.colour, alpha=0.25, linewidth=0)


def nodes(evidence: Evidence) -> Figure | Missing:
    """Draw the response against the number of processes per compute node (and its scheduler)."""
    shown = (FIXED, NATIVE, COLLABORATIVE, PREASSIGN, BOTH, ORACLE)
    rows = {s: simulated(evidence.table, s, processes_per_node=...) for s in shown}
    settings = rows[BOTH].groupby("straggler_ratio")["processes_per_node"].nunique()
    shares = sorted(settings[settings > 1].index)
    if not shares:
        return Missing("several numbers of processes a node")
    with style.figure(1, len(shares), width=5.2 * len(shares), height=4.4) as (drawn, axes):
        for panel, share in zip(axes, shares, strict=True):
            here = {s: its[its["straggler_ratio"] == share] for s, its in rows.items()}
            _draw(
                panel,
                _by(here, "processes_per_node"),
                values_of(here[BOTH], "processes_per_node"),
                None,
                title=f"{100 * share:g} % stragglers ({{}})",
                x="Processes that share a compute node",
                y=RESPONSE,
            )
            panel.set_ylim(0, None)
        return style.legend(drawn, axes)


def spread(evidence: Evidence) -> Figure | Missing:
    """Draw the response against the spread of the nodes' start times; probes take 5 ms."""
    shown = (FIXED, NATIVE, COLLABORATIVE, PREASSIGN, BOTH, PREQUAL, ORACLE, UNCACHED)
    rows = {
        s: simulated(evidence.table, s, spread_s=..., straggler_ratio=SCALE_RATIO) for s in shown
    }
    order = values_of(rows[BOTH], "spread_s")
    if len(order) < 2:
        return Missing("several spreads of the processes' beginnings")
    with style.figure(width=7.2, height=4.8) as (drawn, axes):
        _draw(
            axes[0],
            _by(rows, "spread_s"),
            order,
            [f"{1000 * at:g}" for at in order],
            title=f"{100 * SCALE_RATIO:g} % stragglers ({{}})",
            x="Nodes begin within (ms)",
            y=RESPONSE,
        )
        style.magnitudes(axes[0])
        return style.legend(drawn, axes)


def home(evidence: Evidence) -> Figure | Missing:
    """Draw two random servers against home and a random one: response, and the share redirected."""
    rows = {
        f"{series}, {choices}": its
        for series in (NATIVE, COLLABORATIVE, PREASSIGN, BOTH)
        for choices in (TWO_CHOICES, ONE_CHOICE)
        if len(its := simulated(evidence.table, series, choices=choices, redirects=True))
    }
    if not any(series.endswith(ONE_CHOICE) for series in rows):
        return Missing("schedulers that choose between home and a random server")
    order = values_of(pd.concat(list(rows.values())), "straggler_ratio")
    texts = {"response_s": RESPONSE, "redirected_share": "Writes redirected (share)"}
    with style.figure(1, 2, width=10.4, height=4.8) as (drawn, axes):
        for panel, (column, text) in zip(axes, texts.items(), strict=True):
            found = _by(rows, "straggler_ratio", column)
            _draw(panel, found, order, _percent(order), title="{}", x=SHARE, y=text)
            panel.set_ylim(0, None)
        return style.legend(drawn, axes, columns=4)


def scale(evidence: Evidence) -> Figure | Missing:
    """Draw clusters of several sizes: (a) response over the oracle's, (b) messages per write."""
    varied = {"servers": ..., "processes": ..., "learn_rounds": SCALE_LEARN}
    rows = {
        series: simulated(evidence.table, series, straggler_ratio=SCALE_RATIO, **varied)
        for series in (*PAPERS, *BEYOND)
    }
    oracle = rows[ORACLE]
    known = rows[BOTH].sort_values(["processes", "servers"])["size"].drop_duplicates()
    sizes = known.tolist()
    if len(sizes) < 2 or oracle.empty:
        return Missing("clusters of several sizes, and the oracle")

    def over(its: pd.DataFrame) -> Estimate | None:
        return quotient(its, oracle, "response_s", keys=PAIRED, cluster="seed")

    there = {series: its[its["size"].isin(sizes)] for series, its in rows.items()}
    found = (
        _by({series: its for series, its in there.items() if series != ORACLE}, "size", over),
        _by(there, "size", "messages_per_write"),
    )
    with style.figure(1, 2, width=10.8, height=4.8) as (drawn, axes):
        texts = ("Response over the oracle's", "Messages for a write")
        for panel, its, text, mark in zip(axes, found, texts, "ab", strict=True):
            title = f"({mark}) {100 * SCALE_RATIO:g} % stragglers ({{}})"
            _draw(panel, its, sizes, sizes, title=title, x="Servers-processes", y=text)
        style.magnitudes(axes[0])
        axes[1].set_ylim(0, None)
        return style.legend(drawn, axes)


def probing(evidence: Evidence) -> Figure | Missing:
    """Draw figure 11: probing time by the number of schedulers that probe at once."""
    rows = on_servers(evidence.table, "probe")
    if rows.empty:
        return Missing("probing by several numbers of schedulers")
    probed = partial(average, column="probe_mean_s", factor=1e3)
    series = [
        (
            Look(
                f"{pending:g} write{'s' * (pending > 1)}: {2 * pending:g} servers asked",
                PENDING_COLOURS.get(pending, DARK),
                MARKERS[index],
            ),
            points(rows[rows["pending"] == pending], "schedulers", probed),
        )
        for index, pending in enumerate(values_of(rows, "pending"))
    ]
    with style.figure(width=7.2, height=4.4) as (drawn, axes):
        panel = axes[0]
        lines(panel, series, values_of(rows, "schedulers"))
        panel.axhline(PROBED_MS, **BOUND, label=f"paper: {PENDING} writes below 10 ms")
        style.magnitudes(panel)
        panel.set_xlabel("Schedulers that probe at the same time")
        panel.set_ylabel("Until the slowest answer (ms)")
        panel.set_title(counts(series, ""), loc="left")
        return style.legend(drawn, axes, columns=2)


def redirecting(evidence: Evidence) -> Figure | Missing:
    """Draw figure 12: the growing redirect table's length, and times of create and query."""
    timed = [
        one["rows"] for one in reports(evidence, on_servers(evidence.table, "table"), REPORT_FILE)
    ]
    if not timed:
        return Missing("a redirect table that was timed")
    at = np.array([[row["writes"] for row in run] for run in timed]).mean(axis=0)
    with style.figure(1, 2, width=10.0, height=4.2) as (drawn, axes):
        for panel, column, factor, text, shade in (
            (axes[0], "entries", 1.0, "live entries", DARK),
            (axes[1], "create_seconds", 1e3, "create", CREATE_COLOUR),
            (axes[1], "query_seconds", 1e3, "query", QUERY_COLOUR),
        ):
            values = factor * np.array([[row[column] for row in run] for run in timed])
            low, high = values.min(axis=0), values.max(axis=0)
            panel.plot(at, values.mean(axis=0), color=shade, linewidth=1.3, label=text)
            panel.fill_between(at, low, high, color=shade, alpha=0.2, lw=0)
        axes[1].axhline(TABLE_MS, **BOUND, label="paper: below 5 ms")
        axes[0].set_ylabel("Live entries of the table")
        axes[1].set_ylabel("Wait of a client (ms)")
        style.magnitudes(axes[1])
        axes[0].set_ylim(0, None)
        for panel, title in zip(axes, ("(a) Length", "(b) Requests"), strict=True):
            panel.set_xlabel("Writes to the object so far")
            panel.set_title(f"{title} (n = {len(timed)} runs)", loc="left")
        return style.legend(drawn, axes, columns=4)


def balances(evidence: Evidence) -> Figure | Missing:
    """Draw figure 13: each server's share of all jobs, with fixed and dynamic placement."""
    rows = on_servers(evidence.table, "balance")
    its = {series: rows[rows["scheduler"] == series] for series in (FIXED, BOTH)}
    shared = sorted(set(its[FIXED]["seed"]) & set(its[BOTH]["seed"]))
    if not shared:
        return Missing("all jobs of Table II with fixed placement and with both strategies")
    with style.figure(1, 2, width=10.4, height=4.0) as (drawn, axes):
        top = 0.0
        for panel, series, letter in zip(axes, (FIXED, BOTH), "ab", strict=True):
            first = its[series][its[series]["seed"] == shared[0]].iloc[:1]
            (report,) = reports(evidence, first, REPORT_FILE)
            servers = np.array([app["server_bytes"] for app in report["apps"]], dtype=float)
            written = servers.sum(axis=0) / MIB
            panel.bar(range(len(written)), written, color=look(series).colour, width=0.8)
            panel.axhline(written.mean(), color="black", linewidth=1.0)
            top = max(top, written.max())
            fullest = average(its[series], "fullest")
            assert fullest is not None
            text = f"fullest {interval_text(fullest, '.2f')} of the mean, n = {fullest.n}"
            panel.set_title(f"({letter}) {look(series).label}: {text}", loc="left")
            panel.set_xlabel("Object server")
            panel.set_ylabel("Written (MiB)")
        for panel in axes:
            panel.set_ylim(0, 1.08 * top)
        return drawn


def completions(evidence: Evidence) -> Figure | Missing:
    """Draw figure 14: end times of processes, as a distribution."""
    rows = on_servers(evidence.table, "burst", stragglers="table2")
    ended = {
        series: reports(evidence, its, REPORT_FILE)
        for series in (FIXED, NATIVE, BOTH)
        if len(its := rows[rows["scheduler"] == series])
    }
    if len(ended) < 2:
        return Missing("bursts among the jobs of Table II with two schedulers")
    with style.figure(width=7.2, height=4.6) as (drawn, axes):
        panel = axes[0]
        for series, found in ended.items():
            ends = np.array([_end_times(one) for one in found])
            of, share = look(series), (np.arange(ends.shape[1]) + 1) / ends.shape[1]
            middle, low, high = np.median(ends, axis=0), ends.min(axis=0), ends.max(axis=0)
            panel.plot(middle, share, color=of.colour, linewidth=1.6, label=of.label)
            panel.fill_betweenx(share, low, high, color=of.colour, alpha=0.18, lw=0)
            panel.plot([middle[-1]], [1.0], marker="v", color=of.colour, clip_on=False)
        panel.set_xlim(0, None)
        panel.set_ylim(0, 1.02)
        panel.set_xlabel("Completion time of a process (s)")
        panel.set_ylabel("Share of the processes")
        n = range_text(len(found) for found in ended.values())
        panel.set_title(f"Median over blocks and their range ({n} runs)", loc="left")
        return style.legend(drawn, axes)


def _end_times(report: Mapping[str, Any]) -> list[float]:
    """Return the end times of the measured job's processes, ascending."""
    apps = report["apps"]
    return sorted(s for app in apps if not app["background"] for s in app["rank_seconds"])


def _by_scheduler(
    rows: pd.DataFrame, schedulers: Sequence[str], column: str = "seconds"
) -> dict[str, Estimate]:
    return known({one: average(rows[rows["scheduler"] == one], column) for one in schedulers})


def _bar_panels(panels: Sequence[tuple[str, str, dict[str, Estimate]]]) -> Figure:
    """Draw a bar with its interval for each scheduler; a panel is title, axis and estimates."""
    with style.figure(1, len(panels), width=4.2 * len(panels) + 1.5, height=4.4) as (drawn, axes):
        for panel, (title, axis, found) in zip(axes, panels, strict=True):
            ends = []
            for place, (series, one) in enumerate(found.items()):
                panel.bar([place], [one.value], color=look(series).colour, width=0.7)
                if one.n > 1:
                    panel.errorbar(
                        place, one.value, yerr=errors([one]), color="black", capsize=3, linewidth=1
                    )
                    ends.append((float(place), one.high))
            names = [look(series).label for series in found]
            panel.set_xticks(range(len(names)), names, rotation=30, ha="right")
            style.limit_intervals(panel, [one.value for one in found.values()], ends)
            many = counts([(Look(""), found)], "")
            panel.set_title(f"{title} ({many})", loc="left", fontsize="small")
            panel.set_ylabel(axis)
        return drawn


def head_to_head(evidence: Evidence) -> Figure | Missing:
    """Draw, beyond the paper, every scheduler on the same servers, by the cause of stragglers."""
    series = (*HEAD_TO_HEAD, RANDOM, COLLABORATIVE, PREASSIGN)
    panels = []
    for key, text in AMONG.items():
        rows = on_servers(evidence.table, "burst", stragglers=key)
        if found := _by_scheduler(rows, series):
            panels.append((f"Stragglers: {text}", ENDED, found))
    return _bar_panels(panels) if panels else Missing("bursts with several schedulers")


def remembered(evidence: Evidence) -> Figure | Missing:
    """Draw, beyond the paper, both strategies with and without loads remembered of others."""
    panels = []
    for experiment, column, setting, text, axis in (
        ("balance", "fullest", {}, "All jobs of Table II", "Fullest server, of the mean"),
        ("burst", "seconds", {"stragglers": "table2"}, "A burst among them", ENDED),
    ):
        rows = on_servers(evidence.table, experiment, **setting)
        alone = on_servers(evidence.table, experiment, scheduler=UNCACHED, **setting)
        uncached = average(alone, column)
        if uncached is not None:
            found = _by_scheduler(rows, (FIXED, BOTH), column)
            panels.append((text, axis, found | {UNCACHED: uncached}))
    if not panels:
        return Missing("both strategies without remembered loads")
    return _bar_panels(panels)


def on_rados(evidence: Evidence) -> Figure | Missing:
    """Draw, beyond the paper, CRUSH, DLR and every agent scheduler on a Ceph with eight OSDs."""
    panels = []
    for key, copies in (*((key, 2) for key in AMONG_ON_RADOS), ("fio", 1)):
        rows = on_osds(evidence.table, key, copies=copies)
        if found := _by_scheduler(rows, ON_RADOS):
            panels.append((f"{AMONG_ON_RADOS[key]}, {COPIES[copies]}", ENDED, found))
    if not panels:
        return Missing("bursts on RADOS with several schedulers")
    return _bar_panels(panels)


_BURST_COLUMNS = (
    COUNT,
    total("bursts", "rounds"),
    interval("response s", "response_s", ".4g"),
    interval("over the best possible", "over_best", ".4g"),
    value("mean process s", "mean_s"),
    value("most on a server", "most"),
    value("most on a straggler", "straggler_most"),
    value("redirected %", "redirected_share", 100.0),
    value("messages a write", "messages_per_write"),
)


def burst_tables(table: pd.DataFrame) -> list[Table]:
    """Return the paper's simulation: means over runs with 95 % intervals, by scheduler, ratio."""
    if table.empty:
        return []
    table = table.assign(over_best=table["response_s"] / table["best_s"])
    rows = [
        ((look(series).label, f"{100 * ratio:g}"), its[its["straggler_ratio"] == ratio])
        for series in (*PAPERS, *COLD, *BEYOND)
        for its in (simulated(table, series),)
        for ratio in values_of(its, "straggler_ratio")
    ]
    title, keys = "Results by scheduler", ("scheduler", "stragglers %")
    return tabulated("schedulers", title, keys, _BURST_COLUMNS, rows)


_JOB_COLUMNS = (
    COUNT,
    interval("last process s", "seconds"),
    interval("mean process s", "process_mean_s"),
    interval("fullest server, of the mean", "fullest"),
    value("redirected %", "redirected_share", 100.0),
    value("probes a write", "probes_per_write"),
    total("read back", "read_back"),
    total("redirected ones", "read_redirected"),
    total("read back wrong", "read_bad"),
    value("disks busy %", "disk_busy_mean", 100.0),
    value("processors busy %", "processors_busy", 100.0),
)


def object_tables(table: pd.DataFrame) -> list[Table]:
    """Return Table I next to the paper's, and results of every scheduler on object servers and on
    a Ceph store: means over runs with 95 % intervals."""
    delays = []
    for size, stated in TABLE1.items():
        found = [
            average(on_servers(table, "delay", size_kib=size, pending=n), "delay", 100.0)
            for n in stated
        ]
        if any(one is not None for one in found):
            paper = ", ".join(f"{value:g}" for value in stated.values())
            delays.append((f"{size // 1024} MB", *(interval_text(one) for one in found), paper))
    title = "Table I: delay of concurrent writes by probing"
    heads = ("write", *(f"{n} at once, %" for n in TABLE1[1024]), "paper, %")
    table1 = [Table("table1", title, heads, tuple(delays))] if delays else []

    schedulers = (*HEAD_TO_HEAD, UNCACHED, RANDOM, COLLABORATIVE, PREASSIGN)
    objects = [
        (
            (experiment, key, look(series).label),
            on_servers(table, experiment, stragglers=key, scheduler=series),
        )
        for experiment in ("balance", "burst")
        for key in ("none", "table2", "fio")
        for series in schedulers
    ]
    rados = [
        ((text, key, look(series).label), on_osds(table, key, copies=copies, scheduler=series))
        for copies, text in COPIES.items()
        for key in RADOS_AMONG
        for series in ON_RADOS
    ]
    title = "Results by scheduler on"
    keys = ("stragglers", "scheduler")
    return [
        *table1,
        *tabulated(
            "objects", f"{title} object servers", ("experiment", *keys), _JOB_COLUMNS, objects
        ),
        *tabulated("rados", f"{title} a Ceph of eight OSDs", ("kept", *keys), _JOB_COLUMNS, rados),
    ]


_MEAN = "Means over runs with 95 % intervals; all schedulers meet the same bursts."

BURST_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "3",
        "Write response time of different strategies",
        f"{_MEAN} 1,000 servers, 10,000 processes of one 1 MB write each, 5 ms round trip, "
        "stragglers with 5 times the load. Preassign is shown alone and with the collaborative "
        "probe; cold: before any learning.",
        responses,
    ),
    FigureEntry(
        "4",
        "Writes given to servers of each load",
        f"{_MEAN} Maximum over the servers of a load in a burst.",
        placements,
    ),
    FigureEntry(
        "learning",
        "How long servers need to learn P(load) (not in the paper)",
        "Mean over runs, band: 95 % interval.",
        learning,
    ),
    FigureEntry(
        "nodes",
        "Processes that share a scheduler (not in the paper)",
        f"{_MEAN} The paper does not state this number for figure 3.",
        nodes,
    ),
    FigureEntry(
        "spread",
        "Processes that do not begin at once (not in the paper)",
        f"{_MEAN} In figure 3 all begin at once.",
        spread,
    ),
    FigureEntry(
        "light",
        "Servers with half the load (not in the paper)",
        f"{_MEAN} As figure 3, with loads of mean 5 and deviation 1, which fit the text of figure "
        "4 as well: 61 servers have a load of 7.",
        partial(responses, load_mean=5.0, load_sd=1.0),
    ),
    FigureEntry(
        "home",
        "Home and a random server, or two random ones (not in the paper)",
        f"{_MEAN} A redirected write counts when its home server has recorded it (section V.A). "
        "Dotted: two random servers.",
        home,
    ),
    FigureEntry(
        "scale",
        "Larger clusters (not in the paper)",
        "(a) Geometric means of the response over the oracle's with the same bursts, (b) means; "
        "over runs, with 95 % intervals.",
        scale,
    ),
)

_RADOS = "hotbed run twochoice-rados --figure {figure}"
_MICRO = "hotbed run twochoice-micro --figure {figure}"

_SAME_JOBS = "Means over runs with 95 % intervals; all schedulers of a block meet the same jobs."

OBJECT_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "11",
        "Probing performance",
        "Means over runs with 95 % intervals. Every scheduler asks all of the servers at once, 100 "
        "times one after another; the slowest answer counts. All schedulers and servers share the "
        "testbed's processors.",
        probing,
        command=_MICRO,
    ),
    FigureEntry(
        "12",
        "Redirect table performance",
        "Means over runs and their range. Redirected writes of random ranges of one object. A "
        "create ends when its record is on the home's disk.",
        redirecting,
        command=_MICRO,
    ),
    FigureEntry(
        "13",
        "Server loads while scheduling all the workloads",
        "The first block's run; line: the mean. Jobs after Table II, each file from a random "
        "server on.",
        balances,
    ),
    FigureEntry(
        "14",
        "Completion times of the processes with different schedulers",
        "512 client processes on 64 object servers, among the jobs of Table II with fixed "
        "placement. Triangles: the last process.",
        completions,
    ),
    FigureEntry(
        "beyond",
        "Every scheduler on the same servers (not in the paper)",
        f"{_SAME_JOBS} The oracle joins the shortest queue of the client processes' outstanding "
        "writes, and does not see fio.",
        head_to_head,
    ),
    FigureEntry(
        "cache",
        "Both strategies without remembered loads (not in the paper)",
        f"{_SAME_JOBS} A server that was probed remembers for 0.2 s the loads that the scheduler "
        "reports of others, and passes them to the next scheduler; without, it does not.",
        remembered,
    ),
    FigureEntry(
        "rados",
        "CRUSH, DLR and agents on the same Ceph (not in the paper)",
        f"{_SAME_JOBS} Eight OSDs, 64 client processes with five writes each. Agents write two "
        "copies where CRUSH's pool has two replicas. DLR had seen the stragglers for 8 to 15 s.",
        on_rados,
        command=_RADOS,
    ),
)

SIMULATED = Part(
    BURST_CLAIMS, BURST_FIGURES, "twochoice", True, tabulate=burst_table, tables=burst_tables
)
OBJECT_SERVERS = Part(
    OBJECT_CLAIMS,
    OBJECT_FIGURES,
    kind="twochoice-objects",
    tabulate=object_table,
    tables=object_tables,
    commands={"table1": _MICRO.format(figure="table1")},
    command="hotbed run twochoice-local --figure {figure}",
)
PARTS: tuple[Part, ...] = (SIMULATED, OBJECT_SERVERS)
