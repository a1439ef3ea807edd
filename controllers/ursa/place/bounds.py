"""Lower bounds over all choices of objects, by prices on both ends of a move.

**Joint bound.** Give every node n a price mu_n >= 0 for a unit of load. Moving object i from s to j
then costs its distance plus ``load * (mu_j - mu_s)``. By Lagrangian duality no set of moves that
leaves no node hot costs less than

    sum over n of mu_n (L_n - C_n) + sum over i of min(0, min over j of that),

whatever the prices are. Out of a hot node must go at least its excess e_s, and an object counts
for no more than that: with cover prices alpha_s >= 0 on hot nodes a move costs another
``min(load, e_s) * alpha_s`` less, and the sum of ``alpha_s * e_s`` is added to the bound. Only
objects on nodes with a price count, and among these only objects with prices that pay for the way
to the nearest target. The prices come from the linear relaxation of choosing and placing together,
solved by column generation from a known plan.

**Cover bound.** Objects stay whole where a node must be relieved. Only arrivals at a node are
relaxed, by prices lambda >= 0 of a unit of load: what arrives in total on the one hand, and the
room made for it on the other. What is left falls apart by nodes. With c_k the least ``cost + load *
lambda`` over the targets that object k may go to, no plan costs less than the sum over nodes n of

    min { sum of c_k over the objects k that leave - lambda_n * what may come }.

As much may come as the room and the leaving objects allow. For a hot node this is a minimum
knapsack: its cheapest set of objects, at costs c_k - lambda_n load_k, that covers its excess. For
another node it is every object that sells for more than its move costs. In contrast to the joint
bound a hot node cannot give away a part of an object; at the same prices this bound is never lower.
The prices are improved by a few steps along the subgradient: what the chosen objects bring to a
node beyond the room that was sold there.

**Eviction bound**, sharper where objects make room on a node by leaving it. The cover bound sells
room on a full node n by the unit of load: an object on it that is heavier than all that would come
pays for its way with the part that is used. And a hot node that sells room, to keep others away,
may be relieved in parts. Here what may come is looked at object by object. Object i pays node n at
most pi_in = min(lambda_n load_i, cap_i - distance) for being let in, where cap_i is what i costs
elsewhere or, when i stays in any case, what it would take to change that. The least cost of i at
these payments is no less than min(c_i, cap_i), with c_i as in the cover bound. What n can earn is
limited to P_n, the sum of what all would pay, and to p_n, that of objects which it has room R_n for
as it is, as long as nothing leaves it. For any prices and caps, no plan costs less than the sum
over hot nodes of the greater of

    the cheapest cover at costs min(c, cap), less P_n,
    the cheapest cover at these costs less lambda_n load, and lambda_n times the excess,

less the sum over other nodes of V_n, the greater of

    min(lambda_n R_n, max(p_n, P_n - d)), d being the distance of the nearest node,
    min(lambda_n R_n + all gains, P_n - least c_k), k being the objects that gain by leaving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controllers.jit import in_threads
from controllers.ursa.instance import Float64, Instance, Int32, Moves, Timer
from controllers.ursa.methods import MethodRequest
from controllers.ursa.place.exact import joined
from controllers.ursa.place.highs import INFINITE, HighsModel, by_columns, solve
from controllers.ursa.place.market import BEYOND, Market, payments
from controllers.ursa.place.problem import Ints
from controllers.ursa.place.relaxation import batched, components, ranks
from controllers.ursa.state import PlanState

JOINT_ROUNDS = 60
BATCH_COLUMNS = 4000
TARGETS = 3
OBJECTS_A_NODE = 40
TOLERANCE = 1e-6
GAIN = 1e-5


@dataclass(frozen=True, eq=False)
class LoadPrices:
    """Prices of a unit of load: `load` [N], mu, on a node, whether it comes or goes; `cover` [N],
    alpha, of what leaves a hot node, up to the node's excess.
    """

    load: Float64
    cover: Float64


@dataclass(eq=False)
class Joint:
    """State of the joint relaxation.

    Attributes:
        price, bound: mu and alpha, and what they certify.
        pairs, x: columns generated, [pairs] their values.
        reduced: [pairs], what a solution with that move costs above the bound, at least.
        rounds: programmes solved.
        converged: no move of negative cost is missing, so that the bound is the relaxation's value.
    """

    price: LoadPrices
    bound: float
    pairs: Moves
    x: Float64
    reduced: Float64
    rounds: int = 0
    converged: bool = False


def paid(market: Market, node: NDArray[np.integer], load: Float64, price: LoadPrices) -> Float64:
    """Return the pay, by the prices, for objects of `load` that leave `node`, all [K]."""
    covered = np.minimum(load, market.excess[node])
    return np.asarray(load * price.load[node] + covered * price.cover[node])


def sources(market: Market, price: LoadPrices) -> Ints:
    """Return nodes that an object may leave and that have a price."""
    priced = (price.load > 0) | (price.cover > 0)
    return np.flatnonzero(priced if market.evict else priced & market.hot)


@dataclass(frozen=True, eq=False)
class _Offers:
    """The objects of priced nodes that could pay for a move: positions in the market's stock, what
    the prices pay, and their least cost plus priced load, which is less. All [K].
    """

    at: Ints
    paid: Float64
    value: Float64


def _offers(market: Market, nodes: Ints, price: LoadPrices) -> _Offers:
    market.stock.fetch(nodes)
    at = market.stock.of(nodes)
    pays = paid(market, market.stock.node[at], market.stock.load[at], price)
    value, _ = market.least_exactly(nodes, price.load, pays)
    good = np.flatnonzero(value < pays)
    return _Offers(at[good], pays[good], value[good])


def certify_joint(market: Market, price: LoadPrices) -> float:
    """Return the bound of the module's head, for any prices."""
    return _certified(market, price, _offers(market, sources(market, price), price))


