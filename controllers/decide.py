"""One decision of a policy through JSON, so that the journal holds exactly the policy's input.

State, observation and actions pass through JSON on their way to and from the policy, both in the
running controller (`controllers/decider.py`) and in a replay. A policy therefore keeps nothing but
its state and cannot change its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from controllers.contract import LoopPolicy
from controllers.journal import canonical
from controllers.registry import describe
from controllers.seen import Reader
from testbed.stores.contract import (
    Action,
    Needs,
    Observation,
    action_to_json,
    observation_from_json,
)

_KINDS = get_args(Action)


class PolicyError(Exception):
    """Error of a policy that raised, hung, died or returned something illegal."""


@dataclass(frozen=True)
class Decision:
    """The next state and the actions, as JSON-able data."""

    state: Mapping[str, Any]
    actions: list[dict[str, Any]]


class Decider(Protocol):
    """Runner of one policy's decisions; the loop does not care in which process.

    `needs` and `parameters` are the policy's declarations, defaults included.
    """

    needs: Needs
    parameters: dict[str, Any]

    def initial(self) -> Mapping[str, Any]:
        """Return the policy's first state. Raises PolicyError."""

    def decide(self, state: Mapping[str, Any], observation: Mapping[str, Any]) -> Decision:
        """Make one decision. Raises PolicyError."""

    def close(self) -> None:
        """Release the policy."""


def initial(policy: LoopPolicy) -> dict[str, Any]:
    """Return the policy's first state as JSON-able data. Raises PolicyError."""
    try:
        return _state(policy.initial(), "initial()")
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(f"initial() raised {describe(error)}") from error


def decide(
    policy: LoopPolicy,
    state: Mapping[str, Any],
    observation: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], Observation] = observation_from_json,
) -> Decision:
    """Return the decision of `policy` on JSON-able data. Raises PolicyError."""
    try:
        returned = policy.decide(state, read(observation))
    except Exception as error:
        raise PolicyError(f"decide() raised {describe(error)}") from error
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise PolicyError(f"decide() returned {_short(returned)} instead of (state, actions)")
    after, actions = returned
    if not isinstance(actions, (list, tuple)):
        raise PolicyError(f"decide() returned {_short(actions)} instead of a sequence of actions")
    for action in actions:
        if not isinstance(action, _KINDS):
            raise PolicyError(f"decide() returned {_short(action)}, which is not an action")
    return Decision(_state(after, "decide()"), [action_to_json(action) for action in actions])


def _state(state: object, where: str) -> dict[str, Any]:
    if not isinstance(state, Mapping):
        raise PolicyError(f"{where} returned the state {_short(state)}, which is not a mapping")
    try:
        result = canonical(dict(state))
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{where} returned a state that JSON cannot hold: {error}") from error
    assert isinstance(result, dict)
    return result


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class InProcessDecider:
    """Policy in this process, for simulation and replay; not protected from hanging."""

    def __init__(self, policy: LoopPolicy) -> None:
        self._policy = policy
        self.needs = policy.needs
        self.parameters = dict(policy.parameters())
        self._read = Reader()

    def initial(self) -> Mapping[str, Any]:
        """See `Decider`."""
        return initial(self._policy)

    def decide(self, state: Mapping[str, Any], observation: Mapping[str, Any]) -> Decision:
        """See `Decider`."""
        before = canonical(state)
        assert isinstance(before, dict)
        return decide(self._policy, before, observation, self._read)

    def close(self) -> None:
        """Do nothing; there is nothing to release."""
