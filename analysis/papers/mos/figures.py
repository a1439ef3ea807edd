"""Figures 1 to 5 and 8 to 12 of the MOS paper on real microstores, and tables next to them. `PARTS`
lists every part of the paper's report: runs of different grounds are never pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.evidence import average, known, values_of
from analysis.core.figures import (
    COUNT,
    FigureEntry,
    Missing,
    Table,
    interval,
    tabulated,
    total,
    value,
    value_text,
)
from analysis.core.panels import GREY, Look, bars, errors, lines, points
from analysis.core.papers import Part
from analysis.core.stats import Estimate, counts, range_text
from analysis.papers.mos.claims import (
    CLAIMS,
    DEFAULT,
    DROP,
    FAVORS_LARGE,
    FAVORS_SMALL,
    LARGE,
    LARGE_BUSY,
    MOS_PP,
    NETWORK,
    PARTITION,
    PROXY_BUSY,
    SECOND_PROXY,
    SMALL,
    Report,
    cells,
    free,
    label,
    look,
    report,
    share,
    shown,
    table,
)
from analysis.papers.mos.gateway import GATEWAY
from analysis.papers.mos.simulated_figures import SIMULATED
from analysis.papers.mos.statements import STATEMENTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

QPS, MB_S = "Throughput (QPS)", "Bandwidth (MB/s)"
PAPER_RATIO = "paper's ratio to our value"
PAPER_LINE: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.2}
QPS_COLOUR, BYTES_COLOUR = "#0072B2", "#E69F00"


# ---- Figure 1: four workloads at once ----

BOTH_SMALL, BOTH_LARGE = "A + B", "C + D"


def setups(evidence: Evidence) -> Figure | Missing:
    """Draw figure 1(a) to (c): throughput, bandwidth and latency of the setups."""
    rows = cells(evidence.table, "setups")
    order = shown(rows)
    if len(order) < 2:
        return Missing("workloads A to D at once with two setups")
    with style.figure(1, 3, width=12.0, height=4.2) as (drawn, axes):
        parts = (
            ("(a) Throughput of small objects", QPS, "qps", ("A", "B", BOTH_SMALL)),
            ("(b) Bandwidth of large objects", MB_S, "mb_s", ("C", "D", BOTH_LARGE)),
            ("(c) Latency", "Mean latency (s)", "mean_s", ("A", "B", "C", "D")),
        )
        for panel, (title, unit, measure, groups) in zip(axes, parts, strict=True):
            found = {
                setup: _by_group(rows[rows["setup"] == setup], measure, groups) for setup in order
            }
            series = [(look(setup), found[setup]) for setup in order]
            stated = _stated(found.get(DEFAULT, {}), measure)
            bars(panel, groups, series, stated=stated, stated_text=PAPER_RATIO)
            every = [one for its in found.values() for one in its.values()]
            if measure == "mean_s" and every:
                style.magnitudes(panel)
                values = [one.value for one in every]
                panel.set_ylim(0.5 * min(values), 3 * max(values))
            panel.set_title(f"{title} ({counts(every)})", loc="left", fontsize="small")
            panel.set_ylabel(unit)
            panel.set_xlabel("Workload")
        return style.legend(drawn, axes, columns=5)


def _by_group(rows: pd.DataFrame, measure: str, groups: Sequence[str]) -> dict[str, Estimate]:
    columns = {BOTH_SMALL: SMALL, BOTH_LARGE: LARGE}
    return known({one: average(rows, f"{columns.get(one, one)}_{measure}") for one in groups})


def _stated(default: Mapping[str, Estimate], measure: str) -> dict[tuple[str, str], float]:
    """Return the paper's ratios applied to our Default."""
    if measure == "qps" and BOTH_SMALL in default:
        value = default[BOTH_SMALL].value
        return {(label(setup), BOTH_SMALL): factor * value for setup, factor in PARTITION.items()}
    if measure == "mb_s" and BOTH_LARGE in default:
        value = default[BOTH_LARGE].value
        return {
            (label(FAVORS_SMALL), BOTH_LARGE): value / (sum(DROP) / 2),
            (label(FAVORS_LARGE), BOTH_LARGE): value,
        }
    return {}


