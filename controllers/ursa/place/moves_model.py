"""Which objects leave and where they go, in one integer programme: equations (1) to (6).

A column is one possible move. That is the paper's model without the variables whose cost is zero:
an object that does not move stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.place.highs import INFINITE, Model, add_row, by_columns, solve
from controllers.ursa.place.problem import Bools, Ints
from controllers.ursa.results import Timer

MAX_CUTS = 100
ROUNDING = 1e-12
"""Part of a node's load that differently ordered sums may differ by."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Possible moves.

    Attributes:
        object: [pairs], `partition * l + replica`.
        source, target: [pairs], nodes.
        load, cost: [pairs].
    """

    object: Ints
    source: Int32
    target: Int32
    load: Float64
    cost: Float64

    def __len__(self) -> int:
        return len(self.object)

    def where(self, keep: Bools | Ints) -> Pairs:
        """Some of them."""
        return Pairs(
            self.object[keep],
            self.source[keep],
            self.target[keep],
            self.load[keep],
            self.cost[keep],
        )


@dataclass(frozen=True, eq=False)
class Ground:
    """What the moves start from.

    Attributes:
        instance: the problem.
        place: [P, l], where each replica is (`replica_node`, or after some moves).
        load: [N], of that placement.
    """

    instance: Instance
    place: Int32
    load: Float64


@dataclass(frozen=True, eq=False)
class Chosen:
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
    ground: Ground,
    pairs: Pairs,
    timer: Timer,
    *,
    first: Ints | None = None,
    nodes: int | None = None,
    gap: float = 0.0,
) -> Chosen:
    """The cheapest set of `pairs` that leaves no node above its threshold.

    Args:
        ground: before the moves.
        pairs: what may be done.
        timer: for the time left.
        first: columns of a known solution.
        nodes: branch-and-bound nodes at most.
        gap: relative gap that is good enough.
    """
    model = _model(ground, pairs)
    begin = None
    if first is not None:
        begin = np.zeros(model.columns)
        begin[first] = 1.0
    return _solve(ground, pairs, model, timer, begin, nodes, gap)


def choose_partly(
    ground: Ground, pairs: Pairs, timer: Timer, *, nodes: int | None = None
) -> Chosen:
    """As `choose`, where hot nodes may be given up: the fewest, then at the least cost.

    A node that is given up becomes no hotter than it is. `nodes` limits each of the two searches.
    """
    hot = np.flatnonzero(ground.load > ground.instance.capacity).astype(np.int32)
    model = _model(ground, pairs, hot)
    costs = model.cost
    model.cost = np.r_[np.zeros(len(pairs)), np.ones(len(hot))]
    fewest = _solve(ground, pairs, model, timer, None, nodes, 0.0, hot)
    if fewest.taken is None:
        return fewest
    model.cost = costs
    switches = np.arange(len(pairs), model.columns)
    add_row(model, switches, 1.0, -INFINITE, float(len(fewest.given_up)))
    best = _solve(ground, pairs, model, timer, None, nodes, 0.0, hot)
    return fewest if best.taken is None else best


def _model(ground: Ground, pairs: Pairs, hot: Int32 | None = None) -> Model:
    """(1), (2), (5) and (6); a column more for each of the `hot` nodes that may be given up."""
    count = len(pairs)
    switches = np.empty(0, np.int32) if hot is None else hot
    touched = [pairs.source, pairs.target, switches]
    if hot is None:  # a hot node that nothing can leave makes it infeasible
        touched.append(np.flatnonzero(ground.load > ground.instance.capacity).astype(np.int32))
    nodes, place = np.unique(np.concatenate(touched), return_inverse=True)
    source, target = place[:count], place[count : 2 * count]
    own = place[2 * count : 2 * count + len(switches)]
    objects, row = np.unique(pairs.object, return_inverse=True)
    n, m = len(nodes), len(objects)
    room = ground.instance.capacity[nodes].astype(np.float64) - ground.load[nodes]
    unit = np.maximum(_most(target, pairs.load, n), _most(source, pairs.load, n))
    unit[unit == 0] = 1.0
    shared, column, sign, limit = _shared_domains(ground, pairs)
    index = np.arange(count)
    start, rows, value = by_columns(
        count + len(switches),
        (target, index, pairs.load / unit[target]),
        (source, index, -pairs.load / unit[source]),
        (n + row, index, 1.0),
        (n + m + shared, column, sign),
        (own, count + np.arange(len(switches)), room[own] / unit[own]),
    )
    scale = _scale(pairs)
    lower = np.full(n + m + len(limit), -INFINITE)
    return Model(
        cost=np.r_[pairs.cost / scale, np.zeros(len(switches))],
        start=start,
        row=rows,
        value=value,
        lower=lower,
        upper=np.concatenate([room / unit, np.ones(m), limit]),
        integer=True,
    )


def _solve(
    ground: Ground,
    pairs: Pairs,
    model: Model,
    timer: Timer,
    first: Float64 | None,
    nodes: int | None,
    gap: float,
    hot: Int32 | None = None,
) -> Chosen:
    """Solve, and forbid what only fits within the solver's tolerance, until it fits exactly."""
    nothing = np.empty(0, np.int32)
    for _ in range(MAX_CUTS):
        found = solve(model, seconds=timer.left(), nodes=nodes, gap=gap, first=first)
        if found.x is None:
            return Chosen(None, nothing, found.status == "infeasible")
        taken = np.flatnonzero(found.x[: len(pairs)] > 0.5)
        given_up = nothing if hot is None else hot[found.x[len(pairs) :] > 0.5]
        over = too_hot(ground, pairs, taken)
        over = over[~np.isin(over, given_up)]
        hotter = _hotter(ground, pairs, taken, given_up)
        if not len(over) and not len(hotter):
            proven = found.status == "optimal" and gap == 0
            return Chosen(taken, given_up, proven, found.bound * _scale(pairs))
        leaving = np.isin(pairs.object, pairs.object[taken])
        for node in np.concatenate([over, hotter]):
            coming = taken[pairs.target[taken] == node]
            more = np.flatnonzero((pairs.source == node) & ~leaving)
            columns, value = np.r_[coming, more], np.r_[-np.ones(len(coming)), np.ones(len(more))]
            if hot is not None and node not in given_up:
                switch = len(pairs) + np.flatnonzero(hot == node)
                columns, value = np.r_[columns, switch], np.r_[value, np.ones(len(switch))]
            add_row(model, columns, value, 1.0 - len(coming), INFINITE)
    return Chosen(None, nothing, proven=False)


