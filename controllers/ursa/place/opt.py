"""OPT: the exact model, equations (1) to (6), for instances that are small enough.

Small instances are solved as they are. Larger ones are first made small without losing the
optimum: by the joint bound's prices most moves would cost more, above the bound, than a plan that
is known, so that no optimum can contain them.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.distance import between
from controllers.ursa.instance import Instance
from controllers.ursa.methods import Request
from controllers.ursa.place.joint import as_moves, greedy_moves, partial_moves, search
from controllers.ursa.place.joint_bound import Joint, Market, joined
from controllers.ursa.place.moves_model import Ground, Pairs, choose, choose_partly
from controllers.ursa.results import Moves
from controllers.ursa.state import State, object_load

MAX_PAIRS = 60_000
"""Columns of a programme that is solved as it is."""


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


def every_pair(instance: Instance, state: State, request: Request) -> Pairs:
    """All moves that could be of use: of objects that have a load, to any other node."""
    size, n = instance.replica_node.size, instance.nodes
    number = np.repeat(np.arange(size, dtype=np.int64), n)
    target = np.tile(np.arange(n, dtype=np.int32), size)
    partition, replica = np.divmod(number, instance.replicas)
    source = instance.replica_node[partition, replica]
    load = object_load(instance, state, partition.astype(np.int32), replica)
    cost = between(instance.distance, source, target)
    keep = (source != target) & (load > 0)
    keep &= (load <= instance.capacity[target]) | state.hot(instance)[target]
    if request.max_move_cost is not None:
        keep &= cost <= request.max_move_cost
    pairs = Pairs(number, source, target, load, cost).where(keep)
    return pairs.where(~_shared_already(instance, pairs))


def _shared_already(instance: Instance, pairs: Pairs) -> np.ndarray:
    """Moves within a domain that holds another replica of the partition, from before or now."""
    partition, replica = np.divmod(pairs.object, instance.replicas)
    domain = instance.fault_domain
    others = domain[instance.replica_node[partition]]
    others[np.arange(len(pairs)), replica] = -1
    within = domain[pairs.source] == domain[pairs.target]
    shared = (others == domain[pairs.source][:, None]).any(axis=1)
    return np.asarray(within & shared)


def _larger(instance: Instance, state: State, request: Request, ground: Ground) -> Moves:
    begin = greedy_moves(instance, state, request)
    if begin is None:
        partial = partial_moves(instance, state, request)
        partial.notes["optimal"] = False
        return partial
    found = search(instance, state, begin, request)
    best, market, joint = found.best, found.market, found.joint
    slack = max(float(best.cost.sum()) - joint.bound, 0.0) * (1 + 1e-6) + 1e-12
    pairs = _survivors(market, joint, best, slack)
    if pairs is None:
        return as_moves(instance, best, joint.bound, {"optimal": False})
    now = np.flatnonzero(
        np.isin(
            pairs.object * instance.nodes + pairs.target,
            best.object * instance.nodes + best.target,
        )
    )
    chosen = choose(ground, pairs, request.timer, first=now)
    if chosen.taken is not None and pairs.cost[chosen.taken].sum() <= best.cost.sum():
        best = pairs.where(chosen.taken)
    bound = float(best.cost.sum()) if chosen.proven else max(joint.bound, chosen.bound)
    return as_moves(
        instance, best, bound, {"optimal": chosen.proven, "moves_left_to_choose": len(pairs)}
    )


def _survivors(market: Market, joint: Joint, best: Pairs, slack: float) -> Pairs | None:
    """Every move whose reduced cost is at most `slack`; None when these are too many."""
    instance, price = market.instance, joint.price
    parts, total = [best], 0
    for node in range(instance.nodes):
        (mine,) = market.objects(np.array([node], dtype=np.int32))
        if not len(mine.object):
            continue
        paid = market.paid(node, mine.load, price)
        nodes, costs, _ = market.targets(node, float(paid.max()) + slack)
        net = costs[None, :] + mine.load[:, None] * price.load[nodes][None, :] - paid[:, None]
        net[mine.load[:, None] > market.takes[nodes][None, :]] = np.inf
        least = np.minimum(net.min(axis=1, initial=np.inf), 0.0)
        who, at = np.nonzero(net - least[:, None] <= slack)
        total += len(who)
        if total > MAX_PAIRS:
            return None
        source = np.full(len(who), node, dtype=np.int32)
        parts.append(Pairs(mine.object[who], source, nodes[at], mine.load[who], costs[at]))
    pairs = joined(parts)
    _, first = np.unique(pairs.object * instance.nodes + pairs.target, return_index=True)
    pairs = pairs.where(np.sort(first))
    return pairs.where(~_shared_already(instance, pairs))
