"""Statements of the MOS paper's text that are not a figure's main result: the abstract, sections 1
to 3, 8.1 and 9. Where no run can support one, its reason is stated."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.core.claims import CHANGE, Claim, unreachable
from analysis.core.evidence import (
    Pair,
    Rows,
    ShareOf,
    assigned,
    compared,
    ends,
    extreme_over,
    mean_of,
)
from analysis.core.stats import amount, fraction
from analysis.papers.mos.claims import (
    DEFAULT,
    FAVORS_SMALL,
    HALF_THE_CORES,
    LARGE,
    LARGE_BANDWIDTH,
    LARGE_BUSY,
    MOS,
    MOS_PP,
    NO_COURSE,
    NO_DISKS,
    NO_LOAD,
    NO_NETWORK,
    NO_PROXY,
    NO_SIZES,
    NO_STORAGE,
    OTHERS,
    PROXY_BUSY,
    SMALL,
    STATIC,
    TAIL,
    UTILIZATION,
    Report,
    at_loads,
    at_value,
    cells,
    claim,
    fewest,
    free,
    held_at,
    high_network,
    label,
    less,
    network_of_stage_1,
    of,
    of_setups,
    on_disks,
    on_mixes,
    over_both,
    over_course,
    reported,
    same,
    share_change,
    small_on,
    spike,
    up_to,
    while_held,
    with_most_cores,
)
from schemas.claim import SHARE

EPOCH_MINUTES = 3.0
"""Section 8.1's epoch."""
SLA_WINDOW_MINUTES = 2.0
LINK_USE = 0.98 * 8 / 10
"""Figure 2(a): 0.98 GB/s on a link of 10 Gbit/s."""

_cannot = partial(unreachable, prefix="mos-local", paper="mos")


def _link(rows: Rows, over: str | None = None) -> Rows:
    """Select rows, with the added column ``link``: the used share of a proxy's link, over another
    column if `over` names one."""

    def used(found: pd.DataFrame) -> pd.Series:
        share = found["mb_s"] * 8 / found["network_mbit"]
        return share if over is None else share / found[over]

    return assigned(rows, link=used)


def _linearity(setup: str) -> Rows:
    """Return a row for each block with three loads or more, with the column ``value``: R2 of the
    linear regression of overall bandwidth on overall throughput."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = cells(table, "load", setup=setup)
        made = [
            block.head(1).assign(
                value=min(1.0, np.corrcoef(block["qps"], block["mb_s"])[0, 1] ** 2)
            )
            for _, block in found.groupby("seed")
            if len(block) > 2
        ]
        return pd.concat(made) if made else found[:0].assign(value=pd.Series(dtype=float))

    return rows


# ---- Values of a run with a load that changes ----


def _mean_held(course: Report, name: str) -> float:
    """Return the mean held share of a pool's resource; Static divides the whole pool."""
    if not course.get("held"):
        return 1.0
    last = course["course"]["ends"]
    times = [0.0, *(line["t_s"] for line in course["held"] if 0 < line["t_s"] < last), last]
    held = [(b - a) * (1 - free(course, a, name)) for a, b in pairwise(times)]
    return float(sum(held) / last)


def _per_held(setup: str, column: str, resource: str) -> Rows:
    """Select a setup's runs, with the added column ``each``: a rate over the held share."""
    held = reported(setup, lambda one: _mean_held(one, resource))
    return assigned(held, each=lambda found: found[column] / found["value"])


def _first_epoch(course: Report) -> float:
    """Return C's bandwidth in the first epoch, bytes/s."""
    seconds = round(EPOCH_MINUTES * course["minute_s"])
    return float(np.mean(course["series"]["C"]["bytes"][:seconds]))


def _missed(course: Report) -> float:
    """Return the number of windows of stage 1 with less than the bandwidth promised to C."""
    width = max(1, round(SLA_WINDOW_MINUTES * course["minute_s"]))
    count = int(course["course"]["stages"][1]) // width
    limit = np.asarray(course["sla"]["bytes_s"], dtype=float)  # one number in older reports
    wanted = limit[: count * width] if limit.ndim else np.full(count * width, limit)
    moved = np.asarray(course["series"]["C"]["bytes"][: count * width], dtype=float)
    sums = [one.reshape(-1, width).sum(axis=1) for one in (moved, wanted)]
    return float((sums[0] < sums[1]).sum())


