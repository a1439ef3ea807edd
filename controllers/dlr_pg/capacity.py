"""Share of a calm OSD's load that each OSD should carry, from the pressure on its node.

DLR's own tests find the hot OSDs (Algorithm 1: theta_h, theta_i, theta_l with the same meaning and
the same hysteresis between theta_l and theta_h). A hot OSD is not emptied: a disk saturated by
another user still serves its share of the queue, and closed-loop clients gain most when every disk
is used in proportion to its capacity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from controllers.dlr_pg.parameters import DlrPgParameters

_STEP = 0.1  # smallest change of a hot OSD's capacity: pressure is noisy


def target(pressure: float, p: DlrPgParameters) -> float:
    """Return the capacity of a hot OSD: it falls from 1 at theta_h to `hot_capacity` at `full`."""
    span = max(1e-9, p.full - p.theta_h)
    return 1 - (1 - p.hot_capacity) * min(1.0, (pressure - p.theta_h) / span)


def capacities(
    before: Mapping[int, float], pressure: Mapping[int, float], p: DlrPgParameters
) -> dict[int, float]:
    """Return the capacity of every OSD, 1 for a calm OSD.

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
