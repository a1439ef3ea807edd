"""Ceph's balancer module in upmap mode: today's default in Ceph, as a baseline.

It evens out the number of PGs on each OSD and ignores load.
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.common.base import NoParameters, ParameterPolicy
from controllers.contract import State
from testbed.stores.contract import BALANCER, OSDS, Action, Needs, Observation, SetBalancer


class Upmap(ParameterPolicy[NoParameters]):
    """Policy that switches the module on at the first step and leaves the rest to it."""

    name = "upmap"
    needs = Needs(frozenset({OSDS}), frozenset({BALANCER}))

    def initial(self) -> State:
        """Return the state with the module off."""
        return {"on": False}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the action that switches the module on, once."""
        return {"on": True}, [] if state["on"] else [SetBalancer("upmap")]


create = Upmap.create
