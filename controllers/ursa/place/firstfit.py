"""Each object to the nearest node that still has room: heaviest objects first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place.kernels import fit_in_order
from controllers.ursa.place.nearest import FIRST_LIST, Lists, nearest_fit
from controllers.ursa.place.problem import Bools, Problem
from controllers.ursa.results import UNPLACED

LONGEST_LIST = 512


def first_fit(
    problem: Problem,
    lists: Lists,
    move_to: Int32,
    used: Float64,
    objects: NDArray[np.integer] | None = None,
) -> None:
    """Place what is unplaced, in place; what then is left fits on no node in reach.

    Every round searches anew among the nodes that still have room, so that a crowd of full nodes
    is stepped over, and places at least one object that any node can still take.

    Args:
        problem: room is before anything has been placed.
        lists: candidates by the whole room, for the first round.
        move_to: [M], UNPLACED where an object is to be placed; filled in.
        used: [N], load that `move_to` puts on each node; kept up.
        objects: those to place; all that are unplaced when left out.
    """
    wanted = np.arange(len(problem)) if objects is None else np.asarray(objects)
    pending = wanted[move_to[wanted] == UNPLACED]
    pending = pending[np.argsort(-problem.weight[pending], kind="stable")]
    rest, length = problem, FIRST_LIST
    while len(pending):
        node, _ = nearest_fit(rest, lists, pending)
        pending = pending[node >= 0]
        lists.widen(np.unique(lists.group[pending]), length)
        groups = lists.group[pending]
        fit_in_order(
            pending,
            lists.start[groups],
            lists.length[groups],
            lists.node,
            problem.layout(),
            move_to,
            used,
        )
        left = move_to[pending] == UNPLACED
        if left.all() and bool(lists.complete[groups].all()):
            return  # what has room is in a domain of another replica of theirs
        length = 4 * length if left.all() else min(4 * length, LONGEST_LIST)
        pending = pending[left]
        rest = problem.with_room(problem.room - used)
        lists = Lists(rest, pending)


def take_back(problem: Problem, move_to: Int32) -> Bools:
    """Unplace, in place, the lightest objects of nodes that are over-full until they fit.

    Returns:
        [M], the objects taken back.
    """
    back = np.zeros(len(problem), dtype=np.bool_)
    for j in np.flatnonzero(problem.crowded(move_to)):
        here = np.flatnonzero(move_to == j)
        here = here[np.argsort(-problem.weight[here], kind="stable")]
        total = 0.0
        for i in here:
            if total + problem.weight[i] <= problem.room[j]:
                total += problem.weight[i]
            else:
                back[i] = True
    move_to[back] = UNPLACED
    return back
