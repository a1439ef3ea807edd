"""Claims of sections 6.2 and 6.3: figures 1, 4, 7 and 8."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.core.claims import Claim
from analysis.papers.prioritymeister.claim_kinds import (
    ALLOWED,
    CAKE_SHARE,
    K_NORMAL,
    OTHERS,
    K,
    always,
    beats,
    claim,
    of,
    only,
)
from analysis.papers.prioritymeister.measured import (
    all_met,
    column,
    each,
    gap,
    missed_share,
    share,
    times,
)
from analysis.papers.prioritymeister.runs import BEST_EFFORT, LABELS, Rows


def _burst(label: str, variant: str, gaps: str) -> Rows:
    # F is a Poisson process: its gaps have one shape.
    shape = "balanced" if label == "F" else gaps
    return of("burst", variant, burst=label, gaps=shape, k=K)


_SHAPES = {
    "balanced": "gaps of balanced means: in a burst up to twice the mean rate",
    "sharp": "in a burst ten times the mean rate",
}
_WHY_BURST = (
    "no block of the scenario burst, k = 2 (a testbed: its own), with all that are compared"
)


def _meets_p99(rows: pd.DataFrame) -> pd.Series:
    return all_met(99.0)(rows)


def _bursts(gaps: str, words: str) -> Sequence[Claim]:
    return (
        claim(
            f"cake-96-{gaps}",
            "7",
            f"Cake drops below 96 % of the requests at C_A^2 = 40 ({words})",
            share(_burst("H", "cake", gaps), missed_share, _WHY_BURST),
            value=1 - CAKE_SHARE,
            kind="at_least",
            unit="share of the requests that miss",
            no_effect=ALLOWED,
            tolerance=0.0,
        ),
        claim(
            f"cake-grows-{gaps}",
            "7",
            f"Cake does worse as burstiness grows from C_A^2 = 1 to 40 ({words})",
            gap(_burst("H", "cake", gaps), _burst("F", "cake", gaps), missed_share, _WHY_BURST),
            unit="share of the requests that miss, difference",
            baseline="C_A^2 = 1",
        ),
        always(
            f"pm-p99-{gaps}",
            "7",
            f"PM meets the SLO at the 99th percentile up to C_A^2 = 40 ({words})",
            each(
                [(label, _burst(label, "pm", gaps)) for label in ("F", "G", "H")],
                _meets_p99,
                _WHY_BURST,
            ),
            "share of the runs",
        ),
        *(
            claim(
                f"pm-cake-{label.lower()}-{gaps}",
                "7",
                f"PM misses fewer SLOs than Cake at C_A^2 = {c2} ({words})",
                gap(
                    _burst(label, "cake", gaps), _burst(label, "pm", gaps), missed_share, _WHY_BURST
                ),
                unit="share of the requests that miss, difference",
                baseline="PM",
            )
            for label, c2 in (("G", 20), ("H", 40))
        ),
        claim(
            f"bursty-trace-{gaps}",
            "1",
            f"On the bursty trace (B) Cake misses more SLOs than PM ({words})",
            gap(_burst("B", "cake", gaps), _burst("B", "pm", gaps), missed_share, _WHY_BURST),
            unit="share of the requests that miss, difference",
            baseline="PM",
        ),
    )


BURSTS = (
    always(
        "cake-low",
        "7",
        "Cake meets the 99th percentile for the low burstiness trace (F)",
        share(_burst("F", "cake", "balanced"), _meets_p99, _WHY_BURST),
        "share of the runs",
    ),
    *(one for gaps, words in _SHAPES.items() for one in _bursts(gaps, words)),
)


def _normal(variant: str) -> Rows:
    return of("misbehave", variant, k=K_NORMAL)


def _flooded(variant: str) -> Rows:
    return only(of("misbehave", variant, k=K_NORMAL, misbehaves=True), "C")


def _ahead(rows: pd.DataFrame) -> pd.Series:
    """Return 1 for blocks where D's requests go before C's at the disk, else 0."""
    wide = rows.pivot_table(index="seed", columns="workload", values="priority", dropna=False)
    if not {"C", "D"} <= set(wide.columns):
        return pd.Series(dtype=float)
    return (wide["D"] < wide["C"]).astype(float)


_WHY_FLOOD = "no block of the scenario misbehave, k = 8, under all policies compared"
CONTAINED = (
    always(
        "normal",
        "8",
        "Under normal conditions every policy meets all SLOs",
        each([(LABELS[name], _normal(name)) for name in ("pm", *OTHERS)], all_met(), _WHY_FLOOD),
        "share of the runs",
    ),
    always(
        "contained",
        "8",
        "PM contains the misbehaving D: C meets its SLO",
        share(_flooded("pm"), all_met(), _WHY_FLOOD),
        "share of the runs",
    ),
    *(
        beats(
            f"contained-{other}",
            "8",
            f"PM contains the misbehaving D and {LABELS[other]} does not: C meets its SLO",
            _flooded,
            other=other,
            why=_WHY_FLOOD,
        )
        for other in OTHERS
    ),
    always(
        "contained-ahead",
        "8",
        "D has a higher priority than C in PM's plan",
        share(of("misbehave", "pm", k=K_NORMAL, misbehaves=True), _ahead, _WHY_FLOOD),
        "share of the plans",
    ),
    claim(
        "contained-best-effort",
        "8",
        "Serving what is out of profile last contains the misbehaving D as well as holding it back "
        "(not in the paper: its successors do so)",
        times(_flooded(BEST_EFFORT), _flooded("pm"), column("p99.9_s"), _WHY_FLOOD),
        value=1.0,
        kind="within",
        unit="ratio",
        baseline="PM (hold)",
        tolerance=0.1,
    ),
)


def _limited(limiters: str, workload: str) -> Rows:
    return only(of("buckets", "pm", k=K, misbehaves=True, limiters=limiters), workload)


_WHY_BUCKETS = "no block of the scenario buckets, k = 2, with both limiters compared"
BUCKETS = (
    always(
        "buckets-all",
        "4",
        "With several buckets on B, both workloads below it meet their SLOs while B misbehaves",
        each([(w, _limited("all", w)) for w in ("A", "C")], all_met(), _WHY_BUCKETS),
        "share of the runs",
    ),
    claim(
        "buckets-slow",
        "4b",
        "A single bucket that is deep and slow makes the tail of the medium priority (A) longer",
        times(_limited("slow", "A"), _limited("all", "A"), column("p99.9_s"), _WHY_BUCKETS),
        unit="ratio",
        baseline="several buckets",
        no_effect=1.0,
    ),
    claim(
        "buckets-fast",
        "4c",
        "A single bucket that is fast and shallow starves the low priority (C)",
        times(_limited("fast", "C"), _limited("all", "C"), column("p99.9_s"), _WHY_BUCKETS),
        unit="ratio",
        baseline="several buckets",
        no_effect=1.0,
    ),
    *(
        claim(
            f"buckets-{limiters}-misses",
            "4",
            f"With a single {words} bucket on B the workloads below it do not both meet their SLOs",
            gap(
                of("buckets", "pm", k=K, misbehaves=True, limiters="all"),
                of("buckets", "pm", k=K, misbehaves=True, limiters=limiters),
                lambda rows: all_met()(rows[rows["workload"].isin(("A", "C"))]),
                _WHY_BUCKETS,
            ),
            value=1.0,
            kind="at_least",
            unit="share of the runs that meet both SLOs, difference",
            baseline=f"{limiters} bucket",
            tolerance=0.0,
        )
        for limiters, words in (("slow", "deep and slow"), ("fast", "fast and shallow"))
    ),
)
