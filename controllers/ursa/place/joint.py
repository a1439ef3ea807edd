"""Joint choice of the objects that leave and of their targets, and OPT.

**Joint** is the paper's last future work: "When using the greedy highest-load-first strategy, we
may pick a very hot object that can only be migrated to a cold node far away, whereas we could pick
several relatively less hot objects incurring lower migration cost." It begins with ALP-fast's plan
for the greedy selection. The joint relaxation's prices name the moves worth a thought, and integer
programmes over groups of nodes that compete for the same room choose among them: first among
objects of hot nodes, then also among objects that make room on a near node by leaving it.

**OPT** is the exact model, equations (1) to (6), for instances that are small enough, or that can
be made so without losing the optimum: by the prices of the bound over all plans most moves would
cost more, above the bound, than a plan that is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.instance import UNPLACED, Float64, Instance, Int32, Moves, Timer, between
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.alp_fast import alp_fast
from controllers.ursa.place.bounds import (
    Cover,
    Joint,
    cover_bound,
    covered,
    evaluate_covers,
    eviction_bound,
    joint_bound,
    reliefs,
)
from controllers.ursa.place.exact import (
    ChosenMoves,
    MoveStart,
    choose,
    choose_partly,
    every_pair,
    joined,
    shared_already,
)
from controllers.ursa.place.market import Market
from controllers.ursa.place.problem import Bools, Ints, assignment_problem
from controllers.ursa.place.relaxation import components, ranks
from controllers.ursa.select import Result, highest_load_first, object_id
from controllers.ursa.state import PlanState

PASSES = 3
RESELECTIONS = 16
PIECE_SOURCES = 12
PIECE_COLUMNS = 2500
PIECE_NODES = 500
GOOD_ENOUGH = 1e-5


def joint(instance: Instance, state: PlanState, request: MethodRequest) -> Result:
    """Return the moves; a mover, see `controllers.ursa.methods`.

    `lower_bound` is over every plan that leaves no node hot. `notes` report the cost of
    highest-load-first, the cost of the best choice found of objects that leave hot nodes, a bound
    on any such choice (`SearchResult.hot_only_bound`), and the savings against highest-load-first.
    """
    begin = fast_moves(instance, state, request)
    if begin is None:
        return _without_misfits(instance, state, request), None, {}
    found = search(instance, state, begin, request)
    before, after = float(begin.cost.sum()), float(found.best.cost.sum())
    return (
        found.best,
        min(found.bound, after) if found.bound > 0 or after == 0 else None,
        {
            "highest_load_first_cost": before,
            "hot_nodes_only_cost": float(found.hot_only.cost.sum()),
            "hot_nodes_only_bound": found.hot_only_bound,
            "relaxation_bound": found.joint.bound,
            "saved": 1 - after / before if before > 0 else 0.0,
            "bound_converged": found.joint.converged,
        },
    )


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of `search`.

    Attributes:
        hot_only, hot_only_bound: the best moves of objects from hot nodes, and a bound on all moves
            of such to nodes that are not hot and have room for them.
        best: the best moves of any objects.
        market, joint, cover: their relaxation, and the bound with hot nodes' objects whole.
        whole_bound: the same with objects whole that make room elsewhere, or at prices of nothing.
    """

    hot_only: Moves
    hot_only_bound: float
    best: Moves
    market: Market
    joint: Joint
    cover: Cover
    whole_bound: float

    @property
    def bound(self) -> float:
        """No plan that leaves no node hot costs less, whatever it moves."""
        return max(self.joint.bound, self.cover.bound, self.whole_bound)


def search(
    instance: Instance, state: PlanState, begin: Moves, request: MethodRequest
) -> SearchResult:
    """Return better moves than `begin`, which leave no node hot.

    Bounds come first, so that a time limit ends the search and not the proof.
    """
    timer, before = request.timer, float(begin.cost.sum())
    near = Market(instance, state, evict=False, reach=request.reach)
    first = joint_bound(near, begin, timer)
    market = Market(instance, state, evict=True, reach=request.reach)
    free = covered(market, np.zeros(instance.nodes), before, timer, steps=1, exact=False)
    bound = cover_bound(near, first.price.load, before, timer)
    joint = joint_bound(market, begin, timer)
    cover = covered(market, joint.price.load, before, timer, steps=1)
    hot_only = improve(instance, state, first, begin, timer)
    best = improve(instance, state, joint, hot_only, timer)
    evicting = eviction_bound(market, cover, float(best.cost.sum()), timer)
    hot_only_bound = min(max(first.bound, bound), float(hot_only.cost.sum()))
    whole = max(free.bound, evicting.bound)
    return SearchResult(hot_only, hot_only_bound, best, market, joint, cover, whole)


