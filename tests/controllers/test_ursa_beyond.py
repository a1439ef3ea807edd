"""Ursa beyond the paper's model: several dimensions, nested fault domains, groups, budgets."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, product, repeat

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controllers.research.ursa.optimum import optimum
from controllers.research.ursa.plan import METHODS as GENERAL
from controllers.research.ursa.units import Units, swap_phase, units_of
from controllers.ursa.check import check
from controllers.ursa.instance import Euclidean, Instance, MigrationPlan, RoundBudget, Timer
from controllers.ursa.methods import METHODS, MethodRequest
from controllers.ursa.state import PlanState, initial_state
from schemas.errors import UserError
from tests.controllers.ursa_general import general_instances, loads
from tests.controllers.ursa_instances import instance, instances, plans, relaxed, same, timer
from tests.errors import raises

pytestmark = pytest.mark.slow  # compiling and solving take time


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile before the first test, because a test's time limit does not count fixtures. numba
    keeps the loops on disk: only a new clone or a changed loop compiles."""

    @given(general_instances())
    @settings(relaxed, derandomize=True, database=None, max_examples=25)
    def planned(case: Instance) -> None:
        plans(with_bytes(case), budget=RoundBudget(max_moves=2, rounds=2))

    planned()


def with_bytes(case: Instance) -> Instance:
    """Return the instance with sizes unrelated to loads."""
    sizes = (np.arange(case.partitions) * 7 % 5).astype(np.float32)
    return replace(case, size=sizes)


def swapped(case: Instance) -> tuple[Units, PlanState]:
    """Return the units and their state after the swaps."""
    units = units_of(case)
    state = initial_state(units)
    swap_phase(units, state)
    return units, state


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


@pytest.mark.parametrize("method", GENERAL)
@given(case=general_instances(), success=st.sampled_from([1.0, 0.8]))
@relaxed
def test_every_method_keeps_the_constraints(method: str, case: Instance, success: float) -> None:
    made = plans(case, method, success=success)
    assert_true(case, made)
    assert same(made, plans(case, method, success=success)), "another plan for the same seed"
    if case.group is not None:
        final = case.replica_node.copy()
        final[made.move_partition, made.move_replica] = made.move_to
        for group in np.unique(case.group):
            assert (final[case.group == group] == final[case.group == group][0]).all()


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


