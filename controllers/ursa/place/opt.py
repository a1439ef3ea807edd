"""OPT: the exact model, equations (1) to (6), for instances that are small enough.

Small instances are solved as they are. Larger ones are first made small without losing the
optimum: by the prices of the bound over all plans most moves would cost more, above the bound, than
a plan that is known, so that no optimum can contain them.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import Float64, Instance
from controllers.ursa.methods import Request
from controllers.ursa.place.cover_bound import evaluate_covers, reliefs
from controllers.ursa.place.joint import Found, as_moves, greedy_moves, partial_moves, search
from controllers.ursa.place.joint_bound import joined
from controllers.ursa.place.moves_model import Ground, Pairs, choose, choose_partly
from controllers.ursa.place.possible import every_pair, shared_already
from controllers.ursa.results import Moves
from controllers.ursa.state import State

MAX_PAIRS = 60_000
"""Columns of a programme that is solved as it is."""
PROVEN = 1e-9
"""Part of the cost that a bound may be below it by rounding."""
MAX_OBJECTS = 3_000_000
"""Replicas of an instance that is searched for moves worth a column."""


def moves(instance: Instance, state: State, request: Request) -> Moves:
    """The cheapest moves that leave no node hot; a mover, see `controllers.ursa.methods`.

    `notes["optimal"]` tells whether the optimum is proven. Where nodes have to stay hot, the fewest
    do. When the instance is too large to be proven, the plan of `joint` is returned.
    """
    ground = Ground(instance, instance.replica_node, state.load)
    if instance.replica_node.size * max(instance.nodes - 1, 0) <= MAX_PAIRS:
        pairs = every_pair(instance, state, request)
        chosen = choose(ground, pairs, request.timer)
        if chosen.taken is None:
            chosen = choose_partly(ground, pairs, request.timer)
        if chosen.taken is None:
            return as_moves(instance, joined([]), None, {"optimal": False})
        best = pairs.where(chosen.taken)
        bound = float(best.cost.sum()) if chosen.proven and not len(chosen.given_up) else None
        return as_moves(instance, best, bound, {"optimal": chosen.proven})
    return _larger(instance, state, request, ground)


def _larger(instance: Instance, state: State, request: Request, ground: Ground) -> Moves:
    begin = greedy_moves(instance, state, request)
    if begin is None:
        partial = partial_moves(instance, state, request)
        partial.notes["optimal"] = False
        return partial
    found = search(instance, state, begin, request)
    best = found.best
    if best.cost.sum() <= found.bound * (1 + PROVEN):
        return as_moves(instance, best, float(best.cost.sum()), {"optimal": True})
    pairs = _survivors(found)
    if pairs is None:
        return as_moves(instance, best, found.bound, {"optimal": False})
    now = np.flatnonzero(
        np.isin(
            pairs.object * instance.nodes + pairs.target,
            best.object * instance.nodes + best.target,
        )
    )
    chosen = choose(ground, pairs, request.timer, first=now)
    if chosen.taken is not None and pairs.cost[chosen.taken].sum() <= best.cost.sum():
        best = pairs.where(chosen.taken)
    bound = float(best.cost.sum()) if chosen.proven else max(found.bound, chosen.bound)
    return as_moves(
        instance, best, bound, {"optimal": chosen.proven, "moves_left_to_choose": len(pairs)}
    )


def _survivors(found: Found) -> Pairs | None:
    """Every move that a plan better than the best could make; None when these are too many.

    At the prices of the cover bound a plan with object k on node j costs more than the bound by at
    least what j is worse than the best target of k, and what it costs to make k leave.
    """
    market, price = found.market, found.cover.price
    if market.instance.replica_node.size > MAX_OBJECTS:
        return None
    bound, _ = evaluate_covers(market, price)
    slack = max(float(found.best.cost.sum()) - bound, 0.0) * (1 + 1e-6) + 1e-12
    every = np.arange(market.instance.nodes, dtype=np.int64)
    market.stock.fetch(every)
    at = market.stock.of(every)
    load, node = market.stock.load[at], market.stock.node[at]
    value, _ = market.least_exactly(every, price, np.full(len(at), np.inf))
    leave = np.maximum(value - load * price[node], 0.0)
    for hot, relief in zip(*reliefs(market, price), strict=True):
        mine = np.flatnonzero(node == hot)
        paid = value[mine] - load[mine] * price[hot]
        forced = paid + _fractional(load[mine], paid, market.excess[hot] - load[mine])
        leave[mine] = np.maximum(forced - relief.bound, 0.0)
    most = value + slack - leave
    some = np.flatnonzero(np.isfinite(value) & (leave <= slack))
    if market.count_within(at[some], price, most[some]) > MAX_PAIRS:
        return None
    owner, target, cost = market.within(at[some], price, most[some])
    owner = some[owner]
    moves = Pairs(market.stock.object[at[owner]], node[owner], target, load[owner], cost)
    pairs = joined([found.best, moves])
    nodes = market.instance.nodes
    _, first = np.unique(pairs.object * nodes + pairs.target, return_index=True)
    pairs = pairs.where(np.sort(first))
    return pairs.where(~shared_already(market.instance, pairs))


def _fractional(load: Float64, cost: Float64, demand: Float64) -> Float64:
    """The least cost of parts of objects that cover each demand; costs may be negative."""
    able = np.isfinite(cost)
    load, cost = load[able], cost[able]
    order = np.argsort(cost / load, kind="stable")
    filled = np.concatenate([[0.0], np.cumsum(load[order])])
    paid = np.concatenate([[0.0], np.cumsum(cost[order])])
    least = int(np.argmin(paid))  # whoever leaves at a gain leaves in any case
    return np.asarray(np.interp(np.maximum(demand, filled[least]), filled, paid))
