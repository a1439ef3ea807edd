"""Store of microstores that behaves like a model, instances for the optimiser, and an exhaustive
oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from controllers.microstores.performance import (
    CapacityCurve,
    ClassTable,
    PiecewiseLinear,
    WorkloadClass,
)
from controllers.microstores.problem import (
    BANDWIDTH,
    MicrostorePlan,
    ResourcePool,
    Sla,
    TenantDemand,
    wanted_rates,
)
from testbed.stores.contract import Action, Effect, Needs, Observation
from testbed.stores.microstores import (
    MACHINES,
    MICROSTORES,
    NOTHING,
    RESOURCES,
    TENANTS,
    AssignableMachine,
    AssignMachine,
    MapTenant,
    Microstore,
    Microstores,
    Resources,
    SetResources,
    Tenant,
)


def linear(
    workload: WorkloadClass,
    per_unit: Mapping[str, float],
    most: Mapping[str, float],
    idle_s: float,
) -> ClassTable:
    """Return a table of straight lines: each unit of each of `CURVES` adds `per_unit` requests per
    second, up to `most` units."""
    curves = {
        name: CapacityCurve(((0.0, 0.0), (float(most[name]), float(most[name]) * gain)))
        for name, gain in per_unit.items()
    }
    return ClassTable(workload, idle_s, **curves)


MOST = {"proxy_cores": 10, "storage_cores": 10, "network": 1e9, "ssds": 10, "hdds": 10}
A = linear(
    WorkloadClass("A", 65e3, 0.1),
    {"proxy_cores": 340, "storage_cores": 180, "network": 1 / 70e3, "ssds": 2000, "hdds": 120},
    MOST,
    0.005,
)
C = linear(
    WorkloadClass("C", 8.5e6, 0.1),
    {"proxy_cores": 47, "storage_cores": 60, "network": 1 / 9e6, "ssds": 50, "hdds": 15},
    MOST,
    0.03,
)
MODEL = PiecewiseLinear({"A": A, "C": C}, "of the tests")
TABLES = {"web": A, "video": C}
TOTAL = Resources(0.8, 0.8, 5e7, 2, 4)
STEP = Resources(0.1, 0.1, 2.5e6, 1, 1)
TENANTS_SAID = {
    "web": {"workload": "A", "sla": {"latency_ms": 90}},
    "video": {"workload": "C", "sla": {"bandwidth_mb_s": 10}},
}


@dataclass(frozen=True)
class Served:
    """Rates per second, mean latency (infinite if nothing is served), and utilization."""

    requests_s: float
    bytes_s: float
    mean_latency_s: float
    busy: dict[str, float]


def served(table: ClassTable, held: Resources, offered: float) -> Served:
    """Return the service of `offered` concurrent requests: the lesser of the workers' demand and
    the scarcest part's capacity."""
    parts = table.parts(held)
    rate = min(offered / table.idle_s, *parts.values())
    used = {
        "proxy_cpu": (table.proxy_cores.inverse(rate), held.proxy_cores),
        "storage_cpu": (table.storage_cores.inverse(rate), held.storage_cores),
        "network": (table.network.inverse(rate), held.network),
        "disk": (rate, parts["disk"]),
    }
    busy = {name: min(1.0, need / has) if has > 0 else 1.0 for name, (need, has) in used.items()}
    if offered <= 0:
        return Served(0.0, 0.0, table.idle_s, dict.fromkeys(used, 0.0))
    latency = offered / rate if rate > 0 else math.inf
    return Served(rate, rate * table.workload.mean_bytes, latency, busy)


@dataclass
class FakeMicrostores:
    """Microstores that perform like `MODEL`; `load` gives each tenant's workers by step."""

    load: Any
    stores: dict[str, Resources]
    tenants: dict[str, str] = field(default_factory=lambda: {"web": "small", "video": "large"})
    machines: dict[str, tuple[Resources, str]] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)  # of each tenant's requests
    number: int = 0
    acted: list[list[Action]] = field(default_factory=list)

    def offers(self) -> Needs:
        return Needs(frozenset({MICROSTORES}), frozenset({RESOURCES, MACHINES, TENANTS}))

    def held(self, name: str) -> Resources:
        if not self.machines:
            return self.stores[name]
        found = NOTHING
        for holds, store in self.machines.values():
            if store == name:
                found = found + holds
        return found

    def sense(self, senses: frozenset[str]) -> Observation:
        workers = self.load(self.number)
        self.number += 1
        tenants, busy = [], {name: {"proxy_cpu": 0.0} for name in self.stores}
        for name, store in self.tenants.items():
            table = TABLES[name]
            got = served(table, self.held(store), workers[name])
            busy[store] = got.busy
            done = got.requests_s > 0
            tenants.append(
                Tenant(
                    name,
                    store,
                    got.requests_s,
                    got.bytes_s,
                    0.0,
                    got.mean_latency_s if done else None,
                    write_share=0.1,
                    workers=float(workers[name]),
                    sizes=self.sizes,
                )
            )
        stores = tuple(
            Microstore(name, self.held(name), busy[name], (max(busy[name].values()),) * 10)
            for name in self.stores
        )
        machines = tuple(
            AssignableMachine(n, holds, store) for n, (holds, store) in self.machines.items()
        )
        seen = Microstores(stores, tuple(tenants), TOTAL, STEP, machines)
        return Observation(0.0, 10.0, microstores=seen)

    def act(self, actions: Sequence[Action]) -> Sequence[Effect]:
        self.acted.append(list(actions))
        for action in actions:
            if isinstance(action, SetResources):
                self.stores[action.microstore] = action.resources
            elif isinstance(action, AssignMachine):
                holds, _ = self.machines[action.machine]
                self.machines[action.machine] = (holds, action.microstore)
            elif isinstance(action, MapTenant):
                self.tenants[action.tenant] = action.microstore
        held = NOTHING
        for name in self.stores:
            held = held + self.held(name)
        assert self.machines or held.within(TOTAL), "more than there is was given out"
        return [Effect(ok=True) for _ in actions]

    def save(self) -> Mapping[str, Any]:
        return {}

    def restore(self, saved: Mapping[str, Any]) -> Sequence[Effect]:
        return []


