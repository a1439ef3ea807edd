"""One integer programme of the objects that leave and their targets: equations (1) to (6).

A column is one possible move. This is the paper's model without the variables of zero cost: an
object that does not move stays in place.

`rescued` uses the programme where nodes stay hot, on a few nodes at once. Highest-load-first can
select objects that fit nowhere together although others would, and room may first have to be made
on a node that is not hot by moving something off it. Both happen where nodes hold few heavy
objects. A small instance is then solved anew as a whole; of a larger one the surroundings of each
node that stays hot, with all other decisions unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import (
    Float64,
    Instance,
    Int32,
    Moves,
    Nearest,
    Timer,
    between,
)
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.highs import INFINITE, HighsModel, add_row, by_columns, solve
from controllers.ursa.place.problem import Bools, Ints
from controllers.ursa.place.relaxation import heaviest, ranks
from controllers.ursa.state import PlanState, object_load, objects_on

MAX_CUTS = 100
FEW_CUTS = 5
"""Rounds of cuts of a search with a limit of nodes, which need not prove anything."""
NARROWER = 4e-6
"""Part of the heaviest move that a load row is narrowed by: twice what HiGHS lets a row and the
whole numbers in it be off."""
ROUNDING = 1e-12
"""Part of a node's load that differently ordered sums may differ by."""


def joined(parts: list[Moves]) -> Moves:
    """Return the moves of all parts, one part after the other."""
    return sum(parts, Moves.none(np.empty(0)))


MeetingRows = tuple[Ints, Ints, Float64, Float64]
"""Rows of (5): (row, column, sign) of each entry, and the rows' limits."""


@dataclass(frozen=True, eq=False)
class MoveStart:
    """Capacities and loads [N, D] before the moves; `meeting` returns the rows that keep replicas
    of a partition apart.
    """

    capacity: Float64
    load: Float64
    meeting: Callable[[Moves], MeetingRows]

    @classmethod
    def of(cls, instance: Instance, place: Int32, load: Float64) -> MoveStart:
        """Return the start of the paper's model: `place` is [P, l], where each replica is."""
        capacity = instance.capacity.astype(np.float64)[:, None]
        return cls(capacity, load[:, None], partial(_shared_domains, instance, place))

    @property
    def hot(self) -> Int32:
        """Nodes above their threshold."""
        return np.flatnonzero((self.load > self.capacity).any(axis=1)).astype(np.int32)


@dataclass(frozen=True, eq=False)
class ChosenMoves:
    """Moves that were chosen.

    Attributes:
        taken: columns, None when the programme has no solution or none was found in time.
        given_up: nodes that stay hot.
        proven: nothing costs less, and no fewer nodes can stay hot.
        bound: no solution of the programme costs less.
    """

    taken: Ints | None
    given_up: Int32
    proven: bool
    bound: float = -INFINITE


def choose(
    ground: MoveStart,
    pairs: Moves,
    timer: Timer,
    *,
    first: Ints | None = None,
    nodes: int | None = None,
    gap: float = 0.0,
) -> ChosenMoves:
    """Return the cheapest set of `pairs` that leaves no node above its threshold.

    `first` are columns of a known solution, `nodes` limits branch and bound, and `gap` is the
    relative gap that is good enough.
    """
    pairs = _in_columns(pairs)
    programme = _programme(ground, pairs)
    begin = None
    if first is not None:
        begin = np.zeros(programme.model.columns)
        begin[first] = 1.0
    return _solve(ground, pairs, programme, timer, begin, nodes, gap)


def _in_columns(pairs: Moves) -> Moves:
    """Return the pairs with `load` [pairs, D]."""
    return replace(pairs, load=pairs.load[:, None]) if pairs.load.ndim == 1 else pairs


