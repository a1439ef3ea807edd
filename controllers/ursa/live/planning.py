"""Asks the planner, and says what it decided in the store's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float64, Int32
from controllers.ursa.live.problem import Problem
from controllers.ursa.plan import plan
from controllers.ursa.results import Plan, Timer
from controllers.ursa.state import initial_state

_SAME = 1e-9
_DIGITS = 3


@dataclass(frozen=True)
class Decision:
    """What is to be done.

    Attributes:
        swaps: (PG, the OSD that becomes its primary), in the order of application.
        moves: (PG, from OSD, to OSD), in the order of application.
        leads: (PG, OSD that is to lead it before a replica leaves): Ceph copies from leaders. Only
            of PGs whose replicas' loads are alike.
        expected: load of each OSD when all is done.
        words: JSON-able facts for the journal.
    """

    swaps: tuple[tuple[str, int], ...]
    moves: tuple[tuple[str, int, int], ...]
    leads: tuple[tuple[str, int], ...]
    expected: Mapping[int, float]
    words: Mapping[str, Any]


def decide(problem: Problem, method: str, seed: int) -> Decision:
    """Swaps and moves that relieve the hot OSDs of `problem`, by `method` of the planner.

    Many plans cost the same where distance has few values, and which of them a solver finds
    depends on its version. So where the plan that needs no solver (`greedy`) is as good as
    `alp`'s, which also proves how good that is, it is the one that is taken: a decision can then
    be recomputed anywhere.
    """
    found = _plan(problem, method, seed)
    bound = found.summary["lower_bound"]
    if method == "alp":
        plain = _plan(problem, "greedy", seed)
        if _no_worse(plain, found):
            found = plain
    return _told(problem, found, bound)


def _plan(problem: Problem, method: str, seed: int) -> Plan:
    # A clock that stands still: what is decided must not depend on how fast this machine is.
    return plan(problem.instance, method, timer=Timer(lambda: 0.0), seed=seed)


def _no_worse(plain: Plan, found: Plan) -> bool:
    left = len(plain.still_hot), len(found.still_hot)
    cost = float(str(plain.summary["cost"])), float(str(found.summary["cost"]))
    return left[0] < left[1] or (left[0] == left[1] and cost[0] <= cost[1] * (1 + _SAME))


def _told(problem: Problem, found: Plan, bound: object) -> Decision:
    instance, osds = problem.instance, problem.osds
    before = initial_state(instance)
    primary = before.primary.copy()
    swaps = []
    for partition, column in zip(found.swap_partition, found.swap_replica, strict=True):
        primary[partition] = column
        osd = osds[int(instance.replica_node[partition, column])]
        swaps.append((problem.pgs[int(partition)], osd))
    place = instance.replica_node.copy()
    moves, leads = [], []
    for partition, column, to in zip(
        found.move_partition, found.move_replica, found.move_to, strict=True
    ):
        source = osds[int(place[partition, column])]
        if instance.origin is not None:
            sender = int(instance.origin[partition, column])
            lead = (problem.pgs[int(partition)], osds[sender])
            alike = instance.primary_load[partition] == instance.secondary_load[partition]
            leads_already = int(place[partition, primary[partition]]) == sender
            if alike and not leads_already and sender in place[partition] and lead not in leads:
                leads.append(lead)
        moves.append((problem.pgs[int(partition)], source, osds[int(to)]))
        place[partition, column] = to
    after = problem.fixed + _load(problem, primary, place)
    now = problem.fixed + before.load
    hot = np.flatnonzero(problem.hot)
    words = {
        "threshold": round(problem.threshold, _DIGITS),
        "hot": {str(osds[i]): round(float(now[i]), _DIGITS) for i in hot},
        "still_hot": [osds[int(i)] for i in found.still_hot],
        "swaps": [list(swap) for swap in swaps],
        "moves": [list(move) for move in moves],
        "cost": round(float(str(found.summary["cost"])), _DIGITS),
        "lower_bound": None if bound is None else round(float(str(bound)), _DIGITS),
    }
    expected = {osd: round(float(load), _DIGITS) for osd, load in zip(osds, after, strict=True)}
    return Decision(tuple(swaps), tuple(moves), tuple(leads), expected, words)


def _load(problem: Problem, primary: NDArray[np.int8], place: Int32) -> Float64:
    """[N], load of what may be moved under other roles and places."""
    instance = problem.instance
    load = np.zeros(instance.nodes)
    for column in range(instance.replicas):
        leads = primary == column
        weights = np.where(leads, instance.primary_load, instance.secondary_load)
        load += np.bincount(place[:, column], weights.astype(np.float64), instance.nodes)
    return load
