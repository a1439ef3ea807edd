"""From fractions to nodes: score order, exchanges, and integer programmes over small pieces.

The paper rounds by score: an object goes to the node with the largest fraction of it that still has
room (section 3.2, Algorithm 1 lines 8 to 13). Loads cannot be split, so some then fit nowhere near.
For these another object on the wanted node is ejected to where that costs least; the same exchange
shortens moves afterwards, a limited number of times.

Pieces of the problem that do not touch are then solved as integer programmes. By the relaxation's
prices every placement costs its bound, plus the reduced cost of every target taken, plus the priced
room left idle. What a piece loses against its part of the bound is therefore the most that the
reduced cost of any target in a better placement of it can be.

Pieces are the connected components of all pairs of reduced cost at most tau. A pair that joins two
pieces costs more than tau and can win back at most what the bounds of these two pieces have been
raised by. So as long as no piece's bound is raised by more than tau / 2, the sum of the pieces'
bounds is a bound for the whole, and pieces that are solved make up an optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads
from controllers.ursa.instance import UNPLACED, Float64, Int32, Timer
from controllers.ursa.place.highs import INFINITE, HighsModel, add_row, by_columns, solve
from controllers.ursa.place.problem import (
    Bools,
    Ints,
    Lists,
    PlacementProblem,
    exchange,
    in_score_order,
    ragged,
)
from controllers.ursa.place.relaxation import Relaxation, components, heaviest, ranks

CHOICES = 24
PASSES = 12


@dataclass(frozen=True, eq=False)
class Choices:
    """Promising targets of each object, the cheapest move first.

    Those of object i are ``first[i]:end[i]`` of the others; inactive objects have none. `reduced`
    is cost plus priced load, less the object's worth: 0 in the relaxation's optimum.
    """

    first: Ints
    end: Ints
    node: Int32
    cost: Float64
    reduced: Float64

    @classmethod
    def of(
        cls, count: int, owner: Ints, node: NDArray[np.integer], cost: Float64, reduced: Float64
    ) -> Choices:
        """Return the choices of `count` objects from pairs in the order of their owners."""
        end = np.cumsum(np.bincount(owner, minlength=count)).astype(np.int64)
        first = np.concatenate([np.zeros(1, np.int64), end[:-1]]) if count else end
        return cls(first, end, node.astype(np.int32), cost, reduced)


@dataclass(eq=False)
class FittingPlacement:
    """A placement that fits: targets [M], the load that they put on nodes [N, D], and the cost of
    each move [M], 0 for UNPLACED.
    """

    move_to: Int32
    used: Float64
    cost: Float64


def choices(
    problem: PlacementProblem, lists: Lists, relaxed: Relaxation, per_object: int
) -> Choices:
    """Return the `per_object` targets of least reduced cost of each active object."""
    columns = relaxed.columns
    found, nodes, costs = lists.candidates(np.flatnonzero(relaxed.active))
    pair = np.concatenate([found * problem.nodes + nodes, columns.key])
    pair, at = np.unique(pair, return_index=True)
    cost = np.concatenate([costs, columns.cost])[at]
    owner, node = pair // problem.nodes, (pair % problem.nodes).astype(np.int32)
    reduced = cost + problem.toll(owner, node, relaxed.price) - relaxed.worth[owner]
    order = np.lexsort((cost, reduced, owner))
    order = order[ranks(owner[order]) < per_object]
    order = order[np.lexsort((node[order], cost[order], owner[order]))]
    return Choices.of(len(problem), owner[order], node[order], cost[order], reduced[order])


def standing(problem: PlacementProblem, move_to: Int32) -> FittingPlacement:
    """Return the standing of `move_to`, loads summed and costs computed anew."""
    placed = np.flatnonzero(move_to != UNPLACED)
    cost = np.zeros(len(problem))
    cost[placed] = problem.cost(placed, move_to[placed])
    return FittingPlacement(move_to, problem.load_of(move_to), cost)


def by_score(problem: PlacementProblem, relaxed: Relaxation) -> FittingPlacement:
    """Place active objects by their fractions; inactive objects stay where they began.

    Objects that the relaxation does not split come first, then those with the largest fraction;
    objects without room stay UNPLACED.
    """
    move_to = np.where(relaxed.active, UNPLACED, relaxed.start).astype(np.int32)
    used = problem.load_of(move_to)
    columns = relaxed.columns
    positive = np.flatnonzero(columns.x > 1e-9)
    owner, x = columns.object[positive], columns.x[positive]
    best = np.zeros(len(problem))
    np.maximum.at(best, owner, x)
    heavy = problem.heaviness()[owner]
    order = np.lexsort((columns.node[positive], -x, owner, -heavy, -best[owner]))
    in_score_order(owner[order], columns.node[positive][order], problem.layout(), move_to, used)
    return standing(problem, move_to)


def insert(
    problem: PlacementProblem, options: Choices, now: FittingPlacement, objects: Ints
) -> None:
    """Place `objects` in their order, ejecting another object where that is cheapest.

    An object already placed is moved when that lowers the total cost. `now` is changed.
    """
    targets = options.first, options.end, options.node, options.cost
    exchange(objects, *targets, problem.layout(), now.move_to, now.used, now.cost)


def improve(problem: PlacementProblem, options: Choices, now: FittingPlacement) -> None:
    """Shorten moves by `insert` until nothing changes, at most PASSES times; `now` is changed."""
    active = np.flatnonzero(options.end > options.first)
    cheapest = np.zeros(len(problem))
    cheapest[active] = options.cost[options.first[active]]
    for _ in range(PASSES):
        before = now.move_to.copy()
        loss = now.cost - cheapest
        turn = active[(loss[active] > 0) & (now.move_to[active] != UNPLACED)]
        insert(problem, options, now, turn[np.argsort(-loss[turn], kind="stable")])
        if np.array_equal(before, now.move_to):
            return


MIN_LOSS = 1e-9
EQUAL = 1e-12
"""Part of the cost that two sums of the same moves may differ by."""
MAX_CUTS = 50
MAX_PAIRS = 6_000_000
WIDENINGS = 6


@dataclass(frozen=True)
class Effort:
    """Limits of the work on a piece: it is left as it is with more targets than `columns`; `nodes`
    of branch and bound, the same on every machine; and the relative gap that is good enough.
    """

    columns: float
    nodes: int | None
    gap: float


QUICK = Effort(columns=3000, nodes=200, gap=1e-5)
EXACT = Effort(columns=INFINITE, nodes=None, gap=0.0)


Proof = tuple[float, bool]
"""A lower bound of placing all objects, and True if it is reached."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Components of the pairs of reduced cost at most `tau`, and those of the first placement.

    Attributes:
        label: [M], the piece of each object.
        slack: [pieces], what the placement costs above the piece's part of the bound.
        size: [pieces], pairs that a better placement of the piece could hold.
    """

    options: Choices
    tau: float
    label: Int32
    slack: Float64
    size: Ints


def polish(
    problem: PlacementProblem,
    lists: Lists,
    relaxed: Relaxation,
    now: FittingPlacement,
    effort: Effort,
    timer: Timer,
) -> Proof:
    """Solve each piece; `now`, which places every object, is changed where something is better.

    Nothing is begun when no time is left.
    """
    cost = float(now.cost.sum())
    if cost <= relaxed.bound * (1 + EQUAL):
        return min(relaxed.bound, cost), True
    pieces = _pieces(problem, lists, relaxed, now, effort, timer)
    if pieces is None:
        return relaxed.bound, False
    order = np.argsort(pieces.label, kind="stable")
    begin = np.searchsorted(pieces.label[order], np.arange(len(pieces.slack) + 1))
    lossy = np.flatnonzero(pieces.slack > MIN_LOSS)
    raised = np.zeros(len(lossy))
    reached = np.zeros(len(lossy), dtype=np.bool_)

    def work(at: int) -> None:
        # Pieces share neither objects nor nodes: each writes to its own part of `now`.
        piece = lossy[at]
        slack = float(pieces.slack[piece])
        if timer.left() > 0 and pieces.size[piece] <= effort.columns:
            objects = order[begin[piece] : begin[piece + 1]]
            saved, least = solve_piece(problem, pieces.options, now, objects, slack, effort, timer)
            raised[at] = slack - least
            reached[at] = saved >= least - MIN_LOSS and raised[at] <= pieces.tau / 2

    in_threads(work, len(lossy))
    bound = relaxed.bound + float(np.minimum(raised, pieces.tau / 2).sum())
    return min(bound, float(now.cost.sum())), bool(reached.all())


def _pieces(
    problem: PlacementProblem,
    lists: Lists,
    relaxed: Relaxation,
    now: FittingPlacement,
    effort: Effort,
    timer: Timer,
) -> Pieces | None:
    tau, found = MIN_LOSS, None
    for _ in range(WIDENINGS):
        options = worthwhile(problem, lists, relaxed, now, tau, timer)
        if options is None:
            return found
        found = _components(problem, relaxed, now, options, tau)
        small = found.size <= effort.columns
        needed = 2 * float(found.slack[small].max(initial=0.0))
        if needed <= tau:
            return found
        tau = needed * (1 + 1e-9)
    return found


def worthwhile(
    problem: PlacementProblem,
    lists: Lists,
    relaxed: Relaxation,
    now: FittingPlacement,
    tau: float,
    timer: Timer,
) -> Choices | None:
    """Return all pairs of reduced cost at most `tau`, and those of `now`; None if too many."""
    farthest = np.zeros(len(lists))
    np.maximum.at(farthest, lists.group, (relaxed.worth + tau) / problem.members)
    groups = np.arange(len(lists))
    while True:
        groups = groups[lists.last()[groups] <= farthest[groups]]
        if not len(groups):
            break
        if len(lists.node) > MAX_PAIRS or timer.left() <= 0:
            return None
        for length in np.unique(lists.length[groups]):
            lists.widen(groups[lists.length[groups] == length], max(8, 2 * int(length)))
    found, node, cost = lists.candidates(np.arange(len(problem)), farthest)
    reduced = cost + problem.toll(found, node, relaxed.price) - relaxed.worth[found]
    here = node == now.move_to[found]
    keep = np.flatnonzero((reduced <= tau) | here)
    missing = np.ones(len(problem), dtype=np.bool_)
    missing[found[here]] = False
    away = np.flatnonzero(missing)
    more = now.cost[away] + problem.toll(away, now.move_to[away], relaxed.price)
    owner = np.concatenate([found[keep], away])
    order = np.argsort(owner, kind="stable") if len(away) else np.arange(len(owner))
    return Choices.of(
        len(problem),
        owner[order],
        np.concatenate([node[keep], now.move_to[away]])[order],
        np.concatenate([cost[keep], now.cost[away]])[order],
        np.concatenate([reduced[keep], more - relaxed.worth[away]])[order],
    )


def _components(
    problem: PlacementProblem,
    relaxed: Relaxation,
    now: FittingPlacement,
    options: Choices,
    tau: float,
) -> Pieces:
    owner, at = ragged(options.first, options.end - options.first)
    label, _ = components(owner, options.node[at], len(problem), problem.nodes)
    label, count = _joined(label, problem.partition)
    nodes, first = np.unique(options.node[at], return_index=True)
    idle = (relaxed.price[nodes] * problem.rooms[nodes]).sum(axis=1)
    slack = np.bincount(label, now.cost - relaxed.worth, minlength=count)
    slack += np.bincount(label[owner[first]], idle, minlength=count)
    keep = options.reduced[at] <= slack[label[owner]] * (1 + 1e-9) + MIN_LOSS
    size = np.bincount(label[owner[keep]], minlength=count)
    return Pieces(options, tau, label, np.asarray(slack), size)


def solve_piece(
    problem: PlacementProblem,
    options: Choices,
    standing: FittingPlacement,
    objects: Ints,
    slack: float,
    effort: Effort,
    timer: Timer,
) -> tuple[float, float]:
    """Place `objects` anew, all others staying, where that is cheaper; return the savings, and the
    most possible savings.

    A solver's tolerance may let a node be over-full by a millionth: the set of objects that is too
    heavy is then forbidden by a cover inequality, and the programme solved again.
    """
    move_to = standing.move_to
    row, at = ragged(options.first[objects], options.end[objects] - options.first[objects])
    target = options.node[at]
    keep = (options.reduced[at] <= slack * (1 + 1e-9) + MIN_LOSS) | (
        target == move_to[objects[row]]
    )
    keep &= clear_of_others(problem, move_to, objects, objects[row], target)
    row, at, target = row[keep], at[keep], target[keep]
    now = target == move_to[objects[row]]
    nodes, place = np.unique(target, return_inverse=True)
    loads = problem.loads_of(objects[row])
    inside = node_sums(place[now], loads[:, now], len(nodes))
    room = problem.rooms[nodes] - (standing.used[nodes] - inside)
    scale = float(options.cost[at].max(initial=0.0)) or 1.0
    model = assignment_model(problem, objects, row, target, options.cost[at] / scale, room)
    before = float(standing.cost[objects].sum())
    for _ in range(MAX_CUTS):
        found = solve(
            model,
            seconds=timer.left(),
            nodes=effort.nodes,
            gap=effort.gap,
            first=now.astype(np.float64),
        )
        least = min(before - found.bound * scale, slack)
        if found.x is None:
            return 0.0, slack
        taken = np.flatnonzero(found.x > 0.5)
        load = node_sums(place[taken], loads[:, taken], len(nodes))
        full = np.argwhere((load > 0) & (load > room))
        if not len(full):
            who, cost = objects[row[taken]], options.cost[at[taken]]
            saved = max(before - float(cost.sum()), 0.0)
            _take_over(problem, standing, who, target[taken], cost)
            return saved, max(least, saved)
        for j, d in full:
            cover = taken[(place[taken] == j) & (loads[d, taken] > 0)]
            add_row(model, cover, 1.0, -INFINITE, len(cover) - 1.0)
    return 0.0, slack


def node_sums(place: Ints, loads: Float64, n: int) -> Float64:
    """Return [n, D], the sums of `loads` [D, pairs] at each place."""
    return np.column_stack([np.bincount(place, load, minlength=n) for load in loads])


def assignment_model(
    problem: PlacementProblem, objects: Ints, row: Ints, target: Int32, cost: Float64, room: Float64
) -> HighsModel:
    """Return equations (7) to (9), (11) and (13) for given pairs; (10), (12) by omitted pairs.

    Args:
        problem: what is placed.
        objects: [m], those placed.
        row, target, cost: [pairs], the place in `objects`, the node and the cost of each pair.
        room: [nodes, D], of the distinct targets, ascending.
    """
    nodes, place = np.unique(target, return_inverse=True)
    pairs, m, n = len(row), len(objects), len(nodes)
    loads = problem.loads_of(objects[row])
    unit = heaviest(loads, place, n)
    extra, column = problem.meeting(objects, row, target)
    more = int(extra.max(initial=-1)) + 1
    start, index, value = by_columns(
        pairs,
        (row, np.arange(pairs), 1.0),
        *(
            (m + d * n + place, np.arange(pairs), load / unit[d, place])
            for d, load in enumerate(loads)
        ),
        (m + unit.size + extra, column, 1.0),
    )
    return HighsModel(
        cost=cost,
        start=start,
        row=index,
        value=value,
        lower=np.concatenate([np.ones(m), np.full(unit.size + more, -INFINITE)]),
        upper=np.concatenate([np.ones(m), (np.maximum(room, 0.0).T / unit).ravel(), np.ones(more)]),
        integer=True,
    )


def clear_of_others(
    problem: PlacementProblem, move_to: Int32, objects: Ints, owner: Ints, target: Int32
) -> Bools:
    """Return pairs that no object of the partition outside of `objects` blocks."""
    length = problem.sibling_end[owner] - problem.sibling_first[owner]
    clear = np.ones(len(owner), dtype=np.bool_)
    many = np.flatnonzero(length > 1)
    pair, at = ragged(problem.sibling_first[owner[many]], length[many])
    other = problem.sibling[at]
    fixed = ~np.isin(other, objects) & (move_to[other] != UNPLACED)
    pair, other = pair[fixed], other[fixed]
    met = problem.meet(owner[many[pair]], other, target[many[pair]], move_to[other])
    clear[many[pair[met]]] = False
    return clear


def _joined(label: Int32, partition: Int32) -> tuple[Int32, int]:
    """Merge components that hold objects of one partition."""
    _, inverse = np.unique(partition, return_inverse=True)
    count = int(label.max(initial=-1)) + 1
    merged, _ = components(label, inverse, count, int(inverse.max(initial=-1)) + 1)
    _, renamed = np.unique(merged[label], return_inverse=True)
    return renamed.astype(np.int32), int(renamed.max(initial=-1)) + 1


def _take_over(
    problem: PlacementProblem, standing: FittingPlacement, who: Ints, to: Int32, cost: Float64
) -> None:
    if cost.sum() >= standing.cost[who].sum() * (1 - 1e-12):
        return
    np.subtract.at(standing.used, standing.move_to[who], problem.loads[who])
    np.add.at(standing.used, to, problem.loads[who])
    standing.move_to[who], standing.cost[who] = to, cost