def choose_partly(
    ground: MoveStart,
    pairs: Moves,
    timer: Timer,
    *,
    nodes: int | None = None,
    closed: bool = False,
) -> ChosenMoves:
    """Choose as `choose`, but hot nodes may be given up: the fewest, then at the least cost.

    A node that is given up becomes no hotter than it is; if `closed`, nothing comes there. `nodes`
    limits each of the two searches.
    """
    pairs, hot = _in_columns(pairs), ground.hot
    programme = _programme(ground, pairs, hot)
    if closed:
        programme.close(hot, pairs, hot)
    model = programme.model
    costs = model.cost
    model.cost = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    nothing = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    fewest = _solve_known(ground, pairs, programme, timer, nothing, nodes, hot)
    if fewest.taken is None:
        return replace(fewest, proven=False)
    model.cost = costs
    switches = np.arange(len(pairs), model.columns)
    add_row(model, switches, 1.0, -INFINITE, float(len(fewest.given_up)))
    known = np.zeros(model.columns)
    known[fewest.taken] = 1.0
    known[len(pairs) + np.flatnonzero(np.isin(hot, fewest.given_up))] = 1.0
    best = _solve_known(ground, pairs, programme, timer, known, nodes, hot)
    if best.taken is None:  # its moves are arbitrary: the first search does not see costs
        return replace(fewest, proven=False, bound=-INFINITE)
    return replace(best, proven=best.proven and fewest.proven)


@dataclass(eq=False)
class _ExactProgramme:
    """A model whose first rows are the loads of `nodes` (ascending), one dimension after the other.

    `narrowed`: a row holds less than its node does, so nothing is proven by it.
    """

    model: HighsModel
    nodes: Int32
    narrowed: bool = False

    def narrow(self, over: Ints, switch: Ints) -> None:
        """Take from the room of (node, dimension) [k, 2] over-full by the solver's tolerance.

        `switch` are the columns that give some of them up: that is allowed as before.
        """
        self.narrowed = True
        rows = np.searchsorted(self.nodes, over[:, 0]) + over[:, 1] * len(self.nodes)
        self.model.upper[rows] -= NARROWER
        for column in switch:
            at = np.arange(self.model.start[column], self.model.start[column + 1])
            self.model.value[at[np.isin(self.model.row[at], rows)]] -= NARROWER

    def close(self, nodes: NDArray[np.integer], pairs: Moves, hot: Int32) -> None:
        """Forbid moves to these `hot` nodes if they are given up."""
        for node in nodes:
            coming = np.flatnonzero(pairs.to == node)
            columns = np.r_[coming, len(pairs) + np.flatnonzero(hot == node)]
            value = np.r_[np.ones(len(coming)), np.full(len(columns) - len(coming), len(coming))]
            add_row(self.model, columns, value, -INFINITE, float(len(coming)))


def _programme(ground: MoveStart, pairs: Moves, hot: Int32 | None = None) -> _ExactProgramme:
    """Return (1), (2), (5) and (6), with one more column per `hot` node that may be given up."""
    count = len(pairs)
    switches = np.empty(0, np.int32) if hot is None else hot
    touched = [pairs.source, pairs.to, switches]
    if hot is None:  # a hot node that nothing can leave makes it infeasible
        touched.append(ground.hot)
    nodes, place = np.unique(np.concatenate(touched), return_inverse=True)
    source, target = place[:count], place[count : 2 * count]
    own = place[2 * count : 2 * count + len(switches)]
    objects, row = np.unique(pairs.object, return_inverse=True)
    n, m = len(nodes), len(objects)
    room = (ground.capacity[nodes] - ground.load[nodes]).T
    loads = np.ascontiguousarray(pairs.load.T)
    unit = heaviest(np.tile(loads, 2), np.r_[target, source], n)
    shared, column, sign, limit = ground.meeting(pairs)
    index = np.arange(count)
    move_rows = []
    switch_rows = []
    for d, load in enumerate(loads):
        move_rows += [
            (d * n + target, index, load / unit[d, target]),
            (d * n + source, index, -load / unit[d, source]),
        ]
        given = np.minimum(room[d, own], 0.0) / unit[d, own]
        switch_rows.append((d * n + own, count + np.arange(len(switches)), given))
    start, rows, value = by_columns(
        count + len(switches),
        *move_rows,
        (unit.size + row, index, 1.0),
        (unit.size + m + shared, column, sign),
        *switch_rows,
    )
    scale = _scale(pairs)
    lower = np.full(unit.size + m + len(limit), -INFINITE)
    model = HighsModel(
        cost=np.r_[pairs.cost / scale, np.zeros(len(switches))],
        start=start,
        row=rows,
        value=value,
        lower=lower,
        upper=np.concatenate([(room / unit).ravel(), np.ones(m), limit]),
        integer=True,
    )
    return _ExactProgramme(model, nodes)


