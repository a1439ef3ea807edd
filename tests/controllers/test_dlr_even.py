"""dlr-even and dlr-fast: the measured rates, the choice of primaries against all choices, and the
rules of a step."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controllers.dlr_even.primaries import best_primaries, rate_of, weights
from controllers.dlr_even.rates import rates_of, remember
from controllers.dlr_pg.swaps import SwapProblem
from controllers.legality import illegal
from controllers.registry import create, find
from schemas.closed_network import Station, placed_bound, seen_of, throughput
from testbed.stores.contract import (
    Activity,
    ClearUpmap,
    OpRates,
    OsdLatency,
    Pg,
    SwapPrimary,
)
from tests.controllers.clusters import CALM, HOT, LATENCY, QUICK, observations, settle
from tests.controllers.virtual import run_loop
from tests.testbed.fake_store import FakeStore

EIGHT = frozenset(range(8))


def even(**parameters):
    return create(find("dlr-even"), parameters, 1)


def fast(**parameters):
    return create(find("dlr-fast"), parameters, 1)


# Rates.


@given(
    st.floats(0.2, 50),
    st.floats(0.01, 0.1),
    st.integers(4, 32),
    st.lists(st.floats(0.2, 1), min_size=8, max_size=8),
)
def test_delay_and_service_are_found_again(services, service_s, in_flight, parts):
    """The sums are those of a closed network that obeys the law exactly."""
    assume(not math.isclose(services, 1, rel_tol=1e-6))  # as long as a service: either is right
    delay_s = services * service_s
    stations = {i: Station(delay_s if i < 4 else 0.0, service_s) for i in range(8)}
    shares = [part / sum(parts) for part in parts]
    rate, seen = throughput(list(stations.values()), shares, in_flight), seen_of(in_flight)
    sums = {}
    for osd, station in stations.items():
        queue = station.queue(rate * shares[osd], seen)
        sums[str(osd)] = [1e6 * rate * shares[osd], 1e6 * queue, 1e6]
    found = rates_of(sums, {**HOT, **dict.fromkeys(range(4), 100.0)}, EIGHT, in_flight, None)
    assert found.disturbed == (frozenset(range(4)) if services > 1 else frozenset())
    for osd, station in stations.items():
        assert found.stations[osd].service_s == pytest.approx(service_s, rel=0.01)
        assert found.stations[osd].delay_s == pytest.approx(station.delay_s, rel=0.05, abs=1e-3)


def test_low_pressure_ends_a_delay_and_high_pressure_stands_for_one():
    sums = {str(osd): [40.0, 30.0, 20.0] if osd == 0 else [200.0, 20.0, 20.0] for osd in range(7)}
    pressure = {**CALM, 0: 3.0, 7: 95.0}
    found = rates_of(sums, pressure, EIGHT, 16, None)
    assert found.disturbed == {7}
    assert found.stations[0].delay_s < 0.1 * found.stations[0].service_s
    assert found.stations[7].delay_s > found.stations[7].service_s


def test_pressure_tells_who_is_disturbed_and_reads_tell_how_much():
    """Real disks under the same load show 79 to 98 %."""
    pressure = {**CALM, 0: 79.0, 1: 88.0, 2: 84.0, 3: 80.0}
    calm = {str(osd): [200.0, 20.0, 20.0] for osd in range(4, 8)}
    unknown = rates_of(calm, pressure, EIGHT, 16, None)
    assert unknown.disturbed == {0, 1, 2, 3}
    found = rates_of(calm | {"0": [20.0, 18.0, 20.0]}, pressure, EIGHT, 16, None)
    for osd in range(4):
        service_s = unknown.stations[osd].service_s
        assert unknown.stations[osd].delay_s == pytest.approx(service_s * 88 / 12)
        assert found.stations[osd].delay_s == pytest.approx(0.9 - service_s * (1 + 0.9 * 15 / 16))


def test_an_osd_that_answers_late_keeps_its_memory_and_its_rate():
    store = FakeStore(latency=LATENCY, interval_s=2)
    seen = store.sense(even().needs.senses)
    memory = remember({}, seen, 0.5)
    silent = replace(seen, latency=dict.fromkeys(range(4, 8), QUICK))
    memory = remember(memory, silent, 0.5)
    assert memory["0"] == [40, 30, 2]
    late = replace(seen, activity=replace(seen.activity, osds={0: OpRates(10.0)}))
    assert remember(memory, late, 0.5)["0"] == [60, 45, 5]


def test_a_few_slow_reads_do_not_tell_disturbed_disks_apart():
    slow = {0: (4, 1.1), 1: (4, 0.6), 2: (4, 0.8), 3: (4, 0.7)}
    sums = {str(osd): [float(n), n * took, 2.0] for osd, (n, took) in slow.items()}
    sums |= {str(osd): [20.0, 2.0, 2.0] for osd in range(4, 8)}
    found = rates_of(sums, HOT, EIGHT, 16, None)
    delays = [found.stations[osd].delay_s for osd in range(4)]
    assert max(delays) < 1.05 * min(delays)
    # The same means of a hundred times as many reads are no chance.
    sums = {osd: [100 * value for value in sums[osd]] for osd in sums}
    found = rates_of(sums, HOT, EIGHT, 16, None)
    assert found.stations[0].delay_s > 1.4 * found.stations[1].delay_s


# Weights.


def test_counts_that_chance_explains_leave_the_bytes():
    random = Random(1)
    pgs = [Pg(f"1.{n:x}", (0, 1), (0, 1), bytes=100 + n) for n in range(128)]
    total = sum(pg.bytes for pg in pgs)
    drawn = random.choices(pgs, [pg.bytes for pg in pgs], k=1000)
    counts = {pg.id: float(drawn.count(pg)) for pg in pgs}
    found = weights(pgs, counts)
    assert sum(found.values()) == pytest.approx(1)
    assert all(found[pg.id] == pytest.approx(pg.bytes / total, rel=0.4) for pg in pgs)


def test_skewed_reads_outweigh_the_bytes():
    pgs = [Pg(f"1.{n:x}", (0, 1), (0, 1), bytes=100) for n in range(16)]
    counts = {pg.id: 900.0 if n == 0 else 60.0 for n, pg in enumerate(pgs)}
    assert weights(pgs, counts)["1.0"] == pytest.approx(0.5, abs=0.03)


# Primaries.


@given(
    st.lists(st.tuples(st.permutations(range(4)), st.floats(0.2, 1)), min_size=1, max_size=7),
    st.lists(st.builds(Station, st.floats(0, 1), st.floats(0.02, 0.2)), min_size=4, max_size=4),
    st.integers(1, 32),
)
@settings(max_examples=80, deadline=None)
def test_primaries_are_close_to_the_best_of_all_choices(groups, disks, in_flight):
    """The reference is the best assignment of up to seven PGs to one of their two OSDs."""
    movable = {f"1.{n}": tuple(order[:2]) for n, (order, _) in enumerate(groups)}
    total = sum(load for _, load in groups)
    loads = {f"1.{n}": load / total for n, (_, load) in enumerate(groups)}
    primaries = {pg: osds[0] for pg, osds in movable.items()}
    problem = SwapProblem(movable, primaries, loads, dict.fromkeys(range(4), 1.0))
    stations = dict(enumerate(disks))

    def rate(choice):
        return rate_of(problem, stations, in_flight, choice)

    found = best_primaries(problem, stations, in_flight, 100)
    assert rate(found) >= rate({}) * (1 - 1e-6)
    full = {**primaries, **found}
    for pg, osds in movable.items():  # no single swap is better
        for osd in osds:
            assert rate({**full, pg: osd}) <= rate(full) * (1 + 1e-3)
    choices = itertools.product(*movable.values())
    best = max(rate(dict(zip(movable, choice, strict=True))) for choice in choices)
    # Seven PGs are coarse: a better choice may need two swaps that each make it worse.
    assert rate(full) >= 0.5 * best


@pytest.mark.parametrize("hot", [1, 4, 6])
@pytest.mark.parametrize("seed", [1, 2])
def test_with_many_pgs_the_primaries_reach_the_bound(seed, hot):
    store = FakeStore(seed=seed)
    stations = {osd: Station(0.6 if osd < hot else 0.0, 0.054) for osd in range(8)}
    pgs = store.pgs()
    problem = SwapProblem(
        {pg.id: pg.up for pg in pgs},
        {pg.id: pg.primary for pg in pgs},
        weights(pgs, {}),
        dict.fromkeys(range(8), 1.0),
    )
    found = best_primaries(problem, stations, 14, 1000)
    bound = placed_bound(
        list(stations.values()), list(problem.loads.values()), [pg.up for pg in pgs], 14
    )
    assert 0.98 * bound <= rate_of(problem, stations, 14, found) <= bound


# Steps.


@pytest.mark.slow
@given(observations(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_only_legal_actions_and_at_most_so_many(observation, random):
    observation = replace(
        observation,
        latency={
            osd.id: OsdLatency(random.randrange(50), random.random())
            for osd in observation.osds
            if random.random() < 0.8
        },
        activity=Activity({pg.id: OpRates(random.random() * 9) for pg in observation.pgs}),
    )
    for policy in (even(max_swaps=5), fast(max_swaps=5, confirm=1)):
        state = policy.initial()
        for _ in range(3):
            state, actions = policy.decide(state, observation)
            assert illegal(actions, observation, policy.needs) is None
            assert len(actions) <= 5


def test_one_step_settles_a_lasting_hotspot_and_disturbed_osds_keep_what_they_can_carry():
    store = FakeStore(pressures=lambda _: HOT, latency=LATENCY, seed=3)
    counts = settle(even(), store, 6)
    assert counts[0] > 0
    assert sum(counts[1:]) == 0
    led = store.primaries()
    calm = [led[osd] for osd in range(4, 8)]
    both_hot = sum(max(pg.up) < 4 for pg in store.pgs())
    assert max(calm) - min(calm) <= 2
    assert both_hot <= sum(led[osd] for osd in range(4)) <= both_hot + 4


def test_one_window_of_noise_moves_nothing_and_two_of_three_do():
    for hot, acts in (({3}, False), ({3, 5}, True), ({3, 4}, True), ({3, 6}, False)):
        store = FakeStore(
            pressures=lambda n, hot=hot: HOT if n in hot else CALM, latency=LATENCY, interval_s=2
        )
        counts = settle(fast(horizon=100), store, 7)
        assert (sum(counts[:7]) > 0) is acts, hot


def test_release_is_immediate():
    half = {**HOT, 0: 5.0}
    store = FakeStore(pressures=lambda n: HOT if n < 5 else half, latency={**LATENCY}, interval_s=2)
    policy = fast(horizon=100)
    state = policy.initial()
    kinds = []
    for number in range(6):
        if number == 5:
            store.latency[0] = QUICK
        state, actions = policy.decide(state, store.sense(policy.needs.senses))
        store.act(actions)
        kinds.append({type(action) for action in actions})
    assert kinds[1] <= {SwapPrimary} and kinds[1]
    assert kinds[5] <= {SwapPrimary, ClearUpmap} and kinds[5]
    assert store.primaries()[0] > 8


def test_the_loop_steps_every_window(tmp_path: Path):
    for window_s, expected in ((2.0, 2.0), (60.0, 20.0)):
        folder = tmp_path / str(window_s)
        folder.mkdir()
        _, journal = run_loop(folder, FakeStore(), fast(window_s=window_s), steps=4)
        times = [step["t_s"] for step in journal.steps]
        assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([expected] * 3)
        assert journal.header["interval_s"] == expected
