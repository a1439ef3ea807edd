"""Kinds of claims, and the rows that they use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from analysis.core.claims import Claim, Compute, declared
from analysis.papers.prioritymeister.measured import all_met, gap
from analysis.papers.prioritymeister.runs import LABELS, Rows, cells

K = 2.0
"""k of the claims about one k: the middle of its sweep. `claims` documents other values."""
K_NORMAL = 8.0
K_NETWORK = 1.5
K_ORDERS = 1.25
K_LEVELS = 1.25
OTHERS = ("ps", "cake", "edf", "byslo")
"""Policies that the paper compares with PM."""
CAKE_SHARE = 0.96
ALLOWED = 0.01
"""Share of requests that may miss their SLO at the 99th percentile."""
ORDERS_BYSLO = 5.0
ORDERS = 6.0


claim = partial(
    declared, prefix="pm", paper="prioritymeister", unit="share", no_effect=0.0, machines=True
)
"""A claim of the paper, or beyond it; see `analysis.core.claims.declared`."""


def of(scenario: str, variant: str | None, **at: Any) -> Rows:
    """Select rows of a scenario under a policy, see `runs.cells`."""
    return lambda table: cells(table, scenario, variant, **at)


def only(rows: Rows, *workloads: str) -> Rows:
    """Select the rows of the given workloads."""
    return lambda table: (found := rows(table))[found["workload"].isin(workloads)]


def always(name: str, figure: str, statement: str, compute: Compute, unit: str) -> Claim:
    """Return a claim that something always holds."""
    return claim(name, figure, statement, compute, value=1.0, kind="within", unit=unit, tolerance=0)


def beats(
    name: str,
    figure: str,
    statement: str,
    rows: Callable[[str], Rows],
    *,
    other: str,
    why: str,
    stated: bool = True,
) -> Claim:
    """Return a claim that PM meets all SLOs in more blocks than another policy (difference)."""
    return claim(
        name,
        figure,
        statement,
        gap(rows("pm"), rows(other), all_met(), why),
        value=1.0 if stated else None,
        kind="at_least",
        unit="share of the runs that meet all SLOs, difference",
        baseline=LABELS[other],
        tolerance=0.0,
    )
