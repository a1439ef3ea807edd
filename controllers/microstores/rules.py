"""The paper's rules of thumb R1 to R7 (section 3) as checks of an allocation.

The verdict reports the numbers behind it. Thresholds that the paper does not give are here, with
their reasons. A rule that cannot be judged reports what is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.microstores.performance import ClassTable, PiecewiseLinear, WorkloadClass
from controllers.microstores.problem import MicrostorePlan
from testbed.stores.microstores import NOTHING, Resources

RULES = ("R1", "R2", "R3", "R4", "R5", "R6", "R7")
HOLDS, BROKEN, UNKNOWN = "holds", "broken", "unknown"

CORES_RATIO = 3.0
"""R4 wants as many proxies' cores as storage servers'. The store decides which work harder, so up
to this ratio both counts are taken as equal."""

LINK_RATIO = 1.5
"""Limit for R5's "roughly the same"."""

IDLE_NETWORK = 2.0
"""R6: network beyond this multiple of the cores' capacity is wasted on small objects."""

DISK_PRICES = Resources(ssds=3, hdds=1)
"""R7: prices that rank the disks if none are given."""

_SAME = 1e-6


@dataclass(frozen=True)
class RuleFinding:
    """Verdict of a rule on a microstore ("" for R1's on all of them): `holds`, `broken` or
    `unknown`; the deciding numbers; a sentence."""

    rule: str
    microstore: str
    verdict: str
    numbers: Mapping[str, float]
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return vars(self) | {"numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Allocation:
    """Resources by microstore, and the microstore of each tenant: of a plan, or the present ones.

    `needed` requests per second meet the tenants' SLAs, and `link` is bytes per second of all
    storage servers, by microstore where known. `prices` find the cheapest disks.
    """

    total: Resources
    stores: Mapping[str, Resources]
    tenants: Mapping[str, str]
    needed: Mapping[str, float] = field(default_factory=dict)
    link: Mapping[str, float] = field(default_factory=dict)
    prices: Resources = DISK_PRICES


def division_of(plan: MicrostorePlan, total: Resources) -> Allocation:
    """Return the division of the pool by a plan."""
    needed: dict[str, float] = {}
    for share in plan.shares:
        needed[share.microstore] = needed.get(share.microstore, 0.0) + share.needed_s
    tenants = {share.tenant: share.microstore for share in plan.shares}
    return Allocation(total, plan.stores, tenants, needed)


def check_rules(
    plan: Allocation,
    workloads: Mapping[str, WorkloadClass],
    performance: PiecewiseLinear | None = None,
) -> list[RuleFinding]:
    """Return every rule's verdict on every microstore that the rule covers.

    Tenants without a class in `workloads` are skipped. R2, R3, R6 and R7 go by `performance`;
    without it, parts of the pool decide.
    """
    found = [_r1(plan, workloads)]
    for name, held in plan.stores.items():
        kinds = [workloads[t] for t, s in plan.tenants.items() if s == name and t in workloads]
        small = [kind for kind in kinds if kind.small]
        large = [kind for kind in kinds if not kind.small]
        table = performance.table(kinds[0]) if performance and kinds else None
        if small and not large:
            found += [_r2(plan, name, held, table), _r6(plan, name, held, table)]
        if large and not small:
            found += [_r3(plan, name, held, table), _r7(plan, name, held, table)]
        if kinds:
            found += [_r4(name, held), _r5(plan, name, held)]
    return sorted(found, key=lambda finding: (finding.rule, finding.microstore))


def _judged(
    rule: str, microstore: str, good: bool | None, said: str, **numbers: float
) -> RuleFinding:
    """Return the finding of a rule that holds, is broken or (None) cannot be judged."""
    verdict = UNKNOWN if good is None else HOLDS if good else BROKEN
    return RuleFinding(rule, microstore, verdict, numbers, said)


def _r1(plan: Allocation, workloads: Mapping[str, WorkloadClass]) -> RuleFinding:
    sizes: dict[str, set[bool]] = {name: set() for name in plan.stores}
    for tenant, store in plan.tenants.items():
        if tenant in workloads and store in sizes:
            sizes[store].add(workloads[tenant].small)
    mixed = [name for name, found in sizes.items() if len(found) > 1]
    said = "no microstore serves both small and large objects"
    if mixed:
        said = f"{', '.join(mixed)} serves both small and large objects; they belong apart"
    counts = {"mixed": float(len(mixed)), "microstores": float(len(plan.stores))}
    return _judged("R1", "", not mixed, said, **counts)


def _parts(plan: Allocation, held: Resources) -> dict[str, float]:
    """Return the parts of the pool's proxies' cores and network."""
    cores = held.proxy_cores / plan.total.proxy_cores if plan.total.proxy_cores else 0.0
    network = held.network / plan.total.network if plan.total.network else 0.0
    return {"cores_part": cores, "network_part": network}


def _r2(plan: Allocation, name: str, held: Resources, table: ClassTable | None) -> RuleFinding:
    """Check R2. Small objects: the proxies' CPU comes first."""
    if table is not None:
        parts = table.parts(held)
        cpu, network = min(parts["proxy_cpu"], parts["storage_cpu"]), parts["network"]
        # A network that carries the SLA's need is no bottleneck, however few cores there are.
        good = network >= min(cpu, plan.needed.get(name, cpu)) * (1 - _SAME)
        said = f"its CPU carries {cpu:.3g} requests a second and its network {network:.3g}; " + (
            "CPU comes first" if good else "the network ends before the CPU does"
        )
        return _judged("R2", name, good, said, cpu_requests_s=cpu, network_requests_s=network)
    part = _parts(plan, held)
    cores, network = part["cores_part"], part["network_part"]
    good = cores >= network * (1 - _SAME)
    said = (
        f"it has {100 * cores:.0f} % of the proxies' cores and {100 * network:.0f} % of the "
        f"network; small objects need {'the cores first' if good else 'cores rather than network'}"
    )
    return _judged("R2", name, good, said, **part)


def _r3(plan: Allocation, name: str, held: Resources, table: ClassTable | None) -> RuleFinding:
    """Check R3. Large objects: network comes first, so cores must not run out before it."""
    if table is not None:
        parts, size = table.parts(held), table.workload.mean_bytes
        cpu, network = min(parts["proxy_cpu"], parts["storage_cpu"]), parts["network"]
        # If the need is unknown, the CPU must carry as much as the network.
        needed = plan.needed.get(name, network)
        good = min(network, cpu) >= needed * (1 - _SAME)
        why = f"the network comes first{'' if good else ', and the CPU ends before it'}"
        if name in plan.needed:
            why = f"its tenants need {needed * size / 1e6:.3g}"
        said = (
            f"its network carries {network * size / 1e6:.3g} MB/s and its CPU "
            f"{cpu * size / 1e6:.3g}; {why}"
        )
        rates = {"network_bytes_s": network * size, "cpu_bytes_s": cpu * size}
        return _judged("R3", name, good, said, **rates)
    part = _parts(plan, held)
    cores, network = part["cores_part"], part["network_part"]
    good = network >= cores * (1 - _SAME)
    said = (
        f"it has {100 * network:.0f} % of the network and {100 * cores:.0f} % of the proxies' "
        f"cores; large objects need {'the network first' if good else 'network rather than cores'}"
    )
    return _judged("R3", name, good, said, **part)


def _r4(name: str, held: Resources) -> RuleFinding:
    """Check R4: proxyCores = storageNodes * coresPerStorageNode."""
    cores = {"proxy_cores": held.proxy_cores, "storage_cores": held.storage_cores}
    low, high = sorted(cores.values())
    good = high > 0 and low * CORES_RATIO >= high * (1 - _SAME)
    said = (
        f"{held.proxy_cores:g} cores of proxies and {held.storage_cores:g} of storage servers are "
        + ("about as many" if good else f"more than {CORES_RATIO:g} times apart")
    )
    return _judged("R4", name, good, said, **cores)


def _r5(plan: Allocation, name: str, held: Resources) -> RuleFinding:
    """Check R5: bw_proxies = storageNodes * bw_storageNode."""
    link = plan.link.get(name)
    if link is None:
        said = "the network between proxies and storage servers is not known"
        return _judged("R5", name, None, said, network=held.network)
    good = link > 0 and 1 / LINK_RATIO <= held.network / link <= LINK_RATIO
    said = (
        f"{held.network / 1e6:.3g} MB/s to the clients and {link / 1e6:.3g} MB/s to the storage "
        f"servers are {'roughly the same' if good else 'not the same'}"
    )
    return _judged("R5", name, good, said, network=held.network, link=link)


def _r6(plan: Allocation, name: str, held: Resources, table: ClassTable | None) -> RuleFinding:
    """Check R6: small objects gain nothing from a faster network."""
    if table is None:
        said = "without a performance model nobody knows how much network its cores can use"
        return _judged("R6", name, None, said, network=held.network)
    parts = table.parts(held)
    rest = min(parts["proxy_cpu"], parts["storage_cpu"], parts["disk"])
    usable = table.network.inverse(min(rest, table.network.most))
    # One step is the smallest possible amount.
    given = [share.network for share in plan.stores.values() if share.network > 0]
    least = min([*given, plan.total.network / 20])
    good = held.network <= max(IDLE_NETWORK * usable, least)
    said = (
        f"cores and disks can make use of {usable / 1e6:.3g} MB/s of its {held.network / 1e6:.3g} "
        f"MB/s of network{'' if good else '; the rest would serve large objects'}"
    )
    return _judged("R6", name, good, said, network=held.network, usable=usable)


def _r7(plan: Allocation, name: str, held: Resources, table: ClassTable | None) -> RuleFinding:
    """Check R7. Large objects: the cheapest disks that keep up with the network."""
    disks = {"ssds": float(held.ssds), "hdds": float(held.hdds)}
    if table is None:
        said = "without a performance model nobody knows what its disks carry"
        return _judged("R7", name, None, said, **disks)
    parts, size = table.parts(held), table.workload.mean_bytes
    wanted = min(parts["network"], plan.needed.get(name, parts["network"]))
    rates = {"disk_bytes_s": parts["disk"] * size, "network_bytes_s": parts["network"] * size}
    enough = parts["disk"] >= wanted * (1 - _SAME)
    cheaper = _cheaper(plan, held, table, wanted) if enough else None
    said = f"{held.ssds} SSDs and {held.hdds} HDDs are the cheapest that carry its network"
    if not enough:
        said = f"its disks carry {parts['disk']:.3g} requests a second of {wanted:.3g}"
    elif cheaper is not None:
        said = f"{cheaper[0]} SSDs and {cheaper[1]} HDDs would carry as much for less"
    return _judged("R7", name, enough and cheaper is None, said, **rates, **disks)


def _cheaper(
    plan: Allocation, held: Resources, table: ClassTable, wanted: float
) -> tuple[int, int] | None:
    """Return the cheapest disks that carry `wanted`, among the microstore's and the free ones; None
    if it has the cheapest already."""
    others = NOTHING
    for share in plan.stores.values():
        others = others + share
    free = plan.total - others
    fast, slow = plan.prices.ssds, plan.prices.hdds
    best, price = None, fast * held.ssds + slow * held.hdds - _SAME
    for ssds in range(held.ssds + max(0, int(free.ssds)) + 1):
        for hdds in range(held.hdds + max(0, int(free.hdds)) + 1):
            cost = fast * ssds + slow * hdds
            if ssds + hdds == 0 or cost >= price:
                continue
            if table.ssds.value(ssds) + table.hdds.value(hdds) >= wanted * (1 - _SAME):
                best, price = (ssds, hdds), cost
                break
    return best


def broken(findings: Sequence[RuleFinding]) -> list[RuleFinding]:
    """Return the findings that a plan breaks."""
    return [finding for finding in findings if finding.verdict == BROKEN]
