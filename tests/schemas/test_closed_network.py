"""Closed networks of disks that others load too: bounds against all shares and all assignments."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.common import closed_network as without_delay
from schemas.closed_network import Station, best_shares, placed_bound, seen_of, throughput

STATION = st.builds(Station, st.floats(0, 1), st.floats(0.01, 0.5))
STATIONS = st.lists(STATION, min_size=2, max_size=6)
IN_FLIGHT = st.integers(1, 64)
THINK = st.floats(0, 0.2)


@st.composite
def shares(draw: st.DrawFn, count: int) -> list[float]:
    parts = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count).filter(any))
    return [part / sum(parts) for part in parts]


@given(st.data(), STATIONS, IN_FLIGHT)
def test_without_delays_it_is_mean_value_analysis(data, stations, in_flight):
    stations = [Station(0.0, station.service_s) for station in stations]
    parts = data.draw(shares(len(stations)))
    demands = [part * station.service_s for part, station in zip(parts, stations, strict=True)]
    known = without_delay.throughput(demands, in_flight)
    assert throughput(stations, parts, in_flight) == pytest.approx(known, rel=1e-3)


@given(st.data(), STATIONS, IN_FLIGHT, THINK)
def test_the_requests_in_flight_are_at_disks_or_clients(data, stations, in_flight, think_s):
    parts = data.draw(shares(len(stations)))
    rate = throughput(stations, parts, in_flight, think_s)
    seen = seen_of(in_flight)
    queues = [s.queue(rate * part, seen) for s, part in zip(stations, parts, strict=True)]
    assert sum(queues) + rate * think_s == pytest.approx(in_flight, rel=1e-3)


@given(STATION, IN_FLIGHT, st.floats(0.01, 50))
def test_a_disks_rate_and_queue_are_inverse(station, in_flight, queue):
    seen = seen_of(in_flight)
    assert station.queue(station.rate(queue, seen), seen) == pytest.approx(queue)


@given(st.data(), STATIONS, IN_FLIGHT, THINK)
@settings(max_examples=100)
def test_no_shares_pass_the_best(data, stations, in_flight, think_s):
    bound = best_shares(stations, in_flight, think_s)
    assert sum(bound.shares) == pytest.approx(1)
    reached = throughput(stations, bound.shares, in_flight, think_s)
    assert reached == pytest.approx(bound.rate, rel=1e-3)
    other = throughput(stations, data.draw(shares(len(stations))), in_flight, think_s)
    assert other <= bound.rate * (1 + 1e-5)


@given(
    st.lists(STATION, min_size=4, max_size=4),
    st.lists(
        st.tuples(st.permutations(range(4)), st.just(0) | st.floats(0.1, 1)), min_size=1, max_size=6
    ).filter(lambda groups: any(load for _, load in groups)),
    IN_FLIGHT,
)
@settings(max_examples=60, deadline=None)
def test_no_choice_of_primaries_passes_the_placed_bound(stations, groups, in_flight):
    """The reference is every assignment of up to six groups to one of their two disks."""
    total = sum(load for _, load in groups)
    loads = [load / total for _, load in groups]
    places = [order[:2] for order, _ in groups]
    bound = placed_bound(stations, loads, places, in_flight)
    assert bound <= best_shares(stations, in_flight).rate * (1 + 1e-4)
    for choice in itertools.product(*places):
        held = [0.0] * 4
        for place, load in zip(choice, loads, strict=True):
            held[place] += load
        assert throughput(stations, held, in_flight) <= bound * (1 + 1e-6)


def test_many_small_groups_reach_the_placed_bound():
    stations = [Station(0.6, 0.05)] * 3 + [Station(0.0, 0.05)]
    places = [pair for pair in itertools.combinations(range(4), 2) for _ in range(100)]
    loads = [1 / len(places)] * len(places)
    # Half of the groups has slow disks only, and by symmetry these share alike.
    slow = [1 / 6 + step / 1000 for step in range(100)]
    reached = max(throughput(stations, [a, a, a, 1 - 3 * a], 16) for a in slow)
    assert placed_bound(stations, loads, places, 16) == pytest.approx(reached, rel=1e-3)
    assert best_shares(stations, 16).rate > 1.005 * reached