# ---- Figures 2 to 5: one workload alone ----

HDD_COLOUR, SSD_COLOUR = "#999999", "#0072B2"
MIX_COLOURS = {0: "#999999", 1: "#E69F00", 2: "#56B4E9", 3: "#0072B2"}


def sizes(evidence: Evidence) -> Figure | Missing:
    """Draw figure 2: QPS and bandwidth by object size, and the distribution of read latencies."""
    rows = cells(evidence.table, "sizes")
    there = values_of(rows, "object_kb")
    if len(there) < 2:
        return Missing("reads of several object sizes")
    with style.figure(1, 2, width=10.4, height=4.2) as (drawn, axes):
        left, right = axes
        texts = [size_text(size) for size in there]
        queries = points(rows, "object_kb", "qps")
        _single(left, dict(enumerate(queries.values())), "QPS")
        style.magnitudes(left)
        left.set_ylabel(QPS)
        other = _twin(left)
        rates = points(rows, "object_kb", "mb_s")
        lines(other, [(Look("Bandwidth", BYTES_COLOUR), rates)], there, texts)
        other.set_ylim(0, None)
        other.set_ylabel(MB_S)
        left.set_xlabel("Object size")
        left.set_title(f"(a) Read performance ({counts(queries.values())})", loc="left")
        for place, size in enumerate(there):
            shade = place / (len(there) - 1)
            _distribution(right, rows[rows["object_kb"] == size], texts[place], shade)
        right.set_xscale("log")
        right.set_xlabel("Latency of a read (ms)")
        right.set_ylabel("Share of the reads")
        right.set_ylim(0, 1.02)
        right.set_title("(b) Latency distribution", loc="left")
        return style.legend(drawn, [left, other, right], columns=5)


def size_text(kb: float) -> str:
    """Format a size: ``64 KB``, ``16 MB``."""
    return f"{kb / 1000:g} MB" if kb >= 1000 else f"{kb:g} KB"


def _single(panel: Axes, found: Mapping[int, Estimate], text: str) -> None:
    """Draw one bar at each place, with its 95 % interval."""
    values, places = list(found.values()), list(found)
    heights = [one.value for one in values]
    panel.bar(places, heights, 0.7, color=QPS_COLOUR, label=text)
    panel.errorbar(
        places, heights, yerr=errors(values), fmt="none", color="black", capsize=3, linewidth=1
    )


def _twin(panel: Axes) -> Axes:
    """Return a second vertical axis of a panel, without a grid."""
    other = panel.twinx()
    other.grid(False)
    return other


def _distribution(panel: Axes, rows: pd.DataFrame, text: str, shade: float) -> None:
    """Draw the latency distribution of a size's reads, all runs together."""
    found: dict[float, int] = {}
    for run in rows["loaded"]:
        for low, high, count in report(run)["latencies"]["A"]["read"]:
            found[high] = found.get(high, 0) + count
            found.setdefault(low, 0)
    if not found:
        return
    import matplotlib

    at = sorted(found)
    part = np.cumsum([found[one] for one in at]) / sum(found.values())
    colour = matplotlib.colormaps["viridis"](shade)
    panel.plot([1e3 * one for one in at], part, color=colour, linewidth=1.4, label=text)


