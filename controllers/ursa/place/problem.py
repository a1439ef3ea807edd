"""The placement of a given selection as a generalised assignment problem: equations (7) to (13).

Loads cannot be split and a move costs the same whatever the object's load is, so this is not a
transportation problem. An object that has been selected leaves its node: it is not offered that
node again, and the node's room counts it as gone, as the second term of (8) does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Distance, Float64, Instance, Int32
from controllers.ursa.results import UNPLACED, Selection
from controllers.ursa.state import State

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Layout(NamedTuple):
    """A problem's arrays as the compiled loops take them; see `Problem`."""

    weight: Float64
    source: Int32
    room: Float64
    domain: Int32
    taken: Int32
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32


@dataclass(frozen=True, eq=False)
class Problem:
    """Which node each of M objects may go to, and what every node has room for.

    Attributes:
        weight: [M], load of the object, L_i.
        source: [M], node that it leaves.
        sender: [M], node from which it is copied: what a move costs counts from there.
        partition: [M].
        room: [N], C_j - L_*j + the load that has been selected to leave j; negative where a node
            stays hot whatever leaves.
        domain: [N], fault domain.
        taken: [M, l], domains of the partition's other replicas where they are now, -1 in the
            object's own column: I_iq of (12). The object's own domain is open to it.
        sibling: [M], objects ordered by partition; those of object i's partition, itself among
            them, are ``sibling[sibling_first[i]:sibling_end[i]]``: G_p of (11).
        sibling_first, sibling_end: [M].
        distance: what a move costs.
        reach: no move costs more; infinite without a limit.
    """

    weight: Float64
    source: Int32
    sender: Int32
    partition: Int32
    room: Float64
    domain: Int32
    taken: Int32
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

    def layout(self) -> Layout:
        """For compiled loops."""
        return Layout(*(getattr(self, name) for name in Layout._fields))

    def allowed(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Bools:
        """Whether each object fits on the node beside it, were all other objects elsewhere."""
        ok: Bools = self.weight[objects] <= self.room[nodes]
        ok &= self.source[objects] != nodes
        domain = self.domain[nodes]
        for column in range(self.taken.shape[1]):
            ok &= self.taken[objects, column] != domain
        return ok

    def load_of(self, move_to: Int32) -> Float64:
        """[N], the load that `move_to` puts on each node."""
        placed = move_to != UNPLACED
        load = np.bincount(move_to[placed], self.weight[placed], minlength=self.nodes)
        return load.astype(np.float64, copy=False)

    def crowded(self, move_to: Int32) -> Bools:
        """[N], nodes that `move_to` puts more on than they have room for."""
        used = self.load_of(move_to)
        return (used > 0) & (used > self.room)

    def with_room(self, room: Float64) -> Problem:
        """The same objects with other room on the nodes."""
        return replace(self, room=room)


def assignment_problem(
    instance: Instance, state: State, selection: Selection, max_move_cost: float | None
) -> Problem:
    """The problem of placing `selection`; `state` still counts its objects where they are."""
    leaving = np.bincount(selection.node, selection.load, minlength=instance.nodes)
    taken = instance.fault_domain[instance.replica_node[selection.partition]]
    taken[np.arange(len(selection)), selection.replica] = -1
    sibling, first, end = _siblings(selection.partition)
    return Problem(
        weight=selection.load.astype(np.float64),
        source=selection.node,
        sender=instance.sender(selection.partition, selection.replica),
        partition=selection.partition,
        room=instance.capacity.astype(np.float64) - (state.load - leaving),
        domain=instance.fault_domain,
        taken=taken,
        sibling=sibling,
        sibling_first=first,
        sibling_end=end,
        distance=instance.distance,
        reach=np.inf if max_move_cost is None else float(max_move_cost),
    )


def subproblem(problem: Problem, keep: Bools) -> Problem:
    """Only the objects where `keep` holds; the others are gone, not back on their nodes."""
    sibling, first, end = _siblings(problem.partition[keep])
    return replace(
        problem,
        weight=problem.weight[keep],
        source=problem.source[keep],
        sender=problem.sender[keep],
        partition=problem.partition[keep],
        taken=problem.taken[keep],
        sibling=sibling,
        sibling_first=first,
        sibling_end=end,
    )


def _siblings(partition: Int32) -> tuple[Int32, Int32, Int32]:
    order = np.argsort(partition, kind="stable").astype(np.int32)
    ordered = partition[order]
    first = np.searchsorted(ordered, partition, side="left").astype(np.int32)
    end = np.searchsorted(ordered, partition, side="right").astype(np.int32)
    return order, first, end


def ragged(start: NDArray[np.integer], length: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """(owner, position) of every element of the runs ``start[i] : start[i] + length[i]``."""
    lengths = length.astype(np.int64)
    owner = np.repeat(np.arange(len(start), dtype=np.int64), lengths)
    before = np.cumsum(lengths) - lengths
    position = np.arange(len(owner), dtype=np.int64) + (start.astype(np.int64) - before)[owner]
    return owner, position
