"""Ursa's plans on small instances: swaps, selection, and every method, all checked."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controllers.ursa.check import check
from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import Instance, MigrationPlan, Timer
from controllers.ursa.methods import METHODS
from controllers.ursa.plan import plan
from controllers.ursa.run import warm_instances, warm_up
from controllers.ursa.select import highest_load_first
from controllers.ursa.state import initial_state
from controllers.ursa.swap import swap_phase
from schemas.errors import UserError
from tests.controllers.ursa_general import loads as direct_loads
from tests.controllers.ursa_instances import (
    ADVERSARIAL,
    instance,
    instances,
    plans,
    relaxed,
    same,
)
from tests.errors import raises

pytestmark = pytest.mark.slow  # compiling and solving take time


@cache
def compiled(method: str) -> None:
    """Compile what a method needs, once for all tests and for the machine's cache."""
    warm_up(method)


@pytest.fixture(autouse=True)
def _ready(request: pytest.FixtureRequest) -> None:
    """Compile in a fixture: compilation may exceed a test's time limit, which omits fixtures."""
    callspec = getattr(request.node, "callspec", None)
    compiled(callspec.params.get("method", "nearest") if callspec else "nearest")


def loads(case: Instance, primary: np.ndarray | None = None) -> np.ndarray:
    """Return [nodes], computed directly."""
    leads = np.zeros(case.partitions, int) if primary is None else primary
    each = (case.primary_load[:, None], case.secondary_load[:, None])
    return direct_loads(case.replica_node, *each, leads, case.nodes)[:, 0]


@given(instances(), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.integers(0, 100))
@relaxed
def test_swaps_until_none_is_applicable(case: Instance, success: float, seed: int) -> None:
    state = initial_state(case)
    hot_before = state.hot(case)
    swaps = swap_phase(case, state, success=success, seed=seed)
    primary = np.zeros(case.partitions, int)
    load = loads(case)
    for p, k in zip(swaps.partition, swaps.replica, strict=True):
        shed = float(case.primary_load[p]) - float(case.secondary_load[p])
        giver, taker = case.replica_node[p, primary[p]], case.replica_node[p, k]
        assert load[giver] > case.capacity[giver] * (1 - 1e-9), "a swap that was not needed"
        load[giver] -= shed
        load[taker] += shed
        assert load[taker] <= case.capacity[taker] * (1 + 1e-9), "a swap that heats"
        primary[p] = k
    assert np.array_equal(primary, state.primary)
    assert np.allclose(load, state.load)
    assert not (state.hot(case) & ~hot_before).any()
    if success == 0.0:
        assert len(swaps) == 0
    if success == 1.0:
        for node in np.flatnonzero(state.hot(case)):
            for p in np.flatnonzero(case.replica_node[np.arange(len(primary)), primary] == node):
                shed = float(case.primary_load[p]) - float(case.secondary_load[p])
                for other in case.replica_node[p]:
                    fits = state.load[other] + shed <= case.capacity[other]
                    assert shed <= 0 or other == node or not fits, "a swap is still applicable"


@given(instances())
@relaxed
def test_selection_is_the_fewest_and_none_in_vain(case: Instance) -> None:
    state = initial_state(case)
    chosen = highest_load_first(case, state)
    assert np.all(chosen.load > 0)
    objects = list(zip(chosen.partition.tolist(), chosen.replica.tolist(), strict=True))
    assert len(set(objects)) == len(objects)
    assert np.array_equal(case.replica_node[chosen.partition, chosen.replica], chosen.node)
    assert set(chosen.node.tolist()) == set(np.flatnonzero(state.hot(case)).tolist())
    for node in np.unique(chosen.node):
        mine = np.sort(chosen.load[chosen.node == node])
        over = state.load[node] - case.capacity[node]
        slack = 1e-9 * state.load[node]
        assert mine.sum() >= over - slack
        assert mine.sum() - mine[0] < over + slack, "the lightest need not go"
        roles = np.where(np.arange(case.replicas) == 0, 1, 0)[None, :]
        each = np.where(roles == 1, case.primary_load[:, None], case.secondary_load[:, None])
        heaviest = np.sort(each[case.replica_node == node])[::-1].astype(float)
        assert heaviest[: len(mine) - 1].sum() < over + slack, "fewer would do"


NEIGHBOURS = instance([[0, 1]], [4], [2, 99, 99], domain=[0, 0, 1], xy=[(0, 0), (1, 0), (9, 0)])
"""The near node, in the hot node's fault domain, holds the partition's other replica."""


