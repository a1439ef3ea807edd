"""Throughput of clients with a fixed number of requests in flight over servers of unequal speed.

A benchmark such as rados bench is a closed queueing network: every finished request starts the next
one, so one slow server holds back all of them. Approximate mean value analysis (Schweitzer 1979,
Bard 1979) estimates the benefit of shifting load among the servers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_TOLERANCE = 1e-6
_MAX_ROUNDS = 500


def throughput(demands: Sequence[float], in_flight: float) -> float:
    """Return the requests per second that `in_flight` circulating requests reach. `demands`:
    seconds of service that a request needs on each server, on average over all requests (its share
    of the requests times its service time). `in_flight`: requests in the network, at least 1."""
    busy = [demand for demand in demands if demand > 0]
    if not busy:
        return math.inf
    seen = max(0.0, (in_flight - 1) / in_flight)
    queues = [in_flight / len(busy)] * len(busy)
    rate = 0.0
    for _ in range(_MAX_ROUNDS):
        residences = [d * (1 + seen * q) for d, q in zip(busy, queues, strict=True)]
        rate = in_flight / math.fsum(residences)
        following = [rate * r for r in residences]
        change = max(abs(a - b) for a, b in zip(following, queues, strict=True))
        queues = following
        if change <= _TOLERANCE * in_flight:
            break
    return rate