def _certified(market: Market, price: LoadPrices, offers: _Offers) -> float:
    fixed = -(price.load * market.room).sum() + (price.cover * market.excess).sum()
    return float(fixed + (offers.value - offers.paid).sum())


def joint_bound(market: Market, start: Moves, timer: Timer) -> Joint:
    """Return prices and bound, by column generation from moves `start` that leave no node hot."""
    nodes = market.instance.nodes
    joint = Joint(
        LoadPrices(np.zeros(nodes), np.zeros(nodes)),
        0.0,
        start,
        np.ones(len(start)),
        np.zeros(len(start)),
    )
    if not len(start):
        joint.converged = True
        return joint
    # What the known plan pays for a unit of load is a first guess of each hot node's price.
    guess = LoadPrices(np.zeros(nodes), np.zeros(nodes))
    np.maximum.at(guess.load, start.source, 1.5 * start.cost / np.maximum(start.load, 1e-300))
    hot = np.flatnonzero(market.hot)
    _add(joint, _columns(market, _offers(market, hot, guess), guess, _Worth()), nodes)
    price = joint.price
    while joint.rounds < JOINT_ROUNDS and timer.left() > 0:
        joint.rounds += 1
        price, worth = _solve_joint(market, joint, price, timer)
        offers = _offers(market, sources(market, price), price)
        bound = _certified(market, price, offers)
        if bound > joint.bound:
            joint.bound, joint.price = bound, price
        value = float((joint.x * joint.pairs.cost).sum())
        new = _add(joint, _columns(market, offers, price, worth), nodes)
        joint.converged = new == 0 or value - joint.bound <= GAIN * abs(value)
        if joint.converged:
            break
    joint.reduced = reduced_costs(market, joint)
    return joint


