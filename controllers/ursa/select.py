"""Phase 1 of section 3.2, which objects leave hot nodes, and the last phase: an order of moves.

The functions on moves serve every method: no useless moves, no moves that heat, an order to apply.
Their `load` is that of the nodes before anything moves: [N], or [N, D] with loads of several
dimensions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import (
    UNPLACED,
    Float64,
    Instance,
    Int32,
    Moves,
    Selection,
    SelectionTargets,
    between,
    nested_domains,
)
from controllers.ursa.state import (
    Gather,
    PlanState,
    heaviest_first,
    object_load,
    objects_on,
    places,
)

Bools = NDArray[np.bool_]
Ids = NDArray[np.int64]

ROUNDING = 1e-12
"""Part of a node's load that running sums may be off by: such a node is not called hot."""


def moves_of(
    instance: Instance,
    state: PlanState,
    partition: Int32,
    replica: NDArray[np.integer],
    to: Int32,
) -> Moves:
    """Return the moves of these objects, with their loads in their present roles."""
    return Moves(
        object_id(instance, partition, replica),
        instance.replica_node[partition, replica],
        to.astype(np.int32),
        object_load(instance, state, partition, replica),
        between(instance.distance, instance.sender(partition, replica), to),
    )


def placed_moves(instance: Instance, selection: Selection, placement: SelectionTargets) -> Moves:
    """Return the moves of a selection's objects that found a node."""
    placed = placement.move_to != UNPLACED
    to = placement.move_to[placed].astype(np.int32)
    partition, replica = selection.partition[placed], selection.replica[placed]
    return Moves(
        object_id(instance, partition, replica),
        selection.node[placed],
        to,
        selection.load[placed],
        between(instance.distance, instance.sender(partition, replica), to)
        * instance.members_of(partition),
    )


def load_after(load: Float64, moves: Moves) -> Float64:
    """Return [N] or [N, D], loads when all is moved."""
    if load.ndim == 1:
        gone = np.bincount(moves.source, moves.load, len(load))
        come = np.bincount(moves.to, moves.load, len(load))
        return load - gone + come
    columns = range(load.shape[1])
    return np.column_stack(
        [load_after(load[:, d], replace(moves, load=moves.load[:, d])) for d in columns]
    )


def hot_after(instance: Instance, load: Float64, moves: Moves) -> Bools:
    """Return [N] or [N, D], where nodes are above their threshold when all is moved."""
    after = load_after(load, moves)
    return np.asarray(after - instance.capacity > ROUNDING * np.maximum(load, after))


def without_heating(instance: Instance, load: Float64, moves: Moves) -> Moves:
    """Leave out moves to nodes that end too hot because other objects found no place."""
    while len(moves):
        heated = hot_after(instance, load, moves)[moves.to] & (moves.load > 0)
        bad = np.asarray(_rows(heated).any(axis=1))
        if not bad.any():
            break
        moves = moves.where(~bad)
    return moves


def without_vain(instance: Instance, load: Float64, moves: Moves) -> Moves:
    """Leave out moves, the costliest first, without which their node is cold all the same."""
    # What is left out lightens a target, which may have to be relieved by less in its turn.
    while len(fewer := _less_vain(instance, load, moves)) < len(moves):
        moves = fewer
    return moves


def _less_vain(instance: Instance, load: Float64, moves: Moves) -> Moves:
    after, capacity = load_after(load, moves), instance.capacity.astype(np.float64)
    # Where another replica of the partition moves too, it may have come into the place left.
    alone = _times(instance, moves) == 1
    stays = (after[moves.source] + moves.load <= capacity[moves.source]) | (moves.load == 0)
    keep = np.ones(len(moves), dtype=np.bool_)
    vain = np.flatnonzero(alone & _rows(stays).all(axis=1))
    for m in sorted(vain, key=lambda m: (-moves.cost[m], m)):
        source, mine = moves.source[m], moves.load[m]
        if np.all((after[source] + mine <= capacity[source]) | (mine == 0)):
            keep[m] = False
            after[source] += mine
            after[moves.to[m]] -= mine
    return moves.where(keep)


