"""Computation of claims about the simulations: paired by the schedulers' bursts, over straggler
ratios (figure 3) or server loads (figure 4) where the paper speaks of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from analysis.core.claims import Compute, Evidence, Measured, NotRun
from analysis.core.columns import average
from analysis.core.load import SIM
from analysis.core.stats import Estimate, mean
from analysis.papers.twochoice import placement
from analysis.papers.twochoice.runs import cells, quotient, ratios

Rows = Callable[[pd.DataFrame], pd.DataFrame]

RESPONSE = "response_s"


def of(series: str, **setting: Any) -> Rows:
    """Select rows of a scheduler, see `runs.cells`."""
    return lambda table: cells(table, series, **setting)


def over_ratios(
    treated: Rows,
    baseline: Rows,
    which: str,
    wanted: Callable[[float], bool] = lambda share: True,
) -> Compute:
    """Compute the ``least``, the ``largest`` or the ``farthest`` (from 1) ratio of responses over
    the shared straggler ratios; the interval is widened for the choice."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        shares = [share for share in ratios(top, bottom) if wanted(share)]
        found: list[tuple[float, Estimate]] = []
        for share in shares:
            one = quotient(_at(top, share), _at(bottom, share), RESPONSE, comparisons=len(shares))
            if one is not None:
                found.append((share, one))
        if not found:
            return NotRun("no straggler ratio was run with both")
        share, best = _choose(found, which)
        listed = ", ".join(f"{100 * at:g} % {one.value:.2f}" for at, one in found)
        note = f"{which} over straggler ratios, at {100 * share:g} %; by ratio: {listed}"
        return Measured(best, SIM, 1.0, note)

    return compute


def mean_over_ratios(
    treated: Rows, baseline: Rows, wanted: Callable[[float], bool] = lambda share: True
) -> Compute:
    """Compute the geometric mean of the ratio of responses over straggler ratios."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = treated(evidence.table), baseline(evidence.table)
        shares = [share for share in ratios(top, bottom) if wanted(share)]
        within = [its[its["straggler_ratio"].isin(shares)] for its in (top, bottom)]
        found = quotient(within[0], within[1], RESPONSE)
        if found is None:
            return NotRun("no straggler ratio was run with both")
        each = {share: quotient(_at(top, share), _at(bottom, share), RESPONSE) for share in shares}
        listed = ", ".join(f"{100 * at:g} % {one.value:.2f}" for at, one in each.items() if one)
        return Measured(found, SIM, 1.0, f"mean over straggler ratios: {listed}")

    return compute


def at_setting(treated: Rows, baseline: Rows, column: str = RESPONSE) -> Compute:
    """Compute the geometric mean of a ratio over the blocks that have both."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = quotient(treated(evidence.table), baseline(evidence.table), column)
        if found is None:
            return NotRun("no burst was met by both")
        return Measured(found, SIM, 1.0)

    return compute


def growth(rows: Rows, wanted: Callable[[float], bool] = lambda share: True) -> Compute:
    """Compute the response at the largest straggler ratio over that at the smallest."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        shares = [share for share in ratios(found) if wanted(share)]
        if len(shares) < 2:
            return NotRun("fewer than two straggler ratios were run")
        low, high = (_at(found, share) for share in (shares[0], shares[-1]))
        one = quotient(high.assign(straggler_ratio=0.0), low.assign(straggler_ratio=0.0), RESPONSE)
        if one is None:
            return NotRun("no block has both ratios")
        note = f"from {100 * shares[0]:g} to {100 * shares[-1]:g} % stragglers"
        return Measured(one, SIM, 1.0, note)

    return compute


def number_at(rows: Rows, column: str, note: str | None = None) -> Compute:
    """Compute the mean of a summary number over the runs of figure 4."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        share = placement.ratio_shown(evidence.table, ("fixed",))
        one = average(_at(rows(evidence.table), share), column) if share is not None else None
        if one is None:
            return NotRun("no run has few stragglers")
        told = f"at {100 * (share or 0):g} % stragglers"
        return Measured(one, SIM, 1.0, told if note is None else f"{told}; {note}")

    return compute


