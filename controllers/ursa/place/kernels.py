"""The compiled loops of placement; arrays are as in `problem.Problem` and `rounding.Choices`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.jit import njit
from controllers.ursa.place.problem import Bools, Ints, Layout


class Targets(NamedTuple):
    """Of each object, where its targets lie, the cheapest first: see `rounding.Choices`."""

    first: Ints
    end: Ints
    node: Int32
    cost: Float64


@njit
def apart(
    i: int,
    domain: int,
    layout: Layout,
    move_to: Int32,
) -> bool:
    """Whether no other replica of object i's partition is, or is sent, into `domain`: (11), (12).

    `move_to` is [M], the targets decided so far.
    """
    for column in range(layout.taken.shape[1]):
        if layout.taken[i, column] == domain:
            return False
    for at in range(layout.sibling_first[i], layout.sibling_end[i]):
        other = layout.sibling[at]
        if other != i and move_to[other] >= 0 and layout.domain[move_to[other]] == domain:
            return False
    return True


@njit
def fit_in_order(
    order: Ints,
    start: Ints,
    length: Ints,
    list_node: Int32,
    layout: Layout,
    move_to: Int32,
    used: Float64,
) -> None:
    """Objects in `order` to the first node of their list with room; `move_to`, `used` change."""
    for at in range(len(order)):
        i = order[at]
        w = layout.weight[i]
        for position in range(start[at], start[at] + length[at]):
            j = list_node[position]
            if j == layout.source[i] or used[j] + w > layout.room[j]:
                continue
            if apart(i, layout.domain[j], layout, move_to):
                move_to[i] = j
                used[j] += w
                break


@njit
def in_score_order(
    owner: Ints,
    node: Ints,
    layout: Layout,
    move_to: Int32,
    used: Float64,
) -> None:
    """Pairs (owner, node) in turn, where the owner is unplaced and the node has room."""
    for at in range(len(owner)):
        i, j = owner[at], node[at]
        w = layout.weight[i]
        if move_to[i] >= 0 or used[j] + w > layout.room[j]:
            continue
        if apart(i, layout.domain[j], layout, move_to):
            move_to[i] = j
            used[j] += w


@njit
def link(move_to: Int32, listed: Bools, head: Ints, follow: Ints) -> None:
    """Lists of the objects on each node, ascending, of those where `listed` holds."""
    for i in range(len(move_to) - 1, -1, -1):
        if listed[i] and move_to[i] >= 0:
            follow[i] = head[move_to[i]]
            head[move_to[i]] = i


@njit
def _unlink(head: Ints, follow: Ints, i: int, j: int) -> None:
    at = head[j]
    if at == i:
        head[j] = follow[i]
        return
    while follow[at] != i:
        at = follow[at]
    follow[at] = follow[i]


@njit
def insert(  # noqa: PLR0912 - one search over direct moves and exchanges
    objects: Ints,
    targets: Targets,
    layout: Layout,
    move_to: Int32,
    used: Float64,
    cost: Float64,
    head: Ints,
    follow: Ints,
) -> None:
    """`rounding.insert`; `head` [N] and `follow` [M] list the objects on each node."""
    first, end, node, target_cost = targets
    weight, room, domain = layout.weight, layout.room, layout.domain
    for turn in range(len(objects)):
        i = objects[turn]
        home = move_to[i]
        alone = layout.sibling_end[i] - layout.sibling_first[i] == 1
        w = weight[i]
        now = cost[i] if home >= 0 else np.inf
        gain = 1e-12 * now if home >= 0 else -np.inf  # a change has to save more than this
        best_j, best_k, best_to = -1, -1, -1
        best_total = now - gain
        best_cost_i, best_cost_k = 0.0, 0.0
        for at in range(first[i], end[i]):
            j, price = node[at], target_cost[at]
            if price >= best_total and home >= 0 and price >= now:
                break
            if j == home or not apart(i, domain[j], layout, move_to):
                continue
            if used[j] + w <= room[j]:
                if price < best_total:
                    best_j, best_k, best_total, best_cost_i = j, -1, price, price
                continue
            k = head[j]
            while k >= 0:
                if k != i and used[j] - weight[k] + w <= room[j]:
                    for at_k in range(first[k], end[k]):
                        to = node[at_k]
                        total = price + target_cost[at_k] - cost[k]
                        if total >= best_total:
                            break
                        freed = w if to == home else 0.0
                        if (
                            to != j
                            and used[to] - freed + weight[k] <= room[to]
                            and (alone or domain[to] != domain[j])
                            and apart(k, domain[to], layout, move_to)
                        ):
                            best_j, best_k, best_to, best_total = j, k, to, total
                            best_cost_i, best_cost_k = price, target_cost[at_k]
                            break
                k = follow[k]
        if best_j < 0:
            continue
        if home >= 0:
            _unlink(head, follow, i, home)
            used[home] -= w
        if best_k >= 0:
            _unlink(head, follow, best_k, best_j)
            used[best_j] -= weight[best_k]
            used[best_to] += weight[best_k]
            move_to[best_k], cost[best_k] = best_to, best_cost_k
            follow[best_k] = head[best_to]
            head[best_to] = best_k
        move_to[i], cost[i] = best_j, best_cost_i
        used[best_j] += w
        follow[i] = head[best_j]
        head[best_j] = i
