"""What is done with moves of loads of several dimensions: as `finish`, dimension by dimension.

A `MoveList` has a load [M, D] here and the cost of whole units.
"""

from __future__ import annotations

import numpy as np

from controllers.ursa.distance import between
from controllers.ursa.finish import ROUNDING, Bools, MoveList
from controllers.ursa.general.units import Units, VectorState, object_load
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.results import UNPLACED, Placement, Selection


def placed_moves(units: Units, selection: Selection, placement: Placement) -> MoveList:
    """The objects of a selection that found a node."""
    placed = placement.move_to != UNPLACED
    to = placement.move_to[placed].astype(np.int32)
    source, unit = selection.node[placed], selection.partition[placed]
    return MoveList(
        partition=unit,
        replica=selection.replica[placed],
        source=source,
        to=to,
        load=selection.load[placed],
        cost=between(units.placed.distance, source, to) * units.members[unit],
    )


def move_list(units: Units, state: VectorState, unit: Int32, replica: Int32, to: Int32) -> MoveList:
    """Moves with what is looked up for each."""
    source = units.placed.replica_node[unit, replica]
    return MoveList(
        partition=unit.astype(np.int32),
        replica=replica.astype(np.int8),
        source=source,
        to=to.astype(np.int32),
        load=object_load(units, state, unit, replica),
        cost=between(units.placed.distance, source, to) * units.members[unit],
    )


def load_after(units: Units, state: VectorState, moves: MoveList) -> Float64:
    """[N, D], loads when all is moved."""
    after = state.load.copy()
    for d in range(units.dimensions):
        after[:, d] -= np.bincount(moves.source, moves.load[:, d], units.nodes)
        after[:, d] += np.bincount(moves.to, moves.load[:, d], units.nodes)
    return after


def hot_after(units: Units, state: VectorState, moves: MoveList) -> Bools:
    """[N, D], where nodes are above their threshold when all is moved."""
    after = load_after(units, state, moves)
    return np.asarray(after - units.capacity > ROUNDING * np.maximum(state.load, after))


def without_heating(units: Units, state: VectorState, moves: MoveList) -> MoveList:
    """Leave out moves that add to what is too high in the end."""
    while len(moves):
        heated = hot_after(units, state, moves)[moves.to] & (moves.load > 0)
        bad = np.asarray(heated.any(axis=1))
        if not bad.any():
            break
        moves = moves.where(~bad)
    return moves


def without_vain(units: Units, state: VectorState, moves: MoveList) -> MoveList:
    """Leave out moves, the costliest first, without which their node is cold all the same."""
    while len(fewer := _less_vain(units, state, moves)) < len(moves):
        moves = fewer
    return moves


def _less_vain(units: Units, state: VectorState, moves: MoveList) -> MoveList:
    after = load_after(units, state, moves)
    _, index, times = np.unique(moves.partition, return_inverse=True, return_counts=True)
    # Where another replica moves too, it may have come into the place left.
    alone = times[index] == 1
    capacity = units.capacity
    stays = (after[moves.source] + moves.load <= capacity[moves.source]) | (moves.load == 0)
    keep = np.ones(len(moves), dtype=np.bool_)
    for m in sorted(np.flatnonzero(alone & stays.all(axis=1)), key=lambda m: (-moves.cost[m], m)):
        source, load = moves.source[m], moves.load[m]
        if ((after[source] + load <= capacity[source]) | (load == 0)).all():
            keep[m] = False
            after[source] += load
            after[moves.to[m]] -= load
    return moves.where(keep)


def in_order(units: Units, state: VectorState, moves: MoveList) -> MoveList:
    """The moves so that each finds room, and no replica of its unit, where it goes.

    Where moves wait for each other in a circle the order is that of the input.
    """
    is_source = np.zeros(units.nodes, dtype=np.bool_)
    is_source[moves.source] = True
    _, index, times = np.unique(moves.partition, return_inverse=True, return_counts=True)
    waits = is_source[moves.to] | (times[index] > 1)
    done = list(np.flatnonzero(~waits))
    pending = list(np.flatnonzero(waits))
    load = load_after(units, state, moves.where(~waits))
    place = {int(m): int(moves.source[m]) for m in range(len(moves))}
    place.update({int(m): int(moves.to[m]) for m in done})
    mates: dict[int, list[int]] = {}
    for m in np.flatnonzero(times[index] > 1):
        mates.setdefault(int(moves.partition[m]), []).append(int(m))

    def clear(m: int) -> bool:
        """Whether no replica that moves too is where, by where both began, this one may not go."""
        here, to = units.domain[moves.source[m]], units.domain[moves.to[m]]
        for other in mates.get(int(moves.partition[m]), []):
            if other != m:
                level = int((here != units.domain[moves.source[other]]).argmax())
                if units.domain[place[other], level] == to[level]:
                    return False
        return True

    while pending:
        left = []
        for m in pending:
            to, source, mine = moves.to[m], moves.source[m], moves.load[m]
            room = units.capacity[to] * (1 + ROUNDING)
            if ((load[to] + mine <= room) | (mine == 0)).all() and clear(int(m)):
                done.append(m)
                load[to] += mine
                load[source] -= mine
                place[int(m)] = int(to)
            else:
                left.append(m)
        if len(left) == len(pending):
            done += left
            break
        pending = left
    return moves.where(np.array(done, dtype=np.int64))
