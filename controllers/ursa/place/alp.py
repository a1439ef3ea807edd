"""ALP, the two-phase ILP and greedy: placers of a given selection.

**ALP** is the approximate linear programme of section 3.2, faster and closer to the optimum. Kept
from the paper: phase 1's selection, the relaxation of (7) to (13), score-ordered rounding and the
division into groups that do not touch. Changed: nothing is solved for objects if their nearest node
has room for all that want it. Targets are generated until the relaxation over all nodes is proven
optimal (instead of a radius that grows until it is feasible). Exchanges and integer programmes over
small groups win back the loss of rounding.

**ILP** solves (7) to (13) to the optimum over all target nodes. The paper stops at the first radius
with a feasible solution; a target outside of it might still be better for the sum. Here the radius
of each object is the one that is proven to suffice: beyond it, reduced costs are larger than what
ALP's placement loses against the relaxation. `algorithm1` has the paper's own search.

**Greedy** sends each object, the heaviest first, to its nearest node with room.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.instance import UNPLACED, Float64, Int32, SelectionTargets, Timer
from controllers.ursa.place.highs import INFINITE, HighsModel, add_row, by_columns, solve
from controllers.ursa.place.problem import Ints, Lists, PlacementProblem
from controllers.ursa.place.relaxation import Relaxation, first_fit, relax, take_back
from controllers.ursa.place.rounding import (
    CHOICES,
    EXACT,
    MAX_CUTS,
    QUICK,
    FittingPlacement,
    LowerBoundProof,
    by_score,
    choices,
    improve,
    insert,
    polish,
    standing,
)


def alp(problem: PlacementProblem, timer: Timer) -> SelectionTargets:
    """Place each selected object; a placer, see `controllers.ursa.methods`.

    `lower_bound` is certified: the relaxation's value, raised by what the integer programmes prove
    (`notes["lp_bound"]` is without that); None when not all of the selection could be placed.
    """
    relaxed, lists = relaxation(problem, timer)
    move_to, proof = assign(problem, lists, relaxed, timer)
    whole = relaxed.fits and bool((move_to != UNPLACED).all())
    return SelectionTargets(
        move_to,
        lower_bound=proof.bound if whole else None,
        notes={
            "lp_bound": relaxed.bound if whole else None,
            "optimal": proof.optimal and whole,
            "active_objects": int(relaxed.active.sum()),
            "columns": len(relaxed.columns.key),
            "lp_rounds": relaxed.rounds,
        },
    )


def relaxation(problem: PlacementProblem, timer: Timer) -> tuple[Relaxation, Lists]:
    """Return the relaxation of `problem` from a first fit, and the candidates looked at."""
    lists = Lists(problem)
    start = np.full(len(problem), UNPLACED, dtype=np.int32)
    first_fit(problem, lists, start, np.zeros_like(problem.rooms))
    return relax(problem, lists, start, timer), lists


def assign(
    problem: PlacementProblem, lists: Lists, relaxed: Relaxation, timer: Timer
) -> tuple[Int32, LowerBoundProof]:
    """Return ([M] targets, the proof about them)."""
    now = rounded(problem, lists, relaxed)
    proof = LowerBoundProof(relaxed.bound, optimal=False)
    if not (now.move_to == UNPLACED).any():
        proof = polish(problem, lists, relaxed, now, QUICK, timer)
    if take_back(problem, now.move_to).any():
        now = standing(problem, now.move_to)
        first_fit(problem, lists, now.move_to, now.used)
        proof = LowerBoundProof(proof.bound, optimal=False)
    return now.move_to, proof


def rounded(problem: PlacementProblem, lists: Lists, relaxed: Relaxation) -> FittingPlacement:
    """Return targets from the relaxation, or from the first fit if its fractions fail."""
    options = choices(problem, lists, relaxed, CHOICES)
    now = by_score(problem, relaxed)
    left = np.flatnonzero((now.move_to == UNPLACED) & np.isfinite(relaxed.near))
    left = left[np.argsort(-problem.heaviness()[left], kind="stable")]
    insert(problem, options, now, left)
    first_fit(problem, lists, now.move_to, now.used, left)
    if int((now.move_to == UNPLACED).sum()) > int((relaxed.start == UNPLACED).sum()):
        now.move_to = relaxed.start.copy()
    now = standing(problem, now.move_to)
    improve(problem, options, now)
    return now


MAX_PAIRS = 20_000
WHOLE = 10**9


@dataclass(frozen=True, eq=False)
class Partial:
    """Placement, and True if none is proven to leave fewer nodes hot."""

    move_to: Int32
    proven: bool


def fewest_hot(problem: PlacementProblem, lists: Lists, move_to: Int32, timer: Timer) -> Partial:
    """Solve (7) to (13) with the freedom to give up nodes; `move_to` is the best known placement.

    A node that is given up keeps all of its objects: what leaves it would cost and relieve nobody.
    Nothing moves onto it either.
    """
    objects = np.arange(len(problem))
    lists.widen(np.arange(len(lists)), WHOLE)
    found, target, cost = lists.candidates(objects)
    if len(found) > MAX_PAIRS:
        return Partial(move_to, proven=False)
    if not len(found):
        return Partial(np.full(len(problem), UNPLACED, dtype=np.int32), proven=True)
    hot, owner = np.unique(problem.source, return_inverse=True)
    relief = _solve_partial(
        problem, found, target, np.zeros(len(found)), hot, owner, len(hot), timer
    )
    if relief is None:
        return Partial(move_to, proven=False)
    given_up = len(hot) - len(np.unique(problem.source[relief != UNPLACED]))
    best = _solve_partial(problem, found, target, cost, hot, owner, given_up, timer)
    return Partial(relief if best is None else best, proven=best is not None)


def _solve_partial(
    problem: PlacementProblem,
    found: Ints,
    target: Int32,
    cost: Float64,
    hot: Int32,
    owner: Ints,
    most: int,
    timer: Timer,
) -> Int32 | None:
    """Return [M] targets with at most `most` nodes given up; without costs, with the fewest."""
    pairs, m, h = len(found), len(problem), len(hot)
    nodes, place = np.unique(np.concatenate([target, hot]), return_inverse=True)
    place, own = place[:pairs], place[pairs:]
    n = len(nodes)
    unit = np.ones(n)
    np.maximum.at(unit, place, problem.weight[found])
    room = np.maximum(problem.room[nodes], 0.0)
    extra, column = problem.meeting(np.arange(m), found, target)
    more = int(extra.max(initial=-1)) + 1
    start, row, value = by_columns(
        pairs + h,
        (found, np.arange(pairs), 1.0),
        (np.arange(m), pairs + owner, 1.0),
        (m + place, np.arange(pairs), problem.weight[found] / unit[place]),
        (m + own, pairs + np.arange(h), room[own] / unit[own]),
        (m + n + extra, column, 1.0),
        (np.full(h, m + n + more), pairs + np.arange(h), 1.0),
    )
    scale = float(cost.max(initial=0.0)) or 1.0
    model = HighsModel(
        cost=np.concatenate([cost / scale, np.full(h, 0.0 if cost.any() else 1.0)]),
        start=start,
        row=row,
        value=value,
        lower=np.concatenate([np.ones(m), np.full(n + more + 1, -INFINITE)]),
        upper=np.concatenate([np.ones(m), room / unit, np.ones(more), [float(most)]]),
        integer=True,
    )
    for _ in range(MAX_CUTS):
        solved = solve(model, seconds=timer.left())
        if solved.x is None or solved.status != "optimal":
            return None
        taken = np.flatnonzero(solved.x[:pairs] > 0.5)
        load = np.bincount(place[taken], problem.weight[found[taken]], minlength=n)
        full = np.flatnonzero((load > 0) & (load > problem.room[nodes]))
        if not len(full):
            move_to = np.full(m, UNPLACED, dtype=np.int32)
            move_to[found[taken]] = target[taken]
            return move_to
        for j in full:
            cover = taken[place[taken] == j]
            add_row(model, cover, 1.0, -INFINITE, len(cover) - 1.0)
    return None


def ilp(problem: PlacementProblem, timer: Timer, *, give_up: bool = True) -> SelectionTargets:
    """Place each selected object at least cost; a placer, see `controllers.ursa.methods`.

    `notes["optimal"]` is True if the optimum is proven: it is unless time runs out, the pairs
    do not fit into memory, or the whole selection cannot be placed. In that case, with `give_up`,
    the fewest nodes stay hot, when the instance is small enough to prove it.
    """
    relaxed, lists = relaxation(problem, timer)
    now = rounded(problem, lists, relaxed)
    if (now.move_to == UNPLACED).any():
        if not give_up:
            return SelectionTargets(now.move_to, notes={"optimal": False})
        partial = fewest_hot(problem, lists, now.move_to, timer)
        now = standing(problem, partial.move_to)
        if (now.move_to == UNPLACED).any():
            return SelectionTargets(now.move_to, notes={"optimal": partial.proven})
    proof = polish(problem, lists, relaxed, now, EXACT, timer)
    return SelectionTargets(
        now.move_to,
        lower_bound=proof.bound if relaxed.fits else None,
        notes={"optimal": proof.optimal, "lp_bound": relaxed.bound},
    )


def greedy(problem: PlacementProblem, timer: Timer) -> SelectionTargets:
    """Place each object on its nearest node with room; a placer without a bound."""
    del timer
    move_to = np.full(len(problem), UNPLACED, np.int32)
    first_fit(problem, Lists(problem), move_to, np.zeros_like(problem.rooms))
    return SelectionTargets(move_to)
