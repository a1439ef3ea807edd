"""Algorithm 1 of the paper, to the letter: its ALP, the approximate linear programme.

`MergeObjects`, `FindTargetNodes` and `SolveLP` keep their names. Each of the two techniques of
section 3.2 can be left out, the four variants of figure 9: one programme for all (NONE) or one for
each group of hot nodes with overlapping search regions (DC), solved with whole numbers (ILP) or
relaxed and rounded by score (LP).

Where the paper is silent:

- The first radius holds a rack's 40 nodes on average, and the radius grows by the same.
- An object that no node can take makes every programme infeasible, and the loop would never end.
  It is left out; the next heaviest object of its node then replaces it, as in every method.
- A relaxed programme splits an object that fits nowhere near as a whole. If rounding places
  nothing, nothing would ever change: from then on X_ij = 0 where object i alone is too heavy for
  node j, as (8) and (13) imply, so that the programme is infeasible and the radius grows.
- If the radius reaches every node and nothing more is placed, the remaining objects stay in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controllers.jit import njit
from controllers.ursa.instance import (
    UNPLACED,
    Euclidean,
    Float64,
    Int32,
    Nearest,
    SelectionTargets,
    Timer,
    between,
)
from controllers.ursa.place.highs import solve
from controllers.ursa.place.problem import (
    Ints,
    Lists,
    PlacementProblem,
    ProblemArrays,
    apart,
    fits,
    nearest_fit,
)
from controllers.ursa.place.relaxation import components, farthest_move
from controllers.ursa.place.rounding import assignment_model

RACK_NODES = 40
TIE, DIGITS = 1e-4, 6
"""Largest change of a cost that decides between equal ones, and digits of X that then count."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it have fractions that all differ."""
POSITIVE = 1e-9
"""An X above it counts as positive: solvers are inexact."""


@dataclass(frozen=True)
class Variant:
    """Choice of speed-ups; the paper's ALP uses both.

    `divide` solves groups of hot nodes with overlapping regions on their own (DC), `relax` the
    linear relaxation (LP). `first_radius`, `step`: r_0 and delta r; None for 40 nodes on average.
    """

    divide: bool = True
    relax: bool = True
    first_radius: float | None = None
    step: float | None = None


@dataclass(eq=False)
class Movements:
    """The movement set M, and the present loads L_*j of the selected objects on the nodes.

    Attributes:
        move_to: [M], targets.
        used: [N, D], load of the objects that are on the node now, moved to it or not yet moved.
        come: [N, D], load of the objects that moved to the node.
        waiting: [N], objects that have not yet left the node.
    """

    move_to: Int32
    used: Float64
    come: Float64
    waiting: Ints

    @classmethod
    def none(cls, problem: PlacementProblem) -> Movements:
        """Return the empty set."""
        used = np.zeros_like(problem.rooms)
        np.add.at(used, problem.source, problem.loads)
        return cls(
            np.full(len(problem), UNPLACED, dtype=np.int32),
            used,
            np.zeros_like(used),
            np.bincount(problem.source, minlength=problem.nodes),
        )

    def room(self, problem: PlacementProblem, objects: Ints) -> Float64:
        """Return [N, D], the room of (8) if `objects` leave: C_j - L_*j and the second term."""
        room = problem.rooms - self.used
        np.add.at(room, problem.source[objects], problem.loads[objects])
        return room


def place(
    problem: PlacementProblem, timer: Timer, variant: Variant = Variant()
) -> SelectionTargets:
    """Run Algorithm 1, by default with both speed-ups (DC+LP); a placer, see
    `controllers.ursa.methods`. `notes` has the last radius and the programmes solved."""
    made = Movements.none(problem)  # line 1
    typical = _rack_radius(problem)
    radius = typical if variant.first_radius is None else variant.first_radius  # line 2
    step = typical if variant.step is None else variant.step
    last = min(problem.reach, farthest_move(problem))
    everywhere = Nearest(problem.distance, np.arange(problem.nodes, dtype=np.int32))
    can_move = nearest_fit(problem, Lists(problem), np.arange(len(problem)))[0] >= 0
    whole, solved = False, 0
    while len(left := np.flatnonzero(can_move & (made.move_to == UNPLACED))) and timer.left() > 0:
        within = min(radius, last)
        feasible = True
        for group in merge_objects(problem, everywhere, left, within, variant.divide):  # lines 3, 4
            found, target = find_target_nodes(problem, everywhere, group, within)
            room = made.room(problem, group)
            if whole:
                alone = (problem.loads[found] <= room[target]).all(axis=1)
                found, target = found[alone], target[alone]
            x = solve_lp(problem, group, found, target, room, variant.relax, timer)
            solved += 1
            feasible &= x is not None
            if x is not None:
                round_by_score(problem, found, target, x, made)
        none = bool((made.move_to[left] == UNPLACED).all())
        if none and radius >= last and (whole or not feasible):
            break
        if not feasible or (none and whole):  # line 14
            radius += step
        whole |= none and feasible
    return SelectionTargets(
        made.move_to, notes={"radius": float(min(radius, last)), "programmes": solved}
    )


