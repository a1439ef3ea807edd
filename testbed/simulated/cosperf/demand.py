"""Resources that an operation of a workload needs, and that a holding has.

Four stations, in the order of `STATIONS`: cores of proxies, cores of storage servers, the network
between clients and proxies, disks. The paper's rules of thumb R2 to R7 are about these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.simulated.cosperf.machines import Constants, ObjectClass, Placed
from testbed.stores.microstores import MEASURES, Resources

# ----------------------------------------------------------------------------------------------
# Closed workloads on stations of several servers: throughput and response time, solved for many
# moments at once.
#
# COSBench's workers are closed loops: `n` workers finish n / R operations a second, where R is the
# response time. At a station of m servers with utilization u an operation of service S takes S (1 +
# u^(sqrt(2(m+1))-1) / (m (1-u))): Sakasegawa's approximation of M/M/m. The present operations share
# the service, as on processors and links. R grows with the rate, so there is exactly one rate.
# Newton's method finds it on rate - n / R, which has no pole at a full station, within brackets
# that halve when a step leaves them.

Array = npt.NDArray[np.float64]

MOST_STEPS = 60
CLOSE = 1e-12
"""Relative to the capacity: distance of two steps at which a rate counts as found."""
ROUNDS = 12
NEARLY = 1 - 1e-9
SMALLEST = 1e-300


@dataclass(frozen=True)
class Stations:
    """Stations that tenants' operations use.

    Attributes:
        service, demand: seconds on a server of each station, and total seconds of servers, shape
            (times, tenants, stations).
        count: servers, the same shape.
        idle_s: time outside all stations, shape (tenants,).
    """

    service: Array
    demand: Array
    count: Array
    idle_s: Array

    def of(self, tenant: int) -> Stations:
        """Return the stations of one tenant; axes stay."""
        one = slice(tenant, tenant + 1)
        return Stations(
            self.service[:, one], self.demand[:, one], self.count[:, one], self.idle_s[one]
        )


def response(rate: Array, others: Array, at: Stations) -> Array:
    """Return the seconds of an operation.

    Args:
        rate: operations a second, shape (times, tenants).
        others: utilization of each station by others, shape (times, tenants, stations).
        at: the stations.
    """
    used = np.minimum(rate[..., None] * at.demand / at.count + others, NEARLY)
    total: Array = at.idle_s + np.sum(at.service * (1 + _waits(used, _exponent(at), at)), axis=-1)
    return total


def _exponent(at: Stations) -> Array:
    exponent: Array = np.sqrt(2 * (at.count + 1)) - 1
    return exponent


def _waits(used: Array, exponent: Array, at: Stations) -> Array:
    """Return the wait of an operation at each station, in units of its service."""
    waits: Array = used**exponent / (at.count * (1 - used))
    return waits


def solve(workers: Array, others: Array, at: Stations) -> Array:
    """Return the operations a second of closed workloads with their own stations, or with the rest
    that `others` leave; `workers` has shape (times, tenants), the others as in `response`."""
    each, exponent = at.demand / at.count, _exponent(at)
    high = np.min(np.maximum(1 - others, 1e-9) / each, axis=-1) * NEARLY
    close = CLOSE * high
    low: Array = np.zeros_like(high)
    rate: Array = high
    for _ in range(MOST_STEPS):
        used = np.minimum(rate[..., None] * each + others, NEARLY)
        waits = _waits(used, exponent, at)
        longer = waits * (exponent / np.maximum(used, SMALLEST) + 1 / (1 - used)) * each
        took = at.idle_s + np.sum(at.service * (1 + waits), axis=-1)
        slope = np.sum(at.service * longer, axis=-1)
        beyond = rate - workers / took
        low, high = np.where(beyond <= 0, rate, low), np.where(beyond > 0, rate, high)
        new: Array = rate - beyond / (1 + workers * slope / took**2)
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        moved, rate = np.abs(new - rate), new
        if np.all((moved <= close) | (high - low <= close)):
            break
    return rate


def shared(workers: Array, groups: Sequence[Sequence[int]], at: Stations) -> tuple[Array, Array]:
    """Return rates, and utilization by others, if the tenants of a group use the same stations.

    Each tenant's rate is found with the others' fixed, in turns, until they agree: the fixed point
    of the equations above. `groups` has indices of tenants, every tenant once; the rest is as in
    `solve`.
    """
    others = np.zeros_like(at.demand)
    rate = solve(workers, others, at)
    several = [list(group) for group in groups if len(group) > 1]
    for group in several:
        rate[:, group] /= len(group)
    for _ in range(ROUNDS if several else 0):
        for group in several:
            for tenant in group:
                rest = [other for other in group if other != tenant]
                busy = np.sum(rate[:, rest, None] * at.demand[:, rest] / at.count[:, rest], axis=1)
                others[:, tenant] = np.minimum(busy, NEARLY)
                one = slice(tenant, tenant + 1)
                found = solve(workers[:, one], others[:, one], at.of(tenant))
                rate[:, one] = 0.5 * (rate[:, one] + found)
    return rate, others


STATIONS = MEASURES
"""``proxy_cpu``, ``storage_cpu``, ``network``, ``disk``."""


@dataclass(frozen=True)
class OperationNeeds:
    """Needs of an operation: core seconds at proxies and at storage servers (all replicas
    together), bytes of network, and accesses to disks with their bytes."""

    proxy_s: float
    storage_s: float
    network_bytes: float
    accesses: float
    disk_bytes: float


def needs(workload: ObjectClass, constants: Constants) -> OperationNeeds:
    """Return the needs of the mean operation of a workload."""
    replicas = constants.replicas
    size = workload.mean_bytes
    passes = size * (workload.read + replicas * workload.write)
    touched = workload.read + replicas * (workload.write + workload.delete)
    return OperationNeeds(
        proxy_s=constants.proxy_request_s + constants.proxy_byte_s * passes,
        storage_s=constants.storage_request_s * touched + constants.storage_byte_s * passes,
        network_bytes=(
            (workload.payload + constants.network_request_bytes) / constants.network_efficiency
        ),
        accesses=touched,
        disk_bytes=passes,
    )


@dataclass(frozen=True)
class StationArrays:
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
) -> StationArrays:
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
    return StationArrays(demand / visits, demand, whole)


def _disks(need: OperationNeeds, holding: Resources, constants: Constants) -> tuple[float, float]:
    """Return the number of disks, and an operation's time on a disk of mean speed."""
    ssd_s = need.accesses * constants.ssd_access_s + need.disk_bytes * constants.ssd_byte_s
    hdd_s = need.accesses * constants.hdd_access_s + need.disk_bytes * constants.hdd_byte_s
    count = max(float(holding.ssds + holding.hdds), TINY)
    rate = holding.ssds / ssd_s + holding.hdds / hdd_s
    return count, count / max(rate, TINY)


TINY = 1e-9
"""Replacement for zero: a microstore without a resource serves hardly anything."""
