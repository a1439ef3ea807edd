"""Greedy, ALP and the two-phase ILP for loads of several dimensions.

ALP is that of `controllers.ursa.place.alp`: the relaxation, rounded by score, exchanges, and
integer programmes over groups of objects that compete. The ILP solves one programme over every pair
with a reduced cost of at most the gap between ALP's cost and the bound: no cheaper placement can
hold another pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.research.ursa.problem import (
    Ints,
    Units,
    VectorProblem,
    VectorState,
    exchange,
    in_score_order,
    vector_problem,
)
from controllers.ursa.instance import UNPLACED, Int32, Selection, SelectionTargets, Timer
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.highs import INFINITE, add_row, solve
from controllers.ursa.place.problem import FIRST_LIST, Lists, ragged
from controllers.ursa.place.relaxation import (
    Relaxation,
    components,
    first_fit,
    ranks,
    relax,
)
from controllers.ursa.place.rounding import (
    CHOICES,
    EXACT,
    MAX_CUTS,
    MIN_LOSS,
    PASSES,
    QUICK,
    Choices,
    Effort,
    FittingPlacement,
    assignment_model,
    clear_of_others,
    standing,
)

MAX_PAIRS = 200_000


@dataclass(frozen=True)
class Anew:
    """True if no placement of these objects costs less, and the least cost of all objects."""

    proven: bool
    bound: float


def worthwhile(
    problem: VectorProblem,
    lists: Lists,
    relaxed: Relaxation,
    now: FittingPlacement,
    slack: float,
    objects: Ints,
    timer: Timer,
    most: int = MAX_PAIRS,
) -> Choices | None:
    """Return pairs of `objects` whose reduced cost is at most `slack`, and where each is now.

    None when they are more than `most`.
    """
    slack *= 1 + 1e-9
    farthest = np.zeros(len(lists))
    worth = (relaxed.worth[objects] + slack) / problem.members[objects]
    np.maximum.at(farthest, lists.group[objects], worth)
    while True:
        near = lists.beyond(objects) <= relaxed.worth[objects] + slack
        short = np.unique(lists.group[objects[near]])
        if not len(short):
            break
        if timer.left() <= 0 or int(lists.length[short].sum()) > 30 * most:
            return None
        for length in np.unique(lists.length[short]):
            lists.widen(short[lists.length[short] == length], max(FIRST_LIST, 2 * int(length)))
    owner, node, cost = lists.candidates(objects, farthest)
    reduced = cost + problem.toll(owner, node, relaxed.price) - relaxed.worth[owner]
    keep = (reduced <= slack) & (node != now.move_to[owner])
    if int(keep.sum()) > most:
        return None
    here = problem.toll(objects, now.move_to[objects], relaxed.price)
    owner = np.concatenate([owner[keep], objects])
    node = np.concatenate([node[keep], now.move_to[objects]])
    cost = np.concatenate([cost[keep], now.cost[objects]])
    reduced = np.concatenate([reduced[keep], now.cost[objects] + here - relaxed.worth[objects]])
    order = np.argsort(owner, kind="stable")
    return Choices.of(len(problem), owner[order], node[order], cost[order], reduced[order])


def place_anew(
    problem: VectorProblem,
    options: Choices,
    now: FittingPlacement,
    objects: Ints,
    effort: Effort,
    timer: Timer,
) -> Anew:
    """Place `objects` among their options where that is cheaper; `now` is changed.

    What only fits within the solver's tolerance is forbidden and the programme solved again, until
    it fits to the last digit.
    """
    row, at = ragged(options.first[objects], options.end[objects] - options.first[objects])
    clear = clear_of_others(problem, now.move_to, objects, objects[row], options.node[at])
    row, at = row[clear], at[clear]
    target, cost = options.node[at], options.cost[at]
    here = target == now.move_to[objects[row]]
    nodes, place = np.unique(target, return_inverse=True)
    loads = problem.loads[objects[row]]
    room = problem.rooms[nodes] - now.used[nodes]
    for d in range(loads.shape[1]):
        room[:, d] += np.bincount(place[here], loads[here, d], len(nodes))
    before = float(now.cost[objects].sum())
    others = float(now.cost.sum()) - before
    scale = float(cost.max(initial=0.0)) or 1.0
    model = assignment_model(problem, objects, row, target, cost / scale, room)
    for _ in range(MAX_CUTS):
        found = solve(
            model,
            seconds=timer.left(),
            nodes=effort.nodes,
            gap=effort.gap,
            first=here.astype(np.float64),
        )
        if found.x is None:
            break
        taken = np.flatnonzero(found.x > 0.5)
        load = np.column_stack(
            [np.bincount(place[taken], loads[taken, d], len(nodes)) for d in range(loads.shape[1])]
        )
        full = np.argwhere((load > 0) & (load > room))
        if not len(full):
            after = float(cost[taken].sum())
            if after < before * (1 - 1e-12):
                now.move_to[objects[row[taken]]] = target[taken]
                fresh = standing(problem, now.move_to)
                now.used, now.cost = fresh.used, fresh.cost
            proven = found.status == "optimal" and effort.gap == 0
            return Anew(proven, others + min(found.bound * scale, after))
        for j, d in full:
            cover = taken[(place[taken] == j) & (loads[taken, d] > 0)]
            add_row(model, cover, 1.0, -INFINITE, len(cover) - 1.0)
    return Anew(proven=False, bound=-INFINITE)


def greedy(
    units: Units, state: VectorState, selection: Selection, request: MethodRequest
) -> SelectionTargets:
    """Place each object, the heaviest first, on its nearest node with room."""
    problem = vector_problem(units, state, selection, request.max_move_cost)
    move_to = np.full(len(selection), UNPLACED, np.int32)
    first_fit(problem, Lists(problem), move_to, np.zeros_like(problem.rooms))
    return SelectionTargets(move_to)


def alp(
    units: Units, state: VectorState, selection: Selection, request: MethodRequest
) -> SelectionTargets:
    """Return the relaxation over all targets, with a certified bound, rounded and improved."""
    problem, lists, relaxed = _relaxed(units, state, selection, request)
    now = _rounded(problem, lists, relaxed)
    if not (now.move_to == UNPLACED).any():
        _polish(problem, lists, relaxed, now, request.timer)
    whole = relaxed.fits and not (now.move_to == UNPLACED).any()
    bound = relaxed.bound if whole else None
    notes: dict[str, object] = {
        "lp_bound": bound,
        "active_objects": int(relaxed.active.sum()),
        "columns": len(relaxed.columns.key),
        "lp_rounds": relaxed.rounds,
    }
    return SelectionTargets(now.move_to, lower_bound=bound, notes=notes)


def ilp(
    units: Units, state: VectorState, selection: Selection, request: MethodRequest
) -> SelectionTargets:
    """Return the optimum for the selection; `notes["optimal"]` is True if it is proven."""
    problem, lists, relaxed = _relaxed(units, state, selection, request)
    now = _rounded(problem, lists, relaxed)
    if (now.move_to == UNPLACED).any() or not relaxed.fits:
        return SelectionTargets(now.move_to, notes={"optimal": False})
    _polish(problem, lists, relaxed, now, request.timer)
    total = float(now.cost.sum())
    slack = max(total - relaxed.bound, 0.0)
    optimal, bound = slack <= MIN_LOSS * max(total, 1.0), relaxed.bound
    if not optimal:
        everything = np.arange(len(problem))
        options = worthwhile(problem, lists, relaxed, now, slack, everything, request.timer)
        if options is not None:
            found = place_anew(problem, options, now, everything, EXACT, request.timer)
            optimal, bound = found.proven, max(bound, found.bound)
    bound = min(bound, float(now.cost.sum()))
    return SelectionTargets(
        now.move_to,
        lower_bound=bound,
        notes={"optimal": optimal, "lp_bound": relaxed.bound},
    )


def _relaxed(
    units: Units, state: VectorState, selection: Selection, request: MethodRequest
) -> tuple[VectorProblem, Lists, Relaxation]:
    problem = vector_problem(units, state, selection, request.max_move_cost)
    lists = Lists(problem)
    start = np.full(len(problem), UNPLACED, dtype=np.int32)
    first_fit(problem, lists, start, np.zeros_like(problem.rooms))
    return problem, lists, relax(problem, lists, start, request.timer)


def _rounded(problem: VectorProblem, lists: Lists, relaxed: Relaxation) -> FittingPlacement:
    """Round in score order, then by exchanges; use the first fit if fractions fail."""
    options = _choices(problem, lists, relaxed)
    move_to = np.where(relaxed.active, UNPLACED, relaxed.start).astype(np.int32)
    now = standing(problem, move_to)
    _by_score(problem, relaxed, now)
    _exchange(problem, options, now, np.flatnonzero(now.move_to == UNPLACED))
    first_fit(problem, lists, now.move_to, now.used, np.flatnonzero(now.move_to == UNPLACED))
    unplaced = int((now.move_to == UNPLACED).sum())
    if unplaced > int((relaxed.start == UNPLACED).sum()):
        now.move_to = relaxed.start.copy()
    now = standing(problem, now.move_to)
    for _ in range(PASSES):
        before = now.move_to.copy()
        loss = np.where(now.move_to == UNPLACED, 0.0, now.cost - relaxed.near)
        turn = np.flatnonzero(loss > 0)
        _exchange(problem, options, now, turn[np.argsort(-loss[turn], kind="stable")])
        if np.array_equal(before, now.move_to):
            break
    return standing(problem, now.move_to)


def _by_score(problem: VectorProblem, relaxed: Relaxation, now: FittingPlacement) -> None:
    columns = relaxed.columns
    positive = np.flatnonzero(columns.x > 1e-9)
    owner, x = columns.object[positive], columns.x[positive]
    best = np.zeros(len(problem))
    np.maximum.at(best, owner, x)
    heaviness = problem.heaviness()
    order = np.lexsort((columns.node[positive], -x, owner, -heaviness[owner], -best[owner]))
    in_score_order(
        owner[order], columns.node[positive][order], problem.arrays(), now.move_to, now.used
    )


def _choices(problem: VectorProblem, lists: Lists, relaxed: Relaxation) -> Choices:
    """Return the CHOICES targets of least reduced cost of each active object, cheapest first."""
    owner, node, cost = lists.candidates(np.flatnonzero(relaxed.active))
    reduced = cost + problem.toll(owner, node, relaxed.price) - relaxed.worth[owner]
    order = np.lexsort((cost, reduced, owner))
    order = order[ranks(owner[order]) < CHOICES]
    order = order[np.lexsort((node[order], cost[order], owner[order]))]
    return Choices.of(len(problem), owner[order], node[order], cost[order], reduced[order])


def _exchange(
    problem: VectorProblem, options: Choices, now: FittingPlacement, objects: Ints
) -> None:
    exchange(
        objects,
        options.first,
        options.end,
        options.node,
        options.cost,
        problem.arrays(),
        now.move_to,
        now.used,
        now.cost,
    )


def _polish(
    problem: VectorProblem, lists: Lists, relaxed: Relaxation, now: FittingPlacement, timer: Timer
) -> None:
    """Solve each group of objects that lost something against the relaxation."""
    label = _groups(problem, relaxed, now)
    count = int(label.max(initial=-1)) + 1
    loss = np.bincount(label, now.cost - relaxed.worth, minlength=count)
    nodes, first = np.unique(now.move_to, return_index=True)
    idle = (relaxed.price[nodes] * np.maximum(problem.rooms[nodes], 0.0)).sum(axis=1)
    slack = loss + np.bincount(label[first], idle, minlength=count)
    order = np.argsort(label, kind="stable")
    begin = np.searchsorted(label[order], np.arange(count + 1))
    for group in np.flatnonzero(slack > MIN_LOSS):
        objects = order[begin[group] : begin[group + 1]]
        if timer.left() <= 0 or len(objects) > QUICK.columns:
            continue
        options = worthwhile(
            problem, lists, relaxed, now, float(slack[group]), objects, timer, int(QUICK.columns)
        )
        if options is not None:
            place_anew(problem, options, now, objects, QUICK, timer)


def _groups(problem: VectorProblem, relaxed: Relaxation, now: FittingPlacement) -> Int32:
    """Return [M] labels: objects that share a target in programme or placement have one label."""
    owner = np.concatenate([relaxed.columns.object, np.arange(len(problem))])
    node = np.concatenate([relaxed.columns.node, now.move_to])
    label, _ = components(owner, node, len(problem), problem.nodes)
    return label
