"""Phase 1 of section 3.2: which objects leave the nodes that swaps left hot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.gather import heaviest_first, objects_on, places
from controllers.ursa.instance import Float64, Instance
from controllers.ursa.node_index import Gather
from controllers.ursa.results import Selection
from controllers.ursa.state import State, object_load


def highest_load_first(
    instance: Instance,
    state: State,
    stay: NDArray[np.int64] | None = None,
    gather: Gather = objects_on,
) -> Selection:
    """The fewest objects that make each hot node cold, heaviest first.

    The last object of a node is trimmed: it is the lightest that suffices after the others, so
    that no object is selected in vain and the targets have to carry as little as possible.

    Args:
        instance: the problem.
        state: after the swaps.
        stay: `object_id` of objects that must not be selected, ascending.
        gather: finds the objects of hot nodes.
    """
    return _select(instance, state, stay, None, gather)


def random_objects(instance: Instance, state: State, seed: int) -> Selection:
    """Objects of each hot node in random order until it is cold (figure 8's other strategy)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return _select(instance, state, None, rng, objects_on)


def object_id(
    instance: Instance, partition: NDArray[np.integer], replica: NDArray[np.integer]
) -> NDArray[np.int64]:
    """One number for an object: its place in the flat `replica_node`."""
    return partition.astype(np.int64) * instance.replicas + replica


def _select(
    instance: Instance,
    state: State,
    stay: NDArray[np.int64] | None,
    rng: np.random.Generator | None,
    gather: Gather,
) -> Selection:
    hot = np.flatnonzero(state.hot(instance)).astype(np.int32)
    gathered, column, slot = gather(instance, hot, None)
    start, place = places(slot, len(hot))
    partition, replica = np.empty_like(gathered), np.empty_like(column)
    load = np.empty(len(gathered), np.float64)
    partition[place], replica[place] = gathered, column
    load[place] = object_load(instance, state, gathered, column)
    free = load > 0
    if stay is not None and len(stay):
        free &= ~np.isin(object_id(instance, partition, replica), stay)
    if rng is None:
        order = heaviest_first(load.astype(np.float32), start)
    else:
        owner = np.repeat(np.arange(len(hot)), np.diff(start))
        order = np.lexsort((rng.random(len(load)), owner))
    chosen: list[NDArray[np.int64]] = []
    for index, node in enumerate(hot):
        group = order[start[index] : start[index + 1]]
        kept = float(load[group[~free[group]]].sum())
        group = group[free[group]]
        take = _needed(load[group], kept, float(instance.capacity[node]), trim=rng is None)
        chosen.append(group[take])
    picked = np.concatenate([np.empty(0, np.int64), *chosen])
    counts = np.array([len(part) for part in chosen], dtype=np.int64)
    return Selection(partition[picked], replica[picked], np.repeat(hot, counts), load[picked])


def _needed(loads: Float64, kept: float, capacity: float, *, trim: bool) -> NDArray[np.int64]:
    """Positions of the first objects that have to go so that the rest is at most `capacity`.

    What remains is summed from the last to the first, so that nothing remains of nothing: taking
    loads away from a sum would leave its rounding errors.
    """
    remaining = np.concatenate([np.cumsum(loads[::-1])[::-1], [0.0]]) + kept
    fits = remaining <= capacity
    if not fits.any():
        return np.empty(0, np.int64)  # what has to stay is too much: moving others is in vain
    count = int(np.argmax(fits))
    take = np.arange(count)
    if trim and count:
        # Without the others, how far down the list may the last one be?
        last = np.flatnonzero(remaining[count - 1] - loads[count - 1 :] <= capacity)
        if len(last):
            take[-1] = count - 1 + last[-1]
    return take
