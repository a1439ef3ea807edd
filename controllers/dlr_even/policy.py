"""dlr-even: primaries in proportion to what each disk, disturbed as it is, serves.

DLR's affinities leave three gaps: a hash fills calm OSDs unevenly, hot OSDs keep a share that
nobody has measured, and a hotspot takes several steps. dlr-pg closed the first and third by swaps
of single PGs, with a fixed capacity for a hot OSD. Here the capacity is measured.

- `rates.py`: service and delay of each OSD's disk from its reads, their latency and its pressure;
- `primaries.py`: what is maximised (the throughput of a closed network), and how;
- here: which windows count (`hot_of`), and the price of a step. A step is one map epoch, during
  which peering stalls readers. It is taken only if the predicted throughput over the next `horizon`
  intervals pays for the stall, and out of dlr-pg's budget of stalled time.

PGs that another user pinned, and PGs that are not where CRUSH wants them, are left alone. After a
calm period the swaps are undone: a pinned PG ignores CRUSH.

Memory: `sums` of `rates.remember`; `reads` by PG, faded alike; `windows`, for each OSD the last
windows in which it was disturbed (1) or not (0); the `pinned` PGs with their old order; `stall_s`,
`calm`, and `plan`, the last prediction: requests in flight, throughput as it is and as planned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controllers.common.base import ParameterPolicy
from controllers.common.parameters import integer, number
from controllers.contract import State
from controllers.dlr_even.primaries import best_primaries, rate_of, weights
from controllers.dlr_even.rates import DiskRates, in_flight_of, rates_of, remember
from controllers.dlr_pg.swaps import SwapProblem, movable, pins_after, swap_action
from schemas.closed_network import Station
from testbed.stores.contract import (
    ACTIVITY,
    LATENCY,
    OSDS,
    PG_UPMAP,
    PGS,
    PRESSURE,
    Action,
    ClearUpmap,
    Needs,
    Observation,
)

_DIGITS = 3
_HIDDEN = 0.95  # least part of the requests in flight that a window shows of the one before


@dataclass(frozen=True)
class DlrEvenParameters:
    """Memory of measurements, price of a step. None of them is a disk's capacity."""

    fade: float = number(0.5, 0, 1, "weight of what was measured one window earlier")
    window_s: float = number(3600.0, 0.1, 3600, "seconds of a window, at most one interval")
    confirm: int = integer(1, 1, 100, "disturbed windows that make an OSD hot")
    among: int = integer(1, 1, 100, "last windows among which these are counted")
    in_flight_per_osd: float = number(2.0, 0.1, 1000, "requests for each OSD while none is seen")
    max_swaps: int = integer(128, 1, 100_000, "swaps in one step")
    stall_s: float = number(1.0, 0, 60, "seconds that readers stall for each map epoch (peering)")
    stall_hot_s: float = number(2.0, 0, 60, "the same for PGs on a disturbed OSD")
    stall_share: float = number(0.1, 0.001, 1, "share of the time that may be spent stalling")
    stall_burst_s: float = number(2.0, 0, 600, "seconds of stall that may be saved up")
    horizon: float = number(4.0, 1, 1000, "windows within which a step must pay for its stall")
    calm_steps: int = integer(2, 1, 1000, "windows of calm after which all swaps are undone")


