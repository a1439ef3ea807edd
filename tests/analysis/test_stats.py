"""Paired statistics against textbook values and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.core.stats import (
    amount,
    binomial,
    change,
    correlation,
    fraction,
    holm,
    mean,
    p_value,
    ratio,
    share,
    sign,
)

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
    if there.agreed:
        assert math.isnan(there.low) and math.isnan(back.low)
        return
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


def test_the_interval_of_shares_is_clopper_and_pearson_s():
    """Six of six exclude one half, five of five do not; no success in ten is below 0.31."""
    for k, n, low, high in (
        (6, 6, 0.5407, 1.0),
        (5, 5, 0.4782, 1.0),
        (0, 10, 0.0, 0.3085),
        (3, 10, 0.0667, 0.6525),
    ):
        assert binomial(k, n)(0.95) == pytest.approx((low, high), abs=1e-4)
        found = share([True] * k + [False] * (n - k))
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@given(st.lists(st.floats(0, 1).map(lambda x: round(x, 6)), min_size=2, max_size=12))
@settings(deadline=None)
def test_intervals_stay_in_range_and_have_a_width(values):
    found = fraction(values)
    assert 0 <= found.low < found.high <= 1
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    differences = change([one - other for one, other in zip(values, reversed(values), strict=True)])
    assert -1 <= differences.low < differences.high <= 1
    above = amount(values)
    assert math.isnan(above.low) or 0 <= above.low < above.high
    assert math.isnan(above.low) is (above.agreed or not above.value)


def coverage(draw, estimate, truth, times=600):
    """Return how often the interval of an estimate covers the truth."""
    random = np.random.default_rng(1)
    found = (estimate(draw(random).tolist()) for _ in range(times))
    return sum(one.low <= truth <= one.high for one in found) / times


@pytest.mark.parametrize("n", [3, 6, 10])
@pytest.mark.parametrize(("a", "b"), [(5, 5), (2, 8), (0.5, 5), (1, 30), (20, 1)])
def test_intervals_of_fractions_cover_the_truth(n, a, b):
    """Beta distributions, symmetric and skewed: 95 % less what a skew costs few runs."""
    assert coverage(lambda r: r.beta(a, b, n), fraction, a / (a + b)) >= 0.90


@pytest.mark.parametrize("n", [3, 6, 10])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_exact_intervals_cover_at_least_as_often_as_stated(n, p):
    assert coverage(lambda r: r.random(n) < p, share, p) >= 0.95


@pytest.mark.parametrize("n", [3, 6, 10])
def test_intervals_of_amounts_cover_the_truth(n):
    """Log-normal times that vary by a third."""
    truth = math.exp(0.3**2 / 2)
    assert coverage(lambda r: r.lognormal(0, 0.3, n), amount, truth) >= 0.92


def test_the_sign_test_counts_the_blocks_that_differ():
    six = sign([1.0] * 8, [0.0] * 6 + [1.0] * 2)
    assert (six.value, six.n, len(six.runs)) == (1.0, 8, 6)
    assert six.low > 0.5
    assert sign([1.0] * 8, [0.0] * 5 + [1.0] * 3).low < 0.5
    alike = sign([1.0, 0.0], [1.0, 0.0])
    assert (alike.value, alike.low, alike.high, alike.n) == (0.5, 0.0, 1.0, 2)


def test_the_p_value_is_where_the_interval_stops_to_decide():
    assert p_value(share([True] * 6), lambda ends: ends[0] > 0.5) == pytest.approx(2 / 2**6)
    assert p_value(share([True] * 5), lambda ends: ends[0] > 0.5) == 1.0


def test_holm_s_procedure_steps_down():
    """Holm 1979: 0.01 < 0.05/4, then 0.013 < 0.05/3, then 0.03 > 0.05/2 stops."""
    assert holm([0.03, 0.01, 0.04, 0.013]) == [False, True, False, True]
    assert holm([0.05]) == [True]
    assert holm([0.026, 0.026]) == [False, False]


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
