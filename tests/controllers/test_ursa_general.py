"""Ursa with loads of several dimensions, nested fault domains and groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ursa_general import general_instances, loads, vectors
from ursa_instances import ADVERSARIAL, instances, same, timer

from controllers.research.ursa import plan as general
from controllers.research.ursa.place import ilp, optimum
from controllers.research.ursa.problem import initial_state, units_of, vector_problem
from controllers.research.ursa.select import cover, most_relief_first, swap_phase
from controllers.ursa.check import check
from controllers.ursa.instance import UNPLACED, Euclidean, Instance, MigrationPlan
from controllers.ursa.methods import METHODS, MethodRequest
from controllers.ursa.plan import plan
from controllers.ursa.select import highest_load_first
from controllers.ursa.state import initial_state as plain_state
from schemas.errors import UserError
from tests.errors import raises

relaxed = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
pytestmark = pytest.mark.slow  # compiling and solving take time


def plans(case: Instance, method: str, **more: float) -> MigrationPlan:
    """Return a plan on its own clock, always by the general modules."""
    return general.plan(case, method, timer=timer(), **more)  # type: ignore[arg-type]


def assert_true(case: Instance, made: MigrationPlan) -> None:
    """Assert that the independent checker confirms the plan's own statements."""
    report = check(case, made, made.summary["cost"])  # type: ignore[arg-type]
    assert report.valid, report.violations
    assert report.hot_before == made.summary["hot_before"]
    assert report.hot_after_swaps == made.summary["hot_after_swaps"]
    assert report.still_hot == made.still_hot.tolist() == made.summary["still_hot"]
    bound = made.summary["lower_bound"]
    if isinstance(bound, float) and not len(made.still_hot):
        assert float(made.summary["cost"]) >= bound * (1 - 1e-6) - 1e-9  # type: ignore[arg-type]


@pytest.mark.parametrize("method", general.METHODS)
@given(case=st.one_of(general_instances(), instances()), success=st.sampled_from([1.0, 0.8]))
@relaxed
def test_every_method_keeps_the_constraints(method: str, case: Instance, success: float) -> None:
    made = plans(case, method, success=success)
    assert_true(case, made)
    assert same(made, plans(case, method, success=success)), "another plan for the same seed"


@pytest.mark.parametrize(("method", "name"), list(product(general.METHODS, ADVERSARIAL)))
def test_adversarial_instances(method: str, name: str) -> None:
    make, fewest_hot = ADVERSARIAL[name]
    made = plans(make(), method)
    assert_true(make(), made)
    assert len(made.still_hot) == fewest_hot


@given(case=general_instances(groups=False), limit=st.sampled_from([0.0, 0.2, 0.5]))
@relaxed
def test_no_move_is_farther_than_allowed(case: Instance, limit: float) -> None:
    made = plans(case, "alp", max_move_cost=limit)
    assert_true(case, made)
    xy = case.distance.node_xy.astype(float)  # type: ignore[union-attr]
    source = case.replica_node[made.move_partition, made.move_replica]
    step = np.linalg.norm(xy[source] - xy[made.move_to], axis=1)
    assert (step <= limit * (1 + 1e-9)).all()


@given(case=instances())
@relaxed
def test_one_dimension_is_highest_load_first(case: Instance) -> None:
    units = units_of(case)
    general_choice = most_relief_first(units, initial_state(units))
    choice = highest_load_first(case, plain_state(case))
    assert general_choice.node.tolist() == choice.node.tolist()
    for node in np.unique(choice.node):
        mine = np.sort(general_choice.load[general_choice.node == node, 0])
        assert np.allclose(mine, np.sort(choice.load[choice.node == node]))


@given(seed=st.integers(0, 10_000), d=st.integers(1, 3), n=st.integers(1, 9))
@relaxed
def test_the_selection_is_near_the_fewest_objects(seed: int, d: int, n: int) -> None:
    """Wolsey's bound for the greedy algorithm is checked against every subset."""
    rng = np.random.Generator(np.random.PCG64(seed))
    load = rng.integers(0, 9, (n, d)).astype(float)
    excess = np.maximum(rng.random(d) * load.sum(axis=0), 0.5)
    rounding = np.zeros(d)
    taken = cover(load, load.sum(axis=1), np.ones(n), excess, rounding)
    subsets = (list(s) for size in range(n + 1) for s in combinations(range(n), size))
    best = next((s for s in subsets if (load[s].sum(axis=0) >= excess).all()), None)
    if best is None:
        assert len(taken) == 0
        return
    assert (load[taken].sum(axis=0) >= excess).all()
    for i in range(len(taken)):
        rest = np.delete(taken, i)
        assert (load[rest].sum(axis=0) < excess).any(), "an object in vain"
    if d == 1:
        assert len(taken) == len(best)
    # The remainder before the last object is at least this much of one excess.
    least = min((e - s for e in excess for s in range(int(e) + 1) if s < e), default=1.0)
    assert len(taken) <= len(best) * (1 + np.log(d * excess.max() / least)) + 1e-9


