"""Reads from the nearest replica (rados_replica_read_policy=localize), as a lower bound.

The clients' option exists from Squid on. A client prefers the primary among equally near
replicas. So clients outside the CRUSH map read as by default, unless `location` puts them there:
``host=osd1`` makes one node serve every read of which it has a replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.once import Once
from controllers.common.parameters import read, text
from testbed.stores.contract import CRUSH_LOCATION, OPTIONS, READ_POLICY, SetOption

NAME = "localize-reads"


@dataclass(frozen=True)
class LocalizeParameters:
    """The clients' place."""

    location: str = text("", f"|{OPTIONS[CRUSH_LOCATION].pattern}", "CRUSH location of the clients")


def create(parameters: Mapping[str, object], seed: int) -> Once:
    """Create the policy; `seed` is not used."""
    given = read(LocalizeParameters, NAME, parameters)
    place = [SetOption(CRUSH_LOCATION, given.location)] if given.location else []
    policy = SetOption(READ_POLICY, "localize")
    return Once(NAME, [READ_POLICY, CRUSH_LOCATION], [*place, policy], given)
