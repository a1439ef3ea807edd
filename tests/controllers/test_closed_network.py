"""Approximate model compared with exact mean value analysis (Reiser and Lavenberg, 1980)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.common.closed_network import throughput

DEMANDS = st.lists(st.floats(0.01, 1), min_size=1, max_size=12)


def exact(demands: list[float], in_flight: int) -> float:
    queues, rate = [0.0] * len(demands), 0.0
    for population in range(1, in_flight + 1):
        residences = [d * (1 + q) for d, q in zip(demands, queues, strict=True)]
        rate = population / sum(residences)
        queues = [rate * r for r in residences]
    return rate


@given(DEMANDS, st.integers(1, 40))
def test_within_a_tenth_of_the_exact_solution_and_the_bounds(demands, in_flight):
    rate = throughput(demands, in_flight)
    assert rate == pytest.approx(exact(demands, in_flight), rel=0.1)
    assert rate <= min(1 / max(demands), in_flight / sum(demands)) * (1 + 1e-5)


@given(DEMANDS, st.integers(2, 40))
def test_more_in_flight_is_never_slower(demands, in_flight):
    assert throughput(demands, in_flight) >= throughput(demands, in_flight - 1) * (1 - 1e-5)


def test_balanced_servers_have_the_textbook_rate():
    # N / (N + M - 1) of the sum of the server rates: 16 / 23 of 8.
    assert throughput([1 / 8] * 8, 16) == pytest.approx(16 / 23 * 8, rel=1e-4)


def test_servers_without_demand_do_not_count():
    assert throughput([0.5, 0, 0], 4) == throughput([0.5], 4)
    assert throughput([0, 0], 4) == math.inf
