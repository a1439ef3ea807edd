"""Basic MOS in the other reading of Algorithm 1.

The listing leaves some blocks open. Here adding and removing stand after the choice of
``toChange``, so that the first epoch outside the band already acts, with a ``toChange`` of 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from controllers.common.parameters import read
from controllers.mos.policy import Mos, MosParameters


class MosAtOnce(Mos):
    """Basic MOS that acts in the first epoch outside the band."""

    name = "mos-at-once"
    acts_at_once = True


def create(parameters: Mapping[str, object], seed: int) -> MosAtOnce:
    """Create the policy; `seed` is not used."""
    return MosAtOnce(read(MosParameters, MosAtOnce.name, parameters))
