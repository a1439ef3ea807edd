"""Base of loop policies with validated parameters; see `controllers.contract.LoopPolicy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from controllers.common.parameters import mapping, read
from controllers.contract import State
from testbed.stores.contract import Needs

P = TypeVar("P")
Self = TypeVar("Self", bound="ParameterPolicy[Any]")


@dataclass(frozen=True)
class NoParameters:
    """No parameters."""


class ParameterPolicy(Generic[P]):
    """Policy with parameters; unless a subclass remembers something, it has no memory."""

    name: str
    needs: Needs
    parameters_type: ClassVar[type[Any]] = NoParameters

    def __init__(self, parameters: P) -> None:
        self._p = parameters

    @classmethod
    def create(cls: type[Self], parameters: Mapping[str, object], seed: int) -> Self:
        """Create the policy; `seed` is not used. UserError: a parameter is unknown or has a wrong
        value."""
        del seed
        return cls(read(cls.parameters_type, cls.name, parameters))

    def parameters(self) -> Mapping[str, object]:
        """Return every parameter in force."""
        return mapping(self._p)

    def initial(self) -> State:
        """Return an empty state."""
        return {}
