"""The compiled loops of `market.Market`: the cheapest ways out of nodes at given prices.

`ways` are a market's lists: (start, length, complete, node, cost). `terms` are (price, takes,
domain), all [N]. Lists ascend by cost and prices are not negative, so that a search ends where a
list's cost reaches what has been found.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.jit import njit
from controllers.ursa.place.problem import Bools, Ints

NOWHERE = -1
BEYOND = -2
"""Instead of a target: what is nearest lies beyond the end of the list."""

Lists = tuple[Ints, Ints, Bools, Int32, Float64]
Terms = tuple[Float64, Float64, Int32]


@njit
def _takes(load: float, j: int, taken: Int32, terms: Terms) -> bool:
    """Whether node j may take an object of that load, whose siblings are in domains `taken`."""
    free: bool = load <= terms[1][j]
    for column in range(len(taken)):
        free &= taken[column] != terms[2][j]
    return free


@njit
def least(
    nodes: Ints,
    first: Ints,
    end: Ints,
    load: Float64,
    taken: Int32,
    ways: Lists,
    terms: Terms,
    limit: Float64,
    value: Float64,
    target: Int32,
) -> None:
    start, length, complete, way_node, way_cost = ways
    price = terms[0]
    at = 0
    for n in nodes:
        begin = start[n]
        stop = begin + length[n]
        beyond = np.inf
        if not complete[n]:
            beyond = way_cost[stop - 1] if stop > begin else 0.0
        for k in range(first[n], end[n]):
            best = limit[at]
            where = NOWHERE
            position = begin
            # A price is never negative, so that nothing farther than the best can be better.
            while position < stop and way_cost[position] < best:
                j = way_node[position]
                total = way_cost[position] + load[k] * price[j]
                if total < best and _takes(load[k], j, taken[k], terms):
                    best, where = total, j
                position += 1
            if position == stop and beyond < best:
                best, where = beyond, BEYOND
            value[at], target[at] = best, where
            at += 1


@njit
def best_targets(
    objects: Ints,
    node: Int32,
    load: Float64,
    taken: Int32,
    ways: Lists,
    terms: Terms,
    limit: Float64,
    target: Int32,
    cost: Float64,
) -> None:
    start, length, _, way_node, way_cost = ways
    price = terms[0]
    count = target.shape[1]
    best = np.empty(count)
    for i in range(len(objects)):
        k = objects[i]
        best[:] = limit[i]
        for position in range(start[node[k]], start[node[k]] + length[node[k]]):
            if way_cost[position] >= best[count - 1]:
                break
            j = way_node[position]
            total = way_cost[position] + load[k] * price[j]
            if total < best[count - 1] and _takes(load[k], j, taken[k], terms):
                at = count - 1
                while at > 0 and total < best[at - 1]:
                    best[at] = best[at - 1]
                    target[i, at], cost[i, at] = target[i, at - 1], cost[i, at - 1]
                    at -= 1
                best[at], target[i, at], cost[i, at] = total, j, way_cost[position]


@njit
def within(
    objects: Ints,
    node: Int32,
    load: Float64,
    taken: Int32,
    ways: Lists,
    terms: Terms,
    most: Float64,
    number: Ints,
    target: Int32,
    cost: Float64,
) -> None:
    """number[i]: targets of object i whose cost plus priced load is at most most[i]. They are
    written to `target` and `cost`, one object after the other, where these are not empty."""
    start, length, _, way_node, way_cost = ways
    write = len(target) > 0
    at = 0
    for i in range(len(objects)):
        k = objects[i]
        number[i] = 0
        for position in range(start[node[k]], start[node[k]] + length[node[k]]):
            if way_cost[position] > most[i]:
                break
            j = way_node[position]
            total = way_cost[position] + load[k] * terms[0][j]
            if total <= most[i] and _takes(load[k], j, taken[k], terms):
                number[i] += 1
                if write:
                    target[at], cost[at] = j, way_cost[position]
                    at += 1


@njit
def payments(
    objects: Ints,
    node: Int32,
    load: Float64,
    taken: Int32,
    ways: Lists,
    terms: Terms,
    room: Float64,
    cap: Float64,
    sums: tuple[Float64, Float64, Float64, Float64],
) -> None:
    """Add up what each object would pay each node, at most cap - cost; see `_Payments`."""
    start, length, _, way_node, way_cost = ways
    earns, weight, small, small_weight = sums
    for i in range(len(objects)):
        k = objects[i]
        for position in range(start[node[k]], start[node[k]] + length[node[k]]):
            left = cap[i] - way_cost[position]
            if left <= 0:
                break
            j = way_node[position]
            full = load[k] * terms[0][j]
            if full > 0 and _takes(load[k], j, taken[k], terms):
                fits = load[k] <= room[j]
                earns[j] += min(full, left)
                if fits:
                    small[j] += min(full, left)
                if full <= left:
                    weight[j] += load[k]
                    if fits:
                        small_weight[j] += load[k]