class DlrEven(ParameterPolicy[DlrEvenParameters]):
    """DLR by swaps, with measured rates."""

    name = "dlr-even"
    needs = Needs(frozenset({PRESSURE, OSDS, PGS, ACTIVITY, LATENCY}), frozenset({PG_UPMAP}))
    parameters_type = DlrEvenParameters

    def initial(self) -> State:
        """Return the first state: nothing measured, nothing pinned, the whole budget."""
        burst = self._p.stall_burst_s
        empty: dict[str, Any] = {"sums": {}, "reads": {}, "windows": {}, "pinned": {}}
        return empty | {
            "disturbed": [],
            "in_flight": 0.0,
            "service_s": None,
            "stall_s": burst,
            "calm": 0,
            "plan": None,
        }

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Decide on at most one step of swaps, or the undoing of all."""
        after, rates = self._measured(state, observation)
        return after, self._stepped(state, after, rates, observation)

    def _stepped(
        self,
        state: State,
        after: dict[str, Any],
        rates: DiskRates,
        observation: Observation,
        left_alone: frozenset[str] = frozenset(),
    ) -> list[Action]:
        """Return the swaps of at most one step, without the PGs `left_alone`; complete `after`.
        Once all is calm, swaps are undone, but PGs `moved` stay where their data is."""
        p = self._p
        known = {pg.id: pg for pg in observation.pgs}
        pinned = {pg: old for pg, old in state["pinned"].items() if pg in known and known[pg].upmap}
        budget = min(p.stall_burst_s, state["stall_s"] + p.stall_share * observation.interval_s)
        calm = 0 if after["disturbed"] else min(p.calm_steps, state["calm"] + 1)
        moved = after.get("moved", ())
        actions: list[Action] = []
        # A stall price above the whole burst would block every step.
        if budget >= min(p.stall_s, p.stall_burst_s):
            if rates.disturbed:
                actions, after["plan"] = self._swaps(
                    observation, rates, after["reads"], pinned, left_alone
                )
            elif calm >= p.calm_steps:
                actions = [ClearUpmap(pg) for pg in sorted(pinned) if pg not in moved]
        if actions:
            budget = max(0.0, budget - p.stall_s)
        after |= {
            "pinned": pins_after(pinned, known, actions),
            "stall_s": round(budget, 6),
            "calm": calm,
        }
        return actions

    def _measured(self, state: State, observation: Observation) -> tuple[dict[str, Any], DiskRates]:
        """Return the memory after this window, and the rates that it gives."""
        p = self._p
        up = frozenset(osd.id for osd in observation.osds if osd.up and osd.in_)
        window = remember({}, observation, 0.0)
        # A stall hides requests: they wait for no disk.
        in_flight = max(in_flight_of(window), _HIDDEN * state["in_flight"])
        assumed = in_flight or p.in_flight_per_osd * len(up)
        now = rates_of(window, observation.pressure, up, assumed, state["service_s"])
        seen = self._disturbed(now, observation)
        windows = {
            str(osd): [*state["windows"].get(str(osd), []), int(osd in seen)][-p.among :]
            for osd in sorted(up)
        }
        # Latencies from before an OSD was disturbed, or released, say nothing about it now.
        same = {
            osd: sums
            for osd, sums in state["sums"].items()
            if osd in windows and windows[osd][-1] == int(osd in state["disturbed"])
        }
        sums = remember(same, observation, p.fade)
        hot = {int(osd) for osd, flags in windows.items() if flags[-1] and sum(flags) >= p.confirm}
        known_s = state["service_s"]
        if sums:
            service_s = rates_of(sums, observation.pressure, up, assumed, None).service_s
            known_s = service_s if known_s is None else p.fade * known_s + (1 - p.fade) * service_s
        rates = rates_of(sums, observation.pressure, up, assumed, known_s)
        stations = {
            osd: station if osd in hot else Station(0.0, station.service_s)
            for osd, station in rates.stations.items()
        }
        activity = observation.activity
        reads = {
            pg: round(p.fade * state["reads"].get(pg, 0.0) + rate.reads * observation.interval_s, 3)
            for pg, rate in (activity.pgs if activity else {}).items()
        }
        after: dict[str, Any] = {"sums": sums, "reads": reads, "windows": windows, "plan": None}
        after["service_s"] = None if known_s is None else round(known_s, 6)
        after["in_flight"] = round(in_flight, _DIGITS)
        after["disturbed"] = [osd for osd, flags in windows.items() if flags[-1]]
        return after, replace(rates, stations=stations, disturbed=frozenset(hot))

    def _disturbed(self, now: DiskRates, observation: Observation) -> frozenset[int]:
        """Return the OSDs that are disturbed in this window."""
        return now.disturbed

    def _swaps(
        self,
        observation: Observation,
        rates: DiskRates,
        reads: Mapping[str, float],
        pinned: Mapping[str, Any],
        left_alone: frozenset[str],
    ) -> tuple[list[Action], dict[str, Any] | None]:
        """Return the step's swaps, none if they would not pay for their stall, and the plan."""
        p = self._p
        problem = problem_of(observation, rates, reads, pinned, left_alone)
        if problem is None:
            return [], None
        horizon_s = p.horizon * observation.interval_s
        now = rate_of(problem, rates.stations, rates.in_flight)
        best, step = now, dict[str, int]()
        # Where the whole step does not pay, one that leaves disturbed OSDs alone, and so stalls
        # readers less, may.
        for fixed in (frozenset[int](), rates.disturbed):
            if step:
                break
            part = _without(problem, fixed)
            chosen = best_primaries(part, rates.stations, rates.in_flight, p.max_swaps)
            then = rate_of(problem, rates.stations, rates.in_flight, chosen)
            lost_s = p.stall_s + self._lost_s(problem, chosen, rates, then)
            worth = then * (1 - lost_s / horizon_s)
            if chosen and worth > best:
                best, step = worth, chosen
        facts = {"in_flight": rates.in_flight, "now": now, "worth": best}
        words = {name: round(value, _DIGITS) for name, value in facts.items()}
        by_id = {pg.id: pg for pg in observation.pgs}
        return [swap_action(by_id[pg], osd, pinned) for pg, osd in sorted(step.items())], words

    def _lost_s(
        self, problem: SwapProblem, chosen: Mapping[str, int], rates: DiskRates, rate: float
    ) -> float:
        """Return the seconds of throughput that the step's stalls cost.

        A swapped PG stalls for T, long behind a disturbed disk. Each of the N requests in flight
        starts anew rate / N times a second, and is stuck once it meets one of the stalled part f:
        T - (1 - exp(-a T)) / a seconds are lost on average, a = f rate / N."""
        p = self._p
        lost = 0.0
        for hot, stall_s in ((False, p.stall_s), (True, p.stall_hot_s)):
            part = math.fsum(
                problem.loads[pg]
                for pg in chosen
                if hot == any(osd in rates.disturbed for osd in problem.movable[pg])
            )
            each = part * rate / rates.in_flight
            if each * stall_s > 1e-9:
                lost += stall_s + math.expm1(-each * stall_s) / each
        return lost


def problem_of(
    observation: Observation,
    rates: DiskRates,
    reads: Mapping[str, float],
    pinned: Mapping[str, Any],
    left_alone: frozenset[str] = frozenset(),
) -> SwapProblem | None:
    """Return the PGs that are served, with their loads, and those that may be swapped."""
    served = [pg for pg in observation.pgs if pg.primary in rates.stations]
    if not served:
        return None
    return SwapProblem(
        movable={pg.id: pg.up for pg in served if pg.id not in left_alone and movable(pg, pinned)},
        primaries={pg.id: pg.primary for pg in served},
        loads=weights(served, reads),
        capacity=dict.fromkeys(rates.stations, 1.0),
    )


def _without(problem: SwapProblem, osds: frozenset[int]) -> SwapProblem:
    """Return the problem with the PGs of these OSDs left where they are."""
    movable = {pg: up for pg, up in problem.movable.items() if not osds.intersection(up)}
    return replace(problem, movable=movable)


create = DlrEven.create
