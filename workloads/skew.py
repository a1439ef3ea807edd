"""Rates of writes to each placement group so that every OSD gets its intended load.

Section 5.2 of Ursa: "T writes/s messages for the hot-spots (20% of all the nodes) and 0.4T writes/s
messages for the other nodes"; a write to a group loads every OSD that holds a replica of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

ROUNDS = 2000
GOOD_ENOUGH = 1e-4


def hot_osds(osds: Sequence[int], count: int, seed: int) -> tuple[int, ...]:
    """Return `count` of `osds`, drawn by `seed`: the same for every cell of a block."""
    drawn = random.Random(f"hot-osds/{seed}").sample(sorted(osds), count)
    return tuple(sorted(drawn))


def skewed_rates(
    placement: Mapping[str, Sequence[int]], targets: Mapping[int, float]
) -> dict[str, float]:
    """Return writes per second by PG so that each OSD's sum meets its target, as far as possible.

    Among all such rates the most equal are taken (generalised iterative scaling: the largest
    entropy), so that no group alone carries a node's heat.

    Args:
        placement: OSDs that hold each PG.
        targets: writes per second on each OSD, including replicas'; other OSDs have no target.
    """
    rates = {pg: 1.0 for pg, osds in placement.items() if osds}
    size = max((len(osds) for osds in placement.values()), default=1)
    for _ in range(ROUNDS):
        now = osd_rates(placement, rates)
        off = {osd: _ratio(wanted, now.get(osd, 0.0)) for osd, wanted in targets.items()}
        if all(abs(ratio - 1.0) < GOOD_ENOUGH for ratio in off.values()):
            break
        power = {osd: ratio ** (1.0 / size) for osd, ratio in off.items()}
        rates = {
            pg: rate * math.prod(power.get(osd, 1.0) for osd in placement[pg])
            for pg, rate in rates.items()
        }
    return rates


def rates_on_one(placement: Mapping[str, Sequence[int]], osd: int, rate: float) -> dict[str, float]:
    """Return rates of `rate` writes per second to `osd` in total, evenly over its PGs."""
    mine = [pg for pg, osds in placement.items() if osd in osds]
    return {pg: rate / len(mine) for pg in sorted(mine)}


def osd_rates(
    placement: Mapping[str, Sequence[int]], rates: Mapping[str, float]
) -> dict[int, float]:
    """Return the writes per second on each OSD."""
    found: dict[int, float] = {}
    for pg, rate in rates.items():
        for osd in placement[pg]:
            found[osd] = found.get(osd, 0.0) + rate
    return found


def worst_miss(
    placement: Mapping[str, Sequence[int]],
    rates: Mapping[str, float],
    targets: Mapping[int, float],
) -> float:
    """Return the largest deviation of an OSD's rate, as a part of its target."""
    now = osd_rates(placement, rates)
    return max(
        (abs(now.get(osd, 0.0) - wanted) / wanted for osd, wanted in targets.items() if wanted > 0),
        default=0.0,
    )


def _ratio(wanted: float, now: float) -> float:
    return wanted / now if now > 0 else 1.0
