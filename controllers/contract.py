"""Contract of a loop policy: a pure function of its state and an observation.

A controller is a folder (here or given by ``--controllers-dir``) with a module ``policy.py`` that
defines ``def create(parameters: Mapping[str, object], seed: int) -> LoopPolicy``. No clock, no I/O,
no hidden randomness: `controllers/replay.py` recomputes every decision from the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from testbed.stores.contract import Action, Needs, Observation

State = Mapping[str, Any]
"""Memory of a policy: JSON-able, so that the journal holds it."""


class LoopPolicy(Protocol):
    """Policy that decides once an interval."""

    name: str
    needs: Needs

    def parameters(self) -> Mapping[str, object]:
        """Return the parameters in force, defaults included, for the journal."""

    def initial(self) -> State:
        """Return the state before the first observation."""

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the next state and the actions to take now. Must not mutate its arguments."""
