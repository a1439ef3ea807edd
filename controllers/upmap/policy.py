"""Ceph's balancer module in upmap mode: today's default in Ceph, as a baseline.

It evens out the number of PGs on each OSD and ignores load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.common.parameters import mapping, read
from controllers.contract import State
from testbed.stores.contract import BALANCER, OSDS, Action, Needs, Observation, SetBalancer


@dataclass(frozen=True)
class UpmapParameters:
    """No parameters."""


class Upmap:
    """Policy that switches the module on at the first step and leaves the rest to it."""

    name = "upmap"
    needs = Needs(frozenset({OSDS}), frozenset({BALANCER}))

    def parameters(self) -> Mapping[str, object]:
        """Return no parameters."""
        return mapping(UpmapParameters())

    def initial(self) -> State:
        """Return the state with the module off."""
        return {"on": False}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the action that switches the module on, once."""
        return {"on": True}, [] if state["on"] else [SetBalancer("upmap")]


def create(parameters: Mapping[str, object], seed: int) -> Upmap:
    """Create the policy; it has no parameters and does not use `seed`."""
    read(UpmapParameters, "upmap", parameters)
    return Upmap()
