"""The placement of a given selection as a generalised assignment problem: equations (7) to (13).

Loads cannot be split and a move costs the same whatever the object's load is, so this is not a
transportation problem. An object that has been selected leaves its node: it is not offered that
node again, and the node's room counts it as gone, as the second term of (8) does.

Loads have D dimensions, one in the paper's model. Two replicas of a partition are kept apart at the
outermost level at which their fault domains differ: at this level and further in they may not come
together, further out they are together from the start. Beyond the paper's model the node is the
innermost domain, so there is always such a level. In the paper's model there is one level: replicas
that share a domain from the start do not move within it.

`Lists` holds candidate targets in order of distance, for many objects at once and as many as are
asked for. R(i, r) of equations (9) and (10) is a prefix of a list. At the end are the compiled
loops of placement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controllers.jit import njit
from controllers.ursa.instance import (
    UNPLACED,
    Distance,
    Float64,
    Instance,
    Int32,
    Nearest,
    Selection,
    between,
)
from controllers.ursa.state import PlanState

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class ProblemArrays(NamedTuple):
    """A problem's arrays as the compiled loops take them; see `PlacementProblem`."""

    loads: Float64
    rooms: Float64
    source: Int32
    levels: Int32
    taken: Int32
    level: NDArray[np.int8]
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Nodes that each of M objects may go to, and the room of every node.

    Attributes:
        loads, rooms: [M, D], load L_i of an object; [N, D], C_j - L_*j + the selected load that
            leaves j, negative where a node stays hot whatever leaves.
        weight, room: [M], [N], by which candidates are listed: a node that can take an object has
            at least as much room. With one dimension `loads` and `rooms`.
        unit: [D], loads that count as equally much in the dimensions.
        source, sender: [M], node that it leaves; node that sends it, from which its cost counts.
        partition, members: [M], members move with the object and multiply its distance.
        levels: [N, levels], fault domains from the outermost on.
        taken, level: [M, l], domain of each other replica where it is now, I_iq of (12), and its
            level; -1 in the object's own column.
        sibling: [M], objects ordered by partition; those of object i's partition, itself among
            them, are ``sibling[sibling_first[i]:sibling_end[i]]``: G_p of (11).
        distance: cost of a move.
        reach: no move costs more; infinite without a limit.
    """

    loads: Float64
    rooms: Float64
    weight: Float64
    room: Float64
    unit: Float64
    source: Int32
    sender: Int32
    partition: Int32
    members: Float64
    levels: Int32
    taken: Int32
    level: NDArray[np.int8]
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32
    distance: Distance
    reach: float

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.room)

    @property
    def dimensions(self) -> int:
        """D."""
        return int(self.rooms.shape[1])

    def layout(self) -> ProblemArrays:
        """Return the layout for compiled loops."""
        return ProblemArrays(*(getattr(self, name) for name in ProblemArrays._fields))

    def clear(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Bools:
        """Return True where a node is none that the object leaves or that (12) rules out."""
        ok: Bools = self.source[objects] != nodes
        outermost, nested = self.levels[:, 0][nodes], bool(self.level.any())
        for column in range(self.taken.shape[1]):
            domain = outermost
            if nested:
                domain = self.levels[nodes, self.level[:, column][objects]]
            ok &= self.taken[:, column][objects] != domain
        return ok

    def allowed(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Bools:
        """Return True where an object fits on the node at its position, if all others were away."""
        ok = self.clear(objects, nodes)
        for d in range(self.dimensions):
            ok &= self.loads[:, d][objects] <= self.rooms[:, d][nodes]
        return ok

    def cost(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Float64:
        """Return [objects], cost of moving each object to the node at the same position."""
        return self.whole(objects, between(self.distance, self.sender[objects], nodes))

    def whole(self, objects: NDArray[np.integer], cost: Float64) -> Float64:
        """Return [objects], cost of moving them where one partition costs `cost`."""
        return np.asarray(cost * self.members[objects])

    def toll(
        self, objects: NDArray[np.integer], nodes: NDArray[np.integer], price: Float64
    ) -> Float64:
        """Return [objects], cost of each object's load on its node, by prices [N, D]."""
        total = self.loads[:, 0][objects] * price[:, 0][nodes]
        for d in range(1, self.dimensions):
            total += self.loads[:, d][objects] * price[:, d][nodes]
        return np.asarray(total)

    def rent(self, price: Float64) -> float:
        """Return cost of all room that has a price."""
        priced = price > 0
        return float((price[priced] * self.rooms[priced]).sum())

    def heaviness(self) -> Float64:
        """Return [M], by which objects are ordered: the most of an object's loads."""
        return np.asarray((self.loads / self.unit).max(axis=1, initial=0.0))

    def loads_of(self, objects: NDArray[np.integer]) -> Float64:
        """Return [D, objects], loads by dimension."""
        return np.ascontiguousarray(self.loads[objects].T)

    def meet(self, a: Ints, b: Ints, to_a: NDArray[np.integer], to_b: NDArray[np.integer]) -> Bools:
        """Return True where objects a and b of one partition meet on nodes `to_a` and `to_b`."""
        level = (self.levels[self.source[a]] != self.levels[self.source[b]]).argmax(axis=1)
        return np.asarray(self.levels[to_a, level] == self.levels[to_b, level])

    def meeting(self, objects: Ints, row: Ints, target: Int32) -> tuple[Ints, Ints]:
        """Return (row, column) entries of (11): of two replicas at most one goes to a domain.

        `row` is a pair's place in `objects`, `target` its node.
        """
        partition = self.partition[objects]
        if self.levels.shape[1] == 1:  # the paper's model: one row per partition and domain
            _, inverse, times = np.unique(partition, return_inverse=True, return_counts=True)
            column = np.flatnonzero(times[inverse[row]] > 1)
            domain = self.levels[:, 0].astype(np.int64)
            key = inverse[row[column]] * (int(domain.max(initial=0)) + 1) + domain[target[column]]
            return np.unique(key, return_inverse=True)[1].astype(np.int64), column
        rows, columns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        count = 0
        several, times = np.unique(partition, return_counts=True)
        order = np.argsort(partition[row], kind="stable")
        ordered = partition[row][order]
        for p in several[times > 1]:
            mine = order[np.searchsorted(ordered, p) : np.searchsorted(ordered, p, side="right")]
            who = np.unique(row[mine])
            for index, a in enumerate(who):
                for b in who[:index]:
                    both = np.sort(mine[(row[mine] == a) | (row[mine] == b)])
                    homes = self.levels[self.source[objects[[a, b]]]]
                    level = int((homes[0] != homes[1]).argmax())
                    domains, entry = np.unique(
                        self.levels[target[both], level], return_inverse=True
                    )
                    rows.append(count + entry.astype(np.int64))
                    columns.append(both)
                    count += len(domains)
        return np.concatenate(rows), np.concatenate(columns)

    def load_of(self, move_to: Int32) -> Float64:
        """Return [N, D], the load that `move_to` puts on each node."""
        placed = move_to != UNPLACED
        to, loads = move_to[placed], self.loads[placed]
        used = np.empty_like(self.rooms)
        for d in range(self.dimensions):
            used[:, d] = np.bincount(to, loads[:, d], self.nodes)
        return used

    def without(self, used: Float64) -> PlacementProblem:
        """Return the same objects with less room on the nodes, as much less as `used`."""
        rooms = self.rooms - used
        return replace(self, rooms=rooms, room=(rooms / self.unit).min(axis=1))


