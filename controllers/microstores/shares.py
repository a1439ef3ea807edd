"""Arithmetic of the resource pool in whole steps (containers). `StepLedger` never holds more than
the pool, whatever is asked of it, so that nothing is given out twice.

Amounts that are no multiples of the step count as the next larger number of steps, so that free
steps are really free; they stay exact while the microstore's number of steps does not change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.stores.microstores import (
    MEASURES,
    RESOURCE_NAMES,
    Microstore,
    Microstores,
    Resources,
    SetResources,
)

Steps = tuple[int, ...]
"""Whole steps of each of `RESOURCE_NAMES`."""

NONE: Steps = (0,) * len(RESOURCE_NAMES)
MEASURE_OF = {
    "proxy_cores": "proxy_cpu",
    "storage_cores": "storage_cpu",
    "network": "network",
    "ssds": "disk",
    "hdds": "disk",
}
"""Measure of utilization for each resource."""

_TOLERANCE = 1e-9
_DISKS = ("ssds", "hdds")
LEAST = Resources(1, 1, 1, 1, 1)
"""Steps that a microstore keeps, of disks one of either class: with less there is no store."""


def whole_steps(amount: Resources, step: Resources, *, up: bool = False) -> Steps:
    """Return the number of steps in an amount, rounded down or `up`; 0 without a step."""

    def count(name: str) -> int:
        size = float(getattr(step, name))
        if size <= 0:
            return 0
        exact = float(getattr(amount, name)) / size
        slack = _TOLERANCE * max(1.0, abs(exact))
        return math.ceil(exact - slack) if up else math.floor(exact + slack)

    return tuple(count(name) for name in RESOURCE_NAMES)


def amount_of(steps: Steps, step: Resources) -> Resources:
    """Return the amount of these steps."""
    values = {
        name: count * getattr(step, name) for name, count in zip(RESOURCE_NAMES, steps, strict=True)
    }
    return Resources(**values)


def fits(steps: Steps, most: Steps) -> bool:
    """Return True if no resource of `steps` exceeds the same resource of `most`."""
    return all(mine <= theirs for mine, theirs in zip(steps, most, strict=True))


def added(one: Steps, other: Steps, times: int = 1) -> Steps:
    """Return `one` plus `times` times `other`, resource by resource."""
    return tuple(a + times * b for a, b in zip(one, other, strict=True))


def clipped(steps: Steps) -> Steps:
    """Return the steps with negative counts set to 0."""
    return tuple(max(0, count) for count in steps)


@dataclass(frozen=True)
class StepLedger:
    """Steps held by each microstore, of `total`; `step` is the size of a step of each resource."""

    step: Resources
    total: Steps
    held: Mapping[str, Steps]

    @property
    def free(self) -> Steps:
        """Free steps, at least 0."""
        left = self.total
        for steps in self.held.values():
            left = added(left, steps, -1)
        return clipped(left)

    def give(self, store: str, wanted: Steps) -> StepLedger:
        """Give `store` the free part of `wanted`, by resource; below 0 counts as nothing."""
        free = self.free
        given = tuple(min(a, b) for a, b in zip(clipped(wanted), free, strict=True))
        return self._with(store, added(self.held[store], given))

    def take(self, store: str, unwanted: Steps) -> StepLedger:
        """Take back from `store` the part of `unwanted` that leaves it `LEAST`."""
        held = list(self.held[store])
        for index, count in enumerate(clipped(unwanted)):
            held[index] -= min(count, self._spare(held, index))
        return self._with(store, tuple(held))

    def _spare(self, held: list[int], index: int) -> int:
        name = RESOURCE_NAMES[index]
        least = int(getattr(LEAST, name))
        if name in _DISKS:
            disks = sum(held[RESOURCE_NAMES.index(kind)] for kind in _DISKS)
            least = max(0, least - (disks - held[index]))
        return max(0, held[index] - least)

    def _with(self, store: str, steps: Steps) -> StepLedger:
        return replace(self, held={**self.held, store: steps})


def ledger(seen: Microstores) -> StepLedger:
    """Return the present pool and its holders."""
    held = {store.name: whole_steps(store.resources, seen.step, up=True) for store in seen.stores}
    return StepLedger(seen.step, whole_steps(seen.total, seen.step), held)


def changes(seen: Microstores, wanted: StepLedger) -> list[SetResources]:
    """Return the actions that make the microstores hold `wanted`, losers first."""
    before = ledger(seen)
    losing: list[SetResources] = []
    gaining: list[SetResources] = []
    for store in seen.stores:
        old, new = before.held[store.name], wanted.held[store.name]
        if old == new:
            continue
        amount = amount_of(new, seen.step)
        kept = {
            name: getattr(store.resources, name)
            for name, was, is_now in zip(RESOURCE_NAMES, old, new, strict=True)
            if was == is_now
        }
        action = SetResources(store.name, replace(amount, **kept))
        (gaining if fits(old, new) else losing).append(action)
    return losing + gaining


def in_turn(stores: Sequence[Microstore], turn: int) -> list[Microstore]:
    """Return all microstores, beginning with another one every turn."""
    if not stores:
        return []
    start = turn % len(stores)
    return [*stores[start:], *stores[:start]]


def util(store: Microstore) -> float | None:
    """Return the utilization of the busiest resource, as it limits the microstore; None if nothing
    could be sensed."""
    return max(store.utilization.values(), default=None)


def busiest(store: Microstore) -> str:
    """Return the measure of the value of `util`; the first of `MEASURES` among equals."""
    seen = [name for name in MEASURES if name in store.utilization]
    return max(seen, key=lambda name: store.utilization[name])
