"""Was the machine quiet enough for a run to count?"""

from __future__ import annotations

from campaigns.services import Load
from schemas.campaign import Limits


def spoiled(load: Load, limits: Limits) -> str | None:
    """Why the run is spoiled; None when it counts. What cannot be told does not spoil."""
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
    return None
