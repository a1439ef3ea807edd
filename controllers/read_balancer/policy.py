"""Ceph's read balancer: today's way to even out primaries, as a baseline.

It gives each OSD its share of each pool's primaries (by pg-upmap-primary, no data moves) and
ignores load. On Reef it is `osdmaptool --read`, run once as an operator does; on a release with the
balancer mode ``read`` (Squid and later) it is the manager's balancer in this mode.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.base import NoParameters
from controllers.common.once import Once
from controllers.common.parameters import read
from testbed.stores.contract import READ_BALANCER, RunReadBalancer

NAME = "read-balancer"


def create(parameters: Mapping[str, object], seed: int) -> Once:
    """Create the policy; it has no parameters and does not use `seed`."""
    given = read(NoParameters, NAME, parameters)
    return Once(NAME, [READ_BALANCER], [RunReadBalancer()], given)
