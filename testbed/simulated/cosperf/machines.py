"""Pool of section 8.2: 50 machines of four sizes, two speeds of network and two kinds of disks.

The paper gives the number of each kind, not the combination on each machine: a seed draws it. Every
machine has equally many cores for proxies and for storage servers (rule R4), and a network that
carries its proxies' traffic (R5). Each has three disks, as the storage nodes of section 3."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from schemas.model import Model
from testbed.stores.microstores import NOTHING, AssignableMachine, Resources

# ----------------------------------------------------------------------------------------------
# Workloads of the paper's Table 1, as the model sees them.

KB, MB = 1000, 1_000_000
"""Bytes in COSBench's decimal units."""

LARGE_FROM = 10 * MB
"""Most large objects are above this size: bandwidth matters, not latency (section 6)."""


@dataclass(frozen=True)
class ObjectClass:
    """Objects of uniformly distributed size, and the mix of operations on them.

    Attributes:
        letter: A to D.
        low, high: sizes in bytes.
        read, write, delete: shares of the operations, together 1.
    """

    letter: str
    low: float
    high: float
    read: float
    write: float
    delete: float

    @property
    def mean_bytes(self) -> float:
        """Mean size of an object."""
        return (self.low + self.high) / 2

    @property
    def payload(self) -> float:
        """Mean bytes of an operation; a delete carries none."""
        return self.mean_bytes * (self.read + self.write)

    @property
    def large(self) -> bool:
        """True if its tenants want bandwidth."""
        return self.mean_bytes > LARGE_FROM / 2

    def share_up_to(self, size: float) -> float:
        """Return the share of the objects of at most `size` bytes."""
        return min(1.0, max(0.0, (size - self.low) / (self.high - self.low)))


CLASSES: Mapping[str, ObjectClass] = {
    "A": ObjectClass("A", 1 * KB, 128 * KB, 0.90, 0.05, 0.05),
    "B": ObjectClass("B", 1 * KB, 128 * KB, 0.05, 0.90, 0.05),
    "C": ObjectClass("C", 1 * MB, 128 * MB, 0.90, 0.05, 0.05),
    "D": ObjectClass("D", 1 * MB, 128 * MB, 0.05, 0.90, 0.05),
}
"""Table 1."""

LOCAL_LARGE = (1 * MB, 16 * MB)
"""Sizes of C's and D's objects on a testbed with two cores."""


def local(letter: str) -> ObjectClass:
    """Return a class with the sizes of a small testbed."""
    one = CLASSES[letter]
    if not one.large:
        return one
    low, high = LOCAL_LARGE
    return ObjectClass(letter, low, high, one.read, one.write, one.delete)


# ----------------------------------------------------------------------------------------------
# Constants of the model: costs of an operation, and costs of a reconfiguration.


