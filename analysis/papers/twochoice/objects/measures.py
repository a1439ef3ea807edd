"""Computation of claims about real object servers: paired within blocks, or means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from analysis.core.claims import Evidence, Measured, NotRun
from analysis.core.columns import average, paired
from analysis.core.stats import Estimate
from analysis.papers.twochoice.objects.runs import cells, rados
from analysis.papers.twochoice.runs import BOTH

Compute = Callable[[Evidence], Measured | NotRun]

PENDING = 4
"""Number of writes probed together in the paper's statement of figure 11."""


def _measured(found: Estimate | None, rows: pd.DataFrame, why: str, note: str | None = None) -> Any:
    if found is None:
        return NotRun(why)
    return Measured(found, "+".join(sorted(set(rows["ground"]))), 1.0, note)


def versus(experiment: str, series: str, baseline: str, column: str, **setting: Any) -> Compute:
    """Compute a number under one scheduler over the same under another, paired within blocks."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, experiment, **setting)
        top, bottom = (rows[rows["scheduler"] == name] for name in (series, baseline))
        found: Measured | NotRun = _measured(
            paired(top, bottom, column), top, f"no block has both {series} and {baseline}"
        )
        return found

    return compute


def uncached(experiment: str, column: str, baseline: str = BOTH, **setting: Any) -> Compute:
    """Compute a number under both strategies without remembered loads of other servers, over the
    same under `baseline`, paired."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        alone = cells(evidence.table, experiment, cache_s=0.0, **setting)
        rows = cells(evidence.table, experiment, **setting)
        top, bottom = alone[alone["scheduler"] == BOTH], rows[rows["scheduler"] == baseline]
        why = f"no block has both without remembered loads, and {baseline}"
        found: Measured | NotRun = _measured(paired(top, bottom, column), top, why)
        return found

    return compute


def on_rados(series: str, baseline: str, stragglers: str, **setting: Any) -> Compute:
    """Compute the last process's end time under one scheduler over another's, paired."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = rados(evidence.table, stragglers, **setting)
        top, bottom = (rows[rows["scheduler"] == name] for name in (series, baseline))
        found: Measured | NotRun = _measured(
            paired(top, bottom, "seconds"), top, f"no block has both {series} and {baseline}"
        )
        return found

    return compute


def number(experiment: str, column: str, factor: float = 1.0, **setting: Any) -> Compute:
    """Compute the mean of a number over runs."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = cells(evidence.table, experiment, **setting)
        why = f"no run of {experiment} tells it"
        found: Measured | NotRun = _measured(average(rows, column, factor), rows, why)
        return found

    return compute


def slowest_probing(evidence: Evidence) -> Measured | NotRun:
    """Compute the probing time for four writes, at the number of schedulers with the highest
    interval: a claim about every number must hold there."""
    rows = cells(evidence.table, "probe", pending=PENDING)
    found: dict[int, Estimate] = {}
    for count in sorted(set(rows["schedulers"])):
        one = average(rows[rows["schedulers"] == count], "probe_mean_s", 1e3)
        if one is not None:
            found[int(count)] = one
    if not found:
        return NotRun("no probing for four writes was run")
    worst = max(found, key=lambda count: max(found[count].value, found[count].high))
    listed = ", ".join(f"{count}: {one.value:.2g}" for count, one in found.items())
    result: Measured | NotRun = _measured(
        found[worst], rows, "", f"up to most at {worst} schedulers; ms by schedulers: {listed}"
    )
    return result


def probing_grows(evidence: Evidence) -> Measured | NotRun:
    """Compute the probing time for four writes of the most schedulers over that of one."""
    rows = cells(evidence.table, "probe", pending=PENDING)
    counts = sorted(set(rows["schedulers"]))
    if len(counts) < 2:
        return NotRun("fewer than two numbers of schedulers were run")
    low, high = (rows[rows["schedulers"] == count] for count in (counts[0], counts[-1]))
    result: Measured | NotRun = _measured(
        paired(high, low, "probe_mean_s"),
        rows,
        "no block has both",
        f"{counts[-1]} schedulers over {counts[0]}",
    )
    return result


def delay_falls(evidence: Evidence) -> Measured | NotRun:
    """Compute Table I: the delay of eight writes at once over that of one, for 1 MB writes."""
    many, one = (cells(evidence.table, "delay", size_kib=1024, pending=n) for n in (8, 1))
    result: Measured | NotRun = _measured(paired(many, one, "delay"), many, "no block has both")
    return result


def length_of_table(evidence: Evidence) -> Measured | NotRun:
    """Compute the maximum number of entries over redirected writes."""
    rows = cells(evidence.table, "table")
    if rows.empty:
        return NotRun("no table was timed")
    share = rows.assign(length=rows["entries_most"] / rows["creates"])
    result: Measured | NotRun = _measured(average(share, "length"), rows, "")
    return result
