"""Claims of the paper about its running system (sections 2.2 and 5.2), and claims beyond.

The paper ran on Windows Azure and moved blocks of 32 MB between its own storage nodes. Here
placement groups of a Ceph are moved, with a size that fits a small machine. Settling times
therefore depend on the amount of data in a group. Only their ratios and directions are compared
with the paper; the paper's seconds are shown next to them.
"""

from __future__ import annotations

import math
from functools import partial

import pandas as pd

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun, declared
from analysis.core.stats import Estimate, mean
from analysis.papers.ursa.live_runs import CONTROLLED, RANDOM, pairs, quotient, rebalancing
from schemas.settling import HOLD_S, STABLE_S

_BOUND = "some runs of the baseline never became stable: they count with all that was seen of them"


def _setting(evidence: Evidence, network: str, osds: int) -> pd.DataFrame:
    rows = rebalancing(evidence.table, network=network)
    return rows[rows["osds"] == osds]


def _measured(evidence: Evidence, estimate: Estimate, note: str | None = None) -> Measured:
    rows = evidence.table
    grounds = "+".join(sorted({str(ground) for ground in rows["ground"]}))
    return Measured(estimate, grounds, float(rows["time_scale"].iloc[0]), note)


def _slower(baseline: str, network: str, osds: int) -> Compute:
    """Compute the ratio of the baseline's settling time to ursa's."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = _setting(evidence, network, osds)
        found = quotient(_positive(rows), baseline, "ursa", "censored_s")
        if found is None:
            return NotRun(f"no block has ursa and {baseline}, {network}, with {osds} OSDs")
        never = rows[rows["controller"] == baseline]["settled_s"].isna().any()
        return _measured(evidence, found, _BOUND if never else None)

    return compute


def _positive(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with settling times of at least a second, the width of a window: a store that is
    stable when the controller is called has settled in no time."""
    return rows.assign(censored_s=rows["censored_s"].astype(float).clip(lower=1.0))


def _seconds_earlier(network: str, osds: int) -> Compute:
    def compute(evidence: Evidence) -> Measured | NotRun:
        found = pairs(_setting(evidence, network, osds), "htoc", "ursa", "censored_s")
        if found.empty:
            return NotRun(f"no block has ursa and HtoC, {network}, with {osds} OSDs")
        gaps = (found["treated"] - found["baseline"]).tolist()
        return _measured(evidence, mean(gaps), "the data that is moved is not the paper's")

    return compute


def _quotient(column: str, network: str, osds: int) -> Compute:
    """Compute the ratio of ursa's value to HtoC's."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = quotient(_setting(evidence, network, osds), "ursa", "htoc", column)
        if found is None:
            return NotRun(f"no block has ursa and HtoC with moves, {network}, with {osds} OSDs")
        return _measured(evidence, found)

    return compute


def _knee(evidence: Evidence) -> Measured | NotRun:
    """Compute figure 4: 99th percentile at the highest rate over that at the lowest."""
    rows = evidence.table[evidence.table["scenario"] == "single"].dropna(subset=["latency_p99_s"])
    rates = sorted(set(rows["rate"]))
    if len(rates) < 2:
        return NotRun("no runs of one node at several rates")
    by_rate = {rate: rows[rows["rate"] == rate] for rate in (rates[0], rates[-1])}
    ends = [mine.set_index(["campaign", "block"])["latency_p99_s"] for mine in by_rate.values()]
    both = pd.concat(ends, axis=1, join="inner", keys=["low", "high"]).dropna()
    if both.empty:
        return NotRun("no block has both the lowest and the highest rate")
    logs = mean([math.log(high / low) for low, high in zip(both["low"], both["high"], strict=True)])
    return _measured(evidence, logs.map(math.exp), f"{rates[-1]:g} against {rates[0]:g} writes/s")


def _stable_share(evidence: Evidence) -> Measured | NotRun:
    """Compute the share of ursa's runs that became stable."""
    rows = rebalancing(evidence.table)
    rows = rows[rows["controller"] == "ursa"]
    if rows.empty:
        return NotRun("no run of ursa under a skewed load")
    return _measured(evidence, mean([float(value) for value in rows["settled_s"].notna()]))


