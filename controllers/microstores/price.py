"""Cost of resources, and the performance per price (section 9: perf/$).

The paper leaves this open and suggests a pricing model in the optimiser. A plan minimises
`problem.Prices` instead of equation 2's resources. The optimiser's objective ``value`` goes
further: it weighs the service beyond the tenants' SLA's low against its price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from controllers.common.numbers import finite
from controllers.microstores.problem import Plan, Prices
from schemas.errors import UserError
from schemas.numbers import plain
from testbed.stores.microstores import RESOURCE_NAMES, Resources

UNITS = {
    "proxy_core": ("proxy_cores", 1.0),
    "storage_core": ("storage_cores", 1.0),
    "network_gbit_s": ("network", 125e6),
    "ssd": ("ssds", 1.0),
    "hdd": ("hdds", 1.0),
}
"""Price keys: the resource, and the amount that costs the price for an hour."""


def prices_from_json(data: object, where: str) -> Prices:
    """Read prices from {proxy_core: 0.04, ..}: each of `UNITS` for an hour, in any one currency.

    Raises:
        UserError: one is missing, unknown or no number of at least 0.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: must be a mapping of {', '.join(UNITS)}, not {data!r}")
    for name in data:
        if name not in UNITS:
            raise UserError(f"{where}: unknown price {name!r} (allowed: {', '.join(UNITS)})")
    values: dict[str, float] = {}
    for name, (resource, unit) in UNITS.items():
        if name not in data:
            raise UserError(f"{where}: the price of {name} is missing")
        value = plain(data[name])
        if not finite(value) or value < 0:
            raise UserError(f"{where}: {name} is {value!r}; it must be a number of at least 0")
        values[resource] = value / unit
    if not any(values.values()):
        raise UserError(f"{where}: every price is 0; at least one must be above 0")
    return Prices(Resources(**values))  # type: ignore[arg-type]


def prices_to_json(prices: Prices) -> dict[str, float]:
    """Return the data that `prices_from_json` reads; {} without prices."""
    if prices.of is None:
        return {}
    return {
        name: float(getattr(prices.of, resource)) * unit for name, (resource, unit) in UNITS.items()
    }


def price_of(resources: Resources, prices: Resources) -> float:
    """Return the price of `resources` for an hour."""
    return float(sum(getattr(resources, name) * getattr(prices, name) for name in RESOURCE_NAMES))


@dataclass(frozen=True)
class Bill:
    """Bill of a tenant: the price of its resources for an hour, and the service for it.

    Attributes:
        price: for an hour.
        requests, gigabytes: service for one unit of the currency; infinite if nothing
            is paid.
    """

    tenant: str
    price: float
    requests: float
    gigabytes: float


def bills(plan: Plan, prices: Resources, mean_bytes: Mapping[str, float]) -> tuple[Bill, ...]:
    """Return a bill for each tenant of `plan`; `mean_bytes` is its mean object size by tenant."""
    found: list[Bill] = []
    for share in plan.shares:
        price = price_of(share.resources, prices)
        hourly = share.requests_s * 3600
        requests = hourly / price if price > 0 else math.inf
        found.append(Bill(share.tenant, price, requests, requests * mean_bytes[share.tenant] / 1e9))
    return tuple(found)
