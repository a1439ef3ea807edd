"""Ceph's balancer module in mode upmap-read (Squid and later), as a baseline.

It evens out the placement groups of each OSD and then their primaries; it ignores load.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.base import NoParameters
from controllers.common.once import Once
from controllers.common.parameters import read
from testbed.stores.contract import BALANCER, BALANCER_READ, SetBalancer

NAME = "upmap-read"


def create(parameters: Mapping[str, object], seed: int) -> Once:
    """Create the policy; it has no parameters and does not use `seed`."""
    given = read(NoParameters, NAME, parameters)
    return Once(NAME, [BALANCER, BALANCER_READ], [SetBalancer(NAME)], given)
