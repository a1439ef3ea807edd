"""What resources cost, and what performance one gets for it (section 9: perf/$).

The paper leaves it open and names a pricing model in the optimiser as the way. `problem.Prices` are
what a plan minimises instead of equation 2's resources; the optimiser's objective ``value`` goes
further and weighs what tenants get beyond their SLA's low against its price.
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
"""How a price is written: the resource, and how much of it costs the price for an hour."""


def prices_from_json(data: object, where: str) -> Prices:
    """From {proxy_core: 0.04, ..}, an hour's price of each of `UNITS` in any one currency.

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
    """What `prices_from_json` reads; nothing of prices that are none."""
    if prices.of is None:
        return {}
    return {
        name: float(getattr(prices.of, resource)) * unit for name, (resource, unit) in UNITS.items()
    }


def price_of(resources: Resources, prices: Resources) -> float:
    """An hour's price of `resources`."""
    return float(sum(getattr(resources, name) * getattr(prices, name) for name in RESOURCE_NAMES))


@dataclass(frozen=True)
class Bill:
    """A tenant's: an hour's price of what it has, and what it can be served for it.

    Attributes:
        price: an hour.
        requests, gigabytes: that can be served for one unit of the currency; infinite where
            nothing is paid.
    """

    tenant: str
    price: float
    requests: float
    gigabytes: float


def bills(plan: Plan, prices: Resources, mean_bytes: Mapping[str, float]) -> tuple[Bill, ...]:
    """A bill for each tenant of `plan`; `mean_bytes` of its objects by tenant."""
    found: list[Bill] = []
    for share in plan.shares:
        price = price_of(share.resources, prices)
        hourly = share.requests_s * 3600
        requests = hourly / price if price > 0 else math.inf
        found.append(Bill(share.tenant, price, requests, requests * mean_bytes[share.tenant] / 1e9))
    return tuple(found)
