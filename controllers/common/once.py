"""A policy that takes the same actions once, or every interval: Ceph's own means as baselines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controllers.common.base import ParameterPolicy
from controllers.contract import State
from testbed.stores.contract import OSDS, Action, Needs, Observation


class Once(ParameterPolicy[Any]):
    """Policy that acts at the first step and leaves the rest to Ceph.

    Args:
        name: the controller's name.
        acts: the acts that the actions need.
        actions: the actions of the first step.
        parameters: the parameters' dataclass, for the journal.
        again: True to take the actions at every step.
    """

    def __init__(
        self,
        name: str,
        acts: Sequence[str],
        actions: Sequence[Action],
        parameters: object,
        *,
        again: bool = False,
    ) -> None:
        super().__init__(parameters)
        self.name = name
        self.needs = Needs(frozenset({OSDS}), frozenset(acts))
        self._actions = tuple(actions)
        self._again = again

    def initial(self) -> State:
        """Return the state before the first step."""
        return {"done": False}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the actions, none after the first step unless `again`."""
        return {"done": True}, () if state["done"] and not self._again else self._actions
