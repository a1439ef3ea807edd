"""The provisioning problem of equations 1 to 6 (section 6): SLAs, demands, pool, prices and plans.

The paper's binaries (core j is workload i's) stand for interchangeable cores and disks: a
workload's numbers of them say the same (equations 4 and 5). Network is given out in steps (equation
6). A workload needs the throughput that meets its SLA's ``low``, which makes equation 3 linear:
every part of the bottleneck model must carry the throughput.

``low`` and ``high`` are of performance, as in the paper: a latency has ``low >= high`` in seconds,
a bandwidth ``low <= high`` in bytes per second.

If no plan meets every SLA, which the paper does not cover, the best plan is decided in this order:
the weight of the violated SLAs, without those that no resources meet; the least satisfied tenant's
satisfaction (possible service over need, at most 1); the satisfaction of each tenant in turn,
heavier ones first and equal ones by name; the cost. A plan may minimise prices instead of equation
2's resources (section 9 suggests a pricing model: perf/$).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controllers.common.numbers import keys_of, number_of
from controllers.microstores.performance import ClassTable, PiecewiseLinear, WorkloadClass
from controllers.microstores.shares import LEAST, Steps, amount_of, whole_steps
from schemas.errors import UserError, not_allowed
from testbed.stores.microstores import NOTHING, RESOURCE_NAMES, Resources, Tenant, resources_to_json

# ---- SLAs ----

LATENCY, BANDWIDTH = "latency", "bandwidth"
SLA_KEYS = {"latency_ms": (LATENCY, 1e-3), "bandwidth_mb_s": (BANDWIDTH, 1e6)}
"""Keys of an SLA in a file: the kind, and its unit in seconds or bytes per second."""

TWICE = 2.0
"""The paper's ``sla_high`` is twice ``sla_low`` (section 8.1); for a latency, half of it."""


@dataclass(frozen=True)
class Sla:
    """SLA of a tenant; see the module.

    `kind` is ``latency`` (mean seconds) or ``bandwidth`` (mean bytes/s). With `per_worker`, `low`
    and `high` are per worker and grow with the load ("proportional to the workloads' load", 8.1).
    """

    kind: str
    low: float
    high: float
    per_worker: bool = False

    def at(self, workers: float) -> Sla:
        """Return the SLA while `workers` concurrent requests are offered."""
        if not self.per_worker or workers <= 0:
            return replace(self, per_worker=False)
        return Sla(self.kind, self.low * workers, self.high * workers)

    def level(self, measured: float) -> float:
        """Return the performance in multiples of ``low``: 1 and more is enough."""
        if self.kind == BANDWIDTH:
            return measured / self.low
        return self.low / measured if measured > 0 else math.inf

    @property
    def high_level(self) -> float:
        """Performance of ``high`` in multiples of ``low``."""
        return self.level(self.high)

    def of(self, tenant: Tenant) -> float | None:
        """Return the level of a tenant's measurements; None if no request finished."""
        if tenant.requests_s <= 0:
            return None
        measured = tenant.bytes_s if self.kind == BANDWIDTH else tenant.mean_latency_s
        return None if measured is None else self.level(measured)

    def required(self, workers: float, mean_bytes: float) -> tuple[float, float]:
        """Return the requests per second at which `workers` see ``low``, and ``high``, in a closed
        loop: the mean response time is workers / rate (Little's law)."""
        if self.kind == BANDWIDTH:
            return self.low / mean_bytes, self.high / mean_bytes
        return workers / self.low, workers / self.high


def sla_to_json(sla: Sla) -> dict[str, Any]:
    """Return the data that `sla_from_json` reads."""
    key, unit = next((key, unit) for key, (kind, unit) in SLA_KEYS.items() if kind == sla.kind)
    data: dict[str, Any] = {key: {"low": sla.low / unit, "high": sla.high / unit}}
    return data | ({"per_worker": True} if sla.per_worker else {})