@given(case=general_instances(max_nodes=3, max_partitions=3, groups=False))
@settings(relaxed, max_examples=25)
def test_opt_is_the_optimum_of_all_moves(case: Instance) -> None:
    units, state = swapped(case)
    assume(case.nodes**case.replica_node.size <= 3**6)
    hot = state.hot(units)
    best = (np.inf, np.inf)
    size = case.replica_node.size
    for places in product(range(case.nodes), repeat=size):
        final = np.array(places, np.int32).reshape(case.replica_node.shape)
        if not _apart(case, final):
            continue
        load = loads(final, units.primary_load, units.secondary_load, state.primary, case.nodes)
        over = load > units.capacity * (1 + 1e-12)
        given_up = over.any(axis=1)
        if (over & ~hot).any() or (load > np.maximum(state.load, units.capacity) + 1e-9).any():
            continue
        moved = np.flatnonzero(final.ravel() != case.replica_node.ravel())
        if (units.primary_load[moved // case.replicas] == 0).all(axis=1).any():
            continue  # an object without load does not move
        was, now = case.replica_node.ravel()[moved], final.ravel()[moved]
        xy = case.distance.node_xy.astype(float)  # type: ignore[union-attr]
        cost = float(np.linalg.norm(xy[was] - xy[now], axis=1).sum())
        best = min(best, (int(given_up.sum()), cost))
    made = plans(case, "opt")
    notes = made.summary["notes"]
    assert isinstance(notes, dict)
    assert notes.get("optimal", True)
    assert len(made.still_hot) == best[0]
    assert float(made.summary["cost"]) <= best[1] * (1 + 1e-6) + 1e-6  # type: ignore[arg-type]


@given(
    case=general_instances(max_nodes=6, max_partitions=12, groups=False), reads=st.integers(1, 4)
)
@settings(relaxed, max_examples=25)
def test_opt_that_runs_out_of_time_proves_nothing_false(case: Instance, reads: int) -> None:
    units, state = swapped(case)
    best, _, notes = optimum(units, state, MethodRequest(timer=timer()))
    assert notes["optimal"]
    times = chain([0.0] * reads, repeat(1e9))
    request = MethodRequest(timer=Timer(lambda: next(times), limit_s=100.0))
    found, bound, notes = optimum(units, state, request)
    cost = float(best.cost.sum()) * (1 + 1e-6) + 1e-6
    assert bound is None or bound <= cost
    assert not notes["optimal"] or float(found.cost.sum()) <= cost


def test_opt_knows_that_moving_nothing_is_a_solution() -> None:
    """HiGHS 1.15 took this programme for an infeasible one."""
    places = [[0.54362494, 0.8465752], [0.1756556, 0.08928674], [0.8631789, 0.02210194]]
    rooms = [[4.199976, 6.936743], [4.962627, 5.21165], [36.617954, 13.304275]]
    case = Instance(
        replica_node=np.array([[2, 0], [2, 1], [2, 0]], np.int32),
        primary_load=np.array([[7, 4], [4, 7], [5, 5]], np.float32),
        secondary_load=np.array([[3.5, 4], [2, 7], [2.5, 5]], np.float32),
        capacity=np.array(rooms, np.float32),
        fault_domain=np.array([0, 1, 2], np.int32),
        distance=Euclidean(np.array(places, np.float32)),
    )
    _, _, notes = optimum(*swapped(case), MethodRequest(timer=timer()))
    assert notes["optimal"] is True


def test_bytes_are_not_relieved_by_swaps() -> None:
    """Node 0 is hot in cpu and in bytes: a swap helps cpu, and only a move helps bytes."""
    rooms = [[6, 6], [20, 20], [20, 20]]
    case = instance([[0, 1], [0, 1]], [[4, 5], [4, 3]], rooms, secondary=[[2, 5], [2, 3]])
    made = plans(case, "alp-fast")
    assert_true(case, made)
    assert len(made.swap_partition) == 1
    assert made.summary["hot_after_swaps"] == 1
    assert made.move_partition.tolist() == [1], "the lightest that suffices"
    assert made.move_to.tolist() == [2]
    assert made.summary["hot_by_dimension"] == {
        "dimension 0": {"before": 1, "after_swaps": 0, "after": 0},
        "dimension 1": {"before": 1, "after_swaps": 1, "after": 0},
    }


def test_domains_are_apart_at_every_level() -> None:
    """There are two sites of two racks of two nodes; site 1 holds the other replica."""
    domain = [[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 3]]
    rooms = [9, 0, 0, 6, 9, 9, 9, 9]
    case = instance([[3, 4], [3, 4]], [5, 4], rooms, secondary=[5, 4], domain=domain)
    made = plans(case)
    assert_true(case, made)
    assert made.move_to.tolist() == [0], "node 5 is nearer, in the site of the other replica"
    # A level shared by both replicas from the start keeps no replica in place.
    one_site = np.column_stack([np.zeros(8, np.int32), case.fault_domain[:, 0]])
    inside = replace(case, fault_domain=one_site)
    assert len(plans(inside).still_hot) == 0


def test_a_group_costs_as_much_as_its_members() -> None:
    """A closer place for a group of two saves more than for one object of the same load."""
    case = instance([[0], [0], [0], [1]], [2, 2, 4, 0], [0, 4, 4], secondary=[0] * 4)
    case = replace(case, group=np.array([0, 0, 1, 2], np.int32))
    made = plans(case, "ilp")
    assert_true(case, made)
    to = dict(zip(made.move_partition.tolist(), made.move_to.tolist(), strict=True))
    assert to == {0: 1, 1: 1, 2: 2}
    assert made.summary["cost"] == pytest.approx(4.0)
    assert made.summary["unit_moves"] == 2


def test_what_is_for_the_papers_model_alone_is_refused() -> None:
    case = instance([[0], [1]], [[1, 1]] * 2, [[5, 5]] * 2, secondary=[[0, 0]] * 2)
    for method in METHODS.keys() - set(GENERAL):
        with raises(UserError, method):
            plans(case, method)
        with raises(UserError, method):
            plans(_row_of_hot_nodes(), method, budget=RoundBudget(max_moves=1))
    many = [[n % 50] for n in range(2000)]
    large = instance(many, [[1, 1]] * 2000, [[0.5, 0.5]] * 50, secondary=[[0, 0]] * 2000)
    with raises(UserError, "60000"):
        plans(large, "opt")


@pytest.mark.parametrize("method", ["alp-fast", "nearest", "ilp"])
@given(
    case=st.one_of(general_instances(), instances()),
    budget=st.builds(
        RoundBudget,
        max_moves=st.integers(0, 4),
        size=st.sampled_from([None, 3.0, 10.0]),
        node_size=st.sampled_from([None, 4.0]),
        rounds=st.integers(1, 4),
    ),
)
@relaxed
def test_every_round_keeps_to_its_budget(method: str, case: Instance, budget: RoundBudget) -> None:
    case = with_bytes(case)
    made = plans(case, method, budget=budget)
    report = check(case, made, made.summary["cost"])  # type: ignore[arg-type]
    assert report.valid, report.violations
    assert report.still_hot == made.still_hot.tolist()
    answer = made.summary["rounds"]
    assert isinstance(answer, list)
    assert len(answer) <= budget.rounds
    assert sum(one["moves"] for one in answer) == len(made.move_to)
    assert all(one["moves"] <= (budget.max_moves or 0) for one in answer)
    hot = [one["hot_after"] for one in answer]
    assert hot == sorted(hot, reverse=True), "no round leaves more hot than it found"
    assert not answer or hot[-1] == len(made.still_hot)
    assert same(made, plans(case, method, budget=budget))


def _row_of_hot_nodes() -> Instance:
    """Return nodes 0 to 3 that need 1, 2, 3 and 4 moves; node 4 is empty and has room for all."""
    homes = [[n] for n in range(4) for _ in range(6)]
    return instance(homes, [1] * 24, [5, 4, 3, 2, 100], secondary=[0] * 24)


@pytest.mark.parametrize(
    ("moves", "relieved"),
    [(0, []), (1, [0]), (2, [0]), (3, [0, 1]), (6, [0, 1, 2]), (9, [0, 1, 2])],
)
def test_the_most_hot_spots_for_the_moves(moves: int, relieved: list[int]) -> None:
    case = _row_of_hot_nodes()
    made = plans(case, budget=RoundBudget(max_moves=moves))
    assert made.still_hot.tolist() == [n for n in range(4) if n not in relieved]
    assert len(made.move_to) == moves, "what is left goes to the next node in part"
    assert check(case, made).valid


def test_successive_rounds_relieve_everything() -> None:
    case = _row_of_hot_nodes()
    made = plans(case, budget=RoundBudget(max_moves=3, rounds=10))
    answer = made.summary["rounds"]
    assert isinstance(answer, list)
    assert [one["hot_after"] for one in answer] == [2, 1, 1, 0]
    assert len(made.still_hot) == 0
    assert made.move_round is not None
    assert made.move_round.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert made.summary["cost"] == plans(case).summary["cost"]


def test_a_node_takes_and_gives_no_more_than_it_may() -> None:
    """Three objects of 5 bytes must leave node 0; each node may give and take 10 per round."""
    case = instance([[0]] * 4 + [[1]], [1] * 5, [1, 9, 9], secondary=[0] * 5)
    case = replace(case, size=np.full(5, 5, np.float32))
    first = plans(case, budget=RoundBudget(node_size=10.0))
    assert len(first.move_to) == 2
    assert first.still_hot.tolist() == [0]
    both = plans(case, budget=RoundBudget(node_size=10.0, rounds=2))
    assert len(both.still_hot) == 0
    assert both.move_to.tolist() == [1, 1, 1]
    narrow = plans(case, budget=RoundBudget(node_size=5.0, rounds=1))
    assert len(narrow.move_to) == 1
    several = instance([[0], [1], [2]], [2, 2, 0], [1, 1, 9, 9], secondary=[0] * 3)
    several = replace(several, size=np.full(3, 5, np.float32))
    apart = plans(several, budget=RoundBudget(node_size=5.0))
    assert sorted(apart.move_to.tolist()) == [2, 3], "no node takes both"


def test_the_checker_finds_what_exceeds_the_budget() -> None:
    case = replace(_row_of_hot_nodes(), size=np.full(24, 2, np.float32))
    made = plans(case, budget=RoundBudget(max_moves=3, rounds=4))
    assert made.move_round is not None
    for budget, says in (
        (RoundBudget(max_moves=2), "round 0 has 3 moves; 2 are allowed"),
        (RoundBudget(size=5.0), "round 0 moves 6 bytes; 5 are allowed"),
        (RoundBudget(node_size=3.0), "in round 0 4 bytes leave node 1; 3 are allowed"),
    ):
        report = check(case, replace(made, budget=budget))
        assert not report.valid
        assert says in " ".join(report.violations)
    backwards = replace(made, move_round=made.move_round[::-1].copy())
    assert "ascend" in check(case, backwards).violations[0]
    # Node 1 has to wait until its own load has left.
    case = instance([[0], [1]], [2, 2], [1, 2, 2], secondary=[0, 0])
    first = plans(case, "nearest")
    two = replace(
        first,
        move_partition=np.array([0, 1], np.int32),
        move_replica=np.array([0, 0], np.int32),
        move_to=np.array([1, 2], np.int32),
        move_round=np.array([0, 1], np.int32),
    )
    assert "round 0 makes node 1 hot" in check(case, two).violations[0]
