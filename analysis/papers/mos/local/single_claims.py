"""Claims of section 3: effects of object sizes, cores, networks and disks on a single workload
(figures 2 to 5, rules R2 to R7)."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun
from analysis.core.columns import average, paired
from analysis.papers.mos.local.measured import Rows, between, claim, ends, measured, of, over
from analysis.papers.mos.local.runs import cells, values_of

SAME = 0.15
"""Maximum relative difference of two values that are "the same"."""
SECOND_PROXY = 3700 / 2200
"""Figure 3(a): QPS with a second proxy over QPS with one."""
PROXY_BUSY, LARGE_BUSY = 0.85, 0.25
"""CPU utilization of the proxy when QPS no longer grow, and when the link is full."""
NETWORK = {("A", "hdd"): 1.12, ("A", "ssd"): 1.70, ("C", "ssd"): 10.0}
"""Figure 4: effect of a ten times faster network, by workload and disks."""

_NO_SIZES = "fewer than two object sizes were run"
_NO_PROXY = "no block has these proxies"
_NO_STORAGE = "fewer than two storage servers' shares were run"
_NO_NETWORK = "no block has both networks with these disks"
_NO_DISKS = "no block has both sets of disks at this network"


def _largest_latency(evidence: Evidence) -> Measured | NotRun:
    """Compute the mean latency of the largest objects over that of the smallest."""
    rows = cells(evidence.table, "sizes")
    there = values_of(rows, "object_kb")
    if len(there) < 2:
        return NotRun(_NO_SIZES)
    small, large = (rows[rows["object_kb"] == size] for size in (there[0], there[-1]))
    note = f"{there[-1]:g} KB over {there[0]:g} KB"
    return measured(paired(large, small, "A_mean_s"), rows, _NO_SIZES, note)


_SIZES: tuple[Claim, ...] = (
    claim(
        "size-qps",
        "2",
        "Larger objects: far fewer QPS (largest over smallest)",
        ends(of("sizes"), "object_kb", "qps", _NO_SIZES),
        baseline="smallest objects",
        larger=False,
    ),
    claim(
        "size-bandwidth",
        "2",
        "Larger objects: more bandwidth (largest over smallest)",
        ends(of("sizes"), "object_kb", "mb_s", _NO_SIZES),
        baseline="smallest objects",
    ),
    claim(
        "size-saturates",
        "2",
        "Beyond a threshold the network is full: bandwidth of the largest objects over the next "
        "(0.98 over 0.97 GB/s)",
        between(of("sizes"), "object_kb", "mb_s", _NO_SIZES),
        value=0.98 / 0.97,
        kind="within",
        tolerance=SAME,
        baseline="next smaller objects",
    ),
    claim(
        "size-latency",
        "2",
        "Large objects take more than 100 times as long as small ones",
        _largest_latency,
        value=100.0,
        kind="at_least",
        baseline="smallest objects",
    ),
)


def _scaling(evidence: Evidence) -> Measured | NotRun:
    """Compute QPS per core, most cores of the proxy over fewest; 1 is linear."""
    rows = cells(evidence.table, "proxy", workload="A", proxies=1, proxy_workers=1)
    there = values_of(rows, "proxy_cores")
    if len(there) < 2:
        return NotRun(_NO_PROXY)
    rows = rows.assign(each=rows["qps"] / rows["proxy_cores"])
    low, high = (rows[rows["proxy_cores"] == value] for value in (there[0], there[-1]))
    note = f"QPS a core with {there[-1]:g} over {there[0]:g} cores"
    return measured(paired(high, low, "each"), rows, _NO_PROXY, note)


def _more(letter: str, column: str, *, proxies: int, workers: int) -> Compute:
    """Compute the ratio of a second proxy or more worker processes to one proxy, at most cores."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, "proxy", workload=letter)
        if rows.empty:
            return NotRun(_NO_PROXY)
        rows = rows[rows["proxy_cores"] == rows["proxy_cores"].max()]
        one = rows[(rows["proxies"] == 1) & (rows["proxy_workers"] == 1)]
        other = rows[(rows["proxies"] == proxies) & (rows["proxy_workers"] == workers)]
        return measured(paired(other, one, column), rows, _NO_PROXY)

    return compute


