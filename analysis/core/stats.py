"""Statistics of paired comparisons. n counts runs, never seconds or requests.

An interval fits its quantity. It never leaves the range of the quantity and never has zero width:
runs that agree exactly have an exact interval if they are shares, else none (see
`analysis.core.claims` for the effect of such runs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from schemas.precision import binomial_interval, t_half_width

Interval = tuple[float, float]
Limits = Callable[[float], Interval]
"""Function from a level of confidence to the limits of an interval."""

CONFIDENCE = 0.95


def unknown(confidence: float) -> Interval:
    """Return the limits of an estimate without an interval."""
    return math.nan, math.nan


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval over `n` runs (or pairs of runs).

    `low` and `high` are NaN without an interval: n < 2, or runs that agree exactly. `runs` has the
    value of each run or pair, if the estimate is computed from them. `limits` returns the interval
    at another level of confidence.
    """

    value: float
    low: float
    high: float
    n: int
    runs: tuple[float, ...] = ()
    limits: Limits | None = field(default=None, compare=False, repr=False)

    def map(self, function: Callable[[float], float]) -> Estimate:
        """Return the estimate after a monotone transformation of value and limits."""

        def ends(low: float, high: float) -> Interval:
            first, last = sorted((float(function(low)), float(function(high))))
            return first, last

        limits = self.limits
        return Estimate(
            float(function(self.value)),
            *ends(self.low, self.high),
            n=self.n,
            runs=tuple(float(function(value)) for value in self.runs),
            limits=None if limits is None else lambda confidence: ends(*limits(confidence)),
        )

    def at(self, confidence: float) -> Interval:
        """Return the interval at a level of confidence."""
        if self.limits is None:
            assert confidence == CONFIDENCE, "an estimate without a method has one interval"
            return self.low, self.high
        return self.limits(confidence)

    @property
    def agreed(self) -> bool:
        """True if several runs agree exactly, so that their spread gives no interval."""
        return len(self.runs) > 1 and (math.isnan(self.low) or _same(self.runs))

    @property
    def error(self) -> tuple[float, float]:
        """Distances from the value to the limits, for error bars. NaN (no bar) if there is no
        interval."""
        if not self.low < self.high:
            return (math.nan, math.nan)
        return (self.value - self.low, self.high - self.value)


def _same(values: Sequence[float]) -> bool:
    """Return True if values differ by no more than the last digits."""
    return max(values) - min(values) <= 1e-12 * max(abs(value) for value in values)


def estimated(
    value: float, limits: Limits, runs: Sequence[float], n: int | None = None
) -> Estimate:
    """Return the estimate with the interval that `limits` gives."""
    low, high = limits(CONFIDENCE)
    count = len(runs) if n is None else n
    return Estimate(value, low, high, count, tuple(map(float, runs)), limits)


def range_text(numbers: Iterable[int]) -> str:
    """Format numbers of runs: ``n = 3``, or ``n = 2 to 3``."""
    many = sorted(numbers) or [0]
    return f"n = {many[0]}" if many[0] == many[-1] else f"n = {many[0]} to {many[-1]}"


def counts(found: Iterable[Estimate]) -> str:
    """Format the number of runs behind several estimates; see `range_text`."""
    return range_text(one.n for one in found)


def _t_limits(
    values: npt.NDArray[np.float64],
    scale: float = 1.0,
    *,
    alike: bool | None = None,
    first: npt.NDArray[np.float64] | None = None,
) -> Limits:
    """Return the half-width of a t interval around 0, times `scale`; NaN if the values agree
    (`alike`: True if they do on another scale). `first`: see `schemas.precision.t_half_width`."""
    if len(values) < 2 or (_same(values.tolist()) if alike is None else alike):
        return unknown

    def limits(confidence: float) -> Interval:
        half = scale * t_half_width(values, confidence, first)
        return -half, half

    return limits