def proxies(evidence: Evidence, *, letter: str, column: str, unit: str) -> Figure | Missing:
    """Draw figure 3(a) or (b): one workload by the proxies' cores."""
    rows = cells(evidence.table, "proxy", workload=letter)
    keys = ["proxies", "proxy_workers", "proxy_cores"]
    order = sorted(set(zip(*(rows[key] for key in keys), strict=True)))
    if len(order) < 2:
        return Missing(f"workload {letter} with several numbers of cores of the proxy")
    groups = [rows[(rows[keys] == list(key)).all(axis=1)] for key in order]
    found, busy = (
        known({place: average(its, name, factor) for place, its in enumerate(groups)})
        for name, factor in ((column, 1.0), ("proxy_busy", 100.0))
    )
    with style.figure(width=6.8, height=4.2) as (drawn, axes):
        panel = axes[0]
        _single(panel, found, unit)
        single = [place for place, key in enumerate(order) if key[:2] == (1, 1)]
        double = [place for place, key in enumerate(order) if key[0] == 2]
        if single and double:
            factor = SECOND_PROXY if letter == "A" else 2.0
            value = factor * found[single[-1]].value
            style.paper_marker(panel, double[-1], value, text=PAPER_RATIO)
        other = _twin(panel)
        of_cpu = Look("CPU utilization of the proxy", GREY, "s", "")
        lines(other, [(of_cpu, busy)], range(len(order)), [_proxy_text(*key) for key in order])
        stated = PROXY_BUSY if letter == "A" else LARGE_BUSY
        other.axhline(100 * stated, **PAPER_LINE, label=f"paper: CPU at {100 * stated:.0f} %")
        other.set_ylim(0, 119)
        other.set_ylabel("CPU utilization (%)")
        panel.set_ylim(0, max(max(1.25 * one.value, 1.05 * one.high) for one in found.values()))
        panel.set_xlabel("Cores of each proxy")
        panel.set_ylabel(unit)
        panel.set_title(f"Workload {letter} ({counts(found.values())})", loc="left")
        return style.legend(drawn, [panel, other], columns=2)


def _proxy_text(number: int, workers: int, cores: float) -> str:
    text = f"{cores:g}" + (f"\n{workers} processes" if workers > 1 else "")
    return text if number == 1 else f"{number} x {cores:g}\n{number} proxies"


def storage(evidence: Evidence) -> Figure | Missing:
    """Draw figure 3(c): small objects (bars, QPS) and large ones (line, MB/s) by storage cores."""
    rows = cells(evidence.table, "storage")
    there = values_of(rows, "storage_cores")
    if len(there) < 2:
        return Missing("several numbers of cores of the storage servers")
    with style.figure(width=6.6, height=4.2) as (drawn, axes):
        panel = axes[0]
        other = _twin(panel)
        small, large = (
            points(rows[rows["workload"] == letter], "storage_cores", name)
            for letter, name in (("A", "qps"), ("C", "mb_s"))
        )
        if small:
            placed = {there.index(cores): one for cores, one in small.items()}
            _single(panel, placed, "A: throughput")
        wanted = float(rows["proxy_cores"].iloc[0]) / 2
        texts = [
            f"2 x {cores:g}" + ("\n(as the proxy)" if cores == wanted else "") for cores in there
        ]
        lines(other, [(Look("C: bandwidth", BYTES_COLOUR), large)], there, texts)
        panel.set_xlabel("Cores of the storage servers")
        panel.set_ylabel(QPS)
        other.set_ylabel(MB_S)
        other.set_ylim(0, None)
        n = counts([*small.values(), *large.values()])
        panel.set_title(f"Behind one proxy of {2 * wanted:g} cores ({n})", loc="left")
        return style.legend(drawn, [panel, other])


def _by_network(rows: pd.DataFrame, column: str) -> dict[str, Estimate]:
    found = points(rows, "network_mbit", column)
    return {f"{rate:g} Mbit/s": one for rate, one in found.items()}


def networks(evidence: Evidence, *, letter: str, column: str, unit: str) -> Figure | Missing:
    """Draw figure 4(a) or (b): one workload on HDDs and SSDs by network."""
    rows = cells(evidence.table, "network", workload=letter)
    groups = [f"{rate:g} Mbit/s" for rate in values_of(rows, "network_mbit")]
    if len(groups) < 2:
        return Missing(f"workload {letter} with two networks")
    stated, series = {}, []
    for kind, text, colour in (("hdds", "HDD", HDD_COLOUR), ("ssds", "SSD", SSD_COLOUR)):
        found = _by_network(rows[rows[kind] > 0], column)
        factor = NETWORK.get((letter, text.lower()))
        if factor is not None and groups[0] in found:
            stated[text, groups[-1]] = factor * found[groups[0]].value
        series.append((Look(text, colour), found))
    with style.figure(width=5.6, height=4.2) as (drawn, axes):
        bars(axes[0], groups, series, stated=stated, stated_text=PAPER_RATIO)
        axes[0].set_xlabel("Link of the proxy")
        axes[0].set_ylabel(unit)
        n = counts(one for _, found in series for one in found.values())
        axes[0].set_title(f"Workload {letter} ({n})", loc="left")
        return style.legend(drawn, axes)