def fast_moves(instance: Instance, state: PlanState, request: MethodRequest) -> Moves | None:
    """Return ALP-fast's moves for highest-load-first; None if these leave a node hot.

    Objects that fit nowhere are passed over, and the selection is repeated without them.
    """
    begin = _without_misfits(instance, state, request)
    return None if _hot_after(instance, state, begin).any() else begin


def _without_misfits(instance: Instance, state: PlanState, request: MethodRequest) -> Moves:
    stay = np.empty(0, dtype=np.int64)
    for _ in range(RESELECTIONS):
        selection = highest_load_first(instance, state, stay)
        problem = assignment_problem(instance, state, selection, request.max_move_cost)
        placed = alp_fast(problem, request.timer).move_to
        number = object_id(instance, selection.partition, selection.replica)
        misfits = number[placed == UNPLACED]
        if not len(misfits):
            break
        stay = np.union1d(stay, misfits)
    ok = placed != UNPLACED
    cost = between(instance.distance, selection.node[ok], placed[ok])
    return Moves(number[ok], selection.node[ok], placed[ok], selection.load[ok], cost)


def improve(
    instance: Instance, state: PlanState, joint: Joint, begin: Moves, timer: Timer
) -> Moves:
    """Choose anew for groups of hot nodes, all else as it is, until nothing gets cheaper."""
    best = begin
    n = instance.nodes
    place = instance.replica_node.copy()
    place.ravel()[best.object] = best.to
    label, _ = components(joint.pairs.source, joint.pairs.to, n, n)
    for turn in range(PASSES):
        before = float(best.cost.sum())
        for group in _groups(instance, joint, label, turn):
            if timer.left() <= 0:
                return best
            best = _choose_anew(instance, state, joint, place, best, group, timer)
        if float(best.cost.sum()) >= before * (1 - 1e-9):
            break
    return best


def _choose_anew(
    instance: Instance,
    state: PlanState,
    joint: Joint,
    place: Int32,
    best: Moves,
    group: Ints,
    timer: Timer,
) -> Moves:
    """Return better moves, or `best`; `place` is [P, l] after the moves, before and after."""
    ours = np.isin(best.source, group)
    fixed, own = best.where(~ours), best.where(ours)
    place.ravel()[own.object] = own.source
    after = _chosen_anew(instance, state, joint, place, fixed, own, group, timer)
    place.ravel()[after.object] = after.to
    return joined([fixed, after])


def _chosen_anew(
    instance: Instance,
    state: PlanState,
    joint: Joint,
    place: Int32,
    fixed: Moves,
    own: Moves,
    group: Ints,
    timer: Timer,
) -> Moves:
    pairs = _candidates(instance, joint, own, group)
    now = np.isin(_key(pairs, instance.nodes), _key(own, instance.nodes))
    ground = MoveStart.of(instance, place, fixed.load_after(state.load))
    chosen: ChosenMoves = choose(
        ground,
        pairs,
        timer,
        first=np.flatnonzero(now),
        nodes=PIECE_NODES,
        gap=GOOD_ENOUGH,
    )
    if chosen.taken is None:
        return own
    found = pairs.where(chosen.taken)
    if found.cost.sum() >= own.cost.sum() * (1 - 1e-12):
        return own
    hot = _hot_after(instance, state, joined([fixed, found]))
    return own if hot.any() else found


def _candidates(instance: Instance, joint: Joint, own: Moves, group: Ints) -> Moves:
    """Return the moves from `group` of least reduced cost, and those that are made now."""
    nodes = instance.nodes
    mine = np.flatnonzero(np.isin(joint.pairs.source, group))
    mine = mine[np.argsort(joint.reduced[mine], kind="stable")][:PIECE_COLUMNS]
    more = joint.pairs.where(np.sort(mine))
    more = more.where(~np.isin(_key(more, nodes), _key(own, nodes)))
    more = more.where(~shared_already(instance, more))
    return joined([own, more])