def too_hot(ground: Ground, pairs: Pairs, taken: Ints) -> Int32:
    """Nodes above their threshold once the moves `taken` are done."""
    load = _load_after(ground, pairs, taken)
    return np.flatnonzero(load > ground.instance.capacity).astype(np.int32)


def _hotter(ground: Ground, pairs: Pairs, taken: Ints, given_up: Int32) -> Int32:
    """Those of `given_up` that the moves `taken` make hotter than they are."""
    after = _load_after(ground, pairs, taken)[given_up]
    return given_up[after > ground.load[given_up] * (1 + ROUNDING)]


def _load_after(ground: Ground, pairs: Pairs, taken: Ints) -> Float64:
    load = ground.load.copy()
    np.subtract.at(load, pairs.source[taken], pairs.load[taken])
    np.add.at(load, pairs.target[taken], pairs.load[taken])
    return load


def _shared_domains(ground: Ground, pairs: Pairs) -> tuple[Ints, Ints, Float64, Float64]:
    """(row, column, sign, limit) of (5): replicas of a partition in one domain.

    Who comes finds nobody there: one may come to an empty domain, or when all that are there leave.
    Replicas that share a domain from the start may stay.
    """
    domain = ground.instance.fault_domain
    replicas = ground.instance.replicas
    partition = pairs.object // replicas
    into, out_of = domain[pairs.target], domain[pairs.source]
    moving = np.flatnonzero(into != out_of)
    domains = int(domain.max(initial=0)) + 1
    key_in = partition[moving].astype(np.int64) * domains + into[moving]
    key_out = partition[moving].astype(np.int64) * domains + out_of[moving]
    keys, row = np.unique(key_in, return_inverse=True)
    homes = domain[ground.place[keys // domains]]
    here = (homes == (keys % domains)[:, None]).sum(axis=1)
    # Where nobody is and only one may come there is nothing to say.
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
    """[len(row)], the first value that the same row has."""
    _, at = np.unique(row, return_index=True)
    return value[at][row]


def _most(place: NDArray[np.integer], load: Float64, n: int) -> Float64:
    most = np.zeros(n)
    np.maximum.at(most, place, load)
    return most


def _scale(pairs: Pairs) -> float:
    return float(pairs.cost.max(initial=0.0)) or 1.0
