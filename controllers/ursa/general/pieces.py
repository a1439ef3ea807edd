"""Integer programmes over some of the objects, all others staying: loads of several dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.general.problem import VectorProblem, last_cost
from controllers.ursa.general.relax import Relaxed, pairs
from controllers.ursa.general.units import Ints
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place.highs import INFINITE, Model, add_row, by_columns, solve
from controllers.ursa.place.nearest import FIRST_LIST, Lists
from controllers.ursa.place.problem import Bools, ragged
from controllers.ursa.place.windows import MAX_CUTS, Effort
from controllers.ursa.results import UNPLACED, Timer

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
