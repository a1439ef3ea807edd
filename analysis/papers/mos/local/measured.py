"""Computation of claims about microstores from the table of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from analysis.core.claims import Compute, Evidence, Measured, NotRun, declared
from analysis.core.columns import average, difference, paired
from analysis.core.stats import Estimate
from analysis.papers.mos.local.runs import cells, values_of

Rows = Callable[[pd.DataFrame], pd.DataFrame]
"""Function that selects the runs of a claim."""


claim = partial(declared, prefix="mos-local", paper="mos")
"""A claim about real microstores; see `analysis.core.claims.declared`."""


def of(experiment: str, **setting: Any) -> Rows:
    """Select the runs of an experiment; see `runs.cells`."""
    return lambda table: cells(table, experiment, **setting)


def measured(
    found: Estimate | None, rows: pd.DataFrame, why: str, note: str | None = None
) -> Measured | NotRun:
    """Return an estimate with the ground of its runs, or a `NotRun` with the reason `why`."""
    if found is None:
        return NotRun(why)
    return Measured(found, "+".join(sorted(set(rows["ground"]))), 1.0, note)


def over(treated: Rows, baseline: Rows, column: str, why: str) -> Compute:
    """Compute the ratio of a column between two sets of runs, paired within blocks."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        return measured(paired(top, bottom, column), top, why)

    return compute


def more(treated: Rows, baseline: Rows, column: str, why: str) -> Compute:
    """Compute the difference of a column between two sets of runs, within blocks: for numbers that
    may be 0, which have no ratio."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        return measured(difference(top, bottom, column), top, why)

    return compute


def number(rows: Rows, column: str, why: str, factor: float = 1.0) -> Compute:
    """Compute the mean of a number over runs."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        return measured(average(found, column, factor), found, why)

    return compute


def ends(rows: Rows, parameter: str, column: str, why: str) -> Compute:
    """Compute a number at a parameter's largest value over the number at its smallest value."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        there = values_of(found, parameter)
        if len(there) < 2:
            return NotRun(why)
        low, high = (found[found[parameter] == value] for value in (there[0], there[-1]))
        note = f"{parameter} {there[-1]:g} over {there[0]:g}"
        return measured(paired(high, low, column), found, why, note)

    return compute


def between(rows: Rows, parameter: str, column: str, why: str) -> Compute:
    """Compute a number at a parameter's largest value over the number at the value before it."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        there = values_of(found, parameter)
        if len(there) < 2:
            return NotRun(why)
        low, high = (found[found[parameter] == value] for value in (there[-2], there[-1]))
        note = f"{parameter} {there[-1]:g} over {there[-2]:g}"
        return measured(paired(high, low, column), found, why, note)

    return compute


def best(
    treated: Rows,
    baseline: Rows,
    column: str,
    parameter: str,
    why: str,
    *,
    larger: bool = True,
    last: int | None = None,
) -> Compute:
    """Compute "up to": the largest (or smallest) of the ratios at each value of a parameter, with
    its interval widened for the choice. `last`: only among this many of the largest values. The
    opposite choice gives the ratio that holds at every value."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        there = [v for v in values_of(top, parameter) if v in set(bottom[parameter])]
        if last is not None:
            there = there[-last:]
        found: dict[Any, Estimate] = {}
        for value in there:
            one = paired(
                top[top[parameter] == value],
                bottom[bottom[parameter] == value],
                column,
                comparisons=len(there),
            )
            if one is not None:
                found[value] = one
        if not found:
            return NotRun(why)
        choose = max if larger else min
        at = choose(found, key=lambda value: found[value].value)
        return measured(found[at], top, why, _listed(parameter, at, found))

    return compute


def _listed(parameter: str, at: Any, found: Mapping[Any, Estimate]) -> str:
    listed = ", ".join(f"{value:g}: {one.value:.3g}" for value, one in found.items())
    return f"at {parameter} = {at:g}; by it: {listed}"


def worst_of(treated: Rows, baseline: Rows, columns: tuple[str, ...], why: str) -> Compute:
    """Compute the largest ratio of several columns: if it is below 1, all ratios are."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        found = {
            column: one
            for column in columns
            if (one := paired(top, bottom, column, comparisons=len(columns))) is not None
        }
        if len(found) < len(columns):
            return NotRun(why)
        at = max(found, key=lambda column: found[column].value)
        listed = ", ".join(
            f"{column.split('_')[0]} {one.value:.3g}" for column, one in found.items()
        )
        return measured(found[at], top, why, f"of workload {at.split('_')[0]}; {listed}")

    return compute
