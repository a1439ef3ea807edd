"""Algorithm 1 of the paper, as written: the reference for ALP's speed and cost.

`MergeObjects`, `FindTargetNodes` and `SolveLP` keep their names. Each of the two techniques of
section 3.2 can be left out, the four variants of figure 9: one programme for all (NONE) or one for
each group of hot nodes with overlapping search regions (DC), solved with whole numbers (ILP) or
relaxed and rounded by score (LP).

Where the paper is silent: the first radius holds a rack's 40 nodes on average, and the radius grows
by the same. If rounding leaves objects over and places none, the radius grows as if the programme
had been infeasible. If it holds every node and nothing more is placed, the remaining objects go to
the nearest node with room, or stay in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    in_score_order,
)
from controllers.ursa.place.relaxation import components, farthest_move, first_fit
from controllers.ursa.place.rounding import assignment_model, standing

RACK_NODES = 40


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


def place(
    problem: PlacementProblem, timer: Timer, variant: Variant = Variant()
) -> SelectionTargets:
    """Run Algorithm 1, by default with both speed-ups (DC+LP); a placer, see
    `controllers.ursa.methods`. `notes` has the last radius and the programmes solved."""
    move_to = np.full(len(problem), UNPLACED, dtype=np.int32)
    used = np.zeros_like(problem.rooms)
    typical = _rack_radius(problem)
    radius = typical if variant.first_radius is None else variant.first_radius
    step = typical if variant.step is None else variant.step
    last = min(problem.reach, farthest_move(problem))
    solved = 0
    while (move_to == UNPLACED).any() and timer.left() > 0:
        left = np.flatnonzero(move_to == UNPLACED)
        found, target = find_target_nodes(problem, left, min(radius, last))
        groups = merge_objects(problem, left, found, target, variant.divide)
        for group in groups:
            pairs = np.isin(found, group)
            x = solve_lp(problem, group, found[pairs], target[pairs], used, variant.relax, timer)
            solved += 1
            if x is not None:
                round_by_score(problem, found[pairs], target[pairs], x, move_to, used)
        stuck = int((move_to[left] == UNPLACED).sum())
        if stuck == len(left) and radius >= last:
            first_fit(problem, Lists(problem), move_to, used)
            break
        if stuck:
            radius += step
    now = standing(problem, move_to)
    return SelectionTargets(
        now.move_to, notes={"radius": float(min(radius, last)), "programmes": solved}
    )


def find_target_nodes(
    problem: PlacementProblem, objects: Ints, radius: float
) -> tuple[Ints, Int32]:
    """Return the (object, node) pairs within the object's radius: R(i, r), (9), (10), (12)."""
    everywhere = Nearest(problem.distance, np.arange(problem.nodes, dtype=np.int32))
    sources, which = np.unique(problem.sender[objects], return_inverse=True)
    within = everywhere.within(sources, radius)
    sizes = np.array([len(nodes) for nodes in within], dtype=np.int64)
    found = np.repeat(objects, sizes[which])
    target = np.concatenate([np.empty(0, np.int32), *(within[source] for source in which)])
    ok = problem.clear(found, target) & (problem.room[target] >= 0)
    return found[ok], target[ok].astype(np.int32)


def merge_objects(
    problem: PlacementProblem, objects: Ints, found: Ints, target: Int32, divide: bool
) -> list[Ints]:
    """Return the selected objects by group of hot nodes that could want the same target: S'_k."""
    if not divide:
        return [objects]
    sources = problem.sender[found]
    label, _ = components(sources, target, problem.nodes, problem.nodes)
    group = label[problem.sender[objects]]
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    return np.split(objects[order], cuts) if len(objects) else []


def solve_lp(
    problem: PlacementProblem,
    objects: Ints,
    found: Ints,
    target: Int32,
    used: Float64,
    relax: bool,
    timer: Timer,
) -> Float64 | None:
    """Return [pairs] the X of (7) to (12), or whole numbers (13); None if infeasible."""
    if len(np.unique(found)) < len(objects):
        return None
    position = np.full(len(problem), -1, dtype=np.int64)
    position[objects] = np.arange(len(objects))
    cost = between(problem.distance, problem.sender[found], target)
    nodes = np.unique(target)
    model = assignment_model(
        problem, objects, position[found], target, cost, (problem.rooms - used)[nodes]
    )
    model.integer = not relax
    result = solve(model, seconds=timer.left())
    return result.x


def round_by_score(
    problem: PlacementProblem, found: Ints, target: Int32, x: Float64, move_to: Int32, used: Float64
) -> None:
    """Run lines 8 to 13: each object to the highest-scored target that fits; in place."""
    positive = np.flatnonzero(x > 1e-9)
    order = positive[np.lexsort((target[positive], -x[positive], found[positive]))]
    in_score_order(found[order], target[order].astype(np.int64), problem.layout(), move_to, used)


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
