"""Claims of sections 6.1 and 6.5: figures 5, 6, 10 and 11."""

from __future__ import annotations

import pandas as pd

from analysis.papers.prioritymeister.claim_kinds import (
    K_ORDERS,
    ORDERS,
    ORDERS_BYSLO,
    OTHERS,
    K,
    always,
    beats,
    claim,
    of,
)
from analysis.papers.prioritymeister.measured import TAIL, all_met, column, each, gap, share, times
from analysis.papers.prioritymeister.runs import LABELS, Rows, by_block, cells, latency, met


def _disk(variant: str) -> Rows:
    return of("disk", variant, k=K)


def _copy_done(rows: pd.DataFrame) -> pd.Series:
    found = rows[rows["bytes_s"].notna()]
    done = (found["bytes_s"] >= found["required_bytes_s"]).astype(float)
    return by_block(found.assign(done=done), "done")


def _only_the_tail(rows: pd.DataFrame) -> pd.Series:
    """Return 1 for blocks that meet all SLOs at the 99th but not the 99.9th percentile, else 0."""
    return all_met(99.0)(rows) - all_met()(rows)


_WHY_DISK = "no block of the scenario disk, k = 2 (a testbed: its own), with all compared"
TAILS = (
    always(
        "all-slos",
        "5",
        "PM meets the SLOs of all workloads at all percentiles (abstract, figures 5 and 6)",
        share(_disk("pm"), all_met(), _WHY_DISK),
        "share of the runs",
    ),
    *(
        beats(
            f"only-{other}",
            "5",
            f"PM meets all SLOs and {LABELS[other]} does not (figures 5 and 6)",
            _disk,
            other=other,
            why=_WHY_DISK,
        )
        for other in OTHERS
    ),
    *(
        claim(
            f"above-p99-{other}",
            "5",
            f"{LABELS[other]} misses more SLOs above the 99th percentile than at it (section 6)",
            share(_disk(other), _only_the_tail, _WHY_DISK),
            unit="share of the runs that meet all SLOs, 99th less 99.9th",
            baseline="99.9th percentile",
        )
        for other in OTHERS
    ),
    always(
        "throughput",
        "5",
        "All policies satisfy the throughput requirement of the copy (section 6.1)",
        each(
            [(LABELS[name], _disk(name)) for name in ("pm", *OTHERS)],
            _copy_done,
            _WHY_DISK,
        ),
        "share of the runs",
    ),
    beats(
        "only-mclock",
        "5",
        "PM meets all SLOs and mClock, which the paper does not run, does not",
        _disk,
        other="mclock",
        why=_WHY_DISK,
        stated=False,
    ),
)


def _order(rows: pd.DataFrame) -> pd.Series:
    """Return the order at the disk of each run as one number, by seed."""
    wide = rows.pivot_table(index="seed", columns="workload", values="priority")
    if wide.empty:
        return pd.Series(dtype=float)
    place = 10.0 ** pd.Series(range(len(wide.columns)), index=wide.columns, dtype=float)
    return (wide * place).sum(axis=1)


def same_order(rows: pd.DataFrame) -> pd.Series:
    """Return 1 if the plans with both estimators have the same order, else 0, by seed."""
    exact = _order(rows[rows["estimator"] == "profile"])
    rough = _order(rows[rows["estimator"] == "constant"])
    both = pd.concat([exact.rename("e"), rough.rename("r")], axis=1, join="inner")
    return (both["e"] == both["r"]).astype(float)


def orders_met(rows: pd.DataFrame) -> pd.Series:
    """Return the number of the six orders that meet all SLOs; only blocks that have all six."""
    found = latency(rows)
    found = found.assign(met=met(found, TAIL).astype(float))
    runs = found.groupby(["seed", "permutation"])["met"].min().unstack()
    return runs.dropna().sum(axis=1) if runs.shape[1] == ORDERS else pd.Series(dtype=float)


def _permuted(variant: str) -> Rows:
    return lambda table: (found := cells(table, "disk", variant, k=K_ORDERS, permutation=...))[
        found["permutation"].notna()
    ]


_WHY_ESTIMATOR = "no block of the scenario disk with both estimators and k = 2"
_WHY_ORDERS = "no block with all six permutations and k = 1.25"
SENSITIVE = (
    always(
        "estimator-order",
        "10",
        "With the constant estimator PM ends up with the same priority order",
        share(of("disk", "pm", k=K, estimator=...), same_order, _WHY_ESTIMATOR),
        "share of the plans",
    ),
    claim(
        "estimator-latency",
        "10",
        "With the constant estimator latencies are similar (99.9th percentile; within 10 %)",
        times(
            lambda table: latency(cells(table, "disk", "pm", k=K, estimator="constant")),
            lambda table: latency(_disk("pm")(table)),
            column("p99.9_s"),
            _WHY_ESTIMATOR,
        ),
        value=1.0,
        kind="within",
        unit="ratio",
        baseline="the device's profile",
        tolerance=0.1,
    ),
    always(
        "estimator-slos",
        "10",
        "With the constant estimator PM meets all SLOs",
        share(of("disk", "pm", k=K, estimator="constant"), all_met(), _WHY_ESTIMATOR),
        "share of the runs",
    ),
    claim(
        "orders",
        "11",
        "PM meets all SLOs in all six permutations",
        share(_permuted("pm"), orders_met, _WHY_ORDERS),
        value=ORDERS,
        kind="within",
        unit="permutations of 6",
        tolerance=0.0,
    ),
    claim(
        "orders-byslo",
        "11",
        "bySLO meets all SLOs in 5 of the 6 permutations",
        share(_permuted("byslo"), orders_met, _WHY_ORDERS),
        value=ORDERS_BYSLO,
        kind="within",
        unit="permutations of 6",
        tolerance=0.1,
    ),
    *(
        claim(
            f"orders-more-{other}",
            "11",
            f"PM meets all SLOs in more permutations than {LABELS[other]}",
            gap(_permuted("pm"), _permuted(other), orders_met, _WHY_ORDERS),
            unit="permutations of 6, difference",
            baseline=LABELS[other],
        )
        for other in OTHERS
    ),
    claim(
        "orders-byslo-cake",
        "11",
        "bySLO outperforms Cake (section 1)",
        gap(_permuted("byslo"), _permuted("cake"), orders_met, _WHY_ORDERS),
        unit="permutations of 6, difference",
        baseline="Cake",
    ),
)