def reduced_costs(market: Market, joint: Joint) -> Float64:
    """Return [pairs], what a solution with that move costs above the bound, at least."""
    pairs, price = joint.pairs, joint.price
    net = pairs.cost + pairs.load * price.load[pairs.to]
    net -= paid(market, pairs.source, pairs.load, price)
    offers = _offers(market, np.unique(pairs.source).astype(np.int64), price)
    best = _Worth(market.stock.object[offers.at], offers.paid - offers.value)
    return np.maximum(net + best.of(pairs.object), 0.0)


class _Worth:
    """A number for some objects, 0 for all others."""

    def __init__(self, objects: Ints | None = None, value: Float64 | None = None) -> None:
        objects = np.empty(0, np.int64) if objects is None else objects
        value = np.empty(0) if value is None else value
        order = np.argsort(objects, kind="stable")
        self._objects, self._value = objects[order], value[order]

    def of(self, objects: Ints) -> Float64:
        """Return [len(objects)]."""
        if not len(self._objects):
            return np.zeros(len(objects))
        at = np.minimum(np.searchsorted(self._objects, objects), len(self._objects) - 1)
        return np.where(self._objects[at] == objects, self._value[at], 0.0)


def _columns(market: Market, offers: _Offers, price: LoadPrices, worth: _Worth) -> Moves:
    """Return the best few moves of negative cost of the best few objects of each source."""
    stock = market.stock
    node = stock.node[offers.at]
    eps = TOLERANCE * market.ways.first(node)
    # Below this an object's cost plus priced load must be, for its move to be worth a column.
    limit = offers.paid - worth.of(stock.object[offers.at]) - eps
    gain = limit - offers.value
    good = np.flatnonzero(gain > 0)
    good = good[np.lexsort((-gain[good], node[good]))]
    good = good[ranks(node[good]) < OBJECTS_A_NODE]
    at = offers.at[good]
    row, target, cost = market.best_targets(at, price.load, limit[good], TARGETS)
    at = at[row]
    return Moves(stock.object[at], stock.node[at], target, stock.load[at], cost)


def _add(joint: Joint, more: Moves, nodes: int) -> int:
    """Add the missing pairs; return their number."""
    have = joint.pairs.object * nodes + joint.pairs.to
    new = more.where(~np.isin(more.object * nodes + more.to, have))
    joint.pairs = joined([joint.pairs, new])
    joint.x = np.concatenate([joint.x, np.zeros(len(new))])
    return len(new)


def _solve_joint(
    market: Market, joint: Joint, price: LoadPrices, timer: Timer
) -> tuple[LoadPrices, _Worth]:
    """Return (prices, worth of objects) of the programme over the columns there are."""
    pairs, n = joint.pairs, market.instance.nodes
    label, _ = components(pairs.source, pairs.to, n, n)
    # Nodes are on both sides: a component of sources and one of targets may share a hot node.
    label, _ = components(
        np.r_[pairs.source, pairs.to], label[np.r_[pairs.source, pairs.source]], n, 2 * n
    )
    order = np.argsort(label[pairs.source], kind="stable")
    batch = batched(label[pairs.source][order], BATCH_COLUMNS)
    pieces = [order[batch == b] for b in range(int(batch.max(initial=-1)) + 1)]
    price = LoadPrices(price.load.copy(), price.cover.copy())
    objects: list[Ints] = [np.empty(0, np.int64)] * len(pieces)
    worths: list[Float64] = [np.empty(0)] * len(pieces)

    def work(piece: int) -> None:
        at = pieces[piece]
        part = pairs.where(at)
        nodes, place = np.unique(np.r_[part.source, part.to], return_inverse=True)
        source, target = place[: len(part)], place[len(part) :]
        objects[piece], row = np.unique(part.object, return_inverse=True)
        unit = np.zeros(len(nodes))
        np.maximum.at(unit, place, np.r_[part.load, part.load])
        index = np.arange(len(part))
        n, m = len(nodes), len(objects[piece])
        excess = market.excess[nodes]
        leaves = np.flatnonzero(excess[source] > 0)
        covers = np.minimum(part.load, excess[source])[leaves] / excess[source[leaves]]
        start, rows, value = by_columns(
            len(part),
            (source, index, -part.load / unit[source]),
            (target, index, part.load / unit[target]),
            (n + row, index, 1.0),
            (n + m + source[leaves], leaves, covers),
        )
        scale = float(part.cost.mean()) or 1.0
        found = solve(
            HighsModel(
                cost=part.cost / scale,
                start=start,
                row=rows,
                value=value,
                lower=np.r_[np.full(n + m, -INFINITE), np.where(excess > 0, 1.0, -INFINITE)],
                upper=np.r_[market.room[nodes] / unit, np.ones(m), np.full(n, INFINITE)],
            ),
            seconds=timer.left(),
        )
        if found.x is None or found.status != "optimal":
            worths[piece] = np.zeros(m)
            return
        joint.x[at] = found.x
        price.load[nodes] = found.price[:n] * scale / unit
        price.cover[nodes] = found.price[n + m :] * scale / np.where(excess > 0, excess, INFINITE)
        worths[piece] = found.price[n : n + m] * scale

    in_threads(work, len(pieces))
    none, nothing = np.empty(0, np.int64), np.empty(0)
    return price, _Worth(np.concatenate([none, *objects]), np.concatenate([nothing, *worths]))


