"""Choice of token buckets to enforce, of all on the border of the r-b curve (section 3.2).

A workload's exact arrival curve is the least of ``r * t + b(r)`` over all rates from its mean rate
up. A few buckets are above it: the error is reported, and is the least for that many buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.jit import njit
from controllers.prioritymeister.curve import RbCurve
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

BUCKETS = 8
_HALVINGS = 60


@dataclass(frozen=True)
class Limiters:
    """Token buckets, fastest first: `rates` and `bursts` [m].

    They let at most ``1 + error`` times the exact arrival curve arrive, for any length of time.
    """

    rates: Floats
    bursts: Floats
    error: float


def choose(curve: RbCurve, count: int = BUCKETS, mean_rate: float | None = None) -> Limiters:
    """Choose at most `count` buckets that never hinder the trace, with the least possible error.

    The slowest has the mean rate: a slower bucket would hold back a workload that continues as in
    its trace, a faster one would reserve more than needed.

    Args:
        curve: the trace's curve.
        count: 1 or more.
        mean_rate: work per second to be sustained; by default total work by the trace's length.

    Raises:
        UserError: all requests come at one instant, and no `mean_rate` is given.
    """
    sustained = curve.mean_rate if mean_rate is None else mean_rate
    if not np.isfinite(sustained):
        raise UserError(
            "the trace's requests all come at one instant, so that it has no rate",
            do="say how long the trace stands for",
        )
    rates, bursts = curve.corners()
    keep = rates > sustained
    lines_r = np.append(rates[keep][::-1], sustained)
    lines_b = np.append(bursts[keep][::-1], curve.burst(sustained))
    chosen, error = _fewest(lines_r, lines_b, float(curve.work[0]), count)
    return Limiters(lines_r[chosen], lines_b[chosen], error)


@njit
def _excess(rates: Floats, bursts: Floats, x: Floats, i: int, j: int) -> float:
    """Return the excess of lines i < j over all lines i to j, at the worst place, as a share."""
    if j <= i + 1:
        return 0.0
    meet = (bursts[j] - bursts[i]) / (rates[i] - rates[j])
    k = i + np.searchsorted(x[i:j], meet)  # x[k - 1] < meet <= x[k]: line k is least there
    return (rates[i] * meet + bursts[i]) / (rates[k] * meet + bursts[k]) - 1.0  # type: ignore[no-any-return]


@njit
def _cover(
    rates: Floats, bursts: Floats, x: Floats, instant: float, allowed: float, chosen: Indices
) -> int:
    """Return the number of lines for this error, from the slowest up; fills `chosen`."""
    j = len(rates) - 1
    chosen[0] = j
    size = 1
    while j > 0 and bursts[j] > instant * (1 + allowed):
        low, high = 0, j - 1  # the excess grows with the distance from j
        while low < high:
            middle = (low + high) // 2
            if _excess(rates, bursts, x, middle, j) <= allowed:
                high = middle
            else:
                low = middle + 1
        j = low
        chosen[size] = j
        size += 1
    return size


@njit
def _fewest(rates: Floats, bursts: Floats, instant: float, count: int) -> tuple[Indices, float]:
    """Return the indices of at most `count` lines, fastest first, and their error."""
    n = len(rates)
    chosen = np.empty(n + 1, np.int64)
    x = (bursts[1:] - bursts[:-1]) / (rates[:-1] - rates[1:])
    high = 0.0
    if _cover(rates, bursts, x, instant, high, chosen) > count:
        low, high = 0.0, (bursts[-1] / instant - 1) * (1 + 1e-9)  # the slowest alone reaches it
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if _cover(rates, bursts, x, instant, middle, chosen) <= count:
                high = middle
            else:
                low = middle
    size = _cover(rates, bursts, x, instant, high, chosen)
    kept = chosen[:size][::-1].copy()
    error = max(0.0, bursts[kept[0]] / instant - 1)
    for k in range(size - 1):
        error = max(error, _excess(rates, bursts, x, kept[k], kept[k + 1]))
    return kept, error
