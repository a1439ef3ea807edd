"""Figures 2 to 5: one workload alone, by object size, cores, network and disks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.columns import average
from analysis.core.figures import Missing
from analysis.core.stats import Estimate, counts
from analysis.papers.mos.local.panels import PAPER_LINE, PAPER_RATIO, errors, grouped, line
from analysis.papers.mos.local.runs import cells, report, values_of
from analysis.papers.mos.local.single_claims import LARGE_BUSY, NETWORK, PROXY_BUSY, SECOND_PROXY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QPS_COLOUR, BYTES_COLOUR, CPU_COLOUR = "#0072B2", "#E69F00", "#444444"
HDD_COLOUR, SSD_COLOUR = "#999999", "#0072B2"
MIX_COLOURS = {0: "#999999", 1: "#E69F00", 2: "#56B4E9", 3: "#0072B2"}
QPS, MB_S = "Throughput (QPS)", "Bandwidth (MB/s)"


def sizes(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 2: QPS and bandwidth by object size, and the distribution of read latencies."""
    rows = cells(evidence.table, "sizes")
    there = values_of(rows, "object_kb")
    if len(there) < 2:
        return Missing("reads of several object sizes")
    with style.figure(1, 2, width=10.4, height=4.2) as (drawn, axes):
        left, right = axes
        of_size = [rows[rows["object_kb"] == size] for size in there]
        queries = [_sure(average(its, "qps")) for its in of_size]
        rates = [_sure(average(its, "mb_s")) for its in of_size]
        places = range(len(there))
        left.bar(places, [q.value for q in queries], 0.7, color=QPS_COLOUR, label="QPS")
        left.errorbar(
            places,
            [q.value for q in queries],
            yerr=errors(queries),
            fmt="none",
            color="black",
            capsize=3,
            linewidth=1,
        )
        style.magnitudes(left)
        left.set_ylabel(QPS)
        other = left.twinx()
        other.grid(False)
        line(other, list(zip(places, rates, strict=True)), shade=BYTES_COLOUR, label="Bandwidth")
        other.set_ylim(0, None)
        other.set_ylabel(MB_S)
        left.set_xticks(list(places), [size_text(size) for size in there])
        left.set_xlabel("Object size")
        left.set_title(f"(a) Read performance ({counts(queries)})", loc="left")
        for size, its in zip(there, of_size, strict=True):
            _distribution(right, evidence, its, size, there)
        right.set_xscale("log")
        right.set_xlabel("Latency of a read (ms)")
        right.set_ylabel("Share of the reads")
        right.set_ylim(0, 1.02)
        right.set_title("(b) Latency distribution", loc="left")
        style.legend(drawn, [left, other, right], columns=5)
        return style.save(drawn, folder, name)


def _sure(found: Estimate | None) -> Estimate:
    assert found is not None
    return found


def size_text(kb: float) -> str:
    """Format a size: ``64 KB``, ``16 MB``."""
    return f"{kb / 1000:g} MB" if kb >= 1000 else f"{kb:g} KB"


def _distribution(
    panel: Axes, evidence: Evidence, rows: pd.DataFrame, size: float, there: Sequence[Any]
) -> None:
    """Draw the latency distribution of a size's reads, all runs together."""
    found: dict[float, int] = {}
    for index in rows["index"]:
        for low, high, count in report(evidence.runs[int(index)].folder)["latencies"]["A"]["read"]:
            found[high] = found.get(high, 0) + count
            found.setdefault(low, 0)
    if not found:
        return
    import matplotlib

    shade = matplotlib.colormaps["viridis"](there.index(size) / max(1, len(there) - 1))
    at = sorted(found)
    share = np.cumsum([found[one] for one in at]) / sum(found.values())
    panel.plot([1e3 * one for one in at], share, color=shade, linewidth=1.4, label=size_text(size))


