"""Search for the placement groups that another of their OSDs should serve.

Loads L_i should follow capacities w_i: the separable convex cost sum(L_i^2 / 2 w_i) is least when
every L_i / w_i is equal as far as the PGs' replica sets allow (water-filling). A PG with only hot
replicas cannot leave them; the cost then splits the PG evenly and fills the calm OSDs evenly with
the rest. Steepest descent swaps one PG at a time, the largest improvement first, so that a step cut
short by its budget has done the most useful part. The cost falls with every swap: it terminates.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.stores.contract import Action, ClearUpmap, Pg, SwapPrimary


def movable(pg: Pg, pinned: Mapping[str, Any]) -> bool:
    """Return True if the PG is where CRUSH wants it, and nobody else has pinned it."""
    ours = pg.id in pinned
    return len(pg.up) > 1 and set(pg.up) == set(pg.acting) and (ours or not pg.upmap)


def swap_action(pg: Pg, osd: int, pinned: Mapping[str, Any]) -> Action:
    """Return the action that makes `osd` the PG's primary."""
    # Back to the first order: remove the pin instead of adding to it.
    if pg.id in pinned and pinned[pg.id][0] == osd and set(pinned[pg.id]) == set(pg.up):
        return ClearUpmap(pg.id)
    return SwapPrimary(pg.id, osd)


def pins_after(
    pinned: Mapping[str, Any], known: Mapping[str, Pg], actions: Sequence[Action]
) -> dict[str, Any]:
    """Return the pins after `actions`: cleared pins stay listed until the store shows them gone."""
    after = {pg: list(order) for pg, order in pinned.items()}
    for action in actions:
        if isinstance(action, SwapPrimary):
            after.setdefault(action.pg, list(known[action.pg].up))
    return dict(sorted(after.items()))


def pg_loads(pgs: Sequence[Pg], weigh: str) -> dict[str, float]:
    """Return each PG's share of the load (sums to 1): by its bytes, or equal if there are none."""
    total = math.fsum(pg.bytes for pg in pgs) if weigh == "bytes" else 0.0
    if total <= 0:
        return {pg.id: 1 / len(pgs) for pg in pgs}
    return {pg.id: pg.bytes / total for pg in pgs}


def osd_loads(
    primaries: Mapping[str, int], loads: Mapping[str, float], osds: Sequence[int]
) -> dict[int, float]:
    """Return the load on each of `osds`, given every PG's primary."""
    parts: dict[int, list[float]] = {osd: [] for osd in osds}
    for pg, primary in primaries.items():
        if primary in parts:
            parts[primary].append(loads[pg])
    return {osd: math.fsum(values) for osd, values in parts.items()}


@dataclass(frozen=True)
class SwapProblem:
    """PGs that may be swapped, the load of all PGs, and the capacity of every usable OSD."""

    movable: Mapping[str, tuple[int, ...]]  # PG -> its OSDs, in the order of its up set
    primaries: Mapping[str, int]  # PG -> the OSD that serves it now, immovable PGs as well
    loads: Mapping[str, float]
    capacity: Mapping[int, float]


class Descent:
    """Steepest descent with a heap of candidate swaps, re-evaluated where loads changed.

    Ties are broken by PG and by position in its up set, never by an OSD's number, so that
    renumbering the OSDs renumbers the result.
    """

    def __init__(self, problem: SwapProblem, margin: float) -> None:
        self._problem = problem
        self._margin = margin
        self.primaries = {pg: problem.primaries[pg] for pg in problem.movable}
        self._load = osd_loads(problem.primaries, problem.loads, list(problem.capacity))
        self._members: dict[int, list[str]] = defaultdict(list)
        self._heap: list[tuple[float, str, int]] = []
        for pg, osds in problem.movable.items():
            for position, osd in enumerate(osds):
                self._members[osd].append(pg)
                self._push(pg, position)

    def _improvement(self, pg: str, position: int) -> float:
        """Return the fall in cost if the OSD at `position` serves the PG; 0 if it is too small."""
        source, target = self.primaries[pg], self._problem.movable[pg][position]
        capacity = self._problem.capacity
        if source == target or target not in capacity or source not in capacity:
            return 0.0
        load = self._problem.loads[pg]
        w_source, w_target = capacity[source], capacity[target]
        gain = load * (self._load[source] / w_source - self._load[target] / w_target)
        price = load * load / 2 * (1 / w_source + 1 / w_target)
        return gain - price if gain > (1 + self._margin) * price else 0.0

    def _push(self, pg: str, position: int) -> None:
        value = self._improvement(pg, position)
        if value > 0:
            heapq.heappush(self._heap, (-value, pg, position))

    def step(self) -> bool:
        """Make the best swap; False if no swap is worth it."""
        while self._heap:
            stored, pg, position = heapq.heappop(self._heap)
            now = self._improvement(pg, position)
            if now <= 0:
                continue
            if now != -stored:  # loads changed since it was pushed
                heapq.heappush(self._heap, (-now, pg, position))
                continue
            self._swap(pg, self._problem.movable[pg][position])
            return True
        return False

    def _swap(self, pg: str, target: int) -> None:
        source = self.primaries[pg]
        self.primaries[pg] = target
        self._load[source] -= self._problem.loads[pg]
        self._load[target] += self._problem.loads[pg]
        # Only moves onto the OSD that became lighter and away from the heavier one got better.
        for other in self._members[source]:
            self._push(other, self._problem.movable[other].index(source))
        for other in self._members[target]:
            if self.primaries[other] == target:
                for position in range(len(self._problem.movable[other])):
                    self._push(other, position)


def plan(problem: SwapProblem, margin: float, max_swaps: int) -> dict[str, int]:
    """Map at most `max_swaps` PGs to their new primaries, the best swaps first."""
    descent = Descent(problem, margin)
    for _ in range(max_swaps):
        if not descent.step():
            break
    return {pg: osd for pg, osd in descent.primaries.items() if osd != problem.primaries[pg]}
