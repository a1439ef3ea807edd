"""Judge of a run: was the machine quiet enough?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from schemas.campaign import Limits

_GAP = 1.5  # a gap is longer than this many intervals; on a quiet machine 1.4 was the maximum


@dataclass(frozen=True)
class MachineLoad:
    """Load of the machines while a workload ran; None if unknown.

    Attributes:
        outside_cores: cores used outside the testbed.
        steal: share 0..1 of the machine's time.
        client_share: the load generator's use of its CPU share, 0..1.
        stalled: share 0..1 of the time in which the recorder missed its one-second samples.
        settings: the nodes' settings as read back, by path in a run's calibration, if possible.
        cores: cores that each node used, if the site reports them.
    """

    outside_cores: float | None = None
    steal: float | None = None
    client_share: float | None = None
    stalled: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    cores: Mapping[str, float] = field(default_factory=dict)

    def as_summary(self) -> dict[str, float]:
        """Return the known values."""
        values = {
            "outside_cores": self.outside_cores,
            "steal": self.steal,
            "client_share": self.client_share,
            "stalled": self.stalled,
        }
        return {name: value for name, value in values.items() if value is not None}

    def numbers(self) -> dict[str, float]:
        """Return the known values and each node's cores (``cores.NODE``)."""
        return self.as_summary() | {f"cores.{node}": used for node, used in self.cores.items()}


def spoiled(load: MachineLoad, limits: Limits) -> str | None:
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
