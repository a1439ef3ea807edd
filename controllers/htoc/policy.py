"""The controller `htoc`: what is hottest goes to the coldest OSD, however far (section 5.1).

Loads, swaps, budget, waiting and checking are those of `ursa`: only where an object goes differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.parameters import read
from controllers.ursa.live import Parameters, Steering


def create(parameters: Mapping[str, object], seed: int) -> Steering:
    """The policy: the coldest node decides where objects go."""
    return Steering("htoc", "htoc", read(Parameters, "htoc", parameters), seed)