def _minutes_until_highest(course: Report) -> float:
    """Return the paper's minutes until C holds its largest share of the network in stage 1; the
    length of the course if C gains none."""
    decided = network_of_stage_1(course)
    begins, highest = decided[0][0], max(decided, key=lambda one: one[1])
    until = course["course"]["ends"] if highest == decided[0] else highest[0]
    return float((until - begins) / course["minute_s"])


def _epochs_until_change(course: Report) -> float:
    """Return the number of epochs from the start of stage 2 to the first change, or to the end of
    the course without one."""
    begins, ends = spike(course)[0], course["course"]["ends"]
    before = held_at(course, begins - 1e-6)
    later = [line["t_s"] for line in course["held"] if line["t_s"] >= begins]
    changed = next((at for at in later if held_at(course, at) != before), ends)
    return float(max(1, math.ceil((changed - begins) / (EPOCH_MINUTES * course["minute_s"]))))


def _share_of_c(course: Report) -> float:
    """Return C's share of all bytes in stage 3."""
    begins, last = round(course["course"]["stages"][2]), round(course["course"]["ends"])
    moved = {x: sum(course["series"][x]["bytes"][begins:last]) for x in "AC"}
    return float(moved["C"] / sum(moved.values()))


def _mean_write(course: Report) -> float | None:
    """Return the mean latency of A's writes from the middles of its buckets; None without any."""
    buckets = course["latencies"]["A"].get("write", [])
    count = sum(many for _, _, many in buckets)
    return sum((low + high) / 2 * many for low, high, many in buckets) / count if count else None


# ---- Claims ----

_SUMMARIES: tuple[Claim, ...] = (
    *(
        claim(
            f"abstract-{name}",
            figure,
            f"MOS++ {words}, compared to default and statically configured setups (abstract)",
            over_both(column, "largest" if larger else "least"),
            value=value,
            family="mos-abstract",
            baseline="default+static",
            larger=larger,
        )
        for name, figure, words, column, value, larger in (
            (
                "bandwidth",
                "10",
                "has up to 79 % more bandwidth (C)",
                "C_mb_s",
                LARGE_BANDWIDTH,
                True,
            ),
            ("tail", "9", "has up to 70.2 % less tail latency (A)", "A_p95_s", TAIL, False),
        )
    ),
    *(
        claim(
            f"efficiency-{name}",
            "12",
            f"MOS++ has a higher resource efficiency than Static (section 1): more {words}",
            Pair(
                _per_held(MOS_PP, column, resource),
                _per_held(STATIC, column, resource),
                "each",
                NO_COURSE,
            ),
            family="mos-efficiency",
            baseline=STATIC,
        )
        for name, words, column, resource in (
            ("cores", "requests of A for each held core of proxies", "A_qps", "proxy_cores"),
            ("network", "bandwidth of C for each held share of the network", "C_mb_s", "network"),
        )
    ),
    *(
        claim(
            f"basic-{letter.lower()}",
            "8",
            f"Basic MOS outperforms extant object stores (section 10; here Static, workload "
            f"{letter})",
            at_loads(MOS, STATIC, column),
            family="mos-basic",
        )
        for letter, column in (("A", "A_qps"), ("C", "C_mb_s"))
    ),
    less(
        "interference-cause",
        "1",
        "Large objects exhaust the network and so waste the storage nodes' CPU: with Default they "
        "use less of it than with FavorsSmall",
        of_setups(DEFAULT, FAVORS_SMALL, "storage_cores_used"),
    ),
    less(
        "interference",
        "1",
        "Together with large objects, a workload of small ones loses dramatically",
        "no campaign has workload A alone on the two proxies of figure 1",
        baseline="A-alone",
    ),
    claim(
        "size-classes",
        "1",
        "Workloads can be classified by object size (R1): A loses less next to B than next to C",
        "no campaign has A with B, and A with C, on the same proxies",
        baseline="A-with-C",
    ),
    same(
        "network-exchanged",
        "1",
        "Default gives similar results with the proxies' links exchanged",
        "no campaign has figure 1's Default with slim_mbit and wide_mbit exchanged",
        baseline=DEFAULT,
    ),
    _cannot(
        "ceph-swift",
        "1",
        "Ceph outperforms Swift (section 2)",
        "the paper cites it, without a load, hardware or measure to compare",
        baseline="swift",
    ),
    _cannot(
        "containers",
        "8",
        "Containers cost next to nothing (section 7)",
        "without containers the servers here have no share of a machine that could be compared; "
        "the paper cites it",
        baseline="no-containers",
    ),
)

