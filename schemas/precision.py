"""Stopping rules of a grid that asks for precision. The engine and analysis use the same functions.

A ratio of two controllers follows Stein's two-stage rule (Annals of Mathematical Statistics 16,
1945). The first stage of n0 blocks gives the standard deviation s of the paired log-ratios. With t
the 97.5 % quantile for n0 - 1 degrees of freedom, the rule plans n = (t s / d)^2 blocks, rounded up
and at least n0, and the interval of the mean over all n blocks is +- t s / sqrt(n). For normal
errors it covers with exactly 95 %, whatever the true deviation and also if a budget cuts n short: n
depends on s alone, and s is independent of the mean.

A share is looked at after n0, 2 n0, 4 n0, ... blocks and after the last allowed one. The exact
binomial interval of each look has an error of 5 % over the number of looks. So the interval covers
with at least 95 %, whichever look is the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from schemas.model import Model
from schemas.run import OpSummary, Summary

Rule = Literal["two-stage", "looks"]
Why = Literal["blocks to run", "narrow enough", "budget spent"]


@dataclass(frozen=True)
class Statistic:
    """Statistic of a claim, for a grid that asks for the claim's precision.

    Attributes:
        rule: the claim's stopping rule.
        by_block: returns the log-ratio, or 1 or 0, of every block that has one, from a campaign's
            folder and the ids of the grid's runs.
    """

    rule: Rule
    by_block: Callable[[Path, Collection[str]], Mapping[int, float]]


class Reached(Model):
    """Decision of a rule on the blocks of a grid, kept in ``campaign.json``. The estimate is a mean
    log-ratio or a share; it is None without an interval.

    Attributes:
        first_stage: blocks of the first stage.
        looks: number of declared looks; the interval's error is 5 % over it.
        most: largest number of blocks that the budget allows.
        blocks: blocks that the rule asks for so far.
        n: blocks among them with both values, or with the share's value.
        half_width: of the interval.
    """

    grid: str = ""
    rule: Rule
    first_stage: int
    looks: int = 1
    most: int
    blocks: int
    n: int
    estimate: float | None = None
    half_width: float | None = None
    why: Why


def value_of(summary: Summary, metric: str, op: object = None) -> float | None:
    """Return a metric of a run: of the operation `op`, of the only operation, or an extra number.
    None if it is missing or the controller changed nothing."""
    if summary.inert:
        return None
    if metric not in OpSummary.model_fields:
        return summary.extra.get(metric)
    found = [one for one in summary.whole if one.op == op] or summary.whole
    value = getattr(found[0], metric) if len(found) == 1 else None
    return float(value) if isinstance(value, int | float) else None


def quantile(n: int, confidence: float = 0.95) -> float:
    """Return the two-sided quantile of Student's t for `n` values, at least two."""
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    return float(stdtrit(n - 1, 0.5 + confidence / 2))


def t_half_width(
    values: npt.NDArray[np.float64],
    confidence: float = 0.95,
    first: npt.NDArray[np.float64] | None = None,
) -> float:
    """Return half the width of the t interval of a mean, NaN without two values. `first`: the
    values of the first stage, if their variance decided how many values there are."""
    spread = values if first is None else first
    if len(spread) < 2:
        return math.nan
    deviation = float(spread.std(ddof=1))
    return float(stein_half_width(deviation, len(spread), len(values), confidence))


def binomial_interval(hits: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval (Clopper and Pearson, 1934) of a share after `hits` of `n`."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return low, high


def stein_blocks(
    deviation: npt.ArrayLike, first: int, half_width: float, most: int
) -> npt.NDArray[np.int64]:
    """Return the blocks of Stein's rule for standard deviations in first stages of `first`."""
    wanted = np.ceil((quantile(first) * np.asarray(deviation) / half_width) ** 2)
    return np.clip(wanted, first, max(most, first)).astype(np.int64)


def blocks_for(deviation: float, half_width: float) -> int:
    """Return the smallest number of blocks with a t interval of their mean that is as narrow, for a
    known standard deviation; at least two."""
    n = max(2, int((1.95 * deviation / half_width) ** 2))
    while quantile(n) * deviation > half_width * math.sqrt(n):
        n += 1
    return n


def stein_half_width(
    deviation: npt.ArrayLike, first: int, blocks: npt.ArrayLike, confidence: float = 0.95
) -> npt.NDArray[np.float64]:
    """Return half the width of the interval of a mean over `blocks`, for standard deviations in
    first stages of `first`. With no more blocks it is the ordinary t interval."""
    found = quantile(first, confidence) * np.asarray(deviation) / np.sqrt(np.asarray(blocks))
    return np.asarray(found, dtype=np.float64)


def declared_looks(first: int, most: int) -> tuple[int, ...]:
    """Return the numbers of blocks after which a share is looked at."""
    found = [first]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return tuple(found)


def two_stage(values: Sequence[float | None], first: int, half_width: float, most: int) -> Reached:
    """Decide on log-ratios by block, None for a block that is not whole."""
    known = [value for value in values[:first] if value is not None]
    if len(known) < first:
        return Reached(
            rule="two-stage",
            first_stage=first,
            most=most,
            blocks=first,
            n=len(known),
            why="blocks to run",
        )
    stage = np.array(known)
    blocks = int(stein_blocks(stage.std(ddof=1), first, half_width, most))
    there = np.array([value for value in values[:blocks] if value is not None])
    half = t_half_width(there, first=stage)
    return Reached(
        rule="two-stage",
        first_stage=first,
        most=most,
        blocks=blocks,
        n=len(there),
        estimate=float(there.mean()),
        half_width=half,
        why=_why(half <= half_width, len(there) >= blocks),
    )


def share(values: Sequence[float | None], first: int, half_width: float, most: int) -> Reached:
    """Decide on blocks that hold (1) or do not (0), None for a block that is not whole."""
    looks = declared_looks(first, most)
    for blocks in looks:
        there = [value for value in values[:blocks] if value is not None]
        whole = len(there) == blocks
        hits, n = round(sum(there)), len(there)
        low, high = binomial_interval(hits, n, 1 - 0.05 / len(looks)) if n else (0.0, 1.0)
        half = (high - low) / 2
        if half <= half_width or not whole:
            break
    return Reached(
        rule="looks",
        first_stage=first,
        looks=len(looks),
        most=most,
        blocks=blocks,
        n=n,
        estimate=hits / n if n else None,
        half_width=half if n else None,
        why=_why(whole and half <= half_width, whole),
    )


def _why(narrow: bool, whole: bool) -> Why:
    if narrow:
        return "narrow enough"
    return "budget spent" if whole else "blocks to run"
