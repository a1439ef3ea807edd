"""Random effects: pooling of an effect over settings that may differ in it, such as disk shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import t as student


@dataclass(frozen=True)
class Pooled:
    """Pooled mean with its 95 % interval (NaN for a single setting), and the standard deviation of
    the true effects between settings."""

    mean: float
    low: float
    high: float
    between: float


def random_effects(settings: Sequence[Sequence[float]]) -> Pooled:
    """Pool observations by setting, each with at least one.

    The variance within settings is taken as equal, because two or three blocks do not tell it. The
    one between settings is DerSimonian and Laird's (1986). The interval is Hartung and Knapp's
    (2001) with t of k - 1 degrees of freedom, never narrower than the plain one (Knapp and Hartung,
    2003)."""
    means = [fmean(values) for values in settings]
    k = len(means)
    spare = sum(len(values) for values in settings) - k
    squares = sum(
        (value - mean) ** 2
        for values, mean in zip(settings, means, strict=True)
        for value in values
    )
    within = squares / spare if spare else 0.0
    if k == 1 or len(set(means)) == 1:
        return Pooled(means[0], math.nan, math.nan, math.nan if k == 1 else 0.0)
    if within == 0.0:  # nothing to weigh by
        between = sum((mean - fmean(means)) ** 2 for mean in means) / (k - 1)
        weights = [1 / between] * k
    else:
        fixed = [len(values) / within for values in settings]
        between = _between(means, fixed)
        weights = [1 / (1 / weight + between) for weight in fixed]
    total = sum(weights)
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    spread = sum(w * (m - mean) ** 2 for w, m in zip(weights, means, strict=True)) / (k - 1)
    half = float(student.ppf(0.975, k - 1)) * math.sqrt(max(1.0, spread) / total)
    return Pooled(mean, mean - half, mean + half, math.sqrt(between))


def _between(means: Sequence[float], weights: Sequence[float]) -> float:
    """Return DerSimonian and Laird's variance between settings, 0 if they differ by chance."""
    total = sum(weights)
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    q = sum(w * (m - mean) ** 2 for w, m in zip(weights, means, strict=True))
    return max(0.0, (q - len(means) + 1) / (total - sum(w * w for w in weights) / total))