_SECTION_3: tuple[Claim, ...] = (
    claim(
        "size-to-10-mb",
        "2",
        "From 10 KB to 10 MB larger objects have more bandwidth (largest over smallest of these)",
        ends(of("sizes"), "object_kb", "mb_s", NO_SIZES, wanted=lambda kb: kb <= 10_000),
        baseline="smallest-objects",
    ),
    claim(
        "size-link",
        "2",
        "With the largest objects the link is saturated (0.98 GB/s on 10 Gbit/s; read as more than "
        "half used)",
        mean_of(_link(at_value(of("sizes"), "object_kb", max)), "link", NO_SIZES, of=amount),
        value=LINK_USE,
        unit=UTILIZATION,
        no_effect=0.5,
        rule="at_least",
    ),
    claim(
        "proxy-cpu-more-workers",
        "3a",
        "CPU utilization is close to 85 % with twice the workers too (64; limit as for 32)",
        mean_of(
            with_most_cores("A", proxies=1, proxy_workers=2), "proxy_busy", NO_PROXY, of=amount
        ),
        value=PROXY_BUSY,
        unit=UTILIZATION,
        no_effect=LARGE_BUSY,
        rule="at_least",
        tolerance=0.1,
    ),
    *(
        claim(
            f"bottleneck-{letter.lower()}",
            figure,
            f"{words} (used share of the link over that of the proxy's cores)",
            mean_of(
                _link(with_most_cores(letter, proxies=1, proxy_workers=1), "proxy_busy"),
                "link",
                NO_PROXY,
                logarithmic=True,
            ),
            family="mos-bottleneck",
            baseline="proxy-cpu",
            larger=larger,
        )
        for letter, figure, words, larger in (
            ("A", "3a", "Small objects: the CPU is the bottleneck before the network (R2)", False),
            ("C", "3b", "Large objects: the network is the bottleneck, not the CPU (R3)", True),
        )
    ),
    claim(
        "storage-fewer",
        "3c",
        "Only with as many storage cores as the proxy's is the maximum achieved: half as many give "
        "less (R4)",
        ends(
            of("storage", workload="A"),
            "storage_cores",
            "qps",
            NO_STORAGE,
            before=True,
            wanted=lambda cores: cores <= HALF_THE_CORES,
        ),
        baseline="half-the-cores",
    ),
    less(
        "storage-disks",
        "3c",
        "With three SSDs a node, disks do not limit large objects (busy for less than 85 %)",
        mean_of(of("storage", workload="C"), "disk_busy_mean", NO_STORAGE, blocks=True, of=amount),
        unit=UTILIZATION,
        no_effect=PROXY_BUSY,
    ),
    claim(
        "network-a-cheap",
        "4a",
        "A slow network with SSDs serves small objects better than a fast one with HDDs (R6)",
        Pair(small_on("ssd", min), small_on("hdd", max), "qps", NO_NETWORK),
        baseline="fast-network-hdd",
    ),
    *(
        same(
            f"disks-slow-network-{ssds}-ssd",
            "5",
            f"At the slowest network {ssds} SSD and {3 - ssds} HDD are as good as three SSDs (read "
            "as within 15 %)",
            on_mixes(ssds, 3, min),
            family="mos-slow-network",
            baseline="3-ssd",
        )
        for ssds in (1, 2)
    ),
    claim(
        "disks-choice",
        "5",
        "The choice of disks depends on the network: three HDDs keep more of three SSDs' bandwidth "
        "at the slowest one than at 7.5 Gbit/s",
        Pair(
            compared(on_disks(0, min), on_disks(3, min), "mb_s"),
            compared(on_disks(0, high_network), on_disks(3, high_network), "mb_s"),
            "ratio",
            NO_DISKS,
        ),
        baseline="fast-network",
    ),
    _cannot(
        "disks-efficiency",
        "5",
        "Two SSDs and an HDD have a higher resource efficiency than three SSDs",
        "the paper states neither prices of disks nor a measure of their efficiency",
        baseline="3-ssd",
    ),
    less(
        "storage-links",
        "3b",
        "Links of storage nodes should have the proxies' bandwidth together (R5): less costs "
        "bandwidth",
        "no campaign limits the links of storage nodes; network_mbit is of the proxies' links",
        baseline="equal-links",
    ),
)

