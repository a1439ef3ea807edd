"""Algorithm 1 compared with a transcription of sections 3.1 and 3.2, and its parts one by one.

The transcription knows nothing of the planner: it is plain Python over sets, with a dense programme
for each group. It covers what the text covers: no swaps, and instances on which its loop ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from controllers.ursa.check import check
from controllers.ursa.generate import generate, shape
from controllers.ursa.instance import UNPLACED, Euclidean, Instance, Nearest
from controllers.ursa.methods import METHODS
from controllers.ursa.place import algorithm1
from controllers.ursa.place.problem import PlacementProblem, assignment_problem
from controllers.ursa.plan import plan
from controllers.ursa.select import highest_load_first
from controllers.ursa.state import initial_state
from tests.controllers.ursa_instances import instance, timer

pytestmark = pytest.mark.slow  # compiling and solving take time

Object = tuple[int, int]
"""Partition and replica."""


@dataclass
class Transcription:
    """Phases 1 and 2 of section 3.2; every method is named after its part of the text."""

    case: Instance
    r_0: float
    delta_r: float

    def __post_init__(self) -> None:
        case = self.case
        self.node = {
            (p, k): int(case.replica_node[p, k])
            for p in range(case.partitions)
            for k in range(case.replicas)
        }
        self.load = {
            (p, k): float((case.secondary_load if k else case.primary_load)[p])
            for p, k in self.node
        }
        self.capacity = [float(value) for value in case.capacity]
        self.total = [0.0] * case.nodes
        for one, node in self.node.items():
            self.total[node] += self.load[one]
        self.moved: dict[Object, int] = {}

    def cost(self, one: Object, j: int) -> float:
        """B_ij."""
        assert isinstance(self.case.distance, Euclidean)
        xy = self.case.distance.node_xy.astype(float)
        return float(np.sqrt(((xy[self.node[one]] - xy[j]) ** 2).sum()))

    def region(self, one: Object, r: float) -> set[int]:
        """R(i, r)."""
        return {j for j in range(self.case.nodes) if self.cost(one, j) <= r}

    def taken(self, one: Object, j: int) -> bool:
        """I_iq of (12): another replica of the partition is in the fault domain of node j."""
        domain = self.case.fault_domain
        return self.node[one] == j or any(
            domain[self.node[one[0], k]] == domain[j]
            for k in range(self.case.replicas)
            if k != one[1]
        )

    def highest_load_first(self) -> list[Object]:
        """Phase 1: in descending order of loads, until the load is below the threshold."""
        chosen = []
        for node in range(self.case.nodes):
            mine = [one for one, its in self.node.items() if its == node]
            left = self.total[node]
            for one in sorted(mine, key=lambda one: (-self.load[one], one)):
                if left <= self.capacity[node]:
                    break
                chosen.append(one)
                left -= self.load[one]
        return chosen

    def merge_objects(self, objects: Iterable[Object], r: float) -> list[list[Object]]:
        """Line 3: objects with overlapping search regions are in one group."""
        groups: list[tuple[set[int], list[Object]]] = []
        for one in objects:
            region, members = self.region(one, r), [one]
            apart = []
            for other, others in groups:
                if other & region:
                    region, members = region | other, others + members
                else:
                    apart.append((other, others))
            groups = [*apart, (region, members)]
        return [members for _, members in groups]

    def solve_lp(
        self, group: list[Object], targets: list[int], r: float
    ) -> dict[tuple[Object, int], float] | None:
        """Line 6: equations (7) to (12) with X between 0 and 1."""
        pairs = [(one, j) for one in group for j in targets]
        place = {pair: column for column, pair in enumerate(pairs)}
        allowed = [j in self.region(one, r) and not self.taken(one, j) for one, j in pairs]
        rows, limits = [], []
        for j in targets:  # (8)
            row = np.zeros(len(pairs))
            for one, to in pairs:
                if to == j:
                    row[place[one, to]] += self.load[one]
                if self.node[one] == j:
                    row[place[one, to]] -= self.load[one]
            rows.append(row)
            limits.append(self.capacity[j] - self.total[j])
        domain = self.case.fault_domain
        for partition in {one[0] for one in group}:  # (11)
            for q in {int(domain[j]) for j in targets}:
                row = np.array([one[0] == partition and domain[j] == q for one, j in pairs])
                rows.append(row.astype(float))
                limits.append(1.0)
        once = np.array([[float(one == which) for one, _ in pairs] for which in group])  # (9)
        found = linprog(
            [self.cost(one, j) for one, j in pairs],
            A_ub=np.array(rows),
            b_ub=np.array(limits),
            A_eq=once,
            b_eq=np.ones(len(group)),
            bounds=[(0, 1 if ok else 0) for ok in allowed],  # (10), (12)
        )
        return dict(zip(pairs, found.x, strict=True)) if found.success else None

    def fits(self, one: Object, j: int) -> bool:
        """C1 and C2 for the present loads and the objects moved so far."""
        mates = [to for other, to in self.moved.items() if other[0] == one[0]]
        domain = self.case.fault_domain
        apart = not self.taken(one, j) and all(domain[to] != domain[j] for to in mates)
        return apart and self.load[one] + self.total[j] <= self.capacity[j]

    def run(self, most: int = 40) -> dict[Object, int] | None:
        """Algorithm 1; None if its loop does not end within `most` rounds."""
        chosen, r = self.highest_load_first(), self.r_0
        for _ in range(most):
            remaining = [one for one in chosen if one not in self.moved]
            if not remaining:
                return self.moved
            infeasible = False
            for group in self.merge_objects(remaining, r):
                targets = sorted(set().union(*(self.region(one, r) for one in group)))
                x = self.solve_lp(group, targets, r)
                if x is None:
                    infeasible = True
                    continue
                for one in sorted(group, key=chosen.index):
                    positive = [j for j in targets if x[one, j] > 1e-9]
                    for j in sorted(positive, key=lambda j: (-round(x[one, j], 9), j)):
                        if self.fits(one, j):
                            self.moved[one] = j
                            self.total[j] += self.load[one]
                            self.total[self.node[one]] -= self.load[one]
                            break
            if infeasible:
                r += self.delta_r
        return None


@st.composite
def hot(draw: st.DrawFn) -> Instance:
    """Draw a few nodes in the plane with unlike loads, of which several are hot."""
    kind = draw(st.sampled_from(["s1", "s2", "s3"]))
    nodes, partitions = draw(st.integers(6, 16)), draw(st.integers(20, 120))
    most = draw(st.floats(0.8, 1.5))
    wanted = shape(kind, nodes, partitions, ratio_median=0.6, ratio_max=most, load_max=9.0)
    case = generate(wanted, draw(st.integers(0, 10**6)))
    if draw(st.booleans()):
        case = replace(case, fault_domain=np.arange(nodes, dtype=np.int32) // 2)
    return case


@given(hot(), st.sampled_from([0.15, 0.3, 0.6]))
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_algorithm1_is_the_papers_text(case: Instance, radius: float) -> None:
    """Sections 3.1 and 3.2. Loads and distances differ, so the optimum of a programme is unique."""
    expected = Transcription(case, radius, radius).run()
    assume(expected is not None)
    variant = algorithm1.Variant(first_radius=radius, step=radius)
    method = replace(METHODS["algorithm1"], arguments={"variant": variant})
    made = plan(case, method, timer=timer(), success=0.0)  # no replica can be swapped
    moves = zip(made.move_partition, made.move_replica, made.move_to, strict=True)
    assert {(int(p), int(k)): int(to) for p, k, to in moves} == expected
    assert check(case, made, float(str(made.summary["cost"]))).valid


def problem_of(case: Instance) -> PlacementProblem:
    state = initial_state(case)
    selection = highest_load_first(case, state, trim=False)
    return assignment_problem(case, state, selection, None)


def test_the_heaviest_object_goes_where_a_lighter_one_would_do() -> None:
    """Phase 1 of section 3.2; `algorithm1-pruned` takes the lightest last object."""
    case = instance([[0], [0], [1]], [3, 2, 1], [3, 9], secondary=[0, 0, 0])
    for name, partition in (("algorithm1", 0), ("alp", 0), ("algorithm1-pruned", 1)):
        made = plan(case, name, timer=timer())
        assert made.move_partition.tolist() == [partition], name


def test_the_radius_grows_until_there_is_room() -> None:
    case = instance([[0], [0], [1], [2]], [3, 2, 4, 4], [3, 4, 4, 9])
    variant = algorithm1.Variant(first_radius=1.0, step=1.0)
    placement = algorithm1.place(problem_of(case), timer(), variant)
    assert placement.move_to.tolist() == [3]
    assert placement.notes == {"radius": 3.0, "programmes": 3}


def test_an_object_that_a_programme_splits_goes_where_it_fits_whole() -> None:
    """The text is silent: half of the object fits on each near node, the whole on none of them."""
    case = instance([[0], [1], [2]], [4, 1, 1], [3, 3, 3, 9], xy=[(0, 0), (1, 0), (0, 1), (5, 0)])
    variant = algorithm1.Variant(first_radius=1.0, step=1.0)
    placement = algorithm1.place(problem_of(case), timer(), variant)
    assert placement.move_to.tolist() == [3]
    assert placement.notes["radius"] == 5.0


def test_an_object_that_fits_nowhere_leaves_the_others_their_programmes() -> None:
    case = instance([[0], [1], [1], [2]], [50, 3, 2, 1], [5, 3, 9])
    placement = algorithm1.place(problem_of(case), timer())
    assert placement.move_to.tolist() == [UNPLACED, 2]


def test_objects_with_overlapping_regions_are_merged() -> None:
    xy = [(0, 0), (1, 0), (2, 0), (10, 0), (11, 0)]
    case = instance([[0], [0], [2], [2], [3], [3]], [2] * 6, [2, 9, 2, 2, 9], xy=xy)
    problem = problem_of(case)
    everywhere = Nearest(problem.distance, np.arange(problem.nodes, dtype=np.int32))
    objects = np.arange(3)

    def merged(radius: float, divide: bool) -> list[list[int]]:
        groups = algorithm1.merge_objects(problem, everywhere, objects, radius, divide)
        return [group.tolist() for group in groups]

    assert merged(0.5, True) == [[0], [1], [2]]
    assert merged(1.0, True) == [[0, 1], [2]]
    assert merged(9.0, True) == merged(1.0, False) == [[0, 1, 2]]
    found, target = algorithm1.find_target_nodes(problem, everywhere, objects, 1.0)
    assert list(zip(found.tolist(), target.tolist(), strict=True)) == [(0, 1), (1, 1), (2, 4)]
