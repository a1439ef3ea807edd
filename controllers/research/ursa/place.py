"""Greedy, ALP and the two-phase ILP for loads of several dimensions.

ALP is that of `controllers.ursa.place.alp`: the relaxation, rounded by score, exchanges, and
integer programmes over groups of objects that compete. The ILP solves one programme over every pair
whose reduced cost is at most what ALP's placement costs above the bound: no cheaper placement can
hold any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads, njit
from controllers.research.ursa.problem import (
    Arrays,
    Ints,
    Units,
    VectorProblem,
    VectorState,
    last_cost,
    nearest_cost,
    vector_problem,
)
from controllers.ursa.instance import UNPLACED, Float64, Int32, Placement, Selection, Timer
from controllers.ursa.methods import Request
from controllers.ursa.place.highs import INFINITE, Model, add_row, by_columns, solve
from controllers.ursa.place.problem import FIRST_LIST, Bools, Lists, ragged
from controllers.ursa.place.relaxation import (
    BATCH_COLUMNS,
    FIRST_COLUMNS,
    NEW_COLUMNS,
    PRICED_AT_ONCE,
    ROUNDS,
    TOLERANCE,
    Columns,
    batched,
    components,
    farthest_move,
    ranks,
)
from controllers.ursa.place.rounding import (
    CHOICES,
    EXACT,
    MAX_CUTS,
    MIN_LOSS,
    PASSES,
    QUICK,
    Effort,
)


@njit
def _meet(levels: Int32, a: int, b: int, to_a: int, to_b: int) -> bool:
    """`VectorProblem.meet` of one pair."""
    for level in range(levels.shape[1]):
        if levels[a, level] != levels[b, level]:
            return bool(levels[to_a, level] == levels[to_b, level])
    return True


@njit
def apart(problem: Arrays, i: int, j: int, move_to: Int32) -> bool:
    """Whether node j is clear of the unit's other replicas, where they are and where they go."""
    source = problem.source[i]
    for column in range(problem.others.shape[1]):
        other = problem.others[i, column]
        if other >= 0 and _meet(problem.levels, source, other, j, other):
            return False
    for at in range(problem.sibling_first[i], problem.sibling_end[i]):
        other = problem.sibling[at]
        if (
            other != i
            and move_to[other] >= 0
            and _meet(problem.levels, source, problem.source[other], j, move_to[other])
        ):
            return False
    return True


@njit
def fits(problem: Arrays, i: int, j: int, used: Float64, leaver: int) -> bool:
    """Whether node j has room for object i in every dimension, once `leaver` (or -1) is gone."""
    for d in range(problem.rooms.shape[1]):
        after = used[j, d] + problem.loads[i, d]
        if leaver >= 0:
            after -= problem.loads[leaver, d]
        if after > problem.rooms[j, d]:
            return False
    return True


@njit
def _put(problem: Arrays, i: int, j: int, move_to: Int32, used: Float64) -> None:
    for d in range(used.shape[1]):
        if move_to[i] >= 0:
            used[move_to[i], d] -= problem.loads[i, d]
        used[j, d] += problem.loads[i, d]
    move_to[i] = j


@njit
def fit_in_order(
    order: Ints,
    start: Ints,
    length: Ints,
    list_node: Int32,
    problem: Arrays,
    move_to: Int32,
    used: Float64,
) -> None:
    """Objects in `order` to the first node of their list with room; `move_to`, `used` change."""
    for at in range(len(order)):
        i = order[at]
        for position in range(start[at], start[at] + length[at]):
            j = list_node[position]
            if (
                j != problem.source[i]
                and fits(problem, i, j, used, -1)
                and apart(problem, i, j, move_to)
            ):
                _put(problem, i, j, move_to, used)
                break


@njit
def in_score_order(owner: Ints, node: Ints, problem: Arrays, move_to: Int32, used: Float64) -> None:
    """Pairs (owner, node) in turn, where the owner is unplaced and the node has room."""
    for at in range(len(owner)):
        i, j = owner[at], node[at]
        if move_to[i] < 0 and fits(problem, i, j, used, -1) and apart(problem, i, j, move_to):
            _put(problem, i, j, move_to, used)