def in_order(instance: Instance, load: Float64, moves: Moves) -> Moves:
    """Return the moves so that each finds room, and no replica of its partition, where it goes.

    A move into a node that itself has to be relieved comes after enough of that node's moves; one
    into a fault domain that another replica of the partition leaves, after that. Where moves wait
    for each other in a circle the order is that of the input.
    """
    is_source = np.zeros(instance.nodes, dtype=np.bool_)
    is_source[moves.source] = True
    domain = nested_domains(instance)
    several = _times(instance, moves) > 1
    waits = is_source[moves.to] | several
    done = list(np.flatnonzero(~waits))
    pending = list(np.flatnonzero(waits))
    load = load_after(load, moves.where(~waits))
    room = instance.capacity.astype(np.float64) * (1 + ROUNDING)
    place = np.where(waits, moves.source, moves.to)
    partition = moves.object // instance.replicas
    mates: dict[int, list[int]] = {}
    for m in np.flatnonzero(several):
        mates.setdefault(int(partition[m]), []).append(int(m))

    def clear(m: np.int64) -> bool:
        """Return True if no other replica that moves is where it and this one may not meet."""
        here, to = domain[moves.source[m]], domain[moves.to[m]]
        for other in mates.get(int(partition[m]), []):
            if other != m:
                level = int((here != domain[moves.source[other]]).argmax())
                if domain[place[other], level] == to[level]:
                    return False
        return True

    while pending:
        left: list[np.int64] = []
        for m in pending:
            to, source, mine = moves.to[m], moves.source[m], moves.load[m]
            if np.all((load[to] + mine <= room[to]) | (mine == 0)) and clear(m):
                done.append(m)
                load[to] += mine
                load[source] -= mine
                place[m] = to
            else:
                left.append(m)
        if len(left) == len(pending):
            done += left
            break
        pending = left
    return moves.where(np.array(done, dtype=np.int64))


def _times(instance: Instance, moves: Moves) -> Ids:
    """Return [M], number of moving replicas of the move's partition."""
    partition = moves.object // instance.replicas
    _, index, times = np.unique(partition, return_inverse=True, return_counts=True)
    return times[index]


def _rows(values: Bools) -> Bools:
    """Return [M, D], of [M] or [M, D]."""
    return values.reshape(len(values), -1 if len(values) else 1)


def highest_load_first(
    instance: Instance,
    state: PlanState,
    stay: NDArray[np.int64] | None = None,
    gather: Gather = objects_on,
    *,
    trim: bool = True,
) -> Selection:
    """Return each hot node's heaviest objects, as many as make it cold (section 3.2, phase 1).

    With `trim` the last object of a node is not the next heaviest but the lightest that suffices
    after the others, so that the targets have to carry as little as possible. `stay` are the
    `object_id` of objects that must not be selected, ascending; `state` is after the swaps.
    """
    return _select(instance, state, stay, None, gather, trim=trim)


def random_objects(instance: Instance, state: PlanState, seed: int) -> Selection:
    """Return each hot node's objects in random order until it is cold (figure 8's other way)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return _select(instance, state, None, rng, objects_on, trim=False)


def object_id(
    instance: Instance, partition: NDArray[np.integer], replica: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return one number for an object: its place in the flat `replica_node`."""
    return partition.astype(np.int64) * instance.replicas + replica


def _select(
    instance: Instance,
    state: PlanState,
    stay: NDArray[np.int64] | None,
    rng: np.random.Generator | None,
    gather: Gather,
    *,
    trim: bool,
) -> Selection:
    hot = np.flatnonzero(state.hot(instance)).astype(np.int32)
    gathered, column, slot = gather(instance, hot, False)
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
        take = _needed(load[group], kept, float(instance.capacity[node]), trim=trim)
        chosen.append(group[take])
    picked = np.concatenate([np.empty(0, np.int64), *chosen])
    counts = np.array([len(part) for part in chosen], dtype=np.int64)
    return Selection(partition[picked], replica[picked], np.repeat(hot, counts), load[picked])


def _needed(loads: Float64, kept: float, capacity: float, *, trim: bool) -> NDArray[np.int64]:
    """Return positions of the first objects that have to go so that the rest is at most `capacity`.

    What remains is summed from the last to the first: a difference would leave rounding errors.
    """
    remaining = np.concatenate([np.cumsum(loads[::-1])[::-1], [0.0]]) + kept
    fits = remaining <= capacity
    if not fits.any():
        return np.empty(0, np.int64)  # the immovable load is too high: moving others is in vain
    count = int(np.argmax(fits))
    take = np.arange(count)
    if trim and count:
        # Without the others, how far down the list may the last one be?
        last = np.flatnonzero(remaining[count - 1] - loads[count - 1 :] <= capacity)
        if len(last):
            take[-1] = count - 1 + last[-1]
    return take


Result = tuple[Moves, float | None, dict[str, object]]
"""Moves, the lower bound (None when it is not of the objects that move), notes."""
