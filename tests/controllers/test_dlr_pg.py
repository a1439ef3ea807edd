"""dlr-pg: allowed actions, forbidden actions, and its model of a closed network; the rules of a
step that it shares with dlr-even."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controllers.common.closed_network import throughput
from controllers.dlr_pg.swaps import SwapProblem, osd_loads, plan
from controllers.registry import create, find
from testbed.stores.contract import ClearUpmap, SwapPrimary
from tests.controllers.clusters import CALM, HOT, LATENCY, observations, settle
from tests.testbed.fake_store import FakeStore

DLR_PG = find("dlr-pg")


def dlr_pg(**parameters):
    return create(DLR_PG, parameters, 1)


@pytest.mark.slow
@given(observations())
def test_only_members_of_the_up_set_within_the_budget_and_no_pg_twice(observation):
    policy = dlr_pg(max_swaps=5, theta_i=0)
    _, actions = policy.decide(policy.initial(), observation)
    up = {pg.id: pg.up for pg in observation.pgs}
    down = {osd.id for osd in observation.osds if not osd.up}
    swaps = list(actions)
    assert all(isinstance(action, (SwapPrimary, ClearUpmap)) for action in swaps)
    assert len(swaps) <= 5
    assert len({swap.pg for swap in swaps}) == len(swaps)
    assert all(isinstance(swap, SwapPrimary) and swap.osd in up[swap.pg] for swap in swaps)
    assert not {swap.osd for swap in swaps if isinstance(swap, SwapPrimary)} & down


def test_hot_osds_keep_their_share_and_calm_ones_are_filled_evenly():
    store = FakeStore(pressures=lambda _: HOT, seed=3)
    policy = dlr_pg()
    settle(policy, store, 3)
    counts = store.primaries()
    hot, calm = [counts[i] for i in range(4)], [counts[i] for i in range(4, 8)]
    both_hot = sum(max(pg.up) < 4 for pg in store.pgs())
    assert sum(hot) >= both_hot
    # Water-filling: 128 PGs on a capacity of 4 + 4 * 0.35 give 23.7 and 8.3 per OSD.
    assert max(calm) - min(calm) <= 2
    assert max(hot) - min(hot) <= 2
    assert sum(hot) / 4 == pytest.approx(8.3, abs=1)


BOTH = pytest.mark.parametrize("name", ["dlr-pg", "dlr-even"])


@BOTH
def test_the_swaps_are_undone_after_two_calm_intervals_and_a_foreign_pin_stays(name):
    store = FakeStore(pressures=lambda n: HOT if n < 3 else CALM, latency=LATENCY)
    pg, osds = next((pg, osds) for pg, osds in store.crush.items() if set(osds) & {0, 1, 2, 3})
    store.upmaps[pg] = (osds[1], osds[0])
    counts = settle(create(find(name), {}, 1), store, 8)
    assert counts[0] > 0
    assert counts[3] == 0 < counts[4]
    assert store.upmaps == {pg: (osds[1], osds[0])}
    assert sum(counts[5:]) == 0


@BOTH
def test_no_step_that_does_not_pay_for_its_stall(name):
    store = FakeStore(pressures=lambda _: HOT, latency=LATENCY)
    policy = create(find(name), {"stall_s": 60, "horizon": 1}, 1)
    assert sum(settle(policy, store, 5)) == 0


@BOTH
def test_the_stall_budget_holds_when_hotspots_move_every_interval(name):
    def moving(number: int) -> dict[int, float]:
        return {osd: 97.0 if (osd + number) % 8 < 4 else 5.0 for osd in range(8)}

    store = FakeStore(pressures=moving, interval_s=4)
    parameters = {"stall_share": 0.05, "stall_burst_s": 2, "horizon": 1000}
    counts = settle(create(find(name), parameters, 1), store, 40)
    epochs = sum(count > 0 for count in counts)
    # Two stalls of 1 s in a burst, then one per 20 s.
    assert 2 < epochs <= 2 + 40 * 4 * 0.05 + 1


@given(
    st.lists(st.permutations(range(4)), min_size=1, max_size=7),
    st.lists(st.floats(0.2, 1), min_size=4, max_size=4),
)
@example([[0, 2, 1, 3], *[[1, 0, 2, 3]] * 3, *[[3, 0, 2, 1]] * 2], [0.25, 1.0, 0.25, 0.25])
@settings(max_examples=60)
def test_the_plan_is_a_local_optimum_close_to_the_best_assignment(orders, capacities):
    """The reference is the best assignment of up to seven PGs to one of their two OSDs."""
    movable = {f"1.{n}": tuple(order[:2]) for n, order in enumerate(orders)}
    share = 1 / len(movable)
    loads = dict.fromkeys(movable, share)
    capacity = dict(enumerate(capacities))
    primaries = {pg: osds[0] for pg, osds in movable.items()}

    def per_capacity(assignment, power):
        load = osd_loads(assignment, loads, list(capacity))
        return sum(load[osd] ** power / capacity[osd] for osd in load)

    found = primaries | plan(SwapProblem(movable, primaries, loads, capacity), 0.0, 100)
    assert per_capacity(found, 2) <= per_capacity(primaries, 2) + 1e-12
    single = [found | {pg: osd} for pg, osds in movable.items() for osd in osds]
    assert per_capacity(found, 2) <= min(per_capacity(other, 2) for other in single) + 1e-12
    everything = itertools.product(*movable.values())
    choices = (dict(zip(movable, choice, strict=True)) for choice in everything)
    best = min(choices, key=lambda choice: per_capacity(choice, 2))
    # No single swap pays: (l_from - share/2) / w_from <= (l_to + share/2) / w_to. Summed over the
    # PGs with their best OSD as l_to, and as 2xy <= x^2 + y^2, every local optimum is this close.
    allowed = share * (per_capacity(found, 1) + per_capacity(best, 1))
    assert per_capacity(found, 2) <= per_capacity(best, 2) + allowed + 1e-12


@given(observations(max_osds=6, max_pgs=30))
@settings(max_examples=40)
def test_constant_pressures_come_to_rest(observation):
    count = len(observation.osds)
    store = FakeStore(count, 30, min(2, count), pressures=lambda _: observation.pressure)
    counts = settle(dlr_pg(theta_i=0), store, 40)
    assert sum(counts[-10:]) == 0


# Closed networks, compared with exact mean value analysis (Reiser and Lavenberg, 1980).


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