@njit
def exchange(  # noqa: PLR0912 - one search over direct moves and exchanges
    objects: Ints,
    first: Ints,
    end: Ints,
    node: Int32,
    target_cost: Float64,
    problem: Arrays,
    move_to: Int32,
    used: Float64,
    cost: Float64,
) -> None:
    """Place objects in their order, or move them nearer, ejecting another where that is cheapest.

    Targets of object i are ``node[first[i]:end[i]]``, the cheapest first. Who is ejected is one of
    the objects that have targets, and goes to one of these.
    """
    head = np.full(len(used), -1, np.int64)
    follow = np.full(len(move_to), -1, np.int64)
    for i in range(len(move_to) - 1, -1, -1):
        if move_to[i] >= 0 and end[i] > first[i]:
            follow[i] = head[move_to[i]]
            head[move_to[i]] = i
    for turn in range(len(objects)):
        i = objects[turn]
        home = move_to[i]
        now = cost[i] if home >= 0 else np.inf
        best = now * (1 - 1e-12) if home >= 0 else np.inf
        best_j, best_k, best_to, cost_i, cost_k = -1, -1, -1, 0.0, 0.0
        for at in range(first[i], end[i]):
            j, price = node[at], target_cost[at]
            if home >= 0 and price >= now:
                break
            if j == home or not apart(problem, i, j, move_to):
                continue
            if fits(problem, i, j, used, -1):
                if price < best:
                    best, best_j, best_k, cost_i = price, j, -1, price
                break  # what is farther is dearer
            k = head[j]
            while k >= 0:
                if k != i and fits(problem, i, j, used, k):
                    for at_k in range(first[k], end[k]):
                        to = node[at_k]
                        total = price + target_cost[at_k] - cost[k]
                        if total >= best:
                            break
                        if (
                            _other(to, j, home)
                            and fits(problem, k, to, used, -1)
                            and apart(problem, k, to, move_to)
                            and not _same(problem, i, k)
                        ):
                            best, best_j, best_k, best_to = total, j, k, to
                            cost_i, cost_k = price, target_cost[at_k]
                            break
                k = follow[k]
        if best_j < 0:
            continue
        if best_k >= 0:
            _relink(head, follow, best_k, best_j, best_to)
            _put(problem, best_k, best_to, move_to, used)
            cost[best_k] = cost_k
        _relink(head, follow, i, home, best_j)
        _put(problem, i, best_j, move_to, used)
        cost[i] = cost_i


@njit
def _other(node: int, first: int, second: int) -> bool:
    if node == first:
        return False
    return node != second


@njit
def _same(problem: Arrays, i: int, k: int) -> bool:
    """Whether two objects are of one unit."""
    return bool(problem.sibling_first[i] == problem.sibling_first[k])


@njit
def _relink(head: Ints, follow: Ints, i: int, old: int, new: int) -> None:
    if old >= 0:
        if head[old] == i:
            head[old] = follow[i]
        else:
            at = head[old]
            while follow[at] != i:
                at = follow[at]
            follow[at] = follow[i]
    follow[i] = head[new]
    head[new] = i


LONGEST_LIST = 512


@dataclass(eq=False)
class Relaxed:
    """Where the linear programme stands; as `place.relaxation.Relaxation`, but for `price` [N, D].

    Attributes:
        start: [M], the first fit.
        near: [M], cost of each object's nearest node that could take it; infinite without any.
        price: [N, D], what a unit of load costs where the node is full in that dimension.
        worth: [M], the least cost with prices, over all nodes.
        active: [M], in the programme.
        columns: the pairs in it, and their values.
        bound: no placement of all objects costs less.
        fits: the programme places every object in full.
    """

    start: Int32
    near: Float64
    price: Float64
    worth: Float64
    active: Bools
    columns: Columns
    bound: float
    fits: bool
    rounds: int = 0


