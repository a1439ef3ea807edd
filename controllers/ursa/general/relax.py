"""The linear relaxation over all target nodes, with a row for each node and dimension.

As in `place.relaxation`: every object begins on its nearest node with room; only objects that had
to step aside, those in their way, and those on nodes that turn out to have a price are in the
programme; targets come by column generation, until prices prove that no other could be better.
Constraint (11), on replicas that move together, is left to the rounding; dropping it keeps the
bound valid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.general import kernels
from controllers.ursa.general.problem import VectorProblem, last_cost, nearest_cost
from controllers.ursa.general.units import Ints
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.jit import in_threads
from controllers.ursa.place.highs import INFINITE, Model, by_columns, solve
from controllers.ursa.place.nearest import FIRST_LIST, Lists
from controllers.ursa.place.problem import Bools
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
from controllers.ursa.results import UNPLACED, Timer

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
        kernels.fit_in_order(
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
