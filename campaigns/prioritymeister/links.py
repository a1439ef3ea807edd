"""What a network keeps of a plan: the share of its links that is left for workloads, its frames,
and the token buckets that its hosts can have.

A plan for machines goes by what they keep. The numbers are a topology's (`links:`), those of a
testbed (`htb_links`) or those of a ground of experiments (`machines.Machines`); all of them reach
the planner by `study.planned`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from controllers.prioritymeister.plan import FRAME, Tenant
from testbed.nfs_wire import ETHERNET_MTU, frame_of
from testbed.quantities import Bytes
from testbed.stores.nfs.shaping import MANAGEMENT_SHARE, bucket

NETWORK_STAGES = ("network-in", "network-out")
LINK_SHARE = 1 - MANAGEMENT_SHARE - 0.005
"""Of a testbed's link: what ssh leaves, and the little that HTB guarantees to every class."""


@dataclass(frozen=True)
class Links:
    """What a plan counts with; as it stands, links and enforcers that keep all of it.

    Attributes:
        share: of every link, what is left for workloads at the worst.
        frame: bytes of the largest frame, as it keeps a link busy.
        overshoot: bytes that a token bucket lets through beyond its burst.
        bucket: the token bucket (bytes per second, bytes) that is kept where a plan wants another;
            None where any is. It lets more through, never less.
    """

    share: float = 1.0
    frame: float = FRAME
    overshoot: float = 0.0
    bucket: Callable[[float, float], tuple[float, float]] | None = None

    def kept(self, tenant: Tenant) -> Tenant:
        """A workload with the token buckets that the network can keep."""
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
    """What a testbed's hosts and switch keep (`testbed.stores.nfs.shaping`).

    HTB charges a packet when it has gone: with any token left it lets a whole one through.

    Args:
        frame: most bytes of a frame of its links.
    """
    return Links(LINK_SHARE, frame, float(frame), partial(bucket, frame=frame))


class LinkSettings(BaseModel):
    """A topology's `links`: what its network keeps of a plan.

    `enforcer` says whose token buckets hosts have: `exact` keeps any; `htb`, the kernel's, has a
    frame of burst at least, 270 s of its rate at most, and lets a frame more through. `overshoot`
    replaces that frame, or the none of `exact`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    share: float = Field(default=1.0, gt=0, le=1)
    mtu: int = Field(default=ETHERNET_MTU, ge=1280, le=65520)
    overshoot: Bytes | None = Field(default=None, ge=0)
    enforcer: Literal["exact", "htb"] = "exact"

    def kept(self) -> Links:
        """As the planner takes it."""
        frame = frame_of(self.mtu)
        made = htb_links(frame) if self.enforcer == "htb" else Links(frame=frame)
        if self.overshoot is not None:
            made = replace(made, overshoot=float(self.overshoot))
        return replace(made, share=self.share)