def mixes(evidence: Evidence) -> Figure | Missing:
    """Draw figure 5: bandwidth of workload C by network and kinds of disks."""
    rows = cells(evidence.table, "disks", workload="C")
    there = values_of(rows, "network_mbit")
    kinds = values_of(rows, "ssds")
    if not there or len(kinds) < 2:
        return Missing("workload C on several sets of disks")
    series = []
    for ssds in kinds:
        its = rows[rows["ssds"] == ssds]
        numbers = ((int(ssds), "SSD"), (int(its["hdds"].iloc[0]), "HDD"))
        text = " + ".join(f"{number} {kind}" for number, kind in numbers if number)
        series.append((Look(text, MIX_COLOURS.get(int(ssds), GREY)), _by_network(its, "mb_s")))
    with style.figure(width=7.4, height=4.2) as (drawn, axes):
        panel = axes[0]
        bars(panel, [f"{rate:g} Mbit/s" for rate in there], series)
        for place, rate in enumerate(there):
            text = "the link's limit, which the paper's SSDs reach" if place == 0 else "_"
            dotted: dict[str, Any] = PAPER_LINE | {"linewidth": 1.4}
            panel.hlines(rate / 8, place - 0.45, place + 0.45, **dotted, label=text)
        panel.set_xlabel("Link of the proxy")
        panel.set_ylabel(MB_S)
        n = counts(one for _, found in series for one in found.values())
        panel.set_title(f"Workload C ({n})", loc="left")
        return style.legend(drawn, axes, columns=3)


# ---- Figures 8 to 10: two tenants at several loads ----

MARKS = {"default": "s", "static": "^", "mos": "v", "mos-pp": "o"}
Axis = tuple[str, float, str]
"""Column, factor and text of an axis."""
LoadPoint = tuple[str, Estimate, Estimate]
"""Workers of A and C, value on the horizontal axis, value on the vertical axis."""


def loads(evidence: Evidence, *, across: Axis, up: Axis, fitted: bool = False) -> Figure | Missing:
    """Draw figure 8, 9 or 10: one point per load; `fitted` adds linear regressions."""
    rows = cells(evidence.table, "load")
    found = {
        setup: points_of_load
        for setup in shown(rows)
        if (points_of_load := _load_points(rows[rows["setup"] == setup], across, up))
    }
    if len(found) < 2:
        return Missing("workloads A and C at once, at several loads, with two setups")
    with style.figure(width=7.2, height=4.8) as (drawn, axes):
        panel = axes[0]
        for setup, every in found.items():
            _scatter(panel, setup, every)
            if fitted and len(every) > 1:
                _regression(panel, setup, every)
        panel.set_xlim(0, None)
        panel.set_ylim(0, None)
        panel.set_xlabel(across[2])
        panel.set_ylabel(up[2])
        n = counts(x for every in found.values() for _, x, _ in every)
        panel.set_title(f"Numbers: workers of A/C ({n})", loc="left")
        return style.legend(drawn, axes)


def _load_points(rows: pd.DataFrame, across: Axis, up: Axis) -> list[LoadPoint]:
    found = []
    for (small, large), its in rows.groupby(["small_workers", "large_workers"], sort=True):
        x, y = (average(its, column, factor) for column, factor, _ in (across, up))
        if x is not None and y is not None:
            found.append((f"{small:g}/{large:g}", x, y))
    return found


