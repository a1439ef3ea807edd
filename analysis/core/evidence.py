"""Algebra of evidence: the few ways in which claims of every paper are computed from runs.

`Pair` compares a number of two sets of runs within blocks; `mean_of` and `ShareOf` describe one
set; `ends` compares a parameter's last value with an earlier one; `extreme` and `extreme_over`
choose among several comparisons ("up to", "whatever the size") and widen the interval for the
choice; `mean_over` pools them. Each of them is a `Compute` of a claim. Below them are estimates
from tables (`average`, `geometric`, `quotient`, `difference`), which figures use too.

n counts runs (or blocks that have both runs), never requests or seconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from analysis.core.claims import NOTE_SEPARATOR, Compute, Evidence, Measured, NotRun
from analysis.core.load import LoadedRun
from analysis.core.stats import Estimate, change, mean, ratio, share, sign

K = TypeVar("K")

Rows = Callable[[pd.DataFrame], pd.DataFrame]
"""Function that selects the rows of a claim from the table of runs; it may add columns."""

Choice = Literal["least", "largest", "farthest"]
"""Choice among ratios; ``farthest`` is farthest from 1 on a logarithmic scale."""

Note = str | Callable[[pd.DataFrame], str | None] | None
"""Note of a result: a text, or a function that writes it from the rows behind the result."""

PairNote = str | Callable[[pd.DataFrame, pd.DataFrame], str | None] | None
"""Note of a pair: a text, or a function that writes it from the rows of both sides."""

Mean = Callable[[Sequence[float]], Estimate]
"""Function that estimates a mean with an interval that fits the quantity: ``mean``, ``amount``,
``fraction`` or ``change`` of `analysis.core.stats`."""

By = Literal["ratio", "difference", "change", "sign"]
"""Comparison of two values within blocks: see `Pair`."""

BLOCK = ("seed",)
"""Columns that identify a block: all controllers of a block have the same seed."""


def average(
    rows: pd.DataFrame, column: str, factor: float = 1.0, of: Mean = mean
) -> Estimate | None:
    """Return the mean over rows, times `factor`, with the interval of `of`; None if no row has a
    value."""
    values = rows[column].dropna().tolist() if column in rows.columns else []
    return of([factor * value for value in values]) if values else None


def by_block(rows: pd.DataFrame, column: str, keys: Sequence[str] = BLOCK) -> pd.DataFrame:
    """Return one row per block: the mean of a number over the block's rows."""
    if rows.empty:
        return rows
    return rows.groupby(list(keys))[column].mean().astype(float).reset_index()


def geometric(rows: pd.DataFrame, column: str) -> Estimate | None:
    """Return the geometric mean over rows with a t interval of the logarithms, without values that
    are not positive; None if none is."""
    values = rows[column].dropna() if column in rows.columns else pd.Series(dtype=float)
    values = values[values > 0]
    return ratio(values.tolist(), [1.0] * len(values)) if len(values) else None


def pairs(
    treated: pd.DataFrame, baseline: pd.DataFrame, column: str, keys: Sequence[str] = BLOCK
) -> pd.DataFrame:
    """Return both values of every block that has both, as columns ``treated`` and ``baseline``,
    indexed by `keys`, in their order. Several rows of one block count as their mean."""
    if column not in treated.columns or column not in baseline.columns:
        return pd.DataFrame(columns=["treated", "baseline"], dtype=float)
    sides = {
        name: rows.groupby(list(keys))[column].mean().astype(float)
        for name, rows in (("treated", treated), ("baseline", baseline))
    }
    return pd.concat(sides, axis=1, join="inner").dropna().sort_index()


def quotient(
    treated: pd.DataFrame,
    baseline: pd.DataFrame,
    column: str,
    *,
    keys: Sequence[str] = BLOCK,
    cluster: str | None = None,
    comparisons: int = 1,
) -> Estimate | None:
    """Return the geometric mean of treated/baseline over blocks with a t interval of the
    logarithms; None without a pair of positive, finite values. `keys` identify a pair. Pairs with
    the same value of `cluster`, one of `keys`, are not independent, and their mean counts once.
    `comparisons`: see `analysis.core.stats.ratio`. If precision added blocks of both sides, the
    variance is that of the first stage."""
    if treated.empty or baseline.empty:
        return None
    both = pairs(treated, baseline, column, keys)
    both = both[((both > 0) & (both < np.inf)).all(axis=1)]
    if both.empty:
        return None
    top, bottom = both["treated"].tolist(), both["baseline"].tolist()
    first = None
    known = {"added", *keys} <= set(treated.columns) & set(baseline.columns)
    if cluster is None and known and treated["added"].any() and baseline["added"].any():
        added = pairs(treated, baseline, "added", keys).loc[both.index].all(axis=1)
        first = (~added).tolist() if added.any() else None
    if cluster is not None:
        logs: dict[Any, list[float]] = {}
        for key, one, other in zip(both.index.get_level_values(cluster), top, bottom, strict=True):
            logs.setdefault(key, []).append(math.log(one / other))
        top = [math.exp(statistics.fmean(logs[key])) for key in sorted(logs)]
        bottom = [1.0] * len(top)
    return ratio(top, bottom, comparisons=comparisons, first=first)