def most_over_loads(series: str, baseline: str) -> Compute:
    """Compute the most writes of a server over the most under another scheduler: the smallest ratio
    over loads with ten or more servers. The interval is widened for the choice."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        both = _both(evidence, series, baseline)
        if isinstance(both, NotRun):
            return both
        top, bottom = both
        loads = [load for load in placement.common(top) if load in set(placement.common(bottom))]
        found: list[tuple[float, Estimate]] = []
        for load in loads:
            pair = _merged(top[top["load"] == load], bottom[bottom["load"] == load], "most")
            one = quotient(*pair, "most", comparisons=len(loads))
            if one is not None:
                found.append((float(load), one))
        if not found:
            return NotRun("no load is common enough")
        at, best = _choose(found, "least")
        note = f"least of loads {loads[0]} to {loads[-1]}, at {at:g}"
        return Measured(best, SIM, 1.0, note)

    return compute


def farthest_mean(series: str) -> Compute:
    """Compute the mean number of writes of a load's servers, relative to an even share, at the load
    farthest from it; only loads with ten or more servers."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = _given(evidence, series)
        if isinstance(rows, NotRun):
            return rows
        share = _even(evidence)
        loads = placement.common(rows)
        found = [
            (float(load), _scaled(rows[rows["load"] == load]["mean"].tolist(), share))
            for load in loads
        ]
        if not found:
            return NotRun("no load is common enough")
        load, best = _choose(found, "farthest")
        return Measured(best, SIM, 1.0, f"farthest of loads {loads[0]} to {loads[-1]}, at {load:g}")

    return compute


def below_the_mean(series: str, baseline: str | None, column: str = "mean") -> Compute:
    """Compute the writes of servers below the mean load (``mean``: average, ``most``: maximum of a
    load), over another scheduler's or, without one, over an even share."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        both = _both(evidence, series, baseline or series)
        if isinstance(both, NotRun):
            return both
        lighter = [load for load in placement.common(both[0]) if load < _mean_load(evidence)]
        if not lighter:
            return NotRun("no load below the mean is common enough")
        values = [placement.of_loads(rows, column, lighter) for rows in both]
        told = f"loads {lighter[0]} to {lighter[-1]}"
        if baseline is None:
            return Measured(_scaled(values[0].tolist(), _even(evidence)), SIM, 1.0, told)
        pairs = pd.concat(values, axis=1, keys=["treated", "baseline"], join="inner")
        logs = (pairs["treated"] / pairs["baseline"]).map(math.log)
        return Measured(mean(logs.tolist()).map(math.exp), SIM, 1.0, told)

    return compute


def servers_of_load(load: int) -> Compute:
    """Compute the number of servers with a load: an input of the simulation."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        rows = _given(evidence, "fixed")
        if isinstance(rows, NotRun):
            return rows
        here = rows[rows["load"] == load]["servers"].tolist()
        if not here:
            return NotRun(f"no server has a load of {load}")
        return Measured(mean(here), SIM, 1.0, "an input: the loads' mean and deviation are so")

    return compute


def _given(evidence: Evidence, series: str) -> pd.DataFrame | NotRun:
    share = placement.ratio_shown(evidence.table, ("fixed", series))
    if share is None:
        return NotRun(f"no run of {series} has few stragglers")
    return placement.given(evidence, series, share)


def _both(
    evidence: Evidence, series: str, baseline: str
) -> tuple[pd.DataFrame, pd.DataFrame] | NotRun:
    share = placement.ratio_shown(evidence.table, ("fixed", series, baseline))
    if share is None:
        return NotRun(f"no run of {series} and {baseline} has few stragglers")
    top, bottom = (placement.given(evidence, name, share) for name in (series, baseline))
    if top.empty or bottom.empty:
        return NotRun(f"no run of {series} and {baseline} has few stragglers")
    return top, bottom


def _merged(
    top: pd.DataFrame, bottom: pd.DataFrame, column: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables with the keys by which `runs.quotient` pairs."""
    keys: dict[str, Any] = {
        "straggler_ratio": 0.0,
        "size": "",
        "spread_s": 0.0,
        "processes_per_node": 0,
    }
    return top[["seed", column]].assign(**keys), bottom[["seed", column]].assign(**keys)


def _even(evidence: Evidence) -> float:
    """Return writes per server with equal shares: the paper's average = ioreq/server."""
    row = cells(evidence.table, "fixed").iloc[0]
    return float(row["processes"] / row["servers"])


def _mean_load(evidence: Evidence) -> float:
    return float(cells(evidence.table, "fixed")["load_mean"].iloc[0])


def _scaled(values: Sequence[float], unit: float) -> Estimate:
    return mean([value / unit for value in values])


def _at(rows: pd.DataFrame, share: float) -> pd.DataFrame:
    return rows[rows["straggler_ratio"] == share]


def _choose(found: Sequence[tuple[float, Estimate]], which: str) -> tuple[float, Estimate]:
    if which == "least":
        return min(found, key=lambda item: item[1].value)
    if which == "largest":
        return max(found, key=lambda item: item[1].value)
    return max(found, key=lambda item: abs(math.log(item[1].value)))
