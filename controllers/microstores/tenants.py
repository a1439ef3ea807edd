"""Tenants and what they were promised, as a controller's parameters say it."""

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
    """What a tenant does (its class) and what it was promised; `weight` against others."""

    workload: WorkloadClass
    sla: Sla
    weight: float = 1.0


def promises_from_json(
    data: Mapping[str, object], model: PiecewiseLinear | None, where: str
) -> dict[str, Promise]:
    """From {TENANT: {workload: CLASS, sla: {..}, weight: 1}}; see `sla.sla_from_json`.

    Raises:
        UserError: malformed, or a class that `model` has no table of; names are told.
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
    """The class of `model` with that name; without a model any name is one."""
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
    """Requests at a time: the workers where they are known, else by Little's law what was under
    way on average."""
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
    """What a monitored tenant asks for; see `Demand` for what was learnt of its microstore."""
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
