"""Integer programmes over pieces of the active set that do not touch, from a placement that fits.

By the relaxation's prices every placement costs its bound, plus the reduced cost of every target
taken, plus the priced room left idle. What a piece loses against its part of the bound is therefore
the most that the reduced cost of any target in a better placement can be: all others are left out,
and if no other limit is set the result is the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place.highs import INFINITE, Model, add_row, by_columns, solve
from controllers.ursa.place.problem import Bools, Ints, Problem, ragged
from controllers.ursa.place.relaxation import components
from controllers.ursa.place.rounding import Choices, Standing
from controllers.ursa.results import UNPLACED, Timer

MIN_LOSS = 1e-9
MAX_CUTS = 50


@dataclass(frozen=True)
class Effort:
    """How hard a piece is tried.

    Attributes:
        columns: pieces with more targets than that are left as they are.
        nodes: of branch and bound, a limit that is the same on every machine; None for none.
        gap: relative gap that is good enough.
    """

    columns: float
    nodes: int | None
    gap: float


QUICK = Effort(columns=3000, nodes=200, gap=1e-5)
EXACT = Effort(columns=INFINITE, nodes=None, gap=0.0)


def polish(
    problem: Problem,
    options: Choices,
    standing: Standing,
    price: Float64,
    effort: Effort,
    timer: Timer,
) -> bool:
    """Solve each piece; `standing` is changed where something better is found.

    Args:
        problem, options: what is placed, and where it may go.
        standing: where to begin.
        price: [N], of the relaxation.
        effort: limits.
        timer: nothing is begun when no time is left.

    Returns:
        Whether every piece was solved, so that nothing better exists within `options`.
    """
    owner, at = ragged(options.first, options.end - options.first)
    label, count = components(owner, options.node[at], len(problem), problem.nodes)
    if effort is EXACT:
        label, count = _joined(label, problem.partition)
    loss = _losses(problem, options, standing, price, label, count)
    keep = options.reduced[at] <= loss[label[owner]] * (1 + 1e-9) + MIN_LOSS
    size = np.bincount(label[owner[keep]], minlength=count)
    order = np.argsort(label, kind="stable")
    begin = np.searchsorted(label[order], np.arange(count + 1))
    solved = True
    for piece in np.flatnonzero(loss > MIN_LOSS):
        small = size[piece] <= effort.columns
        if timer.left() <= 0 or not small:
            solved = False
            continue
        objects = order[begin[piece] : begin[piece + 1]]
        solved &= solve_piece(problem, options, standing, objects, loss[piece], effort, timer)
    return solved


def solve_piece(
    problem: Problem,
    options: Choices,
    standing: Standing,
    objects: Ints,
    loss: float,
    effort: Effort,
    timer: Timer,
) -> bool:
    """Place `objects` anew, all others staying, where that is cheaper.

    A solver's tolerance may let a node be over-full by a millionth. The set of objects that is too
    heavy is then forbidden by a cover inequality, and the programme solved again: loads fit to the
    last digit.

    Returns:
        Whether the programme was solved to its end.
    """
    move_to = standing.move_to
    row, at = ragged(options.first[objects], options.end[objects] - options.first[objects])
    target = options.node[at]
    keep = (options.reduced[at] <= loss * (1 + 1e-9) + MIN_LOSS) | (target == move_to[objects[row]])
    keep &= _clear_of_others(problem, move_to, objects, objects[row], target)
    row, at, target = row[keep], at[keep], target[keep]
    now = target == move_to[objects[row]]
    if int(now.sum()) != len(objects):
        return False
    nodes, place = np.unique(target, return_inverse=True)
    weight = problem.weight[objects[row]]
    inside = np.bincount(place[now], weight[now], minlength=len(nodes))
    room = problem.room[nodes] - (standing.used[nodes] - inside)
    scale = float(options.cost[at].max(initial=0.0)) or 1.0
    model = assignment_model(problem, objects, row, target, options.cost[at] / scale, room)
    for _ in range(MAX_CUTS):
        found = solve(
            model,
            seconds=timer.left(),
            nodes=effort.nodes,
            gap=effort.gap,
            first=now.astype(np.float64),
        )
        if found.x is None:
            return False
        taken = np.flatnonzero(found.x > 0.5)
        if len(taken) != len(objects):
            return False
        load = np.bincount(place[taken], weight[taken], minlength=len(nodes))
        full = np.flatnonzero((load > 0) & (load > room))
        if not len(full):
            who, cost = objects[row[taken]], options.cost[at[taken]]
            _take_over(problem, standing, who, target[taken], cost)
            return found.status == "optimal"
        for j in full:
            cover = taken[place[taken] == j]
            add_row(model, cover, 1.0, -INFINITE, len(cover) - 1.0)
    return False


def assignment_model(
    problem: Problem, objects: Ints, row: Ints, target: Int32, cost: Float64, room: Float64
) -> Model:
    """Equations (7) to (9), (11) and (13) for given pairs; (10) and (12) by leaving pairs out.

    Args:
        problem: what is placed.
        objects: [m], those placed.
        row, target, cost: [pairs], the place in `objects`, the node and the cost of each pair.
        room: [nodes], of the distinct targets, ascending.
    """
    nodes, place = np.unique(target, return_inverse=True)
    pairs, m, n = len(row), len(objects), len(nodes)
    weight = problem.weight[objects[row]]
    unit = np.zeros(n)
    np.maximum.at(unit, place, weight)
    unit[unit == 0] = 1.0
    extra, column = shared_domains(problem, objects, row, target)
    more = int(extra.max(initial=-1)) + 1
    start, index, value = by_columns(
        pairs,
        (row, np.arange(pairs), 1.0),
        (m + place, np.arange(pairs), weight / unit[place]),
        (m + n + extra, column, 1.0),
    )
    return Model(
        cost=cost,
        start=start,
        row=index,
        value=value,
        lower=np.concatenate([np.ones(m), np.full(n + more, -INFINITE)]),
        upper=np.concatenate([np.ones(m), np.maximum(room, 0.0) / unit, np.ones(more)]),
        integer=True,
    )


def shared_domains(problem: Problem, objects: Ints, row: Ints, target: Int32) -> tuple[Ints, Ints]:
    """(row, column) entries of (11): partitions of which several objects may go to one domain."""
    _, inverse, count = np.unique(
        problem.partition[objects], return_inverse=True, return_counts=True
    )
    column = np.flatnonzero(count[inverse[row]] > 1)
    if not len(column):
        return column, column
    domains = int(problem.domain.max(initial=0)) + 1
    key = inverse[row[column]].astype(np.int64) * domains + problem.domain[target[column]]
    _, extra = np.unique(key, return_inverse=True)
    return extra.astype(np.int64), column


def _clear_of_others(
    problem: Problem, move_to: Int32, objects: Ints, owner: Ints, target: Int32
) -> Bools:
    """Pairs that no object of the same partition, outside of `objects`, stands in the way of."""
    inside = np.zeros(len(problem), dtype=np.bool_)
    inside[objects] = True
    length = problem.sibling_end[owner] - problem.sibling_first[owner]
    clear = np.ones(len(owner), dtype=np.bool_)
    many = np.flatnonzero(length > 1)
    pair, at = ragged(problem.sibling_first[owner[many]], length[many])
    other = problem.sibling[at]
    fixed = ~inside[other] & (move_to[other] != UNPLACED)
    same = problem.domain[move_to[other]] == problem.domain[target[many[pair]]]
    clear[many[pair[fixed & same]]] = False
    return clear


def _joined(label: Int32, partition: Int32) -> tuple[Int32, int]:
    """Components that hold objects of one partition become one."""
    _, inverse = np.unique(partition, return_inverse=True)
    count = int(label.max(initial=-1)) + 1
    merged, _ = components(label, inverse, count, int(inverse.max(initial=-1)) + 1)
    _, renamed = np.unique(merged[label], return_inverse=True)
    return renamed.astype(np.int32), int(renamed.max(initial=-1)) + 1


def _losses(
    problem: Problem,
    options: Choices,
    standing: Standing,
    price: Float64,
    label: Int32,
    count: int,
) -> Float64:
    """[components], cost above the relaxation's bound; 0 for one with an unplaced object."""
    owner, at = ragged(options.first, options.end - options.first)
    mine = options.node[at] == standing.move_to[owner]
    loss = np.bincount(label[owner[mine]], np.maximum(options.reduced[at[mine]], 0), count)
    nodes, first = np.unique(options.node[at], return_index=True)
    idle = price[nodes] * np.maximum(problem.room[nodes] - standing.used[nodes], 0)
    loss += np.bincount(label[owner[first]], idle, minlength=count)
    alone = (standing.move_to == UNPLACED) & (options.end > options.first)
    loss[label[alone]] = 0.0
    return np.asarray(loss)


def _take_over(problem: Problem, standing: Standing, who: Ints, to: Int32, cost: Float64) -> None:
    if cost.sum() >= standing.cost[who].sum() * (1 - 1e-12):
        return
    np.subtract.at(standing.used, standing.move_to[who], problem.weight[who])
    np.add.at(standing.used, to, problem.weight[who])
    standing.move_to[who], standing.cost[who] = to, cost
