"""Tenants and their SLAs, as given in a controller's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.numbers import finite
from controllers.microstores.performance import PiecewiseLinear, WorkloadClass
from controllers.microstores.problem import Demand
from controllers.microstores.sla import Sla, sla_from_json
from schemas.errors import UserError
from schemas.numbers import plain
from testbed.stores.microstores import Tenant

KEYS = ("workload", "sla", "weight")


@dataclass(frozen=True)
class Promise:
    """Class and SLA of a tenant; `weight` against others."""

    workload: WorkloadClass
    sla: Sla
    weight: float = 1.0


def promises_from_json(
    data: Mapping[str, object], model: PiecewiseLinear | None, where: str
) -> dict[str, Promise]:
    """Read {TENANT: {workload: CLASS, sla: {..}, weight: 1}}; see `sla.sla_from_json`.

    Raises:
        UserError: malformed, or a class without a table in `model`; the message gives the names.
    """
    return {
        str(name): _promise(item, model, f"{where}: tenant {name}") for name, item in data.items()
    }


def _promise(data: object, model: PiecewiseLinear | None, where: str) -> Promise:
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: must be a mapping with {', '.join(KEYS)}, not {data!r}")
    unknown = sorted(set(map(str, data)) - set(KEYS))
    if unknown:
        raise UserError(f"{where}: unknown key {unknown[0]!r} (allowed: {', '.join(KEYS)})")
    for key in KEYS[:2]:
        if key not in data:
            raise UserError(f"{where}: {key} is missing")
    weight = plain(data.get("weight", 1.0))
    if not finite(weight) or weight <= 0:
        raise UserError(f"{where}: weight is {weight!r}; it must be a number above 0")
    workload = class_called(data["workload"], model, where)
    return Promise(workload, sla_from_json(data["sla"], f"{where}: sla"), float(weight))


def class_called(name: object, model: PiecewiseLinear | None, where: str) -> WorkloadClass:
    """Return the class of `model` with that name; without a model any name is accepted."""
    if model is None:
        return WorkloadClass(str(name), 1.0)
    table = model.tables.get(str(name))
    if table is None:
        raise UserError(
            f"{where}: workload {name!r} is not in the model, which has "
            f"{', '.join(sorted(model.tables))}"
        )
    return table.workload


def offered_by(tenant: Tenant) -> float:
    """Return the concurrent requests: the workers if known, else the mean number in flight by
    Little's law."""
    if tenant.workers is not None:
        return max(0.0, tenant.workers)
    if tenant.mean_latency_s is None:
        return 0.0
    return tenant.requests_s * tenant.mean_latency_s


def demand_of(
    tenant: Tenant,
    promise: Promise,
    corrections: Mapping[str, float],
    utilization: float = 1.0,
) -> Demand:
    """Return the demand of a monitored tenant; `Demand` explains the learnt values."""
    return Demand(
        tenant.name,
        tenant.microstore,
        promise.workload,
        offered_by(tenant),
        promise.sla,
        promise.weight,
        corrections,
        utilization,
        tenant.mean_latency_s,
    )
