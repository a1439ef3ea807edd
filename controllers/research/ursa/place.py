"""Greedy, ALP, the two-phase ILP and OPT for loads of several dimensions.

ALP is that of `controllers.ursa.place.alp`: the relaxation, rounded by score, exchanges, and
integer programmes over groups of objects that compete. The ILP solves one programme over every pair
with a reduced cost of at most the gap between ALP's cost and the bound: no cheaper placement can
hold another pair.

OPT solves equations (1) to (6), for instances that are small enough. A column is one possible move.
There is a row for each node and dimension; (5) has one for each two replicas of a unit and each
domain, of the outermost level that keeps the two apart, that either could come into.
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
    move_list,
    object_load,
    vector_problem,
)
from controllers.ursa.instance import (
    UNPLACED,
    Float64,
    Int32,
    Selection,
    SelectionTargets,
    Timer,
    between,
)
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.exact import Pairs
from controllers.ursa.place.highs import INFINITE, HighsModel, add_row, by_columns, solve
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
from controllers.ursa.select import MoveList
from schemas.errors import UserError

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


OPT_PAIRS = 60_000
OPT_CUTS = 100
GIVEN_UP = 1 + 1e-7
"""Part of a node's excess that giving it up allows: a solver may find a programme that is exactly
tight infeasible. An exact check afterwards shows if the node becomes hotter."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Moves, and True if none are proven to be better."""

    moves: MoveList
    proven: bool


def optimum(units: Units, state: VectorState, request: MethodRequest) -> Optimum:
    """Return the fewest nodes left hot, and then the cheapest moves.

    Raises:
        UserError: there are more than OPT_PAIRS possible moves.
    """
    if units.placed.replica_node.size * max(units.nodes - 1, 0) > OPT_PAIRS:
        raise UserError(
            f"method opt is for at most {OPT_PAIRS} possible moves when loads have several "
            "dimensions, fault domains are nested or replicas move in groups",
            do="take ilp or alp",
        )
    pairs = _every_pair(units, state, request)
    hot = np.flatnonzero(state.hot(units)).astype(np.int32)
    model = _opt_model(units, state, pairs, hot)
    costs = model.cost
    model.cost = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    nothing = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    fewest = _solve_opt(units, state, model, pairs, hot, request.timer, nothing)
    if fewest is None:
        none = np.empty(0, np.int32)
        return Optimum(move_list(units, state, none, none, none), proven=False)
    taken, given_up, proven, begin = fewest
    model.cost = costs
    switches = np.arange(len(pairs), model.columns)
    add_row(model, switches, 1.0, -INFINITE, given_up + 0.5)
    best = _solve_opt(units, state, model, pairs, hot, request.timer, begin)
    if best is not None:
        taken, proven = best[0], proven and best[2]
    unit, replica = np.divmod(pairs.object[taken], units.replicas)
    moves = move_list(
        units, state, unit.astype(np.int32), replica.astype(np.int32), pairs.target[taken]
    )
    return Optimum(moves, proven and best is not None)


def _every_pair(units: Units, state: VectorState, request: MethodRequest) -> Pairs:
    size, n = units.placed.replica_node.size, units.nodes
    number = np.repeat(np.arange(size, dtype=np.int64), n)
    target = np.tile(np.arange(n, dtype=np.int32), size)
    unit, replica = np.divmod(number, units.replicas)
    source = units.placed.replica_node[unit, replica]
    load = object_load(units, state, unit.astype(np.int32), replica)
    distance = between(units.placed.distance, source, target)
    keep = (source != target) & (load > 0).any(axis=1)
    if request.max_move_cost is not None:
        keep &= distance <= request.max_move_cost
    cost = distance * units.members[unit]
    return Pairs(number, source, target, load, cost).where(keep)


