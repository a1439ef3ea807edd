"""DLR's signal, but swaps of single placement groups instead of affinities.

DLR (Noel and Lama, Algorithm 1) leaves three gaps, because a hash picks what an OSD's affinity
moves. PGs with only hot replicas stay where they are, calm OSDs are filled unevenly, and a
hotspot takes several steps. Here a pg-upmap puts another OSD of the same PG first, no data moves,
and all swaps of a step form one map epoch.

- `capacity.py`: the hot OSDs and the load that they should still carry;
- `swaps.py`: the swaps that match loads to capacities;
- here: the price of a step. Peering stalls readers for about a second at each epoch. A step is
  taken only if the closed-network model predicts that throughput over the next `horizon`
  intervals pays for it, and only out of a budget of stalled time.

PGs that were pinned by another user, and PGs that are not where CRUSH wants them, are left alone.
After a calm period the swaps are undone: a pinned PG ignores CRUSH.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.common.affinity import sensed
from controllers.common.base import ParameterPolicy
from controllers.common.closed_network import throughput
from controllers.contract import State
from controllers.dlr_pg.capacity import DlrPgParameters, capacities
from controllers.dlr_pg.swaps import (
    SwapProblem,
    movable,
    osd_loads,
    pg_loads,
    pins_after,
    plan,
    swap_action,
)
from testbed.stores.contract import (
    OSDS,
    PG_UPMAP,
    PGS,
    PRESSURE,
    Action,
    ClearUpmap,
    Needs,
    Observation,
)


class DlrPg(ParameterPolicy[DlrPgParameters]):
    """DLR by swaps. Its memory: capacities below 1, pinned PGs with their old order, the budget."""

    name = "dlr-pg"
    needs = Needs(frozenset({PRESSURE, OSDS, PGS}), frozenset({PG_UPMAP}))
    parameters_type = DlrPgParameters

    def initial(self) -> State:
        """Return the first state: all calm, nothing pinned, the whole budget."""
        return {"capacity": {}, "pinned": {}, "stall_s": self._p.stall_burst_s, "calm": 0}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Decide on at most one step of swaps, or the undoing of all."""
        p = self._p
        capacity = self._capacity(state, observation)
        hot = any(value < 1 for value in capacity.values())
        known = {pg.id: pg for pg in observation.pgs}
        pinned: dict[str, Any] = {
            pg: order for pg, order in state["pinned"].items() if pg in known and known[pg].upmap
        }
        budget = min(p.stall_burst_s, state["stall_s"] + p.stall_share * observation.interval_s)
        calm = 0 if hot else min(p.calm_steps, state["calm"] + 1)
        actions: list[Action] = []
        # A stall price above the whole burst would block every step.
        if budget >= min(p.stall_s, p.stall_burst_s):
            if hot:
                actions = self._swaps(observation, capacity, pinned)
            elif calm >= p.calm_steps:
                actions = [ClearUpmap(pg) for pg in sorted(pinned)]
        if actions:
            budget = max(0.0, budget - p.stall_s)
        return {
            "capacity": {str(osd): w for osd, w in sorted(capacity.items()) if w < 1},
            "pinned": pins_after(pinned, known, actions),
            "stall_s": budget,
            "calm": calm,
        }, actions

    def _capacity(self, state: State, observation: Observation) -> dict[int, float]:
        before = {int(osd): float(value) for osd, value in state["capacity"].items()}
        pressure = {osd: value for osd, (_, value) in sensed(observation).items()}
        after = capacities(before, pressure, self._p)
        return {osd.id: after.get(osd.id, 1.0) for osd in observation.osds if osd.up and osd.in_}

    def _swaps(
        self, observation: Observation, capacity: Mapping[int, float], pinned: Mapping[str, Any]
    ) -> list[Action]:
        """Return the step's swaps; empty if they would not pay for their stall."""
        p = self._p
        served = [pg for pg in observation.pgs if pg.primary in capacity]
        if not served:
            return []
        problem = SwapProblem(
            movable={pg.id: pg.up for pg in served if movable(pg, pinned)},
            primaries={pg.id: pg.primary for pg in served},
            loads=pg_loads(served, p.weigh),
            capacity=capacity,
        )
        chosen = plan(problem, p.margin, p.max_swaps)
        gain = self._rate(problem, chosen) / self._rate(problem, {})
        horizon_s = p.horizon * observation.interval_s
        if not chosen or gain * (horizon_s - p.stall_s) <= horizon_s:
            return []
        by_id = {pg.id: pg for pg in served}
        return [swap_action(by_id[pg], osd, pinned) for pg, osd in sorted(chosen.items())]

    def _rate(self, problem: SwapProblem, chosen: Mapping[str, int]) -> float:
        load = osd_loads({**problem.primaries, **chosen}, problem.loads, list(problem.capacity))
        demands = [load[osd] / problem.capacity[osd] for osd in load]
        # Sorted, so that the sums do not depend on the numbering of the OSDs.
        return throughput(sorted(demands), max(1.0, self._p.in_flight_per_osd * len(load)))


create = DlrPg.create
