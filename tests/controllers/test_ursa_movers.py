"""Methods that also choose the objects, compared with exhaustive search and known results."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import Instance, Moves, between
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place import joint
from controllers.ursa.place.baselines import Annealing, anneal, htoc, sa
from controllers.ursa.place.bounds import (
    LoadPrices,
    any_plan_bound,
    cover_bound,
    covered,
    evaluate_whole,
    eviction_bound,
    joint_bound,
)
from controllers.ursa.place.bounds import certify_joint as certify
from controllers.ursa.place.market import Market
from controllers.ursa.select import Result
from controllers.ursa.state import PlanState, initial_state, object_load
from tests.controllers.ursa_instances import instance, instances, relaxed, timer

pytestmark = pytest.mark.slow  # compiling and solving take time
FEW = 700


def request(limit_s: float | None = None, seed: int = 0) -> MethodRequest:
    return MethodRequest(timer=timer(limit_s), seed=seed)


def after(case: Instance, state: PlanState, made: Moves) -> tuple[np.ndarray, np.ndarray, float]:
    """Return (placement, loads, cost) after the moves."""
    place = case.replica_node.copy()
    partition, replica = np.divmod(made.object, case.replicas)
    source = place[partition, replica]
    weight = object_load(case, state, partition.astype(np.int32), replica)
    load = state.load.copy()
    np.subtract.at(load, source, weight)
    np.add.at(load, made.to, weight)
    place[partition, replica] = made.to
    return place, load, float(between(case.distance, source, made.to).sum())


def violations(case: Instance, place: np.ndarray) -> int:
    """Return the number of objects moved into a domain with a sibling replica: (5), C2."""
    bad = 0
    for row, old in zip(place, case.replica_node, strict=True):
        domains = case.fault_domain[row].tolist()
        bad += sum(
            domains.count(d) > 1 for d, a, b in zip(domains, row, old, strict=True) if a != b
        )
    return bad


def exhaustive(case: Instance, state: PlanState, only_hot: bool = False) -> tuple[int, float]:
    """Return (fewest hot nodes, its least cost) over all placements: equations (1) to (6)."""
    movable = np.flatnonzero(state.hot(case)[case.replica_node.ravel()] | (not only_hot))
    replicas = case.replicas
    weight = object_load(
        case, state, (movable // replicas).astype(np.int32), (movable % replicas).astype(np.int8)
    )
    source = case.replica_node.ravel()[movable]
    was_hot = state.hot(case)
    best = (case.nodes + 1, np.inf)
    for targets in product(range(case.nodes), repeat=len(movable)):
        to = np.array(targets, dtype=np.int32)
        load = state.load.copy()
        np.subtract.at(load, source, weight)
        np.add.at(load, to, weight)
        hot = load > case.capacity
        if (hot & ~was_hot).any() or (load[hot] > state.load[hot] + 1e-9).any():
            continue
        moved = to != source
        if only_hot and was_hot[to[moved]].any():
            continue
        cost = float(between(case.distance, source[moved], to[moved]).sum())
        if (int(hot.sum()), cost) < best:
            place = case.replica_node.copy()
            place.ravel()[movable] = to
            if violations(case, place) == 0:
                best = (int(hot.sum()), cost)
    return best


@given(instances(max_nodes=4, max_partitions=5))
@relaxed
def test_opt_finds_the_optimum(case: Instance) -> None:
    if case.nodes**case.replica_node.size > FEW:
        return
    state = initial_state(case)
    made, bound, notes = joint.opt(case, state, request())
    place, load, cost = after(case, state, made)
    hot, least = exhaustive(case, state)
    assert notes["optimal"]
    assert violations(case, place) == 0
    assert int((load > case.capacity).sum()) == hot
    assert cost == pytest.approx(least, abs=1e-6)
    if hot == 0:
        assert bound == pytest.approx(least, abs=1e-6)


@given(instances(max_nodes=4, max_partitions=5), st.booleans(), st.integers(0, 2**31))
@relaxed
def test_joint_bounds_hold_for_any_prices(case: Instance, evict: bool, seed: int) -> None:
    if case.nodes**case.replica_node.size > FEW:
        return
    state = initial_state(case)
    hot, least = exhaustive(case, state, only_hot=not evict)
    rng = np.random.Generator(np.random.PCG64(seed))
    load, cover = rng.exponential(1.0, (2, case.nodes)) * (rng.random((2, case.nodes)) < 0.7)
    price = LoadPrices(load, cover)
    market = Market(case, state, evict=evict)
    if hot == 0 and (evict or _apart_all_along(case)):
        linear = certify(market, price)
        assert linear <= least + 1e-9
        whole = covered(market, load, np.inf, timer(), steps=1)
        assert whole.bound <= least + 1e-9
        assert cover_bound(market, load, 2 * least + 1, timer()) <= least + 1e-9
        if evict:
            assert evaluate_whole(market, load)[0] <= least + 1e-9
            assert eviction_bound(market, whole, 2 * least + 1, timer()).bound <= least + 1e-9
            quick = any_plan_bound(case, state, request())
            assert quick is None or quick <= least + 1e-9
        begin = joint.fast_moves(case, state, request())
        if begin is not None:
            found = joint_bound(market, begin, timer())
            assert found.bound <= least + 1e-9
            whole = covered(market, found.price.load, np.inf, timer(), steps=1)
            assert whole.bound >= found.bound * (1 - 1e-6) - 1e-9, "whole objects lose nothing"


def full_neighbour() -> Instance:
    """Return a hot node, a full node 1 away with a giant, and room for the giant 1 further away."""
    return instance(
        [[0], [0], [0], [0], [0], [1], [1], [2]],
        [1, 1, 1, 1, 100, 30, 1, 1],
        [100, 31, 60, 60],
        secondary=[0] * 8,
        xy=[(0, 0), (1, 0), (2, 0), (0, 9)],
    )


def test_an_object_that_makes_room_is_whole_in_the_bound() -> None:
    """Four objects must leave. A giant makes room for all (4 + 1), or each moves 2 far (8)."""
    case = full_neighbour()
    state = initial_state(case)
    begin = joint.fast_moves(case, state, request())
    assert begin is not None
    found = joint.search(case, state, begin, request())
    assert begin.cost.sum() == 8.0
    assert found.best.cost.sum() == 5.0
    assert found.hot_only_bound == pytest.approx(8.0)
    assert found.joint.bound == pytest.approx(4 + 4 / 30, rel=1e-3)
    assert found.cover.bound >= found.joint.bound - 1e-6
    assert 4.9 < found.bound <= 5.0 + 1e-9


def _apart_all_along(case: Instance) -> bool:
    """Return True if no move can take the place of a replica that has just left."""
    return case.replicas == 1


def far_or_near() -> Instance:
    """Return a node that must shed 6: its heaviest fits only 50 away, three others close by."""
    xy = [(0, 0), (1, 0), (0, 1), (-1, 0), (50, 0)]
    return instance(
        [[0], [0], [0], [0], [0]], [10, 2, 2, 2, 2], [12, 2, 2, 2, 99], secondary=[0] * 5, xy=xy
    )


def test_joint_takes_several_near_objects_for_one_far() -> None:
    """The paper's own example of a case that joint optimisation would avoid (section 7)."""
    case = far_or_near()
    made, bound, notes = joint.joint(case, initial_state(case), request())
    assert notes["highest_load_first_cost"] == 50.0
    assert sorted(made.to.tolist()) == [1, 2, 3]
    assert notes["saved"] == pytest.approx(0.94)
    assert bound == pytest.approx(3.0, rel=1e-5)
    exact, _, _ = joint.opt(case, initial_state(case), request())
    assert sorted(exact.to.tolist()) == [1, 2, 3]