def difference(
    treated: pd.DataFrame,
    baseline: pd.DataFrame,
    column: str,
    *,
    keys: Sequence[str] = BLOCK,
    by: By = "difference",
) -> Estimate | None:
    """Compare values within blocks (see `Pair`); None without a pair."""
    if treated.empty or baseline.empty:
        return None
    both = pairs(treated, baseline, column, keys)
    if both.empty:
        return None
    if by == "sign":
        return sign(both["treated"].tolist(), both["baseline"].tolist())
    return (change if by == "change" else mean)((both["treated"] - both["baseline"]).tolist())


def where(rows: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows with these values of columns; ``...`` selects any value, None a missing
    one."""
    holds = np.ones(len(rows), dtype=bool)
    for name, value in values.items():
        if value is not ... and holds.any():
            found = rows[name].isna() if value is None else rows[name] == value
            holds &= found.to_numpy(bool, na_value=False)
    return rows[holds]


def assigned(rows: Rows, **columns: Callable[[pd.DataFrame], Any]) -> Rows:
    """Select rows, with added columns that are computed from them; no rows have no such columns."""
    return lambda table: found.assign(**columns) if len(found := rows(table)) else found


def kept(rows: Rows, holds: Callable[[pd.DataFrame], pd.Series]) -> Rows:
    """Select the rows that meet a condition. Without rows there may be no columns to ask for."""
    return lambda table: found[holds(found)] if len(found := rows(table)) else found


def compared(treated: Rows, baseline: Rows, column: str, keys: Sequence[str] = BLOCK) -> Rows:
    """Select one row for each key that both sides have, by key: the treated one with two more
    columns, the ``ratio`` and the ``difference`` of a number of both."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        top = treated(table)
        both = pairs(top, baseline(table), column, keys)
        each = {
            "ratio": both["treated"] / both["baseline"],
            "difference": both["treated"] - both["baseline"],
        }
        if both.empty:
            return top.iloc[:0].assign(**each)
        first = top.drop_duplicates(list(keys))
        return pd.DataFrame(each).reset_index().merge(first, on=list(keys))

    return rows


def from_runs(
    rows: Rows, columns: Sequence[str], values: Callable[[LoadedRun], Sequence[float]], of: Compute
) -> Compute:
    """Compute `of` from rows with more columns, the values that each row's run gives."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        made = [values(run) for run in evidence.runs_of(found)]
        more = pd.DataFrame(made, columns=list(columns), index=found.index, dtype=float)
        return of(replace(evidence, table=found.join(more)))

    return compute


def known(found: Mapping[K, Estimate | None]) -> dict[K, Estimate]:
    """Return the estimates of those settings that have one."""
    return {at: one for at, one in found.items() if one is not None}


def values_of(rows: pd.DataFrame, parameter: str) -> list[Any]:
    """Return the values of a parameter that have runs, ascending."""
    return sorted(set(rows[parameter].dropna())) if parameter in rows.columns else []


def result(
    estimate: Estimate | None, rows: pd.DataFrame, why: str, note: Note = None
) -> Measured | NotRun:
    """Return an estimate with the ground and time scale of its runs, or `why` there is none."""
    if estimate is None:
        return NotRun(why)
    note = note(rows) if callable(note) else note
    scale = float(rows["time_scale"].iloc[0]) if "time_scale" in rows.columns else 1.0
    return Measured(estimate, "+".join(sorted(set(rows["ground"]))), scale, note)


def mapped(measured: Measured | NotRun, function: Callable[[float], float]) -> Measured | NotRun:
    """Apply a monotone function to an estimate and its limits; return a `NotRun` unchanged."""
    if isinstance(measured, NotRun):
        return measured
    return replace(measured, estimate=measured.estimate.map(function))


@dataclass(frozen=True)
class Pair:
    """A `Compute`: a number of one set of runs compared with that of another, within blocks.

    Attributes:
        treated, baseline: the two sets.
        column: the number.
        why: reason to give if no block has both; a function if it depends on the rows.
        by: ``ratio``: the geometric mean of quotients. ``difference``: the mean difference.
            ``change``: the same of shares, which stays in [-1, 1]. ``sign``: the share of differing
            blocks in which the treated number is larger, for counts and all-or-nothing outcomes.
        keys, cluster, comparisons: see `quotient`.
        function: applied to the ratio, such as ``lambda ratio: ratio - 1`` for a gain.
        note: added to the claim's note; a function if it depends on the rows.
        against: short name of the baseline, for claims (`analysis.core.claims.declared`).
    """

    treated: Rows
    baseline: Rows
    column: str
    why: str | Callable[[pd.DataFrame, pd.DataFrame], str]
    by: By = "ratio"
    keys: tuple[str, ...] = BLOCK
    cluster: str | None = None
    comparisons: int = 1
    function: Callable[[float], float] | None = None
    note: PairNote = None
    against: str | None = None

    def __call__(self, evidence: Evidence) -> Measured | NotRun:
        """Compute the comparison from the runs."""
        return self.of(*self.sides(evidence))

    def sides(self, evidence: Evidence) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows of both sets."""
        return self.treated(evidence.table), self.baseline(evidence.table)

    def of(
        self, treated: pd.DataFrame, baseline: pd.DataFrame, note: str | None = None
    ) -> Measured | NotRun:
        """Compute the comparison from the rows of both sets."""
        if self.by != "ratio":
            found = difference(treated, baseline, self.column, keys=self.keys, by=self.by)
        else:
            found = quotient(
                treated,
                baseline,
                self.column,
                keys=self.keys,
                cluster=self.cluster,
                comparisons=self.comparisons,
            )
        if found is None:
            return NotRun(self.reason(treated, baseline))
        own = self.note(treated, baseline) if callable(self.note) else self.note
        found = found if self.function is None else found.map(self.function)
        return result(found, treated, "", note or own)

    def reason(self, treated: pd.DataFrame, baseline: pd.DataFrame) -> str:
        """Return the reason to give if no block has both."""
        return self.why(treated, baseline) if callable(self.why) else self.why

    def widened(self, comparisons: int) -> Pair:
        """Return the comparison as one chosen from several; see `quotient`."""
        return replace(self, comparisons=comparisons)


@dataclass(frozen=True)
class Over:
    """A `Compute` from a pair at several values of a parameter; `against`: see `Pair`."""

    compute: Compute
    against: str | None

    def __call__(self, evidence: Evidence) -> Measured | NotRun:
        """Compute the claim from the runs."""
        return self.compute(evidence)


def mean_of(
    rows: Rows,
    column: str,
    why: str,
    *,
    factor: float = 1.0,
    blocks: bool = False,
    logarithmic: bool = False,
    of: Mean = mean,
    note: Note = None,
) -> Compute:
    """Compute the mean of a number over runs, times `factor`; `why` is the reason without a value.
    `blocks`: the mean of a block's rows counts once. `logarithmic`: the geometric mean, of positive
    values. `of`: the mean and its interval."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        counted = by_block(found, column) if blocks else found
        one = geometric(counted, column) if logarithmic else average(counted, column, factor, of)
        return result(one, found, why, note)

    return compute


@dataclass(frozen=True)
class ShareOf:
    """A `Compute`: the share of runs for which a condition holds, with the exact binomial interval;
    the note counts them. `why` is the reason without a run."""

    rows: Rows
    holds: Callable[[pd.DataFrame], pd.Series]
    why: str
    unit: str = "runs"

    def __call__(self, evidence: Evidence) -> Measured | NotRun:
        """Compute the share from the runs."""
        found = self.rows(evidence.table)
        if found.empty:
            return NotRun(self.why)
        met = self.holds(found).astype(bool)
        note = f"{int(met.sum())} of {len(found)} {self.unit}"
        looks = int(found["looks"].max()) if "looks" in found.columns else 1
        return result(share(met.tolist(), looks), found, self.why, note)


def ends(
    rows: Rows,
    parameter: str,
    column: str,
    why: str,
    *,
    before: bool = False,
    wanted: Callable[[Any], bool] = lambda value: True,
    keys: tuple[str, ...] = BLOCK,
) -> Compute:
    """Compute a number at a parameter's largest value over the number at its smallest value, or
    with `before` at the value before the largest. `why` is the reason with fewer than two of the
    `wanted` values; `keys`: see `quotient`."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = rows(evidence.table)
        there = [value for value in values_of(found, parameter) if wanted(value)]
        if len(there) < 2:
            return NotRun(why)
        first, last = there[-2 if before else 0], there[-1]
        low, high = (found[found[parameter] == value] for value in (first, last))
        estimate = quotient(high, low, column, keys=keys)
        return result(estimate, found, why, f"{parameter} {last:g} over {first:g}")

    return compute


def extreme(
    options: Sequence[tuple[str, Compute]], which: Choice, *, complete: bool = False
) -> Compute:
    """Compute the ratio of several named options that a claim about all of them depends on. The
    interval of a `Pair` is widened by the number of options. The note names the choice, and lists
    all options. `complete`: a missing option leaves the claim without support."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        made = [
            (name, (one.widened(len(options)) if isinstance(one, Pair) else one)(evidence))
            for name, one in options
        ]
        found = {name: one for name, one in made if isinstance(one, Measured)}
        missing = [one for _, one in made if isinstance(one, NotRun)]
        if missing and (complete or not found):
            return NotRun(NOTE_SEPARATOR.join(dict.fromkeys(one.why for one in missing)))
        return _chosen(found, which, _named)

    return compute


def extreme_over(
    pair: Pair,
    parameter: str,
    which: Choice,
    *,
    wanted: Callable[[Any], bool] = lambda value: True,
    last: int | None = None,
    order: Callable[[pd.DataFrame], list[Any]] | None = None,
    intervals: bool = False,
    text: Callable[[Any], str] = lambda value: f"{value:g}",
) -> Compute:
    """Compute the extreme of a pair's ratios at each value of a parameter that both sides have; the
    interval is widened by the number of values. "Up to" is the extreme on the claim's side,
    "whatever the value" the extreme on the other side. `wanted`: values that count, `last`: only so
    many of the largest, `order`: the values of rows in another order than the ascending one.
    `intervals` prefers values with an interval; `text` formats a value for the note."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = pair.sides(evidence)
        have = set(values_of(bottom, parameter))
        known = values_of(top, parameter) if order is None else order(top)
        there = [value for value in known if value in have and wanted(value)]
        there = there if last is None else there[-last:]
        wide = pair.widened(max(1, len(there)))
        made = {
            value: wide.of(top[top[parameter] == value], bottom[bottom[parameter] == value])
            for value in there
        }
        found = {text(at): one for at, one in made.items() if isinstance(one, Measured)}
        if intervals:
            found = {at: one for at, one in found.items() if one.estimate.n > 1} or found
        if not found:
            return NotRun(pair.reason(top, bottom))
        return _chosen(found, which, lambda at: f"at {parameter} {at}")

    return Over(compute, pair.against)


def mean_over(
    pair: Pair,
    parameter: str,
    *,
    wanted: Callable[[Any], bool] = lambda value: True,
    text: Callable[[Any], str] = lambda value: f"{value:g}",
) -> Compute:
    """Compute a pair over all values of a parameter that both sides have; the note lists the ratio
    at each. The pair's keys contain the parameter, and its `cluster` names the block."""

    def compute(evidence: Evidence) -> Measured | NotRun:
        top, bottom = pair.sides(evidence)
        have = set(values_of(bottom, parameter))
        there = [value for value in values_of(top, parameter) if value in have and wanted(value)]
        top, bottom = (rows[rows[parameter].isin(there)] for rows in (top, bottom))
        each = {
            text(value): pair.of(top[top[parameter] == value], bottom[bottom[parameter] == value])
            for value in there
        }
        found = {at: one for at, one in each.items() if isinstance(one, Measured)}
        return pair.of(top, bottom, f"mean over {parameter}: {_listed(found)}")

    return Over(compute, pair.against)


def _chosen(
    found: Mapping[str, Measured], which: Choice, place: Callable[[str], str]
) -> Measured | NotRun:
    """Return the extreme of named ratios, with a note on the choice."""

    def rank(name: str) -> float:
        value = found[name].estimate.value
        return abs(math.log(value)) if which == "farthest" else value

    name = (min if which == "least" else max)(found, key=rank)
    best = found[name]
    note = f"{which} of {len(found)}, {place(name)}; {_listed(found)}"
    return replace(best, note=f"{note}; {best.note}" if best.note else note)


def _named(name: str) -> str:
    return f"of {name}"


def _listed(found: Mapping[str, Measured]) -> str:
    return ", ".join(f"{name}: {one.estimate.value:.3g}" for name, one in found.items())