HALF = Resources(0.4, 0.4, 2.5e7, 1, 2)


def two(load: Any) -> FakeMicrostores:
    """Return one microstore each for web (A) and video (C), with half of the pool each."""
    return FakeMicrostores(load, {"small": HALF, "large": HALF})


# Small instances use whole numbers everywhere, so that equality is exact.

ONE = Resources(1, 1, 1, 1, 1)


@st.composite
def curves(draw: Any) -> CapacityCurve:
    gains = draw(st.lists(st.integers(0, 8), min_size=1, max_size=4))
    points, value = [(0.0, 0.0)], 0
    for index, gain in enumerate(gains):
        value += gain
        points.append((float(index + 1), float(value)))
    return CapacityCurve(tuple(points))


@st.composite
def problems(draw: Any, most_tenants: int = 2, most: int = 3) -> tuple[Any, ...]:
    """Draw (model, demands, pool): classes of any curves, bandwidth SLAs without an upper bound."""
    count = draw(st.integers(1, most_tenants))
    tables: dict[str, ClassTable] = {}
    demands: list[TenantDemand] = []
    for index in range(count):
        name = f"t{index}"
        parts = [draw(curves()) for _ in range(5)]
        tables[name] = ClassTable(WorkloadClass(name, 1.0), 1e-9, *parts)
        low = float(draw(st.integers(1, 16)))
        weight = float(draw(st.integers(1, 3)))
        sla = Sla(BANDWIDTH, low, 1e6)
        demands.append(TenantDemand(name, name, tables[name].workload, 1.0, sla, weight))
    amounts = [draw(st.integers(count, most)) for _ in range(3)]
    disks = [draw(st.integers(0, 2)), draw(st.integers(count, most))]
    pool = ResourcePool(Resources(*map(float, amounts), *disks), ONE)
    return PiecewiseLinear(tables), tuple(demands), pool


Judged = tuple[float, ...]


def judged(plan: MicrostorePlan, demands: Sequence[TenantDemand]) -> Judged:
    """Return the criteria of a plan, most important first: violated weight, least satisfaction,
    each satisfaction in order, cost."""
    share = {s.tenant: min(1.0, s.requests_s / s.needed_s) for s in plan.shares}
    lost = sum(d.weight for d in demands if share[d.tenant] < 1 - 1e-9)
    order = sorted(demands, key=lambda d: (-d.weight, d.tenant))
    return (-lost, min(share.values()), *(share[d.tenant] for d in order), -plan.cost)


def best_of_all(
    model: PiecewiseLinear, demands: Sequence[TenantDemand], pool: ResourcePool
) -> Judged | None:
    """Return the best result over all divisions of the pool."""
    most = pool.steps
    price = [1 / count if count else 0.0 for count in most]
    wanted = [wanted_rates(demand, model) for demand in demands]
    ranges = [range(1, most[i] + 1) for i in range(3)] + [range(most[i] + 1) for i in (3, 4)]
    options: list[list[tuple[tuple[int, ...], float, float]]] = []
    for item in wanted:
        mine: dict[tuple[int, ...], tuple[float, float]] = {}
        for steps in product(*ranges):
            if steps[3] + steps[4] == 0:
                continue
            held = Resources(*map(float, steps[:3]), *steps[3:])
            share = min(1.0, item.table.capacity(held) / item.need)
            mine[steps] = (share, sum(p * s for p, s in zip(price, steps, strict=True)))
        options.append([(s, *v) for s, v in mine.items()])
    order = sorted(range(len(demands)), key=lambda i: (-demands[i].weight, demands[i].tenant))
    best: Judged | None = None
    for chosen in product(*options):
        if any(sum(c[0][r] for c in chosen) > most[r] for r in range(5)):
            continue
        shares = [c[1] for c in chosen]
        lost = sum(d.weight for d, s in zip(demands, shares, strict=True) if s < 1 - 1e-9)
        cost = sum(c[2] for c in chosen)
        found = (-lost, min(shares), *(shares[i] for i in order), -cost)
        if best is None or found > best:
            best = found
    return best


def with_model(**changes: Any) -> dict[str, Any]:
    """Return parameters of MOS++ for `two`."""
    return {"tenants": TENANTS_SAID, "model": MODEL.to_json(), **changes}


def off_by(model: PiecewiseLinear, factor: float) -> PiecewiseLinear:
    """Return a model that promises `factor` times as much."""
    names = ("proxy_cores", "storage_cores", "network", "ssds", "hdds")
    tables = {
        key: replace(table, **{n: getattr(table, n).times(factor) for n in names})
        for key, table in model.tables.items()
    }
    return PiecewiseLinear(tables)