def first_fit(
    problem: VectorProblem,
    lists: Lists,
    move_to: Int32,
    used: Float64,
    objects: Ints | None = None,
) -> None:
    """Place what is unplaced in place, heaviest first, each on the nearest node that has room.

    Args:
        problem: room is before anything has been placed.
        lists: candidates by the whole room, for the first round.
        move_to: [M], UNPLACED where an object is to be placed; filled in.
        used: [N, D], load that `move_to` puts on each node; kept up.
        objects: those to place; all that are unplaced when left out.
    """
    wanted = np.arange(len(problem)) if objects is None else objects
    pending = wanted[move_to[wanted] == UNPLACED]
    heaviness = (problem.loads[pending] / problem.units_of_load()).max(axis=1, initial=0.0)
    pending = pending[np.argsort(-heaviness, kind="stable")]
    rest, length = problem, FIRST_LIST
    while len(pending):
        node, _ = nearest_cost(rest, lists, pending)
        pending = pending[node >= 0]
        lists.widen(np.unique(lists.group[pending]), length)
        groups = lists.group[pending]
        fit_in_order(
            pending,
            lists.start[groups],
            lists.length[groups],
            lists.node,
            problem.arrays(),
            move_to,
            used,
        )
        left = move_to[pending] == UNPLACED
        if left.all() and bool(lists.complete[groups].all()):
            return  # what has room is in a domain of another replica of theirs
        length = 4 * length if left.all() else min(4 * length, LONGEST_LIST)
        pending = pending[left]
        rest = problem.with_rooms(problem.rooms - used)
        lists = Lists(rest, pending)


def relax(problem: VectorProblem, lists: Lists, start: Int32, timer: Timer) -> Relaxed:
    """Solve the relaxation from a first fit; when no time is left, as far as it got."""
    everything = np.arange(len(problem))
    node, near = nearest_cost(problem, lists, everything)
    begin = np.where(start == UNPLACED, node, start)
    placeable = np.flatnonzero(node >= 0)
    cost = np.full(len(problem), np.inf)
    cost[placeable] = problem.cost(placeable, begin[placeable])
    state = Relaxed(
        start=start,
        near=near,
        price=np.zeros_like(problem.rooms),
        worth=near.copy(),
        active=_contending(problem, lists, start, near, cost),
        columns=Columns(problem.nodes),
        bound=-INFINITE,
        fits=bool((node >= 0).all()),
    )
    unplaced = np.zeros(len(problem))
    changed = _join(problem, lists, state, np.flatnonzero(state.active), begin, cost)
    while len(changed) and state.rounds < ROUNDS and timer.left() > 0:
        state.rounds += 1
        _solve(problem, state, changed, unplaced, timer)
        woken = ~state.active & (start != UNPLACED)
        woken[woken] = (state.price[start[woken]] > 0).any(axis=1)
        state.active |= woken
        joined = _join(problem, lists, state, np.flatnonzero(woken), begin, cost)
        changed = np.union1d(joined, _price_out(problem, lists, state))
    state.fits = state.fits and not (unplaced > 1e-6).any()
    state.bound = certify(problem, lists, state)
    return state


