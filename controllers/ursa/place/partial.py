"""When the whole selection cannot be placed: the fewest nodes left hot, then the least cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place.highs import INFINITE, Model, add_row, by_columns, solve
from controllers.ursa.place.nearest import Lists
from controllers.ursa.place.problem import Ints, Problem
from controllers.ursa.place.windows import MAX_CUTS, shared_domains
from controllers.ursa.results import UNPLACED, Timer

MAX_PAIRS = 20_000
WHOLE = 10**9


@dataclass(frozen=True, eq=False)
class Partial:
    """A placement, and whether it is proven that none leaves fewer nodes hot."""

    move_to: Int32
    proven: bool


def fewest_hot(problem: Problem, lists: Lists, move_to: Int32, timer: Timer) -> Partial:
    """Solve (7) to (13) with the freedom to give up nodes; `move_to` is what is known so far.

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
    relief = _solve(problem, found, target, np.zeros(len(found)), hot, owner, len(hot), timer)
    if relief is None:
        return Partial(move_to, proven=False)
    given_up = len(hot) - len(np.unique(problem.source[relief != UNPLACED]))
    best = _solve(problem, found, target, cost, hot, owner, given_up, timer)
    return Partial(relief if best is None else best, proven=best is not None)


def _solve(
    problem: Problem,
    found: Ints,
    target: Int32,
    cost: Float64,
    hot: Int32,
    owner: Ints,
    most: int,
    timer: Timer,
) -> Int32 | None:
    """[M] targets with at most `most` nodes given up; without costs, with the fewest given up."""
    pairs, m, h = len(found), len(problem), len(hot)
    nodes, place = np.unique(np.concatenate([target, hot]), return_inverse=True)
    place, own = place[:pairs], place[pairs:]
    n = len(nodes)
    unit = np.ones(n)
    np.maximum.at(unit, place, problem.weight[found])
    room = np.maximum(problem.room[nodes], 0.0)
    extra, column = shared_domains(problem, np.arange(m), found, target)
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
    model = Model(
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
