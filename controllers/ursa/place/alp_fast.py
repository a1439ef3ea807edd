"""ALP-fast, the two-phase ILP and nearest-first: placers of a given selection.

**ALP-fast** is Hotbed's variant of ALP (Algorithm 1, `algorithm1`): faster and closer to the
optimum. Kept from the paper: the relaxation of (7) to (13), score-ordered rounding and the division
into groups that do not touch. Changed: nothing is solved for objects if their nearest node has room
for all that want it; targets are generated until the relaxation over all nodes is proven optimal;
exchanges and integer programmes over small groups win back the loss of rounding.

**ILP** solves (7) to (13) to the optimum over all target nodes. The paper stops at the first radius
with a feasible solution. Here each object's radius is proven to suffice: beyond it, reduced costs
are larger than what ALP-fast's placement loses against the relaxation.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import UNPLACED, Int32, Moves, SelectionTargets, Timer
from controllers.ursa.place.exact import MeetingRows, MoveStart, choose_partly
from controllers.ursa.place.problem import Lists, PlacementProblem
from controllers.ursa.place.relaxation import Relaxation, first_fit, relax, take_back
from controllers.ursa.place.rounding import (
    CHOICES,
    EXACT,
    QUICK,
    FittingPlacement,
    Proof,
    by_score,
    choices,
    improve,
    insert,
    polish,
    standing,
)


def alp_fast(problem: PlacementProblem, timer: Timer) -> SelectionTargets:
    """Place each selected object; a placer, see `controllers.ursa.methods`.

    `lower_bound` is certified: the relaxation's value, raised by what the integer programmes prove
    (`notes["lp_bound"]` is without that); None when not all of the selection could be placed.
    """
    relaxed, lists = relaxation(problem, timer)
    move_to, (bound, optimal) = assign(problem, lists, relaxed, timer)
    whole = relaxed.fits and bool((move_to != UNPLACED).all())
    return SelectionTargets(
        move_to,
        lower_bound=bound if whole else None,
        notes={
            "lp_bound": relaxed.bound if whole else None,
            "optimal": optimal and whole,
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
) -> tuple[Int32, Proof]:
    """Return ([M] targets, the proof about them)."""
    now = rounded(problem, lists, relaxed)
    proof = relaxed.bound, False
    if not (now.move_to == UNPLACED).any():
        proof = polish(problem, lists, relaxed, now, QUICK, timer)
    if take_back(problem, now.move_to).any():
        now = standing(problem, now.move_to)
        first_fit(problem, lists, now.move_to, now.used)
        proof = proof[0], False
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


def fewest_hot(
    problem: PlacementProblem, lists: Lists, move_to: Int32, timer: Timer
) -> tuple[Int32, bool]:
    """Return ([M] targets that leave the fewest nodes hot at the least cost, True if proven).

    `move_to` is the best known placement.
    """
    objects = np.arange(len(problem))
    lists.widen(np.arange(len(lists)), WHOLE)
    found, target, cost = lists.candidates(objects)
    if len(found) > MAX_PAIRS:
        return move_to, False
    if not len(found):
        return np.full(len(problem), UNPLACED, dtype=np.int32), True

    def meeting(pairs: Moves) -> MeetingRows:
        rows, columns = problem.meeting(objects, pairs.object, pairs.to)
        apart = int(rows.max(initial=-1)) + 1
        # Every object moves, unless its node stays hot. This also tightens the relaxation.
        from_hot = np.isin(problem.source, start.hot)
        switch = len(pairs) + np.searchsorted(start.hot, problem.source[from_hot])
        return (
            np.r_[rows, apart + pairs.object, apart + objects[from_hot]],
            np.r_[columns, np.arange(len(pairs)), switch],
            np.r_[np.ones(len(rows)), -np.ones(len(pairs) + len(switch))],
            np.r_[np.ones(apart), np.where(from_hot, -1.0, 0.0)],
        )

    # `rooms` counts the objects as gone: each is a load on the node that it leaves.
    leaving = np.zeros_like(problem.rooms)
    np.add.at(leaving, problem.source, problem.loads)
    pairs = Moves(found, problem.source[found], target, problem.loads[found], cost)
    start = MoveStart(problem.rooms, leaving, meeting)
    chosen = choose_partly(start, pairs, timer, closed=True)
    if chosen.taken is None:
        return move_to, False
    # A move from a node that stays hot has a cost and cools no node.
    taken = chosen.taken[~np.isin(pairs.source[chosen.taken], chosen.given_up)]
    made = np.full(len(problem), UNPLACED, dtype=np.int32)
    made[found[taken]] = target[taken]
    return made, chosen.proven


def ilp(problem: PlacementProblem, timer: Timer, *, give_up: bool = True) -> SelectionTargets:
    """Place each selected object at least cost; a placer, see `controllers.ursa.methods`.

    `notes["optimal"]` is True if the optimum is proven. Where the whole selection cannot be placed,
    with `give_up` the fewest nodes stay hot, when the instance is small enough to prove it.
    """
    relaxed, lists = relaxation(problem, timer)
    now = rounded(problem, lists, relaxed)
    if (now.move_to == UNPLACED).any():
        if not give_up:
            return SelectionTargets(now.move_to, notes={"optimal": False})
        move_to, proven = fewest_hot(problem, lists, now.move_to, timer)
        now = standing(problem, move_to)
        if (now.move_to == UNPLACED).any():
            return SelectionTargets(now.move_to, notes={"optimal": proven})
    bound, optimal = polish(problem, lists, relaxed, now, EXACT, timer)
    return SelectionTargets(
        now.move_to,
        lower_bound=bound if relaxed.fits else None,
        notes={"optimal": optimal, "lp_bound": relaxed.bound},
    )


def nearest(problem: PlacementProblem, timer: Timer) -> SelectionTargets:
    """Place each object on its nearest node with room; a placer without a bound."""
    del timer
    move_to = np.full(len(problem), UNPLACED, np.int32)
    first_fit(problem, Lists(problem), move_to, np.zeros_like(problem.rooms))
    return SelectionTargets(move_to)
