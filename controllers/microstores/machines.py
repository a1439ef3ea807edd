"""Choice of whole machines for basic MOS: which machines to take, and which to give back.

The paper does not say which machine of a heterogeneous pool a microstore gets. It says only that
its simulator sorts resources by their capability (section 8.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.stores.microstores import NOTHING, Machine, Resources

_OF_MEASURE = {"proxy_cpu": "proxy_cores", "storage_cpu": "storage_cores", "network": "network"}
FREE = ""


@dataclass(frozen=True)
class Machines:
    """Present assignment of machines to microstores; every change makes a new value."""

    all: tuple[Machine, ...]

    def of(self, microstore: str) -> tuple[Machine, ...]:
        """Return a microstore's machines; "" stands for the free pool."""
        return tuple(machine for machine in self.all if machine.microstore == microstore)

    def assigned(self, names: Sequence[str], microstore: str) -> Machines:
        """Return the assignment with the machines called `names` given to `microstore`."""
        chosen = set(names)
        return Machines(
            tuple(Machine(m.name, m.holds, microstore) if m.name in chosen else m for m in self.all)
        )

    def to_add(self, count: int, measure: str) -> list[str]:
        """Return up to `count` free machines, best in `measure` first."""
        free = sorted(self.of(FREE), key=lambda m: (-_amount(m.holds, measure), m.name))
        return [machine.name for machine in free[:count]]

    def to_remove(self, microstore: str, count: int, measure: str) -> list[str]:
        """Return up to `count` of the microstore's machines, worst in `measure` first; never one
        that it needs to keep proxies, storage, network or disks. A resource that no machine carries
        is exempt: Swift's microstores have their own disks."""
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
    """Return the machines' sum: proxies' cores, storage servers' cores, network, disks."""
    total = NOTHING
    for machine in machines:
        total = total + machine.holds
    return (total.proxy_cores, total.storage_cores, total.network, total.ssds + total.hdds)
