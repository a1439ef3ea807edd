"""The baselines of sections 1 and 8.1: a fixed allocation, given out in the first epoch.

`controllers.microstores.baselines` defines the allocations. With ``keep`` nothing changes: the
microstores stay as deployed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.common.parameters import choice, flag, mapping, read, structure
from controllers.contract import State
from controllers.microstores.baselines import ALLOCATIONS, DEFAULT, allocate
from schemas.errors import UserError
from testbed.stores.contract import Action, Needs, Observation
from testbed.stores.microstores import (
    MICROSTORES,
    RESOURCES,
    TENANTS,
    MapTenant,
    Microstores,
    SetResources,
)

NAME = "static-microstores"
KEEP = "keep"
SMALL, LARGE = "small", "large"


@dataclass(frozen=True)
class Parameters:
    """The allocation, and the object sizes that each microstore serves."""

    allocation: str = choice(KEEP, (KEEP, *ALLOCATIONS), "what each microstore holds")
    serves: Mapping[str, object] = structure("{MICROSTORE: small or large}; {}: by their names")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")


class StaticMicrostores:
    """Fixed allocation. Its memory: True once the allocation has been given out."""

    name = NAME

    def __init__(self, parameters: Parameters) -> None:
        """Raise UserError for microstores that serve other sizes."""
        for store, sizes in parameters.serves.items():
            if sizes not in (SMALL, LARGE):
                raise UserError(
                    f"controller {NAME}: parameter 'serves': {store} is {sizes!r}; allowed: "
                    f"{SMALL}, {LARGE}"
                )
        self._p = parameters
        self.needs = Needs(frozenset({MICROSTORES}), frozenset(self._acts()))

    def _acts(self) -> set[str]:
        if self._p.allocation == KEEP:
            return set()
        return {RESOURCES, TENANTS} if self._p.allocation == DEFAULT else {RESOURCES}

    def parameters(self) -> Mapping[str, object]:
        """Return every parameter in force."""
        return mapping(self._p)

    def initial(self) -> State:
        """Return the state before the allocation."""
        return {"done": False}

    def decide(self, state: State, observation: Observation) -> tuple[State, Sequence[Action]]:
        """Return the allocation once."""
        seen = observation.microstores
        if seen is None or state["done"] or self._p.allocation == KEEP:
            return state, []
        return {"done": True}, self._actions(seen)

    def _actions(self, seen: Microstores) -> list[Action]:
        serves = {store.name: self._serves(store.name) for store in seen.stores}
        small = [name for name, sizes in serves.items() if sizes == SMALL]
        large = [name for name, sizes in serves.items() if sizes == LARGE]
        held = allocate(self._p.allocation, seen.total, seen.step, small, large)
        # Microstores that lose something come first.
        before = {store.name: store.resources for store in seen.stores}
        order = sorted(held, key=lambda name: (before[name].within(held[name]), name))
        actions: list[Action] = [
            SetResources(name, held[name]) for name in order if held[name] != before[name]
        ]
        if self._p.allocation == DEFAULT:
            only = next(name for name, share in held.items() if share == seen.total)
            actions += [MapTenant(t.name, only) for t in seen.tenants if t.microstore != only]
        return actions

    def _serves(self, store: str) -> str:
        """Return the given size, or the name's: "large" in the name means large objects."""
        given = self._p.serves.get(store)
        if given is not None:
            return str(given)
        return LARGE if LARGE in store else SMALL


def create(parameters: Mapping[str, object], seed: int) -> StaticMicrostores:
    """Create the policy; `seed` is not used."""
    return StaticMicrostores(read(Parameters, NAME, parameters))