_LOADS: tuple[Claim, ...] = (
    *(
        claim(
            f"linear-{setup}",
            "8",
            f"{label(setup)}: overall throughput and bandwidth are linearly related over all loads "
            "(R2 of the regression, read as above 0.5)",
            mean_of(_linearity(setup), "value", "no block has three loads", of=fraction),
            unit=SHARE,
            family="mos-linear",
        )
        for setup in (DEFAULT, STATIC, MOS_PP)
    ),
    claim(
        "static-balances",
        "8",
        "Static balances both workloads to some extent: where C dominates, A has more throughput "
        "than with Default",
        extreme_over(at_loads(STATIC, DEFAULT, "A_qps"), "small_workers", "least", order=fewest),
    ),
    *(
        same(
            f"start-{name}",
            "9",
            f"As A starts to increase, Static is similar to MOS++ ({words} at the lowest load of "
            "A, read as within 15 %)",
            extreme_over(at_loads(MOS_PP, STATIC, column), "small_workers", "least", order=fewest),
            family="mos-start",
        )
        for name, words, column in (("tail", "p95", "A_p95_s"), ("throughput", "QPS", "A_qps"))
    ),
    *(
        claim(
            f"corner-{setup}",
            "9",
            f"For A, Default performs the worst (throughput; {label(setup)} over it, at the load "
            "at which it gains least)",
            up_to(setup, DEFAULT, "A_qps", "least"),
            family="mos-corner",
        )
        for setup in (STATIC, MOS_PP)
    ),
    same(
        "static-bound",
        "10",
        "Static's share of the network limits C: its bandwidth at the highest load of C over the "
        "next (read as within 15 %)",
        ends(of("load", setup=STATIC), "large_workers", "C_mb_s", NO_LOAD, before=True),
        baseline="fewer-workers",
    ),
    less(
        "mean-trend",
        "10",
        "Average latency of C has the trend of its 95th percentile: lower with MOS++ than with "
        "Default (at the load with the largest difference)",
        extreme_over(at_loads(MOS_PP, DEFAULT, "C_mean_s"), "large_workers", "least"),
    ),
)

