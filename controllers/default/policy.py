"""Ceph in its default mode, the paper's first baseline (section V-B): changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.common.parameters import mapping, read
from controllers.contract import State
from testbed.stores.contract import OSDS, Action, Needs, Observation


@dataclass(frozen=True)
class Parameters:
    """None."""


class Default:
    """Does nothing."""

    name = "default"
    needs = Needs(frozenset({OSDS}), frozenset())

    def parameters(self) -> Mapping[str, object]:
        """None."""
        return mapping(Parameters())

    def initial(self) -> State:
        """Nothing."""
        return {}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """No action."""
        return state, []


def create(parameters: Mapping[str, object], seed: int) -> Default:
    """The policy; it has no parameters and `seed` is not used."""
    read(Parameters, "default", parameters)
    return Default()
