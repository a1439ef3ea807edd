"""Basic MOS in the other reading of Algorithm 1.

The listing leaves some blocks open. Here adding and removing stand after the choice of
``toChange``, so that the first epoch outside the band already acts, with a ``toChange`` of 1.
"""

from __future__ import annotations

from controllers.mos.policy import Mos


class MosAtOnce(Mos):
    """Basic MOS that acts in the first epoch outside the band."""

    name = "mos-at-once"
    acts_at_once = True


create = MosAtOnce.create
