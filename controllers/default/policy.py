"""Ceph in its default mode, the paper's first baseline (section V-B): changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.common.parameters import mapping, read
from controllers.contract import State
from testbed.stores.contract import OSDS, Action, Needs, Observation


@dataclass(frozen=True)
class DefaultParameters:
    """No parameters."""


class Default:
    """Policy that does nothing."""

    name = "default"
    needs = Needs(frozenset({OSDS}), frozenset())

    def parameters(self) -> Mapping[str, object]:
        """Return no parameters."""
        return mapping(DefaultParameters())

    def initial(self) -> State:
        """Return an empty state."""
        return {}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return no action."""
        return state, []


def create(parameters: Mapping[str, object], seed: int) -> Default:
    """Create the policy; it has no parameters and does not use `seed`."""
    read(DefaultParameters, "default", parameters)
    return Default()
