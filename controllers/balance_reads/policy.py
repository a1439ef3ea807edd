"""Reads from random replicas (rados_replica_read_policy=balance), as a baseline.

The clients' option exists from Squid on. It spreads each placement group's reads over all of its
OSDs and ignores load.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.base import NoParameters
from controllers.common.once import Once
from controllers.common.parameters import read
from testbed.stores.contract import READ_POLICY, SetOption

NAME = "balance-reads"


def create(parameters: Mapping[str, object], seed: int) -> Once:
    """Create the policy; it has no parameters and does not use `seed`."""
    given = read(NoParameters, NAME, parameters)
    return Once(NAME, [READ_POLICY], [SetOption(READ_POLICY, "balance")], given)
