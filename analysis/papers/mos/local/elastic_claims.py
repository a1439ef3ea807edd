"""Claims of section 8.1: MOS++ against Default and Static, at each load (figures 8 to 10) and under
changing load (figures 11 and 12).

The paper makes two statements about the same numbers. Section 8.1: overall throughput improves by
10.4 to 89.6 % and overall bandwidth by 7.6 to 79.8 %, compared to both. Sections 1 and 10:
performance improves by up to 89.6 % compared to Default and by up to 79.8 % compared to Static.
Both are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun
from analysis.core.columns import paired
from analysis.papers.mos.local.adaptation import (
    hardware_share,
    network_freed,
    network_given,
    network_most,
)
from analysis.papers.mos.local.measured import best, claim, measured, more, of, over
from analysis.papers.mos.local.runs import DEFAULT, MOS_PP, STATIC, cells, label, values_of

THROUGHPUT, BANDWIDTH = 1.896, 1.798
"""Figure 8: largest ratios of MOS++ over others."""
LEAST_THROUGHPUT, LEAST_BANDWIDTH = 1.104, 1.076
TAIL, TAIL_THROUGHPUT = 1 - 0.702, 1.117
"""Figure 9: p95 and QPS of A at peak load, MOS++ over Static."""
LARGE_BANDWIDTH, LARGE_TAIL = 1.79, 1 - 0.506
"""Figure 10: C."""
STATIC_OVER_DEFAULT = 2.0
SPIKE, STAGE_1 = 2.1, 1.12
"""Figure 11: A at the spike, C in stage 1."""
NETWORK_FREED, NETWORK_GIVEN, NETWORK_MOST, HDD_SHARE = 0.58, 0.21, 0.95, 0.50
"""Figure 12, shares of the network, and of the HDDs."""
PEAK_POINTS = 2
"""The right-most two data points."""

_NO_LOAD = "no block has both setups with the same numbers of workers"
_NO_COURSE = "no block has both setups with a load that changes"
_OTHERS: Mapping[str, str] = {DEFAULT: "Default", STATIC: "Static"}


def _load(setup: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return of("load", setup=setup)


def _course(setup: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return of("adaptation", setup=setup)


def _each_both(column: str, *, largest: bool) -> Compute:
    """Compute MOS++ over Default and over Static at every load: the largest or smallest ratio."""
    choose = max if largest else min

    def compute(evidence: Evidence) -> Measured | NotRun:
        top = cells(evidence.table, "load", setup=MOS_PP)
        found = {}
        points = values_of(top, "small_workers")
        for setup, name in _OTHERS.items():
            base = cells(evidence.table, "load", setup=setup)
            for point in points:
                one = paired(
                    top[top["small_workers"] == point],
                    base[base["small_workers"] == point],
                    column,
                    comparisons=len(points) * len(_OTHERS),
                )
                if one is None:
                    return NotRun(f"no block has MOS++ and {name} with {point:g} workers of A")
                found[name, point] = one
        if not found:
            return NotRun(_NO_LOAD)
        at = choose(found, key=lambda key: found[key].value)
        note = f"over {at[0]} with {at[1]:g} workers of A"
        return measured(found[at], top, _NO_LOAD, note)

    return compute


_BOTH: tuple[Claim, ...] = tuple(
    claim(
        f"{name}-{end}",
        "8",
        f"MOS++ improves overall {text} by {words}, compared to both Default and Static (section "
        "8.1's reading)",
        _each_both(column, largest=end == "most"),
        value=value,
        baseline="Default and Static",
    )
    for name, text, column, values in (
        ("throughput", "throughput", "qps", (THROUGHPUT, LEAST_THROUGHPUT)),
        ("bandwidth", "bandwidth", "mb_s", (BANDWIDTH, LEAST_BANDWIDTH)),
    )
    for end, words, value in (
        ("most", f"up to {100 * (values[0] - 1):.1f} %", values[0]),
        ("least", f"{100 * (values[1] - 1):.1f} % and more", values[1]),
    )
)

_EACH: tuple[Claim, ...] = tuple(
    claim(
        f"{measure}-{setup}",
        "8",
        f"MOS++ improves performance by up to {100 * (value - 1):.1f} % compared to {name} "
        f"(sections 1 and 10's reading; here: overall {text})",
        best(_load(MOS_PP), _load(setup), column, "small_workers", _NO_LOAD),
        value=value,
        baseline=name,
    )
    for setup, name, value in (
        (DEFAULT, "Default", THROUGHPUT),
        (STATIC, "Static", BANDWIDTH),
    )
    for measure, text, column in (
        ("throughput", "throughput", "qps"),
        ("bandwidth", "bandwidth", "mb_s"),
    )
)


def _at(which: Callable[[list[float]], float], setup: str, baseline: str, column: str) -> Compute:
    """Compute the ratio of two setups at one load, chosen by workers of A."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, base = (cells(evidence.table, "load", setup=one) for one in (setup, baseline))
        there = values_of(top, "small_workers")
        if not there:
            return NotRun(_NO_LOAD)
        at = which(there)
        first, second = (one[one["small_workers"] == at] for one in (top, base))
        note = f"with {at:g} workers of A"
        return measured(paired(first, second, column), top, _NO_LOAD, note)

    return compute


