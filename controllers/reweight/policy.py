"""Ceph's `osd reweight-by-utilization` as the paper ran it, its second baseline (section V-B).

The paper's Ceph 9.2.1 (Infernalis) multiplies the weight of every OSD that uses at least `oload`
percent of the mean by mean / use, and raises OSDs below the mean likewise, up to 1. It limits
neither a change nor the number of OSDs. Limits came with Jewel (10.2.0, pull request 7890 of
ceph/ceph, March 2016), see `reweight-capped`. Without effective limits, later releases decide as
9.2.1 did, because they decide about each OSD alone.

The command runs once an interval. It weighs disk *usage*, so a hotspot counts only if its files are
on the OSD's own file system (FileStore). The journal's effects show how many weights changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.common.base import ParameterPolicy
from controllers.common.parameters import integer, number
from controllers.contract import State
from testbed.stores.contract import (
    OSDS,
    REWEIGHT_BY_UTILIZATION,
    Action,
    Needs,
    Observation,
    ReweightByUtilization,
)


@dataclass(frozen=True)
class ReweightParameters:
    """Arguments of the command; the defaults limit nothing."""

    oload: int = integer(120, 101, 1000, "use above this percentage of the mean is overload")
    max_change: float = number(1.0, 0.001, 1, "largest change of a weight at a time")
    max_osds: int = integer(10_000, 1, 10_000, "OSDs changed at a time")


class Reweight(ParameterPolicy[ReweightParameters]):
    """Policy that gives the same command every interval."""

    name = "reweight"
    needs = Needs(frozenset({OSDS}), frozenset({REWEIGHT_BY_UTILIZATION}))
    parameters_type = ReweightParameters

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the command."""
        p = self._p
        return state, [ReweightByUtilization(p.oload, p.max_change, p.max_osds)]


create = Reweight.create
