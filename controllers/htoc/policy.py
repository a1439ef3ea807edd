"""Controller `htoc`: the hottest objects go to the coldest OSD, at any distance (section 5.1).

Loads, swaps, budget, waiting and checking are those of `ursa`; only the targets differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.parameters import read
from controllers.ursa.live import Steering, UrsaParameters


def create(parameters: Mapping[str, object], seed: int) -> Steering:
    """Create the policy: the coldest node decides the targets."""
    return Steering("htoc", "htoc", read(UrsaParameters, "htoc", parameters), seed)