_COURSES: tuple[Claim, ...] = (
    same(
        "stage-1-begins",
        "11c",
        "As stage 1 begins, MOS++ and Static are the same (C's bandwidth in the first epoch, read "
        "as within 15 %)",
        Pair(reported(MOS_PP, _first_epoch), reported(STATIC, _first_epoch), "value", NO_COURSE),
        baseline=STATIC,
    ),
    less(
        "stage-1-time",
        "12",
        "After 5 min MOS++'s performance is the highest (C's share of the network; read as within "
        "10 min)",
        while_held(_minutes_until_highest, of=amount),
        value=5.0,
        unit="min",
        kind="seconds",
        rule="at_most",
        no_effect=10.0,
    ),
    claim(
        "stage-1-static-sla",
        "11c",
        "In stage 1 Static does not satisfy C's SLA for 100 % of the time (runs with a window of 2 "
        "min that misses it)",
        ShareOf(reported(STATIC, _missed), lambda rows: rows["value"] > 0, NO_COURSE),
        unit=SHARE,
    ),
    *(
        claim(
            name,
            "12",
            statement,
            share_change(store, resource, *times),
            unit=CHANGE,
            larger=larger,
            family=family,
        )
        for name, statement, store, resource, times, larger, family in (
            (
                "stage-1-cpu",
                "In stage 1 MOS++ frees CPU cores of A (proxies)",
                *(SMALL, "proxy_cores", ("begin", "1"), False, None),
            ),
            (
                "stage-2-proxies",
                "When A spikes, MOS++ gives it more cores of proxies (R2)",
                *(SMALL, "proxy_cores", ("1", "spike"), True, "mos-stage-2"),
            ),
            (
                "stage-2-storage",
                "When A spikes, MOS++ gives it more cores of object servers (R4)",
                *(SMALL, "storage_cores", ("1", "spike"), True, "mos-stage-2"),
            ),
            (
                "stage-2-large",
                "MOS++ takes CPU cores from C as stage 2 begins (proxies)",
                *(LARGE, "proxy_cores", ("1", "spike"), False, None),
            ),
            (
                "decline-cpu",
                "As A decreases, MOS++ reclaims its extra CPU cores (proxies)",
                *(SMALL, "proxy_cores", ("spike", "2"), False, "mos-decline"),
            ),
            (
                "decline-network",
                "As A decreases, MOS++ gives network back to C",
                *(LARGE, "network", ("spike", "2"), True, "mos-decline"),
            ),
        )
    ),
    less(
        "reacts",
        "12",
        "As stage 2 begins, MOS++ immediately reacts (epochs until its first change, read as fewer "
        "than two)",
        while_held(_epochs_until_change, of=amount),
        unit="epochs",
        kind="count",
        no_effect=1.5,
    ),
    *(
        claim(
            f"course-{letter.lower()}-{other}",
            figure,
            f"MOS++ has the highest performance for both tenants (workload {letter}, whole course, "
            f"over {label(other)})",
            over_course(MOS_PP, other, column),
            family="mos-course",
        )
        for letter, figure, column in (("A", "11a", "A_qps"), ("C", "11c", "C_mb_s"))
        for other in OTHERS
    ),
    *(
        claim(
            f"stage-3-{column[0].lower()}-{other}",
            figure,
            "In stage 3 too MOS++ has the best performance for both tenants (workload "
            f"{column[0]}, over {label(other)})",
            over_course(MOS_PP, other, column),
            family="mos-stage-3",
        )
        for figure, column, other in (
            ("11a", "A_qps_stage3", STATIC),
            ("11c", "C_mb_s_stage3", DEFAULT),
            ("11c", "C_mb_s_stage3", STATIC),
        )
    ),
    claim(
        "stage-3-default",
        "11c",
        "In stage 3 Default's network is mostly used by C (its share of all bytes)",
        mean_of(reported(DEFAULT, _share_of_c), "value", NO_COURSE, of=fraction),
        unit=SHARE,
    ),
    less(
        "write-trend",
        "11b",
        "A's write latency has the trend of its read latency (footnote 4): below Static's",
        Pair(reported(MOS_PP, _mean_write), reported(STATIC, _mean_write), "value", NO_COURSE),
        baseline=STATIC,
    ),
    less(
        "solver",
        "12",
        "The optimisation problem is solved in seconds (section 6; longest decision of a run, read "
        "as less than 10 s)",
        mean_of(of("adaptation", setup=MOS_PP), "decide_s_max", NO_COURSE, of=amount),
        unit="s",
        no_effect=10.0,
    ),
    less(
        "drift",
        "12",
        "If a workload's object sizes change, MOS may thrash and lose performance (section 9)",
        "no campaign has a workload whose object sizes change",
        baseline="constant-sizes",
    ),
)

STATEMENTS: tuple[Claim, ...] = (*_SUMMARIES, *_SECTION_3, *_LOADS, *_COURSES)
