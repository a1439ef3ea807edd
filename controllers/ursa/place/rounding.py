"""From fractions to nodes: score order, eject-and-relocate, and an improvement that ends.

The paper rounds by score: an object goes to the node with the largest fraction of it that still has
room (section 3.2, Algorithm 1 lines 8 to 13). Loads cannot be split, so some then fit nowhere near.
For these another object on the wanted node is ejected to where that costs least; the same exchange
shortens moves afterwards, a limited number of times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.ursa.distance import between
from controllers.ursa.instance import Float64, Int32
from controllers.ursa.place import kernels
from controllers.ursa.place.nearest import Lists
from controllers.ursa.place.problem import Ints, Problem
from controllers.ursa.place.relaxation import Relaxation, ranks
from controllers.ursa.results import UNPLACED

CHOICES = 24
PASSES = 12


@dataclass(frozen=True, eq=False)
class Choices:
    """The targets that are worth a thought for each object, the cheapest move first.

    Attributes:
        first, end: [M], where an object's targets lie in the others; none for inactive objects.
        node, cost: [targets].
        reduced: [targets], cost plus priced load, less the object's worth: 0 in the relaxation's
            optimum, what the target costs more than that elsewhere.
    """

    first: Ints
    end: Ints
    node: Int32
    cost: Float64
    reduced: Float64


@dataclass(eq=False)
class Standing:
    """A placement that fits.

    Attributes:
        move_to: [M].
        used: [N], load that it puts on each node.
        cost: [M], cost of each move, 0 for UNPLACED.
    """

    move_to: Int32
    used: Float64
    cost: Float64


def choices(problem: Problem, lists: Lists, relaxed: Relaxation, per_object: int) -> Choices:
    """The `per_object` targets of least reduced cost of each active object."""
    columns = relaxed.columns
    found, nodes, costs = lists.candidates(np.flatnonzero(relaxed.active))
    pair = np.concatenate([found * problem.nodes + nodes, columns.key])
    pair, at = np.unique(pair, return_index=True)
    cost = np.concatenate([costs, columns.cost])[at]
    owner, node = pair // problem.nodes, (pair % problem.nodes).astype(np.int32)
    reduced = cost + problem.weight[owner] * relaxed.price[node] - relaxed.worth[owner]
    order = np.lexsort((cost, reduced, owner))
    order = order[ranks(owner[order]) < per_object]
    order = order[np.lexsort((node[order], cost[order], owner[order]))]
    count = np.bincount(owner[order], minlength=len(problem))
    end = np.cumsum(count)
    return Choices(end - count, end, node[order], cost[order], reduced[order])


def standing(problem: Problem, move_to: Int32) -> Standing:
    """The standing of `move_to`, loads summed and costs computed anew."""
    placed = np.flatnonzero(move_to != UNPLACED)
    cost = np.zeros(len(problem))
    cost[placed] = between(problem.distance, problem.sender[placed], move_to[placed])
    return Standing(move_to, problem.load_of(move_to), cost)


def by_score(problem: Problem, relaxed: Relaxation) -> Standing:
    """Inactive objects stay where they began, active ones follow their fractions.

    Objects that the relaxation does not split come first, then those with the largest fraction;
    whoever finds no room is left UNPLACED.
    """
    move_to = np.where(relaxed.active, UNPLACED, relaxed.start).astype(np.int32)
    used = problem.load_of(move_to)
    columns = relaxed.columns
    positive = np.flatnonzero(columns.x > 1e-9)
    owner, x = columns.object[positive], columns.x[positive]
    best = np.zeros(len(problem))
    np.maximum.at(best, owner, x)
    order = np.lexsort((columns.node[positive], -x, owner, -problem.weight[owner], -best[owner]))
    kernels.in_score_order(
        owner[order], columns.node[positive][order], problem.layout(), move_to, used
    )
    return standing(problem, move_to)


def insert(problem: Problem, options: Choices, now: Standing, objects: Ints) -> None:
    """Place `objects` in their order, ejecting another object where that is cheapest.

    An object already placed is moved when that lowers the total cost. `now` is changed.
    """
    head = np.full(problem.nodes, -1, dtype=np.int64)
    follow = np.full(len(problem), -1, dtype=np.int64)
    # Only objects with choices can be ejected, so only they are listed by node.
    kernels.link(now.move_to, options.end > options.first, head, follow)
    kernels.insert(
        objects,
        kernels.Targets(options.first, options.end, options.node, options.cost),
        problem.layout(),
        now.move_to,
        now.used,
        now.cost,
        head,
        follow,
    )


def improve(problem: Problem, options: Choices, now: Standing) -> None:
    """Shorten moves by `insert` until nothing changes, at most PASSES times; `now` is changed."""
    active = np.flatnonzero(options.end > options.first)
    cheapest = np.zeros(len(problem))
    cheapest[active] = options.cost[options.first[active]]
    for _ in range(PASSES):
        before = now.move_to.copy()
        loss = now.cost - cheapest
        turn = active[(loss[active] > 0) & (now.move_to[active] != UNPLACED)]
        insert(problem, options, now, turn[np.argsort(-loss[turn], kind="stable")])
        if np.array_equal(before, now.move_to):
            return
