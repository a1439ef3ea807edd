"""Differences between settings that measure one quantity: by chance, or beyond it.

Standard library only: controllers on the admin node import this file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_and_between(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Return the weighted mean, and DerSimonian and Laird's (1986) variance of the true values.

    `weights`: for each value, the reciprocal of the variance that it has by chance. The variance
    between settings is 0 if chance explains the differences, or if there is a single value.
    """
    total = math.fsum(weights)
    pairs = list(zip(values, weights, strict=True))
    mean = math.fsum(weight * value for value, weight in pairs) / total
    spread = math.fsum(weight * (value - mean) ** 2 for value, weight in pairs)
    scale = total - math.fsum(weight * weight for weight in weights) / total
    return mean, max(0.0, (spread - (len(pairs) - 1)) / scale) if scale > 0 else 0.0
