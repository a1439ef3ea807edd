"""Ceph's own `osd reweight-by-utilization`, the paper's second baseline (section V-B).

The command runs once an interval, with Ceph's defaults (mon_reweight_max_change 0.05,
mon_reweight_max_osds 4, overload 120 percent). It weighs disk *usage*, so it does nothing about a
hotspot that uses no space. The journal's effects show how many weights changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.common.parameters import integer, mapping, number, read
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
    """Arguments of the command."""

    oload: int = integer(120, 101, 1000, "use above this percentage of the mean is overload")
    max_change: float = number(0.05, 0.001, 1, "largest change of a weight at a time")
    max_osds: int = integer(4, 1, 10_000, "OSDs changed at a time")


class Reweight:
    """Policy that gives the same command every interval."""

    name = "reweight"
    needs = Needs(frozenset({OSDS}), frozenset({REWEIGHT_BY_UTILIZATION}))

    def __init__(self, parameters: ReweightParameters) -> None:
        self._p = parameters

    def parameters(self) -> Mapping[str, object]:
        """Return the command's arguments."""
        return mapping(self._p)

    def initial(self) -> State:
        """Return an empty state."""
        return {}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the command."""
        p = self._p
        return state, [ReweightByUtilization(p.oload, p.max_change, p.max_osds)]


def create(parameters: Mapping[str, object], seed: int) -> Reweight:
    """Create the policy; `seed` is not used."""
    return Reweight(read(ReweightParameters, "reweight", parameters))
