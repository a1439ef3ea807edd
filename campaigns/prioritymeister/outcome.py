"""What a ground tells of an experiment, and percentiles that are told only where they are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

BEYOND = 10
"""A percentile is told when so many requests are slower."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


@dataclass(frozen=True)
class Result:
    """A workload: those of its requests that arrived in the measured half (of a closed loop: that
    were done in it).

    Attributes:
        requests: how many.
        misses: of them slower than the SLO, counted one by one; None where there is no SLO.
        mean_s, max_s: latency from the trace's time on.
        max_whole_s: the longest of the whole run.
        low_ns, high_ns, count: histogram [k] of the latencies, intervals rising.
        bytes: carried in the measured half.
        series: by window, of the whole run: requests that arrived, and those of them that missed.
        unfinished: never answered: they count as missed, and as longer than anything.
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
        """Latency in seconds that `percent` of the requests do not exceed, to the histogram's
        width; infinite where they were not answered; None with fewer than ten beyond it."""
        if self.requests * (1 - percent / 100) < BEYOND * (1 - 1e-9):
            return None
        rank = math.ceil(self.requests * percent / 100 * (1 - 1e-12))
        reached = np.cumsum(self.count)
        if not len(reached) or rank > reached[-1]:
            return math.inf
        return float(self.high_ns[np.searchsorted(reached, rank)]) * 1e-9

    @property
    def within(self) -> float | None:
        """Share of the requests that met the SLO."""
        if self.misses is None or not self.requests:
            return None
        return 1.0 - self.misses / self.requests


@dataclass(frozen=True)
class Conditions:
    """What real machines kept of what a plan's bound of a workload assumes; a model keeps all.

    Attributes:
        why_not: what was not kept, so that nothing is proven of this run; None: all was kept.
        late_s: by how much its load generator was late at most. A latency counts from the trace's
            time, and a request that is sent later may be answered later by as much, no more: token
            buckets let what came too late pass at once, and hold nothing up that is not early.
        behind_s: the most by which its server was behind what it was charged; None: unknown.
        allowed_s: how far the bound lets it be behind, its profile's ``overhead.latency``.
        network: whether the network stage was enforced as planned.
        unanswered: requests of the whole run that had no reply when it ended.
        width: of the intervals that latencies are told in, as a share of the latency.
    """

    why_not: str | None = None
    late_s: float = 0.0
    behind_s: float | None = None
    allowed_s: float = 0.0
    network: bool = True
    unanswered: int = 0
    width: float = 0.0

    def ratio(self, longest_s: float, bound_s: float) -> float:
        """The longest latency by the most that it may be, both in seconds."""
        return longest_s * (1 - self.width) / (bound_s + self.late_s)


MODELLED = Conditions()
"""Of a simulation: nothing is late, and the network is enforced as planned."""


@dataclass(frozen=True)
class Outcome:
    """An experiment as it went.

    Attributes:
        results: by workload.
        spoiled: why it tells nothing, such as a load generator that was late.
        extra: numbers for the run's summary.
        logs: texts for the run's folder, by name.
        conditions: of real machines, by workload.
        settings: of their nodes, as read back (`campaigns.services.Load`).
    """

    results: Mapping[str, Result]
    spoiled: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Conditions] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def histogram(latencies_ns: Integers, *, digits: int = 3) -> tuple[Integers, Integers, Integers]:
    """Latencies in intervals that are narrower than `digits` significant digits tell: low, high
    (the largest that occurred in it) and count, intervals rising."""
    if not len(latencies_ns):
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    ordered = np.sort(latencies_ns)
    step = np.maximum(1, 2 ** np.floor(np.log2(np.maximum(ordered, 1) / 10**digits)))
    low = (ordered // step.astype(np.int64)) * step.astype(np.int64)
    first = np.flatnonzero(np.append(True, np.diff(low) > 0))
    last = np.append(first[1:], len(ordered)) - 1
    return low[first], ordered[last], last - first + 1