def assignment_problem(
    instance: Instance, state: PlanState, selection: Selection, max_move_cost: float | None
) -> PlacementProblem:
    """Return the problem of placing `selection`; `state` still counts its objects in place.

    `selection` has `load` [M] or [M, D]. No single move costs more than `max_move_cost`.
    """
    load = state.load.reshape(instance.nodes, -1)
    capacity = instance.capacity.astype(np.float64).reshape(load.shape)
    levels = instance.levels_apart()
    count, dimensions = len(selection), load.shape[1]
    loads = np.asarray(selection.load, np.float64).reshape(count, dimensions)
    leaving = np.empty_like(load)
    for d in range(dimensions):
        leaving[:, d] = np.bincount(selection.node, loads[:, d], len(load))
    rooms = capacity - (load - leaving)
    # A node that is hot in one dimension may take nothing, even of objects that have no load there.
    rooms[(load - leaving > capacity * (1 + 1e-12)).any(axis=1)] = -1.0
    unit = np.ones(dimensions)
    if dimensions > 1 and count:
        mean = loads.mean(axis=0)
        unit = np.where(mean > 0, mean, 1.0)
    homes = levels[instance.replica_node[selection.partition]]
    level = (homes != levels[selection.node][:, None]).argmax(axis=2)
    taken = np.take_along_axis(homes, level[:, :, None], axis=2)[:, :, 0]
    taken[np.arange(count), selection.replica] = -1
    sibling, first, end = _siblings(selection.partition)
    return PlacementProblem(
        loads=loads,
        rooms=rooms,
        weight=(loads / unit).min(axis=1),
        room=(rooms / unit).min(axis=1),
        unit=unit,
        source=selection.node,
        sender=instance.sender(selection.partition, selection.replica),
        partition=selection.partition,
        members=instance.members_of(selection.partition),
        levels=levels,
        taken=np.ascontiguousarray(taken),
        level=level.astype(np.int8),
        sibling=sibling,
        sibling_first=first,
        sibling_end=end,
        distance=instance.distance,
        reach=np.inf if max_move_cost is None else float(max_move_cost),
    )


