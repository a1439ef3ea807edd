"""getContainers(): the number of containers (steps) that a microstore gets or gives back, by the
optimiser's plan for all of them (equations 1 to 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from controllers.microstores.optimiser import plan
from controllers.microstores.performance import PiecewiseLinear
from controllers.microstores.problem import Demand, NoPlanError, Plan, Pool, Prices
from controllers.microstores.shares import NONE, Ledger, Steps, added, clipped, whole_steps
from controllers.microstores.tenants import Promise, demand_of
from controllers.mos_pp.learning import Learnt
from controllers.mos_pp.parameters import Parameters
from testbed.stores.microstores import RESOURCE_NAMES, Microstore, Microstores, Tenant

ONE_EACH: Steps = (1, 1, 1, 1, 0)
"""Steps to add if no model shows what is missing."""


@dataclass(frozen=True)
class Optimiser:
    """Fixed inputs of the optimiser in all epochs."""

    model: PiecewiseLinear | None
    promises: Mapping[str, Promise]
    prices: Prices | None
    parameters: Parameters

    def plan(self, seen: Microstores, learnt: Learnt, at_high: str = "") -> Plan | None:
        """Return a plan for every tenant with an SLA; microstores without one keep their resources.
        The plan aims at the SLAs' lows, for the microstore `at_high` at their highs. None without a
        model, such a tenant, or room for all."""
        if self.model is None:
            return None
        demands: list[Demand] = []
        for tenant in seen.tenants:
            promise = self.promises.get(tenant.name)
            if promise is not None and self._known(seen, tenant):
                if tenant.microstore == at_high:
                    promise = replace(promise, sla=replace(promise.sla, low=promise.sla.high))
                known = learnt.of(tenant.microstore)
                demands.append(demand_of(tenant, promise, known.corrections, known.knee))
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
                solver=self.parameters.solver,
                objective=self.parameters.objective,
            )
        except NoPlanError:
            return None

    @staticmethod
    def _known(seen: Microstores, tenant: Tenant) -> bool:
        return any(store.name == tenant.microstore for store in seen.stores)

    def modelled(self, store: Microstore, seen: Microstores) -> dict[str, float]:
        """Return, for each of a microstore's resources, the modelled seconds of work per second of
        its tenants' service, as if the resource (each class of disks too) served it alone; {}
        without a model."""
        found: dict[str, float] = {}
        for tenant in seen.tenants:
            promise = self.promises.get(tenant.name)
            if self.model is None or promise is None or tenant.microstore != store.name:
                continue
            table = self.model.table(promise.workload)
            for name in RESOURCE_NAMES:
                capacity = getattr(table, name).value(getattr(store.resources, name))
                if capacity > 0:
                    found[name] = found.get(name, 0.0) + tenant.requests_s / capacity
        return found


def to_remove(planned: Plan | None, store: str, ledger: Ledger) -> Steps:
    """Return the containers beyond the plan's; without a plan one of each."""
    if planned is None or store not in planned.stores:
        return ONE_EACH
    return clipped(added(ledger.held[store], _steps(planned, store, ledger), -1))


def to_add(planned: Plan | None, store: str, ledger: Ledger) -> Steps:
    """Return the containers that the microstore lacks of the plan's; without a plan one of each."""
    if planned is None or store not in planned.stores:
        return ONE_EACH
    return clipped(added(_steps(planned, store, ledger), ledger.held[store], -1))


def reclaimed(planned: Plan | None, store: str, wanted: Steps, ledger: Ledger) -> Ledger:
    """Return the ledger after other microstores have given back what `store` wants and the free
    pool lacks, as far as they hold more than the plan gives them."""
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
