"""dlr-move: dlr-fast, and replicas are moved where primaries alone cannot follow the disks.

Two papers joined: DLR finds the disturbed disks and shifts reads by primaries, which costs no data;
Ursa's planner moves the fewest replicas that are then still needed. `moves.py` says what is
planned, and estimates if it pays back within the rest of the hotspot; each estimate is journalled.

- A plan is made when primaries have settled (no step in this window), reads have been measured, the
  same OSDs have been hot for a whole `settle_s`, and nothing is on its way.
- A hotspot is expected to stay as long again as it has stayed, or for what is left of the mean of
  the hotspots that ended (before the first: of `expected_s`), if that is longer.
- Moves are given out at `recovery_mb_s` (a bucket of `burst_s` seconds). The estimate counts with
  the rate that earlier moves reached, if that is less. When the hot OSDs change, moves that have
  not been given out are dropped.
- Moved replicas stay until the controller stops, which restores the store: moving back costs the
  same again.

Memory besides that of dlr-even: `queue`, moves not yet given out; `moved`, PGs moved; `credit`,
10^6 bytes that may be given out; `copied`, 10^6 bytes given out and the seconds in which data was
on its way; `hot` with `age_s`; `stays`, number and seconds of the hotspots that ended; `move`, the
last estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controllers.common.parameters import number, read
from controllers.contract import State
from controllers.dlr_even.policy import DlrEven, problem_of
from controllers.dlr_even.rates import DiskRates
from controllers.dlr_fast.policy import DlrFastParameters
from controllers.dlr_move.moves import MoveTerms, best_moves
from controllers.ursa.live import UrsaParameters, give_out
from testbed.stores.contract import Action, MoveReplica, Observation


@dataclass(frozen=True)
class DlrMoveParameters(DlrFastParameters):
    """dlr-fast's parameters, and the terms of moves."""

    window_s: float = number(5.0, 0.1, 3600, "seconds of a window, at most one interval")
    expected_s: float = number(
        0.0, 0, 1e7, "seconds that hotspots are expected to stay; 0: not known"
    )
    recovery_mb_s: float = number(10.0, 0.001, 1e6, "10^6 bytes a second that moves may copy")
    burst_s: float = number(20.0, 0, 3600, "seconds of unused recovery bandwidth that are kept")
    moving_cost: float = number(0.2, 0, 1, "part of the throughput lost while data moves")
    least_gain: float = number(0.05, 0, 10, "least estimated gain in reads over the hotspot's rest")
    settle_s: float = number(10.0, 0, 3600, "seconds with the same hot OSDs before any plan")


class DlrMove(DlrEven):
    """dlr-fast with moves."""

    name = "dlr-move"

    def __init__(self, parameters: DlrMoveParameters, seed: int) -> None:
        super().__init__(parameters)
        self._m = parameters
        self._seed = seed

    def initial(self) -> State:
        """Return the first state: nothing is queued, and no hotspot has been seen."""
        moving: dict[str, Any] = {"queue": [], "moved": [], "credit": 0.0, "move": None}
        moving["copied"] = [0.0, 0.0]
        return {**super().initial(), **moving, "hot": [], "age_s": 0.0, "stays": [0, 0.0]}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Decide on swaps as dlr-fast does, then on moves."""
        after, rates = self._measured(state, observation)
        self._aged(state, after, rates, observation)
        queued = {item[1] for item in after["queue"]}
        actions = self._stepped(state, after, rates, observation, frozenset(queued))
        credit = state["credit"] + self._m.recovery_mb_s * observation.interval_s
        after["credit"] = min(credit, self._m.recovery_mb_s * self._m.burst_s)
        activity = observation.activity
        unclean = set(activity.unclean) if activity else set()
        copied, seconds = state["copied"]
        on_the_way = observation.interval_s if unclean.intersection(after["moved"]) else 0.0
        after["copied"] = [copied, round(seconds + on_the_way, 3)]
        if not after["queue"] and not actions and activity and not unclean:
            self._plan(after, rates, observation)
        moves = self._moves(after, observation, unclean) if after["queue"] else []
        return after, [*actions, *moves]

    def _aged(
        self, state: State, after: dict[str, Any], rates: DiskRates, observation: Observation
    ) -> None:
        hot = sorted(rates.disturbed)
        count, seconds = state["stays"]
        age_s = state["age_s"] + observation.interval_s
        if hot != state["hot"]:
            if state["hot"]:
                count, seconds = count + 1, round(seconds + state["age_s"], 3)
            age_s = 0.0
        same = hot == state["hot"]
        after |= {"hot": hot, "age_s": round(age_s, 3), "stays": [count, seconds]}
        after |= {"queue": state["queue"] if same else [], "moved": state["moved"]}
        after |= {"move": state["move"] if same else None, "credit": state["credit"]}

    def _plan(self, after: dict[str, Any], rates: DiskRates, observation: Observation) -> None:
        """Queue the moves that pay; journal the estimate of the best plan, also if it does not."""
        m = self._m
        known = after["hot"] and after["sums"] and after["age_s"] >= m.settle_s
        problem = problem_of(observation, rates, after["reads"], after["pinned"]) if known else None
        if problem is None:
            return
        count, seconds = after["stays"]
        expected_s = seconds / count if count else m.expected_s
        rest_s = max(expected_s - after["age_s"], after["age_s"])
        copied, took_s = after["copied"]
        mb_s = min(m.recovery_mb_s, copied / took_s) if took_s else m.recovery_mb_s
        terms = MoveTerms(max(mb_s, 1e-3) * 1e6, m.moving_cost, rest_s)
        sizes = {pg.id: pg.bytes for pg in observation.pgs}
        found = best_moves(problem, rates, observation.osds, sizes, terms, seed=self._seed)
        if found is None:
            return
        pays = found.gain > m.least_gain
        after["move"] = found.words() | {"rest_s": round(rest_s, 1), "pays": pays}
        if pays:
            after["queue"] = [["move", *move] for move in found.moves]

    def _moves(
        self, after: dict[str, Any], observation: Observation, unclean: set[str]
    ) -> list[Action]:
        """Give out the next moves of the queue, as many as the recovery bandwidth allows."""
        sizes = {pg.id: pg.bytes / 1e6 for pg in observation.pgs}
        under_way = math.fsum(sizes.get(pg, 0.0) for pg in unclean)
        limits = replace(UrsaParameters(), max_recovery_mb=under_way + after["credit"])
        step = give_out(after["queue"], observation, unclean, limits)
        moved = [action.pg for action in step.actions if isinstance(action, MoveReplica)]
        after["queue"] = step.left
        given = math.fsum(sizes[pg] for pg in moved)
        after["credit"] = max(0.0, after["credit"] - given)
        after["copied"][0] = round(after["copied"][0] + given, 3)
        after["moved"] = sorted({*after["moved"], *moved})
        orders = {pg.id: list(pg.up) for pg in observation.pgs if pg.id in moved}
        after["pinned"] = dict(sorted({**orders, **after["pinned"]}.items()))
        return list(step.actions)


def create(parameters: Mapping[str, object], seed: int) -> DlrMove:
    """Create the policy; `seed` is the planner's."""
    return DlrMove(read(DlrMoveParameters, "dlr-move", parameters), seed)
