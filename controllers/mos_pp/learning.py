"""How far the optimiser's model is to be believed of a microstore, learnt while it runs.

The model may be wrong in what a resource carries, and it knows of no queues. Both show in what is
monitored anyway. By the utilization law a resource that is busy for a part u of the time while the
model says v carries v / u times what the model says; of two classes of disks that is learnt of the
one that carries more. And the highest utilization at which an SLA was met tells how much more than
the SLA's throughput has to be there (``knee``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.microstores.shares import MEASURE_OF
from controllers.mos_pp.parameters import Parameters

_LEAST_CORRECTION, _MOST_CORRECTION = 0.25, 4.0
_LEAST_BUSY = 0.05
"""Below it the monitors' rounding would be learnt."""

_DIGITS = 6
_DISKS = ("ssds", "hdds")


@dataclass(frozen=True)
class OfStore:
    """What was learnt of a microstore.

    Attributes:
        knee: utilization of the scarcest resource at which its SLAs are met.
        corrections: real over modelled throughput, by resource.
    """

    knee: float
    corrections: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Learnt:
    """What was learnt of every microstore; what has not been seen yet is as the model says."""

    parameters: Parameters
    stores: dict[str, OfStore]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], parameters: Parameters) -> Learnt:
        """From what `to_json` made."""
        return cls(parameters, {name: OfStore(**item) for name, item in data.items()})

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            name: {"knee": item.knee, "corrections": dict(item.corrections)}
            for name, item in self.stores.items()
        }

    def of(self, store: str) -> OfStore:
        """A microstore's; at first SLAs are taken to be met up to 1 / headroom."""
        return self.stores.get(store, OfStore(1 / self.parameters.headroom))

    def see(
        self,
        store: str,
        modelled: Mapping[str, float],
        measured: Mapping[str, float],
        *,
        missed: bool,
    ) -> None:
        """An epoch of a microstore: utilization by resource as modelled (of each class of disks as
        if it were alone), by measure as measured, and whether it missed an SLA."""
        p = self.parameters
        if p.learn <= 0 or not modelled or not measured:
            return
        before = self.of(store)
        corrections = dict(before.corrections)
        for name, load, busy in _comparable(modelled, measured, corrections):
            target = min(_MOST_CORRECTION, max(_LEAST_CORRECTION, load / busy))
            old = corrections.get(name, 1.0)
            corrections[name] = round(old + p.learn * (target - old), _DIGITS)
        after = replace(before, corrections=corrections)
        self.stores[store] = replace(after, knee=self._knee(before.knee, measured, missed=missed))

    def _knee(self, before: float, measured: Mapping[str, float], *, missed: bool) -> float:
        """A miss at less than the band's bottom is for no want of resources, and says nothing."""
        p = self.parameters
        busy = max(measured.values())
        if missed:
            return before if busy < p.util_low else round(min(before, busy), _DIGITS)
        return round(min(max(before, busy), 1 / p.headroom), _DIGITS)


def _comparable(
    modelled: Mapping[str, float], measured: Mapping[str, float], corrections: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    """(resource, utilization as modelled, as measured) of what was busy enough to learn from."""
    found: list[tuple[str, float, float]] = []
    for name, load in modelled.items():
        busy = measured.get(MEASURE_OF[name], 0.0)
        if name not in _DISKS and busy >= _LEAST_BUSY and load > 0:
            found.append((name, load, busy))
    # Requests a second that each class carries by what is known of it, in units of those served.
    carries = {n: corrections.get(n, 1.0) / modelled[n] for n in _DISKS if modelled.get(n, 0) > 0}
    busy = measured.get("disk", 0.0)
    if carries and busy >= _LEAST_BUSY:
        most = max(carries, key=lambda name: carries[name])
        others = sum(carries.values()) - carries[most]
        if 1 / busy > others:
            found.append((most, modelled[most], 1 / (1 / busy - others)))
    return found
