"""Statistics of paired comparisons. n counts runs, never seconds or requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.precision import t_half_width


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval over `n` runs (or pairs of runs).

    `low` and `high` are NaN when n < 2: one run has no interval.
    """

    value: float
    low: float
    high: float
    n: int

    def map(self, function: object) -> Estimate:
        """Return the estimate after a monotone transformation of value and limits."""
        assert callable(function)
        ends = sorted((float(function(self.low)), float(function(self.high))))
        return Estimate(float(function(self.value)), ends[0], ends[1], self.n)

    @property
    def error(self) -> tuple[float, float]:
        """Distances from the value to the limits, for error bars. NaN (no bar) if there is no
        interval or its width is zero (runs that do not differ)."""
        if not self.low < self.high:
            return (math.nan, math.nan)
        return (self.value - self.low, self.high - self.value)


def counts(found: Iterable[Estimate]) -> str:
    """Format the number of runs behind several estimates: ``n = 3``, or ``n = 2 to 3``."""
    many = sorted({one.n for one in found}) or [0]
    return f"n = {many[0]}" if many[0] == many[-1] else f"n = {many[0]} to {many[-1]}"


def _t_interval(
    values: npt.NDArray[np.float64],
    confidence: float = 0.95,
    first: npt.NDArray[np.float64] | None = None,
) -> tuple[float, float, float]:
    mean, half = float(values.mean()), t_half_width(values, confidence, first)
    return mean, mean - half, mean + half


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of runs with a t interval; raise ValueError without values."""
    if not len(values):
        raise ValueError("a mean needs at least one run")
    centre, low, high = _t_interval(np.asarray(values, dtype=float))
    return Estimate(centre, low, high, len(values))


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
    level = 1 - (1 - 0.95) / comparisons
    logs = np.log(top / bottom)
    stage = None if first is None else logs[np.asarray(first, dtype=bool)]
    return Estimate(*_t_interval(logs, level, stage), n=len(top)).map(math.exp)


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
    half = float(stats.norm.ppf(0.975)) * math.sqrt(1.06 / (n - fitted - 3))
    return Estimate(rho, math.tanh(z - half), math.tanh(z + half), n)