STEPS = 8
PATIENCE = 4
ENOUGH = 1e-3
"""Part of the known cost: closer to it no step is taken."""
KNAPSACK_NODES = 200
KNAPSACK_GAP = 1e-4
SAFETY = 1e-12


@dataclass(frozen=True, eq=False)
class Cover:
    """A bound and the prices that prove it."""

    bound: float
    price: Float64


def cover_bound(market: Market, price: Float64, cost: float, timer: Timer) -> float:
    """Return the bound of `covered`."""
    return covered(market, price, cost, timer).bound


def covered(
    market: Market,
    price: Float64,
    cost: float,
    timer: Timer,
    *,
    steps: int = STEPS,
    exact: bool = True,
) -> Cover:
    """Return the best of the bounds at the prices of at most `steps` steps from `price` [N].

    `market` defines the plans that the bound covers. `cost` is of a known plan, which limits the
    bound; infinite to take no step. With `exact`, knapsacks are integer programmes where that
    improves the bound. The bound is infinite when no plan relieves some hot node.
    """
    if not market.evict:
        price = np.where(market.hot, 0.0, price)  # nothing comes there
    best = Cover(-INFINITE, price)
    direction = np.zeros(len(price))
    length, quiet = 1.0, 0
    for _ in range(steps):
        if timer.left() <= 0:
            break
        bound, over = evaluate_covers(market, price, exact=exact)
        if bound == INFINITE:
            return Cover(bound, price)
        quiet = 0 if bound > best.bound + 1e-5 * abs(best.bound) else quiet + 1
        if bound > best.bound:
            best = Cover(bound, price)
            direction = np.where((over > 0) | (price > 0), over, 0.0)
            if not market.evict:
                direction[market.hot] = 0.0
        else:
            length /= 2
        norm = float((direction**2).sum())
        near = best.bound >= cost * (1 - ENOUGH)
        if norm == 0 or quiet >= PATIENCE or near or not np.isfinite(cost):
            break
        step = length * max(cost - best.bound, 0.0) / norm
        price = np.maximum(best.price + step * direction, 0.0)
    return Cover(max(min(best.bound, cost), 0.0), best.price)


def any_plan_bound(instance: Instance, state: PlanState, request: MethodRequest) -> float | None:
    """Return a lower bound on any plan that leaves no node hot, at prices of nothing; None without.

    Every object could go to the nearest node that might take it at all: quick, and low where near
    nodes are full.
    """
    market = Market(instance, state, evict=True, reach=request.reach)
    nothing = np.zeros(instance.nodes)
    bound = covered(market, nothing, INFINITE, request.timer, steps=1, exact=False).bound
    return bound if 0 < bound < INFINITE else None


