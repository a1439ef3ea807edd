"""Corrections of the optimiser's model for each microstore, learnt while it runs.

The model may be wrong about a resource's capacity, and it has no queues. Monitoring shows both. By
the utilization law, a resource that is busy for a part u of the time, while the model says v,
carries v / u times the modelled load. Of two classes of disks this is learnt for the class that
carries more. The highest utilization that met an SLA gives the spare throughput that the SLA needs
(``knee``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.microstores.shares import MEASURE_OF
from controllers.mos_pp.parameters import Parameters

_LEAST_CORRECTION, _MOST_CORRECTION = 0.25, 4.0
_LEAST_BUSY = 0.05
"""Utilization below which the monitors' rounding would be learnt."""

_DIGITS = 6
_DISKS = ("ssds", "hdds")


@dataclass(frozen=True)
class OfStore:
    """Learnt values of a microstore.

    Attributes:
        knee: utilization of the scarcest resource at which its SLAs are met.
        corrections: real over modelled throughput, by resource.
    """

    knee: float
    corrections: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Learnt:
    """Learnt values of every microstore; an unseen microstore follows the model."""

    parameters: Parameters
    stores: dict[str, OfStore]

    @classmethod
    def from_json(cls, data: Mapping[str, Any], parameters: Parameters) -> Learnt:
        """Read the data of `to_json`."""
        return cls(parameters, {name: OfStore(**item) for name, item in data.items()})

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return {
            name: {"knee": item.knee, "corrections": dict(item.corrections)}
            for name, item in self.stores.items()
        }

    def of(self, store: str) -> OfStore:
        """Return a microstore's values; at first, SLAs count as met up to 1 / headroom."""
        return self.stores.get(store, OfStore(1 / self.parameters.headroom))

    def see(
        self,
        store: str,
        modelled: Mapping[str, float],
        measured: Mapping[str, float],
        *,
        missed: bool,
    ) -> None:
        """Learn from an epoch of a microstore: utilization by resource as modelled (each class of
        disks as if alone), by measure as measured, and True if it missed an SLA."""
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
        """Return the new knee. A miss below the band is ignored: resources are not its cause."""
        p = self.parameters
        busy = max(measured.values())
        if missed:
            return before if busy < p.util_low else round(min(before, busy), _DIGITS)
        return round(min(max(before, busy), 1 / p.headroom), _DIGITS)


def _comparable(
    modelled: Mapping[str, float], measured: Mapping[str, float], corrections: Mapping[str, float]
) -> list[tuple[str, float, float]]:
    """Return (resource, modelled, measured utilization) of the sufficiently busy resources."""
    found: list[tuple[str, float, float]] = []
    for name, load in modelled.items():
        busy = measured.get(MEASURE_OF[name], 0.0)
        if name not in _DISKS and busy >= _LEAST_BUSY and load > 0:
            found.append((name, load, busy))
    # Requests per second that each class carries as learnt, in units of the served requests.
    carries = {n: corrections.get(n, 1.0) / modelled[n] for n in _DISKS if modelled.get(n, 0) > 0}
    busy = measured.get("disk", 0.0)
    if carries and busy >= _LEAST_BUSY:
        most = max(carries, key=lambda name: carries[name])
        others = sum(carries.values()) - carries[most]
        if 1 / busy > others:
            found.append((most, modelled[most], 1 / (1 / busy - others)))
    return found
