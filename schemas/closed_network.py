"""Throughput of clients with a fixed number of requests in flight over disks that others load too.

A benchmark such as rados bench is a closed queueing network: a finished request starts the next.
The law of a disk is that of approximate mean value analysis (Bard 1979, Schweitzer 1979) with a
delay. A request waits for `delay_s` behind other users' requests, and for `service_s` for itself
and for each request of ours that it finds there:

    latency = delay + service * (1 + queue * (N - 1) / N)        queue = rate * latency

The queue that a rate needs is then convex in the rate, and the rate that a queue gives is concave.
The N requests in flight are either at a disk or at their client, for `think_s` a request. Two
questions follow, both convex:

- `best_shares`: the shares of the reads that give most, if any read could go to any disk;
- `placed_bound`: a certified upper bound if each placement group is read at disks with a replica.

Lists of length D are by disk, of length P by placement group. Times are seconds, rates are requests
per second, shares and loads are parts of all reads and sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ROUNDS = 100
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Station:
    """A disk: seconds behind other users' requests, and seconds of service for one of ours."""

    delay_s: float
    service_s: float

    def queue(self, rate: float, seen: float) -> float:
        """Return the requests (on average) at the disk at `rate`; infinite if it is too much.
        `seen`: part of the queue that a request finds, (N - 1) / N."""
        left = 1 - seen * self.service_s * rate
        return rate * (self.delay_s + self.service_s) / left if left > 0 else math.inf

    def price(self, rate: float, seen: float) -> float:
        """Return the additional requests at the disk for each additional request per second."""
        left = 1 - seen * self.service_s * rate
        return (self.delay_s + self.service_s) / left**2 if left > 0 else math.inf

    def rate(self, queue: float, seen: float) -> float:
        """Return the rate that `queue` requests at the disk give: the inverse of `queue`."""
        return queue / (self.delay_s + self.service_s * (1 + seen * queue))


def seen_of(in_flight: float) -> float:
    """Return the part of a queue that a request finds on arrival, of `in_flight` requests."""
    return max(0.0, (in_flight - 1) / in_flight)


def throughput(
    stations: Sequence[Station], shares: Sequence[float], in_flight: float, think_s: float = 0.0
) -> float:
    """Return the requests per second of all `in_flight` requests (at least 1) if disk d serves the
    part `shares[d]` of them. [D], [D] -> requests/s."""
    seen = seen_of(in_flight)
    busy = [(station, share) for station, share in zip(stations, shares, strict=True) if share > 0]
    if not busy:
        return math.inf
    idle = think_s + math.fsum(share * (s.delay_s + s.service_s) for s, share in busy)
    low, high = 0.0, in_flight / idle

    def excess(rate: float) -> float:
        queues = math.fsum(s.queue(rate * share, seen) for s, share in busy)
        return queues + rate * think_s - in_flight

    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        if high - low <= _TOLERANCE / 100 * high:
            break
    return (low + high) / 2


@dataclass(frozen=True)
class ClosedBound:
    """The most that a closed network gives: requests per second, and [D] the shares for it."""

    rate: float
    shares: tuple[float, ...]


def best_shares(stations: Sequence[Station], in_flight: float, think_s: float = 0.0) -> ClosedBound:
    """Return the highest throughput over all shares. [D] -> requests/s and [D] shares.

    Rates are concave in queues, so the best queues have equal marginal rates `v` (water-filling):
    queue_d = (sqrt(a / v) - a) / (seen * service), a = delay + service, or 0 if a disk's first
    request is not worth `v`. All queues fall with v; bisection finds the v of N requests.
    """
    seen = max(seen_of(in_flight), 1e-9)

    def rates(value: float) -> tuple[list[float], float]:
        found, used = [], 0.0
        for station in stations:
            a = station.delay_s + station.service_s
            queue = max(0.0, (math.sqrt(a / value) - a) / (seen * station.service_s))
            found.append(station.rate(queue, seen))
            used += queue + found[-1] * think_s
        return found, used

    least = min(station.delay_s + station.service_s for station in stations)
    high = 1 / least  # nobody is worth more than an empty disk
    low = high
    while rates(low)[1] < in_flight:
        low /= 4
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rates(middle)[1] < in_flight else (middle, high)
    found, _ = rates(low)
    total = math.fsum(found)
    return ClosedBound(total, tuple(rate / total for rate in found))


def placed_bound(
    stations: Sequence[Station],
    loads: Sequence[float],
    places: Sequence[Sequence[int]],
    in_flight: float,
    think_s: float = 0.0,
) -> float:
    """Return a rate that no choice of primaries passes, though a group's reads may be split among
    its disks. [D] stations, [P] loads, [P] the indices of each group's disks -> requests/s.

    At a rate X the fewest requests in flight are a convex minimum over all splits. Coordinate
    descent approaches it, one group at a time, and X rises to the rate of the split. The gradient
    then certifies a bound: no split is lower than the tangent plane's lowest corner.
    """
    seen = seen_of(in_flight)
    parts = [
        {place: load / len(where) for place in where}
        for load, where in zip(loads, places, strict=True)
        if load > 0
    ]
    rate = 0.0
    for _ in range(_ROUNDS):
        held = _held(parts, len(stations))
        better = throughput(stations, held, in_flight, think_s)
        if better <= rate * (1 + _TOLERANCE):
            break
        rate = better
        for part in parts:
            _even_out(part, held, stations, rate, seen)
    held = _held(parts, len(stations))
    free = best_shares(stations, in_flight, think_s).rate
    step = _TOLERANCE
    while rate * (1 + step) < free:
        above = rate * (1 + step)
        if _fewest(stations, parts, held, above, seen) + above * think_s > in_flight:
            return above
        step *= 2
    return free


def _held(parts: Sequence[Mapping[int, float]], count: int) -> list[float]:
    held = [0.0] * count
    for part in parts:
        for place, load in part.items():
            held[place] += load
    return held


def _even_out(
    part: dict[int, float], held: list[float], stations: Sequence[Station], rate: float, seen: float
) -> None:
    """Shift a group's load from its dearest to its cheapest disk until both prices are equal."""

    def price(place: int, more: float = 0.0) -> float:
        return stations[place].price(rate * (held[place] + more), seen)

    cheap = min(part, key=price)
    dear = max((place for place in part if part[place] > 0), key=price)
    low, high = 0.0, part[dear]
    if price(dear) <= price(cheap):
        return
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if price(dear, -middle) > price(cheap, middle) else (low, middle)
    part[dear] -= low
    part[cheap] += low
    held[dear] -= low
    held[cheap] += low


def _fewest(
    stations: Sequence[Station],
    parts: Sequence[Mapping[int, float]],
    held: Sequence[float],
    rate: float,
    seen: float,
) -> float:
    """Return a lower bound of the requests at the disks at `rate`, over all splits."""
    prices = [s.price(rate * load, seen) for s, load in zip(stations, held, strict=True)]
    if math.inf in prices:
        return -math.inf  # this split is no witness
    queues = math.fsum(s.queue(rate * load, seen) for s, load in zip(stations, held, strict=True))
    gap = math.fsum(
        rate * load * (prices[place] - min(prices[other] for other in part))
        for part in parts
        for place, load in part.items()
    )
    return queues - gap
