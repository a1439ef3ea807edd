"""Computation of PriorityMeister's claims: shares of blocks and differences between policies in the
same blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from analysis.core.claims import Compute, Evidence, Measured, NotRun
from analysis.core.stats import Estimate
from analysis.papers.prioritymeister.runs import (
    Rows,
    average,
    by_block,
    difference,
    latency,
    met_by_run,
    quotient,
)

Value = Callable[[pd.DataFrame], pd.Series]
"""Function that computes a value for each block, indexed by seed, from rows."""

TAIL = 99.9
"""The percentile of claims about "all percentiles": the highest of a ten-minute trace with ten
requests beyond it. A run that meets it meets all lower percentiles."""


def all_met(percent: float = TAIL) -> Value:
    """Compute 1 for a block in which every workload met its SLO, else 0; the mean of its runs."""

    def value(rows: pd.DataFrame) -> pd.Series:
        return by_block(met_by_run(rows, percent), "met")

    return value


def missed_share(rows: pd.DataFrame) -> pd.Series:
    """Return the share of requests beyond their SLO, as the mean over workloads."""
    found = latency(rows)
    return by_block(found.assign(missed=1 - found["within"].astype(float)), "missed")


def column(name: str) -> Value:
    """Compute the mean of a column over a block's rows."""
    return lambda rows: by_block(rows, name)


def share(
    rows: Rows, value: Value, why: str, note: str | None = None, *, whole: bool = True
) -> Compute:
    """Compute the mean of a value over blocks. The note counts the blocks with the value 1, unless
    `whole` is False."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        values = value(found) if len(found) else pd.Series(dtype=float)
        estimate = average(values)
        if estimate is None:
            return NotRun(why)
        return _measured(evidence, estimate, _counted(values, note) if whole else note)

    return compute


def gap(treated: Rows, baseline: Rows, value: Value, why: str, note: str | None = None) -> Compute:
    """Compute the mean over blocks of a value of `treated` minus the value of `baseline`."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        if top.empty or bottom.empty:
            return NotRun(why)
        values = value(top), value(bottom)
        estimate = difference(*values)
        if estimate is None:
            return NotRun(why)
        both = f"means {values[0].mean():.4g} and {values[1].mean():.4g}"
        return _measured(evidence, estimate, f"{both}; {note}" if note else both)

    return compute


def times(treated: Rows, baseline: Rows, value: Value, why: str) -> Compute:
    """Compute the geometric mean over blocks of a value of `treated` over that of `baseline`."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        if top.empty or bottom.empty:
            return NotRun(why)
        estimate = quotient(value(top), value(bottom))
        return NotRun(why) if estimate is None else _measured(evidence, estimate, None)

    return compute


def each(options: Sequence[tuple[str, Rows]], value: Value, why: str) -> Compute:
    """Compute the mean over several groups of rows, one value for each block that has all groups;
    the note lists each group."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = {name: rows(evidence.table) for name, rows in options}
        missing = [name for name, one in found.items() if one.empty]
        if missing:
            return NotRun(f"{why}: nothing of {', '.join(missing)}")
        series = {name: value(one) for name, one in found.items()}
        both = pd.concat(series, axis=1, join="inner").dropna()
        estimate = average(both.mean(axis=1))
        if estimate is None:
            return NotRun(why)
        words = ", ".join(f"{name} {one.mean():.4g}" for name, one in series.items())
        return _measured(evidence, estimate, words)

    return compute


def _measured(evidence: Evidence, estimate: Estimate, note: str | None) -> Measured:
    grounds = sorted(set(evidence.table["ground"]))
    return Measured(estimate, "+".join(grounds), 1.0, note)


def _counted(values: pd.Series, note: str | None) -> str:
    known = values.dropna()
    whole = int((known >= 1 - 1e-9).sum())
    words = f"all of it in {whole} of {len(known)} blocks"
    if whole == len(known) and whole:
        # Exact (Clopper and Pearson): no failure in n blocks.
        words += f": at 95 % confidence in at least {100 * 0.05 ** (1 / whole):.0f} % of all"
    return f"{words}; {note}" if note else words
