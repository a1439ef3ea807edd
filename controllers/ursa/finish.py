"""What is done with the moves of any method: none in vain, none that heats, an order to apply.

For loads of one dimension, [N] and [M], and of several, [N, D] and [M, D], alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.distance import between
from controllers.ursa.instance import Float64, Instance, Int32
from controllers.ursa.results import UNPLACED, Moves, Placement, Selection
from controllers.ursa.state import State, object_load

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

ROUNDING = 1e-12
"""Part of a node's load that running sums may be off by: such a node is not called hot."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """What nodes carry before anything moves, and what keeps replicas apart.

    Attributes:
        load, capacity: [N] or [N, D].
        domain: [N, levels + 1], fault domains from the outermost on, the node itself last.
    """

    load: Float64
    capacity: Float64
    domain: Int32

    @classmethod
    def of(cls, instance: Instance, state: State) -> Nodes:
        """Those of an instance of the paper's model."""
        domain = np.column_stack([instance.fault_domain, np.arange(instance.nodes)])
        return cls(state.load, instance.capacity.astype(np.float64), domain.astype(np.int32))


@dataclass(frozen=True, eq=False)
class MoveList:
    """Moves with what is looked up for each: all arrays [M], `load` [M] or [M, D]."""

    partition: Int32
    replica: NDArray[np.int8]
    source: Int32
    to: Int32
    load: Float64
    cost: Float64

    def __len__(self) -> int:
        return len(self.partition)

    def where(self, keep: Bools | Ints) -> MoveList:
        """Those that `keep` picks, in its order."""
        return MoveList(*(value[keep] for value in vars(self).values()))

    def __add__(self, other: MoveList) -> MoveList:
        mine, others = vars(self).values(), vars(other).values()
        return MoveList(*(np.concatenate(pair) for pair in zip(mine, others, strict=True)))


def move_list(instance: Instance, state: State, moves: Moves) -> MoveList:
    """The moves of a method that selects by itself."""
    source = instance.replica_node[moves.partition, moves.replica]
    return MoveList(
        partition=moves.partition.astype(np.int32),
        replica=moves.replica.astype(np.int8),
        source=source,
        to=moves.to.astype(np.int32),
        load=object_load(instance, state, moves.partition, moves.replica),
        cost=between(instance.distance, instance.sender(moves.partition, moves.replica), moves.to),
    )


def placed_moves(instance: Instance, selection: Selection, placement: Placement) -> MoveList:
    """The objects of a selection that found a node."""
    placed = placement.move_to != UNPLACED
    to = placement.move_to[placed].astype(np.int32)
    source = selection.node[placed]
    return MoveList(
        partition=selection.partition[placed],
        replica=selection.replica[placed],
        source=source,
        to=to,
        load=selection.load[placed],
        cost=between(
            instance.distance,
            instance.sender(selection.partition[placed], selection.replica[placed]),
            to,
        ),
    )


def load_after(load: Float64, moves: MoveList) -> Float64:
    """[N] or [N, D], loads when all is moved."""
    if load.ndim == 1:
        gone = np.bincount(moves.source, moves.load, len(load))
        come = np.bincount(moves.to, moves.load, len(load))
        return load - gone + come
    columns = range(load.shape[1])
    return np.column_stack(
        [load_after(load[:, d], replace(moves, load=moves.load[:, d])) for d in columns]
    )


def hot_after(nodes: Nodes, moves: MoveList) -> Bools:
    """[N] or [N, D], where nodes are above their threshold when all is moved."""
    after = load_after(nodes.load, moves)
    return np.asarray(after - nodes.capacity > ROUNDING * np.maximum(nodes.load, after))


def without_heating(nodes: Nodes, moves: MoveList) -> MoveList:
    """Leave out moves that add to what is too high in the end.

    A method may count on what leaves a node; when part of that found no place after all, what was
    to come would only add to it.
    """
    while len(moves):
        heated = hot_after(nodes, moves)[moves.to] & (moves.load > 0)
        bad = np.asarray(_rows(heated).any(axis=1))
        if not bad.any():
            break
        moves = moves.where(~bad)
    return moves


def without_vain(nodes: Nodes, moves: MoveList) -> MoveList:
    """Leave out moves, the costliest first, without which their node is cold all the same."""
    # What is left out lightens a target, which may have to be relieved by less in its turn.
    while len(fewer := _less_vain(nodes, moves)) < len(moves):
        moves = fewer
    return moves


def _less_vain(nodes: Nodes, moves: MoveList) -> MoveList:
    after, capacity = load_after(nodes.load, moves), nodes.capacity
    # Where another replica of the partition moves too, it may have come into the place left.
    alone = _times(moves) == 1
    stays = (after[moves.source] + moves.load <= capacity[moves.source]) | (moves.load == 0)
    keep = np.ones(len(moves), dtype=np.bool_)
    vain = np.flatnonzero(alone & _rows(stays).all(axis=1))
    for m in sorted(vain, key=lambda m: (-moves.cost[m], m)):
        source, load = moves.source[m], moves.load[m]
        if np.all((after[source] + load <= capacity[source]) | (load == 0)):
            keep[m] = False
            after[source] += load
            after[moves.to[m]] -= load
    return moves.where(keep)


def in_order(nodes: Nodes, moves: MoveList) -> MoveList:
    """The moves so that each finds room, and no replica of its partition, where it goes.

    A move into a node that itself has to be relieved comes after enough of that node's moves; one
    into a fault domain that another replica of the partition leaves, after that. Where moves wait
    for each other in a circle the order is that of the input.
    """
    is_source = np.zeros(len(nodes.load), dtype=np.bool_)
    is_source[moves.source] = True
    several = _times(moves) > 1
    waits = is_source[moves.to] | several
    done = list(np.flatnonzero(~waits))
    pending = list(np.flatnonzero(waits))
    load = load_after(nodes.load, moves.where(~waits))
    room = nodes.capacity * (1 + ROUNDING)
    place = np.where(waits, moves.source, moves.to)
    mates: dict[int, list[int]] = {}
    for m in np.flatnonzero(several):
        mates.setdefault(int(moves.partition[m]), []).append(int(m))

    def clear(m: np.int64) -> bool:
        """Whether no replica that moves too is where, by where both began, this one may not go."""
        here, to = nodes.domain[moves.source[m]], nodes.domain[moves.to[m]]
        for other in mates.get(int(moves.partition[m]), []):
            if other != m:
                level = int((here != nodes.domain[moves.source[other]]).argmax())
                if nodes.domain[place[other], level] == to[level]:
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


def _times(moves: MoveList) -> Ints:
    """[M], how many replicas of the move's partition move."""
    _, index, times = np.unique(moves.partition, return_inverse=True, return_counts=True)
    return times[index]


def _rows(values: Bools) -> Bools:
    """[M, D], of [M] or [M, D]."""
    return values.reshape(len(values), -1 if len(values) else 1)
