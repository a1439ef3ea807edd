"""Computation of claims about the planner: paired by instance, over sizes where the paper speaks of
all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd

from analysis.core.claims import Compute, Evidence, Measured, NotRun
from analysis.core.columns import average
from analysis.core.load import SIM
from analysis.core.stats import Estimate
from analysis.papers.ursa.runs import cells, geometric, paired, quotient, sizes

Rows = Callable[[pd.DataFrame], pd.DataFrame]

LARGE = 100_000
"""Minimum partitions of one of the paper's large data sets."""


def of(method: str, **setting: str) -> Rows:
    """Select rows of a method in a setting, see `runs.cells`."""
    return lambda table: cells(table, method, **setting)


def large(rows: Rows) -> Rows:
    """Select rows of the paper's large data sets."""
    return where(rows, lambda found: found["partitions"] >= LARGE)


def where(rows: Rows, holds: Callable[[pd.DataFrame], pd.Series]) -> Rows:
    """Select the rows that meet a condition."""

    def chosen(table: pd.DataFrame) -> pd.DataFrame:
        found = rows(table)
        # Without any run there are no columns either.
        return found if found.empty else found[holds(found)]

    return chosen


def quotient_at(
    treated: Rows, baseline: Rows, column: str, size: str, note: str | None = None
) -> Compute:
    """Compute the geometric mean of treated/baseline at one size."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        both = [its[its["size"] == size] for its in _both(evidence, treated, baseline)]
        found = quotient(both[0], both[1], column)
        if found is None:
            return NotRun(f"no instance of {size} was planned for by both with something to move")
        return Measured(found, SIM, 1.0, note)

    return compute


def quotient_over_sizes(treated: Rows, baseline: Rows, column: str, which: str) -> Compute:
    """Compute the ``least``, the ``largest`` or the ``farthest`` (from 1) ratio over the shared
    sizes; the interval is widened for the choice. The note names the size, and a side that left
    nodes hot: a partial plan costs less."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = _both(evidence, treated, baseline)
        order = [size for size in sizes(top) if size in set(bottom["size"])]
        found: list[tuple[str, Estimate]] = []
        for size in order:
            one = quotient(
                top[top["size"] == size],
                bottom[bottom["size"] == size],
                column,
                comparisons=len(order),
            )
            if one is not None:
                found.append((size, one))
        if not found:
            return NotRun("no size has instances that both planned for, with something to move")
        # One instance has no interval: prefer sizes that have one.
        size, best = _choose([item for item in found if item[1].n > 1] or found, which)
        notes = [f"{which} of {len(found)} sizes, at {size}"]
        for side, rows in (("it", bottom), ("the other", top)):
            left = rows[rows["size"] == size]["hot_after"].mean()
            if left > 0:
                notes.append(f"{side} leaves {left:,.3g} nodes hot there on average")
        return Measured(best, SIM, 1.0, "; ".join(notes))

    return compute


def farthest_of(options: Sequence[tuple[str, Compute]]) -> Compute:
    """Compute the ratio that is farthest from 1 among several."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        made = [(name, option(evidence)) for name, option in options]
        found = [(name, one) for name, one in made if isinstance(one, Measured)]
        if not found:
            return next(one for _, one in made if isinstance(one, NotRun))
        name, best = max(found, key=lambda item: abs(math.log(item[1].estimate.value)))
        return Measured(best.estimate, SIM, 1.0, f"farthest is {name}, {best.note}")

    return compute


def mean_at(rows: Rows, column: str, size: str, note: str | None = None) -> Compute:
    """Compute the mean of a column at one size."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        one = average(found[found["size"] == size], column)
        if one is None:
            return NotRun(f"no instance of {size} was planned for so")
        return Measured(one, SIM, 1.0, note)

    return compute


def geometric_at(rows: Rows, column: str, size: str, note: str | None = None) -> Compute:
    """Compute the geometric mean of a non-negative column, such as seconds, at one size."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        one = geometric(found[found["size"] == size], column)
        if one is None:
            return NotRun(f"no instance of {size} was planned for so")
        return Measured(one, SIM, 1.0, note)

    return compute


def mean_at_largest(rows: Rows, value: Callable[[pd.DataFrame], pd.Series], why: str) -> Compute:
    """Compute the mean of a value at the largest size with runs."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        order = sizes(found)
        if not order:
            return NotRun(why)
        here = found[found["size"] == order[-1]]
        one = average(here.assign(value=value(here)), "value")
        if one is None:
            return NotRun(why)
        means = [f"{size} {value(found[found['size'] == size]).mean():.2f}" for size in order]
        return Measured(one, SIM, 1.0, f"at {order[-1]}; by size: {', '.join(means)}")

    return compute


def share(rows: Rows, holds: Callable[[pd.DataFrame], pd.Series], why: str) -> Compute:
    """Compute the share of instances that meet a condition."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        if found.empty:
            return NotRun(why)
        one = average(found.assign(holds=holds(found).astype(float)), "holds")
        assert one is not None
        count = int(holds(found).sum())
        return Measured(one, SIM, 1.0, f"{count} of {len(found)} instances, of every size and kind")

    return compute


def shared_instances(treated: Rows, baseline: Rows, column: str) -> Compute:
    """Compute the geometric mean of treated/baseline over all instances that both planned for."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = _both(evidence, treated, baseline)
        found = quotient(top, bottom, column)
        if found is None:
            return NotRun("no instance was planned for by both with something to move")
        pairs = paired(top, bottom, column)
        worst = float((pairs["treated"] / pairs["baseline"]).max())
        return Measured(found, SIM, 1.0, f"largest of an instance {worst:.3f}")

    return compute


def _both(evidence: Evidence, treated: Rows, baseline: Rows) -> tuple[pd.DataFrame, pd.DataFrame]:
    return treated(evidence.table), baseline(evidence.table)


def _choose(found: Sequence[tuple[str, Estimate]], which: str) -> tuple[str, Estimate]:
    if which == "least":
        return min(found, key=lambda item: item[1].value)
    if which == "largest":
        return max(found, key=lambda item: item[1].value)
    return max(found, key=lambda item: abs(math.log(item[1].value)))