_claim = partial(declared, prefix="ursa-live", paper="ursa", baseline="htoc")


CLAIMS: tuple[Claim, ...] = (
    _claim(
        "knee",
        "4",
        "Response times rise by far where a node's load exceeds what it bears",
        _knee,
        baseline=None,
    ),
    _claim(
        "random-seconds",
        "12",
        "Random, 30-900: ALP is stable about 30 s earlier than HtoC",
        _seconds_earlier(RANDOM, 30),
        value=30.0,
        unit="s",
        no_effect=0.0,
        size=False,
    ),
    _claim(
        "controlled-seconds",
        "12",
        "Controlled, 30-900: ALP is stable about 140 s earlier than HtoC",
        _seconds_earlier(CONTROLLED, 30),
        value=140.0,
        unit="s",
        no_effect=0.0,
        size=False,
    ),
    *(
        _claim(
            f"settling-{osds}",
            "13",
            f"Controlled, {osds} OSDs: ALP settles faster than HtoC (how many times)",
            _slower("htoc", CONTROLLED, osds),
        )
        for osds in (10, 30)
    ),
    *(
        _claim(
            f"settling-random-{osds}",
            "12",
            f"Random, {osds} OSDs: ALP settles no later than HtoC (how many times faster)",
            _slower("htoc", RANDOM, osds),
        )
        for osds in (10, 30)
    ),
    *(
        _claim(
            f"migrations-{osds}",
            "13",
            f"Controlled, {osds} OSDs: ALP and HtoC move similarly often (first decisions)",
            _quotient("first_moves", CONTROLLED, osds),
            value=1.0,
            kind="within",
            tolerance=0.1,
        )
        for osds in (10, 30)
    ),
    *(
        _claim(
            f"cost-{osds}",
            "13",
            f"Controlled, {osds} OSDs: ALP's moves cost less distance than HtoC's",
            _quotient("cost", CONTROLLED, osds),
            larger=False,
        )
        for osds in (10, 30)
    ),
    *(
        _claim(
            f"{baseline}-{osds}",
            "12",
            f"Controlled, {osds} OSDs: {words} takes longer to become stable than Ursa",
            _slower(baseline, CONTROLLED, osds),
            baseline=baseline,
        )
        for baseline, words in (
            ("upmap", "with Ceph's own balancer the store"),
            ("default", "without rebalancing the store"),
        )
        for osds in (10, 30)
    ),
    _claim(
        "stable",
        "12",
        f"After Ursa's rebalancing 99 % of the writes are answered within {STABLE_S:g} s, for "
        f"{HOLD_S:g} s on end (share of runs)",
        _stable_share,
        value=1.0,
        kind="within",
        tolerance=0.0,  # in every run
        unit="share",
        no_effect=0.0,
        baseline=None,
    ),
)

SIMULATED_CLAIMS: tuple[Claim, ...] = (
    _claim(
        "settling-50",
        "13-sim",
        "Controlled, 50-2500: ALP settles two times faster than HtoC",
        _slower("htoc", CONTROLLED, 50),
        value=2.0,
    ),
    _claim(
        "migrations-50",
        "13-sim",
        "Controlled, 50 OSDs: ALP and HtoC move similarly often (first decisions)",
        _quotient("first_moves", CONTROLLED, 50),
        value=1.0,
        kind="within",
        tolerance=0.1,
    ),
    _claim(
        "cost-50",
        "13-sim",
        "Controlled, 50 OSDs: ALP's moves cost less distance than HtoC's",
        _quotient("cost", CONTROLLED, 50),
        larger=False,
    ),
)
"""Claims about a store that is too large for the local site's machine."""
