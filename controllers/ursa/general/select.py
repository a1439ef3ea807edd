"""Which objects leave the nodes that swaps left hot, when a node may be hot in several dimensions.

Highest-load-first of one dimension takes the object that removes most of the excess, until nothing
of it is left. With several dimensions an object removes a part of each excess: what counts is the
sum, over the dimensions in which the node is hot, of the part of that dimension's excess which is
still there and which the object carries. This is the greedy algorithm for covering problems. It
takes at most ``1 + ln(d / last)`` times the fewest objects that suffice, with d dimensions in
excess and `last` the parts that were left before its last object (Wolsey 1982). With one dimension
it is highest-load-first. Where objects have prices, relief is weighed against them.

Afterwards objects without which the others suffice stay, the lightest first, and the last one is
exchanged for the lightest that suffices.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import group_by_node, objects_on
from controllers.ursa.general.units import Ints, Units, VectorState, object_load
from controllers.ursa.instance import Float64
from controllers.ursa.jit import njit
from controllers.ursa.results import Selection
from controllers.ursa.select import object_id

ROUNDING = 1e-13
"""Part of a node's load that may be left of an excess: what running sums are off by."""


def most_relief_first(
    units: Units,
    state: VectorState,
    stay: NDArray[np.int64] | None = None,
    price: Float64 | None = None,
) -> Selection:
    """Objects that make each hot node cold; none from nodes where even all would not suffice.

    Args:
        units: the problem.
        state: after the swaps.
        stay: `object_id` of objects that must not be selected.
        price: [U], above 0: relief is then weighed against it, for the least sum of prices instead
            of the fewest objects.

    Returns:
        A selection whose `load` is [M, D].
    """
    over = state.over(units)
    hot = np.flatnonzero(over.any(axis=1)).astype(np.int32)
    unit, column, slot = objects_on(units.placed, hot)
    start, order = group_by_node(slot, len(hot))
    unit, column = unit[order], column[order]
    load = object_load(units, state, unit, column)
    free = np.ones(len(unit), dtype=np.bool_)
    if stay is not None and len(stay):
        free = ~np.isin(object_id(units.placed, unit, column), stay)
    chosen: list[Ints] = []
    scale = units.unit_load()
    prices = np.ones(len(unit)) if price is None else price[unit]
    for index, node in enumerate(hot):
        mine = start[index] + np.flatnonzero(free[start[index] : start[index + 1]])
        dimensions = np.flatnonzero(over[node])
        excess = (state.load[node] - units.capacity[node])[dimensions]
        rounding = ROUNDING * state.load[node][dimensions]
        weight = (load[mine] / scale).sum(axis=1)
        part = np.ascontiguousarray(load[mine][:, dimensions])
        chosen.append(mine[cover(part, weight, prices[mine], excess, rounding)])
    picked = np.concatenate([np.empty(0, np.int64), *chosen])
    counts = np.array([len(part) for part in chosen], dtype=np.int64)
    return Selection(unit[picked], column[picked], np.repeat(hot, counts), load[picked])


@njit
def cover(
    load: Float64, weight: Float64, price: Float64, excess: Float64, rounding: Float64
) -> Ints:
    """Objects whose loads sum up to the excess in each dimension; none when all do not.

    Args:
        load: [n, d], at least 0.
        weight: [n], by which the lightest object is told.
        price: [n], above 0, of which the sum is to be small.
        excess: [d], above 0.
        rounding: [d], what may be left of it.
    """
    n, d = load.shape
    chosen = np.zeros(n, np.bool_)
    for k in range(d):
        if load[:, k].sum() < excess[k] - rounding[k]:
            return np.empty(0, np.int64)
    left = excess.copy()
    before = np.empty(d)
    # What an object removes never grows: the best is found among bounds from earlier looks.
    heap = [(-_gain(load[i], left, excess, rounding) / price[i], i) for i in range(n)]
    heapq.heapify(heap)
    last = -1
    while not _done(left, rounding) and len(heap) > 0:
        bound, i = heapq.heappop(heap)
        gain = _gain(load[i], left, excess, rounding) / price[i]
        if gain < -bound and len(heap) > 0 and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, i))
            continue
        for k in range(d):
            left[k] -= load[i, k]
        chosen[i] = True
        last = i
    if last < 0:
        return np.empty(0, np.int64)
    _drop(load, weight, price, chosen, left, rounding)
    if chosen[last]:
        for k in range(d):  # as one assignment its check of shapes takes a seventh of the compiling
            before[k] = left[k] + load[last, k]
        for i in range(n):
            better = price[i] < price[last] or (
                price[i] == price[last] and weight[i] < weight[last]
            )
            if better and not chosen[i] and _enough(load[i], before, rounding):
                chosen[last] = False
                chosen[i] = True
                last = i
    return np.flatnonzero(chosen)


@njit
def _gain(load: Float64, left: Float64, excess: Float64, rounding: Float64) -> float:
    gain = 0.0
    for k in range(len(left)):
        if left[k] > rounding[k]:
            gain += min(load[k], left[k]) / excess[k]
    return gain


@njit
def _done(left: Float64, rounding: Float64) -> bool:
    done = True
    for k in range(len(left)):
        done = done and left[k] <= rounding[k]
    return done


@njit
def _enough(load: Float64, left: Float64, rounding: Float64) -> bool:
    enough = True
    for k in range(len(left)):
        enough = enough and left[k] - load[k] <= rounding[k]
    return enough


@njit
def _drop(
    load: Float64,
    weight: Float64,
    price: Float64,
    chosen: NDArray[np.bool_],
    left: Float64,
    rounding: Float64,
) -> None:
    """Keep objects that are not needed, the dearest and lightest first; `left` changes with it."""
    picked = np.flatnonzero(chosen)
    picked = picked[np.argsort(weight[picked], kind="mergesort")]
    for at in np.argsort(-price[picked], kind="mergesort"):
        i = picked[at]
        if _enough(-load[i], left, rounding):
            chosen[i] = False
            for k in range(len(left)):
                left[k] += load[i, k]
