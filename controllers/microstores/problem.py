"""The provisioning problem of equations 1 to 6, and its plans.

The paper's binaries (core j is workload i's, disk k is workload i's) stand for interchangeable
cores and disks. A workload's numbers of them say the same (equations 4 and 5). Network is given out
in steps (equation 6). A workload needs the throughput that meets its SLA's ``low``, which makes
equation 3 linear: every part of the bottleneck model must carry the throughput.

The paper does not cover the case that no plan meets every SLA. Here the best plan is then decided
in this order: the weight of the violated SLAs, without those that no resources meet; the least
satisfied tenant's satisfaction (possible service over need, at most 1); the satisfaction of each
tenant in turn, heavier ones first and equal ones by name; the cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.microstores.performance import ClassTable, PiecewiseLinear, WorkloadClass
from controllers.microstores.shares import LEAST, Steps, amount_of, whole_steps
from controllers.microstores.sla import LATENCY, Sla
from schemas.errors import UserError
from testbed.stores.microstores import (
    NOTHING,
    RESOURCE_NAMES,
    Resources,
    resources_to_json,
)


class NoPlanError(UserError):
    """Error for too many tenants for the pool or the search; no single tenant is at fault."""


MOST_TENANTS = 12
"""Limit of the search over subsets of tenants: beyond it there are too many subsets."""

RATES = ("proxy_cores", "storage_cores", "network")  # resources of a plan, without the disks
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Demand:
    """Demand of a tenant.

    Attributes:
        tenant, microstore: names; several tenants of a microstore add up.
        workload: its class.
        offered: concurrent requests (COSBench's workers).
        sla: its SLA.
        weight: weight of its SLA against others', above 0.
        corrections: real over modelled throughput by resource, if the model is known to be wrong.
        latency_s: measured mean response time: a request that never waits takes no longer,
            whatever the model says.
        utilization: utilization of its scarcest resource at which the SLA's low is met; the
            model has no queues and assumes 1.
    """

    tenant: str
    microstore: str
    workload: WorkloadClass
    offered: float
    sla: Sla
    weight: float = 1.0
    corrections: Mapping[str, float] = field(default_factory=dict)
    utilization: float = 1.0
    latency_s: float | None = None


@dataclass(frozen=True)
class Prices:
    """Price of one core, one byte per second, one disk, in any currency for an hour.

    `None` is equation 2: resources are minimised, each counted as a fraction of the pool's, since a
    sum of cores, disks and bytes per second has no unit.
    """

    of: Resources | None = None

    def a_step(self, pool: Pool) -> tuple[float, ...]:
        """Return the price of a step of each resource."""
        sizes = [float(getattr(pool.step, name)) for name in RESOURCE_NAMES]
        if self.of is not None:
            prices = [float(getattr(self.of, name)) for name in RESOURCE_NAMES]
            return tuple(price * size for price, size in zip(prices, sizes, strict=True))
        return tuple(1 / count if count else 0.0 for count in pool.steps)


@dataclass(frozen=True)
class Pool:
    """All resources, and the smallest share of each (a container)."""

    total: Resources
    step: Resources

    @property
    def steps(self) -> Steps:
        """Number of whole steps of each resource."""
        return whole_steps(self.total, self.step)


@dataclass(frozen=True)
class Asked:
    """Demand in requests per second.

    Attributes:
        need: rate that meets the SLA's low, or all that its workers can ask for if less.
        high: rate that meets the SLA's high; more exceeds the promise.
        ceiling: the most that its workers can ask for.
        attainable: True if some resources would meet the SLA.
    """

    demand: Demand
    table: ClassTable
    need: float
    high: float
    ceiling: float
    attainable: bool


def asked(demand: Demand, performance: PiecewiseLinear, headroom: float = 1.0) -> Asked:
    """Return the need of `demand`; `headroom` times its SLA's low, but never more than its high."""
    table = corrected(performance.table(demand.workload), demand.corrections)
    if demand.latency_s is not None and 0 < demand.latency_s < table.idle_s:
        table = replace(table, idle_s=demand.latency_s)
    ceiling = demand.offered / table.idle_s
    if demand.offered <= 0:
        return Asked(demand, table, 0.0, math.inf, 0.0, True)
    low, high = demand.sla.at(demand.offered).required(demand.offered, table.workload.mean_bytes)
    # Workers cannot ask for more than the ceiling, and at full utilization they do not get it.
    need = min(min(low, ceiling) * headroom / demand.utilization, max(low, high))
    # A bandwidth beyond the reach of its few workers does not count as missed; a latency below an
    # idle store's does.
    attainable = demand.sla.kind != LATENCY or low <= ceiling * (1 + _TOLERANCE)
    return Asked(demand, table, need, high, ceiling, attainable)


def corrected(table: ClassTable, corrections: Mapping[str, float]) -> ClassTable:
    """Return the table with each resource's throughput multiplied by its factor."""
    curves = {name: getattr(table, name).times(times) for name, times in corrections.items()}
    return replace(table, **curves)


def rate_steps(wanted: Asked, rate: float, pool: Pool) -> tuple[int, int, int] | None:
    """Return the fewest steps of proxies' cores, storage servers' cores and network that carry
    `rate`; None if no number does."""
    counts: list[int] = []
    for name in RATES:
        size = getattr(pool.step, name)
        amount = getattr(wanted.table, name).inverse(rate * (1 - _TOLERANCE))
        least = int(getattr(LEAST, name))
        if math.isinf(amount) or (size <= 0 and amount > 0):
            return None
        exact = amount / size if size > 0 else 0.0
        counts.append(max(least if size > 0 else 0, math.ceil(exact - _TOLERANCE * max(1, exact))))
    return counts[0], counts[1], counts[2]


def disk_choices(wanted: Asked, rate: float, pool: Pool) -> list[tuple[int, int]]:
    """Return the numbers (of steps) of SSDs and HDDs that carry `rate`, without needless disks; a
    microstore has at least one disk."""
    steps = pool.steps
    ssds, hdds = (pool.step.ssds, steps[3]), (pool.step.hdds, steps[4])
    found: list[tuple[int, int]] = []
    for fast in range(ssds[1] + 1):
        left = rate * (1 - _TOLERANCE) - wanted.table.ssds.value(fast * ssds[0])
        amount = wanted.table.hdds.inverse(left) if left > 0 else 0.0
        if math.isinf(amount) or (amount > 0 and hdds[0] <= 0):
            continue
        slow = math.ceil(amount / hdds[0] - _TOLERANCE * max(1, amount)) if amount > 0 else 0
        if fast + slow == 0 and any(steps[3:]):
            slow = 1
        if slow <= hdds[1] and (not found or slow < found[-1][1]):
            found.append((fast, slow))
        if slow == 0:
            break
    return found


@dataclass(frozen=True)
class Share:
    """A plan's share for one tenant.

    Attributes:
        requests_s: rate that it can serve, by the model.
        needed_s: rate that meets the SLA.
        level: performance in multiples of the SLA's low; infinite if nothing is offered.
        met: True if the SLA is met.
    """

    tenant: str
    microstore: str
    resources: Resources
    requests_s: float
    needed_s: float
    level: float
    met: bool


@dataclass(frozen=True)
class Plan:
    """Allocation of resources. `notes` are sentences about requests that could not be fulfilled."""

    shares: tuple[Share, ...]
    stores: Mapping[str, Resources]
    left: Resources
    cost: float
    solver: str
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def violated(self) -> tuple[str, ...]:
        """Tenants with a violated SLA."""
        return tuple(share.tenant for share in self.shares if not share.met)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; infinite levels are null."""
        return {
            "tenants": [
                {
                    "tenant": share.tenant,
                    "microstore": share.microstore,
                    "resources": resources_to_json(share.resources),
                    "requests_s": share.requests_s,
                    "needed_s": share.needed_s,
                    "level": share.level if math.isfinite(share.level) else None,
                    "met": share.met,
                }
                for share in self.shares
            ],
            "microstores": {name: resources_to_json(held) for name, held in self.stores.items()},
            "left": resources_to_json(self.left),
            "violated": list(self.violated),
            "cost": self.cost,
            "solver": self.solver,
            "notes": list(self.notes),
        }


def check_demands(demands: Sequence[Demand]) -> None:
    """Raise UserError for no tenants, too many, or two with one name."""
    names = [demand.tenant for demand in demands]
    if not names:
        raise UserError("a plan needs at least one tenant")
    if len(names) > MOST_TENANTS:
        raise NoPlanError(f"a plan is made for at most {MOST_TENANTS} tenants, not {len(names)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"tenant {twice[0]} is named twice; every tenant has one demand")


def make_plan(
    wanted: Sequence[Asked], given: Sequence[Steps], pool: Pool, prices: Prices, solver: str
) -> Plan:
    """Return the plan that gives each tenant its number of steps."""
    shares: list[Share] = []
    notes: list[str] = []
    for item, steps in zip(wanted, given, strict=True):
        share = _share(item, amount_of(steps, pool.step))
        shares.append(share)
        notes += _notes(item, share)
    stores: dict[str, Resources] = {}
    left = pool.total
    for share in shares:
        stores[share.microstore] = stores.get(share.microstore, NOTHING) + share.resources
        left = left - share.resources
    price = prices.a_step(pool)
    cost = sum(p * count for steps in given for p, count in zip(price, steps, strict=True))
    return Plan(tuple(shares), stores, left, cost, solver, tuple(notes))


def _share(item: Asked, resources: Resources) -> Share:
    demand = item.demand
    capacity = item.table.capacity(resources)
    served = min(capacity, item.ceiling)
    level = math.inf
    if demand.offered > 0:
        measured = served * item.table.workload.mean_bytes
        if demand.sla.kind == LATENCY:
            measured = demand.offered / served if served > 0 else math.inf
        level = demand.sla.at(demand.offered).level(measured)
    met = item.attainable and capacity >= item.need * (1 - 1e-6)
    return Share(demand.tenant, demand.microstore, resources, capacity, item.need, level, met)


def _notes(item: Asked, share: Share) -> list[str]:
    name = item.demand.tenant
    if not item.attainable:
        return [
            f"{name}: its SLA is below the {item.table.idle_s * 1000:g} ms that a request takes "
            "when nobody else is there, so no resources meet it"
        ]
    if not share.met:
        part = share.requests_s / item.need if item.need > 0 else 1.0
        return [
            f"{name}: the pool carries {share.requests_s:.3g} of the {item.need:.3g} requests a "
            f"second that its SLA needs ({100 * part:.0f} %)"
        ]
    if share.requests_s > item.high * (1 + 1e-6) and item.ceiling > item.high:
        return [f"{name}: the smallest shares that meet its SLA's low exceed its high"]
    return []