def evaluate_covers(market: Market, price: Float64, *, exact: bool = True) -> tuple[float, Float64]:
    """Return (the bound at `price`, [N] what comes beyond the room that was sold)."""
    sold = market.room.copy()
    total = -float((price * market.room).sum())
    come = np.zeros(market.instance.nodes)
    if market.evict:
        nodes = np.flatnonzero(~market.hot & (price > 0))
        market.stock.fetch(nodes)
        at = market.stock.of(nodes)
        load, node = market.stock.load[at], market.stock.node[at]
        sells = load * price[node]
        value, target = market.least_exactly(nodes, price, sells)
        out = np.flatnonzero(value < sells)
        total += float((value - sells)[out].sum())
        sold += np.bincount(node[out], load[out], len(sold))
        come += np.bincount(target[out], load[out], len(come))
    for node, relief in zip(*reliefs(market, price, exact=exact), strict=True):
        total += relief.bound
        sold[node] += relief.load.sum()
        np.add.at(come, relief.target, relief.load)
    return total, come - sold


@dataclass(frozen=True, eq=False)
class Relief:
    """Cheapest cover of a hot node: a bound of its cost, and the objects that leave.

    `beyond`: some of them go farther than the node's list reaches, so that it has to be widened.
    """

    bound: float
    load: Float64
    target: Int32
    beyond: bool


_NOTHING = Relief(0.0, np.empty(0), np.empty(0, np.int32), beyond=False)


def reliefs(market: Market, price: Float64, *, exact: bool = True) -> tuple[Ints, list[Relief]]:
    """Return the hot nodes and the cheapest cover of each at `price`."""
    hot = np.flatnonzero(market.hot)
    market.stock.fetch(hot)
    market.ways.open(hot)
    found: list[Relief] = [_NOTHING] * len(hot)
    pending = np.arange(len(hot))
    while len(pending):
        for i, relief in zip(pending, _relieved(market, hot[pending], price, exact), strict=True):
            found[i] = relief
        pending = np.array([i for i in pending if found[i].beyond], dtype=np.int64)
        market.ways.widen(hot[pending])
    return hot, found


def _relieved(market: Market, nodes: Ints, price: Float64, exact: bool) -> list[Relief]:
    at = market.stock.of(nodes)
    size = market.stock.end[nodes] - market.stock.first[nodes]
    load = market.stock.load[at]
    value, target = market.least(nodes, price, np.full(len(at), INFINITE))
    return relieve_each(
        market, nodes, load, value - load * price[np.repeat(nodes, size)], target, exact=exact
    )


def relieve_each(
    market: Market,
    nodes: Ints,
    load: Float64,
    value: Float64,
    target: Int32,
    *,
    exact: bool = True,
) -> list[Relief]:
    """Return the cheapest cover of each of `nodes`; the arrays list their objects by node."""
    size = market.stock.end[nodes] - market.stock.first[nodes]
    end = np.cumsum(size)
    found: list[Relief] = [_NOTHING] * len(nodes)

    def work(chunk: int) -> None:
        for i in range(bounds[chunk], bounds[chunk + 1]):
            mine = slice(int(end[i] - size[i]), int(end[i]))
            demand = float(market.excess[nodes[i]])
            found[i] = _relieve(load[mine], value[mine], target[mine], demand, exact)

    # Every cover may take a programme: a few at a time for each thread.
    chunks = 1 + len(nodes) // 8
    bounds = np.linspace(0, len(nodes), chunks + 1).astype(np.int64)
    in_threads(work, chunks)
    return found


def _relieve(load: Float64, value: Float64, target: Int32, demand: float, exact: bool) -> Relief:
    paying = np.flatnonzero(value < 0)
    rest = demand * (1 - SAFETY) - float(load[paying].sum())
    able = np.flatnonzero(np.isfinite(value) & (value >= 0))
    bound, cover = least_cover(load[able], value[able], rest, exact=exact)
    out = np.concatenate([paying, able[cover]])
    beyond = bool((target[out] == BEYOND).any())
    kept = out[target[out] >= 0]
    return Relief(float(value[paying].sum()) + bound, load[kept], target[kept], beyond)