def proxy_small(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 3(a): QPS of workload A by the proxies' cores."""
    return _proxies(evidence, (folder, name), "A", "qps", QPS)


def proxy_large(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 3(b): bandwidth of workload C by the proxies' cores."""
    return _proxies(evidence, (folder, name), "C", "mb_s", MB_S)


def _proxies(
    evidence: Evidence, file: tuple[Path, str], letter: str, column: str, unit: str
) -> Path | Missing:
    rows = cells(evidence.table, "proxy", workload=letter)
    keys = ["proxies", "proxy_cores", "proxy_workers"]
    order = sorted(
        set(zip(*(rows[key] for key in keys), strict=True)), key=lambda k: (k[0], k[2], k[1])
    )
    if len(order) < 2:
        return Missing(f"workload {letter} with several numbers of cores of the proxy")
    found, busy, names = [], [], []
    for key in order:
        its = rows[(rows[keys] == list(key)).all(axis=1)]
        found.append(_sure(average(its, column)))
        busy.append(average(its, "proxy_busy", 100.0))
        proxies, cores, workers = key
        text = f"{cores:g}" + (f"\n{workers} processes" if workers > 1 else "")
        names.append(text if proxies == 1 else f"{proxies} x {cores:g}\n{proxies} proxies")
    with style.figure(width=6.8, height=4.2) as (drawn, axes):
        panel = axes[0]
        places = list(range(len(order)))
        panel.bar(places, [f.value for f in found], 0.7, color=QPS_COLOUR, label=unit)
        panel.errorbar(
            places,
            [f.value for f in found],
            yerr=errors(found),
            fmt="none",
            color="black",
            capsize=3,
            linewidth=1,
        )
        single = [i for i, key in enumerate(order) if key[0] == 1 and key[2] == 1]
        double = [i for i, key in enumerate(order) if key[0] == 2]
        if single and double:
            factor = SECOND_PROXY if letter == "A" else 2.0
            value = factor * found[single[-1]].value
            style.paper_marker(panel, double[-1], value, text=PAPER_RATIO)
        other = panel.twinx()
        other.grid(False)
        points = [(x, b) for x, b in zip(places, busy, strict=True) if b is not None]
        line(other, points, shade=CPU_COLOUR, label="CPU utilization of the proxy", fmt="s")
        stated = PROXY_BUSY if letter == "A" else LARGE_BUSY
        other.axhline(100 * stated, **PAPER_LINE, label=f"paper: CPU at {100 * stated:.0f} %")
        other.set_ylim(0, 119)
        other.set_ylabel("CPU utilization (%)")
        panel.set_xticks(places, names)
        panel.set_ylim(0, max(max(1.25 * one.value, 1.05 * one.high) for one in found))
        panel.set_xlabel("Cores of each proxy")
        panel.set_ylabel(unit)
        panel.set_title(f"Workload {letter} ({counts(found)})", loc="left")
        style.legend(drawn, [panel, other], columns=2)
        return style.save(drawn, *file)


def storage(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 3(c): small objects (bars, QPS) and large ones (line, MB/s) by storage cores."""
    rows = cells(evidence.table, "storage")
    there = values_of(rows, "storage_cores")
    if len(there) < 2:
        return Missing("several numbers of cores of the storage servers")
    with style.figure(width=6.6, height=4.2) as (drawn, axes):
        panel = axes[0]
        other = panel.twinx()
        other.grid(False)
        small = _by_cores(rows[rows["workload"] == "A"], there, "qps")
        large = _by_cores(rows[rows["workload"] == "C"], there, "mb_s")
        found = [one for _, one in (*small, *large)]
        if small:
            xs, ones = zip(*small, strict=True)
            panel.bar(xs, [o.value for o in ones], 0.7, color=QPS_COLOUR, label="A: throughput")
            panel.errorbar(
                xs, [o.value for o in ones], yerr=errors(ones), fmt="none", color="black",
                capsize=3, linewidth=1,
            )  # fmt: skip
        if large:
            line(other, large, shade=BYTES_COLOUR, label="C: bandwidth")
        wanted = float(rows["proxy_cores"].iloc[0]) / 2
        names = [
            f"2 x {cores:g}" + ("\n(as the proxy)" if cores == wanted else "") for cores in there
        ]
        panel.set_xticks(range(len(there)), names)
        panel.set_xlabel("Cores of the storage servers")
        panel.set_ylabel(QPS)
        other.set_ylabel(MB_S)
        other.set_ylim(0, None)
        panel.set_title(f"Behind one proxy of {2 * wanted:g} cores ({counts(found)})", loc="left")
        style.legend(drawn, [panel, other])
        return style.save(drawn, folder, name)


def _by_cores(
    rows: pd.DataFrame, cores: Sequence[float], column: str
) -> list[tuple[float, Estimate]]:
    """Return places of the numbers of storage cores that have runs, and their means."""
    found = (average(rows[rows["storage_cores"] == number], column) for number in cores)
    return [(float(place), one) for place, one in enumerate(found) if one is not None]


def network_small(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4(a): QPS of workload A on HDDs and SSDs by network."""
    return _networks(evidence, (folder, name), "A", "qps", QPS)


def network_large(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 4(b): bandwidth of workload C on HDDs and SSDs by network."""
    return _networks(evidence, (folder, name), "C", "mb_s", MB_S)


def _networks(
    evidence: Evidence, file: tuple[Path, str], letter: str, column: str, unit: str
) -> Path | Missing:
    rows = cells(evidence.table, "network", workload=letter)
    there = values_of(rows, "network_mbit")
    if len(there) < 2:
        return Missing(f"workload {letter} with two networks")
    groups = [f"{rate:g} Mbit/s" for rate in there]
    stated, series, every = {}, [], []
    for kind, text, shade in (("hdds", "HDD", HDD_COLOUR), ("ssds", "SSD", SSD_COLOUR)):
        found = {}
        for rate, group in zip(there, groups, strict=True):
            one = average(rows[(rows[kind] > 0) & (rows["network_mbit"] == rate)], column)
            if one is not None:
                found[group] = one
        factor = NETWORK.get((letter, text.lower()))
        if factor is not None and groups[0] in found:
            stated[text, groups[-1]] = factor * found[groups[0]].value
        series.append((text, shade, found))
        every += list(found.values())
    with style.figure(width=5.6, height=4.2) as (drawn, axes):
        grouped(axes[0], groups, series, stated)
        axes[0].set_xlabel("Link of the proxy")
        axes[0].set_ylabel(unit)
        axes[0].set_title(f"Workload {letter} ({counts(every)})", loc="left")
        style.legend(drawn, axes)
        return style.save(drawn, *file)


def mixes(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw figure 5: bandwidth of workload C by network and kinds of disks."""
    rows = cells(evidence.table, "disks", workload="C")
    there = values_of(rows, "network_mbit")
    kinds = values_of(rows, "ssds")
    if not there or len(kinds) < 2:
        return Missing("workload C on several sets of disks")
    groups = [f"{rate:g} Mbit/s" for rate in there]
    series, every = [], []
    for ssds in kinds:
        found = {}
        for rate, group in zip(there, groups, strict=True):
            one = average(rows[(rows["ssds"] == ssds) & (rows["network_mbit"] == rate)], "mb_s")
            if one is not None:
                found[group] = one
        hdds = int(rows[rows["ssds"] == ssds]["hdds"].iloc[0])
        parts = [f"{count} {text}" for count, text in ((int(ssds), "SSD"), (hdds, "HDD")) if count]
        series.append((" + ".join(parts), MIX_COLOURS.get(int(ssds), "#444444"), found))
        every += list(found.values())
    with style.figure(width=7.4, height=4.2) as (drawn, axes):
        panel = axes[0]
        grouped(panel, groups, series)
        for place, rate in enumerate(there):
            limit = rate / 8
            text = "the link's limit, which the paper's SSDs reach" if place == 0 else "_"
            panel.hlines(limit, place - 0.45, place + 0.45, **_limit(), label=text)
        panel.set_xlabel("Link of the proxy")
        panel.set_ylabel(MB_S)
        panel.set_title(f"Workload C ({counts(every)})", loc="left")
        style.legend(drawn, axes, columns=3)
        return style.save(drawn, folder, name)


def _limit() -> dict[str, Any]:
    return {"color": "black", "linestyle": ":", "linewidth": 1.4}