def _siblings(partition: Int32) -> tuple[Int32, Int32, Int32]:
    order = np.argsort(partition, kind="stable").astype(np.int32)
    ordered = partition[order]
    first = np.searchsorted(ordered, partition, side="left").astype(np.int32)
    end = np.searchsorted(ordered, partition, side="right").astype(np.int32)
    return order, first, end


def ragged(start: NDArray[np.integer], length: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return (owner, position) of every element of the runs ``start[i] : start[i] + length[i]``."""
    lengths = length.astype(np.int64)
    owner = np.repeat(np.arange(len(start), dtype=np.int64), lengths)
    before = np.cumsum(lengths) - lengths
    position = np.arange(len(owner), dtype=np.int64) + (start.astype(np.int64) - before)[owner]
    return owner, position


FIRST_LIST = 8
MOST_ALIKE = 0.75


class Lists:
    """Lists of candidates, widened on demand.

    List g is ``start[g]:start[g] + length[g]`` of `node` and `cost`, ascending by cost; `complete`
    ones hold every node in reach that has room. `group` [M] is the list of each object.
    """

    def __init__(
        self, problem: PlacementProblem, objects: NDArray[np.integer] | None = None
    ) -> None:
        """Begin with empty lists for `objects` (by default all of the problem's)."""
        self._problem = problem
        chosen = np.arange(len(problem)) if objects is None else np.asarray(objects)
        alike = _alike(_octaves(problem.weight[chosen]), problem.room)
        self._octaves, rank = np.unique(alike, return_inverse=True)
        key = problem.sender[chosen].astype(np.int64) * max(1, len(self._octaves)) + rank
        keys, group = np.unique(key, return_inverse=True)
        self.group = np.full(len(problem), -1, dtype=np.int64)
        self.group[chosen] = group
        self._source = (keys // max(1, len(self._octaves))).astype(np.int32)
        self._octave = (keys % max(1, len(self._octaves))).astype(np.int64)
        self.start = np.zeros(len(keys), dtype=np.int64)
        self.length = np.zeros(len(keys), dtype=np.int64)
        self.complete = np.zeros(len(keys), dtype=np.bool_)
        self.node: Int32 = np.zeros(0, dtype=np.int32)
        self.cost: Float64 = np.zeros(0)
        self._search: dict[int, Nearest] = {}

    def __len__(self) -> int:
        return len(self.start)

    def last(self) -> Float64:
        """Return [G], the least cost of a node that a list lacks (infinite if complete)."""
        last = np.zeros(len(self))
        filled = self.length > 0
        last[filled] = self.cost[self.start[filled] + self.length[filled] - 1]
        last[self.complete] = np.inf
        return last

    def beyond(self, objects: Ints) -> Float64:
        """Return [objects], least cost of a node that the object's list lacks."""
        return self._problem.whole(objects, self.last()[self.group[objects]])

    def widen(self, groups: NDArray[np.integer], length: int) -> None:
        """Make the lists of `groups` hold the `length` nearest nodes, or all there are."""
        groups = groups[~self.complete[groups] & (self.length[groups] < length)]
        nodes, costs, tops = [self.node], [self.cost], len(self.node)
        for octave in np.unique(self._octave[groups]):
            mine = groups[self._octave[groups] == octave]
            searcher = self._searcher(int(octave))
            node, cost = searcher.query(self._source[mine], length)
            whole = node.shape[1] == len(searcher)
            in_reach = cost <= self._problem.reach
            lengths = in_reach.sum(axis=1)
            self.complete[mine] = whole | (lengths < node.shape[1])
            self.length[mine] = lengths
            self.start[mine] = tops + np.cumsum(lengths) - lengths
            nodes.append(node[in_reach])
            costs.append(cost[in_reach])
            tops += int(lengths.sum())
        self.node = np.concatenate(nodes).astype(np.int32)
        self.cost = np.concatenate(costs)

    def candidates(
        self, objects: NDArray[np.integer], farthest: Float64 | None = None
    ) -> tuple[Ints, Int32, Float64]:
        """Return (object, node, cost) of each allowed pair in the lists, by object, then ascending.

        With `farthest` [G], of one partition, only pairs that cost at most that.
        """
        groups = self.group[objects]
        length = self.length if farthest is None else self._within(farthest)
        owner, position = ragged(self.start[groups], length[groups])
        found = np.asarray(objects, dtype=np.int64)[owner]
        nodes = self.node[position]
        ok = self._problem.allowed(found, nodes)
        found = found[ok]
        return found, nodes[ok], self._problem.whole(found, self.cost[position[ok]])

    def _within(self, farthest: Float64) -> Ints:
        """Return [G], number of each list's nodes that cost at most `farthest`."""
        group, position = ragged(self.start, self.length)
        near = self.cost[position] <= farthest[group]
        return np.bincount(group[near], minlength=len(self))

    def _searcher(self, octave: int) -> Nearest:
        if octave not in self._search:
            least = _least_of_octave(self._octaves[octave])
            nodes = np.flatnonzero((self._problem.room >= least) & (self._problem.room >= 0))
            self._search[octave] = Nearest(self._problem.distance, nodes.astype(np.int32))
        return self._search[octave]


def nearest_fit(
    problem: PlacementProblem, lists: Lists, objects: NDArray[np.integer]
) -> tuple[Int32, Float64]:
    """Return the nearest allowed node of each of `objects` and its cost, or (-1, infinite).

    Lists are widened until each object has found a node or its list is complete.
    """
    node = np.full(len(objects), -1, dtype=np.int32)
    cost = np.full(len(objects), np.inf)
    pending = np.arange(len(objects))
    length = FIRST_LIST
    while len(pending):
        groups = lists.group[objects[pending]]
        lists.widen(np.unique(groups), length)
        owner, position = ragged(lists.start[groups], lists.length[groups])
        nodes = lists.node[position]
        ok = np.flatnonzero(problem.allowed(objects[pending][owner], nodes))
        found, first = np.unique(owner[ok], return_index=True)
        node[pending[found]] = nodes[ok[first]]
        cost[pending[found]] = lists.cost[position[ok[first]]]
        missing = np.ones(len(pending), dtype=np.bool_)
        missing[found] = False
        pending = pending[missing & ~lists.complete[groups]]
        length *= 4
    return node, problem.whole(objects, cost)


def _octaves(weight: Float64) -> Ints:
    """Return the e with 2**e <= weight < 2**(e + 1); very low for a load of zero."""
    exponent = np.frexp(weight)[1].astype(np.int64) - 1
    exponent[weight <= 0] = -2000
    return exponent


def _alike(octave: Ints, room: Float64) -> Ints:
    """Return, for each octave, the lowest below it that at most a third more nodes can take."""
    octaves, inverse = np.unique(octave, return_inverse=True)
    ordered = np.sort(room)
    stands_for, count, lowest = octaves.copy(), np.inf, 0
    for at, this in enumerate(octaves):
        enough = len(room) - int(np.searchsorted(ordered, _least_of_octave(this)))
        if at == 0 or enough < MOST_ALIKE * count:
            lowest, count = this, enough
        stands_for[at] = lowest
    return stands_for[inverse]


def _least_of_octave(octave: int) -> float:
    return 0.0 if octave <= -2000 else float(np.ldexp(1.0, int(octave)))


@njit
def apart(i: int, j: int, layout: ProblemArrays, move_to: Int32) -> bool:
    """Return True if node j is clear of object i's other replicas, old and new: (11), (12).

    `move_to` is [M], the targets decided so far.
    """
    for column in range(layout.taken.shape[1]):
        if layout.taken[i, column] == layout.levels[j, layout.level[i, column]]:
            return False
    source = layout.source[i]
    for at in range(layout.sibling_first[i], layout.sibling_end[i]):
        other = layout.sibling[at]
        if (
            other != i
            and move_to[other] >= 0
            and _meet(layout.levels, source, layout.source[other], j, move_to[other])
        ):
            return False
    return True


@njit
def _meet(levels: Int32, a: int, b: int, to_a: int, to_b: int) -> bool:
    """Return `PlacementProblem.meet` of replicas that are on nodes a and b."""
    for level in range(levels.shape[1]):
        if levels[a, level] != levels[b, level]:
            return bool(levels[to_a, level] == levels[to_b, level])
    return bool(levels[to_a, 0] == levels[to_b, 0])


@njit
def fits(i: int, j: int, leaver: int, layout: ProblemArrays, used: Float64) -> bool:
    """Return True if node j has room for object i, without object `leaver` (or -1)."""
    for d in range(layout.rooms.shape[1]):
        rest = used[j, d]
        if leaver >= 0:
            rest -= layout.loads[leaver, d]
        if rest + layout.loads[i, d] > layout.rooms[j, d]:
            return False
    return True


@njit
def _put(i: int, j: int, layout: ProblemArrays, move_to: Int32, used: Float64) -> None:
    move_to[i] = j
    for d in range(layout.rooms.shape[1]):
        used[j, d] += layout.loads[i, d]


@njit
def fit_in_order(
    order: Ints,
    start: Ints,
    length: Ints,
    list_node: Int32,
    layout: ProblemArrays,
    move_to: Int32,
    used: Float64,
) -> None:
    """Put objects in `order` on the first listed node with room; `move_to`, `used` change."""
    for at in range(len(order)):
        i = order[at]
        for position in range(start[at], start[at] + length[at]):
            j = list_node[position]
            if (
                j != layout.source[i]
                and fits(i, j, -1, layout, used)
                and apart(i, j, layout, move_to)
            ):
                _put(i, j, layout, move_to, used)
                break


@njit
def in_score_order(
    owner: Ints, node: Ints, layout: ProblemArrays, move_to: Int32, used: Float64
) -> None:
    """Put each owner on its node, pair by pair, if the owner is unplaced and the node has room."""
    for at in range(len(owner)):
        i, j = owner[at], node[at]
        if move_to[i] < 0 and fits(i, j, -1, layout, used) and apart(i, j, layout, move_to):
            _put(i, j, layout, move_to, used)


@njit
def exchange(  # noqa: PLR0912 - one search over direct moves and exchanges
    objects: Ints,
    first: Ints,
    end: Ints,
    node: Int32,
    target_cost: Float64,
    layout: ProblemArrays,
    move_to: Int32,
    used: Float64,
    cost: Float64,
) -> None:
    """Place objects in their order, or move them nearer, ejecting another where that is cheapest.

    Targets of object i are ``node[first[i]:end[i]]``, the cheapest first. The ejected object is one
    of those that have targets, and goes to one of these.
    """
    head = np.full(len(used), -1, np.int64)
    follow = np.full(len(move_to), -1, np.int64)
    for i in range(len(move_to) - 1, -1, -1):
        if move_to[i] >= 0 and end[i] > first[i]:
            _link(head, follow, i, move_to[i])
    for turn in range(len(objects)):
        i = objects[turn]
        home = move_to[i]
        now = cost[i] if home >= 0 else np.inf
        # A change has to save more than rounding.
        best = now - 1e-12 * now if home >= 0 else np.inf
        best_j, best_k, best_to, cost_i, cost_k = -1, -1, -1, 0.0, 0.0
        for at in range(first[i], end[i]):
            j, price = node[at], target_cost[at]
            if price >= best and home >= 0 and price >= now:
                break
            if j == home or not apart(i, j, layout, move_to):
                continue
            if fits(i, j, -1, layout, used):
                if price < best:
                    best, best_j, best_k, cost_i = price, j, -1, price
                continue
            k = head[j]
            while k >= 0:
                if k != i and fits(i, j, k, layout, used):
                    for at_k in range(first[k], end[k]):
                        to = node[at_k]
                        total = price + target_cost[at_k] - cost[k]
                        if total >= best:
                            break
                        leaver = i if to == home else -1
                        if (
                            to != j
                            and fits(k, to, leaver, layout, used)
                            and apart(k, to, layout, move_to)
                            and not _together(i, j, k, to, layout)
                        ):
                            best, best_j, best_k, best_to = total, j, k, to
                            cost_i, cost_k = price, target_cost[at_k]
                            break
                k = follow[k]
        if best_j < 0:
            continue
        if home >= 0:
            _unlink(head, follow, i, home)
            for d in range(used.shape[1]):
                used[home, d] -= layout.loads[i, d]
        if best_k >= 0:
            _unlink(head, follow, best_k, best_j)
            for d in range(used.shape[1]):
                used[best_j, d] -= layout.loads[best_k, d]
            _put(best_k, best_to, layout, move_to, used)
            cost[best_k] = cost_k
            _link(head, follow, best_k, best_to)
        _put(i, best_j, layout, move_to, used)
        cost[i] = cost_i
        _link(head, follow, i, best_j)


@njit
def _together(i: int, j: int, k: int, to: int, layout: ProblemArrays) -> bool:
    """Return True if i and k are of one partition and meet on nodes j and `to`."""
    if layout.sibling_first[i] != layout.sibling_first[k]:
        return False
    return _meet(layout.levels, layout.source[i], layout.source[k], j, to)


@njit
def _link(head: Ints, follow: Ints, i: int, j: int) -> None:
    follow[i] = head[j]
    head[j] = i


@njit
def _unlink(head: Ints, follow: Ints, i: int, j: int) -> None:
    at = head[j]
    if at == i:
        head[j] = follow[i]
        return
    while follow[at] != i:
        at = follow[at]
    follow[at] = follow[i]
