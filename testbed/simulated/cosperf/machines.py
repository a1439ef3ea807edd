"""Pool of section 8.2: 50 machines of four sizes, two speeds of network and two kinds of disks.

The paper gives the number of each kind, not the combination on each machine: a seed draws it. Every
machine has equally many cores for proxies and for storage servers (rule R4), and a network that
carries its proxies' traffic (R5). Each has three disks, as the storage nodes of section 3."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.stores.microstores import NOTHING, Machine, Resources

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
class Host:
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

    def machine(self, microstore: str = "") -> Machine:
        """Return the machine in MOS's terms."""
        return Machine(self.name, self.holds, microstore)


def paper_pool(seed: int, scale: int = 1) -> tuple[Host, ...]:
    """Return the 50 machines, `scale` times; `seed` draws each machine's network and disks."""
    rng = random.Random(f"pool-{seed}")
    cores = [size for size, count in SIZES for _ in range(count * scale)]
    machines = len(cores)
    fast = set(rng.sample(range(machines), FAST_MACHINES * scale))
    flash = set(rng.sample(range(machines), round(SSD_SHARE * machines)))
    return tuple(
        Host(
            f"m{index:02d}-{size}",
            size,
            FAST if index in fast else SLOW,
            DISKS if index in flash else 0,
            0 if index in flash else DISKS,
        )
        for index, size in enumerate(cores)
    )


def total(hosts: Sequence[Host]) -> Resources:
    """Return the total resources of the hosts."""
    found = NOTHING
    for host in hosts:
        found = found + host.holds
    return found
