"""Random effects over settings (DerSimonian and Laird 1986, Hartung and Knapp 2001)."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import t as student

from analysis.core.pooling import random_effects


def test_an_example_worked_out_by_hand():
    # Means 1, 2 and 4 of 2, 4 and 2 observations with a variance of 1: weights 2, 4, 2 and mean
    # 2.25, so Q = 9.5, C = 8 - 24 / 8 = 5 and the variance between is (9.5 - 2) / 5 = 1.5. Then the
    # weights are 1/2, 4/7 and 1/2, the mean is 51/22, and Hartung and Knapp's factor is 1.1704545.
    a = math.sqrt(5 / 8)
    pooled = random_effects([[1 - a, 1 + a], [2 - a, 2 - a, 2 + a, 2 + a], [4 - a, 4 + a]])
    assert pooled.between == pytest.approx(math.sqrt(1.5))
    assert pooled.mean == pytest.approx(51 / 22)
    assert pooled.interval()[1] - pooled.mean == pytest.approx(3.713353, rel=1e-5)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=8))
@example([(0.0, 0.0), (0.0, 2.2250738585072014e-308)])
@example([(0.0, 1e-159), (0.0, 1e-155)])
def test_settings_that_differ_beyond_chance_are_a_sample_of_their_means(settings):
    """With equal numbers of observations, the interval is that of t over the settings' means."""
    means = [fmean(values) for values in settings]
    within = sum((a - b) ** 2 / 2 for a, b in settings) / len(settings)
    pooled = random_effects(settings)
    assert pooled.mean == pytest.approx(fmean(means), abs=1e-9)
    if stdev(means) ** 2 > within / 2 + 1e-9 and stdev(means) > 1e-6:
        half = student.ppf(0.975, len(means) - 1) * stdev(means) / math.sqrt(len(means))
        assert pooled.interval()[1] - pooled.mean == pytest.approx(half, rel=1e-6)
        assert pooled.between == pytest.approx(
            math.sqrt(stdev(means) ** 2 - within / 2), rel=1e-5, abs=1e-6
        )


@pytest.mark.parametrize("between", [0.0, 0.1, 0.3])
def test_the_interval_covers_the_mean_of_all_settings(between):
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        centres = 0.4 + between * draw.normal(size=6)
        found = random_effects([centre + 0.2 * draw.normal(size=2) for centre in centres])
        low, high = found.interval()
        covered += low <= 0.4 <= high
    assert covered / 2000 >= 0.935


def test_one_setting_has_no_interval():
    assert math.isnan(random_effects([[0.1, 0.2]]).interval()[0])
