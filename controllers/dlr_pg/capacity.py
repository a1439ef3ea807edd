"""Parameters of dlr-pg, and the share of a calm OSD's load that each OSD should carry, computed
from the pressure on its node.

DLR's own tests find the hot OSDs (Algorithm 1: theta_h, theta_i, theta_l with the same meaning and
the same hysteresis between theta_l and theta_h). A hot OSD is not emptied: a disk saturated by
another user still serves its share of the queue, and closed-loop clients gain most when every disk
is used in proportion to its capacity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.parameters import choice, integer, number

_STEP = 0.1  # smallest change of a hot OSD's capacity: pressure is noisy


@dataclass(frozen=True)
class DlrPgParameters:
    """DLR's thresholds, the capacity of a hot disk, and the price of swapping."""

    theta_h: float = number(50.0, 0, 100, "pressure, percent, above which an OSD may be hot")
    theta_i: float = number(0.2, 0, 1, "relative excess over the mean that counts as imbalance")
    theta_l: float = number(20.0, 0, 100, "pressure, percent, below which an OSD is calm")
    full: float = number(90.0, 1, 100, "pressure, percent, at which a hot OSD has hot_capacity")
    hot_capacity: float = number(0.35, 0.01, 1, "load of a saturated OSD relative to a calm one")
    weigh: str = choice("bytes", ("bytes", "count"), "what a PG's load is taken to follow")
    in_flight_per_osd: float = number(2.0, 0.1, 1000, "requests in flight for each OSD")
    margin: float = number(0.2, 0, 10, "excess over break-even that one swap must bring")
    max_swaps: int = integer(64, 1, 100_000, "swaps in one step")
    stall_s: float = number(1.0, 0, 60, "seconds that readers stall for each map epoch (peering)")
    stall_share: float = number(0.1, 0.001, 1, "share of the time that may be spent stalling")
    stall_burst_s: float = number(2.0, 0, 600, "seconds of stall that may be saved up")
    horizon: float = number(4.0, 1, 1000, "intervals within which a step must pay for its stall")
    calm_steps: int = integer(2, 1, 1000, "intervals of calm after which all swaps are undone")


def target(pressure: float, p: DlrPgParameters) -> float:
    """Return the capacity of a hot OSD: it falls from 1 at theta_h to `hot_capacity` at `full`."""
    span = max(1e-9, p.full - p.theta_h)
    return 1 - (1 - p.hot_capacity) * min(1.0, (pressure - p.theta_h) / span)


def capacities(
    before: Mapping[int, float], pressure: Mapping[int, float], p: DlrPgParameters
) -> dict[int, float]:
    """Return the capacity of every OSD, 1 for a calm OSD. `before`: the previous interval's
    capacities; an OSD that is absent had 1. `pressure`: percent, of the OSDs that are up and could
    be sensed; the others keep theirs."""
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
