"""Links of a network for a plan: the share of its links left for workloads, its frames, and its
hosts' possible token buckets.

A plan for machines uses their real limits. The numbers are a topology's (`links:`), a testbed's
(`htb_links`) or those of a ground of experiments (`machines.Machines`). `study.planned` passes them
to the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from controllers.prioritymeister.plan import FRAME, Tenant
from testbed.spec.quantities import Bytes
from testbed.stores.nfs.shaping import MANAGEMENT_SHARE, bucket
from testbed.stores.nfs.wire import ETHERNET_MTU, frame_of

NETWORK_STAGES = ("network-in", "network-out")
LINK_SHARE = 1 - MANAGEMENT_SHARE - 0.005
"""Share of a testbed's link that remains after ssh and HTB's small guarantee to every class."""


@dataclass(frozen=True)
class Links:
    """Limits that a plan assumes; by default ideal links and enforcers.

    Attributes:
        share: share of every link that is always left for workloads.
        frame: bytes of the largest frame, by the time that it occupies a link.
        overshoot: bytes that a token bucket lets through beyond its burst.
        bucket: the token bucket (bytes per second, bytes) that replaces a planned one; None if any
            bucket is possible. The replacement lets more through, never less.
    """

    share: float = 1.0
    frame: float = FRAME
    overshoot: float = 0.0
    bucket: Callable[[float, float], tuple[float, float]] | None = None

    def kept(self, tenant: Tenant) -> Tenant:
        """Return a workload with the token buckets that the network can keep."""
        if self.bucket is None:
            return tenant
        limiters = dict(tenant.limiters)
        for stage in NETWORK_STAGES:
            found = limiters[stage]
            pairs = [self.bucket(*p) for p in zip(found.rates, found.bursts, strict=True)]
            rates, bursts = np.array(pairs, np.float64).T
            limiters[stage] = replace(found, rates=rates, bursts=bursts)
        return replace(tenant, limiters=limiters)


def htb_links(frame: int) -> Links:
    """Return the limits of a testbed's hosts and switch (`testbed.stores.nfs.shaping`).

    HTB charges a packet after sending it: with any token left it lets a whole packet through.

    Args:
        frame: bytes of the links' largest frame.
    """
    return Links(LINK_SHARE, frame, float(frame), partial(bucket, frame=frame))


class LinkSettings(BaseModel):
    """A topology's `links`: limits of its network for a plan.

    `enforcer`: the hosts' token buckets. `exact` keeps any bucket. `htb`, the kernel's, has a burst
    of at least a frame and at most 270 s of its rate, and lets one more frame through. `overshoot`
    replaces that frame, or the zero of `exact`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    share: float = Field(default=1.0, gt=0, le=1)
    mtu: int = Field(default=ETHERNET_MTU, ge=1280, le=65520)
    overshoot: Bytes | None = Field(default=None, ge=0)
    enforcer: Literal["exact", "htb"] = "exact"

    def kept(self) -> Links:
        """Return the limits for the planner."""
        frame = frame_of(self.mtu)
        made = htb_links(frame) if self.enforcer == "htb" else Links(frame=frame)
        if self.overshoot is not None:
            made = replace(made, overshoot=float(self.overshoot))
        return replace(made, share=self.share)
