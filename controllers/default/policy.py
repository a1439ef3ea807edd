"""Ceph in its default mode, the paper's first baseline (section V-B): changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from controllers.common.base import NoParameters, ParameterPolicy
from controllers.contract import State
from testbed.stores.contract import OSDS, Action, Needs, Observation


class Default(ParameterPolicy[NoParameters]):
    """Policy that does nothing."""

    name = "default"
    needs = Needs(frozenset({OSDS}), frozenset())

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return no action."""
        return state, []


create = Default.create