def merge_objects(
    problem: PlacementProblem, everywhere: Nearest, objects: Ints, radius: float, divide: bool
) -> list[Ints]:
    """Return groups S'_k of objects with overlapping search regions (line 3); one if not `divide`.

    A region R(i, r) holds the nodes within `radius`, and the node that the object leaves.
    """
    if not divide:
        return [objects]
    senders, which = np.unique(problem.sender[objects], return_inverse=True)
    regions = everywhere.within(senders, radius)
    owner = np.repeat(np.arange(len(senders)), [len(region) for region in regions])
    label, _ = components(
        np.concatenate([owner, which]),
        np.concatenate([*regions, problem.source[objects]]),
        len(senders),
        problem.nodes,
    )
    group = label[which]
    order = np.argsort(group, kind="stable")
    return np.split(objects[order], np.flatnonzero(np.diff(group[order])) + 1)


def find_target_nodes(
    problem: PlacementProblem, everywhere: Nearest, objects: Ints, radius: float
) -> tuple[Ints, Int32]:
    """Return the (object, node) pairs that (10) and (12) leave to a group (line 5)."""
    senders, which = np.unique(problem.sender[objects], return_inverse=True)
    regions = everywhere.within(senders, radius)
    sizes = np.array([len(region) for region in regions], dtype=np.int64)
    found = np.repeat(objects, sizes[which])
    target = np.concatenate([regions[one] for one in which])
    ok = problem.clear(found, target)
    return found[ok], target[ok].astype(np.int32)


def solve_lp(
    problem: PlacementProblem,
    objects: Ints,
    found: Ints,
    target: Int32,
    room: Float64,
    relax: bool,
    timer: Timer,
) -> Float64 | None:
    """Return [pairs] the X of (7) to (12), or whole numbers (13); None if infeasible (line 6).

    `room` is [N, D], see `Movements.room`.
    """
    if len(np.unique(found)) < len(objects):
        return None
    position = np.full(len(problem), -1, dtype=np.int64)
    position[objects] = np.arange(len(objects))
    cost = between(problem.distance, problem.sender[found], target)
    tied = not isinstance(problem.distance, Euclidean)
    if tied:
        # Many moves cost the same, and each version of HiGHS would choose others of them.
        cost = cost + TIE * cost.max(initial=0.0) * np.modf(np.arange(1, len(cost) + 1) * GOLDEN)[0]
    room = room[np.unique(target)]
    model = assignment_model(problem, objects, position[found], target, cost, room)
    model.integer = not relax
    x = solve(model, seconds=timer.left()).x
    return np.round(x, DIGITS) if tied and x is not None else x


def round_by_score(
    problem: PlacementProblem, found: Ints, target: Int32, x: Float64, made: Movements
) -> None:
    """Move each object to the target of highest score that C1 and C2 allow (lines 8 to 13)."""
    positive = np.flatnonzero(x > POSITIVE)
    order = positive[np.lexsort((target[positive], -x[positive], found[positive]))]
    _move(
        found[order],
        target[order].astype(np.int64),
        problem.layout(),
        made.move_to,
        made.used,
        made.come,
        made.waiting,
    )


@njit
def _move(
    found: Ints,
    target: Ints,
    layout: ProblemArrays,
    move_to: Int32,
    used: Float64,
    come: Float64,
    waiting: Ints,
) -> None:
    for at in range(len(found)):
        i, j = found[at], target[at]
        if move_to[i] < 0 and fits(i, j, -1, layout, used) and apart(i, j, layout, move_to):
            move_to[i] = j
            source = layout.source[i]
            waiting[source] -= 1
            for d in range(used.shape[1]):
                used[j, d] += layout.loads[i, d]
                come[j, d] += layout.loads[i, d]
                used[source, d] -= layout.loads[i, d]
                if waiting[source] == 0:  # without what rounding leaves of a difference
                    used[source, d] = come[source, d]


def _rack_radius(problem: PlacementProblem) -> float:
    """Return the radius of a circle with 40 nodes on average; for racks, the cheapest cost."""
    metric = problem.distance
    if isinstance(metric, Euclidean):
        spread = np.ptp(metric.node_xy.astype(np.float64), axis=0)
        area = float(spread[0] * spread[1])
        side = area if area > 0 else float(spread.max(initial=0.0)) ** 2
        return float(np.sqrt(RACK_NODES * side / (np.pi * problem.nodes))) or 1.0
    costs = np.unique(metric.rack_distance)
    gaps = np.diff(np.r_[0.0, costs[costs > 0]])
    return float(gaps.min(initial=np.inf)) if len(gaps) else 1.0
