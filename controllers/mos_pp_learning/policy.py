"""MOS++ that corrects its model by measurements, and changes with care.

In addition to ``mos-pp-resource``:

- the optimiser's model is corrected by measurements (`Learnt`; ``learn``);
- plans leave spare throughput, as the model has no queues (``headroom``);
- what the free pool lacks comes from microstores that hold more than the plan gives them
  (``reclaim``);
- nothing is given back that would push utilization out of the band's top (``guard``);
- if the SLA is missed but the plan adds nothing, the too busy resource gets a step;
- an epoch first serves those that give back, then those with a missed SLA, then fine-tuning; among
  equals the first microstore changes every epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.common.parameters import flag, number
from controllers.contract import State
from controllers.microstores.problem import MicrostorePlan, Promise, TenantDemand, demand_of
from controllers.microstores.shares import (
    MEASURE_OF,
    NONE,
    StepLedger,
    Steps,
    added,
    clipped,
    in_turn,
    ledger,
)
from controllers.mos_pp.policy import (
    EXCEEDED,
    MISSED,
    WITHIN,
    MosPlusPlusParameters,
    ProvisioningEpoch,
    count_of,
    steps_of,
)
from controllers.mos_pp_resource.policy import MosPlusPlusByResource
from testbed.stores.microstores import RESOURCE_NAMES, Microstore, Microstores, Tenant


@dataclass(frozen=True)
class MosPlusPlusLearningParameters(MosPlusPlusParameters):
    """Parameters in addition to those of ``mos-pp``."""

    either: bool = flag(True, "an SLA is met by its utilization too (section 6); false: not so")
    headroom: float = number(1.1, 1, 3, "times the throughput that an SLA's low needs")
    reclaim: bool = flag(True, "what the free pool lacks comes from who has more than is planned")
    guard: bool = flag(True, "give nothing back that would push utilization out of the band's top")
    learn: float = number(0.5, 0, 1, "how fast what is measured corrects the model; 0: never")


class MosPlusPlusLearning(MosPlusPlusByResource):
    """MOS++ that corrects its model. Its memory in addition: learnt corrections (`Learnt`) and the
    turn."""

    name = "mos-pp-learning"
    parameters_type = MosPlusPlusLearningParameters
    _p: MosPlusPlusLearningParameters

    def initial(self) -> State:
        """Return the state before any decision."""
        return {**super().initial(), "learnt": {}, "turn": 0}

    def _epoch(self, state: State, seen: Microstores, *, begins: bool) -> ProvisioningEpoch:
        """Return an epoch before its pass, and learn from it."""
        order = in_turn(seen.stores, state["turn"])
        learnt = Learnt.from_json(state["learnt"], self._p)
        for store in () if begins else order:
            missed = self._verdict(store, seen) == MISSED
            learnt.see(store.name, self._modelled(store, seen), store.utilization, missed=missed)
        memory = {"learnt": learnt.to_json(), "turn": state["turn"] + 1}
        return ProvisioningEpoch(seen, ledger(seen), order, learnt.demand, memory)

    def _pass(self, epoch: ProvisioningEpoch) -> None:
        self._empty(epoch)
        found = {store.name: self._verdict(store, epoch.seen) for store in epoch.order}
        out = [store for store in epoch.order if found[store.name] != WITHIN and self._acts(store)]
        tuned = [store for store in epoch.order if found[store.name] == WITHIN]
        for store in out:
            if found[store.name] == EXCEEDED:
                self._remove(epoch, store)
        for store in tuned:
            self._less(epoch, store)
        for store in out:
            if found[store.name] == MISSED:
                self._add(epoch, store)
        for store in tuned:
            self._more(epoch, store)

    def _acts(self, store: Microstore) -> bool:
        return super()._acts(store if self._p.either else replace(store, slots=()))

    def _add(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        planned = self._plan(epoch)
        wanted = self._to_add(epoch, planned, store.name)
        if self._p.reclaim:
            epoch.book = reclaimed(planned, store.name, wanted, epoch.book)
        before = epoch.book.held[store.name]
        super()._add(epoch, store)
        if epoch.book.held[store.name] == before:
            # The model grants enough, but the SLA is missed: add what is too busy.
            self._more(epoch, store)

    def _spares(self, epoch: ProvisioningEpoch, store: Microstore, measure: str) -> bool:
        count = count_of(epoch.book.held[store.name], measure)
        if count <= 1:
            return False
        after = store.utilization[measure] * count / (count - 1)
        return not self._p.guard or after <= self._p.util_high

    def _modelled(self, store: Microstore, seen: Microstores) -> dict[str, float]:
        """Return, for each of a microstore's resources, the modelled seconds of work per second of
        its tenants' service, as if the resource (each class of disks too) served it alone; {}
        without a model."""
        found: dict[str, float] = {}
        for tenant in seen.tenants:
            promise = self._promises.get(tenant.name)
            if self._model is None or promise is None or tenant.microstore != store.name:
                continue
            table = self._model.table(promise.workload)
            for name in RESOURCE_NAMES:
                capacity = getattr(table, name).value(getattr(store.resources, name))
                if capacity > 0:
                    found[name] = found.get(name, 0.0) + tenant.requests_s / capacity
        return found


def reclaimed(
    planned: MicrostorePlan | None, store: str, wanted: Steps, book: StepLedger
) -> StepLedger:
    """Return the ledger after other microstores have given back what `store` wants and the free
    pool lacks, as far as they hold more than the plan gives them."""
    if planned is None:
        return book
    for other in sorted(planned.stores):
        missing = clipped(added(wanted, book.free, -1))
        if other == store or missing == NONE or other not in book.held:
            continue
        excess = clipped(added(book.held[other], steps_of(planned, other, book), -1))
        book = book.take(other, tuple(map(min, missing, excess)))
    return book


# ---- Corrections of the model ----

_LEAST_CORRECTION, _MOST_CORRECTION = 0.25, 4.0
_LEAST_BUSY = 0.05
"""Utilization below which the monitors' rounding would be learnt."""

