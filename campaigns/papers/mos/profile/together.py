"""Joint fit of all curves of a cospurf, for runs that several parts limit together.

`fit.fit_class` decides which part limits each run, and starts from the best measured rate of each
part. The decision can be wrong and stay wrong if no run lacks a single resource and machines vary
in speed from minute to minute. Real runs of proxies and storage servers with less than a core came
out at a fifth of the measured rates. Here no part is chosen: a run gets a smooth minimum of its
parts, and least squares finds the curves nearest to all runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SHARP = 12.0
"""Exponent of the smooth minimum (sum of x^-SHARP)^(-1/SHARP): two equal parts give 0.94 of one."""
BELIEF = 0.01
"""Weight of a curve weight `e` times that of the start, relative to a rate `e` times the measured
one. A part that limits no run stays where it was."""
LITTLE = 1e-3
"""Initial weight of a knot that does not yet bend the line, relative to the start's slope."""
STARTS = (1.0, 2.0)


def together(
    knots: Mapping[str, Array],
    amounts: Mapping[str, Array],
    slopes: Mapping[str, float],
    rates: Array,
    asked: Array,
) -> dict[str, Array]:
    """Return the values of each part's curve at its knots.

    Args:
        knots: [k] of each part, rising; the last one is its end.
        amounts: [runs] of each part, infinite where it was not a limit.
        slopes: initial requests a second per unit, of each part.
        rates: [runs], measured requests a second.
        asked: [runs], requests a second that its workers could send.
    """
    from scipy.optimize import least_squares

    names = list(knots)
    bases = [np.minimum(amounts[name][:, None], knots[name][None, :]) for name in names]
    ends = np.cumsum([0, *(len(knots[name]) for name in names)])

    def parts(logs: Array) -> Array:
        found = []
        for index, (name, basis) in enumerate(zip(names, bases, strict=True)):
            value = basis @ np.exp(logs[ends[index] : ends[index + 1]])
            found.append(np.where(np.isfinite(amounts[name]), value, np.inf))
        return np.array([*found, asked])

    def residuals(logs: Array, start: Array) -> Array:
        smooth = np.power(parts(logs), -SHARP).sum(axis=0) ** (-1 / SHARP)
        return np.concatenate([np.log(smooth / rates), BELIEF * (logs - start)])

    tried = []
    for factor in STARTS:
        start = np.log(np.concatenate([_line(len(knots[n]), factor * slopes[n]) for n in names]))
        tried.append(least_squares(residuals, start, args=(start,), loss="soft_l1", f_scale=0.2))
    best = min(tried, key=lambda found: float(found.cost)).x
    return {
        name: np.minimum(knots[name][:, None], knots[name][None, :])
        @ np.exp(best[ends[index] : ends[index + 1]])
        for index, name in enumerate(names)
    }


def error(predicted: Array, rates: Array) -> float:
    """Return the mean distance of predictions from rates, in logarithms."""
    return float(np.abs(np.log(predicted / rates)).mean())


def _line(count: int, slope: float) -> Sequence[float]:
    return [LITTLE * slope] * (count - 1) + [slope]
