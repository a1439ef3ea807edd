"""Paired statistics against textbook values and by rule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.core.stats import correlation, mean, ratio


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


def test_more_comparisons_widen_the_interval():
    top, bottom = [1.4, 1.5, 1.45], [1.0, 1.0, 1.0]
    one, six = ratio(top, bottom), ratio(top, bottom, comparisons=6)
    assert six.low < one.low < one.value < one.high < six.high


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