def test_opt_makes_a_larger_instance_small_without_losing_the_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = generate(shape("s2", 12, 150), seed=8)
    state = initial_state(case)
    whole, _, proven = joint.opt(case, state, request())
    monkeypatch.setattr(joint, "MAX_PAIRS", case.replica_node.size * 11 - 1)
    reduced, _, notes = joint.opt(case, state, request())
    assert proven["optimal"]
    assert notes["optimal"]
    assert "moves_left_to_choose" in notes
    assert after(case, state, reduced)[2] == pytest.approx(after(case, state, whole)[2], rel=1e-6)


def test_htoc_moves_the_hottest_object_of_the_hottest_node_to_the_coldest() -> None:
    case = instance(
        [[0], [0], [1], [1], [2], [3]], [6, 5, 9, 8, 1, 2], [6, 10, 20, 20], secondary=[0] * 6
    )
    made, _, _ = htoc(case, initial_state(case), request())
    moved = zip(made.object.tolist(), made.to.tolist(), strict=True)
    # Node 0 is at 11/6, node 1 at 17/10; node 2 is the coldest, then node 3.
    assert list(moved) == [(0, 2), (2, 3)]


@pytest.mark.parametrize("method", [htoc, joint.joint])
def test_what_fits_nowhere_is_passed_over(method: Callable[..., Result]) -> None:
    case = instance([[0], [0], [0]], [100, 3, 2], [102, 6, 2], secondary=[0] * 3)
    made, _, _ = method(case, initial_state(case), request())
    assert made.object.tolist() == [1]
    assert made.to.tolist() == [1]


def test_annealing_keeps_its_limits() -> None:
    case = generate(shape("s2", 40, 2_000), seed=1)
    state = initial_state(case)
    few, again, other = (
        anneal(case, state, request(seed=seed), Annealing(max_migrations=7))[0]
        for seed in (1, 1, 2)
    )
    assert np.array_equal(few.to, again.to)
    assert not np.array_equal(few.to, other.to)
    assert len(few.to) <= 7
    # Each reading of the clock takes a millisecond: time for two temperatures.
    late, _, _ = anneal(case, state, request(limit_s=0.005), Annealing(step_proposals=100))
    assert 0 < len(late.to) <= 200
    assert len(sa(case, state, request(limit_s=0.0))[0]) == 0
