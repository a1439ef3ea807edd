"""Division of the pool between the two microstores: every setup of sections 1, 3 and 8.1.

One microstore serves the tenant of small objects (workloads A and B), the other serves the tenant
of large objects (C and D). The layout ``default`` has one store of everything: all proxies serve
each tenant and keep their own shares. A controller starts from the division.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from campaigns.papers.mos.loads import TENANT
from schemas.cells.mos import Disks, MosCell, OneStore, OneWorkload, Setups, TwoStores

MEGABIT = 125_000.0
"""A megabit in bytes."""
SMALL, LARGE = "small", "large"
TOGETHER, APART = "default", "static"
"""Layouts: all proxies serve every tenant, or each tenant has its microstore's proxies."""

STATIC_CPU, STATIC_NETWORK = 0.75, 0.30
"""Shares of the pool for the small objects' store in section 8.1's Static; the other store has the
rest."""


@dataclass(frozen=True)
class Share:
    """Total resources of a microstore: cores of its proxies and storage servers, bytes a second
    between its proxies and clients, and worker processes of each proxy."""

    proxy_cores: float
    storage_cores: float
    network: float
    proxy_workers: int = 1


@dataclass(frozen=True)
class MicrostorePool:
    """Resources to divide, the smallest step of each, storage servers of each microstore, and disks
    of each server. `machines`: each microstore's first resources, if whole machines are assigned
    instead of shares."""

    total: Share = Share(0.8, 0.8, 400 * MEGABIT)
    step: Share = Share(0.1, 0.1, 20 * MEGABIT)
    storage_servers: int = 2
    disks: int = 3
    machines: Mapping[str, Share] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskClass:
    """A class of disks: mean positioning time in seconds, and bandwidth in bytes a second."""

    positioning: float
    bandwidth: float


SSD, HDD = DiskClass(0.0002, 15e6), DiskClass(0.012, 3e6)
"""Disks of section 3: SATA SSDs and HDDs of about 500 and 100 MB/s, slowed down like the network
(docs/mos-experiments.md). A hard disk still has its positioning time."""


@dataclass(frozen=True)
class Division:
    """A layout, each microstore's share, and the classes of the disks of every storage server.
    Without classes, the disks are as in the spec."""

    layout: str
    shares: Mapping[str, Share]
    disks: tuple[DiskClass, ...] = ()


def division_of(parameters: MosCell, pool: MicrostorePool) -> Division:
    """Return the initial division of a cell."""
    if pool.machines:
        return Division(APART, pool.machines)
    if isinstance(parameters, Setups):
        return _section_1(parameters, pool)
    if isinstance(parameters, TwoStores):
        return even(pool) if parameters.setup == "default" else static(pool)
    assert isinstance(parameters, OneStore)
    return _alone(parameters, pool)


def _section_1(parameters: Setups, pool: MicrostorePool) -> Division:
    """Return figure 1's division: equal storage, one proxy with many cores, one fast link."""
    storage = parameters.storage_cores * pool.storage_servers
    slim = Share(parameters.slim_cores, storage, parameters.slim_mbit * MEGABIT)
    wide = Share(parameters.wide_cores, storage, parameters.wide_mbit * MEGABIT)
    if parameters.setup == "favors-small":
        return Division(APART, {SMALL: wide, LARGE: slim})
    layout = TOGETHER if parameters.setup == "default" else APART
    return Division(layout, {SMALL: slim, LARGE: wide})


def even(pool: MicrostorePool) -> Division:
    """Return section 8.1's Default: one store of everything with equal proxies."""
    total = pool.total
    half = Share(total.proxy_cores / 2, total.storage_cores / 2, total.network / 2)
    return Division(TOGETHER, {SMALL: half, LARGE: half})


def static(pool: MicrostorePool) -> Division:
    """Return section 8.1's Static: the best division by rules of thumb; MOS starts from it."""
    total = pool.total

    def of(cpu: float, network: float) -> Share:
        return Share(
            round(cpu * total.proxy_cores, 6),
            round(cpu * total.storage_cores, 6),
            round(network * total.network, 3),
        )

    return Division(
        APART,
        {SMALL: of(STATIC_CPU, STATIC_NETWORK), LARGE: of(1 - STATIC_CPU, 1 - STATIC_NETWORK)},
    )


def _alone(parameters: OneStore, pool: MicrostorePool) -> Division:
    """Return section 3's division: one workload alone. A second proxy is the other microstore's."""
    storage = parameters.storage_cores * pool.storage_servers
    one = Share(
        parameters.proxy_cores,
        storage,
        parameters.network_mbit * MEGABIT,
        parameters.proxy_workers,
    )
    disks: tuple[DiskClass, ...] = ()
    if isinstance(parameters, Disks):
        disks = (SSD,) * parameters.ssds + (HDD,) * parameters.hdds
    if parameters.proxies == 2:
        half = Share(one.proxy_cores, storage / 2, one.network, one.proxy_workers)
        return Division(TOGETHER, {SMALL: half, LARGE: half}, disks)
    tenant = TENANT[parameters.workload] if isinstance(parameters, OneWorkload) else LARGE
    idle = SMALL if tenant == LARGE else LARGE
    return Division(APART, {tenant: one, idle: pool.step}, disks)


def unfit(parameters: MosCell, pool: MicrostorePool) -> str | None:
    """Return why a cell does not fit a pool of machines or of shares; None if it fits."""
    if not pool.machines:
        if not isinstance(parameters, TwoStores) or parameters.setup != "mos":
            return None
        return (
            "the setup mos assigns whole machines, and the pool has none: the spec needs "
            "pool.machine, as in testbed/specs/mos-machines.yaml"
        )
    if isinstance(parameters, TwoStores) and parameters.setup in ("static", "mos"):
        return None
    return (
        "the pool consists of whole machines (pool.machine), which only load and adaptation with "
        "the setups static and mos can use"
    )


def problem(division: Division, pool: MicrostorePool, *, bounded: bool) -> str | None:
    """Return why a pool cannot be divided like this; None if it can. `bounded`: True if the shares
    must fit into the pool; else they are an experiment's own."""
    if division.disks and len(division.disks) != pool.disks:
        return (
            f"it needs {len(division.disks)} disks in each storage server, which has {pool.disks}"
        )
    for name, text in (
        ("proxy_cores", "cores of proxies"),
        ("storage_cores", "cores of storage servers"),
        ("network", "bytes a second"),
    ):
        total = getattr(pool.total, name)
        given = sum(getattr(share, name) for share in division.shares.values())
        if bounded and given > total * (1 + 1e-6):
            return f"it needs {given:g} {text}, and the pool has {total:g}"
        for store, share in division.shares.items():
            if bounded and getattr(share, name) < getattr(pool.step, name) * (1 - 1e-6):
                return (
                    f"microstore {store} would get {getattr(share, name):g} {text}, less than a "
                    f"step of {getattr(pool.step, name):g}"
                )
    return None