def least_cover(
    load: Float64, cost: Float64, demand: float, *, exact: bool = True
) -> tuple[float, Ints]:
    """Choose items with loads that sum up to `demand` at the least cost (costs at least 0).

    Return (a lower bound of that cost, infinite when all items do not suffice; a cheap cover).
    Without `exact` no integer programme is solved.
    """
    demand *= 1 - SAFETY
    nothing = np.empty(0, dtype=np.int64)
    if demand <= 0:
        return 0.0, nothing
    if float(load.sum()) < demand:
        return INFINITE, nothing
    counted = np.minimum(load, demand)
    order = np.lexsort((-counted, cost / np.maximum(counted, 1e-300)))
    items, price = counted[order], cost[order]
    filled, paid = np.cumsum(items), np.cumsum(price)
    last = int(np.searchsorted(filled, demand))
    last = min(last, len(items) - 1)
    before = filled[last] - items[last]
    ratio = price[last] / items[last]
    relaxed = float(paid[last] - price[last] + (demand - before) * ratio)
    best, cover = _cheap_cover(items, price, filled, paid, demand, last)
    reduced = price - ratio * items
    gap = max(best - relaxed, 0.0) * (1 + 1e-9) + 1e-15
    # So many at least, whichever these are: sharp where all cost about the same.
    fewest = int(np.searchsorted(np.cumsum(np.sort(items)[::-1]), demand)) + 1
    relaxed = max(relaxed, min(float(np.sort(price)[:fewest].sum()), best))
    inside = reduced < -gap
    open_ = np.flatnonzero(np.abs(reduced) <= gap)
    if not exact or best - relaxed <= KNAPSACK_GAP * best or not len(open_):
        return relaxed, order[cover]
    rest = demand - float(items[inside].sum())
    bound, picked = _solve_knapsack(items[open_], price[open_], rest)
    bound += float(price[inside].sum())
    if picked is not None:
        cover = np.r_[np.flatnonzero(inside), open_[picked]]
    return min(max(bound, relaxed), best), order[cover]


def _cheap_cover(
    items: Float64, price: Float64, filled: Float64, paid: Float64, demand: float, last: int
) -> tuple[float, Ints]:
    """Return the best of: the first few items by ratio, and the cheapest that completes them."""
    best, cover = float(paid[last]), np.arange(last + 1)
    for first in range(last + 1):
        missing = demand - (filled[first - 1] if first else 0.0)
        fits = first + np.flatnonzero(items[first:] >= missing)
        if len(fits):
            at = fits[np.argmin(price[fits])]
            total = float((paid[first - 1] if first else 0.0) + price[at])
            if total < best:
                best, cover = total, np.r_[np.arange(first), at]
    return best, cover


def _solve_knapsack(items: Float64, price: Float64, rest: float) -> tuple[float, Ints | None]:
    count = len(items)
    start, row, value = by_columns(
        count, (np.zeros(count, dtype=np.int64), np.arange(count), items / rest)
    )
    scale = float(price.max(initial=0.0)) or 1.0
    model = HighsModel(
        cost=price / scale,
        start=start,
        row=row,
        value=value,
        lower=np.array([1.0 - 1e-7]),
        upper=np.array([INFINITE]),
        integer=True,
    )
    found = solve(model, nodes=KNAPSACK_NODES, gap=KNAPSACK_GAP)
    if found.x is None:
        return 0.0, None
    return found.bound * scale, np.flatnonzero(found.x > 0.5)


