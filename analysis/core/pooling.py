"""Random effects: pooling of an effect over settings that may differ in it, such as disk shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from schemas.random_effects import mean_and_between


@dataclass(frozen=True)
class Pooled:
    """Mean pooled over `settings`, its standard error (NaN if unknown), and the standard deviation
    of the true effects between settings."""

    mean: float
    error: float
    between: float
    settings: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval, by t with one degree of freedom less than settings; NaN if it is
        unknown."""
        from scipy.stats import t

        if self.settings < 2:
            return math.nan, math.nan
        half = float(t.ppf((1 + confidence) / 2, self.settings - 1)) * self.error
        return self.mean - half, self.mean + half


TINY = 1e-200
"""Squares below are zero: the reciprocal of a smaller number may have no value."""


def random_effects(settings: Sequence[Sequence[float]]) -> Pooled:
    """Pool observations by setting, each with at least one.

    The variance within settings is taken as equal, because two or three blocks do not show it. The
    one between settings is DerSimonian and Laird's (1986). The standard error is Hartung and
    Knapp's (2001), never smaller than the plain one (Knapp and Hartung, 2003)."""
    means = [fmean(values) for values in settings]
    k = len(means)
    if k == 1 or len(set(means)) == 1:
        return Pooled(means[0], math.nan, math.nan if k == 1 else 0.0, k)
    spare = sum(len(values) for values in settings) - k
    squares = sum((value - fmean(values)) ** 2 for values in settings for value in values)
    if squares < TINY:  # nothing to weigh by
        between = sum((mean - fmean(means)) ** 2 for mean in means) / (k - 1)
        if between < TINY:
            return Pooled(means[0], math.nan, 0.0, k)
        weights = [1 / between] * k
    else:
        fixed = [len(values) * spare / squares for values in settings]
        _, between = mean_and_between(means, fixed)
        weights = [1 / (1 / weight + between) for weight in fixed]
    total = sum(weights)
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    spread = sum(w * (m - mean) ** 2 for w, m in zip(weights, means, strict=True)) / (k - 1)
    return Pooled(mean, math.sqrt(max(1.0, spread) / total), math.sqrt(between), k)