def _opt_model(units: Units, state: VectorState, pairs: Pairs, hot: Int32) -> HighsModel:
    """Return the programme; the last columns, one per hot node, give up the node."""
    count, n, dimensions = len(pairs), units.nodes, units.dimensions
    room = units.capacity - state.load
    unit = np.maximum(units.capacity, 1e-30).max(axis=0)
    objects, row = np.unique(pairs.object, return_inverse=True)
    m = len(objects)
    shared, column, sign, limit = _meeting(units, pairs)
    base = n * dimensions
    index = np.arange(count)
    entries = []
    for d in range(dimensions):
        entries += [
            (d * n + pairs.target.astype(np.int64), index, pairs.load[:, d] / unit[d]),
            (d * n + pairs.source.astype(np.int64), index, -pairs.load[:, d] / unit[d]),
        ]
        given = GIVEN_UP * np.minimum(room[hot, d], 0.0) / unit[d]
        entries.append((d * n + hot.astype(np.int64), count + np.arange(len(hot)), given))
    start, rows, value = by_columns(
        count + len(hot), *entries, (base + row, index, 1.0), (base + m + shared, column, sign)
    )
    scale = float(pairs.cost.max(initial=0.0)) or 1.0
    return HighsModel(
        cost=np.r_[pairs.cost / scale, np.zeros(len(hot))],
        start=start,
        row=rows,
        value=value,
        lower=np.full(base + m + len(limit), -INFINITE),
        upper=np.concatenate([(room / unit).T.ravel(), np.ones(m), limit]),
        integer=True,
    )


def _meeting(units: Units, pairs: Pairs) -> tuple[Ints, Ints, Float64, Float64]:
    """Return (row, column, sign, limit): a replica enters a domain only after the other left."""
    replicas = units.replicas
    unit, replica = np.divmod(pairs.object, replicas)
    rows: list[int] = []
    columns: list[int] = []
    signs: list[float] = []
    limits: list[float] = []
    for u in np.unique(unit):
        mine = np.flatnonzero(unit == u)
        home = units.domain[units.placed.replica_node[u]]
        for b in range(replicas):
            for a in range(b):
                level = int((home[a] != home[b]).argmax())
                of = {k: mine[replica[mine] == k] for k in (a, b)}
                into = {k: units.domain[pairs.target[of[k]], level] for k in (a, b)}
                for domain in np.unique(np.concatenate([into[a], into[b]])):
                    limit = 1.0
                    for k in (a, b):
                        if home[k, level] == domain:
                            limit -= 1.0  # it is there, unless it leaves
                            leaving = of[k][into[k] != domain]
                            entries, sign = leaving, -1.0
                        else:
                            entries, sign = of[k][into[k] == domain], 1.0
                        rows += [len(limits)] * len(entries)
                        columns += entries.tolist()
                        signs += [sign] * len(entries)
                    limits.append(limit)
    return (
        np.array(rows, dtype=np.int64),
        np.array(columns, dtype=np.int64),
        np.array(signs, dtype=np.float64),
        np.array(limits, dtype=np.float64),
    )


def _solve_opt(
    units: Units,
    state: VectorState,
    model: HighsModel,
    pairs: Pairs,
    hot: Int32,
    timer: Timer,
    first: Float64,
) -> tuple[Ints, int, bool, Float64] | None:
    """Return (moves, nodes given up, proven, all columns), checked exactly; None without
    any. `first` is a solution to begin from: without one HiGHS 1.15 was seen to call a programme
    infeasible that moving nothing solves."""
    count = len(pairs)
    for _ in range(OPT_CUTS):
        found = solve(model, seconds=timer.left(), first=first)
        if found.x is None:
            return None
        taken = np.flatnonzero(found.x[:count] > 0.5)
        given_up = hot[found.x[count:] > 0.5]
        limit = units.capacity.copy()
        limit[given_up] = np.maximum(limit[given_up], state.load[given_up])
        after = pairs.where(taken).load_after(state.load)
        over = np.argwhere(after > limit * (1 + 1e-13))
        if not len(over):
            return taken, len(given_up), found.status == "optimal", np.round(found.x)
        leaving = np.isin(pairs.object, pairs.object[taken])
        for node, d in over:
            heavy = pairs.load[:, d] > 0
            coming = taken[(pairs.target[taken] == node) & heavy[taken]]
            more = np.flatnonzero((pairs.source == node) & ~leaving & heavy)
            switch = count + np.flatnonzero((hot == node) & ~np.isin(hot, given_up))
            columns = np.r_[coming, more, switch]
            sign = np.r_[-np.ones(len(coming)), np.ones(len(more) + len(switch))]
            add_row(model, columns, sign, 1.0 - len(coming), INFINITE)
    return None