@given(seed=st.integers(0, 10_000))
@relaxed
def test_with_prices_the_selection_is_cheap(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    load = rng.integers(1, 9, (8, 2)).astype(float)
    price = rng.integers(1, 20, 8).astype(float)
    excess = np.array([9.0, 7.0])
    taken = cover(load, load.sum(axis=1), price, excess, np.zeros(2))
    subsets = (list(s) for size in range(9) for s in combinations(range(8), size))
    feasible = [price[s].sum() for s in subsets if (load[s].sum(axis=0) >= excess).all()]
    assert (load[taken].sum(axis=0) >= excess).all()
    # Before the last object, at least one unit of one excess remains.
    assert price[taken].sum() <= min(feasible) * (1 + np.log(2 * 9.0)) + 1e-9


def _apart(case: Instance, final: np.ndarray) -> bool:
    """Return True if C2 holds at every level, checked directly."""
    domain = case.fault_domain.reshape(case.nodes, -1)
    for was, now in zip(case.replica_node, final, strict=True):
        for a, b in combinations(range(len(was)), 2):
            if now[a] == now[b]:
                return False
            if ((domain[now[a]] == domain[now[b]]) & (domain[was[a]] != domain[was[b]])).any():
                return False
    return True


@given(case=general_instances(max_nodes=4, max_partitions=4, groups=False))
@settings(relaxed, max_examples=60)
def test_ilp_is_the_optimum_of_the_selection(case: Instance) -> None:
    units = units_of(case)
    state = initial_state(units)
    swap_phase(units, state)
    selection = most_relief_first(units, state)
    assume(0 < len(selection) <= 4)
    problem = vector_problem(units, state, selection, None)
    request = MethodRequest(timer=timer())
    placement = ilp(units, state, selection, request)
    best = np.inf
    for targets in product(range(case.nodes), repeat=len(selection)):
        move_to = np.array(targets, np.int32)
        final = case.replica_node.copy()
        final[selection.partition, selection.replica] = move_to
        used = problem.load_of(move_to)
        everything = np.arange(len(selection))
        ok = problem.allowed(everything, move_to).all() and _apart(case, final)
        if ok and ((used <= problem.rooms) | (used == 0)).all():
            best = min(best, float(problem.cost(everything, move_to).sum()))
    if best == np.inf:
        assert (placement.move_to == UNPLACED).any()
        return
    if (placement.move_to == UNPLACED).any():
        return  # rounding found no complete placement; these objects are selected again
    everything = np.arange(len(selection))
    assert problem.cost(everything, placement.move_to).sum() == pytest.approx(best, abs=1e-6)
    assert placement.lower_bound is not None
    assert placement.lower_bound <= best * (1 + 1e-6) + 1e-9
    assert placement.notes["optimal"] is True


def test_opt_knows_that_moving_nothing_is_a_solution() -> None:
    """HiGHS's presolve reports this programme as infeasible."""
    case = Instance(
        replica_node=np.array([[2, 0], [2, 1], [2, 0]], np.int32),
        primary_load=np.array([[7, 4], [4, 7], [5, 5]], np.float32),
        secondary_load=np.array([[3.5, 4], [2, 7], [2.5, 5]], np.float32),
        capacity=np.array(
            [[4.199976, 6.936743], [4.962627, 5.21165], [36.617954, 13.304275]], np.float32
        ),
        fault_domain=np.array([0, 1, 2], np.int32),
        distance=Euclidean(
            np.array(
                [[0.54362494, 0.8465752], [0.1756556, 0.08928674], [0.8631789, 0.02210194]],
                np.float32,
            )
        ),
    )
    units = units_of(case)
    state = initial_state(units)
    swap_phase(units, state)
    assert optimum(units, state, MethodRequest(timer=timer())).proven


@given(case=general_instances(max_nodes=3, max_partitions=3, groups=False))
@settings(relaxed, max_examples=60)
def test_opt_is_the_optimum_of_all_moves(case: Instance) -> None:
    units = units_of(case)
    state = initial_state(units)
    swap_phase(units, state)
    assume(case.nodes**case.replica_node.size <= 3**6)
    found = optimum(units, state, MethodRequest(timer=timer()))
    hot = state.over(units)
    best = (np.inf, np.inf)
    size = case.replica_node.size
    for places in product(range(case.nodes), repeat=size):
        final = np.array(places, np.int32).reshape(case.replica_node.shape)
        if not _apart(case, final):
            continue
        load = loads(final, units.primary, units.secondary, state.primary, case.nodes)
        over = load > units.capacity * (1 + 1e-12)
        given_up = over.any(axis=1)
        if (over & ~hot).any() or (load > np.maximum(state.load, units.capacity) + 1e-9).any():
            continue
        moved = np.flatnonzero(final.ravel() != case.replica_node.ravel())
        if (units.primary[moved // case.replicas] == 0).all(axis=1).any():
            continue  # an object without load does not move
        was, now = case.replica_node.ravel()[moved], final.ravel()[moved]
        xy = case.distance.node_xy.astype(float)  # type: ignore[union-attr]
        cost = float(np.linalg.norm(xy[was] - xy[now], axis=1).sum())
        best = min(best, (int(given_up.sum()), cost))
    assert found.proven
    made = plans(case, "opt")
    assert len(made.still_hot) == best[0]
    assert float(made.summary["cost"]) <= best[1] * (1 + 1e-6) + 1e-6  # type: ignore[arg-type]


def test_bytes_are_not_relieved_by_swaps() -> None:
    """Node 0 is hot in cpu and in bytes: a swap helps cpu, and only a move helps bytes."""
    case = vectors(
        [[0, 1], [0, 1]], [[4, 5], [4, 3]], [[2, 5], [2, 3]], [[6, 6], [20, 20], [20, 20]]
    )
    made = plans(case, "alp")
    assert_true(case, made)
    assert len(made.swap_partition) == 1
    assert made.summary["hot_after_swaps"] == 1
    assert made.move_partition.tolist() == [1], "the lightest that suffices"
    assert made.move_to.tolist() == [2]
    assert made.summary["hot_by_dimension"] == {
        "dimension 0": {"before": 1, "after_swaps": 0, "after": 0},
        "dimension 1": {"before": 1, "after_swaps": 1, "after": 0},
    }


def test_an_object_may_relieve_several_dimensions_at_once() -> None:
    """One object of medium load in both excesses beats the heaviest object of each."""
    case = vectors(
        [[0], [0], [0], [1]],
        [[6, 0], [0, 6], [5, 5], [0, 0]],
        [[0, 0]] * 4,
        [[7, 7], [20, 20]],
    )
    made = plans(case, "alp")
    assert_true(case, made)
    assert made.move_partition.tolist() == [2]


def test_domains_are_apart_at_every_level() -> None:
    """There are two sites of two racks of two nodes; site 1 holds the other replica."""
    domain = np.array([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]], np.int32)
    case = vectors(
        [[3, 4], [3, 4]],
        [[5], [4]],
        [[5], [4]],
        [[9], [0], [0], [6], [9], [9], [9], [9]],
        fault_domain=domain,
    )
    case = replace(
        case, **{n: getattr(case, n)[:, 0] for n in ("primary_load", "secondary_load", "capacity")}
    )
    made = plan(case, "alp", timer=timer())
    assert_true(case, made)
    assert made.move_to.tolist() == [0], "node 5 is nearer, in the site of the other replica"
    # A level shared by both replicas from the start keeps no replica in place.
    inside = replace(case, fault_domain=np.column_stack([np.zeros(8, np.int32), domain[:, 0]]))
    assert len(plan(inside, "alp", timer=timer()).still_hot) == 0


@given(case=general_instances(groups=True))
@relaxed
def test_groups_stay_together(case: Instance) -> None:
    made = plan(case, "alp", timer=timer())
    assert_true(case, made)
    assert case.group is not None
    final = case.replica_node.copy()
    final[made.move_partition, made.move_replica] = made.move_to
    for group in np.unique(case.group):
        assert (final[case.group == group] == final[case.group == group][0]).all()
    units = int(made.summary["unit_moves"])  # type: ignore[call-overload]
    assert units <= len(made.move_to)


def test_a_group_costs_as_much_as_its_members() -> None:
    """A closer place for a group of two saves more than for one object of the same load."""
    case = vectors(
        [[0], [0], [0], [1]],
        [[2], [2], [4], [0]],
        [[0]] * 4,
        [[0], [4], [4]],
        group=np.array([0, 0, 1, 2], np.int32),
    )
    case = replace(
        case, **{n: getattr(case, n)[:, 0] for n in ("primary_load", "secondary_load", "capacity")}
    )
    made = plan(case, "ilp", timer=timer())
    assert_true(case, made)
    to = dict(zip(made.move_partition.tolist(), made.move_to.tolist(), strict=True))
    assert to == {0: 1, 1: 1, 2: 2}
    assert made.summary["cost"] == pytest.approx(4.0)
    assert made.summary["unit_moves"] == 2


@pytest.mark.parametrize("method", [name for name in METHODS if name not in general.METHODS])
def test_other_methods_refuse_in_one_sentence(method: str) -> None:
    case = vectors([[0], [1]], [[1, 1], [1, 1]], [[0, 0], [0, 0]], [[5, 5], [5, 5]])
    with raises(UserError, method):
        plan(case, method, timer=timer())


def test_opt_refuses_what_is_too_large() -> None:
    many = [[n % 50] for n in range(2000)]
    case = vectors(many, [[1, 1]] * 2000, [[0, 0]] * 2000, [[5, 5]] * 50)
    with raises(UserError, "60000"):
        plan(case, "opt", timer=timer())