def _busy(letter: str, which: Callable[[list[float]], float]) -> Compute:
    """Compute the used share of a proxy's cores, at a chosen number of cores."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, "proxy", workload=letter, proxies=1, proxy_workers=1)
        there = values_of(rows, "proxy_cores")
        if not there:
            return NotRun(_NO_PROXY)
        at = which(there)
        rows = rows[rows["proxy_cores"] == at]
        return measured(average(rows, "proxy_busy"), rows, _NO_PROXY, f"with {at:g} cores")

    return compute


def _early(letter: str, experiment: str, parameter: str, column: str) -> Compute:
    """Compute a number at the second-smallest share over the largest: 1 if the limit is reached
    early."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, experiment, workload=letter)
        if experiment == "proxy":
            rows = rows[(rows["proxies"] == 1) & (rows["proxy_workers"] == 1)]
        there = values_of(rows, parameter)
        if len(there) < 3:
            return NotRun(f"fewer than three values of {parameter} were run")
        early, most = (rows[rows[parameter] == value] for value in (there[1], there[-1]))
        note = f"{parameter} {there[1]:g} over {there[-1]:g}"
        return measured(paired(early, most, column), rows, "no block has both", note)

    return compute


_PROXY: tuple[Claim, ...] = (
    claim(
        "proxy-linear",
        "3a",
        "QPS of small objects grow linearly with the proxy's cores until they are used up (QPS a "
        "core, read as within 25 %)",
        _scaling,
        value=1.0,
        kind="within",
        tolerance=0.25,
        baseline="fewest cores",
    ),
    claim(
        "proxy-cpu",
        "3a",
        "Then the proxy's CPU is the bottleneck: utilization close to 85 %",
        _busy("A", max),
        value=PROXY_BUSY,
        unit="share",
        no_effect=LARGE_BUSY,  # no effect at this value
        kind="at_least",
        tolerance=0.1,
    ),
    claim(
        "proxy-workers",
        "3a",
        "More worker processes without more cores bring nothing (64 over 32; read as within 15 %)",
        _more("A", "qps", proxies=1, workers=2),
        value=1.0,
        kind="within",
        tolerance=SAME,
        baseline="one worker process",
    ),
    claim(
        "proxy-second",
        "3a",
        "A second proxy nearly doubles QPS (3,700 over 2,200)",
        _more("A", "qps", proxies=2, workers=1),
        value=SECOND_PROXY,
        baseline="one proxy",
    ),
    claim(
        "proxy-network",
        "3b",
        "Large objects fill the link with few cores (an eighth of the workers; here the second "
        "smallest share, read as within 15 % of the largest)",
        _early("C", "proxy", "proxy_cores", "mb_s"),
        value=1.0,
        kind="within",
        tolerance=SAME,
        baseline="most cores",
    ),
    claim(
        "proxy-network-cpu",
        "3b",
        "and with modest CPU utilization (about 25 % of all cores, not the 85 % of small objects)",
        _busy("C", max),
        value=LARGE_BUSY,
        unit="share",
        no_effect=PROXY_BUSY,
        larger=False,
    ),
    claim(
        "proxy-network-second",
        "3b",
        "A second proxy and its link double the bandwidth",
        _more("C", "mb_s", proxies=2, workers=1),
        value=2.0,
        baseline="one proxy",
    ),
)


def _rule_4(evidence: Evidence) -> Measured | NotRun:
    """Compute R4: storage servers with as many cores in total as the proxy, over the most cores."""
    rows = cells(evidence.table, "storage", workload="A")
    there = values_of(rows, "storage_cores")
    if len(there) < 2:
        return NotRun(_NO_STORAGE)
    wanted = float(rows["proxy_cores"].iloc[0]) / 2
    equal = min(there[:-1], key=lambda value: abs(value - wanted))
    one, most = (rows[rows["storage_cores"] == value] for value in (equal, there[-1]))
    note = f"2 x {equal:g} over 2 x {there[-1]:g} cores behind {2 * wanted:g} of the proxy"
    return measured(paired(one, most, "qps"), rows, _NO_STORAGE, note)


_STORAGE: tuple[Claim, ...] = (
    claim(
        "storage-small",
        "3c",
        "QPS of small objects grow with the storage servers' cores",
        ends(of("storage", workload="A"), "storage_cores", "qps", _NO_STORAGE),
        baseline="fewest cores",
    ),
    claim(
        "storage-equal",
        "3c",
        "With as many cores together as the proxy (R4) QPS are at their peak (read as within 15 % "
        "of those with the most)",
        _rule_4,
        value=1.0,
        kind="within",
        tolerance=SAME,
        baseline="most cores",
    ),
    claim(
        "storage-large",
        "3c",
        "Large objects reach the network's limit with few storage cores (second smallest share, "
        "read as within 15 % of the largest)",
        _early("C", "storage", "storage_cores", "mb_s"),
        value=1.0,
        kind="within",
        tolerance=SAME,
        baseline="most cores",
    ),
)


