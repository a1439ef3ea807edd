"""The placement of a given selection, with loads of several dimensions and nested fault domains.

Two replicas of a partition are told apart by the outermost level at which their domains differ: at
this level and further in they may not come together, further out they are together from the
start. As the node is the innermost domain, there is always such a level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.distance import between
from controllers.ursa.general.units import Ints, Units, VectorState
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place.nearest import Lists, nearest_fit
from controllers.ursa.place.problem import Bools, Problem, subproblem
from controllers.ursa.results import UNPLACED, Selection


class Arrays(NamedTuple):
    """A problem's arrays as the compiled loops take them; see `VectorProblem`."""

    loads: Float64
    rooms: Float64
    source: Int32
    levels: Int32
    others: Int32
    sibling: Int32
    sibling_first: Int32
    sibling_end: Int32


@dataclass(frozen=True, eq=False)
class VectorProblem(Problem):
    """As `Problem`, of which `weight` and `room` are but what lists of candidates are made by.

    Attributes:
        loads: [M, D], of the objects.
        rooms: [N, D].
        levels: [N, levels + 1], fault domains, the node last.
        others: [M, l], nodes of the unit's other replicas now, -1 in the object's own column.
        members: [M], partitions of the unit: a move costs so many times its distance.
    """

    loads: Float64
    rooms: Float64
    levels: Int32
    others: Int32
    members: Float64

    def arrays(self) -> Arrays:
        """For compiled loops."""
        return Arrays(*(getattr(self, name) for name in Arrays._fields))

    def allowed(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Bools:
        """Whether each object fits on the node beside it, were all other objects elsewhere."""
        ok: Bools = self.source[objects] != nodes
        for d in range(self.loads.shape[1]):
            ok &= self.loads[objects, d] <= self.rooms[nodes, d]
        for column in range(self.others.shape[1]):
            other = self.others[objects, column]
            ok &= (other < 0) | ~self.meet(self.source[objects], other, nodes, other)
        return ok

    def meet(self, a: Int32, b: Int32, to_a: NDArray[np.integer], to_b: Int32) -> Bools:
        """Whether replicas apart on nodes a and b come together on `to_a` and `to_b`."""
        level = (self.levels[a] != self.levels[b]).argmax(axis=1)
        return np.asarray(self.levels[to_a, level] == self.levels[to_b, level])

    def cost(self, objects: NDArray[np.integer], nodes: NDArray[np.integer]) -> Float64:
        """What it costs to move each object to the node beside it."""
        distance = between(self.distance, self.source[objects], nodes)
        return np.asarray(distance * self.members[objects])

    def toll(
        self, objects: NDArray[np.integer], nodes: NDArray[np.integer], price: Float64
    ) -> Float64:
        """What the load of each object costs on the node beside it, by prices [N, D]."""
        total = np.zeros(len(objects))
        for d in range(self.loads.shape[1]):
            total += self.loads[objects, d] * price[nodes, d]
        return total

    def used_by(self, move_to: Int32) -> Float64:
        """[N, D], the load that `move_to` puts on each node."""
        used = np.zeros_like(self.rooms)
        placed = move_to != UNPLACED
        for d in range(used.shape[1]):
            used[:, d] = np.bincount(move_to[placed], self.loads[placed, d], self.nodes)
        return used

    def with_rooms(self, rooms: Float64) -> VectorProblem:
        """The same objects with other room on the nodes."""
        return replace(self, rooms=rooms, room=_least_room(rooms, self.units_of_load()))

    def units_of_load(self) -> Float64:
        """[D], loads that count as equally much in the dimensions."""
        mean = self.loads.mean(axis=0) if len(self.loads) else np.ones(self.rooms.shape[1])
        return np.where(mean > 0, mean, 1.0)


def vector_problem(
    units: Units, state: VectorState, selection: Selection, max_move_cost: float | None
) -> VectorProblem:
    """The problem of placing `selection`; `state` still counts its objects where they are."""
    count, dimensions = len(selection), units.dimensions
    loads = np.asarray(selection.load, np.float64).reshape(count, dimensions)
    leaving = np.zeros_like(state.load)
    for d in range(dimensions):
        leaving[:, d] = np.bincount(selection.node, loads[:, d], units.nodes)
    rooms = units.capacity - (state.load - leaving)
    # What is hot in one dimension may take nothing, even of objects that have no load there.
    rooms[(state.load - leaving > units.capacity * (1 + 1e-12)).any(axis=1)] = -1.0
    others = units.placed.replica_node[selection.partition].copy()
    others[np.arange(count), selection.replica] = -1
    empty = np.empty(0, np.int32)
    problem = VectorProblem(
        weight=np.zeros(count),
        source=selection.node,
        sender=selection.node,
        partition=selection.partition,
        room=np.zeros(units.nodes),
        domain=units.domain[:, -1],
        taken=np.empty((count, 0), np.int32),
        sibling=empty,
        sibling_first=empty,
        sibling_end=empty,
        distance=units.placed.distance,
        reach=np.inf if max_move_cost is None else float(max_move_cost),
        loads=loads,
        rooms=rooms,
        levels=units.domain,
        others=others,
        members=units.members[selection.partition],
    )
    problem = subproblem(problem, np.ones(count, dtype=np.bool_))  # type: ignore[assignment]
    unit = problem.units_of_load()
    # A node that takes an object has room for its least load, as parts of the usual ones.
    weight = (loads / unit).min(axis=1) if count else np.zeros(0)
    return replace(problem, weight=weight, room=_least_room(rooms, unit))


def nearest_cost(
    problem: VectorProblem, lists: Lists, objects: NDArray[np.integer]
) -> tuple[Int32, Float64]:
    """As `nearest_fit`, with costs of whole units."""
    node, cost = nearest_fit(problem, lists, objects)
    return node, cost * problem.members[objects]


def last_cost(problem: VectorProblem, lists: Lists, objects: Ints) -> Float64:
    """[objects], what any node that an object's list lacks costs at least."""
    return np.asarray(lists.last()[lists.group[objects]] * problem.members[objects])


def _least_room(rooms: Float64, unit: Float64) -> Float64:
    return np.asarray((rooms / unit).min(axis=1))
