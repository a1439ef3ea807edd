"""Closed workloads on stations of several servers: throughput and response time, solved for many
moments at once.

COSBench's workers are closed loops: `n` workers finish n / R operations a second, where R is the
response time. At a station of m servers with utilization u an operation of service S takes S (1 +
u^(sqrt(2(m+1))-1) / (m (1-u))): Sakasegawa's approximation of M/M/m. The present operations share
the service, as on processors and links. R grows with the rate, so there is exactly one rate.
Newton's method finds it on rate - n / R, which has no pole at a full station, within brackets that
halve when a step leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MOST_STEPS = 60
CLOSE = 1e-12
"""Relative to the capacity: distance of two steps at which a rate counts as found."""
ROUNDS = 12
NEARLY = 1 - 1e-9
TINY = 1e-300


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
        longer = waits * (exponent / np.maximum(used, TINY) + 1 / (1 - used)) * each
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