def _around(centre: float, limits: Limits, back: Callable[[float], float] = float) -> Limits:
    """Return limits around a centre, transformed back from the scale of the interval."""

    def moved(confidence: float) -> Interval:
        low, high = limits(confidence)
        return back(centre + low), back(centre + high)

    return moved


def _filled(values: Sequence[float]) -> npt.NDArray[np.float64]:
    if not len(values):
        raise ValueError("a mean needs at least one run")
    return np.asarray(values, dtype=float)


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of runs with a t interval; raise ValueError without values."""
    found = _filled(values)
    centre = float(found.mean())
    return estimated(centre, _around(centre, _t_limits(found)), values)


def amount(values: Sequence[float]) -> Estimate:
    """Return the mean of runs of a quantity that is not negative (seconds, counts), with a t
    interval on the logarithmic scale (delta method), which stays above 0. ValueError: no value, or
    a negative one."""
    found = _filled(values)
    if (found < 0).any():
        raise ValueError("an amount is not negative")
    centre = float(found.mean())
    if not centre:
        return estimated(0.0, unknown, values)
    return estimated(
        centre, _around(math.log(centre), _t_limits(found, 1 / centre), _exponential), values
    )


def _exponential(value: float) -> float:
    return math.exp(max(min(value, 700.0), -700.0)) if not math.isnan(value) else value


def binomial(successes: float, n: int, looks: int = 1) -> Limits:
    """Return the exact limits of a share (Clopper and Pearson 1934), one of several declared
    `looks` at it. `successes` need not be whole: see `fraction`."""
    return lambda confidence: binomial_interval(successes, n, 1 - (1 - confidence) / looks)


def share(outcomes: Sequence[bool], looks: int = 1) -> Estimate:
    """Return the share of runs for which a statement holds, with the exact binomial interval (of
    one of several declared `looks`); raise ValueError without runs."""
    found = _filled([float(one) for one in outcomes])
    limits = binomial(float(found.sum()), len(found), looks)
    return estimated(float(found.mean()), limits, tuple(found))


def fraction(values: Sequence[float]) -> Estimate:
    """Return the mean of fractions, one in [0, 1] a run, with an interval in [0, 1].

    The interval is a t interval on the logit scale (delta method; Agresti, Categorical Data
    Analysis, section 3.1). If all runs agree, or each is 0 or 1, it is that of Clopper and Pearson
    with n * mean successes in n: no variable in [0, 1] varies more than an all-or-nothing one of
    the same mean. ValueError: no value, or one outside of [0, 1]."""
    found = _filled(values)
    if found.min() < -1e-9 or found.max() > 1 + 1e-9:
        raise ValueError("a fraction is in [0, 1]")
    found = found.clip(0.0, 1.0)  # the last digits of a sum
    centre, n = float(found.mean()), len(found)
    if np.isin(found, (0.0, 1.0)).all() or _same(found.tolist()):
        limits = binomial(n * centre, n) if n > 1 else unknown
        return estimated(centre, limits, found.tolist())
    around = _t_limits(found, 1 / (centre * (1 - centre)))
    return estimated(
        centre, _around(math.log(centre / (1 - centre)), around, _logistic), found.tolist()
    )


def _logistic(value: float) -> float:
    return 1 / (1 + _exponential(-value))


def change(differences: Sequence[float]) -> Estimate:
    """Return the mean of differences of fractions, one in [-1, 1] a block, with the interval of
    `fraction` for their place between -1 and 1."""
    return fraction([(one + 1) / 2 for one in differences]).map(lambda place: 2 * place - 1)


def sign(treated: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """Return the share of blocks in which the treated value is larger, among those that differ: the
    exact sign test of paired outcomes (McNemar's exact test for all-or-nothing outcomes). The
    share is 1/2 with the interval [0, 1] if no block differs. Six blocks that differ in the same
    way exclude 1/2. n counts all blocks. ValueError: no pair, or unequal lengths."""
    pairs = list(zip(treated, baseline, strict=True))
    if not pairs:
        raise ValueError("a sign test needs at least one pair")
    larger = [float(one > other) for one, other in pairs if one != other]
    value = sum(larger) / len(larger) if larger else 0.5
    limits = binomial(sum(larger), len(larger)) if larger else lambda confidence: (0.0, 1.0)
    return estimated(value, limits, larger, len(pairs))


def ratio(
    treated: Sequence[float],
    baseline: Sequence[float],
    *,
    comparisons: int = 1,
    first: Sequence[bool] | None = None,
) -> Estimate:
    """Return the geometric mean of treated/baseline over pairs, with a t interval on log-ratios.

    Args:
        treated: one positive value per block.
        baseline: the same blocks' values, in the same order.
        comparisons: number of comparisons that the reported one was chosen from ("up to"): the
            interval is widened by Bonferroni.
        first: True for each pair of the first stage, if its variance decided how many pairs there
            are (`schemas.precision`); the interval then uses the variance of these pairs.

    Raises:
        ValueError: no pair, unequal lengths or a value that is not positive.
    """
    if len(treated) != len(baseline) or not len(treated):
        raise ValueError("a paired ratio needs as many treated as baseline runs, at least one")
    top, bottom = np.asarray(treated, dtype=float), np.asarray(baseline, dtype=float)
    if not (np.all(top > 0) and np.all(bottom > 0)):
        raise ValueError("a ratio of runs needs positive values")
    logs = np.log(top / bottom)
    stage = None if first is None else logs[np.asarray(first, dtype=bool)]
    alike = _same((top / bottom).tolist())
    centre, around = float(logs.mean()), _t_limits(logs, alike=alike, first=stage)

    def limits(confidence: float) -> Interval:
        low, high = around(1 - (1 - confidence) / comparisons)
        return centre + low, centre + high

    return estimated(centre, limits, tuple(logs)).map(_exponential)


def correlation(x: Sequence[float], y: Sequence[float], *, fitted: int = 0) -> Estimate:
    """Return Spearman's rank correlation with Fisher's interval (variance 1.06 / (n - 3)).

    `fitted` values (block means but one) were removed from the runs before: n shrinks by `fitted`.
    ValueError: fewer than four runs are left, or `x` and `y` differ in length."""
    from scipy import stats  # here: slow to import, and few reports have a correlation

    n = len(x)
    if n - fitted < 4 or len(y) != n:
        raise ValueError("a rank correlation with an interval needs at least four runs")
    rho = float(stats.spearmanr(x, y).statistic)
    z = math.atanh(min(max(rho, -0.999999), 0.999999))

    def limits(confidence: float) -> Interval:
        half = float(stats.norm.ppf(0.5 + confidence / 2)) * math.sqrt(1.06 / (n - fitted - 3))
        return min(rho, math.tanh(z - half)), max(rho, math.tanh(z + half))

    return estimated(rho, limits, (), n)


def p_value(estimate: Estimate, decides: Callable[[Interval], bool]) -> float:
    """Return the smallest error rate at which the estimate's interval still decides a question; 1
    if no interval decides it. `decides` holds for every part of an interval for which it holds."""
    if not decides(estimate.at(CONFIDENCE)):
        return 1.0
    if estimate.limits is None:
        return 1 - CONFIDENCE
    low, high = -12.0, math.log10(1 - CONFIDENCE)  # powers of ten
    for _ in range(40):
        middle = (low + high) / 2
        if decides(estimate.at(1 - 10**middle)):
            high = middle
        else:
            low = middle
    return float(10**high)


def holm(p_values: Sequence[float], error: float = 1 - CONFIDENCE) -> list[bool]:
    """Return True for each hypothesis that Holm's step-down procedure (1979) rejects, so that the
    chance of one wrong rejection in the family is at most `error`."""
    rejected = [False] * len(p_values)
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > error / (len(p_values) - place):
            break
        rejected[index] = True
    return rejected
