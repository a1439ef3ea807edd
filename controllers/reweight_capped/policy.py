"""Ceph's `osd reweight-by-utilization` with the default limits since Jewel (10.2.0).

mon_reweight_max_change is 0.05 and mon_reweight_max_osds 4, still so in Pacific (16.2). The paper's
9.2.1 had neither (`reweight`).
"""

from __future__ import annotations

from dataclasses import dataclass

from controllers.common.parameters import integer, number
from controllers.reweight.policy import Reweight, ReweightParameters


@dataclass(frozen=True)
class CappedReweightParameters(ReweightParameters):
    """Arguments of the command, with Ceph's present limits."""

    max_change: float = number(0.05, 0.001, 1, "largest change of a weight at a time")
    max_osds: int = integer(4, 1, 10_000, "OSDs changed at a time")


class CappedReweight(Reweight):
    """`Reweight` under another name."""

    name = "reweight-capped"
    parameters_type = CappedReweightParameters


create = CappedReweight.create
