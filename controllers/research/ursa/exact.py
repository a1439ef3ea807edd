"""OPT for loads of several dimensions: equations (1) to (6), for instances that are small enough.

A column is one possible move. There is a row for each node and dimension; (5) has one for each two
replicas of a unit and each domain, of the outermost level that keeps the two apart, that either
could come into.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.research.ursa.problem import Ints, Units, VectorState, move_list, object_load
from controllers.ursa.instance import Float64, Int32, Timer, between
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.exact import Pairs
from controllers.ursa.place.highs import INFINITE, HighsModel, add_row, by_columns, solve
from controllers.ursa.select import MoveList
from schemas.errors import UserError

MAX_PAIRS = 60_000
MAX_CUTS = 100
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
        UserError: there are more than MAX_PAIRS possible moves.
    """
    if units.placed.replica_node.size * max(units.nodes - 1, 0) > MAX_PAIRS:
        raise UserError(
            f"method opt is for at most {MAX_PAIRS} possible moves when loads have several "
            "dimensions, fault domains are nested or replicas move in groups; take ilp or alp."
        )
    pairs = _every_pair(units, state, request)
    hot = np.flatnonzero(state.hot(units)).astype(np.int32)
    model = _model(units, state, pairs, hot)
    costs = model.cost
    model.cost = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    nothing = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    fewest = _solve(units, state, model, pairs, hot, request.timer, nothing)
    if fewest is None:
        none = np.empty(0, np.int32)
        return Optimum(move_list(units, state, none, none, none), proven=False)
    taken, given_up, proven, begin = fewest
    model.cost = costs
    switches = np.arange(len(pairs), model.columns)
    add_row(model, switches, 1.0, -INFINITE, given_up + 0.5)
    best = _solve(units, state, model, pairs, hot, request.timer, begin)
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


def _model(units: Units, state: VectorState, pairs: Pairs, hot: Int32) -> HighsModel:
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


def _solve(
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
    for _ in range(MAX_CUTS):
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
