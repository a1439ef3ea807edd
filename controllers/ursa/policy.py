"""The controller `ursa`: load-aware swaps and moves of placement groups (section 3 of the paper).

Which OSDs are hot is measured, not counted in placement groups: today's balancers even out the
number of groups or bytes and know nothing of load.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.parameters import read
from controllers.ursa.live import Steering, UrsaParameters


def create(parameters: Mapping[str, object], seed: int) -> Steering:
    """Return the policy: Algorithm 1, the paper's ALP, decides where objects go."""
    return Steering("ursa", "alp", read(UrsaParameters, "ursa", parameters), seed)
