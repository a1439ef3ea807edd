"""The baselines of sections 1 and 8.1: a fixed allocation of the pool, given out in one epoch.

- ``keep``: nothing changes; the microstores stay as deployed.
- ``default``: monolithic; one microstore has everything and serves all tenants.
- ``static``: 75 % of the cores, 30 % of the network, all PCIe SSDs and 30 % of the SATA SSDs for
  small objects, the rest for large ones: the best that the paper's authors tried. Of two classes
  of disks, the faster counts as its PCIe SSDs and the slower as its SATA SSDs.
- ``favors-small``: the proxy of 8 cores at 10 Gbit/s for small objects, the proxy of 32 cores at
  1 Gbit/s for large ones; ``favors-large``: the reverse. Storage is divided in half.
- ``even``: the same for every microstore.

Parts are rounded to whole steps. No step is lost, and every microstore has a step of each resource.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.common.base import ParameterPolicy
from controllers.common.parameters import choice, flag, structure
from controllers.contract import State
from controllers.microstores.shares import amount_of, whole_steps
from schemas.errors import UserError, not_allowed
from testbed.stores.contract import Action, Needs, Observation
from testbed.stores.microstores import (
    MICROSTORES,
    RESOURCES,
    TENANTS,
    MapTenant,
    Microstores,
    Resources,
    SetResources,
)

NAME = "static-microstores"
KEEP = "keep"
SMALL, LARGE = "small", "large"


DEFAULT = "default"
SMALL_PART: Mapping[str, tuple[float, float, float, float, float]] = {
    "static": (0.75, 0.75, 0.30, 1.0, 0.30),
    "favors-small": (8 / 40, 0.5, 10 / 11, 0.5, 0.5),
    "favors-large": (32 / 40, 0.5, 1 / 11, 0.5, 0.5),
    "even": (0.5, 0.5, 0.5, 0.5, 0.5),
}
"""Small objects' part of proxies' cores, storage servers' cores, network, SSDs and HDDs."""

ALLOCATIONS = (DEFAULT, *SMALL_PART)


@dataclass(frozen=True)
class StaticParameters:
    """The allocation, and the object sizes that each microstore serves."""

    allocation: str = choice(KEEP, (KEEP, *ALLOCATIONS), "what each microstore holds")
    serves: Mapping[str, object] = structure("{MICROSTORE: small or large}; {}: by their names")
    restore_on_stop: bool = flag(True, "put the store back when the controller is stopped")


class StaticMicrostores(ParameterPolicy[StaticParameters]):
    """Fixed allocation. Its memory: True once the allocation has been given out."""

    name = NAME
    parameters_type = StaticParameters

    def __init__(self, parameters: StaticParameters) -> None:
        """Raise UserError for microstores that serve other sizes."""
        for store, sizes in parameters.serves.items():
            if sizes not in (SMALL, LARGE):
                where = f"controller {NAME}: parameter 'serves': {store}"
                raise not_allowed(where, sizes, f"{SMALL}, {LARGE}")
        super().__init__(parameters)
        self.needs = Needs(frozenset({MICROSTORES}), frozenset(self._acts()))

    def _acts(self) -> set[str]:
        if self._p.allocation == KEEP:
            return set()
        return {RESOURCES, TENANTS} if self._p.allocation == DEFAULT else {RESOURCES}

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


def allocate(
    allocation: str,
    total: Resources,
    step: Resources,
    small: Sequence[str],
    large: Sequence[str],
) -> dict[str, Resources]:
    """Return the resources of each microstore; all of `small`, and all of `large`, share evenly.

    Raises:
        UserError: no such allocation, or less than a step of something for each.
    """
    names = [*small, *large]
    if allocation not in ALLOCATIONS:
        raise not_allowed("allocation", allocation, ", ".join(ALLOCATIONS))
    if not names:
        raise UserError("an allocation needs at least one microstore")
    steps = whole_steps(total, step)
    if allocation == DEFAULT:
        nothing = Resources()
        return {name: total if name == names[0] else nothing for name in names}
    parts = SMALL_PART[allocation]
    if not steps[4]:  # one class of disks: there is no fast class for small objects
        parts = (*parts[:3], 0.5, 0.5)
    held = {name: [0] * len(steps) for name in names}
    for index, count in enumerate(steps):
        weights = _weights(parts[index], allocation == "even", small, large)
        for name, given in zip(names, _divided(count, weights, index), strict=True):
            held[name][index] = given
    for name, counts in held.items():
        if min(counts[:3]) < 1 or (any(steps[3:]) and not any(counts[3:])):
            raise UserError(
                f"the pool is too small for {len(names)} microstores: {name} would have less than "
                "a step of proxy cores, storage cores, network or disks"
            )
    return {name: amount_of(tuple(counts), step) for name, counts in held.items()}


def _weights(part: float, even: bool, small: Sequence[str], large: Sequence[str]) -> list[float]:
    if even or not small or not large:
        return [1.0] * (len(small) + len(large))
    return [part / len(small)] * len(small) + [(1 - part) / len(large)] * len(large)


def _divided(count: int, weights: Sequence[float], index: int) -> list[int]:
    """Divide `count` steps by weight, by largest remainder. Every microstore first gets one step if
    they suffice, as it needs one; disks are exempt."""
    least = 1 if index < 3 and count >= len(weights) else 0
    total = math.fsum(weights)
    exact = [count * weight / total for weight in weights]
    given = [max(least, int(value + 1e-9)) for value in exact]
    while sum(given) > count:
        spare = [i for i, number in enumerate(given) if number > least]
        given[max(spare, key=lambda i: (given[i] - exact[i], given[i]))] -= 1
    while sum(given) < count:
        given[max(range(len(given)), key=lambda i: (exact[i] - given[i], weights[i]))] += 1
    return given


create = StaticMicrostores.create
