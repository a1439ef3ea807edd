"""Stopping rules: coverage of their intervals over 10,000 simulated campaigns, and decisions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from schemas.precision import (
    binomial_interval,
    declared_looks,
    share,
    stein_blocks,
    stein_half_width,
    two_stage,
)

CAMPAIGNS, FIRST, MOST = 10_000, 5, 200
PAIRS = {
    "seq": [(184, 103), (184, 96), (161, 69), (167, 100)],
    "rand": [(190, 70), (187, 100), (133, 100), (174, 60), (150, 66)],
}
"""MB/s of dlr and default by block, figure 6: 30 cells of 17 s on the local site, 2026-11-25."""


def _residuals() -> np.ndarray:
    """Return the measured paired log-ratios of both operations with mean 0 and deviation 1."""
    logs = [np.log([one / other for one, other in pairs]) for pairs in PAIRS.values()]
    return np.concatenate([(each - each.mean()) / each.std() for each in logs])


def _coverage(errors: np.ndarray, half_width: float) -> float:
    """Return the share of simulated campaigns, one a row, with an interval that has 0 in it."""
    deviation = errors[:, :FIRST].std(axis=1, ddof=1)
    blocks = stein_blocks(deviation, FIRST, half_width, MOST)
    half = stein_half_width(deviation, FIRST, blocks)
    mean = np.cumsum(errors, axis=1)[np.arange(len(errors)), blocks - 1] / blocks
    for row in range(0, len(errors), 250):  # the engine's decision is the same
        values = errors[row].tolist()
        first = two_stage(values[:FIRST], FIRST, half_width, MOST)
        last = two_stage(values[: first.blocks], FIRST, half_width, MOST)
        assert first.blocks == last.blocks == last.n == blocks[row]
        assert last.half_width == pytest.approx(half[row])
        assert last.estimate == pytest.approx(mean[row])
        assert last.why == ("narrow enough" if half[row] <= half_width else "budget spent")
    return float((np.abs(mean) <= half).mean())


@pytest.mark.parametrize("deviation", [0.08, 0.15, 0.32])
def test_a_ratios_interval_covers_as_often_as_it_says(deviation):
    draw = np.random.default_rng(5)
    errors = deviation * draw.standard_normal((CAMPAIGNS, MOST))
    assert 0.94 <= _coverage(errors, math.log(1.1)) <= 0.96


@pytest.mark.parametrize("deviation", [0.08, 0.15, 0.32])
def test_a_ratios_interval_covers_measured_errors(deviation):
    draw = np.random.default_rng(6)
    errors = deviation * draw.choice(_residuals(), (CAMPAIGNS, MOST))
    assert _coverage(errors, math.log(1.1)) >= 0.93


@pytest.mark.parametrize("chance", [0.05, 0.3, 0.5, 0.69, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("half_width", [0.15, 0.25])
def test_a_shares_interval_covers_at_least_as_often_as_it_says(chance, half_width):
    draw = np.random.default_rng(7)
    most = 40
    hits = (draw.random((CAMPAIGNS, most)) < chance).astype(float)
    looks = declared_looks(FIRST, most)
    at = np.cumsum(hits, axis=1)[:, np.array(looks) - 1]
    covered = 0
    for row, count in zip(*np.unique(at, axis=0, return_counts=True), strict=True):
        values: list[float] = []  # any order with these hits at the looks
        for more, blocks in zip(np.diff(row, prepend=0), np.diff(looks, prepend=0), strict=True):
            values += [1.0] * int(more) + [0.0] * int(blocks - more)
        found = share(values, FIRST, half_width, most)
        assert found.estimate is not None
        level = 1 - 0.05 / found.looks
        low, high = binomial_interval(round(found.estimate * found.n), found.n, level)
        covered += int(count) * (low <= chance <= high)
    assert covered / CAMPAIGNS >= 0.95


def test_the_binomial_interval_is_the_exact_one():
    for hits, n in ((0, 5), (3, 5), (5, 5), (17, 40)):
        exact = stats.binomtest(hits, n).proportion_ci(0.9, "exact")
        assert binomial_interval(hits, n, 0.9) == pytest.approx((exact.low, exact.high))
    assert binomial_interval(6, 6)[0] == pytest.approx(0.5407, abs=1e-4)


def test_without_added_blocks_the_interval_is_students():
    values = [0.5, 0.6, 0.55, 0.52, 0.58]
    found = two_stage(values, 5, 0.2, 100)
    interval = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert (found.blocks, found.why) == (5, "narrow enough")
    assert found.half_width == pytest.approx((interval[1] - interval[0]) / 2)


def test_blocks_that_are_not_whole_are_waited_for():
    first = [0.1, 0.9, None, 0.5, 0.3]
    assert two_stage(first, 5, 0.1, 100).blocks == 5
    assert two_stage(first, 5, 0.1, 100).why == "blocks to run"
    whole = [0.1, 0.9, 0.2, 0.5, 0.3]
    asked = two_stage(whole, 5, 0.1, 100).blocks
    assert asked == math.ceil((stats.t.ppf(0.975, 4) * np.std(whole, ddof=1) / 0.1) ** 2)
    later = two_stage([*whole, 0.2, None], 5, 0.1, 100)
    assert (later.blocks, later.n, later.why) == (asked, 6, "blocks to run")
    assert share([1, 1, None, 1, 1], 5, 0.1, 20).blocks == 5
    assert share([1, 1, 0, 1, 1], 5, 0.1, 20).blocks == 10


def test_a_budget_ends_the_rule():
    spent = two_stage([0.1, 0.9, 0.2, 0.5, 0.3, 0.4], 5, 0.01, 6)
    assert (spent.blocks, spent.why) == (6, "budget spent")
    assert declared_looks(5, 33) == (5, 10, 20, 33)
    assert declared_looks(8, 5) == (8,)
    assert share([1, 0] * 4, 5, 0.01, 8).why == "budget spent"
