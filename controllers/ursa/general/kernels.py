"""The compiled loops of placement for loads of several dimensions; see `problem.Arrays`."""

from __future__ import annotations

import numpy as np

from controllers.ursa.general.problem import Arrays
from controllers.ursa.general.units import Ints
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.jit import njit


@njit
def _meet(levels: Int32, a: int, b: int, to_a: int, to_b: int) -> bool:
    """`VectorProblem.meet` of one pair."""
    for level in range(levels.shape[1]):
        if levels[a, level] != levels[b, level]:
            return bool(levels[to_a, level] == levels[to_b, level])
    return True


@njit
def apart(problem: Arrays, i: int, j: int, move_to: Int32) -> bool:
    """Whether node j is clear of the unit's other replicas, where they are and where they go."""
    source = problem.source[i]
    for column in range(problem.others.shape[1]):
        other = problem.others[i, column]
        if other >= 0 and _meet(problem.levels, source, other, j, other):
            return False
    for at in range(problem.sibling_first[i], problem.sibling_end[i]):
        other = problem.sibling[at]
        if (
            other != i
            and move_to[other] >= 0
            and _meet(problem.levels, source, problem.source[other], j, move_to[other])
        ):
            return False
    return True


@njit
def fits(problem: Arrays, i: int, j: int, used: Float64, leaver: int) -> bool:
    """Whether node j has room for object i in every dimension, once `leaver` (or -1) is gone."""
    for d in range(problem.rooms.shape[1]):
        after = used[j, d] + problem.loads[i, d]
        if leaver >= 0:
            after -= problem.loads[leaver, d]
        if after > problem.rooms[j, d]:
            return False
    return True


@njit
def _put(problem: Arrays, i: int, j: int, move_to: Int32, used: Float64) -> None:
    for d in range(used.shape[1]):
        if move_to[i] >= 0:
            used[move_to[i], d] -= problem.loads[i, d]
        used[j, d] += problem.loads[i, d]
    move_to[i] = j


@njit
def fit_in_order(
    order: Ints,
    start: Ints,
    length: Ints,
    list_node: Int32,
    problem: Arrays,
    move_to: Int32,
    used: Float64,
) -> None:
    """Objects in `order` to the first node of their list with room; `move_to`, `used` change."""
    for at in range(len(order)):
        i = order[at]
        for position in range(start[at], start[at] + length[at]):
            j = list_node[position]
            if (
                j != problem.source[i]
                and fits(problem, i, j, used, -1)
                and apart(problem, i, j, move_to)
            ):
                _put(problem, i, j, move_to, used)
                break


@njit
def in_score_order(owner: Ints, node: Ints, problem: Arrays, move_to: Int32, used: Float64) -> None:
    """Pairs (owner, node) in turn, where the owner is unplaced and the node has room."""
    for at in range(len(owner)):
        i, j = owner[at], node[at]
        if move_to[i] < 0 and fits(problem, i, j, used, -1) and apart(problem, i, j, move_to):
            _put(problem, i, j, move_to, used)


@njit
def exchange(  # noqa: PLR0912 - one search over direct moves and exchanges
    objects: Ints,
    first: Ints,
    end: Ints,
    node: Int32,
    target_cost: Float64,
    problem: Arrays,
    move_to: Int32,
    used: Float64,
    cost: Float64,
) -> None:
    """Place objects in their order, or move them nearer, ejecting another where that is cheapest.

    Targets of object i are ``node[first[i]:end[i]]``, the cheapest first. Who is ejected is one of
    the objects that have targets, and goes to one of these.
    """
    head = np.full(len(used), -1, np.int64)
    follow = np.full(len(move_to), -1, np.int64)
    for i in range(len(move_to) - 1, -1, -1):
        if move_to[i] >= 0 and end[i] > first[i]:
            follow[i] = head[move_to[i]]
            head[move_to[i]] = i
    for turn in range(len(objects)):
        i = objects[turn]
        home = move_to[i]
        now = cost[i] if home >= 0 else np.inf
        best = now * (1 - 1e-12) if home >= 0 else np.inf
        best_j, best_k, best_to, cost_i, cost_k = -1, -1, -1, 0.0, 0.0
        for at in range(first[i], end[i]):
            j, price = node[at], target_cost[at]
            if home >= 0 and price >= now:
                break
            if j == home or not apart(problem, i, j, move_to):
                continue
            if fits(problem, i, j, used, -1):
                if price < best:
                    best, best_j, best_k, cost_i = price, j, -1, price
                break  # what is farther is dearer
            k = head[j]
            while k >= 0:
                if k != i and fits(problem, i, j, used, k):
                    for at_k in range(first[k], end[k]):
                        to = node[at_k]
                        total = price + target_cost[at_k] - cost[k]
                        if total >= best:
                            break
                        if (
                            _other(to, j, home)
                            and fits(problem, k, to, used, -1)
                            and apart(problem, k, to, move_to)
                            and not _same(problem, i, k)
                        ):
                            best, best_j, best_k, best_to = total, j, k, to
                            cost_i, cost_k = price, target_cost[at_k]
                            break
                k = follow[k]
        if best_j < 0:
            continue
        if best_k >= 0:
            _relink(head, follow, best_k, best_j, best_to)
            _put(problem, best_k, best_to, move_to, used)
            cost[best_k] = cost_k
        _relink(head, follow, i, home, best_j)
        _put(problem, i, best_j, move_to, used)
        cost[i] = cost_i


@njit
def _other(node: int, first: int, second: int) -> bool:
    if node == first:
        return False
    return node != second


@njit
def _same(problem: Arrays, i: int, k: int) -> bool:
    """Whether two objects are of one unit."""
    return bool(problem.sibling_first[i] == problem.sibling_first[k])


@njit
def _relink(head: Ints, follow: Ints, i: int, old: int, new: int) -> None:
    if old >= 0:
        if head[old] == i:
            head[old] = follow[i]
        else:
            at = head[old]
            while follow[at] != i:
                at = follow[at]
            follow[at] = follow[i]
    follow[i] = head[new]
    head[new] = i