_DIGITS = 6
_DISKS = ("ssds", "hdds")


@dataclass(frozen=True)
class LearntOfStore:
    """Learnt values of a microstore: the utilization of the scarcest resource at which its SLAs are
    met, and real over modelled throughput by resource.
    """

    knee: float
    corrections: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Learnt:
    """Corrections of the optimiser's model for each microstore, learnt while it runs.

    By the utilization law, a resource that is busy for a part u of the time, while the model says
    v, carries v / u times the modelled load. Of two classes of disks this is learnt for the class
    that carries more. The highest utilization that met an SLA gives the spare throughput that the
    SLA needs (``knee``), since the model has no queues.
    """

    parameters: MosPlusPlusLearningParameters
    stores: dict[str, LearntOfStore]

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], parameters: MosPlusPlusLearningParameters
    ) -> Learnt:
        """Read the data of `to_json`."""
        return cls(parameters, {name: LearntOfStore(**item) for name, item in data.items()})

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return {
            name: {"knee": item.knee, "corrections": dict(item.corrections)}
            for name, item in self.stores.items()
        }

    def of(self, store: str) -> LearntOfStore:
        """Return a microstore's values; at first, SLAs count as met up to 1 / headroom."""
        return self.stores.get(store, LearntOfStore(1 / self.parameters.headroom))

    def demand(self, tenant: Tenant, promise: Promise) -> TenantDemand:
        """Return a tenant's demand with what is learnt of its microstore."""
        known = self.of(tenant.microstore)
        return replace(
            demand_of(tenant, promise),
            corrections=known.corrections,
            utilization=known.knee,
            latency_s=tenant.mean_latency_s,
        )

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
        others = math.fsum(carries.values()) - carries[most]
        if 1 / busy > others:
            found.append((most, modelled[most], 1 / (1 / busy - others)))
    return found


create = MosPlusPlusLearning.create
