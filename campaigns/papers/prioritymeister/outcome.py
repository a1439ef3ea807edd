"""Results of one experiment. A percentile is reported only with enough requests beyond it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

BEYOND = 10
"""Least number of slower requests for reporting a percentile."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


@dataclass(frozen=True)
class Result:
    """Requests of a workload that arrived in the measured half (in a closed loop: that ended in
    it).

    Attributes:
        requests: number of requests.
        misses: number of requests slower than the SLO, counted one by one; None without an SLO.
        mean_s, max_s: latency from the trace's time on.
        max_whole_s: longest latency of the whole run.
        low_ns, high_ns, count: histogram [k] of the latencies, intervals rising.
        bytes: bytes carried in the measured half.
        series: arrived requests and SLO misses by window, of the whole run.
        unfinished: requests without an answer; they count as missed and as infinitely long.
    """

    requests: int
    misses: int | None
    mean_s: float
    max_s: float
    max_whole_s: float
    low_ns: Integers
    high_ns: Integers
    count: Integers
    bytes: int
    series: tuple[tuple[int, int], ...] = ()
    unfinished: int = 0

    def percentile(self, percent: float) -> float | None:
        """Return the latency in seconds that `percent` of the requests do not exceed, to the
        histogram's width. Infinite without answers, None with fewer than ten requests beyond it."""
        if self.requests * (1 - percent / 100) < BEYOND * (1 - 1e-9):
            return None
        rank = math.ceil(self.requests * percent / 100 * (1 - 1e-12))
        reached = np.cumsum(self.count)
        if not len(reached) or rank > reached[-1]:
            return math.inf
        return float(self.high_ns[np.searchsorted(reached, rank)]) * 1e-9

    @property
    def within(self) -> float | None:
        """Share of the requests within the SLO."""
        if self.misses is None or not self.requests:
            return None
        return 1.0 - self.misses / self.requests


@dataclass(frozen=True)
class Conditions:
    """Conditions of a workload's bound that real machines kept; a model keeps all.

    Attributes:
        why_not: the condition that was not kept, so that this run proves nothing; None if all were.
        late_s: largest delay of the load generator. A latency counts from the trace's time. A
            request sent later is answered at most as much later. Token buckets pass late requests
            at once and hold up only early ones.
        behind_s: largest delay of the server relative to its charges; None if unknown.
        allowed_s: the delay that the bound allows, the profile's ``overhead.latency``.
        network: True if the network stage was enforced as planned.
        unanswered: requests of the whole run without a reply at its end.
        width: width of the latencies' intervals, as a share of the latency.
    """

    why_not: str | None = None
    late_s: float = 0.0
    behind_s: float | None = None
    allowed_s: float = 0.0
    network: bool = True
    unanswered: int = 0
    width: float = 0.0

    def ratio(self, longest_s: float, bound_s: float) -> float:
        """Return the ratio of the longest latency to its limit, both in seconds."""
        return longest_s * (1 - self.width) / (bound_s + self.late_s)


MODELLED = Conditions()
"""Conditions of a simulation: nothing is late, and the network is enforced as planned."""


@dataclass(frozen=True)
class Outcome:
    """Results of a finished experiment.

    Attributes:
        results: results by workload.
        spoiled: why the results do not count, such as a late load generator.
        extra: numbers for the run's summary.
        logs: texts for the run's folder, by name.
        conditions: conditions on real machines, by workload.
        settings: the nodes' settings, as read back (`campaigns.engine.judge.MachineLoad`).
    """

    results: Mapping[str, Result]
    spoiled: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Conditions] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def histogram(latencies_ns: Integers, *, digits: int = 3) -> tuple[Integers, Integers, Integers]:
    """Return a histogram of latencies with intervals narrower than `digits` significant digits:
    low, high (the largest latency in it) and count, intervals rising."""
    if not len(latencies_ns):
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    ordered = np.sort(latencies_ns)
    step = np.maximum(1, 2 ** np.floor(np.log2(np.maximum(ordered, 1) / 10**digits)))
    low = (ordered // step.astype(np.int64)) * step.astype(np.int64)
    first = np.flatnonzero(np.append(True, np.diff(low) > 0))
    last = np.append(first[1:], len(ordered)) - 1
    return low[first], ordered[last], last - first + 1
