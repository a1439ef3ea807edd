"""Candidate targets in order of distance, for many objects at once and as many as are asked for.

Objects that one node sends and whose loads are alike share a list: of the nodes that have room for
the least of these loads, the nearest first. In a crowd of full nodes such a list begins where there
is room, so that it stays short. Loads are alike when they lie in one octave, or in octaves that
almost the same nodes have room for. R(i, r) of equations (9) and (10) is a prefix of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.distance import Nearest
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place.problem import Ints, Problem, ragged

FIRST_LIST = 8
MOST_ALIKE = 0.75


class Lists:
    """Lists of candidates, widened on demand.

    Attributes:
        group: [M], the list of each object.
        start, length: [G], where each list lies in `node` and `cost`.
        complete: [G], the list holds every node in reach that has room.
        node, cost: candidates and what a move there costs, ascending within a list.
    """

    def __init__(self, problem: Problem, objects: NDArray[np.integer] | None = None) -> None:
        """Empty lists for `objects` (all of the problem's when left out)."""
        self._problem = problem
        chosen = np.arange(len(problem)) if objects is None else np.asarray(objects)
        alike = _alike(_octaves(problem.weight[chosen]), problem.room)
        self._octaves, rank = np.unique(alike, return_inverse=True)
        key = problem.sender[chosen].astype(np.int64) * max(1, len(self._octaves)) + rank
        keys, group = np.unique(key, return_inverse=True)
        self.group = np.full(len(problem), -1, dtype=np.int64)
        self.group[chosen] = group
        self._source = (keys // max(1, len(self._octaves))).astype(np.int32)
        self._octave = (keys % max(1, len(self._octaves))).astype(np.int64)
        self.start = np.zeros(len(keys), dtype=np.int64)
        self.length = np.zeros(len(keys), dtype=np.int64)
        self.complete = np.zeros(len(keys), dtype=np.bool_)
        self.node: Int32 = np.zeros(0, dtype=np.int32)
        self.cost: Float64 = np.zeros(0)
        self._search: dict[int, Nearest] = {}

    def __len__(self) -> int:
        return len(self.start)

    def last(self) -> Float64:
        """[G], every node that a list lacks costs at least this (infinite where complete)."""
        last = np.zeros(len(self))
        filled = self.length > 0
        last[filled] = self.cost[self.start[filled] + self.length[filled] - 1]
        last[self.complete] = np.inf
        return last

    def widen(self, groups: NDArray[np.integer], length: int) -> None:
        """Make the lists of `groups` hold the `length` nearest nodes, or all there are."""
        groups = groups[~self.complete[groups] & (self.length[groups] < length)]
        nodes, costs, tops = [self.node], [self.cost], len(self.node)
        for octave in np.unique(self._octave[groups]):
            mine = groups[self._octave[groups] == octave]
            searcher = self._searcher(int(octave))
            node, cost = searcher.query(self._source[mine], length)
            whole = node.shape[1] == len(searcher)
            in_reach = cost <= self._problem.reach
            lengths = in_reach.sum(axis=1)
            self.complete[mine] = whole | (lengths < node.shape[1])
            self.length[mine] = lengths
            self.start[mine] = tops + np.cumsum(lengths) - lengths
            nodes.append(node[in_reach])
            costs.append(cost[in_reach])
            tops += int(lengths.sum())
        self.node = np.concatenate(nodes).astype(np.int32)
        self.cost = np.concatenate(costs)

    def candidates(
        self, objects: NDArray[np.integer], farthest: Float64 | None = None
    ) -> tuple[Ints, Int32, Float64]:
        """(object, node, cost) of each allowed pair in the lists, by object, then ascending.

        With `farthest` [G] only pairs that cost at most that.
        """
        groups = self.group[objects]
        length = self.length if farthest is None else self._within(farthest)
        owner, position = ragged(self.start[groups], length[groups])
        found = np.asarray(objects, dtype=np.int64)[owner]
        nodes = self.node[position]
        ok = self._problem.allowed(found, nodes)
        return found[ok], nodes[ok], self.cost[position[ok]]

    def _within(self, farthest: Float64) -> Ints:
        """[G], how many of each list cost at most `farthest`."""
        group, position = ragged(self.start, self.length)
        near = self.cost[position] <= farthest[group]
        return np.bincount(group[near], minlength=len(self))

    def _searcher(self, octave: int) -> Nearest:
        if octave not in self._search:
            least = _least(self._octaves[octave])
            nodes = np.flatnonzero((self._problem.room >= least) & (self._problem.room >= 0))
            self._search[octave] = Nearest(self._problem.distance, nodes.astype(np.int32))
        return self._search[octave]


def nearest_fit(
    problem: Problem, lists: Lists, objects: NDArray[np.integer]
) -> tuple[Int32, Float64]:
    """The nearest allowed node of each of `objects`, and its cost: (-1, infinite) without any.

    Lists are widened until each object has found a node or its list is complete.
    """
    node = np.full(len(objects), -1, dtype=np.int32)
    cost = np.full(len(objects), np.inf)
    pending = np.arange(len(objects))
    length = FIRST_LIST
    while len(pending):
        groups = lists.group[objects[pending]]
        lists.widen(np.unique(groups), length)
        owner, position = ragged(lists.start[groups], lists.length[groups])
        nodes = lists.node[position]
        ok = np.flatnonzero(problem.allowed(objects[pending][owner], nodes))
        found, first = np.unique(owner[ok], return_index=True)
        node[pending[found]] = nodes[ok[first]]
        cost[pending[found]] = lists.cost[position[ok[first]]]
        missing = np.ones(len(pending), dtype=np.bool_)
        missing[found] = False
        pending = pending[missing & ~lists.complete[groups]]
        length *= 4
    return node, cost


def _octaves(weight: Float64) -> Ints:
    """The e with 2**e <= weight < 2**(e + 1); very low for a load of zero."""
    exponent = np.frexp(weight)[1].astype(np.int64) - 1
    exponent[weight <= 0] = -2000
    return exponent


def _alike(octave: Ints, room: Float64) -> Ints:
    """For each octave the lowest below it that at most a third more nodes have room for."""
    octaves, inverse = np.unique(octave, return_inverse=True)
    ordered = np.sort(room)
    stands_for, count, lowest = octaves.copy(), np.inf, 0
    for at, this in enumerate(octaves):
        enough = len(room) - int(np.searchsorted(ordered, _least(this)))
        if at == 0 or enough < MOST_ALIKE * count:
            lowest, count = this, enough
        stands_for[at] = lowest
    return stands_for[inverse]


def _least(octave: int) -> float:
    return 0.0 if octave <= -2000 else float(np.ldexp(1.0, int(octave)))