def sla_from_json(data: object, where: str) -> Sla:
    """Read {latency_ms: LOW} or {bandwidth_mb_s: LOW}; LOW is a number or {low, high}.

    {per_worker: true} is optional; without a high it is twice the performance of low.

    Raises:
        UserError: anything else, in a sentence that begins with `where`.
    """
    sla = keys_of(data, where, (*SLA_KEYS, "per_worker"))
    given = [key for key in SLA_KEYS if key in sla]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise UserError(
            f"gives {found}", where=where, allowed=f"exactly one of {' and '.join(SLA_KEYS)}"
        )
    per_worker = sla.get("per_worker", False)
    if not isinstance(per_worker, bool):
        raise not_allowed(f"{where}: per_worker", per_worker, "true or false")
    (key,) = given
    kind, unit = SLA_KEYS[key]
    low, high = _bounds(sla[key], f"{where}: {key}", kind)
    if (high > low) if kind == LATENCY else (high < low):
        raise UserError(
            f"{key} has low {low:g} and high {high:g}; low is the worst that is good enough, "
            f"so it must be {'at least' if kind == LATENCY else 'at most'} high",
            where=where,
        )
    return Sla(kind, low * unit, high * unit, per_worker)


def _bounds(value: object, where: str, kind: str) -> tuple[float, float]:
    if not isinstance(value, Mapping):
        low = number_of(value, where, 0.0, above=True, texts=True)
        return low, low / TWICE if kind == LATENCY else low * TWICE
    keys_of(value, f"{where} (a number, or low and high)", ("low", "high"), ("low",))
    low = number_of(value["low"], f"{where}: low", 0.0, above=True, texts=True)
    twice = low / TWICE if kind == LATENCY else low * TWICE
    return low, number_of(value.get("high", twice), f"{where}: high", 0.0, above=True, texts=True)


# ---- Demands and plans ----


class NoPlanError(UserError):
    """Error for too many tenants for the pool or the search; no single tenant is at fault."""

    @classmethod
    def small(cls, tenants: int) -> NoPlanError:
        """Return the error of a pool that has less than a step of everything for each tenant."""
        return cls(
            f"the pool is too small for {tenants} tenants: each needs at least one step of "
            "proxy cores, storage cores and network, and a disk"
        )


MOST_TENANTS = 12
"""Limit of the search over subsets of tenants: beyond it there are too many subsets."""

RATES = ("proxy_cores", "storage_cores", "network")  # resources of a plan, without the disks
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class TenantDemand:
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
class ResourcePool:
    """All resources, and the smallest share of each (a container)."""

    total: Resources
    step: Resources

    @property
    def steps(self) -> Steps:
        """Number of whole steps of each resource."""
        return whole_steps(self.total, self.step)

    def step_prices(self, prices: Resources | None) -> tuple[float, ...]:
        """Return the price of a step of each resource. `prices` are of one core, one byte per
        second, one disk; without them, equation 2: each step's fraction of the pool's."""
        if prices is None:
            return tuple(1 / count if count else 0.0 for count in self.steps)
        return tuple(
            float(getattr(prices, name)) * float(getattr(self.step, name))
            for name in RESOURCE_NAMES
        )


@dataclass(frozen=True)
class WantedRates:
    """Demand in requests per second.

    Attributes:
        need: rate that meets the SLA's low, or all that its workers can ask for if less.
        high: rate that meets the SLA's high; more exceeds the promise.
        ceiling: the most that its workers can ask for.
        attainable: True if some resources would meet the SLA.
    """

    demand: TenantDemand
    table: ClassTable
    need: float
    high: float
    ceiling: float
    attainable: bool


