"""Rounds of Ursa: incrementally updated state compared with newly built state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.research.ursa.rounds import NodeIndex, Rounds
from controllers.ursa.check import check
from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import Instance, MigrationPlan
from controllers.ursa.plan import plan
from controllers.ursa.run import warm_up
from controllers.ursa.state import initial_state
from schemas.errors import UserError
from tests.controllers.ursa_instances import instance, instances, relaxed, same, timer
from tests.errors import raises

pytestmark = pytest.mark.slow  # compiling takes time


@pytest.fixture(autouse=True, scope="module")
def _ready() -> None:
    warm_up("nearest")


def whole(case: Instance) -> Instance:
    """Return the instance with loads that add up exactly in any order."""
    return replace(
        case,
        primary_load=np.ceil(case.primary_load * 2),
        secondary_load=np.ceil(case.secondary_load),
        capacity=np.ceil(case.capacity * 1.5),
    )


def changed(case: Instance, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random partitions, possibly repeated, and whole loads for them."""
    count = int(rng.integers(0, case.partitions + 1)) if case.partitions else 0
    partition = rng.integers(0, max(case.partitions, 1), count).astype(np.int32)
    primary = rng.integers(0, 12, count).astype(np.float32)
    return partition, primary, np.floor(primary / 2)


def assert_kept_up(rounds: Rounds) -> None:
    """Assert that loads and lists match the placement."""
    now = rounds.instance
    assert np.allclose(rounds.load, initial_state(now).load, rtol=1e-12, atol=1e-12)
    fresh, kept = NodeIndex(now), rounds._index
    assert np.array_equal(fresh.count, kept.count)
    for node in range(now.nodes):
        mine, other = (
            index.ids[index.begin[node] : index.begin[node] + index.count[node]]
            for index in (fresh, kept)
        )
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("method", ["nearest", "alp-fast", "htoc"])
@given(case=instances(), seed=st.integers(0, 1000), success=st.sampled_from([1.0, 0.9]))
@relaxed
def test_a_round_decides_what_a_plan_from_scratch_does(
    method: str, case: Instance, seed: int, success: float
) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    rounds = Rounds(whole(case))
    for _ in range(4):
        now = rounds.instance
        made = rounds.decide(timer(), method, success=success, seed=seed)
        scratch = plan(now, method, timer=timer(), success=success, seed=seed)
        assert same(made, scratch)
        report = check(now, made, made.summary["cost"])  # type: ignore[arg-type]
        assert report.valid, report.violations
        rounds.apply(made)
        assert np.flatnonzero(rounds.load > now.capacity).tolist() == made.still_hot.tolist()
        assert_kept_up(rounds)
        rounds.update(*changed(now, rng))
        assert_kept_up(rounds)


@pytest.mark.parametrize("success", [1.0, 0.9])
def test_a_round_of_more_candidates_than_are_sorted_at_first(success: float) -> None:
    tight = shape("s2", 40, 8000, ratio_median=0.65, ratio_sigma=0.4, load_max=20.0)
    rounds = Rounds(whole(generate(tight, seed=1)))
    rng = np.random.Generator(np.random.PCG64(1))
    for _ in range(3):
        now = rounds.instance
        made = rounds.decide(timer(), "nearest", success=success, seed=3)
        scratch = plan(now, "nearest", timer=timer(), success=success, seed=3)
        assert same(made, scratch)
        assert len(made.swap_partition)
        rounds.apply(made)
        partition = rng.integers(0, now.partitions, 800).astype(np.int32)
        primary = np.ceil(now.primary_load[rng.permutation(partition)])
        rounds.update(partition, primary, np.floor(primary / 2))
    assert_kept_up(rounds)


def test_a_part_of_a_plan_may_be_applied() -> None:
    case = generate(shape("s2", 60, 6000, ratio_median=0.6, ratio_sigma=0.5), seed=1)
    rounds = Rounds(case)
    made = rounds.decide(timer(), "nearest")
    assert len(made.move_to) > 20
    half = {
        name: getattr(made, name)[: len(getattr(made, name)) // 2]
        for name in ("swap_partition", "swap_replica")
    }
    half |= {name: getattr(made, name)[:9] for name in ("move_partition", "move_replica")}
    rounds.apply(replace(made, **half, move_to=made.move_to[:9]))
    assert_kept_up(rounds)
    again = rounds.decide(timer(), "nearest")
    assert check(rounds.instance, again).valid
    assert len(again.still_hot) == 0


def test_many_objects_come_to_one_node() -> None:
    """The number of objects exceeds the spare places in a node's list."""
    many = 500
    case = instance([[0]] * many + [[1]], [1] * (many + 1), [many, many + 1])
    rounds = Rounds(case)
    everything = np.arange(many, dtype=np.int32)
    nothing = np.empty(0, np.int32)
    zeros = np.zeros(many, np.int32)
    rounds.apply(
        MigrationPlan(
            nothing, nothing, everything, zeros, np.ones(many, np.int32), still_hot=nothing
        )
    )
    assert_kept_up(rounds)
    assert rounds.load.tolist() == [0, many + 1]


@pytest.mark.parametrize(
    ("partition", "primary", "secondary", "says"),
    [
        ([9], [1], [1], "partition[0] is 9"),
        ([0], [np.nan], [1], "primary_load[0] is nan"),
        ([0, 1], [1, 1], [1, -1], "secondary_load[1] is -1"),
        ([0, 1], [1], [1], "primary_load has 1 entries"),
    ],
)
def test_malformed_changes_get_one_sentence(
    partition: list[int], primary: list[float], secondary: list[float], says: str
) -> None:
    rounds = Rounds(instance([[0], [1]], [1, 1], [5, 5]))
    with raises(UserError, says):
        rounds.update(
            np.array(partition, np.int32),
            np.array(primary, np.float32),
            np.array(secondary, np.float32),
        )
