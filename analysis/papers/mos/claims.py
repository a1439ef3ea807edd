"""Claims of the MOS paper about real microstores: section 1 (figure 1), section 3 (figures 2 to 5,
rules R2 to R7) and section 8.1 (figures 8 to 12). Claims about fifty machines are in `simulated`.

An improvement by 700 % is read as 8 times. Section 8.1 and the summaries state the same numbers in
two ways. Section 8.1: overall throughput improves by 10.4 to 89.6 % and overall bandwidth by 7.6 to
79.8 %, compared to both Default and Static. Sections 1 and 10: performance improves by up to 89.6 %
compared to Default and by up to 79.8 % compared to Static. Both are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from analysis.core import style
from analysis.core.claims import (
    CHANGE,
    Claim,
    Compute,
    Evidence,
    Measured,
    NotRun,
    by_column,
    declared,
    unreachable,
)
from analysis.core.evidence import (
    Choice,
    Mean,
    Pair,
    Rows,
    assigned,
    compared,
    ends,
    extreme,
    extreme_over,
    mean_of,
    values_of,
    where,
)
from analysis.core.load import LoadedRun, last_runs, origin
from analysis.core.panels import GREY, Look
from analysis.core.stats import amount, change, fraction
from schemas.cells.mos import MOS as MOS_CELLS
from schemas.claim import SHARE

# ---- Runs, paired by block: all setups of a block have the same objects and draws ----

REPORT_FILE = "mos.json"

DEFAULT, STATIC, MOS_PP, MOS = "default", "static", "mos-pp", "mos"
FAVORS_SMALL, FAVORS_LARGE = "favors-small", "favors-large"
LABELS = {
    DEFAULT: "Default",
    FAVORS_SMALL: "FavorsSmall",
    FAVORS_LARGE: "FavorsLarge",
    STATIC: "Static",
    MOS: "MOS",
    "mos-at-once": "MOS, at once",
    MOS_PP: "MOS++",
    "mos-pp-resource": "MOS++ by resource",
    "mos-pp-learning": "MOS++ that learns",
}
"""Setups with their names in the paper, in the paper's order."""

SMALL, LARGE = "small", "large"
"""Tenants, and their microstores."""
Report = Mapping[str, Any]
"""A run's `REPORT_FILE`. With a changing load it has ``held``: a line for every decision of the
controller, with ``t_s`` from the start of the load and the resources of each microstore; ``pool``;
``course``: start times of the stages, seconds."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: origin, spec, ``loaded``, parameters and every number of the summary;
    ``qps`` and ``mb_s`` also for small and large objects (``small_qps``, ``large_mb_s``). If
    several campaigns ran a cell on one testbed, the last run counts. ``seed`` identifies a block on
    one testbed: equal draws on two testbeds are not paired."""
    rows = []
    for index, loaded in enumerate(runs):
        run, numbers = loaded.run, loaded.summary.extra
        spec = str(run.provenance.calibration.get("spec", ""))
        row = origin(index, run) | {"spec": spec, "loaded": loaded}
        rows.append(row | MOS_CELLS.row(run.parameters) | numbers | _sums(numbers))
    found = last_runs(rows, (*MOS_CELLS.fields, "spec"), more=("loaded",))
    found["seed"] = found["seed"].astype(str) + " on " + found["spec"]
    return found


def _sums(numbers: Mapping[str, float]) -> dict[str, float]:
    sums = {}
    for tenant, letters, measure in ((SMALL, "AB", "qps"), (LARGE, "CD", "mb_s")):
        names = [f"{letter}_{measure}" for letter in letters]
        values = [numbers[name] for name in names if name in numbers]
        if values:
            sums[f"{tenant}_{measure}"] = sum(values)
    return sums


