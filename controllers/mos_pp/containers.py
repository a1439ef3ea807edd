"""getContainers(): how many containers (steps) a microstore is to get or to give back, by the
optimiser's plan for all of them (equations 1 to 6), and how far its model is to be believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.microstores.optimiser import plan
from controllers.microstores.performance import PiecewiseLinear
from controllers.microstores.problem import Demand, Plan, Pool, Prices
from controllers.microstores.shares import NONE, Ledger, Steps, added, clipped, whole_steps
from controllers.microstores.tenants import Promise, demand_of
from controllers.mos_pp.parameters import Parameters
from schemas.errors import UserError
from testbed.stores.microstores import Microstore, Microstores, Tenant

ONE_EACH: Steps = (1, 1, 1, 1, 0)
"""What is added where no model tells what is missing."""

_LEAST_CORRECTION, _MOST_CORRECTION = 0.25, 4.0
_DIGITS = 6


@dataclass(frozen=True)
class Optimiser:
    """What the optimiser is asked with, epoch after epoch."""

    model: PiecewiseLinear | None
    promises: Mapping[str, Promise]
    prices: Prices | None
    parameters: Parameters

    def plan(self, seen: Microstores, corrections: Mapping[str, float]) -> Plan | None:
        """A plan for every tenant that was promised something; microstores without one keep what
        they have. None without a model, such a tenant, or room for all of them."""
        if self.model is None:
            return None
        demands: list[Demand] = []
        for tenant in seen.tenants:
            promise = self.promises.get(tenant.name)
            if promise is not None and self._known(seen, tenant):
                correction = corrections.get(tenant.microstore, 1.0)
                demands.append(demand_of(tenant, promise, correction))
        planned = {demand.microstore for demand in demands}
        if not planned:
            return None
        left = seen.total
        for store in seen.stores:
            if store.name not in planned:
                left = left - store.resources
        try:
            return plan(
                self.model,
                demands,
                Pool(left, seen.step),
                prices=self.prices,
                headroom=self.parameters.headroom,
                solver=self.parameters.solver,
            )
        except UserError:
            if self.parameters.solver != "exact":
                raise
            return None  # more tenants than there are steps of something

    @staticmethod
    def _known(seen: Microstores, tenant: Tenant) -> bool:
        return any(store.name == tenant.microstore for store in seen.stores)

    def modelled_load(self, store: Microstore, seen: Microstores) -> float | None:
        """What a microstore finished, as a part of what the model says it could at most; None
        without a model or where nothing was to be done."""
        if self.model is None:
            return None
        load = 0.0
        for tenant in seen.tenants:
            promise = self.promises.get(tenant.name)
            if promise is None or tenant.microstore != store.name:
                continue
            capacity = self.model.table(promise.workload).capacity(store.resources)
            if capacity > 0:
                load += tenant.requests_s / capacity
        return load if load > 0 else None


def corrected(before: float, load: float | None, *, saturated: bool, learn: float) -> float:
    """Measured over modelled throughput of a microstore, after an epoch.

    One that is saturated finishes all that it can, so the modelled load is the correction. One that
    is not shows only that it can do at least what it did.
    """
    if load is None:
        return before
    target = min(_MOST_CORRECTION, max(_LEAST_CORRECTION, load))
    if not saturated:
        target = max(before, target)
    return round(before + learn * (target - before), _DIGITS)


def to_remove(planned: Plan | None, store: str, ledger: Ledger) -> Steps:
    """Containers beyond the plan's; without a plan one of each."""
    if planned is None or store not in planned.stores:
        return ONE_EACH
    return clipped(added(ledger.held[store], _steps(planned, store, ledger), -1))


def to_add(planned: Plan | None, store: str, ledger: Ledger) -> Steps:
    """Containers that the plan has and the microstore lacks; without a plan one of each."""
    if planned is None or store not in planned.stores:
        return ONE_EACH
    return clipped(added(_steps(planned, store, ledger), ledger.held[store], -1))


def reclaimed(planned: Plan | None, store: str, wanted: Steps, ledger: Ledger) -> Ledger:
    """The ledger after other microstores have given back what `store` wants and the free pool
    lacks, as far as they hold more than the plan gives them."""
    if planned is None:
        return ledger
    for other in sorted(planned.stores):
        missing = clipped(added(wanted, ledger.free, -1))
        if other == store or missing == NONE or other not in ledger.held:
            continue
        excess = clipped(added(ledger.held[other], _steps(planned, other, ledger), -1))
        ledger = ledger.take(other, tuple(map(min, missing, excess)))
    return ledger


def _steps(planned: Plan, store: str, ledger: Ledger) -> Steps:
    return whole_steps(planned.stores[store], ledger.step, up=True)