def _scatter(panel: Axes, setup: str, found: Sequence[LoadPoint]) -> None:
    xs, ys = [x for _, x, _ in found], [y for _, _, y in found]
    colour = look(setup).colour
    panel.errorbar(
        [x.value for x in xs],
        [y.value for y in ys],
        xerr=errors(xs),
        yerr=errors(ys),
        fmt=MARKS.get(setup, "D"),
        color=colour,
        markersize=6,
        capsize=2,
        elinewidth=0.8,
        label=label(setup),
    )
    for text, x, y in found:
        panel.annotate(
            text,
            (x.value, y.value),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize="x-small",
            color=colour,
        )


def _regression(panel: Axes, setup: str, found: Sequence[LoadPoint]) -> None:
    """Draw the linear regression, dotted as in the paper."""
    xs = np.array([x.value for _, x, _ in found])
    ys = np.array([y.value for _, _, y in found])
    if np.ptp(xs) <= 0:
        return
    slope, rest = np.polyfit(xs, ys, 1)
    at = np.array([xs.min(), xs.max()])
    panel.plot(at, slope * at + rest, ":", color=look(setup).colour, linewidth=1.2)


# ---- Figures 11 and 12: two tenants with a load that changes ----

WINDOW_MINUTES = 2.0
"""Length of the windows for rates and latencies, in minutes of the paper."""
LATENCY_SLA = {"color": "#882255", "linestyle": "--", "linewidth": 1.2}
"""Purple dashes in the paper's figure 11."""
BANDWIDTH_SLA = {"color": "#E69F00", "linestyle": "--", "linewidth": 1.2}
"""Orange dashes in the paper's figure 11."""
SHARES = (
    ("proxy_cores", "CPU of proxies"),
    ("storage_cores", "CPU of storage servers"),
    ("network", "Network"),
)
HELD = {
    SMALL: Look("workload A's microstore", "#0072B2"),
    LARGE: Look("workload C's microstore", "#E69F00"),
    "free": Look("free", "#DDDDDD"),
}


def over_time(
    evidence: Evidence,
    *,
    letter: str,
    measure: str,
    factor: float,
    unit: str,
    sla: tuple[Mapping[str, Any], str] | None = None,
) -> Figure | Missing:
    """Draw figure 11(a), (b) or (c): a measure of one workload over time; see `windows`."""
    rows = cells(evidence.table, "adaptation")
    order = shown(rows)
    if len(order) < 2:
        return Missing("workloads A and C with changing load, with two setups")
    with style.figure(width=8.6, height=4.0) as (drawn, axes):
        panel, numbers = axes[0], []
        course: Report = {}
        for setup in order:
            courses = [report(run) for run in rows[rows["setup"] == setup]["loaded"]]
            course = courses[-1]
            curves = [windows(one["series"][letter], one["minute_s"], measure) for one in courses]
            numbers.append(len(curves))
            _range(panel, setup, [factor * one for one in curves])
        _stages(panel, course)
        if sla is not None:
            limit = promised(course, measure)
            at = (np.arange(len(limit)) + 0.5) * WINDOW_MINUTES
            panel.step(at, factor * limit, where="mid", **sla[0], label=sla[1])
        panel.set_ylim(0, None)
        panel.set_xlabel(f"Minutes of the paper (of {course['minute_s']:g} s here)")
        panel.set_ylabel(unit)
        panel.set_title(f"Mean over blocks and their range ({range_text(numbers)})", loc="left")
        return style.legend(drawn, axes, columns=5)


