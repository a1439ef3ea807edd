"""ALP: the approximate linear programme of section 3.2, faster and closer to the optimum.

Kept from the paper: phase 1's selection, the relaxation of (7) to (13), score-ordered rounding and
the division into groups that do not touch. Changed: nothing is solved for objects whose nearest
node has room for all that want it, targets are generated until the relaxation over all nodes is
proven optimal (instead of a radius that grows until it is feasible), and what rounding loses is
won back by exchanges and by integer programmes over small groups.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import Instance, Int32
from controllers.ursa.methods import Request
from controllers.ursa.place.firstfit import first_fit, take_back
from controllers.ursa.place.nearest import Lists
from controllers.ursa.place.problem import Problem, assignment_problem
from controllers.ursa.place.relaxation import Relaxation, relax
from controllers.ursa.place.rounding import (
    CHOICES,
    Standing,
    by_score,
    choices,
    improve,
    insert,
    standing,
)
from controllers.ursa.place.windows import QUICK, Proof, polish
from controllers.ursa.results import UNPLACED, Placement, Selection, Timer
from controllers.ursa.state import State


def place(instance: Instance, state: State, selection: Selection, request: Request) -> Placement:
    """Where each selected object goes; a placer, see `controllers.ursa.methods`.

    `lower_bound` is certified: the relaxation's value, raised by what the integer programmes prove
    (`notes["lp_bound"]` is without that); None when not all of the selection could be placed.
    """
    problem = assignment_problem(instance, state, selection, request.max_move_cost)
    relaxed, lists = relaxation(problem, request.timer)
    move_to, proof = assign(problem, lists, relaxed, request.timer)
    whole = relaxed.fits and bool((move_to != UNPLACED).all())
    return Placement(
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


def relaxation(problem: Problem, timer: Timer) -> tuple[Relaxation, Lists]:
    """The relaxation of `problem` from a first fit, and the candidates looked at."""
    lists = Lists(problem)
    start = np.full(len(problem), UNPLACED, dtype=np.int32)
    first_fit(problem, lists, start, np.zeros(problem.nodes))
    return relax(problem, lists, start, timer), lists


def assign(
    problem: Problem, lists: Lists, relaxed: Relaxation, timer: Timer
) -> tuple[Int32, Proof]:
    """([M] targets, what is proven of them)."""
    now = rounded(problem, lists, relaxed)
    proof = Proof(relaxed.bound, optimal=False)
    if not (now.move_to == UNPLACED).any():
        proof = polish(problem, lists, relaxed, now, QUICK, timer)
    if take_back(problem, now.move_to).any():
        now = standing(problem, now.move_to)
        first_fit(problem, lists, now.move_to, now.used)
        proof = Proof(proof.bound, optimal=False)
    return now.move_to, proof


def rounded(problem: Problem, lists: Lists, relaxed: Relaxation) -> Standing:
    """Targets from the relaxation; where its fractions lead nowhere, from the first fit."""
    options = choices(problem, lists, relaxed, CHOICES)
    now = by_score(problem, relaxed)
    left = np.flatnonzero((now.move_to == UNPLACED) & np.isfinite(relaxed.near))
    left = left[np.argsort(-problem.weight[left], kind="stable")]
    insert(problem, options, now, left)
    first_fit(problem, lists, now.move_to, now.used, left)
    if int((now.move_to == UNPLACED).sum()) > int((relaxed.start == UNPLACED).sum()):
        now.move_to = relaxed.start.copy()
    now = standing(problem, now.move_to)
    improve(problem, options, now)
    return now
