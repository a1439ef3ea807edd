"""Variance between settings (DerSimonian and Laird 1986)."""

from __future__ import annotations

import statistics
from random import Random

import pytest

from schemas.random_effects import mean_and_between


def test_the_variance_beyond_chance_is_found_and_chance_alone_gives_little():
    """Mean over many draws; both estimates are those of the formula in the paper."""
    random = Random(1)
    weights = [1 / (0.5 + n / 10) for n in range(8)]
    found = {}
    for between in (0.0, 4.0):
        draws = []
        for _ in range(2000):
            values = [random.gauss(7, (1 / weight + between) ** 0.5) for weight in weights]
            draws.append(mean_and_between(values, weights))
        found[between] = [statistics.fmean(part) for part in zip(*draws, strict=True)]
    assert found[4.0] == pytest.approx([7, 4], rel=0.05)
    assert found[0.0][1] < 0.3


def test_a_single_value_and_equal_values_have_no_variance_between():
    assert mean_and_between([3.0], [2.0]) == (3.0, 0.0)
    assert mean_and_between([3.0, 3.0], [2.0, 1.0]) == (3.0, 0.0)
    # By hand: mean 1, Q = 2, degrees of freedom 1, scale 2 - 2 / 2.
    assert mean_and_between([0.0, 2.0], [1.0, 1.0]) == pytest.approx((1.0, 1.0))