def certify(problem: VectorProblem, lists: Lists, state: Relaxed) -> float:
    """A lower bound from prices alone (Lagrangian duality); refreshes `worth`."""
    active = np.flatnonzero(state.active)
    state.worth = state.near.copy()
    for part in np.array_split(active, 1 + len(active) // PRICED_AT_ONCE):
        objects, nodes, cost = pairs(problem, lists, part)
        least = np.full(len(problem), np.inf)
        np.minimum.at(least, objects, cost + problem.toll(objects, nodes, state.price))
        state.worth[part] = np.minimum(least[part], last_cost(problem, lists, part))
    finite = state.worth[np.isfinite(state.worth)]
    return float(finite.sum() - (state.price * np.where(state.price > 0, problem.rooms, 0)).sum())


def pairs(
    problem: VectorProblem, lists: Lists, objects: Ints, farthest: Float64 | None = None
) -> tuple[Ints, Int32, Float64]:
    """(object, node, cost) of each allowed pair in the lists, by object, then ascending."""
    found, nodes, cost = lists.candidates(objects, farthest)
    return found, nodes, cost * problem.members[found]


def _contending(
    problem: VectorProblem, lists: Lists, start: Int32, near: Float64, cost: Float64
) -> Bools:
    """[M], objects that are not on their nearest node, and those on nodes that these would like."""
    able = np.isfinite(near)
    active: Bools = able & ((start == UNPLACED) | (cost > near * (1 + 1e-12)))
    objects, nodes, costs = pairs(problem, lists, np.flatnonzero(active))
    wanted = np.zeros(problem.nodes, dtype=np.bool_)
    wanted[nodes[(costs < cost[objects]) | (start[objects] == UNPLACED)]] = True
    placed = start != UNPLACED
    active[placed] |= wanted[start[placed]]
    return active


def _join(
    problem: VectorProblem,
    lists: Lists,
    state: Relaxed,
    objects: Ints,
    begin: Int32,
    cost: Float64,
) -> Ints:
    if not len(objects):
        return objects
    found, nodes, costs = pairs(problem, lists, objects)
    first = ranks(found) < FIRST_COLUMNS
    return state.columns.add(
        np.concatenate([found[first], objects]),
        np.concatenate([nodes[first], begin[objects]]),
        np.concatenate([costs[first], cost[objects]]),
    )


def _price_out(problem: VectorProblem, lists: Lists, state: Relaxed) -> Ints:
    """Add pairs of negative reduced cost, widening lists whose next node could have one."""
    columns = state.columns
    active = np.flatnonzero(state.active)
    value = columns.cost + problem.toll(columns.object, columns.node, state.price)
    worth = np.full(len(problem), np.inf)
    np.minimum.at(worth, columns.object, value)
    eps = TOLERANCE * _scale(state.near)
    while True:
        open_ended = last_cost(problem, lists, active) < worth[active] - eps
        short = np.unique(lists.group[active[open_ended]])
        for length in np.unique(lists.length[short]):
            lists.widen(short[lists.length[short] == length], max(FIRST_LIST, 2 * int(length)))
        changed = []
        for part in np.array_split(active, 1 + len(active) // PRICED_AT_ONCE):
            found, nodes, cost = pairs(problem, lists, part)
            reduced = cost + problem.toll(found, nodes, state.price) - worth[found]
            better = np.flatnonzero(reduced < -eps)
            better = better[np.lexsort((reduced[better], found[better]))]
            better = better[ranks(found[better]) < NEW_COLUMNS]
            changed.append(columns.add(found[better], nodes[better], cost[better]))
        if not len(short) or any(map(len, changed)):
            return np.unique(np.concatenate(changed))


def _solve(
    problem: VectorProblem, state: Relaxed, changed: Ints, unplaced: Float64, timer: Timer
) -> None:
    """Solve the components that hold one of the `changed` objects."""
    columns = state.columns
    label, count = components(columns.object, columns.node, len(problem), problem.nodes)
    dirty = np.zeros(count, dtype=np.bool_)
    dirty[label[changed]] = True
    mine = np.flatnonzero(dirty[label[columns.object]])
    mine = mine[np.argsort(label[columns.object[mine]], kind="stable")]
    batch = batched(label[columns.object[mine]], BATCH_COLUMNS)
    pieces = [mine[batch == b] for b in range(int(batch.max(initial=-1)) + 1)]
    resting = np.where(state.active, UNPLACED, state.start).astype(np.int32)
    room = np.maximum(problem.rooms - problem.used_by(resting), 0.0)
    penalty = 4 * min(farthest_move(problem), problem.reach) * problem.members + _scale(state.near)
    in_threads(
        lambda piece: _solve_piece(problem, state, pieces[piece], room, penalty, unplaced, timer),
        len(pieces),
    )


def _solve_piece(
    problem: VectorProblem,
    state: Relaxed,
    at: Ints,
    room: Float64,
    penalty: Float64,
    unplaced: Float64,
    timer: Timer,
) -> None:
    scale = _scale(state.near)
    objects, row = np.unique(state.columns.object[at], return_inverse=True)
    nodes, place = np.unique(state.columns.node[at], return_inverse=True)
    m, n, count = len(objects), len(nodes), len(at)
    loads = problem.loads[objects]
    dimensions = loads.shape[1]
    unit = np.zeros((n, dimensions))
    np.maximum.at(unit, place, loads[row])
    unit[unit == 0] = 1.0
    entries = [
        (m + d * n + place, np.arange(count), loads[row, d] / unit[place, d])
        for d in range(dimensions)
    ]
    start, index, value = by_columns(
        count + m,
        (row, np.arange(count), 1.0),
        (np.arange(m), count + np.arange(m), 1.0),
        *entries,
    )
    found = solve(
        Model(
            cost=np.concatenate([state.columns.cost[at], penalty[objects]]) / scale,
            start=start,
            row=index,
            value=value,
            lower=np.concatenate([np.ones(m), np.full(n * dimensions, -INFINITE)]),
            upper=np.concatenate([np.ones(m), (room[nodes] / unit).T.ravel()]),
        ),
        seconds=timer.left(),
    )
    if found.x is None or found.status != "optimal":
        return
    state.columns.x[at] = found.x[:count]
    unplaced[objects] = found.x[count:]
    price = found.price[m:].reshape(dimensions, n).T * scale / unit
    state.price[nodes] = np.where(price > 1e-12 * scale / unit, price, 0.0)


def _scale(near: Float64) -> float:
    finite = near[np.isfinite(near) & (near > 0)]
    return float(finite.mean()) if len(finite) else 1.0


MAX_PAIRS = 200_000


@dataclass(frozen=True, eq=False)
class Choices:
    """Targets of each object, as `place.rounding.Choices`."""

    first: Ints
    end: Ints
    node: Int32
    cost: Float64
    reduced: Float64

    @classmethod
    def of(
        cls, count: int, owner: Ints, node: NDArray[np.integer], cost: Float64, reduced: Float64
    ) -> Choices:
        """From pairs in the order of their owners."""
        end = np.cumsum(np.bincount(owner, minlength=count)).astype(np.int64)
        first = np.concatenate([np.zeros(1, np.int64), end[:-1]]) if count else end
        return cls(first, end, node.astype(np.int32), cost, reduced)


@dataclass(eq=False)
class Standing:
    """A placement that fits: `move_to` [M], `used` [N, D] load on each node, `cost` [M]."""

    move_to: Int32
    used: Float64
    cost: Float64

    @classmethod
    def of(cls, problem: VectorProblem, move_to: Int32) -> Standing:
        """The standing of `move_to`, loads summed and costs computed anew."""
        placed = np.flatnonzero(move_to != UNPLACED)
        cost = np.zeros(len(problem))
        cost[placed] = problem.cost(placed, move_to[placed])
        return cls(move_to, problem.used_by(move_to), cost)


@dataclass(frozen=True)
class Anew:
    """Whether no placement of these objects costs less, and what all objects cost at least."""

    proven: bool
    bound: float


def worthwhile(
    problem: VectorProblem,
    lists: Lists,
    relaxed: Relaxed,
    now: Standing,
    slack: float,
    objects: Ints,
    timer: Timer,
    most: int = MAX_PAIRS,
) -> Choices | None:
    """Pairs of `objects` whose reduced cost is at most `slack`, and where each is now.

    None when they are more than `most`.
    """
    slack *= 1 + 1e-9
    farthest = np.zeros(len(lists))
    worth = (relaxed.worth[objects] + slack) / problem.members[objects]
    np.maximum.at(farthest, lists.group[objects], worth)
    while True:
        near = last_cost(problem, lists, objects) <= relaxed.worth[objects] + slack
        short = np.unique(lists.group[objects[near]])
        if not len(short):
            break
        if timer.left() <= 0 or int(lists.length[short].sum()) > 30 * most:
            return None
        for length in np.unique(lists.length[short]):
            lists.widen(short[lists.length[short] == length], max(FIRST_LIST, 2 * int(length)))
    owner, node, cost = pairs(problem, lists, objects, farthest)
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
    now: Standing,
    objects: Ints,
    effort: Effort,
    timer: Timer,
) -> Anew:
    """Place `objects` among their options where that is cheaper; `now` is changed.

    What only fits within the solver's tolerance is forbidden and the programme solved again, until
    it fits to the last digit.
    """
    row, at = ragged(options.first[objects], options.end[objects] - options.first[objects])
    clear = _clear_of_others(problem, now.move_to, objects, objects[row], options.node[at])
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
    model = _model(problem, objects, row, target, cost / scale, room)
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
                fresh = Standing.of(problem, now.move_to)
                now.used, now.cost = fresh.used, fresh.cost
            proven = found.status == "optimal" and effort.gap == 0
            return Anew(proven, others + min(found.bound * scale, after))
        for j, d in full:
            cover = taken[(place[taken] == j) & (loads[taken, d] > 0)]
            add_row(model, cover, 1.0, -INFINITE, len(cover) - 1.0)
    return Anew(proven=False, bound=-INFINITE)


def _model(
    problem: VectorProblem, objects: Ints, row: Ints, target: Int32, cost: Float64, room: Float64
) -> Model:
    nodes, place = np.unique(target, return_inverse=True)
    count, m, n = len(row), len(objects), len(nodes)
    loads = problem.loads[objects[row]]
    unit = np.zeros_like(room)
    np.maximum.at(unit, place, loads)
    unit[unit == 0] = 1.0
    dimensions = loads.shape[1]
    entries = [
        (m + d * n + place, np.arange(count), loads[:, d] / unit[place, d])
        for d in range(dimensions)
    ]
    extra, column = _meeting(problem, objects, row, target)
    more = int(extra.max(initial=-1)) + 1
    start, index, value = by_columns(
        count,
        (row, np.arange(count), 1.0),
        *entries,
        (m + n * dimensions + extra, column, 1.0),
    )
    return Model(
        cost=cost,
        start=start,
        row=index,
        value=value,
        lower=np.concatenate([np.ones(m), np.full(n * dimensions + more, -INFINITE)]),
        upper=np.concatenate([np.ones(m), (np.maximum(room, 0.0) / unit).T.ravel(), np.ones(more)]),
        integer=True,
    )


def _meeting(problem: VectorProblem, objects: Ints, row: Ints, target: Int32) -> tuple[Ints, Ints]:
    """(row, column) entries of (11): of two replicas at most one goes to a domain.

    Which level is meant depends on where the two are now.
    """
    rows: list[Ints] = []
    columns: list[Ints] = []
    several, times = np.unique(problem.partition[objects], return_counts=True)
    count = 0
    order = np.argsort(problem.partition[objects[row]], kind="stable")
    sorted_units = problem.partition[objects[row]][order]
    for unit in several[times > 1]:
        mine = order[
            np.searchsorted(sorted_units, unit) : np.searchsorted(sorted_units, unit, "right")
        ]
        who = np.unique(row[mine])
        for index, a in enumerate(who):
            for b in who[:index]:
                both = mine[(row[mine] == a) | (row[mine] == b)]
                homes = problem.levels[problem.source[objects[[a, b]]]]
                level = int((homes[0] != homes[1]).argmax())
                domains, entry = np.unique(problem.levels[target[both], level], return_inverse=True)
                rows.append(count + entry.astype(np.int64))
                columns.append(both)
                count += len(domains)
    nothing = np.empty(0, dtype=np.int64)
    return np.concatenate([nothing, *rows]), np.concatenate([nothing, *columns])


def _clear_of_others(
    problem: VectorProblem, move_to: Int32, objects: Ints, owner: Ints, target: Int32
) -> Bools:
    """Pairs that no other object of the unit, outside of `objects`, stands in the way of."""
    inside = np.zeros(len(problem), dtype=np.bool_)
    inside[objects] = True
    length = problem.sibling_end[owner] - problem.sibling_first[owner]
    clear = np.ones(len(owner), dtype=np.bool_)
    many = np.flatnonzero(length > 1)
    pair, at = ragged(problem.sibling_first[owner[many]], length[many])
    other = problem.sibling[at]
    fixed = np.flatnonzero(~inside[other] & (move_to[other] != UNPLACED))
    pair, other = pair[fixed], other[fixed]
    who = owner[many[pair]]
    met = problem.meet(
        problem.source[who], problem.source[other], target[many[pair]], move_to[other]
    )
    clear[many[pair[met]]] = False
    return clear


def greedy(units: Units, state: VectorState, selection: Selection, request: Request) -> Placement:
    """Each object, the heaviest first, to its nearest node with room."""
    problem = vector_problem(units, state, selection, request.max_move_cost)
    move_to = np.full(len(selection), UNPLACED, np.int32)
    first_fit(problem, Lists(problem), move_to, np.zeros_like(problem.rooms))
    return Placement(move_to)


def alp(units: Units, state: VectorState, selection: Selection, request: Request) -> Placement:
    """The relaxation over all targets, with a certified bound, rounded and improved."""
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
    return Placement(now.move_to, lower_bound=bound, notes=notes)


def ilp(units: Units, state: VectorState, selection: Selection, request: Request) -> Placement:
    """The optimum for the selection; `notes["optimal"]` tells whether it is proven."""
    problem, lists, relaxed = _relaxed(units, state, selection, request)
    now = _rounded(problem, lists, relaxed)
    if (now.move_to == UNPLACED).any() or not relaxed.fits:
        return Placement(now.move_to, notes={"optimal": False})
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
    return Placement(
        now.move_to,
        lower_bound=bound,
        notes={"optimal": optimal, "lp_bound": relaxed.bound},
    )


def _relaxed(
    units: Units, state: VectorState, selection: Selection, request: Request
) -> tuple[VectorProblem, Lists, Relaxed]:
    problem = vector_problem(units, state, selection, request.max_move_cost)
    lists = Lists(problem)
    start = np.full(len(problem), UNPLACED, dtype=np.int32)
    first_fit(problem, lists, start, np.zeros_like(problem.rooms))
    return problem, lists, relax(problem, lists, start, request.timer)


def _rounded(problem: VectorProblem, lists: Lists, relaxed: Relaxed) -> Standing:
    """Score order, then exchanges; where fractions lead nowhere, the first fit."""
    options = _choices(problem, lists, relaxed)
    move_to = np.where(relaxed.active, UNPLACED, relaxed.start).astype(np.int32)
    now = Standing.of(problem, move_to)
    _by_score(problem, relaxed, now)
    _exchange(problem, options, now, np.flatnonzero(now.move_to == UNPLACED))
    first_fit(problem, lists, now.move_to, now.used, np.flatnonzero(now.move_to == UNPLACED))
    unplaced = int((now.move_to == UNPLACED).sum())
    if unplaced > int((relaxed.start == UNPLACED).sum()):
        now.move_to = relaxed.start.copy()
    now = Standing.of(problem, now.move_to)
    for _ in range(PASSES):
        before = now.move_to.copy()
        loss = np.where(now.move_to == UNPLACED, 0.0, now.cost - relaxed.near)
        turn = np.flatnonzero(loss > 0)
        _exchange(problem, options, now, turn[np.argsort(-loss[turn], kind="stable")])
        if np.array_equal(before, now.move_to):
            break
    return Standing.of(problem, now.move_to)


def _by_score(problem: VectorProblem, relaxed: Relaxed, now: Standing) -> None:
    columns = relaxed.columns
    positive = np.flatnonzero(columns.x > 1e-9)
    owner, x = columns.object[positive], columns.x[positive]
    best = np.zeros(len(problem))
    np.maximum.at(best, owner, x)
    heaviness = (problem.loads / problem.units_of_load()).max(axis=1, initial=0.0)
    order = np.lexsort((columns.node[positive], -x, owner, -heaviness[owner], -best[owner]))
    in_score_order(
        owner[order], columns.node[positive][order], problem.arrays(), now.move_to, now.used
    )


def _choices(problem: VectorProblem, lists: Lists, relaxed: Relaxed) -> Choices:
    """The CHOICES targets of least reduced cost of each active object, the cheapest first."""
    owner, node, cost = pairs(problem, lists, np.flatnonzero(relaxed.active))
    reduced = cost + problem.toll(owner, node, relaxed.price) - relaxed.worth[owner]
    order = np.lexsort((cost, reduced, owner))
    order = order[ranks(owner[order]) < CHOICES]
    order = order[np.lexsort((node[order], cost[order], owner[order]))]
    return Choices.of(len(problem), owner[order], node[order], cost[order], reduced[order])


def _exchange(problem: VectorProblem, options: Choices, now: Standing, objects: Ints) -> None:
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
    problem: VectorProblem, lists: Lists, relaxed: Relaxed, now: Standing, timer: Timer
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


def _groups(problem: VectorProblem, relaxed: Relaxed, now: Standing) -> Int32:
    """[M], objects that share a target, in the programme or by their placement, have one label."""
    owner = np.concatenate([relaxed.columns.object, np.arange(len(problem))])
    node = np.concatenate([relaxed.columns.node, now.move_to])
    label, _ = components(owner, node, len(problem), problem.nodes)
    return label
