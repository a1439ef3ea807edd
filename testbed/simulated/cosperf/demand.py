"""Resources that an operation of a workload needs, and that a holding has.

Four stations, in the order of `STATIONS`: cores of proxies, cores of storage servers, the network
between clients and proxies, disks. The paper's rules of thumb R2 to R7 are about these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.simulated.cosperf.classes import ObjectClass
from testbed.simulated.cosperf.constants import Constants
from testbed.simulated.cosperf.placement import Placed
from testbed.stores.microstores import MEASURES, Resources

Array = npt.NDArray[np.float64]

STATIONS = MEASURES
"""``proxy_cpu``, ``storage_cpu``, ``network``, ``disk``."""


@dataclass(frozen=True)
class Needs:
    """Needs of an operation: core seconds at proxies and at storage servers (all replicas
    together), bytes of network, and accesses to disks with their bytes."""

    proxy_s: float
    storage_s: float
    network_bytes: float
    accesses: float
    disk_bytes: float


def needs(workload: ObjectClass, constants: Constants) -> Needs:
    """Return the needs of the mean operation of a workload."""
    replicas = constants.replicas
    size = workload.mean_bytes
    passes = size * (workload.read + replicas * workload.write)
    touched = workload.read + replicas * (workload.write + workload.delete)
    return Needs(
        proxy_s=constants.proxy_request_s + constants.proxy_byte_s * passes,
        storage_s=constants.storage_request_s * touched + constants.storage_byte_s * passes,
        network_bytes=(
            (workload.payload + constants.network_request_bytes) / constants.network_efficiency
        ),
        accesses=touched,
        disk_bytes=passes,
    )


@dataclass(frozen=True)
class Servers:
    """Stations of a microstore, as arrays in the order of `STATIONS`.

    Attributes:
        service: seconds that an operation spends on a server; a write's replicas are written in
            parallel.
        demand: seconds of servers that an operation takes, all replicas together.
        count: number of servers.
    """

    service: Array
    demand: Array
    count: Array

    @property
    def capacity(self) -> float:
        """Maximum of operations per second."""
        return float(np.min(self.count / self.demand))


def servers(
    workload: ObjectClass, holding: Resources, placed: Placed, constants: Constants
) -> Servers:
    """Return the stations that a holding provides for a workload.

    Each machine's network is a server. Disks of both classes count as equally many servers of their
    mean speed. Cores without network on the same machine, and network without cores, are useless:
    the scarcer of the two limits the usable part.
    """
    need = needs(workload, constants)
    proxies, links = max(holding.proxy_cores, TINY), max(holding.network, TINY)
    usable = placed.usable_cores(need.network_bytes / need.proxy_s)
    by_cores, by_links = proxies / need.proxy_s, links / need.network_bytes
    both = max(min(by_cores, by_links, usable / need.proxy_s), TINY)
    if by_cores <= by_links:
        by_cores = both
    else:
        by_links = both
    share = links / max(1, len(placed.machines))
    link_s = need.network_bytes / share
    burst = min(need.network_bytes, constants.burst_bytes)
    passes_s = burst / max(placed.line, share) + (need.network_bytes - burst) / share
    disks, disk_s = _disks(need, holding, constants)
    demand = np.array([need.proxy_s, need.storage_s, link_s, disk_s])
    visits = np.array([1.0, need.accesses, link_s / passes_s, need.accesses])
    count = np.array(
        [by_cores * need.proxy_s, max(holding.storage_cores, TINY), by_links * link_s, disks]
    )
    # A fraction of a server is one slow server.
    whole = np.maximum(count, 1.0)
    demand = demand * whole / count
    return Servers(demand / visits, demand, whole)


def _disks(need: Needs, holding: Resources, constants: Constants) -> tuple[float, float]:
    """Return the number of disks, and an operation's time on a disk of mean speed."""
    ssd_s = need.accesses * constants.ssd_access_s + need.disk_bytes * constants.ssd_byte_s
    hdd_s = need.accesses * constants.hdd_access_s + need.disk_bytes * constants.hdd_byte_s
    count = max(float(holding.ssds + holding.hdds), TINY)
    rate = holding.ssds / ssd_s + holding.hdds / hdd_s
    return count, count / max(rate, TINY)


TINY = 1e-9
"""Replacement for zero: a microstore without a resource serves hardly anything."""
