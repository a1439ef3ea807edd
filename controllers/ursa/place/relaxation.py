"""First fit, and the linear relaxation of (7) to (13) over *all* target nodes.

The relaxation is solved on the few objects that matter. Every object begins on the nearest node
with room. Only where objects had to step aside is there anything to decide: those objects and the
ones in their way form the **active set**; an object on a node that turns out to have a price joins.
Targets come by column generation: a node's price and the distance bound what any node farther out
could offer, so that the search ends with a proof. Constraint (11) is left to the rounding; dropping
it keeps the bound valid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads
from controllers.ursa.instance import UNPLACED, Float64, Int32, Timer
from controllers.ursa.place.highs import INFINITE, HighsModel, by_columns, solve
from controllers.ursa.place.problem import (
    FIRST_LIST,
    Bools,
    Ints,
    Lists,
    PlacementProblem,
    fit_in_order,
    nearest_fit,
)

LONGEST_LIST = 512


def first_fit(
    problem: PlacementProblem,
    lists: Lists,
    move_to: Int32,
    used: Float64,
    objects: NDArray[np.integer] | None = None,
) -> None:
    """Place what is unplaced, in place; what then is left fits on no node in reach.

    Every round searches anew among the nodes that still have room, so that a crowd of full nodes
    is stepped over. `lists` hold candidates by the whole room, for the first round. `move_to` [M]
    is filled in, and `used` [N, D], the load that it puts on nodes, kept up to date.
    """
    wanted = np.arange(len(problem)) if objects is None else np.asarray(objects)
    pending = wanted[move_to[wanted] == UNPLACED]
    pending = pending[np.argsort(-problem.heaviness()[pending], kind="stable")]
    rest, length = problem, FIRST_LIST
    while len(pending):
        node, _ = nearest_fit(rest, lists, pending)
        pending = pending[node >= 0]
        lists.widen(np.unique(lists.group[pending]), length)
        groups = lists.group[pending]
        start, lengths = lists.start[groups], lists.length[groups]
        fit_in_order(pending, start, lengths, lists.node, problem.layout(), move_to, used)
        left = move_to[pending] == UNPLACED
        if left.all() and bool(lists.complete[groups].all()):
            return  # what has room is in a domain of another replica of theirs
        length = 4 * length if left.all() else min(4 * length, LONGEST_LIST)
        pending = pending[left]
        rest = problem.without(used)
        lists = Lists(rest, pending)


def take_back(problem: PlacementProblem, move_to: Int32) -> Bools:
    """Unplace, in place, the lightest objects of over-full nodes until they fit; return [M]."""
    back = np.zeros(len(problem), dtype=np.bool_)
    used, heaviness = problem.load_of(move_to), problem.heaviness()
    for j in np.flatnonzero(((used > 0) & (used > problem.rooms)).any(axis=1)):
        here = np.flatnonzero(move_to == j)
        total = np.zeros(problem.dimensions)
        for i in here[np.argsort(-heaviness[here], kind="stable")]:
            if (total + problem.loads[i] <= problem.rooms[j]).all():
                total += problem.loads[i]
            else:
                back[i] = True
    move_to[back] = UNPLACED
    return back


ROUNDS = 100
FIRST_COLUMNS = 6
NEW_COLUMNS = 8
BATCH_COLUMNS = 4000
PRICED_AT_ONCE = 20_000
TOLERANCE = 1e-7


@dataclass(eq=False)
class Relaxation:
    """State of the linear programme.

    Attributes:
        start: [M], where objects were to begin with; inactive ones stay there.
        near: [M], cost of each object's nearest fitting node; infinite where none fits.
        price: [N, D], cost of a unit of load on a full node; at least 0.
        worth: [M], least cost plus priced load over all nodes: u_i of the dual.
        active: [M].
        columns: the pairs in the programme and their values.
        bound: certified lower bound of placing all objects (`certify`).
        fits, rounds: the programme places every object in full; how often it was solved.
    """

    start: Int32
    near: Float64
    price: Float64
    worth: Float64
    active: Bools
    columns: Columns
    bound: float
    fits: bool
    rounds: int


class Columns:
    """(object, node) pairs of the programme, sorted, with cost and value."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.key: Ints = np.zeros(0, dtype=np.int64)
        self.cost: Float64 = np.zeros(0)
        self.x: Float64 = np.zeros(0)

    @property
    def object(self) -> Ints:
        """[columns]."""
        return self.key // self._nodes

    @property
    def node(self) -> Ints:
        """[columns]."""
        return self.key % self._nodes

    def add(self, objects: NDArray[np.integer], nodes: NDArray[np.integer], cost: Float64) -> Ints:
        """Add the pairs that are not there yet; returns the objects that gained one."""
        key, at = np.unique(objects.astype(np.int64) * self._nodes + nodes, return_index=True)
        new = ~np.isin(key, self.key, assume_unique=True)
        keys = np.concatenate([self.key, key[new]])
        order = np.argsort(keys, kind="stable")
        self.key = keys[order]
        self.cost = np.concatenate([self.cost, cost[at[new]]])[order]
        self.x = np.concatenate([self.x, np.zeros(int(new.sum()))])[order]
        return np.unique(key[new] // self._nodes)


def relax(problem: PlacementProblem, lists: Lists, start: Int32, timer: Timer) -> Relaxation:
    """Solve the relaxation from `start` [M], a placement that fits, UNPLACED where none was found.

    `lists` are widened as far as the proof needs. When no time is left the bound is lower, and
    valid.
    """
    near_node, near = nearest_fit(problem, lists, np.arange(len(problem)))
    begin = np.where(start == UNPLACED, near_node, start)
    state = Relaxation(
        start=start,
        near=near,
        price=np.zeros_like(problem.rooms),
        worth=near.copy(),
        active=np.zeros(len(problem), dtype=np.bool_),
        columns=Columns(problem.nodes),
        bound=-INFINITE,
        fits=bool((near_node >= 0).all()),
        rounds=0,
    )
    placeable = near_node >= 0
    cost = np.full(len(problem), np.inf)
    able = np.flatnonzero(placeable)
    cost[able] = problem.cost(able, begin[able])
    _displaced(problem, lists, state, placeable & ((start == UNPLACED) | (cost > near)), cost)
    solver = _RestrictedProgramme(problem, state)
    changed = _join(problem, lists, state, np.flatnonzero(state.active), begin, cost)
    while len(changed) and state.rounds < ROUNDS and timer.left() > 0:
        state.rounds += 1
        solver.solve(changed, timer)
        woken = placeable & ~state.active & (start != UNPLACED)
        woken[woken] = (state.price[start[woken]] > 0).any(axis=1)
        state.active |= woken
        joined = _join(problem, lists, state, np.flatnonzero(woken), begin, cost)
        changed = np.union1d(joined, _priced_out(problem, lists, state))
    state.fits = state.fits and solver.unplaced() == 0
    state.bound = certify(problem, lists, state)
    return state


def certify(problem: PlacementProblem, lists: Lists, state: Relaxation) -> float:
    """Return a lower bound from prices alone, whatever solver they came from (Lagrangian duality).

    For any prices >= 0, no placement costs less than the sum over objects of the least
    ``cost + load * price`` over the nodes it may go to, less the sum of ``price * room``. A node
    that a list lacks costs at least as much as the list's last. `worth` is refreshed.
    """
    active = np.flatnonzero(state.active)
    state.worth = state.near.copy()
    for part in _parts(active):
        objects, nodes, cost = lists.candidates(part)
        least = _least(objects, cost + problem.toll(objects, nodes, state.price), len(problem))
        state.worth[part] = np.minimum(least[part], lists.beyond(part))
    finite = state.worth[np.isfinite(state.worth)]
    return float(finite.sum()) - problem.rent(state.price)


def _displaced(
    problem: PlacementProblem, lists: Lists, state: Relaxation, displaced: Bools, cost: Float64
) -> None:
    objects, nodes, costs = lists.candidates(np.flatnonzero(displaced))
    contested = np.zeros(problem.nodes, dtype=np.bool_)
    wanted = costs < cost[objects]
    if problem.dimensions > 1:  # in which case prices may be of other dimensions than needed
        wanted |= state.start[objects] == UNPLACED
    contested[nodes[wanted]] = True
    state.active |= displaced
    placed = state.start != UNPLACED
    state.active[placed] |= contested[state.start[placed]]


def _join(
    problem: PlacementProblem,
    lists: Lists,
    state: Relaxation,
    objects: Ints,
    begin: Int32,
    cost: Float64,
) -> Ints:
    if not len(objects):
        return objects
    found, nodes, costs = lists.candidates(objects)
    rank = ranks(found)
    first = rank < FIRST_COLUMNS
    return state.columns.add(
        np.concatenate([found[first], objects]),
        np.concatenate([nodes[first], begin[objects]]),
        np.concatenate([costs[first], cost[objects]]),
    )


def _priced_out(problem: PlacementProblem, lists: Lists, state: Relaxation) -> Ints:
    """Widen lists if their last node could still be worth it and add pairs of negative cost."""
    columns = state.columns
    active = np.flatnonzero(state.active)
    owner = columns.object
    value = columns.cost + problem.toll(owner, columns.node, state.price)
    worth = _least(owner, value, len(problem))
    eps = TOLERANCE * _scale(state.near)
    while True:
        short = np.unique(lists.group[active[lists.beyond(active) < worth[active] - eps]])
        for length in np.unique(lists.length[short]):
            lists.widen(short[lists.length[short] == length], max(8, 2 * int(length)))
        changed = [_add_better(problem, lists, state, part, worth, eps) for part in _parts(active)]
        if not len(short) or any(map(len, changed)):
            return np.unique(np.concatenate(changed))


def _add_better(
    problem: PlacementProblem,
    lists: Lists,
    state: Relaxation,
    part: Ints,
    worth: Float64,
    eps: float,
) -> Ints:
    found, nodes, costs = lists.candidates(part)
    reduced = costs + problem.toll(found, nodes, state.price) - worth[found]
    better = np.flatnonzero(reduced < -eps)
    better = better[np.lexsort((reduced[better], found[better]))]
    better = better[ranks(found[better]) < NEW_COLUMNS]
    return state.columns.add(found[better], nodes[better], costs[better])


def _parts(objects: Ints) -> list[Ints]:
    return np.array_split(objects, 1 + len(objects) // PRICED_AT_ONCE)


class _RestrictedProgramme:
    """The restricted linear programme, solved by connected component."""

    def __init__(self, problem: PlacementProblem, state: Relaxation) -> None:
        self._problem = problem
        self._state = state
        self._scale = _scale(state.near)
        # More than any move can cost, so that an object is left out only when it has to be.
        farthest = np.full(len(problem), 4 * min(farthest_move(problem), problem.reach))
        self._penalty = problem.whole(np.arange(len(problem)), farthest) + self._scale
        self._unplaced = np.zeros(len(problem))

    def unplaced(self) -> int:
        """Return objects that the programme does not place in full."""
        return int((self._unplaced > 1e-6).sum())

    def solve(self, changed: Ints, timer: Timer) -> None:
        """Solve the components that hold one of `changed` objects."""
        problem, state, columns = self._problem, self._state, self._state.columns
        label, count = components(columns.object, columns.node, len(problem), problem.nodes)
        dirty = np.zeros(count, dtype=np.bool_)
        dirty[label[changed]] = True
        mine = np.flatnonzero(dirty[label[columns.object]])
        mine = mine[np.argsort(label[columns.object[mine]], kind="stable")]
        batches = batched(label[columns.object[mine]], BATCH_COLUMNS)
        pieces = [mine[batches == b] for b in range(int(batches.max(initial=-1)) + 1)]
        resting = np.where(state.active, UNPLACED, state.start).astype(np.int32)
        room = np.maximum(problem.rooms - problem.load_of(resting), 0.0)
        in_threads(lambda piece: self._solve(pieces[piece], room, timer), len(pieces))

    def _solve(self, at: Ints, room: Float64, timer: Timer) -> None:
        problem, state = self._problem, self._state
        objects, row = np.unique(state.columns.object[at], return_inverse=True)
        nodes, place = np.unique(state.columns.node[at], return_inverse=True)
        loads = problem.loads_of(state.columns.object[at])
        unit = heaviest(loads, place, len(nodes))
        m, n, pairs = len(objects), len(nodes), len(at)
        start, index, value = by_columns(
            pairs + m,
            (row, np.arange(pairs), 1.0),
            (np.arange(m), pairs + np.arange(m), 1.0),
            *(
                (m + d * n + place, np.arange(pairs), load / unit[d, place])
                for d, load in enumerate(loads)
            ),
        )
        found = solve(
            HighsModel(
                cost=np.concatenate([state.columns.cost[at], self._penalty[objects]]) / self._scale,
                start=start,
                row=index,
                value=value,
                lower=np.concatenate([np.ones(m), np.full(unit.size, -INFINITE)]),
                upper=np.concatenate([np.ones(m), (room[nodes].T / unit).ravel()]),
            ),
            seconds=timer.left(),
        )
        if found.x is None or found.status != "optimal":
            return
        state.columns.x[at] = found.x[:pairs]
        self._unplaced[objects] = found.x[pairs:]
        price = found.price[m:].reshape(unit.shape) * self._scale / unit
        state.price[nodes] = np.where(price > 1e-12 * self._scale / unit, price, 0.0).T


def heaviest(loads: Float64, place: Ints, n: int) -> Float64:
    """Return [D, n], the heaviest of `loads` [D, pairs] at each place, 1 where there is none."""
    unit = np.zeros((len(loads), n))
    for d, load in enumerate(loads):
        np.maximum.at(unit[d], place, load)
    unit[unit == 0] = 1.0
    return unit


def components(
    objects: NDArray[np.integer], nodes: NDArray[np.integer], m: int, n: int
) -> tuple[Int32, int]:
    """Return ([m] component of each object, their number), of objects that share nodes."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(objects), np.int8), (objects, m + nodes)), (m + n, m + n))
    count, label = connected_components(graph, directed=False)
    return label[:m], int(count)


def batched(label: NDArray[np.integer], size: int) -> Ints:
    """Return [columns], the batch of each column; a component (a run of `label`) stays in one."""
    if not len(label):
        return np.zeros(0, dtype=np.int64)
    first = np.flatnonzero(np.r_[True, label[1:] != label[:-1]])
    batch = np.unique(first // size, return_inverse=True)[1]
    return np.repeat(batch, np.diff(np.r_[first, len(label)]))


def _scale(near: Float64) -> float:
    finite = near[np.isfinite(near) & (near > 0)]
    return float(finite.mean()) if len(finite) else 1.0


def farthest_move(problem: PlacementProblem) -> float:
    """Return a bound on the cost of any move."""
    metric = problem.distance
    if hasattr(metric, "node_xy"):
        xy = metric.node_xy.astype(np.float64)
        return float(np.hypot(*np.ptp(xy, axis=0)))
    return float(metric.rack_distance.max(initial=0.0))


def _least(owner: NDArray[np.integer], value: Float64, m: int) -> Float64:
    """Return [m], the least value of each owner (sorted); infinite for one without any."""
    least = np.full(m, np.inf)
    if len(owner):
        first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        least[owner[first]] = np.minimum.reduceat(value, first)
    return least


def ranks(owner: NDArray[np.integer]) -> Ints:
    """Return [len(owner)], position of each element within its run of equal owners."""
    if not len(owner):
        return np.zeros(0, dtype=np.int64)
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    return np.arange(len(owner)) - np.repeat(first, np.diff(np.r_[first, len(owner)]))
