"""The policy: measure at rest, decide once, give out step by step, wait for recovery, check.

Its memory (journalled with every step):

- ``window``: loads since the store was last at rest and unchanged (`loads.Window`);
- ``queue``: what was decided and has not been given out (`queue`);
- ``pinned``: PGs that this controller has swapped or moved;
- ``expected``: load of each OSD that the last decision predicts, until it has been checked;
- ``decision``: the last decision, in a dry run what would be done;
- ``check``: what was measured where ``expected`` was predicted;
- ``decisions``: how many times something was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.common.parameters import mapping
from controllers.contract import State
from controllers.ursa.live import loads
from controllers.ursa.live.parameters import Parameters
from controllers.ursa.live.planning import decide
from controllers.ursa.live.problem import build
from controllers.ursa.live.queue import give_out, is_whole, queue_of
from testbed.stores.contract import (
    ACTIVITY,
    OSDS,
    PG_UPMAP,
    PGS,
    Action,
    Needs,
    Observation,
)

_DIGITS = 3


class Steering:
    """A loop policy (`controllers.contract.LoopPolicy`) around one method of the planner.

    Args:
        name: the controller's.
        method: a name of `controllers.ursa.methods.METHODS`.
        parameters: see there.
        seed: of the planner.
    """

    needs = Needs(frozenset({OSDS, PGS, ACTIVITY}), frozenset({PG_UPMAP}))

    def __init__(self, name: str, method: str, parameters: Parameters, seed: int) -> None:
        self.name = name
        self._method = method
        self._p = parameters
        self._seed = seed

    def parameters(self) -> Mapping[str, object]:
        """Everything of `Parameters`."""
        return mapping(self._p)

    def initial(self) -> State:
        """Nothing measured, nothing decided."""
        return {
            "window": loads.empty(),
            "queue": [],
            "pinned": [],
            "expected": None,
            "decision": None,
            "check": None,
            "decisions": 0,
        }

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Goes on with what was decided, or waits, or measures, or decides anew."""
        after: dict[str, Any] = dict(state) | {"check": None}
        upmapped = {pg.id for pg in observation.pgs if pg.upmap}
        after["pinned"] = [pg for pg in state["pinned"] if pg in upmapped]
        activity = observation.activity
        unclean = set() if activity is None else set(activity.unclean)
        if state["queue"]:
            return self._go_on(after, observation, unclean)
        if unclean or activity is None:
            after["window"] = loads.empty()
            return after, []
        after["window"] = window = loads.add(state["window"], observation)
        if window["seconds"] < max(self._p.observe_s, 1e-3):
            return after, []
        return self._anew(after, observation)

    def _go_on(
        self, after: dict[str, Any], observation: Observation, unclean: set[str]
    ) -> tuple[State, Sequence[Action]]:
        step = give_out(after["queue"], observation, unclean, self._p)
        touched = {str(getattr(action, "pg", "")) for action in step.actions}
        after["queue"] = step.left
        after["pinned"] = sorted({*after["pinned"], *touched})
        after["window"] = loads.empty()
        if step.dropped:
            # What was predicted cannot come about any more.
            after["expected"] = None
        return after, step.actions

    def _anew(
        self, after: dict[str, Any], observation: Observation
    ) -> tuple[State, Sequence[Action]]:
        """Check the last decision against what has been measured since, then decide."""
        window = after["window"]
        measured = loads.osd_loads(window, self._p)
        by_pg = loads.pg_loads(window, self._p)
        after["window"] = loads.empty()
        problem = build(observation, by_pg, measured, after["pinned"], self._p)
        if problem is None:
            after["expected"] = None
            return after, []
        after["check"] = _check(after["expected"], measured, problem.threshold)
        after["expected"] = None
        most = self._p.max_decisions
        if not problem.hot.any() or 0 < most <= after["decisions"]:
            return after, []
        decision = decide(problem, self._method, self._seed)
        after["decision"] = dict(decision.words) | {"t_s": round(observation.t_s, _DIGITS)}
        after["decisions"] += 1
        queue = queue_of(decision, self._p)
        if self._p.dry_run or not queue:
            return after, []
        after["queue"] = queue
        if is_whole(decision, self._p):
            after["expected"] = {str(osd): load for osd, load in decision.expected.items()}
        return self._go_on(after, observation, set())


def _check(
    expected: Mapping[str, float] | None, measured: Mapping[int, float], threshold: float
) -> dict[str, Any] | None:
    """Predicted and measured load of each OSD, and the largest difference in thresholds."""
    if expected is None or not measured:
        return None
    pairs = {
        osd: [load, round(measured[int(osd)], _DIGITS)]
        for osd, load in expected.items()
        if int(osd) in measured
    }
    worst = max((abs(now - then) for then, now in pairs.values()), default=0.0)
    return {"loads": pairs, "worst": round(worst / threshold, _DIGITS) if threshold > 0 else None}
