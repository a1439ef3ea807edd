"""Controller `nearest`: each object goes to the nearest OSD with room, without a programme.

Loads, swaps, budget, waiting and checking are those of `ursa`; only the targets differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.parameters import read
from controllers.ursa.live import Steering, UrsaParameters


def create(parameters: Mapping[str, object], seed: int) -> Steering:
    """Create the policy: distance alone decides the targets."""
    return Steering("nearest", "nearest", read(UrsaParameters, "nearest", parameters), seed)
