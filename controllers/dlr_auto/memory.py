"""A fading histogram of pressures and its split into a low and a high cluster.

The split is Otsu's (IEEE Trans. SMC 9(1), 1979): the threshold that maximises the variance between
the two classes. Its ratio to the total variance shows, on any scale, if there are two clusters. The
ratio is 0.75 for one uniform block of values and 0.64 for one normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BINS = 50
_WIDTH = 100 / BINS


@dataclass(frozen=True)
class Split:
    """Two clusters of pressure, percent. `separation` is 0 (none) to 1 (two points)."""

    low: float  # mean of the lower cluster
    high: float  # mean of the upper cluster
    low_sd: float
    high_sd: float
    separation: float


def remember(memory: Sequence[float], pressures: Iterable[float], fade: float) -> list[float]:
    """Return the histogram after one more interval, which weighs 1 - fade; old weights fade."""
    values = list(pressures)
    after = [fade * weight for weight in memory]
    for value in values:
        after[min(BINS - 1, max(0, int(value / _WIDTH)))] += (1 - fade) / len(values)
    return after


def split(memory: Sequence[float]) -> Split | None:
    """Return the best split; None while all values are in one bin."""
    centres = [(index + 0.5) * _WIDTH for index in range(len(memory))]
    filled = [index for index, weight in enumerate(memory) if weight > 1e-9]
    if len(filled) < 2:
        return None
    best: tuple[float, int] | None = None
    for cut in filled[:-1]:
        w_low, m_low, _ = _moments(memory[: cut + 1], centres[: cut + 1])
        w_high, m_high, _ = _moments(memory[cut + 1 :], centres[cut + 1 :])
        between = w_low * w_high * (m_high - m_low) ** 2
        if best is None or between > best[0]:
            best = (between, cut)
    assert best is not None
    cut = best[1]
    w_low, low, low_var = _moments(memory[: cut + 1], centres[: cut + 1])
    w_high, high, high_var = _moments(memory[cut + 1 :], centres[cut + 1 :])
    weight = w_low + w_high
    between = w_low * w_high / weight**2 * (high - low) ** 2
    within = (w_low * low_var + w_high * high_var) / weight
    separation = between / (between + within)
    return Split(low, high, low_var**0.5, high_var**0.5, separation)


def _moments(weights: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Return the total weight, the mean and the variance.

    `math.fsum` rounds alike everywhere, `sum` does not: Python 3.12 changed it for floats, and
    nodes may have another Python than the machine that repeats their decisions."""
    total = math.fsum(weights)
    mean = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / total
    variance = math.fsum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) / total
    return total, mean, max(0.0, variance)