def _solve(
    ground: MoveStart,
    pairs: Moves,
    programme: _ExactProgramme,
    timer: Timer,
    first: Float64 | None,
    nodes: int | None,
    gap: float,
    hot: Int32 | None = None,
) -> ChosenMoves:
    """Solve, and forbid what only fits within the solver's tolerance, until it fits exactly.

    Where many loads are alike and a hair too heavy for their nodes (2 and three times 0.6666667 on
    4), a cut forbids one choice of a great many. After some rounds the rows are narrowed instead.
    """
    nothing = np.empty(0, np.int32)
    bound = -INFINITE
    for turn in range(MAX_CUTS):
        model = programme.model
        found = solve(model, seconds=timer.left(), nodes=nodes, gap=gap, first=first)
        if not programme.narrowed:
            bound = found.bound * _scale(pairs)
        if found.x is None:
            infeasible = found.status == "infeasible" and not programme.narrowed
            return ChosenMoves(None, nothing, infeasible)
        taken = np.flatnonzero(found.x[: len(pairs)] > 0.5)
        given_up = nothing if hot is None else hot[found.x[len(pairs) :] > 0.5]
        after = pairs.where(taken).load_after(ground.load)
        over = np.argwhere(after > ground.capacity)
        over = over[~np.isin(over[:, 0], given_up)]
        most = np.maximum(ground.load, ground.capacity)[given_up] * (1 + ROUNDING)
        hotter = np.argwhere(after[given_up] > most)
        hotter[:, 0] = given_up[hotter[:, 0]]
        if not len(over) and not len(hotter):
            proven = found.status == "optimal" and gap == 0 and not programme.narrowed
            return ChosenMoves(taken, given_up, proven, bound)
        if turn >= (MAX_CUTS // 2 if nodes is None else FEW_CUTS):
            hot_nodes = nothing if hot is None else hot
            programme.narrow(over, len(pairs) + np.flatnonzero(np.isin(hot_nodes, over[:, 0])))
            # These became hotter by the tolerance.
            programme.close(np.unique(hotter[:, 0]), pairs, hot_nodes)
        else:
            _cut(model, pairs, taken, given_up, np.r_[over, hotter], hot)
    return ChosenMoves(None, nothing, proven=False)


def _solve_known(
    ground: MoveStart,
    pairs: Moves,
    programme: _ExactProgramme,
    timer: Timer,
    known: Float64,
    nodes: int | None,
    hot: Int32,
) -> ChosenMoves:
    """Solve a programme with a known solution, and begin from it only if HiGHS finds none.

    A first solution costs small programmes more time than it saves. HiGHS 1.15 was seen to call a
    programme infeasible in which moving nothing is a solution.
    """
    found = _solve(ground, pairs, programme, timer, None, nodes, 0.0, hot)
    if found.taken is not None or timer.left() <= 0:
        return found
    return _solve(ground, pairs, programme, timer, known, nodes, 0.0, hot)


def _cut(
    model: HighsModel, pairs: Moves, taken: Ints, given_up: Int32, full: Ints, hot: Int32 | None
) -> None:
    """Add a cut for each (node, dimension) of `full`: one arrival less, or one more departure."""
    leaving = np.isin(pairs.object, pairs.object[taken])
    for node, d in full:
        heavy = pairs.load[:, d] > 0
        coming = taken[(pairs.to[taken] == node) & heavy[taken]]
        more = np.flatnonzero((pairs.source == node) & ~leaving & heavy)
        columns, value = np.r_[coming, more], np.r_[-np.ones(len(coming)), np.ones(len(more))]
        if hot is not None and node not in given_up:
            switch = len(pairs) + np.flatnonzero(hot == node)
            columns, value = np.r_[columns, switch], np.r_[value, np.ones(len(switch))]
        add_row(model, columns, value, 1.0 - len(coming), INFINITE)


def _shared_domains(instance: Instance, place: Int32, pairs: Moves) -> MeetingRows:
    """Return the rows of (5): replicas of a partition in one domain.

    Who comes finds nobody there: one may come to an empty domain, or when all that are there leave.
    Replicas that share a domain from the start may stay.
    """
    domain, replicas = instance.fault_domain, instance.replicas
    partition = pairs.object // replicas
    into, out_of = domain[pairs.to], domain[pairs.source]
    moving = np.flatnonzero(into != out_of)
    domains = int(domain.max(initial=0)) + 1
    key_in = partition[moving].astype(np.int64) * domains + into[moving]
    key_out = partition[moving].astype(np.int64) * domains + out_of[moving]
    keys, row = np.unique(key_in, return_inverse=True)
    homes = domain[place[keys // domains]]
    here = (homes == (keys % domains)[:, None]).sum(axis=1)
    # An empty domain with only one possible arrival needs no row.
    several = np.bincount(row, pairs.object[moving] != _first(row, pairs.object[moving]))
    said = (here > 0) | (several > 0)
    moving, keys, here = moving[said[row]], keys[said], here[said]
    row = (np.cumsum(said) - 1)[row[said[row]]]
    every = np.flatnonzero(into != out_of)
    leaves = every[np.isin(key_out, keys)]
    row_out = np.searchsorted(keys, key_out[np.isin(key_out, keys)])
    limit = np.where(here > 0, 0.0, 1.0)
    return (
        np.concatenate([row, row_out]),
        np.concatenate([moving, leaves]),
        np.concatenate([np.ones(len(moving)), -1.0 / here[row_out]]),
        limit,
    )


def _first(row: Ints, value: Ints) -> Ints:
    """Return [len(row)], the first value that the same row has."""
    _, at = np.unique(row, return_index=True)
    return value[at][row]


def _scale(pairs: Moves) -> float:
    return float(pairs.cost.max(initial=0.0)) or 1.0


def every_pair(instance: Instance, state: PlanState, request: MethodRequest) -> Moves:
    """Return all moves that could be of use: of objects that have a load, to any other node."""
    objects = np.arange(instance.replica_node.size, dtype=np.int64)
    return possible(
        instance, state, objects, np.arange(instance.nodes, dtype=np.int32), request.reach
    )


def possible(
    instance: Instance, state: PlanState, objects: Ints, targets: Int32, reach: float
) -> Moves:
    """Return the useful ones of all moves of `objects` to `targets`.

    Left out: objects without a load, targets that cannot carry the object even when empty (unless
    they are hot, and may be given up), moves that cost more than `reach`, and those within a fault
    domain that holds another replica of the partition.
    """
    number = np.repeat(objects, len(targets))
    target = np.tile(targets, len(objects))
    partition, replica = np.divmod(number, instance.replicas)
    source = instance.replica_node[partition, replica]
    load = object_load(instance, state, partition.astype(np.int32), replica)
    cost = between(instance.distance, instance.sender(partition, replica), target)
    keep = (source != target) & (load > 0) & (cost <= reach)
    keep &= (load <= instance.capacity[target]) | state.hot(instance)[target]
    pairs = Moves(number, source, target, load, cost).where(keep)
    return pairs.where(~shared_already(instance, pairs))


def held_already(instance: Instance, pairs: Moves) -> Bools:
    """Return moves into a domain in which another replica of the partition begins.

    Two replicas that change places so are a swap of roles, not moves: whichever goes first is for a
    while where the other is.
    """
    partition, replica = np.divmod(pairs.object, instance.replicas)
    others = instance.fault_domain[instance.replica_node[partition]]
    others[np.arange(len(pairs)), replica] = -1
    held = (others == instance.fault_domain[pairs.to][:, None]).any(axis=1)
    return np.asarray(held)


def shared_already(instance: Instance, pairs: Moves) -> Bools:
    """Return moves within a domain that holds another replica of the partition, old or new."""
    partition, replica = np.divmod(pairs.object, instance.replicas)
    domain = instance.fault_domain
    others = domain[instance.replica_node[partition]]
    others[np.arange(len(pairs)), replica] = -1
    within = domain[pairs.source] == domain[pairs.to]
    shared = (others == domain[pairs.source][:, None]).any(axis=1)
    return np.asarray(within & shared)


PAIRS = 4000
"""Moves to choose from in one programme."""
SEARCH_NODES = 200
"""Nodes of branch and bound in one programme."""
NEAR = 16
"""Nodes around a hot one, itself among them."""
TRIES = 32
"""Hot nodes with surroundings that are searched."""


def rescued(
    instance: Instance, state: PlanState, request: MethodRequest, found: Moves
) -> Moves | None:
    """Return moves that leave fewer nodes hot than `found` does; None when none are found.

    `state` is after the swaps.
    """
    if instance.replica_node.size * max(instance.nodes - 1, 0) <= PAIRS:
        return _anew(instance, state, request, found)
    now = found.load_after(state.load)
    left = np.flatnonzero(now > instance.capacity).astype(np.int32)
    excess = (now - instance.capacity)[left]
    left = left[np.argsort(excess, kind="stable")][:TRIES]
    regions = _regions(instance, now, left)
    objects = _LoadedObjects.on(instance, state, np.unique(np.concatenate(regions)))
    best = found
    for node, region in zip(left, regions, strict=True):
        if request.timer.left() <= 0:
            break
        best = _around(instance, state, request, best, int(node), region, objects)
    return None if best is found else best


def _anew(
    instance: Instance, state: PlanState, request: MethodRequest, found: Moves
) -> Moves | None:
    best = _chosen(instance, state, request, every_pair(instance, state, request))
    return best if _better(instance, state.load, found, best) else None


def _chosen(instance: Instance, now: PlanState, request: MethodRequest, pairs: Moves) -> Moves:
    """Return the best choice of `pairs` that was found.

    First without moves to hot nodes: these may have to wait for each other in a circle.
    """
    pairs = pairs.where(~held_already(instance, pairs))
    # What has moved already is none of the pairs' partitions: the others are where they were.
    ground = MoveStart.of(instance, instance.replica_node, now.load)
    into_hot = now.hot(instance)[pairs.to]
    best = joined([])
    for choice in (pairs.where(~into_hot), pairs):
        chosen = choose_partly(ground, choice, request.timer, nodes=SEARCH_NODES)
        if chosen.taken is None:
            continue
        made = choice.where(chosen.taken)
        if _better(instance, now.load, best, made):
            best = made
        if not len(chosen.given_up):
            break
    return best


def _regions(instance: Instance, load: Float64, hot: Int32) -> list[Int32]:
    """Return each hot node with its nearest cold nodes, ascending."""
    others = np.flatnonzero(load <= instance.capacity).astype(np.int32)
    near, _ = Nearest(instance.distance, others).query(hot, NEAR - 1)
    return [np.unique(np.append(row, node)) for node, row in zip(hot, near, strict=True)]


@dataclass(frozen=True, eq=False)
class _LoadedObjects:
    """Objects that have a load: `partition * l + replica`, partition, node and load, all [K]."""

    number: Ints
    partition: Int32
    node: Int32
    load: Float64

    @classmethod
    def on(cls, instance: Instance, state: PlanState, nodes: Int32) -> _LoadedObjects:
        """Return the objects on `nodes`, before anything moves."""
        partition, replica, slot = objects_on(instance, nodes)
        load = object_load(instance, state, partition, replica)
        number = partition.astype(np.int64) * instance.replicas + replica
        able = load > 0
        return cls(number[able], partition[able], nodes[slot[able]], load[able])

    def some(self, nodes: Int32, moved: Ints, count: int) -> Ints:
        """Return about `count` objects' numbers of each of `nodes`: half of them the heaviest, the
        others of all sizes; none of partitions with a `moved` replica."""
        at = np.flatnonzero(np.isin(self.node, nodes) & ~np.isin(self.partition, moved))
        at = at[np.lexsort((-self.load[at], self.node[at]))]
        rank = ranks(self.node[at])
        half = max(count // 2, 1)
        step = 1 + np.bincount(self.node[at]) // half
        at = at[(rank < half) | ((rank - half) % step[self.node[at]] == 0)]
        return np.asarray(self.number[at])


def _around(
    instance: Instance,
    state: PlanState,
    request: MethodRequest,
    found: Moves,
    node: int,
    region: Int32,
    objects: _LoadedObjects,
) -> Moves:
    """Return `found` with moves within `region` added that relieve `node`, or `found`."""
    load = found.load_after(state.load)
    room = (instance.capacity - load)[region]
    if room[region == node] >= 0 or room.sum() < 0:
        return found
    now = PlanState(state.primary, load)
    moved = np.unique(found.object // instance.replicas)
    some = objects.some(region, moved, PAIRS // len(region) ** 2)
    pairs = possible(instance, now, some, region, request.reach)
    more = joined([found, _chosen(instance, now, request, pairs)])
    return more if _better(instance, state.load, found, more) else found


def _better(instance: Instance, load: Float64, found: Moves, other: Moves) -> bool:
    """Return True if `other` leaves fewer nodes hot than `found`, and makes none hot or hotter."""
    after, before = other.load_after(load), found.load_after(load)
    hot = after > instance.capacity
    fewer = hot.sum() < (before > instance.capacity).sum()
    return bool(fewer and not (hot & (after > load * (1 + ROUNDING))).any())