_LOADS: tuple[Claim, ...] = (
    *_BOTH,
    *_EACH,
    claim(
        "default-large",
        "8",
        "Where C dominates (far left), Default has more bandwidth than Static",
        _at(min, DEFAULT, STATIC, "mb_s"),
        baseline="Static",
    ),
    claim(
        "static-small",
        "8",
        "As A dominates, Static outperforms Default by as much as 2 times",
        best(_load(STATIC), _load(DEFAULT), "qps", "small_workers", _NO_LOAD),
        value=STATIC_OVER_DEFAULT,
        baseline="Default",
    ),
    claim(
        "tail-static",
        "9",
        "At peak loads of A, MOS++ has up to 70.2 % less 95th percentile latency than Static",
        best(
            _load(MOS_PP),
            _load(STATIC),
            "A_p95_s",
            "small_workers",
            _NO_LOAD,
            larger=False,
            last=PEAK_POINTS,
        ),
        value=TAIL,
        baseline="Static",
        larger=False,
    ),
    claim(
        "tail-throughput",
        "9",
        "and up to 11.7 % more throughput",
        best(_load(MOS_PP), _load(STATIC), "A_qps", "small_workers", _NO_LOAD, last=PEAK_POINTS),
        value=TAIL_THROUGHPUT,
        baseline="Static",
    ),
    *(
        claim(
            name,
            "9",
            f"For A, Default performs the worst (p95; {label(setup)} over it, at the load at which "
            "it gains least)",
            best(_load(setup), _load(DEFAULT), "A_p95_s", "small_workers", _NO_LOAD),
            baseline="Default",
            larger=False,
        )
        for name, setup in (("tail-default", MOS_PP), ("tail-default-static", STATIC))
    ),
    *(
        claim(
            f"large-{measure}-{setup}",
            "10",
            f"For C, MOS++ {words} ({why})",
            best(_load(MOS_PP), _load(setup), column, "large_workers", _NO_LOAD, larger=larger),
            value=value,
            baseline=name,
            larger=larger,
        )
        for setup, name, why in (
            (DEFAULT, "Default", "the baseline that the sentence names"),
            (STATIC, "Static", "the one that its reason is about: Static's network is too small"),
        )
        for measure, words, column, value, larger in (
            ("bandwidth", "has up to 79 % more bandwidth", "C_mb_s", LARGE_BANDWIDTH, True),
            ("tail", "has up to 50.6 % less tail latency", "C_p95_s", LARGE_TAIL, False),
        )
    ),
)

_COURSES: tuple[Claim, ...] = (
    *(
        claim(
            f"spike-{setup}",
            "11a",
            f"When A spikes (about 60 min), MOS++ has up to 2.1 times its throughput (over {name}; "
            "the paper does not say over which)",
            over(_course(MOS_PP), _course(setup), "A_qps_spike", _NO_COURSE),
            value=SPIKE,
            baseline=name,
        )
        for setup, name in _OTHERS.items()
    ),
    claim(
        "stage-1",
        "11c",
        "In stage 1 MOS++ slightly outperforms Static, by 12 % (C's bandwidth)",
        over(_course(MOS_PP), _course(STATIC), "C_mb_s_stage1", _NO_COURSE),
        value=STAGE_1,
        baseline="Static",
    ),
    claim(
        "stage-3",
        "11a",
        "In stage 3 Default cannot sustain A's spike (MOS++ over it)",
        over(_course(MOS_PP), _course(DEFAULT), "A_qps_stage3", _NO_COURSE),
        baseline="Default",
    ),
    *(
        claim(
            f"sla-{letter.lower()}-{setup}",
            "11b" if letter == "A" else "11c",
            f"MOS++ holds the SLA of {letter} for more of the time than {name}",
            more(_course(MOS_PP), _course(setup), f"{letter}_sla_met", _NO_COURSE),
            unit="share of the time",
            no_effect=0.0,
            baseline=name,
        )
        for letter in ("A", "C")
        for setup, name in _OTHERS.items()
    ),
    claim(
        "network-most",
        "12",
        "In stage 1 C comes to hold up to 95 % of the network",
        network_most,
        value=NETWORK_MOST,
        unit="share of the network",
        no_effect=0.70,
    ),
    claim(
        "network-freed",
        "12",
        "When stage 2 begins, 58 % of the network are taken back and marked as free",
        network_freed,
        value=NETWORK_FREED,
        unit="share of the network",
        no_effect=0.0,
    ),
    claim(
        "network-given",
        "12",
        "and 21 % are given to A",
        network_given,
        value=NETWORK_GIVEN,
        unit="share of the network",
        no_effect=0.0,
    ),
    claim(
        "hdd-share",
        "12",
        "Half of the HDDs go to C at 80 min (R7)",
        hardware_share,
        value=HDD_SHARE,
        unit="share of the HDDs",
        no_effect=0.0,
    ),
    claim(
        "latency-whole",
        "11b",
        "A's mean latency over the whole course is below Static's",
        over(_course(MOS_PP), _course(STATIC), "A_mean_s", _NO_COURSE),
        baseline="Static",
        larger=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_LOADS, *_COURSES)
