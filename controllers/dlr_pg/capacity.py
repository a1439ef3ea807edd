"""How much of a calm OSD's load each OSD should carry, from the pressure on its node.

DLR's own tests (Algorithm 1: theta_h, theta_i, theta_l with the same meaning and the same
hysteresis between theta_l and theta_h) decide whether an OSD is hot. A hot one is not emptied: a
disk saturated by somebody else still serves its share of the queue, and closed-loop clients gain
most when every disk is used in proportion to what it can give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controllers.dlr_pg.parameters import Parameters

_STEP = 0.1  # a hot OSD's capacity is changed only by more than this: pressure is noisy


def target(pressure: float, p: Parameters) -> float:
    """The capacity of a hot OSD: falls from 1 at theta_h to `hot_capacity` at `full`."""
    span = max(1e-9, p.full - p.theta_h)
    return 1 - (1 - p.hot_capacity) * min(1.0, (pressure - p.theta_h) / span)


def capacities(
    before: Mapping[int, float], pressure: Mapping[int, float], p: Parameters
) -> dict[int, float]:
    """The capacity of every OSD, 1 for a calm one.

    Args:
        before: the previous interval's capacities; an OSD that is absent had 1.
        pressure: percent, of the OSDs that are up and could be sensed; the others keep theirs.
    """
    after = dict(before)
    if not pressure:
        return after
    average = math.fsum(pressure.values()) / len(pressure)
    for osd, value in pressure.items():
        old = before.get(osd, 1.0)
        if value > p.theta_h:
            if (value - average) / value > p.theta_i:
                new = target(value, p)
                after[osd] = new if old == 1.0 or abs(new - old) > _STEP else old
        elif value < p.theta_l:
            after[osd] = 1.0
    return after