@pytest.mark.parametrize("method", METHODS)
@given(case=instances(), success=st.sampled_from([1.0, 0.9]))
@example(case=NEIGHBOURS, success=1.0)
@relaxed
def test_every_method_keeps_the_constraints(method: str, case: Instance, success: float) -> None:
    made = plans(case, method, success=success)
    report = check(case, made, made.summary["cost"])  # type: ignore[arg-type]
    assert report.valid, report.violations
    assert report.hot_before == made.summary["hot_before"]
    assert report.hot_after_swaps == made.summary["hot_after_swaps"]
    assert report.hot_after == made.summary["hot_after"] == len(made.still_hot)
    assert report.still_hot == made.still_hot.tolist() == made.summary["still_hot"]
    bound, gap = made.summary["lower_bound"], made.summary["gap"]
    if isinstance(bound, float) and not len(made.still_hot):
        assert float(made.summary["cost"]) >= bound * (1 - 1e-6) - 1e-9  # type: ignore[arg-type]
    assert gap is None or float(gap) >= -1e-6  # type: ignore[arg-type]
    assert same(made, plans(case, method, success=success)), "another plan for the same seed"
    if METHODS[method].prune and not len(made.still_hot):
        _none_in_vain(case, made)


def _none_in_vain(case: Instance, made: MigrationPlan) -> None:
    primary = np.zeros(case.partitions, int)
    primary[made.swap_partition] = made.swap_replica
    final = case.replica_node.copy()
    final[made.move_partition, made.move_replica] = made.move_to
    load = loads(replace(case, replica_node=final), primary)
    _, index, times = np.unique(made.move_partition, return_inverse=True, return_counts=True)
    for m, (p, k) in enumerate(zip(made.move_partition, made.move_replica, strict=True)):
        weight = (case.primary_load if primary[p] == k else case.secondary_load)[p]
        source = case.replica_node[p, k]
        if times[index[m]] == 1:
            back = load[source] + weight
            assert back > case.capacity[source] * (1 - 1e-9), "a move that was not needed"


@pytest.mark.parametrize(("method", "name"), list(product(METHODS, ADVERSARIAL)))
def test_adversarial_instances(method: str, name: str) -> None:
    make, fewest_hot = ADVERSARIAL[name]
    case = make()
    made = plans(case, method)
    report = check(case, made)
    assert report.valid, report.violations
    assert len(made.still_hot) >= fewest_hot
    if METHODS[method].kind == "placer":
        assert len(made.still_hot) == fewest_hot


def test_moves_come_in_an_order_that_can_be_applied() -> None:
    """Node 0 must be relieved before any object fits on it."""
    case = generate(shape("s2", 60, 6000, ratio_median=0.6, ratio_sigma=0.5), seed=1)
    made = plans(case, "nearest")
    primary = np.zeros(case.partitions, int)
    primary[made.swap_partition] = made.swap_replica
    load = loads(case, primary)
    hot = load > case.capacity
    into_hot = 0
    for p, k, to in zip(made.move_partition, made.move_replica, made.move_to, strict=True):
        weight = (case.primary_load if primary[p] == k else case.secondary_load)[p]
        into_hot += int(hot[to])
        load[to] += weight
        load[case.replica_node[p, k]] -= weight
        assert load[to] <= case.capacity[to] * (1 + 1e-9)
    assert len(made.move_to) > 20


class Slow:
    """Clock of a machine on which every reading takes `each` seconds."""

    def __init__(self, each: float) -> None:
        self._each, self._now = each, 0.0

    def __call__(self) -> float:
        self._now += self._each
        return self._now


@pytest.mark.parametrize(("method", "wide"), [*product(METHODS, [False]), ("alp-fast", True)])
def test_the_speed_of_a_machine_decides_nothing(method: str, wide: bool) -> None:
    """The plans have no time limit, and no method has its own."""
    wanted = shape("s1", 12, 240, dimensions=2 if wide else 1, ratio_median=0.6, ratio_sigma=0.5)
    case = generate(wanted, seed=14)
    quick, slow = (plan(case, method, timer=Timer(Slow(each)), seed=2) for each in (0.0, 1e7))
    assert len(quick.move_to)
    assert same(quick, slow)


def test_parameters_out_of_range_are_refused() -> None:
    case = instance([[0]], [1], [1])
    for method, more, says in (
        ("best", {}, "method"),
        ("nearest", {"max_move_cost": -1.0}, "max-move-cost"),
        ("nearest", {"max_move_cost": float("nan")}, "max-move-cost"),
        ("nearest", {"success": 1.5}, "probability"),
        ("nearest", {"seed": -1}, "seed"),
    ):
        with raises(UserError, says):
            plans(case, method, **more)


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from controllers.jit import COMPILED
assert not COMPILED
from controllers.ursa.plan import plan
from controllers.ursa.instance import Timer
from controllers.ursa.run import warm_instances
for case in warm_instances():
    made = plan(case, "alp-fast", timer=Timer(lambda: 0.0), success=0.9, seed=4)
    print([array.tolist() for array in vars(made).values() if hasattr(array, "tolist")])
"""


def test_the_same_plan_without_compiled_loops() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", WITHOUT_NUMBA],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 0, done.stderr
    for case, line in zip(warm_instances(), done.stdout.splitlines(), strict=True):
        made = plan(case, "alp-fast", timer=Timer(lambda: 0.0), success=0.9, seed=4)
        assert json.loads(line) == [
            array.tolist() for array in vars(made).values() if hasattr(array, "tolist")
        ]
