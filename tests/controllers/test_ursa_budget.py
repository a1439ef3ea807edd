"""Ursa within a budget of moves or bytes, round by round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ursa_general import general_instances
from ursa_instances import instance, instances, same, timer

from controllers.ursa.check import check
from controllers.ursa.instance import Instance, MigrationPlan, RoundBudget
from controllers.ursa.plan import plan
from schemas.errors import UserError
from tests.errors import raises

relaxed = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
pytestmark = pytest.mark.slow  # compiling and solving take time


def plans(case: Instance, budget: RoundBudget, method: str = "alp") -> MigrationPlan:
    """Return a plan within the budget."""
    return plan(case, method, timer=timer(), budget=budget)


def with_bytes(case: Instance) -> Instance:
    """Return the instance with sizes unrelated to loads."""
    sizes = (np.arange(case.partitions) * 7 % 5).astype(np.float32)
    return replace(case, size=sizes)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile before the first test, because a test's time limit does not count fixtures. numba
    keeps the loops on disk: only a new clone or a changed loop compiles."""

    @given(general_instances())
    @settings(relaxed, derandomize=True, database=None, max_examples=25)
    def planned(case: Instance) -> None:
        plans(with_bytes(case), RoundBudget(max_moves=2, rounds=2))

    planned()


@pytest.mark.parametrize("method", ["alp", "greedy", "ilp"])
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
    made = plans(case, budget, method)
    report = check(case, made, made.summary["cost"])  # type: ignore[arg-type]
    assert report.valid, report.violations
    assert report.still_hot == made.still_hot.tolist()
    told = made.summary["rounds"]
    assert isinstance(told, list)
    assert len(told) <= budget.rounds
    assert sum(one["moves"] for one in told) == len(made.move_to)
    assert all(one["moves"] <= (budget.max_moves or 0) for one in told)
    hot = [one["hot_after"] for one in told]
    assert hot == sorted(hot, reverse=True), "no round leaves more hot than it found"
    assert not told or hot[-1] == len(made.still_hot)
    assert same(made, plans(case, budget, method))


@given(case=instances())
@relaxed
def test_rounds_come_to_an_end(case: Instance) -> None:
    """With one move per round there are as many rounds as moves; then nothing is left to do."""
    made = plans(case, RoundBudget(max_moves=1, rounds=1000), "greedy")
    told = made.summary["rounds"]
    assert isinstance(told, list)
    assert len(told) < 1000
    assert all(one["moves"] == 1 for one in told)


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
    made = plans(case, RoundBudget(max_moves=moves))
    assert made.still_hot.tolist() == [n for n in range(4) if n not in relieved]
    assert len(made.move_to) == moves, "what is left goes to the next node in part"
    assert check(case, made).valid


def test_successive_rounds_relieve_everything() -> None:
    case = _row_of_hot_nodes()
    made = plans(case, RoundBudget(max_moves=3, rounds=10))
    told = made.summary["rounds"]
    assert isinstance(told, list)
    assert [one["hot_after"] for one in told] == [2, 1, 1, 0]
    assert len(made.still_hot) == 0
    assert made.move_round is not None
    assert made.move_round.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert made.summary["cost"] == plan(case, "alp", timer=timer()).summary["cost"]


def test_bytes_are_spent_where_they_relieve_most() -> None:
    """The choice is one object of load 4 and 100 bytes, or two of load 2 and 10 bytes each."""
    case = instance([[0], [0], [0], [1]], [4, 2, 2, 0], [4, 9], secondary=[0] * 4)
    sizes = np.array([100, 10, 10, 1], np.float32)
    made = plans(replace(case, size=sizes), RoundBudget(size=50.0))
    assert sorted(made.move_partition.tolist()) == [1, 2]
    assert len(made.still_hot) == 0
    # Without a budget the fewest objects move.
    assert plan(case, "alp", timer=timer()).move_partition.tolist() == [0]


def test_a_node_takes_and_gives_no_more_than_it_may() -> None:
    """Three objects of 5 bytes must leave node 0; each node may give and take 10 per round."""
    case = instance([[0]] * 4 + [[1]], [1] * 5, [1, 9, 9], secondary=[0] * 5)
    case = replace(case, size=np.full(5, 5, np.float32))
    first = plans(case, RoundBudget(node_size=10.0))
    assert len(first.move_to) == 2
    assert first.still_hot.tolist() == [0]
    both = plans(case, RoundBudget(node_size=10.0, rounds=2))
    assert len(both.still_hot) == 0
    assert both.move_to.tolist() == [1, 1, 1]
    narrow = plans(case, RoundBudget(node_size=5.0, rounds=1))
    assert len(narrow.move_to) == 1
    several = instance([[0], [1], [2]], [2, 2, 0], [1, 1, 9, 9], secondary=[0] * 3)
    several = replace(several, size=np.full(3, 5, np.float32))
    apart = plans(several, RoundBudget(node_size=5.0))
    assert sorted(apart.move_to.tolist()) == [2, 3], "no node takes both"


def test_what_is_wrong_is_told_in_one_sentence() -> None:
    case = _row_of_hot_nodes()
    for budget, says in (
        (RoundBudget(max_moves=-1), "max-moves: -1"),
        (RoundBudget(size=1.0), "needs an array bytes"),
        (RoundBudget(max_moves=1, rounds=0), "rounds: 0"),
        (RoundBudget(node_size=float("nan")), "node-budget: nan"),
    ):
        with raises(UserError, says):
            plans(case, budget)
    for method in ("opt", "joint", "sa", "htoc", "algorithm1"):
        with raises(UserError, method):
            plans(case, RoundBudget(max_moves=1), method)


def test_the_checker_finds_what_exceeds_the_budget() -> None:
    case = replace(_row_of_hot_nodes(), size=np.full(24, 2, np.float32))
    made = plans(case, RoundBudget(max_moves=3, rounds=4))
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
    first = plan(case, "greedy", timer=timer())
    two = replace(
        first,
        move_partition=np.array([0, 1], np.int32),
        move_replica=np.array([0, 0], np.int32),
        move_to=np.array([1, 2], np.int32),
        move_round=np.array([0, 1], np.int32),
    )
    assert "round 0 makes node 1 hot" in check(case, two).violations[0]
