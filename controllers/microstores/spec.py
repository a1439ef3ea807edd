"""Input file of a plan: tenants with SLAs, a pool, and a performance model.

model: profile.json            # or the model itself; see `performance.PiecewiseLinear`
pool: {proxy_cores: 0.8, storage_cores: 0.8, network_mbit_s: 400, ssds: 1, hdds: 2}
step: {proxy_cores: 0.1, storage_cores: 0.1, network_mbit_s: 20}
tenants:
  web: {microstore: small, workload: A, workers: 8, sla: {latency_ms: 90}}
  video: {microstore: large, workload: C, workers: 4, sla: {bandwidth_mb_s: 20}}
holds:                         # optional: the present allocation, for the rules
  small: {proxy_cores: 0.6, storage_cores: 0.4, network_mbit_s: 120, ssds: 1}
prices: {proxy_core: 0.04, storage_core: 0.04, network_gbit_s: 0.02, ssd: 0.03, hdd: 0.01}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controllers.common.numbers import keys_of, number_of
from controllers.microstores.performance import PiecewiseLinear, WorkloadClass
from controllers.microstores.problem import (
    ResourcePool,
    TenantDemand,
    class_called,
    prices_from_json,
    prices_to_json,
    sla_from_json,
    sla_to_json,
)
from schemas.durable import read_json
from schemas.errors import UserError, not_allowed
from testbed.stores.microstores import Resources

KEYS = ("model", "pool", "step", "tenants", "holds", "prices", "headroom")
TENANT_KEYS = ("microstore", "workload", "workers", "sla", "weight")
AMOUNTS = {
    "proxy_cores": ("proxy_cores", 1.0),
    "storage_cores": ("storage_cores", 1.0),
    "network_mbit_s": ("network", 125e3),
    "ssds": ("ssds", 1.0),
    "hdds": ("hdds", 1.0),
}
"""Keys of amounts in the file: the resource, and its unit (network in bytes per second)."""

_DISKS = ("ssds", "hdds")
MOST_DISKS = 1000
"""Limit of steps of either class: plans and rules enumerate pairs of both."""


@dataclass(frozen=True)
class Spec:
    """Input of a plan; `holds` is the microstores' present allocation, if given."""

    model: PiecewiseLinear
    demands: tuple[TenantDemand, ...]
    pool: ResourcePool
    prices: Resources | None = None
    headroom: float = 1.0
    holds: Mapping[str, Resources] = field(default_factory=dict)

    @property
    def workloads(self) -> dict[str, WorkloadClass]:
        """Return the class of each tenant."""
        return {demand.tenant: demand.workload for demand in self.demands}


def controller_parameters(spec: Spec) -> dict[str, Any]:
    """Return parameters of MOS++, in all variants, that keep the SLAs of `spec`."""
    tenants = {
        demand.tenant: {
            "workload": demand.workload.name,
            "sla": sla_to_json(demand.sla),
            "weight": demand.weight,
        }
        for demand in spec.demands
    }
    found: dict[str, Any] = {"tenants": tenants, "model": spec.model.to_json()}
    if spec.prices is not None:
        found["prices"] = prices_to_json(spec.prices)
    return found


def spec_from_data(data: object, where: str, folder: Path) -> Spec:
    """Read a spec from a file's mapping; a model given by name is a file in the same folder."""
    given = keys_of(data, where, KEYS, KEYS[:4])
    model = _model(given["model"], where, folder)
    total = amounts(given["pool"], f"{where}: pool", every=True)
    step = _step(given["step"], total, f"{where}: step")
    tenants = given["tenants"]
    if not isinstance(tenants, Mapping) or not tenants:
        raise UserError("tenants must name at least one tenant", where=where)
    demands = tuple(
        _demand(str(name), item, model, f"{where}: tenant {name}") for name, item in tenants.items()
    )
    prices = given.get("prices")
    headroom = number_of(given.get("headroom", 1.0), f"{where}: headroom", 1.0, 3.0, texts=True)
    return Spec(
        model,
        demands,
        ResourcePool(total, step),
        None if prices is None else prices_from_json(prices, f"{where}: prices"),
        headroom,
        _holds(given.get("holds"), demands, total, where),
    )


def _model(value: object, where: str, folder: Path) -> PiecewiseLinear:
    if not isinstance(value, str):
        return PiecewiseLinear.from_json(value, f"{where}: model")
    path = folder / value
    return PiecewiseLinear.from_json(read_json(path, f"{where}: model {path}"), str(path))


def amounts(data: object, where: str, *, every: bool) -> Resources:
    """Read resources from {proxy_cores: 0.8, ..}; missing ones are 0, but with `every` cores and
    network are required. Raise UserError for anything else, or parts of a disk.
    """
    given = keys_of(data, where, AMOUNTS, tuple(AMOUNTS)[:3] if every else ())
    values: dict[str, Any] = {}
    for name, (resource, unit) in AMOUNTS.items():
        value = number_of(given.get(name, 0), f"{where}: {name}", 0.0, texts=True)
        if resource in _DISKS and value != int(value):
            raise not_allowed(f"{where}: {name}", value, "a whole number")
        values[resource] = int(value) if resource in _DISKS else value * unit
    return Resources(**values)


def _step(data: object, total: Resources, where: str) -> Resources:
    step = amounts(data, where, every=True)
    for name in ("proxy_cores", "storage_cores", "network"):
        size, most = getattr(step, name), getattr(total, name)
        if not 0 < size <= most:
            raise UserError(
                f"the step of {name} must be above 0 and at most what the pool has", where=where
            )
        if most / size > 1e5:
            raise UserError(
                f"the pool has more than 100,000 steps of {name}", where=where, do="take larger"
            )
    for name in _DISKS:
        if getattr(total, name) > MOST_DISKS * max(1, getattr(step, name)):
            raise UserError(
                f"the pool has more than {MOST_DISKS:,} steps of {name}",
                where=where,
                do="take larger",
            )
    if total.ssds + total.hdds == 0:
        raise UserError(
            "it has no disks", where=where.replace(": step", ": pool"), do="give ssds or hdds"
        )
    return Resources(
        step.proxy_cores, step.storage_cores, step.network, max(1, step.ssds), max(1, step.hdds)
    )


def _demand(name: str, data: object, model: PiecewiseLinear, where: str) -> TenantDemand:
    given = keys_of(data, where, TENANT_KEYS, TENANT_KEYS[:4])
    store = given["microstore"]
    if not isinstance(store, str) or not store:
        raise not_allowed(f"{where}: microstore", store, "a name")
    return TenantDemand(
        tenant=name,
        microstore=store,
        workload=class_called(given["workload"], model, where),
        offered=number_of(given["workers"], f"{where}: workers", 0.0, 1e6, texts=True),
        sla=sla_from_json(given["sla"], f"{where}: sla"),
        weight=number_of(given.get("weight", 1.0), f"{where}: weight", 1e-6, 1e6, texts=True),
    )


def _holds(
    data: object, demands: tuple[TenantDemand, ...], total: Resources, where: str
) -> dict[str, Resources]:
    if data is None:
        return {}
    stores = sorted({demand.microstore for demand in demands})
    given = keys_of(data, f"{where}: holds", stores, stores)
    held = {
        name: amounts(item, f"{where}: holds: {name}", every=False) for name, item in given.items()
    }
    everything = Resources()
    for share in held.values():
        everything = everything + share
    if not everything.within(total):
        raise UserError("the microstores hold more than the pool has", where=f"{where}: holds")
    return held
