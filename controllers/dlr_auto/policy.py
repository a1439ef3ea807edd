"""DLR with thresholds from the signal, the paper's future work (section VII).

The authors tuned DLR's 50 / 0.2 / 20 by hand for %iowait on two cores (section IV-D). On another
signal or machine these thresholds may never fire. Here every interval's pressures enter a fading
histogram. If it has two clusters with means `low` and `high`, theta_h and theta_l are a fraction of
the way between them, and theta_i is what the clusters' own scatter cannot explain. Without two
clusters the last thresholds stay; before the first ones the policy does nothing.

The law is Algorithm 1's, but delta_1 is relative to the distance between the clusters instead of to
100, so that a decrease does not depend on the signal's scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from controllers.common.affinity import changes, sensed
from controllers.common.base import ParameterPolicy
from controllers.common.parameters import number
from controllers.contract import State
from controllers.dlr_auto.memory import BINS, Split, remember, split
from testbed.stores.contract import OSDS, PRESSURE, PRIMARY_AFFINITY, Action, Needs, Observation


@dataclass(frozen=True)
class DlrAutoParameters:
    """Parameters of the link from signal to thresholds."""

    floor: float = number(0.1, 0.01, 1, "lowest primary affinity")
    fade: float = number(0.7, 0, 0.99, "what the memory keeps from one interval to the next")
    separation: float = number(0.8, 0.5, 1, "share of variance between clusters that makes two")
    min_gap: float = number(10.0, 0, 100, "percent between the clusters' means that makes two")
    high_at: float = number(0.5, 0, 1, "theta_h, as a fraction of the way from low to high")
    low_at: float = number(0.25, 0, 1, "theta_l, as a fraction of the way from low to high")
    scatter: float = number(2.0, 0, 10, "standard deviations of a cluster that theta_i allows")


@dataclass(frozen=True)
class Thresholds:
    """Algorithm 1's thresholds, and the distance to which delta_1 is relative."""

    theta_h: float
    theta_i: float
    theta_l: float
    span: float


class DlrAuto(ParameterPolicy[DlrAutoParameters]):
    """DLR with automatic thresholds. Its memory: the histogram and the last thresholds."""

    name = "dlr-auto"
    needs = Needs(frozenset({PRESSURE, OSDS}), frozenset({PRIMARY_AFFINITY}))
    parameters_type = DlrAutoParameters

    def initial(self) -> State:
        """Return an empty histogram and no thresholds."""
        return {"memory": [0.0] * BINS, "thresholds": None}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Run one round of Algorithm 1 with the current thresholds."""
        osds = sensed(observation)
        if not osds:
            return state, []
        memory = remember(state["memory"], (iow for _, iow in osds.values()), self._p.fade)
        clusters = split(memory)
        thresholds = None if state["thresholds"] is None else Thresholds(**state["thresholds"])
        if clusters is not None and self._are_two(clusters):
            thresholds = self._thresholds(clusters)
        after = {
            "memory": [round(weight, 9) for weight in memory],
            "thresholds": None if thresholds is None else asdict(thresholds),
        }
        if thresholds is None:
            return after, []
        average = math.fsum(iow for _, iow in osds.values()) / len(osds)
        wanted = {
            osd.id: self._affinity(osd.primary_affinity, iow, average, thresholds)
            for osd, iow in osds.values()
        }
        return after, changes(observation, wanted)

    def _are_two(self, clusters: Split) -> bool:
        gap = clusters.high - clusters.low
        return gap >= self._p.min_gap and clusters.separation >= self._p.separation

    def _thresholds(self, clusters: Split) -> Thresholds:
        p = self._p
        span = clusters.high - clusters.low
        noise = p.scatter * max(clusters.low_sd, clusters.high_sd)
        return Thresholds(
            theta_h=clusters.low + p.high_at * span,
            theta_i=min(1.0, noise / clusters.high),
            theta_l=clusters.low + min(p.low_at, p.high_at) * span,
            span=span,
        )

    def _affinity(self, alpha: float, iow: float, average: float, t: Thresholds) -> float:
        if iow > t.theta_h:
            phi = (iow - average) / iow
            if phi > t.theta_i:
                delta_1 = (iow - t.theta_h) / t.span
                return max(self._p.floor, alpha - (delta_1 + phi - t.theta_i))
        elif iow < t.theta_l:
            return 1.0
        return alpha


create = DlrAuto.create
