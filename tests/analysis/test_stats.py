"""Paired statistics against textbook values and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.core.stats import correlation, mean, ratio

positive = st.floats(0.01, 1e6)


@pytest.mark.slow  # scipy.stats takes seconds to import
def test_the_interval_of_a_mean_is_scipy_s():
    from scipy import stats as reference

    values = [10.0, 12.0, 11.0, 15.0]
    low, high = reference.t.interval(0.95, 3, loc=np.mean(values), scale=reference.sem(values))
    estimate = mean(values)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
    assert estimate.n == 4


@pytest.mark.parametrize(
    ("top", "bottom"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])]
)
def test_impossible_ratios_are_refused(top, bottom):
    with pytest.raises(ValueError):
        ratio(top, bottom)
    assert math.isnan(ratio([2.0], [1.0]).low)  # one run has no interval


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=12))
@settings(deadline=None)
def test_swapping_the_sides_inverts_the_ratio(pairs):
    top, bottom = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = ratio(top, bottom), ratio(bottom, top)
    assert there.value * back.value == pytest.approx(1)
    assert there.low <= there.value * (1 + 1e-9)
    assert there.value <= there.high * (1 + 1e-9)


def test_more_comparisons_widen_the_interval():
    top, bottom = [1.4, 1.5, 1.45], [1.0, 1.0, 1.0]
    one, six = ratio(top, bottom), ratio(top, bottom, comparisons=6)
    assert six.low < one.low < one.value < one.high < six.high


def test_the_interval_covers_the_truth_as_often_as_stated():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        top = np.exp(random.normal(0.2, 0.1, 4))
        estimate = ratio(top.tolist(), [1.0] * 4)
        covered += estimate.low <= math.exp(0.2) <= estimate.high
    assert 925 <= covered <= 975


def test_rank_correlation_needs_four_runs():
    with pytest.raises(ValueError):
        correlation([1, 2, 3], [1, 2, 3])
    with pytest.raises(ValueError):
        correlation([1, 2, 3, 4], [1, 2, 3, 4], fitted=1)
    wide = correlation([1, 2, 3, 4, 5], [1, 3, 2, 5, 4], fitted=1)
    narrow = correlation([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    assert wide.value == narrow.value
    assert wide.low < narrow.low
    falling = correlation([1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1])
    assert falling.value == pytest.approx(-1, abs=1e-4)
    assert falling.high < 0
