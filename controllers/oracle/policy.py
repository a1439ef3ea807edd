"""An upper reference for affinity controllers: it knows which OSDs are hot.

DLR's lowest affinity (0.1, section IV-C) on every hot OSD from the first step on, 1 on the others;
the policy follows a moving disturbance. The gap between DLR and the oracle is the price of sensing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.common.affinity import changes
from controllers.common.base import ParameterPolicy
from controllers.common.parameters import number
from controllers.contract import State
from testbed.stores.contract import HOT, OSDS, PRIMARY_AFFINITY, Action, Needs, Observation


@dataclass(frozen=True)
class OracleParameters:
    """Affinity of hot OSDs."""

    affinity: float = number(0.1, 0, 1, "primary affinity of a hot OSD")


class Oracle(ParameterPolicy[OracleParameters]):
    """Policy that sets affinities from the ground truth."""

    name = "oracle"
    needs = Needs(frozenset({HOT, OSDS}), frozenset({PRIMARY_AFFINITY}))
    parameters_type = OracleParameters

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return low affinities for the hot OSDs, 1 for others; nothing without the truth."""
        if observation.hot is None:
            return state, []
        wanted = {
            osd.id: self._p.affinity if osd.id in observation.hot else 1.0
            for osd in observation.osds
        }
        return state, changes(observation, wanted)


create = Oracle.create