def _groups(instance: Instance, joint: Joint, label: Int32, turn: int) -> list[Ints]:
    """Return hot nodes in groups that share targets, cut differently at every turn."""
    sources = np.unique(joint.pairs.source)
    if not len(sources):
        return []
    near = _nearest_target(joint, sources)
    order = np.lexsort((near if turn % 2 else sources, label[sources]))
    sources = sources[order]
    position = ranks(label[sources]) + (turn * PIECE_SOURCES) // 2
    cut = np.r_[
        True,
        (label[sources][1:] != label[sources][:-1])
        | (position[1:] // PIECE_SOURCES != position[:-1] // PIECE_SOURCES),
    ]
    return np.split(sources.astype(np.int64), np.flatnonzero(cut)[1:])


def _nearest_target(joint: Joint, sources: Int32) -> Int32:
    """Return [sources], the node that each would use first: neighbours have it in common."""
    order = np.lexsort((joint.pairs.cost, joint.pairs.source))
    first = order[ranks(joint.pairs.source[order]) == 0]
    return np.asarray(joint.pairs.to[first])


def _hot_after(instance: Instance, state: PlanState, pairs: Moves) -> Bools:
    return np.asarray(pairs.load_after(state.load) > instance.capacity)


def _key(pairs: Moves, nodes: int) -> Ints:
    return pairs.object * nodes + pairs.to


MAX_PAIRS = 60_000
"""Columns of a programme that is solved as it is."""
PROVEN = 1e-9
"""Part of the cost that a bound may be below it by rounding."""
MAX_OBJECTS = 3_000_000
"""Replicas of an instance that is searched for moves worth a column."""


def opt(instance: Instance, state: PlanState, request: MethodRequest) -> Result:
    """Return the cheapest moves that leave no node hot; a mover, see `controllers.ursa.methods`.

    `notes["optimal"]` is True if the optimum is proven. Where nodes have to stay hot, the fewest
    do. When the instance is too large to be proven, the plan of `joint` is returned.
    """
    ground = MoveStart.of(instance, instance.replica_node, state.load)
    if instance.replica_node.size * max(instance.nodes - 1, 0) <= MAX_PAIRS:
        pairs = every_pair(instance, state, request)
        chosen = choose(ground, pairs, request.timer)
        if chosen.taken is None:
            chosen = choose_partly(ground, pairs, request.timer)
        if chosen.taken is None:
            return joined([]), None, {"optimal": False}
        best = pairs.where(chosen.taken)
        bound = float(best.cost.sum()) if chosen.proven and not len(chosen.given_up) else None
        return best, bound, {"optimal": chosen.proven}
    return _larger(instance, state, request, ground)


def _larger(
    instance: Instance, state: PlanState, request: MethodRequest, ground: MoveStart
) -> Result:
    begin = fast_moves(instance, state, request)
    if begin is None:
        return _without_misfits(instance, state, request), None, {"optimal": False}
    found = search(instance, state, begin, request)
    best = found.best
    if best.cost.sum() <= found.bound * (1 + PROVEN):
        return best, float(best.cost.sum()), {"optimal": True}
    pairs = _survivors(found)
    if pairs is None:
        return best, found.bound, {"optimal": False}
    now = np.flatnonzero(np.isin(_key(pairs, instance.nodes), _key(best, instance.nodes)))
    chosen = choose(ground, pairs, request.timer, first=now)
    if chosen.taken is not None and pairs.cost[chosen.taken].sum() <= best.cost.sum():
        best = pairs.where(chosen.taken)
    bound = float(best.cost.sum()) if chosen.proven else max(found.bound, chosen.bound)
    return best, bound, {"optimal": chosen.proven, "moves_left_to_choose": len(pairs)}


def _survivors(found: SearchResult) -> Moves | None:
    """Return every move that a plan better than the best could make; None when these are too many.

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
    moves = Moves(market.stock.object[at[owner]], node[owner], target, load[owner], cost)
    pairs = joined([found.best, moves])
    nodes = market.instance.nodes
    _, first = np.unique(pairs.object * nodes + pairs.to, return_index=True)
    pairs = pairs.where(np.sort(first))
    return pairs.where(~shared_already(market.instance, pairs))


def _fractional(load: Float64, cost: Float64, demand: Float64) -> Float64:
    """Return the least cost of parts of objects that cover each demand; costs may be negative."""
    able = np.isfinite(cost)
    load, cost = load[able], cost[able]
    order = np.argsort(cost / load, kind="stable")
    filled = np.concatenate([[0.0], np.cumsum(load[order])])
    paid = np.concatenate([[0.0], np.cumsum(cost[order])])
    least = int(np.argmin(paid))  # an object that gains by leaving leaves in any case
    return np.asarray(np.interp(np.maximum(demand, filled[least]), filled, paid))