class _ConstantsModel(Model):
    def canonical(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return self.model_dump(mode="json")


class Constants(_ConstantsModel):
    """Costs of one operation. `hotbed mos profile` fits the first six to measured runs. Disks are
    from data sheets (SATA drives of 7,200 rpm, SATA SSDs), as no run varies them alone.

    Attributes:
        proxy_request_s, proxy_byte_s: core seconds at a proxy, of an operation and of each byte
            that passes it (a write's bytes pass it once a replica).
        storage_request_s, storage_byte_s: core seconds at a storage server, for each replica.
        network_efficiency: payload of a network share, relative to its nominal rate.
        burst_bytes: bytes that pass a share of the network at the link's own rate: its token
            bucket. An assumption: it holds a small object.
        network_request_bytes: network bytes of an operation in addition to its payload.
        hdd_access_s, hdd_byte_s, ssd_access_s, ssd_byte_s: a disk's time for one access.
        replicas: replicas of every object.
        idle_s: time of an operation outside all modelled resources.
    """

    proxy_request_s: float = Field(gt=0, le=10)
    proxy_byte_s: float = Field(gt=0, le=1e-3)
    storage_request_s: float = Field(gt=0, le=10)
    storage_byte_s: float = Field(gt=0, le=1e-3)
    network_efficiency: float = Field(gt=0, le=1)
    network_request_bytes: float = Field(default=1000.0, ge=0, le=1e7)
    burst_bytes: float = Field(default=131_072.0, ge=0, le=1e9)
    hdd_access_s: float = Field(default=0.008, ge=0, le=1)
    hdd_byte_s: float = Field(default=1 / 150e6, ge=0, le=1e-3)
    ssd_access_s: float = Field(default=0.0001, ge=0, le=1)
    ssd_byte_s: float = Field(default=1 / 500e6, ge=0, le=1e-3)
    replicas: int = Field(default=3, ge=1, le=10)
    idle_s: float = Field(default=0.002, ge=0, le=60)


class ReconfigurationCosts(_ConstantsModel):
    """Costs of a reconfiguration, in seconds. Measured on a small testbed under load (docs/mos.md):
    shares of CPU (0.5 s) and network (at once), proxies' workers, a node's servers, a ring that the
    proxies have loaded. The speed of migration and its share of the disks were not measured on
    machines of the paper's size: they are assumptions, and `factor` varies them.

    Attributes:
        network_s, workers_s, node_s, ring_s: time until an addition serves.
        migration_s: time for each added or removed disk.
        migration_share: share of the disks' time taken while data moves.
        failed_share: share of the operations that fail while workers are exchanged.
        factor: multiplier of all times; 0: no costs.
    """

    network_s: float = Field(default=0.0, ge=0, le=3600)
    workers_s: float = Field(default=1.8, ge=0, le=3600)
    node_s: float = Field(default=3.1, ge=0, le=3600)
    ring_s: float = Field(default=15.0, ge=0, le=3600)
    migration_s: float = Field(default=14.0, ge=0, le=86_400)
    migration_share: float = Field(default=0.15, ge=0, lt=1)
    failed_share: float = Field(default=2 / 2240, ge=0, le=1)
    factor: float = Field(default=1.0, ge=0, le=100)


GBIT = 125e6
"""Bytes per second."""

SIZES = ((32, 3), (16, 4), (8, 31), (4, 12))
"""Cores, and the number of machines with so many."""

FAST, FAST_MACHINES = 10 * GBIT, 18
SLOW = 1 * GBIT
DISKS = 3
SSD_SHARE = 0.3
PROXY_SHARE = 0.5
STEP = Resources(proxy_cores=1, storage_cores=1, network=0.1 * GBIT, ssds=1, hdds=1)
"""Smallest container."""


@dataclass(frozen=True)
class SimulatedHost:
    """A machine: cores, bytes a second of its network, disks."""

    name: str
    cores: int
    network: float
    ssds: int
    hdds: int

    @property
    def holds(self) -> Resources:
        """Resources of a microstore that has the whole machine."""
        proxies = PROXY_SHARE * self.cores
        return Resources(proxies, self.cores - proxies, self.network, self.ssds, self.hdds)

    def machine(self, microstore: str = "") -> AssignableMachine:
        """Return the machine in MOS's terms."""
        return AssignableMachine(self.name, self.holds, microstore)


def paper_pool(seed: int, scale: int = 1) -> tuple[SimulatedHost, ...]:
    """Return the 50 machines, `scale` times; `seed` draws each machine's network and disks."""
    rng = random.Random(f"pool-{seed}")
    cores = [size for size, count in SIZES for _ in range(count * scale)]
    machines = len(cores)
    fast = set(rng.sample(range(machines), FAST_MACHINES * scale))
    flash = set(rng.sample(range(machines), round(SSD_SHARE * machines)))
    return tuple(
        SimulatedHost(
            f"m{index:02d}-{size}",
            size,
            FAST if index in fast else SLOW,
            DISKS if index in flash else 0,
            0 if index in flash else DISKS,
        )
        for index, size in enumerate(cores)
    )


def total(hosts: Sequence[SimulatedHost]) -> Resources:
    """Return the total resources of the hosts."""
    found = NOTHING
    for host in hosts:
        found = found + host.holds
    return found


# ----------------------------------------------------------------------------------------------
# Placement of a microstore's proxies: containers on unequal machines, or whole machines.
#
# A share of cores is only useful together with a share of the network on the same machine. So the
# usable part of a microstore's holding depends on its place. `place` puts containers on machines as
# a sensible scheduler does; the result is not an optimum.

TINY = 1e-9


@dataclass(frozen=True)
class Placed:
    """Cores of proxies and network (bytes a second) of a microstore, by machine; `line` is the mean
    link rate of these machines, regardless of shares."""

    cores: Mapping[str, float]
    network: Mapping[str, float]
    line: float

    @property
    def machines(self) -> frozenset[str]:
        """Machines with proxies of the microstore."""
        return frozenset(self.cores)

    def usable_cores(self, bytes_per_core: float) -> float:
        """Return the cores with enough network: `bytes_per_core` bytes for each core second."""
        if bytes_per_core <= 0:
            return sum(self.cores.values())
        return sum(
            min(cores, self.network.get(name, 0.0) / bytes_per_core)
            for name, cores in self.cores.items()
        )


def whole(hosts: Sequence[SimulatedHost]) -> Placed:
    """Return the placement on all of these machines."""
    return Placed(
        {host.name: host.holds.proxy_cores for host in hosts},
        {host.name: host.network for host in hosts},
        sum(host.network for host in hosts) / max(1, len(hosts)),
    )


def place(hosts: Sequence[SimulatedHost], wanted: Mapping[str, Resources]) -> dict[str, Placed]:
    """Place containers for all microstores, together at most the machines' resources.

    The microstore with the most network per core chooses first, among the machines with the most
    network per core. Each container has its microstore's proportion of both. The rest is placed
    wherever there is space.
    """
    cores = {host.name: host.holds.proxy_cores for host in hosts}
    network = {host.name: host.network for host in hosts}
    order = sorted(hosts, key=lambda host: (-host.network / host.cores, host.name))
    names = [host.name for host in order]
    found = {}
    for store in sorted(wanted, key=lambda name: (-_thirst(wanted[name]), name)):
        mine, nets = _fill(wanted[store], names, cores, network)
        lines = [host.network for host in hosts if host.name in mine]
        found[store] = Placed(mine, nets, sum(lines) / max(1, len(lines)))
    return {store: found[store] for store in wanted}


def _thirst(resources: Resources) -> float:
    if resources.proxy_cores <= 0:
        return float("inf") if resources.network > 0 else 0.0
    return resources.network / resources.proxy_cores


def _fill(
    wanted: Resources, names: Sequence[str], cores: dict[str, float], network: dict[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Take one microstore's share from the rest on the machines; return cores and network."""
    mine: dict[str, float] = {}
    nets: dict[str, float] = {}
    left = 1.0
    for name in names:
        part = left
        if wanted.proxy_cores > 0:
            part = min(part, cores[name] / wanted.proxy_cores)
        if wanted.network > 0:
            part = min(part, network[name] / wanted.network)
        if part <= TINY:
            continue
        mine[name] = part * wanted.proxy_cores
        nets[name] = part * wanted.network
        cores[name] -= mine[name]
        network[name] -= nets[name]
        left -= part
        if left <= TINY:
            break
    _rest(left * wanted.proxy_cores, names, cores, mine)
    _rest(left * wanted.network, names, network, nets)
    return mine, nets


def _rest(
    wanted: float, names: Sequence[str], there: dict[str, float], mine: dict[str, float]
) -> None:
    # Start where the microstore already has something: this may complete a container.
    for name in sorted(names, key=lambda one: one not in mine):
        if wanted <= TINY:
            return
        part = min(wanted, there[name])
        if part > TINY:
            mine[name] = mine.get(name, 0.0) + part
            there[name] -= part
            wanted -= part
