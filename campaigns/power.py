"""The smallest effect that n paired runs resolve (design, Statistics)."""

from __future__ import annotations

import math

ASSUMED_VARIATION = 0.05
"""Standard deviation of a run's throughput over its mean, run to run."""


def smallest_effect(n: int, variation: float = ASSUMED_VARIATION) -> float | None:
    """Half the width of the 95 % t interval of the mean log-ratio of `n` pairs.

    Both members of a pair vary by `variation`, independently: a log-ratio has the standard
    deviation sqrt(2) times that. About 0.17 for n = 3, 0.07 for n = 6; None for n below 2.
    """
    if n < 2:
        return None
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    quantile = float(stdtrit(n - 1, 0.975))
    return quantile * math.sqrt(2) * variation / math.sqrt(n)


def sentence(n: int, variation: float = ASSUMED_VARIATION) -> str:
    """For people: what `n` blocks can and cannot show."""
    effect = smallest_effect(n, variation)
    if effect is None:
        return f"n = {n} gives no interval: no effect of any size can be shown"
    return (
        f"n = {n} resolves effects of about {100 * effect:.1f} % and more "
        f"(paired, at {100 * variation:.0f} % variation from run to run)"
    )