def by_ratio(load: Float64, cost: Float64, demand: float) -> tuple[Ints, float]:
    """Return (the first items by cost per counted load, the last one's ratio): as many as cover
    `demand`, or all; none and 0 if there is nothing to cover."""
    if demand <= 0 or not len(load):
        return np.empty(0, dtype=np.int64), 0.0
    counted = np.minimum(load, demand)
    ratio = cost / np.maximum(counted, 1e-300)
    order = np.lexsort((-counted, ratio))
    last = min(int(np.searchsorted(np.cumsum(counted[order]), demand)), len(order) - 1)
    return order[: last + 1], float(ratio[order[last]])


EVICTION_STEPS = 30
EVICTION_PATIENCE = 6
FIRST_STEP, MOST_STEP = 0.3, 1.0
"""Steps of the logarithm of a price."""


def eviction_bound(market: Market, begin: Cover, cost: float, timer: Timer) -> Cover:
    """Return the better of `begin` (from `covered`) and this bound at the prices of steps from it.

    A price rises by a factor where more comes than was sold and falls where less does; the factor
    of a node grows as long as its price goes one way, and shrinks when that turns. `cost` is of a
    known plan.
    """
    best, price = begin, _deterring(market, begin.price)
    if timer.left() > 0:
        # Where nothing is scarce but ways, other nodes' prices only do harm.
        free = _deterring(market, np.zeros(len(price)))
        best = max(best, Cover(evaluate_whole(market, free)[0], free), key=lambda c: c.bound)
    step = np.full(len(price), FIRST_STEP)
    way = np.zeros(len(price))
    quiet = 0
    for _ in range(EVICTION_STEPS):
        if timer.left() <= 0 or quiet > EVICTION_PATIENCE or best.bound >= cost * (1 - ENOUGH):
            break
        bound, over = evaluate_whole(market, price)
        quiet += 1
        if bound > best.bound:
            best, quiet = Cover(bound, price), 0
        now = np.where(price > 0, np.sign(over), 0.0)
        step *= np.where(now * way > 0, 1.2, np.where(now * way < 0, 0.5, 1.0))
        step, way = np.minimum(step, MOST_STEP), now
        price = price * np.exp(now * step)
    return Cover(min(best.bound, cost), best.price)


def _deterring(market: Market, price: Float64) -> Float64:
    """Return prices at which entering a hot node costs as much as losing the same load."""
    objects = _hot_objects(market, price)
    return np.maximum(price, np.bincount(objects.hot, objects.ratio, len(price)))


@dataclass(frozen=True, eq=False)
class _HotObjects:
    """Hot nodes [H] with the cost of a unit of load that leaves, and load, cap and target of all
    their objects, node by node, at given prices.
    """

    hot: Ints
    ratio: Float64
    load: Float64
    cap: Float64
    target: Int32


def evaluate_whole(market: Market, price: Float64) -> tuple[float, Float64]:
    """Return (the bound at `price`, [N] what comes beyond the room that was sold, or 0)."""
    nodes = market.instance.nodes
    givers = np.flatnonzero(~market.hot & (price > 0))
    market.stock.fetch(givers)
    ours = _hot_objects(market, price)
    at = market.stock.of(givers)
    load, node = market.stock.load[at], market.stock.node[at]
    sells = load * price[node]
    value, target = market.least_exactly(givers, price, sells)
    pays = _Payments(market, price, np.r_[market.stock.of(ours.hot), at], np.r_[ours.cap, value])

    total, come, sold = 0.0, np.zeros(nodes), np.zeros(nodes)
    relief = relieve_each(market, ours.hot, ours.load, ours.cap, ours.target)
    for source, each in zip(
        ours.hot, _better_reliefs(market, ours, price, pays.all, relief), strict=True
    ):
        total += each.bound
        sold[source] = each.load.sum() - market.excess[source]
        np.add.at(come, each.target, each.load)
    if total == INFINITE:
        return INFINITE, np.zeros(nodes)

    worth = np.flatnonzero(value < sells)
    gain = np.bincount(node[worth], (sells - value)[worth], nodes)
    least = np.full(nodes, INFINITE)
    np.minimum.at(least, node[worth], value[worth])
    room = price * market.room
    market.ways.open(givers)
    near = np.zeros(nodes)
    near[givers] = market.ways.first(givers)
    closed = np.minimum(room, np.maximum(pays.small, pays.all - near))
    opened = np.minimum(pays.all - least, room + gain)
    leaves = opened > closed
    total -= float(np.where(leaves, opened, closed)[givers].sum())
    fully = leaves & (room + gain <= pays.all - least)  # all that can be sold is
    sold[givers] = np.where(
        leaves, pays.load, np.where(room <= closed, market.room, pays.small_load)
    )[givers]
    sold = np.where(fully, market.room, sold)
    out = worth[leaves[node[worth]]]
    sold += np.bincount(node[out], np.where(fully[node[out]], load[out], 0.0), nodes)
    out = out[(value[out] == least[node[out]]) | fully[node[out]]]
    come += np.bincount(target[out], load[out], nodes)
    return total, np.where(market.hot & (pays.all <= 0), 0.0, come - sold)


