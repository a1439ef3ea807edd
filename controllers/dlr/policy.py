"""DLR's dynamic affinity control (Noel and Lama, section IV-C, Algorithm 1), to the letter.

Once an interval, for every OSD i with %iowait iow_i and primary affinity a_i::

    if iow_i > theta_h:
        delta_1 = (iow_i - theta_h) / 100
        phi_i = (iow_i - avg) / iow_i
        if phi_i > theta_i:
            delta_2 = phi_i - theta_i
            a_i = max(0.1, a_i - (delta_1 + delta_2))
    elif iow_i < theta_l and a_i < 1:
        a_i = 1

Three oddities are kept as printed. phi is relative to the OSD's own value, not to the mean. A
decrease is in steps but the increase goes straight to 1. An OSD between theta_l and theta_h keeps
its affinity, and so does an OSD above theta_h while all are about equally high.

Where the paper is silent: an OSD that is down, out, or on an unsensed node is neither counted in n
nor changed; a_i comes from the OSD map, so a failed action is tried again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controllers.common.affinity import changes, sensed
from controllers.common.base import ParameterPolicy
from controllers.common.parameters import number
from controllers.contract import State
from testbed.stores.contract import OSDS, PRESSURE, PRIMARY_AFFINITY, Action, Needs, Observation

FLOOR = 0.1


@dataclass(frozen=True)
class DlrParameters:
    """Thresholds (section IV-D)."""

    theta_h: float = number(50.0, 0, 100, "pressure, percent, above which an OSD may be decreased")
    theta_i: float = number(0.2, 0, 1, "relative excess over the mean that counts as imbalance")
    theta_l: float = number(20.0, 0, 100, "pressure, percent, below which an OSD goes back to 1")


class Dlr(ParameterPolicy[DlrParameters]):
    """Algorithm 1. It has no memory: the observation holds everything it needs."""

    name = "dlr"
    needs = Needs(frozenset({PRESSURE, OSDS}), frozenset({PRIMARY_AFFINITY}))
    parameters_type = DlrParameters

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Run one round of the outer loop."""
        p = self._p
        osds = sensed(observation)
        if not osds:
            return state, []
        average = math.fsum(iow for _, iow in osds.values()) / len(osds)
        wanted: dict[int, float] = {}
        for osd, iow in osds.values():
            alpha = osd.primary_affinity
            if iow > p.theta_h:
                delta_1 = (iow - p.theta_h) / 100
                phi = (iow - average) / iow
                if phi > p.theta_i:
                    delta_2 = phi - p.theta_i
                    wanted[osd.id] = max(FLOOR, alpha - (delta_1 + delta_2))
            elif iow < p.theta_l and alpha < 1:
                wanted[osd.id] = 1.0
        return state, changes(observation, wanted)


create = Dlr.create