def cells(rows: pd.DataFrame, experiment: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of an experiment with these values of parameters."""
    return where(rows, experiment=experiment, **setting)


def of(experiment: str, **setting: Any) -> Rows:
    """Select the runs of an experiment; see `cells`."""
    return lambda rows: cells(rows, experiment, **setting)


def at_value(
    rows: Rows, parameter: str, choose: Callable[[list[Any]], Any], needed: int = 1, **setting: Any
) -> Rows:
    """Select the rows with a chosen value of a parameter, if it has `needed` values or more, and of
    these rows those with `setting`."""

    def chosen(table: pd.DataFrame) -> pd.DataFrame:
        found = rows(table)
        there = values_of(found, parameter)
        if len(there) < needed:
            return found[:0]
        return where(found, **{parameter: choose(there)}, **setting)

    return chosen


def valued(rows: Rows, value: Callable[[LoadedRun], float | None]) -> Rows:
    """Select rows, with the added column ``value``, computed from each run."""
    return assigned(rows, value=lambda found: found["loaded"].map(value).astype(float))


def report(loaded: LoadedRun) -> Report:
    """Return a run's report."""
    return loaded.report(REPORT_FILE)


def label(setup: str) -> str:
    """Return a setup's name in the paper."""
    return LABELS.get(setup, setup)


def look(setup: str) -> Look:
    """Return a setup's appearance, the same in every figure."""
    return Look(label(setup), style.COLOURS.get(setup, GREY))


def shown(rows: pd.DataFrame) -> list[str]:
    """Return the setups that have runs, in the paper's order."""
    there = set(rows["setup"])
    return [setup for setup in LABELS if setup in there]


def share(course: Report, t_s: float, store: str, name: str) -> float:
    """Return the share of a pool's resource that a microstore held at a time."""
    total = float(course["pool"][name])
    return float(held_at(course, t_s)[store][name]) / total if total else 0.0


def free(course: Report, t_s: float, name: str) -> float:
    """Return the share of a pool's resource that no microstore held at a time."""
    return 1.0 - sum(share(course, t_s, store, name) for store in held_at(course, t_s))


def held_at(course: Report, t_s: float) -> Mapping[str, Mapping[str, float]]:
    """Return the held resources: of the last decision that is not later, else of the first."""
    before = [line for line in course["held"] if line["t_s"] <= t_s]
    found: Mapping[str, Mapping[str, float]] = (before or course["held"][:1])[-1]["stores"]
    return found


# ---- Claims ----

claim = partial(declared, prefix="mos-local", paper="mos")
same = partial(claim, value=1.0, rule="within", tolerance=0.15)
"""A claim that two values are the same: they differ by at most 15 %."""
less = partial(claim, larger=False)
"""A claim that a value is less than that of the baseline, or than the value without an effect."""

# ---- Section 1, figure 1: separate proxies for small and large objects ----

PARTITION = {FAVORS_SMALL: 8.0, FAVORS_LARGE: 3.25}
"""Figure 1(a): small objects' QPS over Default's."""
DROP = (4.5, 6.0)
"""Figure 1(b): Default's bandwidth over FavorsSmall's: a drop by 350 % to 500 %."""

NO_SETUPS = "no block has both setups with four workloads"


def of_setups(treated: str, baseline: str, column: str) -> Pair:
    sides = of("setups", setup=treated), of("setups", setup=baseline)
    return Pair(*sides, column, NO_SETUPS, against=baseline)


def _latencies(treated: str, baseline: str, letters: str, which: Choice) -> Compute:
    """Compute the latency ratio of the workload with the weakest effect."""
    options = [(f"workload {x}", of_setups(treated, baseline, f"{x}_mean_s")) for x in letters]
    return extreme(options, which, complete=True)


_EXTENTS: tuple[tuple[str, str, str, Choice], ...] = (
    ("AB", "small", "lowest", "largest"),
    ("CD", "large", "highest", "least"),
)
"""Workloads, their objects, the extent of FavorsSmall's latency, and the weakest of its ratios."""

_SECTION_1: tuple[Claim, ...] = (
    *(
        claim(
            f"small-{setup}",
            "1",
            f"A proxy of their own with {words} gives small objects (A and B) "
            f"{100 * (PARTITION[setup] - 1):.0f} % more QPS",
            of_setups(setup, DEFAULT, "small_qps"),
            value=PARTITION[setup],
            family="mos-partition",
        )
        for setup, words in ((FAVORS_SMALL, "a fast link"), (FAVORS_LARGE, "many cores"))
    ),
    claim(
        "small-order",
        "1",
        "FavorsSmall gives small objects more QPS than FavorsLarge",
        of_setups(FAVORS_SMALL, FAVORS_LARGE, "small_qps"),
        value=PARTITION[FAVORS_SMALL] / PARTITION[FAVORS_LARGE],
        size=False,
    ),
    *(
        claim(
            f"large-favors-small-{letter.lower()}",
            "1",
            f"FavorsSmall costs workload {letter} its bandwidth: Default has 4.5 to 6 times as "
            "much (a drop by 350 % to 500 %)",
            of_setups(DEFAULT, FAVORS_SMALL, f"{letter}_mb_s"),
            value=sum(DROP) / 2,
            tolerance=(DROP[1] - DROP[0]) / (sum(DROP) - 2),
            family="mos-drop",
        )
        for letter in "CD"
    ),
    same(
        "large-favors-large",
        "1",
        "FavorsLarge leaves large objects (C and D) the bandwidth of Default (read as within 25 %)",
        of_setups(FAVORS_LARGE, DEFAULT, "large_mb_s"),
        tolerance=0.25,
    ),
    less(
        "latency-favors-large",
        "1",
        "FavorsLarge has a lower latency than Default for all workloads (the one that gains least)",
        _latencies(FAVORS_LARGE, DEFAULT, "ABCD", "largest"),
        baseline=DEFAULT,
    ),
    *(
        claim(
            f"latency-{letters[0].lower()}-{other}",
            "1",
            f"FavorsSmall has the {extent} latency of {kind} objects ({' and '.join(letters)}; "
            f"compared with {label(other)})",
            _latencies(FAVORS_SMALL, other, letters, which),
            baseline=other,
            larger=extent == "highest",
        )
        for letters, kind, extent, which in _EXTENTS
        for other in (DEFAULT, FAVORS_LARGE)
    ),
)

# ---- Section 3: one workload alone ----

SECOND_PROXY = 3700 / 2200
"""Figure 3(a): QPS with a second proxy over QPS with one."""
UTILIZATION = "utilization"
"""Unit of a used share of cores, which exceeds 1 if a quota is exceeded for a moment."""
HALF_THE_CORES = 0.2
"""Cores of each of two storage servers that have together as many as the proxy (figure 3c)."""
PROXY_BUSY, LARGE_BUSY = 0.85, 0.25
"""CPU utilization of the proxy when QPS no longer grow, and when the link is full."""
NETWORK = {("A", "hdd"): 1.12, ("A", "ssd"): 1.70, ("C", "ssd"): 10.0}
"""Figure 4: effect of a ten times faster network, by workload and disks."""

NO_SIZES = "fewer than two object sizes were run"
NO_PROXY = "no block has these proxies"
NO_STORAGE = "fewer than two storage servers' shares were run"
NO_NETWORK = "no block has both networks with these disks"
NO_DISKS = "no block has both sets of disks at this network"

_SIZES: tuple[Claim, ...] = (
    *by_column(
        claim,
        "size",
        "2",
        "Larger objects: {} (largest over smallest)",
        lambda column: ends(of("sizes"), "object_kb", column, NO_SIZES),
        ("qps", "far fewer QPS", "qps", False),
        ("bandwidth", "more bandwidth", "mb_s", True),
        baseline="smallest-objects",
    ),
    same(
        "size-saturates",
        "2",
        "Beyond a threshold the network is full: bandwidth of the largest objects over the next "
        "(0.98 over 0.97 GB/s)",
        ends(of("sizes"), "object_kb", "mb_s", NO_SIZES, before=True),
        value=0.98 / 0.97,
        baseline="next-smaller-objects",
    ),
    claim(
        "size-latency",
        "2",
        "Large objects take more than 100 times as long as small ones",
        ends(of("sizes"), "object_kb", "A_mean_s", NO_SIZES),
        value=100.0,
        rule="at_least",
        baseline="smallest-objects",
    ),
)


def _one_proxy(letter: str) -> Rows:
    """Select runs with one proxy of one process, with the added column ``each``: QPS per core."""
    one = of("proxy", workload=letter, proxies=1, proxy_workers=1)
    return assigned(one, each=lambda found: found["qps"] / found["proxy_cores"])


def with_most_cores(letter: str, **setting: int) -> Rows:
    """Select the runs with the most cores of each proxy that any run of the workload has."""
    return at_value(of("proxy", workload=letter), "proxy_cores", max, **setting)


def _second(letter: str, column: str, *, proxies: int = 1, workers: int = 1) -> Pair:
    """Compute the ratio of a second proxy, or of more worker processes, to one of each."""
    one = with_most_cores(letter, proxies=1, proxy_workers=1)
    other = with_most_cores(letter, proxies=proxies, proxy_workers=workers)
    return Pair(other, one, column, NO_PROXY)


def _busy(letter: str) -> Compute:
    """Compute the used share of a proxy's cores, at the most cores with runs of one proxy."""

    def note(found: pd.DataFrame) -> str:
        return f"with {found['proxy_cores'].iloc[0]:g} cores"

    rows = at_value(_one_proxy(letter), "proxy_cores", max)
    return mean_of(rows, "proxy_busy", NO_PROXY, of=amount, note=note)


def _nearly(
    rows: Rows, parameter: str, column: str, choose: Callable[[list[Any]], Any], needed: int
) -> Pair:
    """Compare a number at a chosen value of a parameter with that at its largest value: 1 if the
    limit is reached early. `needed`: see `at_value`."""

    def note(some: pd.DataFrame, most: pd.DataFrame) -> str:
        return f"{parameter} {some[parameter].iloc[0]:g} over {most[parameter].iloc[0]:g}"

    early, most = at_value(rows, parameter, choose, needed), at_value(rows, parameter, max)
    why = f"no block has {needed} values of {parameter}"
    return Pair(early, most, column, why, note=note)


def _early(rows: Rows, parameter: str) -> Pair:
    """Compare bandwidth at the second smallest value with that at the largest."""
    return _nearly(rows, parameter, "mb_s", lambda values: values[1], 3)


def _rule_4(values: list[Any]) -> Any:
    """Choose the cores with which two storage servers have the proxy's cores together (R4)."""
    return min(values[:-1], key=lambda value: abs(value - HALF_THE_CORES))


_PROXY: tuple[Claim, ...] = (
    same(
        "proxy-linear",
        "3a",
        "QPS of small objects grow linearly with the proxy's cores until they are used up (QPS a "
        "core, read as within 25 %)",
        ends(_one_proxy("A"), "proxy_cores", "each", NO_PROXY),
        tolerance=0.25,
        baseline="fewest-cores",
    ),
    claim(
        "proxy-cpu",
        "3a",
        "Then the proxy's CPU is the bottleneck: utilization close to 85 %",
        _busy("A"),
        value=PROXY_BUSY,
        unit=UTILIZATION,
        no_effect=LARGE_BUSY,  # no effect at this value
        rule="at_least",
        tolerance=0.1,
    ),
    same(
        "proxy-workers",
        "3a",
        "More worker processes without more cores bring nothing (64 over 32; read as within 15 %)",
        _second("A", "qps", workers=2),
        baseline="one-worker",
    ),
    claim(
        "proxy-second",
        "3a",
        "A second proxy nearly doubles QPS (3,700 over 2,200)",
        _second("A", "qps", proxies=2),
        value=SECOND_PROXY,
        baseline="one-proxy",
    ),
    same(
        "proxy-network",
        "3b",
        "Large objects fill the link with few cores (an eighth of the workers; here the second "
        "smallest share, read as within 15 % of the largest)",
        _early(_one_proxy("C"), "proxy_cores"),
        baseline="most-cores",
    ),
    less(
        "proxy-network-cpu",
        "3b",
        "Large objects fill the link with modest CPU utilization (about 25 % of all cores, not the "
        "85 % of small objects)",
        _busy("C"),
        value=LARGE_BUSY,
        unit=UTILIZATION,
        no_effect=PROXY_BUSY,
    ),
    claim(
        "proxy-network-second",
        "3b",
        "A second proxy and its link double the bandwidth",
        _second("C", "mb_s", proxies=2),
        value=2.0,
        baseline="one-proxy",
    ),
)

_STORAGE: tuple[Claim, ...] = (
    claim(
        "storage-small",
        "3c",
        "QPS of small objects grow with the storage servers' cores",
        ends(of("storage", workload="A"), "storage_cores", "qps", NO_STORAGE),
        baseline="fewest-cores",
    ),
    same(
        "storage-equal",
        "3c",
        "With as many cores together as the proxy (R4) QPS are at their peak (read as within 15 % "
        "of those with the most)",
        _nearly(of("storage", workload="A"), "storage_cores", "qps", _rule_4, 2),
        baseline="most-cores",
    ),
    same(
        "storage-large",
        "3c",
        "Large objects reach the network's limit with few storage cores (second smallest share, "
        "read as within 15 % of the largest)",
        _early(of("storage", workload="C"), "storage_cores"),
        baseline="most-cores",
    ),
)


def disks_of(kind: str) -> dict[str, int]:
    return {"ssds": 3, "hdds": 0} if kind == "ssd" else {"ssds": 0, "hdds": 3}


def small_on(kind: str, choose: Callable[[list[float]], float]) -> Rows:
    """Select workload A's runs on a kind of disk, at a chosen one of several networks."""
    return at_value(of("network", workload="A"), "network_mbit", choose, 2, **disks_of(kind))


def _gain(kind: str) -> Rows:
    """Select workload A's runs with the fast network, compared with those with the slow one."""
    return compared(small_on(kind, max), small_on(kind, min), "qps")


_NETWORKS: tuple[Claim, ...] = (
    *(
        claim(
            f"network-{letter.lower()}-{kind}",
            "4a" if letter == "A" else "4b",
            f"A ten times faster network: workload {letter} on {kind.upper()}s gains "
            f"{100 * (value - 1):.0f} %" + (" (by as much as)" if letter == "C" else ""),
            ends(
                of("network", workload=letter, **disks_of(kind)),
                "network_mbit",
                "qps" if letter == "A" else "mb_s",
                NO_NETWORK,
            ),
            value=value,
            baseline="slow-network",
        )
        for (letter, kind), value in NETWORK.items()
    ),
    claim(
        "network-disks",
        "4a",
        "Small objects gain more from a faster network on SSDs than on HDDs: they are more "
        "sensitive to disks (R6)",
        Pair(_gain("ssd"), _gain("hdd"), "ratio", NO_NETWORK),
        value=NETWORK["A", "ssd"] / NETWORK["A", "hdd"],
        size=False,
        baseline="hdd",
    ),
)


def on_disks(ssds: int, choose: Callable[[list[float]], float]) -> Rows:
    """Select workload C's runs on a set of disks, at a chosen network."""
    return at_value(of("disks", workload="C"), "network_mbit", choose, ssds=ssds)


def high_network(there: list[float]) -> float:
    """Return 7.5 of 10 Gbit/s, or the highest value with runs."""
    return there[-2] if len(there) > 3 else there[-1]


def on_mixes(top: int, bottom: int, which: Callable[[list[float]], float]) -> Pair:
    return Pair(on_disks(top, which), on_disks(bottom, which), "mb_s", NO_DISKS)


_MIXES: tuple[Claim, ...] = (
    same(
        "disks-slow-network",
        "5",
        "At the slowest network (2.5 Gbit/s) three HDDs are as good as three SSDs (read as within "
        "15 %)",
        on_mixes(0, 3, min),
        family="mos-slow-network",
        baseline="3-ssd",
    ),
    less(
        "disks-worst",
        "5",
        "At 7.5 Gbit/s three HDDs are the worst choice (over the choice that is nearest to it)",
        extreme(
            [
                (f"three HDDs over {ssds} SSD", on_mixes(0, ssds, high_network))
                for ssds in (1, 2, 3)
            ],
            "largest",
            complete=True,
        ),
        baseline="other-disks",
    ),
    same(
        "disks-mixed",
        "5",
        "At 7.5 Gbit/s two SSDs and an HDD are nearly as good as three SSDs (R7; read as within "
        "15 %)",
        on_mixes(2, 3, high_network),
        baseline="3-ssd",
    ),
)

# ---- Section 8.1, figures 8 to 10: MOS++ against Default and Static at each load ----

THROUGHPUT, BANDWIDTH = 1.896, 1.798
"""Figure 8: largest ratios of MOS++ over others."""
LEAST_THROUGHPUT, LEAST_BANDWIDTH = 1.104, 1.076
TAIL, TAIL_THROUGHPUT = 1 - 0.702, 1.117
"""Figure 9: p95 and QPS of A at peak load, MOS++ over Static."""
LARGE_BANDWIDTH, LARGE_TAIL = 1.79, 1 - 0.506
"""Figure 10: C."""
STATIC_OVER_DEFAULT = 2.0
PEAK_POINTS = 2
"""The right-most two data points."""

NO_LOAD = "no block has both setups with the same numbers of workers"
OTHERS = (DEFAULT, STATIC)


def at_loads(treated: str, baseline: str, column: str) -> Pair:
    sides = of("load", setup=treated), of("load", setup=baseline)
    return Pair(*sides, column, NO_LOAD, against=baseline)


def up_to(
    treated: str, baseline: str, column: str, which: Choice = "largest", last: int | None = None
) -> Compute:
    """Compute "up to" over the loads, each named by its workers of A."""
    return extreme_over(at_loads(treated, baseline, column), "small_workers", which, last=last)


def over_both(column: str, which: Choice) -> Compute:
    """Compute the extreme ratio of MOS++ over Default and over Static at every load; a missing load
    leaves the claim without support."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        loads = values_of(cells(evidence.table, "load", setup=MOS_PP), "small_workers")
        options = [
            (
                name := f"{label(other)} with {at:g} workers of A",
                Pair(
                    of("load", setup=MOS_PP, small_workers=at),
                    of("load", setup=other, small_workers=at),
                    column,
                    f"no block has MOS++ and {name}",
                ),
            )
            for other in OTHERS
            for at in loads
        ]
        return extreme(options, which, complete=True)(evidence) if options else NotRun(NO_LOAD)

    return compute


def fewest(rows: pd.DataFrame) -> list[Any]:
    return values_of(rows, "small_workers")[:1]


_LOADS: tuple[Claim, ...] = (
    *(
        claim(
            f"{name}-{end}",
            "8",
            f"MOS++ improves overall {name} by {words}, compared to both Default and Static "
            "(section 8.1's reading)",
            over_both(column, "largest" if end == "most" else "least"),
            value=value,
            family="mos-both",
            baseline="default+static",
        )
        for name, column, most, least in (
            ("throughput", "qps", THROUGHPUT, LEAST_THROUGHPUT),
            ("bandwidth", "mb_s", BANDWIDTH, LEAST_BANDWIDTH),
        )
        for end, words, value in (
            ("most", f"up to {100 * (most - 1):.1f} %", most),
            ("least", f"{100 * (least - 1):.1f} % and more", least),
        )
    ),
    *(
        claim(
            f"{name}-{other}",
            "8",
            f"MOS++ improves performance by up to {100 * (value - 1):.1f} % compared to "
            f"{label(other)} (sections 1 and 10's reading; here: overall {name})",
            up_to(MOS_PP, other, column),
            value=value,
            family="mos-up-to",
        )
        for other, value in ((DEFAULT, THROUGHPUT), (STATIC, BANDWIDTH))
        for name, column in (("throughput", "qps"), ("bandwidth", "mb_s"))
    ),
    claim(
        "default-large",
        "8",
        "Where C dominates (far left), Default has more bandwidth than Static",
        extreme_over(at_loads(DEFAULT, STATIC, "mb_s"), "small_workers", "least", order=fewest),
    ),
    claim(
        "static-small",
        "8",
        "As A dominates, Static outperforms Default by as much as 2 times",
        up_to(STATIC, DEFAULT, "qps"),
        value=STATIC_OVER_DEFAULT,
    ),
    *(
        claim(
            f"tail-{name}",
            "9",
            f"At peak loads of A, MOS++ has up to {words} than Static",
            up_to(MOS_PP, STATIC, column, "largest" if larger else "least", PEAK_POINTS),
            value=value,
            family="mos-peak",
            larger=larger,
        )
        for name, words, column, value, larger in (
            ("static", "70.2 % less 95th percentile latency", "A_p95_s", TAIL, False),
            ("throughput", "11.7 % more throughput", "A_qps", TAIL_THROUGHPUT, True),
        )
    ),
    *(
        less(
            name,
            "9",
            f"For A, Default performs the worst (p95; {label(setup)} over it, at the load at which "
            "it gains least)",
            up_to(setup, DEFAULT, "A_p95_s"),
        )
        for name, setup in (("tail-default", MOS_PP), ("tail-default-static", STATIC))
    ),
    *(
        claim(
            f"large-{measure}-{other}",
            "10",
            f"For C, MOS++ {words} ({why})",
            extreme_over(
                at_loads(MOS_PP, other, column), "large_workers", "largest" if larger else "least"
            ),
            value=value,
            larger=larger,
        )
        for other, why in (
            (DEFAULT, "the baseline that the sentence names"),
            (STATIC, "the one that its reason names: Static's network is too small"),
        )
        for measure, words, column, value, larger in (
            ("bandwidth", "has up to 79 % more bandwidth", "C_mb_s", LARGE_BANDWIDTH, True),
            ("tail", "has up to 50.6 % less tail latency", "C_p95_s", LARGE_TAIL, False),
        )
    ),
)

# ---- Section 8.1, figures 11 and 12: MOS++ under a load that changes ----

SPIKE, STAGE_1 = 2.1, 1.12
"""Figure 11: A at the spike, C in stage 1."""
NETWORK_FREED, NETWORK_GIVEN, NETWORK_MOST = 0.58, 0.21, 0.95
"""Figure 12, shares of the network."""

NO_COURSE = "no block has both setups with a load that changes"
NO_HELD = "no run of MOS++ with a load that changes reports held resources"


def over_course(treated: str, baseline: str, column: str, **more: Any) -> Pair:
    sides = of("adaptation", setup=treated), of("adaptation", setup=baseline)
    return Pair(*sides, column, NO_COURSE, against=baseline, **more)


def reported(setup: str, value: Callable[[Report], float | None]) -> Rows:
    """Select a setup's runs with a load that changes, with the added column ``value``, from their
    reports."""
    return valued(of("adaptation", setup=setup), lambda loaded: value(report(loaded)))


def while_held(
    value: Callable[[Report], float | None], *, of: Mean = fraction, note: str | None = None
) -> Compute:
    """Compute the mean of a value over the reports of MOS++'s runs with held resources."""
    rows = reported(MOS_PP, lambda one: value(one) if one.get("held") else None)
    return mean_of(rows, "value", NO_HELD, of=of, note=note)


def network_of_stage_1(course: Report) -> list[tuple[float, float]]:
    """Return the start of stage 1 and its decisions: time, and C's share of the network."""
    begins, ends = course["course"]["stages"][:2]
    times = [begins, *(line["t_s"] for line in course["held"] if begins < line["t_s"] < ends)]
    return [(at, share(course, at, LARGE, "network")) for at in times]


def _network_most(course: Report) -> float:
    """Return C's largest share of the network in stage 1."""
    return max(part for _, part in network_of_stage_1(course))


def spike(course: Report) -> tuple[float, float]:
    """Return the start of stage 2 and the end of A's spike."""
    return float(course["course"]["stages"][1]), float(course["course"]["spike_ends"])


def _network_freed(course: Report) -> float:
    """Return the largest free share after the start of stage 2, minus the free share before."""
    begins, ends = spike(course)
    times = [line["t_s"] for line in course["held"] if begins <= line["t_s"] <= ends] or [ends]
    most = max(free(course, t_s, "network") for t_s in times)
    return most - free(course, begins - 1e-6, "network")


def share_change(store: str, name: str, begins: str, last: str, note: str | None = None) -> Compute:
    """Compute the change of a microstore's share of a resource between two times: ``begin``, ``1``
    and ``2``, the ends of these stages, or ``spike``, the end of A's spike."""

    def change_of(course: Report) -> float:
        stages = course["course"]["stages"]
        times = {"begin": 0.0, "1": stages[1] - 1e-6, "spike": spike(course)[1]}
        times["2"] = stages[2] - 1e-6
        return share(course, times[last], store, name) - share(course, times[begins], store, name)

    return while_held(change_of, of=change, note=note)


_COURSES: tuple[Claim, ...] = (
    *(
        claim(
            f"spike-{other}",
            "11a",
            "When A spikes (about 60 min), MOS++ has up to 2.1 times its throughput (over "
            f"{label(other)}; the paper does not say over which)",
            over_course(MOS_PP, other, "A_qps_spike"),
            value=SPIKE,
        )
        for other in OTHERS
    ),
    claim(
        "stage-1",
        "11c",
        "In stage 1 MOS++ slightly outperforms Static, by 12 % (C's bandwidth)",
        over_course(MOS_PP, STATIC, "C_mb_s_stage1"),
        value=STAGE_1,
    ),
    claim(
        "stage-3",
        "11a",
        "In stage 3 Default cannot sustain A's spike (MOS++ over it)",
        over_course(MOS_PP, DEFAULT, "A_qps_stage3"),
    ),
    *(
        claim(
            f"sla-{letter.lower()}-{other}",
            figure,
            f"MOS++ holds the SLA of {letter} for more of the time than {label(other)}",
            # An SLA may never be held: then there is no ratio.
            over_course(MOS_PP, other, f"{letter}_sla_met", by="change"),
            unit=CHANGE,
        )
        for letter, figure in (("A", "11b"), ("C", "11c"))
        for other in OTHERS
    ),
    claim(
        "network-most",
        "12",
        "In stage 1 C reaches up to 95 % of the network",
        while_held(_network_most, note="largest share in stage 1"),
        value=NETWORK_MOST,
        unit=SHARE,
        no_effect=0.70,
    ),
    claim(
        "network-freed",
        "12",
        "When stage 2 begins, 58 % of the network are taken back and marked as free",
        while_held(
            _network_freed,
            of=change,
            note="largest free share until the spike ends, less that before",
        ),
        value=NETWORK_FREED,
        unit=CHANGE,
    ),
    claim(
        "network-given",
        "12",
        "When stage 2 begins, 21 % of the network are given to A",
        share_change(SMALL, "network", "1", "spike", "by the end of the spike"),
        value=NETWORK_GIVEN,
        unit=CHANGE,
    ),
    less(
        "latency-whole",
        "11b",
        "A's mean latency over the whole course is below Static's",
        over_course(MOS_PP, STATIC, "A_mean_s"),
    ),
    unreachable(
        "hdd-share",
        "12",
        "Half of the HDDs go to C at 80 min (R7)",
        "all microstores of a testbed share the same disks, so that its pool has no HDDs to give",
        value=0.50,
        unit=SHARE,
        no_effect=1.0,
        rule="within",
        prefix="mos-local",
        paper="mos",
    ),
)

CLAIMS: tuple[Claim, ...] = (
    *(*_SECTION_1, *_SIZES, *_PROXY, *_STORAGE, *_NETWORKS, *_MIXES),
    *(*_LOADS, *_COURSES),
)
