"""The two-phase ILP, equations (7) to (13), solved to its optimum over all target nodes.

The paper stops at the first radius with a feasible solution; a target outside of it might still
be better for the sum. Here the radius of each object is the one that is proven to suffice: beyond
it, reduced costs are larger than what ALP's placement loses against the relaxation.
`algorithm1` has the paper's own search.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import Instance
from controllers.ursa.methods import Request
from controllers.ursa.place.alp import assign, relaxation
from controllers.ursa.place.nearest import Lists
from controllers.ursa.place.partial import fewest_hot
from controllers.ursa.place.problem import Problem, assignment_problem
from controllers.ursa.place.relaxation import Relaxation
from controllers.ursa.place.rounding import Choices, standing
from controllers.ursa.place.windows import EXACT, MIN_LOSS, polish
from controllers.ursa.results import UNPLACED, Placement, Selection, Timer
from controllers.ursa.state import State

MAX_PAIRS = 3_000_000


def place(instance: Instance, state: State, selection: Selection, request: Request) -> Placement:
    """Where each selected object goes, at least cost; a placer, see `controllers.ursa.methods`.

    `notes["optimal"]` tells whether the optimum is proven: it is unless time runs out, the pairs
    do not fit into memory, or the whole selection cannot be placed. In that case the fewest nodes
    stay hot, when the instance is small enough to prove it.
    """
    problem = assignment_problem(instance, state, selection, request.max_move_cost)
    relaxed, lists = relaxation(problem, request.timer)
    now = assign(problem, lists, relaxed, request.timer)
    if (now.move_to == UNPLACED).any():
        partial = fewest_hot(problem, lists, now.move_to, request.timer)
        now = standing(problem, partial.move_to)
        if (now.move_to == UNPLACED).any():
            return Placement(now.move_to, notes={"optimal": partial.proven})
    optimal = improve_to_optimum(problem, lists, relaxed, now.move_to, request.timer)
    return Placement(
        now.move_to,
        lower_bound=relaxed.bound if relaxed.fits else None,
        notes={"optimal": optimal},
    )


def improve_to_optimum(
    problem: Problem,
    lists: Lists,
    relaxed: Relaxation,
    move_to: np.ndarray[tuple[int], np.dtype[np.int32]],
    timer: Timer,
) -> bool:
    """Change `move_to`, which places all objects, into an optimum; False when not proven."""
    now = standing(problem, move_to)
    slack = max(float(now.cost.sum()) - relaxed.bound, 0.0) * (1 + 1e-9) + MIN_LOSS
    options = worthwhile(problem, lists, relaxed, slack, timer)
    if options is None:
        return False
    solved = polish(problem, options, now, relaxed.price, EXACT, timer)
    return solved and not bool(problem.crowded(now.move_to).any())


def worthwhile(
    problem: Problem, lists: Lists, relaxed: Relaxation, slack: float, timer: Timer
) -> Choices | None:
    """Every pair whose reduced cost is at most `slack`; None when they are too many."""
    groups = np.unique(lists.group)
    farthest = np.zeros(len(lists))
    np.maximum.at(farthest, lists.group, relaxed.worth + slack)
    while True:
        groups = groups[lists.last()[groups] <= farthest[groups]]
        if not len(groups):
            break
        if len(lists.node) > MAX_PAIRS or timer.left() <= 0:
            return None
        for length in np.unique(lists.length[groups]):
            lists.widen(groups[lists.length[groups] == length], max(8, 2 * int(length)))
    found, node, cost = lists.candidates(np.arange(len(problem)))
    reduced = cost + problem.weight[found] * relaxed.price[node] - relaxed.worth[found]
    keep = np.flatnonzero(reduced <= slack)
    count = np.bincount(found[keep], minlength=len(problem))
    end = np.cumsum(count)
    return Choices(end - count, end, node[keep], cost[keep], reduced[keep])
