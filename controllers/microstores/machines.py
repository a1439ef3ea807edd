"""Whole machines, as basic MOS hands them out: which of them to take, and which to give back.

The paper does not say which machine of a heterogeneous pool a microstore gets; that resources are
sorted by what they can do is all that it says of its simulator (section 8.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.stores.microstores import NOTHING, Machine, Resources

_OF_MEASURE = {"proxy_cpu": "proxy_cores", "storage_cpu": "storage_cores", "network": "network"}
FREE = ""


@dataclass(frozen=True)
class Machines:
    """Who has which machine at present, as a value that changes by making another."""

    all: tuple[Machine, ...]

    def of(self, microstore: str) -> tuple[Machine, ...]:
        """A microstore's machines; those of the free pool for ""."""
        return tuple(machine for machine in self.all if machine.microstore == microstore)

    def assigned(self, names: Sequence[str], microstore: str) -> Machines:
        """With the machines called `names` given to `microstore`."""
        chosen = set(names)
        return Machines(
            tuple(Machine(m.name, m.holds, microstore) if m.name in chosen else m for m in self.all)
        )

    def to_add(self, count: int, measure: str) -> list[str]:
        """Up to `count` free machines, those that hold most of what `measure` tells of first."""
        free = sorted(self.of(FREE), key=lambda m: (-_amount(m.holds, measure), m.name))
        return [machine.name for machine in free[:count]]

    def to_remove(self, microstore: str, count: int, measure: str) -> list[str]:
        """Up to `count` of the microstore's machines, those with least of what `measure` tells of
        first; never one without which it would lack proxies, storage, network or disks. What no
        machine carries is not theirs to lack: Swift's microstores have their disks anyway."""
        held = list(self.of(microstore))
        carried = [part > 0 for part in _parts(self.all)]
        chosen: list[str] = []
        for machine in sorted(held, key=lambda m: (_amount(m.holds, measure), m.name)):
            rest = [m for m in held if m is not machine]
            if len(chosen) < count and rest and _has(rest, carried):
                held = rest
                chosen.append(machine.name)
        return chosen


def _amount(holds: Resources, measure: str) -> float:
    if measure == "disk":
        return holds.ssds + holds.hdds
    return float(getattr(holds, _OF_MEASURE[measure]))


def _has(machines: Sequence[Machine], needed: Sequence[bool]) -> bool:
    return all(
        part > 0 or not wanted for part, wanted in zip(_parts(machines), needed, strict=True)
    )


def _parts(machines: Sequence[Machine]) -> tuple[float, ...]:
    """What machines carry together: proxies' cores, storage servers' cores, network, disks."""
    total = NOTHING
    for machine in machines:
        total = total + machine.holds
    return (total.proxy_cores, total.storage_cores, total.network, total.ssds + total.hdds)