def wanted_rates(
    demand: TenantDemand, performance: PiecewiseLinear, headroom: float = 1.0
) -> WantedRates:
    """Return the need of `demand`; `headroom` times its SLA's low, but never more than its high."""
    table = corrected(performance.table(demand.workload), demand.corrections)
    if demand.latency_s is not None and 0 < demand.latency_s < table.idle_s:
        table = replace(table, idle_s=demand.latency_s)
    ceiling = demand.offered / table.idle_s
    if demand.offered <= 0:
        return WantedRates(demand, table, 0.0, math.inf, 0.0, True)
    low, high = demand.sla.at(demand.offered).required(demand.offered, table.workload.mean_bytes)
    # Workers cannot ask for more than the ceiling, and at full utilization they do not get it.
    need = min(min(low, ceiling) * headroom / demand.utilization, max(low, high))
    # A bandwidth beyond the reach of its few workers does not count as missed; a latency below an
    # idle store's does.
    attainable = demand.sla.kind != LATENCY or low <= ceiling * (1 + _TOLERANCE)
    return WantedRates(demand, table, need, high, ceiling, attainable)


def corrected(table: ClassTable, corrections: Mapping[str, float]) -> ClassTable:
    """Return the table with each resource's throughput multiplied by its factor."""
    curves = {name: getattr(table, name).times(times) for name, times in corrections.items()}
    return replace(table, **curves)


def rate_steps(wanted: WantedRates, rate: float, pool: ResourcePool) -> tuple[int, int, int] | None:
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


def disk_choices(wanted: WantedRates, rate: float, pool: ResourcePool) -> list[tuple[int, int]]:
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


def disks_below_high(
    item: WantedRates,
    steps: tuple[int, int, int],
    choices: Sequence[tuple[int, int]],
    pool: ResourcePool,
) -> list[tuple[int, int]]:
    """Return the disks that keep a tenant below its SLA's high where cores and network in these
    whole steps do not (equation 3's upper bound); none if there is nothing to keep or no way to."""
    step, table = pool.step, item.table
    parts = (
        table.proxy_cores.value(steps[0] * step.proxy_cores),
        table.storage_cores.value(steps[1] * step.storage_cores),
        table.network.value(steps[2] * step.network),
    )
    most = item.high * (1 + 1e-9)
    if min(parts) <= most:
        return []
    return [
        (fast, slow)
        for fast, slow in choices
        if table.ssds.value(fast * step.ssds) + table.hdds.value(slow * step.hdds) <= most
    ]


@dataclass(frozen=True)
class TenantShare:
    """A plan's share for one tenant: the rate that it can serve by the model, the rate that meets
    the SLA, and its performance in multiples of the SLA's low (infinite if nothing is offered).
    """

    tenant: str
    microstore: str
    resources: Resources
    requests_s: float
    needed_s: float
    level: float
    met: bool


@dataclass(frozen=True)
class MicrostorePlan:
    """Allocation of resources. `notes` are sentences about requests that could not be fulfilled."""

    shares: tuple[TenantShare, ...]
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
                vars(share)
                | {
                    "resources": resources_to_json(share.resources),
                    "level": share.level if math.isfinite(share.level) else None,
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


def check_demands(demands: Sequence[TenantDemand]) -> None:
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
    wanted: Sequence[WantedRates],
    given: Sequence[Steps],
    pool: ResourcePool,
    price: Sequence[float],
    solver: str,
) -> MicrostorePlan:
    """Return the plan that gives each tenant its number of steps, at the `price` of each."""
    shares: list[TenantShare] = []
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
    cost = math.fsum(p * count for steps in given for p, count in zip(price, steps, strict=True))
    return MicrostorePlan(tuple(shares), stores, left, cost, solver, tuple(notes))


def _share(item: WantedRates, resources: Resources) -> TenantShare:
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
    return TenantShare(demand.tenant, demand.microstore, resources, capacity, item.need, level, met)


def _notes(item: WantedRates, share: TenantShare) -> list[str]:
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


# ---- Tenants and their SLAs, as given in a controller's parameters ----

PROMISE_KEYS = ("workload", "sla", "weight")