def _disks(kind: str) -> dict[str, int]:
    return {"ssds": 3, "hdds": 0} if kind == "ssd" else {"ssds": 0, "hdds": 3}


def _disks_matter(evidence: Evidence) -> Measured | NotRun:
    rows = cells(evidence.table, "network", workload="A")
    there = values_of(rows, "network_mbit")
    if len(there) < 2:
        return NotRun(_NO_NETWORK)
    fast = rows[rows["network_mbit"] == there[-1]].set_index("seed")
    slow = rows[rows["network_mbit"] == there[0]].set_index("seed")
    gains = []
    for kind in ("ssds", "hdds"):
        its_fast, its_slow = (one[one[kind] > 0]["qps"] for one in (fast, slow))
        gains.append((its_fast / its_slow).dropna().rename("gain").reset_index())
    return measured(paired(gains[0], gains[1], "gain"), rows, _NO_NETWORK)


_NETWORK: tuple[Claim, ...] = (
    *(
        claim(
            f"network-{letter.lower()}-{kind}",
            "4a" if letter == "A" else "4b",
            f"A ten times faster network: workload {letter} on {kind.upper()}s gains "
            f"{100 * (value - 1):.0f} %" + (" (by as much as)" if letter == "C" else ""),
            ends(
                of("network", workload=letter, **_disks(kind)),
                "network_mbit",
                "qps" if letter == "A" else "mb_s",
                _NO_NETWORK,
            ),
            value=value,
            baseline="slow network",
        )
        for (letter, kind), value in NETWORK.items()
    ),
    claim(
        "network-disks",
        "4a",
        "Small objects gain more from a faster network on SSDs than on HDDs: they are more "
        "sensitive to disks (R6)",
        _disks_matter,
        value=NETWORK["A", "ssd"] / NETWORK["A", "hdd"],
        size=False,
        baseline="HDDs",
    ),
)


def _mix(ssds: int, which: Callable[[list[float]], float]) -> Rows:
    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = cells(table, "disks", workload="C")
        there = values_of(found, "network_mbit")
        if not there:
            return found
        return found[(found["ssds"] == ssds) & (found["network_mbit"] == which(there))]

    return rows


def _high(there: list[float]) -> float:
    """Return 7.5 of 10 Gbit/s, or the highest value with runs."""
    return there[-2] if len(there) > 3 else there[-1]


def _mixed(top: int, bottom: int, which: Callable[[list[float]], float]) -> Compute:
    return over(_mix(top, which), _mix(bottom, which), "mb_s", _NO_DISKS)


def _worst_mix(evidence: Evidence) -> Measured | NotRun:
    """Compute three HDDs over each other choice, and take the largest ratio."""
    base = _mix(0, _high)(evidence.table)
    choices = (1, 2, 3)
    found = {}
    for ssds in choices:
        other = _mix(ssds, _high)(evidence.table)
        one = paired(base, other, "mb_s", comparisons=len(choices))
        if one is None:
            return NotRun(_NO_DISKS)
        found[ssds] = one
    at = max(found, key=lambda ssds: found[ssds].value)
    listed = ", ".join(f"{ssds} SSD {one.value:.3g}" for ssds, one in found.items())
    return measured(found[at], base, _NO_DISKS, f"over {at} SSD; {listed}")


_MIXES: tuple[Claim, ...] = (
    claim(
        "disks-slow-network",
        "5",
        "At the slowest network (2.5 Gbit/s) three HDDs are as good as three SSDs (read as within "
        "15 %)",
        _mixed(0, 3, min),
        value=1.0,
        kind="within",
        tolerance=SAME,
        baseline="3 SSD",
    ),
    claim(
        "disks-worst",
        "5",
        "At 7.5 Gbit/s three HDDs are the worst choice (over the choice that is nearest to it)",
        _worst_mix,
        baseline="each other choice",
        larger=False,
    ),
    claim(
        "disks-mixed",
        "5",
        "At 7.5 Gbit/s two SSDs and an HDD are nearly as good as three SSDs (R7; read as within "
        "15 %)",
        _mixed(2, 3, _high),
        value=1.0,
        kind="within",
        tolerance=SAME,
        baseline="3 SSD",
    ),
)

CLAIMS: tuple[Claim, ...] = (*_SIZES, *_PROXY, *_STORAGE, *_NETWORK, *_MIXES)
