"""Types for what MOS senses and changes: microstores, their machines and shares, and the pool.

A microstore is a separate object store (proxies and storage servers) for a set of tenants (MOS,
sections 4 and 6). Basic MOS moves whole machines between microstores and the free pool (Algorithm
1). MOS++ moves shares of machines (containers: Algorithm 2). Standard library only: the module runs
on the admin node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

MICROSTORES = "microstores"  # a sense: Observation.microstores
RESOURCES = "resources"  # an act: the shares of a microstore
MACHINES = "machines"  # an act: whole machines
TENANTS = "tenants"  # an act: which microstore serves a tenant
MEASURES = ("proxy_cpu", "storage_cpu", "network", "disk")
"""Measures of utilization, each as a fraction of the microstore's share."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Shares: cores of proxies and storage servers, bytes per second between clients and proxies,
    and disks of both classes (equation 1 of the paper)."""

    proxy_cores: float = 0.0
    storage_cores: float = 0.0
    network: float = 0.0
    ssds: int = 0
    hdds: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.proxy_cores + other.proxy_cores,
            self.storage_cores + other.storage_cores,
            self.network + other.network,
            self.ssds + other.ssds,
            self.hdds + other.hdds,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.proxy_cores - other.proxy_cores,
            self.storage_cores - other.storage_cores,
            self.network - other.network,
            self.ssds - other.ssds,
            self.hdds - other.hdds,
        )

    def within(self, other: Resources, tolerance: float = 1e-9) -> bool:
        """Return True if nothing exceeds `other`, up to rounding relative to the larger number."""
        for name in RESOURCE_NAMES:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine > theirs + tolerance * max(1.0, abs(theirs)):
                return False
        return True


RESOURCE_NAMES = tuple(item.name for item in fields(Resources))
NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class AssignableMachine:
    """A machine that basic MOS assigns whole. `holds` are the resources that it gives a microstore;
    `microstore` is its current owner, "" if the machine is free."""

    name: str
    holds: Resources
    microstore: str = ""


@dataclass(frozen=True)
class Tenant:
    """Measurements of one tenant by the workload monitor, over the interval.

    Rates count finished requests and their bytes. Latencies are in seconds, None without finished
    requests (p95 also with fewer than ten requests beyond it). `sizes` counts requests by the
    exponent (key) of a power of two that the object's size, in bytes, does not exceed. `workers` is
    the tenant's offered concurrency, if known.
    """

    name: str
    microstore: str
    requests_s: float = 0.0
    bytes_s: float = 0.0
    failed_s: float = 0.0
    mean_latency_s: float | None = None
    p95_latency_s: float | None = None
    sizes: Mapping[int, int] = field(default_factory=dict)
    write_share: float = 0.0
    workers: float | None = None


@dataclass(frozen=True)
class Microstore:
    """A microstore: its resources and their utilization.

    `utilization` maps a measure (`MEASURES`) to a fraction (0 to 1), the mean over the interval. A
    measure that could not be sensed is absent. `slots` holds the largest measure in each sampling
    slot of the interval (1 % of an epoch in section 6), for Algorithm 2's sample().
    """

    name: str
    resources: Resources
    utilization: Mapping[str, float] = field(default_factory=dict)
    slots: tuple[float, ...] = ()


@dataclass(frozen=True)
class Microstores:
    """Everything that MOS knows. `total` is the pool of all resources, `step` the smallest share of
    each (a container). `machines` is what basic MOS uses instead of shares."""

    stores: tuple[Microstore, ...]
    tenants: tuple[Tenant, ...] = ()
    total: Resources = NOTHING
    step: Resources = NOTHING
    machines: tuple[AssignableMachine, ...] = ()

    @property
    def free(self) -> Resources:
        """Resources that no microstore holds."""
        left = self.total
        for store in self.stores:
            left = left - store.resources
        return left

    def store(self, name: str) -> Microstore:
        """Return the microstore called `name`; raise KeyError if there is none."""
        for store in self.stores:
            if store.name == name:
                return store
        raise KeyError(name)


@dataclass(frozen=True)
class SetResources:
    """Action: the microstore holds `resources` from now on. Of a step's actions, the store carries
    out first those that give something up."""

    microstore: str
    resources: Resources
    kind: str = RESOURCES


@dataclass(frozen=True)
class AssignMachine:
    """Action: the whole machine moves to `microstore`, or to the pool if `microstore` is ""."""

    machine: str
    microstore: str
    kind: str = MACHINES


@dataclass(frozen=True)
class MapTenant:
    """Action: `microstore` serves the tenant's requests from now on (section 9, detect-and-map)."""

    tenant: str
    microstore: str
    kind: str = TENANTS


def resources_to_json(resources: Resources) -> dict[str, float]:
    """Return the five numbers by name."""
    return {name: getattr(resources, name) for name in RESOURCE_NAMES}


def microstores_to_json(seen: Microstores) -> dict[str, Any]:
    """Return JSON-able data; exponents become strings, as JSON keys are."""
    data = asdict(seen)
    for tenant in data["tenants"]:
        tenant["sizes"] = {str(exponent): count for exponent, count in tenant["sizes"].items()}
    return data


def microstores_from_json(data: Mapping[str, Any]) -> Microstores:
    """Invert `microstores_to_json`."""
    return Microstores(
        stores=tuple(
            Microstore(
                store["name"],
                Resources(**store["resources"]),
                dict(store["utilization"]),
                tuple(store["slots"]),
            )
            for store in data["stores"]
        ),
        tenants=tuple(
            Tenant(
                **{key: value for key, value in tenant.items() if key != "sizes"},
                sizes={int(exponent): count for exponent, count in tenant["sizes"].items()},
            )
            for tenant in data["tenants"]
        ),
        total=Resources(**data["total"]),
        step=Resources(**data["step"]),
        machines=tuple(
            AssignableMachine(machine["name"], Resources(**machine["holds"]), machine["microstore"])
            for machine in data["machines"]
        ),
    )