@dataclass(frozen=True)
class Promise:
    """Class and SLA of a tenant; `weight` against others."""

    workload: WorkloadClass
    sla: Sla
    weight: float = 1.0


def promises_from_json(
    data: Mapping[str, object], model: PiecewiseLinear | None, where: str
) -> dict[str, Promise]:
    """Read {TENANT: {workload: CLASS, sla: {..}, weight: 1}}; raise UserError if malformed."""
    return {
        str(name): _promise(item, model, f"{where}: tenant {name}") for name, item in data.items()
    }


def _promise(data: object, model: PiecewiseLinear | None, where: str) -> Promise:
    given = keys_of(data, where, PROMISE_KEYS, PROMISE_KEYS[:2])
    weight = number_of(given.get("weight", 1.0), f"{where}: weight", 0.0, above=True, texts=True)
    workload = class_called(given["workload"], model, where)
    return Promise(workload, sla_from_json(given["sla"], f"{where}: sla"), weight)


def class_called(name: object, model: PiecewiseLinear | None, where: str) -> WorkloadClass:
    """Return the class of `model` with that name; without a model any name is accepted."""
    if model is None:
        return WorkloadClass(str(name), 1.0)
    table = model.tables.get(str(name))
    if table is None:
        raise not_allowed(f"{where}: workload", name, ", ".join(sorted(model.tables)))
    return table.workload


def offered_by(tenant: Tenant) -> float:
    """Return the concurrent requests: the workers if known, else the mean number in flight by
    Little's law."""
    if tenant.workers is not None:
        return max(0.0, tenant.workers)
    if tenant.mean_latency_s is None:
        return 0.0
    return tenant.requests_s * tenant.mean_latency_s


def demand_of(tenant: Tenant, promise: Promise) -> TenantDemand:
    """Return the demand of a monitored tenant by the model alone."""
    return TenantDemand(
        tenant.name,
        tenant.microstore,
        promise.workload,
        offered_by(tenant),
        promise.sla,
        promise.weight,
    )


# ---- Prices ----

UNITS = {
    "proxy_core": ("proxy_cores", 1.0),
    "storage_core": ("storage_cores", 1.0),
    "network_gbit_s": ("network", 125e6),
    "ssd": ("ssds", 1.0),
    "hdd": ("hdds", 1.0),
}
"""Price keys: the resource, and the amount that costs the price for an hour."""


def prices_from_json(data: object, where: str) -> Resources:
    """Read {proxy_core: 0.04, ..}, each of `UNITS` for an hour, in any one currency, as prices of
    one of each resource.

    Raises:
        UserError: one is missing, unknown or no number of at least 0.
    """
    given = keys_of(data, where, UNITS, UNITS)
    values = {
        resource: number_of(given[name], f"{where}: {name}", 0.0, texts=True) / unit
        for name, (resource, unit) in UNITS.items()
    }
    if not any(values.values()):
        raise UserError("every price is 0", where=where, allowed="at least one above 0")
    return Resources(**values)  # type: ignore[arg-type]


def prices_to_json(prices: Resources) -> dict[str, float]:
    """Return the data that `prices_from_json` reads."""
    return {
        name: float(getattr(prices, resource)) * unit for name, (resource, unit) in UNITS.items()
    }


def bills(
    plan: MicrostorePlan, prices: Resources, mean_bytes: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return a JSON-able bill for each tenant: its resources' price for an hour, and its service
    for one unit of the currency (infinite if nothing is paid). `mean_bytes` is by tenant.
    """
    found: list[dict[str, Any]] = []
    for share in plan.shares:
        held = share.resources
        price = sum(getattr(held, name) * getattr(prices, name) for name in RESOURCE_NAMES)
        requests = share.requests_s * 3600 / price if price > 0 else math.inf
        found.append(
            {
                "tenant": share.tenant,
                "price_an_hour": float(price),
                "requests_per_price": requests,
                "gigabytes_per_price": requests * mean_bytes[share.tenant] / 1e9,
            }
        )
    return found
