"""What MOS senses and changes: microstores, the machines and shares they hold, and the pool.

A microstore is an object store of its own (proxies and storage servers) that serves some tenants
(MOS, sections 4 and 6). Basic MOS moves whole machines between microstores and the free pool
(Algorithm 1), MOS++ moves shares of them (containers: Algorithm 2). Standard library only: this
runs on the admin node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

MICROSTORES = "microstores"  # a sense: Observation.microstores
RESOURCES = "resources"  # an act: the shares that a microstore holds
MACHINES = "machines"  # an act: whole machines
TENANTS = "tenants"  # an act: which microstore serves a tenant
MEASURES = ("proxy_cpu", "storage_cpu", "network", "disk")
"""What utilization is told of, each as a fraction of what the microstore holds of it."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Shares: cores of proxies and of storage servers, bytes a second between clients and proxies,
    and disks of either class (equation 1 of the paper)."""

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
        """Nothing here exceeds `other`, but for rounding (relative to the larger number)."""
        for name in RESOURCE_NAMES:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine > theirs + tolerance * max(1.0, abs(theirs)):
                return False
        return True


RESOURCE_NAMES = tuple(item.name for item in fields(Resources))
NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that basic MOS hands out whole; `holds` is what a microstore gets with it and
    `microstore` who has it, "" while it is free."""

    name: str
    holds: Resources
    microstore: str = ""


@dataclass(frozen=True)
class Tenant:
    """What a workload monitor saw of a tenant in the interval.

    Rates are of finished requests and of their bytes; latencies in seconds, None where nothing
    finished (p95 also where ten requests beyond it are missing). `sizes` counts requests by the
    power of two that their object's size, in bytes, does not exceed (the key is the exponent).
    `workers` is the tenant's offered concurrency, where it is known.
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
    """A microstore: what it holds and how much of that is used.

    `utilization` maps a measure (`MEASURES`) to a fraction (0 to 1), the mean over the interval; a
    measure that could not be sensed is absent. `slots` holds the largest of them in each sampling
    slot of the interval (1 % of an epoch in section 6), for Algorithm 2's sample().
    """

    name: str
    resources: Resources
    utilization: Mapping[str, float] = field(default_factory=dict)
    slots: tuple[float, ...] = ()


@dataclass(frozen=True)
class Microstores:
    """Everything that MOS knows of: `total` is the pool of all resources, `step` the smallest share
    of each that can be given (a container), `machines` what basic MOS has instead of shares."""

    stores: tuple[Microstore, ...]
    tenants: tuple[Tenant, ...] = ()
    total: Resources = NOTHING
    step: Resources = NOTHING
    machines: tuple[Machine, ...] = ()

    @property
    def free(self) -> Resources:
        """What no microstore holds."""
        left = self.total
        for store in self.stores:
            left = left - store.resources
        return left

    def store(self, name: str) -> Microstore:
        """The microstore called `name`; KeyError when there is none."""
        for store in self.stores:
            if store.name == name:
                return store
        raise KeyError(name)


@dataclass(frozen=True)
class SetResources:
    """The microstore holds `resources` from now on; of a step's actions the store carries out
    those first that give something up."""

    microstore: str
    resources: Resources
    kind: str = RESOURCES


@dataclass(frozen=True)
class AssignMachine:
    """The whole machine goes to `microstore`, to the pool where that is ""."""

    machine: str
    microstore: str
    kind: str = MACHINES


@dataclass(frozen=True)
class MapTenant:
    """`microstore` serves the tenant's requests from now on (section 9's detect-and-map)."""

    tenant: str
    microstore: str
    kind: str = TENANTS


def resources_to_json(resources: Resources) -> dict[str, float]:
    """The five numbers by name."""
    return {name: getattr(resources, name) for name in RESOURCE_NAMES}


def microstores_to_json(seen: Microstores) -> dict[str, Any]:
    """As JSON-able data: exponents become strings, as JSON keys are."""
    return {
        "stores": [
            {
                "name": store.name,
                "resources": resources_to_json(store.resources),
                "utilization": dict(store.utilization),
                "slots": list(store.slots),
            }
            for store in seen.stores
        ],
        "tenants": [_tenant_to_json(tenant) for tenant in seen.tenants],
        "total": resources_to_json(seen.total),
        "step": resources_to_json(seen.step),
        "machines": [
            {
                "name": machine.name,
                "holds": resources_to_json(machine.holds),
                "microstore": machine.microstore,
            }
            for machine in seen.machines
        ],
    }


def _tenant_to_json(tenant: Tenant) -> dict[str, Any]:
    data = {item.name: getattr(tenant, item.name) for item in fields(Tenant)}
    data["sizes"] = {str(exponent): count for exponent, count in tenant.sizes.items()}
    return data


def microstores_from_json(data: Mapping[str, Any]) -> Microstores:
    """The inverse of `microstores_to_json`."""
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
            Machine(machine["name"], Resources(**machine["holds"]), machine["microstore"])
            for machine in data["machines"]
        ),
    )
