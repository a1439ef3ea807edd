"""Judge of a run: was the machine quiet enough?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from campaigns.papers.dlr.services import Load
from schemas.campaign import Limits

_GAP = 1.5  # a gap is longer than this many intervals; on a quiet machine 1.4 was the maximum


def spoiled(load: Load, limits: Limits) -> str | None:
    """Return why the run is spoiled; None if it counts. An unknown value does not spoil a run."""
    if load.steal is not None and load.steal > limits.steal:
        return (
            f"{100 * load.steal:.1f} % of the machine's time was stolen "
            f"(at most {100 * limits.steal:g} %)"
        )
    if load.outside_cores is not None and load.outside_cores > limits.outside_cores:
        return (
            f"{load.outside_cores:.2f} cores were used outside the testbed "
            f"(at most {limits.outside_cores:g})"
        )
    if load.client_share is not None and load.client_share > limits.client_share:
        return (
            f"the load generator used {100 * load.client_share:.0f} % of its CPU share "
            f"(at most {100 * limits.client_share:g} %)"
        )
    if load.stalled is not None and load.stalled > limits.stalled:
        return (
            f"the testbed stood still for {100 * load.stalled:.0f} % of the time "
            f"(at most {100 * limits.stalled:g} %): the recorder could not look every second"
        )
    return None


def stalled(walls: Sequence[float], interval_s: float) -> float | None:
    """Return the share (0..1) of a recording that is gaps; None with fewer than two samples.

    If a machine's disk or hypervisor stops for seconds, steal and CPU time do not show it.
    Everything that waits for the machine is late: hotspots once moved 19 s late, and the store's
    placement groups peered for 9 s. The recorder is late too.

    Args:
        walls: times of the samples, in seconds, ascending.
        interval_s: planned distance of the samples. If sampling itself takes longer, as over a slow
            network, the median distance counts instead. A gap is more than 1.5 times the distance.
    """
    if len(walls) < 2 or walls[-1] <= walls[0]:
        return None
    apart = [after - before for before, after in pairwise(walls)]
    longest = _GAP * max(interval_s, median(apart))
    return sum(gap for gap in apart if gap > longest) / (walls[-1] - walls[0])