def promised(course: Report, measure: str) -> Floats:
    """Return the SLA in each window: a mean latency, or bytes per second as workers come and go
    (some runs report one number for all their seconds)."""
    each = np.broadcast_to(course["sla"]["bytes_s"], len(course["series"]["C"]["bytes"]))
    bytes_s = windows({"bytes_s": each.tolist()}, course["minute_s"], "bytes_s")
    if measure == "latency":
        return np.full(len(bytes_s), float(course["sla"]["latency_s"]))
    return bytes_s


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

    def summed(name: str) -> Floats:
        values = series[name]
        kept = values[: len(values) // width * width]
        found: Floats = np.asarray(kept, dtype=float).reshape(-1, width).sum(axis=1)
        return found

    if measure != "latency":
        rates: Floats = summed(measure) / width
        return rates
    total, reads = summed("read_s"), summed("reads")
    means: Floats = np.divide(total, reads, out=np.full(len(total), np.nan), where=reads > 0)
    return means


def _range(panel: Axes, setup: str, curves: Sequence[Floats]) -> None:
    """Draw the mean of a setup's curves, and their range as a band."""
    length = min(len(curve) for curve in curves)
    stacked = np.array([curve[:length] for curve in curves])
    at = (np.arange(length) + 0.5) * WINDOW_MINUTES
    known = ~np.isnan(stacked).all(axis=0)
    at, stacked = at[known], stacked[:, known]
    colour = look(setup).colour
    panel.plot(at, np.nanmean(stacked, axis=0), color=colour, linewidth=1.6, label=label(setup))
    if len(curves) > 1:
        low, high = np.nanmin(stacked, axis=0), np.nanmax(stacked, axis=0)
        panel.fill_between(at, low, high, color=colour, alpha=0.18, lw=0)


def _stages(panel: Axes, course: Report) -> None:
    for number, begins in enumerate(course["course"]["stages"], start=1):
        at = begins / course["minute_s"]
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


def resources(evidence: Evidence) -> Figure | Missing:
    """Draw figure 12: the shares of the pool under MOS++, in the first block's run."""
    rows = cells(evidence.table, "adaptation", setup=MOS_PP).sort_values("block")
    course = next((one for run in rows["loaded"] if (one := report(run)).get("held")), None)
    if course is None:
        return Missing("MOS++ with a load that changes")
    parts = [*SHARES, *([("hdds", "HDDs")] if course["pool"].get("hdds") else [])]
    with style.figure(len(parts), 1, width=8.6, height=1.5 + 1.5 * len(parts)) as (drawn, axes):
        for panel, (key, text) in zip(axes, parts, strict=True):
            _shares(panel, course, key)
            panel.set_ylabel(f"{text}\n(% of the pool)", fontsize="small")
            _stages(panel, course)
        axes[-1].set_xlabel(f"Minutes of the paper (of {course['minute_s']:g} s here)")
        return style.legend(drawn, axes)


def _shares(panel: Axes, course: Report, key: str) -> None:
    minute, ends = course["minute_s"], course["course"]["ends"]
    times = [0.0, *(line["t_s"] for line in course["held"] if 0 < line["t_s"] < ends)]
    at = [*(t_s / minute for t_s in times), ends / minute]
    below = np.zeros(len(at))
    for holder, its in HELD.items():
        if holder == "free":
            values = [100 * max(0.0, free(course, t_s, key)) for t_s in times]
        else:
            values = [100 * share(course, t_s, holder, key) for t_s in times]
        top = below + np.array([*values, values[-1]])
        panel.fill_between(at, below, top, step="post", color=its.colour, label=its.label, lw=0)
        below = top
    panel.set_ylim(0, 101)
    panel.set_xlim(0, ends / minute)


# ---- Tables ----

FAILED = total("failed requests", "failed")
PROXY_MS = value("proxies' CPU ms a request", "proxy_ms_per_op")
STORAGE_MS = value("storage's CPU ms a request", "storage_ms_per_op")
_SETUPS = (
    COUNT,
    *(interval(f"{letter} QPS", f"{letter}_qps") for letter in "AB"),
    *(interval(f"{letter} MB/s", f"{letter}_mb_s") for letter in "CD"),
    *(value(f"{letter} mean ms", f"{letter}_mean_s", 1e3) for letter in "AB"),
    *(value(f"{letter} mean s", f"{letter}_mean_s") for letter in "CD"),
    FAILED,
    PROXY_MS,
    STORAGE_MS,
)
_LOADS = (
    COUNT,
    interval("overall QPS", "qps"),
    interval("overall MB/s", "mb_s"),
    value("A p95 ms", "A_p95_s", 1e3),
    value("C p95 s", "C_p95_s"),
    FAILED,
    PROXY_MS,
)
_COURSES = (
    COUNT,
    interval("A QPS", "A_qps"),
    interval("A at the spike", "A_qps_spike"),
    interval("A in stage 3", "A_qps_stage3"),
    interval("C MB/s", "C_mb_s"),
    interval("C in stage 1", "C_mb_s_stage1"),
    value("A's SLA held, % of the time", "A_sla_met", 100.0),
    value("C's", "C_sla_met", 100.0),
    FAILED,
    value("changes", "changes"),
    value("decided to applied s", "act_s_max"),
)


def _mean_ms(rows: pd.DataFrame) -> str:
    """Format the mean latency of the rows' workload."""
    return value_text(average(rows, f"{rows['workload'].iloc[0]}_mean_s", 1e3))


_ALONE = (
    COUNT,
    interval("QPS", "qps"),
    interval("MB/s", "mb_s"),
    ("mean ms", _mean_ms),
    value("proxy busy %", "proxy_busy", 100.0),
    PROXY_MS,
    STORAGE_MS,
    FAILED,
)
VARIED: Mapping[str, list[str]] = {
    "sizes": ["object_kb"],
    "proxy": ["proxies", "proxy_cores", "proxy_workers"],
    "storage": ["storage_cores"],
    "network": ["ssds", "hdds", "network_mbit"],
    "disks": ["ssds", "hdds", "network_mbit"],
}
"""Experiments of one workload alone, with the parameters that they vary."""


def tables(rows: pd.DataFrame) -> list[Table]:
    """Return tables with means over runs and 95 % intervals."""

    def by_setup(its: pd.DataFrame) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
        return [((label(setup),), its[its["setup"] == setup]) for setup in shown(its)]

    load = cells(rows, "load")
    loads = []
    for small in values_of(load, "small_workers"):
        its = load[load["small_workers"] == small]
        for key, part in by_setup(its):
            large = "/".join(f"{workers:g}" for workers in values_of(part, "large_workers"))
            loads.append(((f"{small:g}/{large}", *key), part))
    alone = []
    for experiment, varied in VARIED.items():
        for (letter, *at), its in cells(rows, experiment).groupby(["workload", *varied], sort=True):
            setting = ", ".join(f"{n} {v:g}" for n, v in zip(varied, at, strict=True))
            alone.append(((experiment, str(letter), setting), its))
    course = "Two tenants with changing load (figures 11, 12)"
    return [
        *tabulated(
            "mos-setups",
            "Four workloads at once (figure 1)",
            ("setup",),
            _SETUPS,
            by_setup(cells(rows, "setups")),
        ),
        *tabulated(
            "mos-load",
            "Two tenants at several loads (figures 8 to 10)",
            ("workers of A/C", "setup"),
            _LOADS,
            loads,
        ),
        *tabulated("mos-course", course, ("setup",), _COURSES, by_setup(cells(rows, "adaptation"))),
        *tabulated(
            "mos-alone",
            "One workload alone (figures 2 to 5)",
            ("experiment", "workload", "parameters"),
            _ALONE,
            alone,
        ),
    ]


# ---- Catalogue ----

_MEAN = "Means over runs with 95 % intervals; all setups of a block meet the same draws."
_STATED = "Diamonds: the paper's ratios times our"
_COURSE = (
    "Mean over blocks, band: their range. The load is the paper's in shape; it gives no numbers of "
    "processes."
)

_DRAWN = (
    (
        "1",
        "Performance under various object store configurations",
        f"{_MEAN} Workloads A to D at once. {_STATED} Default: 8 and 3.25 times the QPS, "
        "1/5.25 of the bandwidth with FavorsSmall and the same with FavorsLarge.",
        setups,
    ),
    (
        "2",
        "Impact of varying the object size on read performance",
        f"{_MEAN} One proxy of 0.4 core and 200 Mbit/s. Latencies of all runs together.",
        sizes,
    ),
    (
        "3a",
        "Proxy scaling, small objects",
        f"{_MEAN} {_STATED} QPS with one proxy (3,700 over 2,200).",
        partial(proxies, letter="A", column="qps", unit=QPS),
    ),
    (
        "3b",
        "Proxy scaling, large objects",
        f"{_MEAN} {_STATED} bandwidth with one proxy (2 times).",
        partial(proxies, letter="C", column="mb_s", unit=MB_S),
    ),
    (
        "3c",
        "Storage scaling",
        f"{_MEAN} The paper's peak is where storage servers together have the proxy's cores (R4).",
        storage,
    ),
    (
        "4a",
        "Homogeneous disks and the network, small objects",
        f"{_MEAN} {_STATED} slow network: +12 % on HDDs, +70 % on SSDs.",
        partial(networks, letter="A", column="qps", unit=QPS),
    ),
    (
        "4b",
        "Homogeneous disks and the network, large objects",
        f"{_MEAN} {_STATED} slow network: +900 % on SSDs.",
        partial(networks, letter="C", column="mb_s", unit=MB_S),
    ),
    (
        "5",
        "Heterogeneous disks and the network, large objects",
        f"{_MEAN} The paper has 310, 620 and 930 MB/s at 2.5, 5 and 7.5 Gbit/s: the links' "
        "limits, dotted here.",
        mixes,
    ),
    (
        "8",
        "Overall throughput and bandwidth under different setups",
        f"{_MEAN} Dotted: linear regression, as in the paper.",
        partial(
            loads,
            across=("qps", 1.0, "Overall throughput (QPS)"),
            up=("mb_s", 1.0, "Overall bandwidth (MB/s)"),
            fitted=True,
        ),
    ),
    (
        "9",
        "Throughput and 95th percentile latency of workload A",
        _MEAN,
        partial(
            loads,
            across=("A_qps", 1.0, "Throughput of A (QPS)"),
            up=("A_p95_s", 1e3, "95th percentile of A's reads (ms)"),
        ),
    ),
    (
        "10",
        "Bandwidth and 95th percentile latency of workload C",
        _MEAN,
        partial(
            loads,
            across=("C_mb_s", 1.0, "Bandwidth of C (MB/s)"),
            up=("C_p95_s", 1.0, "95th percentile of C's reads (s)"),
        ),
    ),
    (
        "11a",
        "A load that changes: throughput of A",
        _COURSE,
        partial(over_time, letter="A", measure="ops", factor=1.0, unit="Throughput of A (QPS)"),
    ),
    (
        "11b",
        "A load that changes: latency of A",
        _COURSE,
        partial(
            over_time,
            letter="A",
            measure="latency",
            factor=1e3,
            unit="Mean latency of A's reads (ms)",
            sla=(LATENCY_SLA, "SLA of A (mean latency)"),
        ),
    ),
    (
        "11c",
        "A load that changes: bandwidth of C",
        _COURSE,
        partial(
            over_time,
            letter="C",
            measure="bytes",
            factor=1e-6,
            unit="Bandwidth of C (MB/s)",
            sla=(BANDWIDTH_SLA, "SLA of C (bandwidth, by its workers)"),
        ),
    ),
    (
        "12",
        "Breakdown of resources under the load that changes",
        "The first block's run of MOS++.",
        resources,
    ),
)

FIGURES: tuple[FigureEntry, ...] = tuple(FigureEntry(*drawn) for drawn in _DRAWN)

LOCAL = Part(
    (*CLAIMS, *STATEMENTS),
    FIGURES,
    kind="mos",
    simulated=False,
    tabulate=table,
    tables=tables,
    command="hotbed run mos-local --figure {figure}",
)

PARTS: tuple[Part, ...] = (LOCAL, SIMULATED, GATEWAY)

BANNER = (
    "<b>Simulated</b> where a figure says so: COSPerf computes a pool of machines from measured "
    "profiles (docs/mos.md), as the paper's simulator does. Figures 1 to 12 are measured on real "
    "Swift, at a hundredth of the paper's size; those of the object gateway on real Ceph."
)
