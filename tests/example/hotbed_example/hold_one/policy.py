"""Keeps the primary affinity of one OSD at 0.5."""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.stores.contract import OSDS, PRIMARY_AFFINITY, Action, Needs, Observation
from testbed.stores.contract import SetPrimaryAffinity as Set


class HoldOne:
    name = "hold-one"
    needs = Needs(senses=frozenset({OSDS}), acts=frozenset({PRIMARY_AFFINITY}))

    def parameters(self) -> Mapping[str, object]:
        return {}

    def initial(self) -> Mapping[str, Any]:
        return {}

    def decide(
        self, state: Mapping[str, Any], observation: Observation
    ) -> tuple[Mapping[str, Any], Sequence[Action]]:
        first = observation.osds[0]
        return state, [] if first.primary_affinity == 0.5 else [Set(first.id, 0.5)]


def create(parameters: Mapping[str, object], seed: int) -> HoldOne:
    return HoldOne()
