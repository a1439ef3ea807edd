"""Ursa's solvers compared with exhaustive search, plain linear programmes and known instances."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import UNPLACED, Instance, Selection, between
from controllers.ursa.place import algorithm1, alp_fast
from controllers.ursa.place.problem import PlacementProblem, assignment_problem
from controllers.ursa.select import highest_load_first
from controllers.ursa.state import PlanState, initial_state
from controllers.ursa.swap import swap_phase
from tests.controllers.ursa_instances import instance, instances, relaxed, timer

pytestmark = pytest.mark.slow  # compiling and solving take time
FEW = 700
VARIANTS = [
    algorithm1.Variant(divide, relax) for divide in (False, True) for relax in (True, False)
]


def selected(
    case: Instance, *, swap: bool = False, reach: float | None = None
) -> tuple[PlanState, Selection, PlacementProblem]:
    """Return the state, highest-load-first's selection, and the problem of placing it."""
    state = initial_state(case)
    if swap:
        swap_phase(case, state)
    selection = highest_load_first(case, state)
    return state, selection, assignment_problem(case, state, selection, reach)


def fits(case: Instance, state: PlanState, selection: Selection, move_to: np.ndarray) -> bool:
    """Return True if (8), (11) and (12) hold for the placed objects; the others stay."""
    load = state.load.copy()
    placed = move_to != UNPLACED
    np.subtract.at(load, selection.node[placed], selection.load[placed])
    np.add.at(load, move_to[placed], selection.load[placed])
    given = np.unique(move_to[placed])
    if (load[given] > case.capacity[given]).any():
        return False
    for i in np.flatnonzero(placed):
        p, k = selection.partition[i], selection.replica[i]
        own = case.fault_domain[move_to[i]]
        others = [case.fault_domain[n] for c, n in enumerate(case.replica_node[p]) if c != k]
        mates = (selection.partition == p) & placed & (np.arange(len(selection)) != i)
        if (
            own in others
            or own in case.fault_domain[move_to[mates]]
            or move_to[i] == selection.node[i]
        ):
            return False
    return True


def cost_of(case: Instance, selection: Selection, move_to: np.ndarray) -> float:
    placed = move_to != UNPLACED
    return float(between(case.distance, selection.node[placed], move_to[placed]).sum())


def exhaustive(case: Instance, state: PlanState, selection: Selection) -> float:
    """Return the least cost of placing the whole selection; infinite if that is impossible."""
    least = np.inf
    for targets in product(range(case.nodes), repeat=len(selection)):
        move_to = np.array(targets, dtype=np.int32)
        cost = cost_of(case, selection, move_to)
        if cost < least and fits(case, state, selection, move_to):
            least = cost
    return least


def plain_relaxation(problem: PlacementProblem) -> float:
    """Solve the relaxation over every pair at once."""
    objects, nodes = np.divmod(np.arange(len(problem) * problem.nodes), problem.nodes)
    ok = problem.allowed(objects, nodes)
    objects, nodes = objects[ok], nodes[ok]
    if len(np.unique(objects)) < len(problem):
        return np.inf
    cost = between(problem.distance, problem.source[objects], nodes)
    once = np.zeros((len(problem), len(cost)))
    once[objects, np.arange(len(cost))] = 1
    load = np.zeros((problem.nodes, len(cost)))
    load[nodes, np.arange(len(cost))] = problem.weight[objects]
    from scipy.optimize import linprog

    solved = linprog(
        cost, load, np.maximum(problem.room, 0), once, np.ones(len(problem)), bounds=(0, 1)
    )
    return float(solved.fun) if solved.success else np.inf


@given(instances(max_nodes=4, max_partitions=6))
@relaxed
def test_the_ilp_finds_the_optimum(case: Instance) -> None:
    state, selection, problem = selected(case)
    if case.nodes ** len(selection) > FEW:
        return
    least = exhaustive(case, state, selection)
    placement = alp_fast.ilp(problem, timer())
    assert placement.notes["optimal"]
    assert fits(case, state, selection, placement.move_to)
    if np.isfinite(least):
        assert cost_of(case, selection, placement.move_to) == pytest.approx(least, abs=1e-9)
        assert placement.lower_bound is not None
        assert placement.lower_bound <= least + 1e-9
    else:
        assert (placement.move_to == UNPLACED).any()


@given(instances())
@relaxed
def test_the_bound_is_the_relaxations_value(case: Instance) -> None:
    _, _, problem = selected(case)
    found, _ = alp_fast.relaxation(problem, timer())
    expected = plain_relaxation(problem) if len(problem) else 0.0
    assert found.fits == np.isfinite(expected)
    if found.fits:
        assert found.bound == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("racks", [0, 12])
def test_the_bound_on_a_crowd_of_hot_nodes(racks: int) -> None:
    case = generate(shape("s3", 120, 12_000, racks=racks, discs=1, disc_area=0.3), seed=4)
    state, selection, problem = selected(case)
    found, lists = alp_fast.relaxation(problem, timer())
    assert found.active.sum() > 10
    assert found.rounds > 1
    assert found.bound == pytest.approx(plain_relaxation(problem), rel=1e-6)
    assert not lists.complete.all()
    move_to, (bound, _) = alp_fast.assign(problem, lists, found, timer())
    assert (move_to != UNPLACED).all()
    assert fits(case, state, selection, move_to)
    cost = cost_of(case, selection, move_to)
    assert found.bound <= bound <= cost * (1 + 1e-12) < 1.1 * found.bound


@pytest.mark.parametrize("limit", [None, 0.0])
@given(case=instances(), reach=st.sampled_from([None, 0.5, 3.0]))
@relaxed
def test_placers_keep_the_constraints(
    limit: float | None, case: Instance, reach: float | None
) -> None:
    state, selection, problem = selected(case, reach=reach)
    placements = [alp_fast.alp_fast(problem, timer(limit)), alp_fast.ilp(problem, timer(limit))]
    placements += [algorithm1.place(problem, timer(limit), variant) for variant in VARIANTS]
    for placement in placements:
        placed = placement.move_to != UNPLACED
        load = state.load.copy()
        np.subtract.at(load, selection.node, selection.load)
        np.add.at(load, placement.move_to[placed], selection.load[placed])
        given = np.unique(placement.move_to[placed])
        assert (load[given] <= case.capacity[given]).all()
        costs = between(case.distance, selection.node[placed], placement.move_to[placed])
        assert reach is None or (costs <= reach).all()
        if placed.all() and placement.lower_bound is not None:
            assert costs.sum() >= placement.lower_bound - 1e-9


def test_loads_fit_to_the_last_digit() -> None:
    """A solver's tolerance would put two objects together on a node: a 16-millionth too much."""
    half = 0.5 + 2.0**-24
    case = instance([[0], [0], [0]], [1.0, 0.5, half], [1.0, 1.0, 1.0], xy=[(0, 0), (1, 0), (9, 0)])
    state = initial_state(case)
    selection = Selection(
        np.array([1, 2], np.int32),
        np.zeros(2, np.int8),
        np.zeros(2, np.int32),
        case.primary_load[1:].astype(np.float64),
    )
    problem = assignment_problem(case, state, selection, None)
    for place in (alp_fast.alp_fast, alp_fast.ilp, algorithm1.place):
        placement = place(problem, timer())
        assert sorted(placement.move_to) == [1, 2]
