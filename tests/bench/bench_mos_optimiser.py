"""Optimiser of MOS++: plans for the pool of section 8.2 (50 machines) and four tenants.

Times are this process's processor times, so that other load on the machine does not count. Both
solvers solve every instance, and the values of their plans must be equal. A seed draws the
promises; half of the instances ask for more than the pool, which takes longest.
HOTBED_BENCH_SMALL=1 takes fewer.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from frame import SMALL, row, show

from controllers.microstores.optimiser import EXACT, HIGHS, plan
from controllers.microstores.performance import (
    CapacityCurve,
    ClassTable,
    PiecewiseLinear,
    WorkloadClass,
)
from controllers.microstores.problem import (
    BANDWIDTH,
    LATENCY,
    MicrostorePlan,
    ResourcePool,
    Sla,
    TenantDemand,
)
from testbed.simulated.cosperf.machines import STEP, paper_pool, total
from testbed.stores.microstores import Resources

INSTANCES = 4 if SMALL else 24
LIMIT_S = 1.0
CLASSES = {  # bytes, writes, core seconds at proxies and storage servers, of an HDD, of an SSD
    "A": (65e3, 0.10, 0.0030, 0.0055, 0.009, 0.0004),
    "B": (65e3, 0.95, 0.0035, 0.0075, 0.012, 0.0005),
    "C": (65e6, 0.10, 0.1600, 0.1700, 0.450, 0.1400),
    "D": (65e6, 0.95, 0.2500, 0.3300, 0.900, 0.3000),
}


def model() -> PiecewiseLinear:
    """Return straight lines from the demands above."""
    tables = {}
    most = {"proxy_cores": 300, "storage_cores": 300, "network": 3e10, "ssds": 100, "hdds": 200}
    for name, (size, writes, proxy, storage, slow, fast) in CLASSES.items():
        per_unit = {
            "proxy_cores": 1 / proxy,
            "storage_cores": 1 / storage,
            "network": 1 / (1.03 * size + 2000),
            "ssds": 1 / fast,
            "hdds": 1 / slow,
        }
        workload = WorkloadClass(name, size, writes)
        curves = {
            resource: CapacityCurve(((0.0, 0.0), (float(most[resource]), gain * most[resource])))
            for resource, gain in per_unit.items()
        }
        tables[name] = ClassTable(workload, proxy + storage + fast, **curves)
    return PiecewiseLinear(tables, "bench")


def demands(rng: random.Random, greed: float) -> list[TenantDemand]:
    """Return the four workloads of Table 1, scaled by `greed`."""
    found = []
    for name, (size, writes, *_) in CLASSES.items():
        workload = WorkloadClass(name, size, writes)
        if workload.small:
            rate, latency = greed * rng.uniform(1500, 6000), rng.uniform(0.03, 0.12)
            sla = Sla(LATENCY, latency, latency / 2)
            found.append(TenantDemand(name, name.lower(), workload, rate * latency, sla))
        else:
            rate = greed * rng.uniform(0.6e9, 3e9)
            sla = Sla(BANDWIDTH, rate, 2 * rate)
            found.append(TenantDemand(name, name.lower(), workload, rng.uniform(64, 512), sla))
    return found


def worth(made: MicrostorePlan) -> list[float]:
    """Return the values on which the two solvers must agree."""
    shares = [min(1.0, share.requests_s / share.needed_s) for share in made.shares]
    return [float(len(made.violated)), min(shares), made.cost]


def timed(
    solver: str, cospurf: PiecewiseLinear, asked: list[TenantDemand], pool: ResourcePool
) -> Any:
    """Return (seconds of CPU, plan)."""
    begin = time.process_time()
    made = plan(cospurf, asked, pool, solver=solver)
    return time.process_time() - begin, made


def main() -> None:
    """Print the rows."""
    rng, cospurf = random.Random(8), model()
    hosts = paper_pool(1)
    held = total(hosts)
    pool = ResourcePool(
        Resources(held.proxy_cores, held.storage_cores, held.network, held.ssds, held.hdds), STEP
    )
    seconds: dict[str, list[float]] = {EXACT: [], HIGHS: []}
    apart, missed = 0, 0
    for number in range(INSTANCES):
        asked = demands(rng, 1.0 if number % 2 else 6.0)
        plans = {}
        for solver, times in seconds.items():
            taken, plans[solver] = timed(solver, cospurf, asked, pool)
            times.append(taken)
        pairs = zip(worth(plans[EXACT]), worth(plans[HIGHS]), strict=True)
        apart += any(abs(a - b) > 1e-4 * max(1.0, abs(b)) for a, b in pairs)
        missed += bool(plans[HIGHS].violated)
    rows = [
        row(
            f"mos optimiser, 50 machines, 4 tenants, {solver}: slowest plan",
            max(times),
            "s",
            LIMIT_S,
            n=len(times),
            note=f"median {statistics.median(times):.3f} s; {missed} cannot meet every SLA",
        )
        for solver, times in seconds.items()
    ]
    name, note = "mos optimiser: plans on which the solvers disagree", "SLAs, satisfaction, cost"
    show([*rows, row(name, float(apart), "plans", 0.0, n=INSTANCES, note=note)])


if __name__ == "__main__":
    main()
