"""The published size-greedy balancer TheJJ/ceph-balancer, as a baseline.

It moves placement groups from full OSDs to empty ones until all are equally full, and ignores load.
It runs once an interval, with the program's defaults. The program is not part of Hotbed: the admin
node must have it in its path (docs/ceph-store.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.once import Once
from controllers.common.parameters import integer, read
from testbed.stores.contract import SIZE_BALANCER, RunSizeBalancer

NAME = "jj"


@dataclass(frozen=True)
class JjParameters:
    """Limit of a step."""

    moves: int = integer(10, 1, 10_000, "placement groups moved at a time")


def create(parameters: Mapping[str, object], seed: int) -> Once:
    """Create the policy; `seed` is not used."""
    given = read(JjParameters, NAME, parameters)
    return Once(NAME, [SIZE_BALANCER], [RunSizeBalancer(given.moves)], given, again=True)