def _better_reliefs(
    market: Market, ours: _HotObjects, price: Float64, earns: Float64, relief: list[Relief]
) -> list[Relief]:
    """Return the better of two bounds for each hot node, where others would come to it.

    Either it earns all that they would pay, or it sells all room that it gains by the unit.
    """
    bounds = np.array([each.bound for each in relief]) - earns[ours.hot]
    size = market.stock.end[ours.hot] - market.stock.first[ours.hot]
    source = np.repeat(ours.hot, size)
    by_unit = relieve_each(
        market, ours.hot, ours.load, ours.cap - ours.load * price[source], ours.target, exact=False
    )
    found = []
    for i, node in enumerate(ours.hot):
        other = by_unit[i].bound + float(price[node] * market.excess[node])
        first = bounds[i] >= other or earns[node] <= 0
        found.append(replace(relief[i] if first else by_unit[i], bound=max(bounds[i], other)))
    return found


def _hot_objects(market: Market, price: Float64) -> _HotObjects:
    """Return hot nodes' objects; one in no cheap cover pays at most what puts it into one."""
    hot = np.flatnonzero(market.hot)
    nothing = np.where(market.hot, 0.0, price)
    reliefs(market, nothing, exact=False)  # lists are then as long as covers need them
    at = market.stock.of(hot)
    size = market.stock.end[hot] - market.stock.first[hot]
    end = np.cumsum(size)
    load = market.stock.load[at]
    value, target = market.least(hot, price, np.full(len(at), INFINITE))
    threshold = np.repeat(market.ways.first(hot), size)
    chosen = np.zeros(len(at), dtype=np.bool_)
    ratios = np.zeros(len(hot))
    for i, node in enumerate(hot):
        mine = slice(int(end[i] - size[i]), int(end[i]))
        able = np.flatnonzero(np.isfinite(value[mine]))
        excess = float(market.excess[node])
        taken, ratios[i] = by_ratio(load[mine][able], value[mine][able], excess)
        brought = ratios[i] * np.minimum(load[mine], excess)
        threshold[mine] = np.maximum(threshold[mine], brought)
        chosen[mine][able[taken]] = True
    stays = ~chosen & np.isfinite(value)
    return _HotObjects(
        hot, ratios, load, np.where(stays, np.minimum(value, threshold), value), target
    )


class _Payments:
    """Sums [N] that objects together would pay each node to be let in, and the load of those that
    would pay its price in full; `small`: of objects that the node has room for as it is.
    """

    def __init__(self, market: Market, price: Float64, objects: Ints, cap: Float64) -> None:
        nearest = market.ways.first(market.stock.node[objects])
        some = np.flatnonzero(np.isfinite(cap) & (cap > nearest))
        self.all, self.load, self.small, self.small_load = np.zeros((4, market.instance.nodes))
        sums = self.all, self.load, self.small, self.small_load
        market.look(payments, objects[some], price, market.room, cap[some], sums)
