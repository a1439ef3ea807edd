"""What is done with the moves of any method: none in vain, none that heats, an order to apply."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

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
class MoveList:
    """Moves with what is looked up for each: all arrays [M]."""

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
        cost=between(instance.distance, source, moves.to),
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
        cost=between(instance.distance, source, to),
    )


def load_after(instance: Instance, state: State, moves: MoveList) -> Float64:
    """[N], loads when all is moved."""
    gone = np.bincount(moves.source, moves.load, instance.nodes)
    come = np.bincount(moves.to, moves.load, instance.nodes)
    return state.load - gone + come


def hot_after(instance: Instance, state: State, moves: MoveList) -> Bools:
    """[N], nodes above their threshold when all is moved."""
    after = load_after(instance, state, moves)
    return after - instance.capacity > ROUNDING * np.maximum(state.load, after)


def without_heating(instance: Instance, state: State, moves: MoveList) -> MoveList:
    """Leave out moves into nodes that are hot in the end.

    A method may count on what leaves a node; when part of that found no place after all, what was
    to come would only add to it.
    """
    while len(moves):
        bad = hot_after(instance, state, moves)[moves.to]
        if not bad.any():
            break
        moves = moves.where(~bad)
    return moves


def without_vain(instance: Instance, state: State, moves: MoveList) -> MoveList:
    """Leave out moves, the costliest first, without which their node is cold all the same."""
    # What is left out lightens a target, which may have to be relieved by less in its turn.
    while len(fewer := _less_vain(instance, state, moves)) < len(moves):
        moves = fewer
    return moves


def _less_vain(instance: Instance, state: State, moves: MoveList) -> MoveList:
    after = load_after(instance, state, moves)
    _, index, times = np.unique(moves.partition, return_inverse=True, return_counts=True)
    # Where another replica of the partition moves too, it may have come into the place left.
    alone = times[index] == 1
    vain = alone & (after[moves.source] + moves.load <= instance.capacity[moves.source])
    keep = np.ones(len(moves), dtype=np.bool_)
    for m in sorted(np.flatnonzero(vain), key=lambda m: (-moves.cost[m], m)):
        source = moves.source[m]
        if after[source] + moves.load[m] <= instance.capacity[source]:
            keep[m] = False
            after[source] += moves.load[m]
            after[moves.to[m]] -= moves.load[m]
    return moves.where(keep)


def in_order(instance: Instance, state: State, moves: MoveList) -> MoveList:
    """The moves so that each finds room, and no replica of its partition, where it goes.

    A move into a node that itself has to be relieved comes after enough of that node's moves; one
    into a fault domain that another replica of the partition leaves, after that. Where moves wait
    for each other in a circle the order is that of the input.
    """
    is_source = np.zeros(instance.nodes, dtype=np.bool_)
    is_source[moves.source] = True
    _, index, times = np.unique(moves.partition, return_inverse=True, return_counts=True)
    waits = is_source[moves.to] | (times[index] > 1)
    done = list(np.flatnonzero(~waits))
    pending = list(np.flatnonzero(waits))
    load = load_after(instance, state, moves.where(~waits))
    domain = instance.fault_domain
    # How many replicas of a partition wait in a domain.
    there = Counter((moves.partition[m], domain[moves.source[m]]) for m in pending)
    while pending:
        left: list[np.int64] = []
        for m in pending:
            to, source = moves.to[m], moves.source[m]
            fits = load[to] + moves.load[m] <= float(instance.capacity[to]) * (1 + ROUNDING)
            itself = int(domain[source] == domain[to])
            if fits and there[moves.partition[m], domain[to]] <= itself:
                done.append(m)
                load[to] += moves.load[m]
                load[source] -= moves.load[m]
                there[moves.partition[m], domain[source]] -= 1
            else:
                left.append(m)
        if len(left) == len(pending):
            done += left
            break
        pending = left
    return moves.where(np.array(done, dtype=np.int64))
