"""Choice of the primaries that a closed network of the measured disks serves fastest.

Maximise the reads per second X over the primary of every placement group (PG), one of the OSDs with
a replica, subject to the N requests in flight: sum over OSDs of queue_i(X * load_i) = N, where
load_i is the part of the reads that OSD i serves (`schemas.closed_network`). At a fixed X the left
side is a separable convex function of the loads, so the steepest descent of `dlr_pg.swaps` lowers
it one PG at a time; X then rises to the rate of the new loads, until neither changes. In the limit
of many requests in flight loads become proportional to service rates; with few, a disk that makes
every request wait gets less than its proportion, but its first requests, which wait for nobody of
ours, still pay. PGs with only disturbed replicas are split among these as their rates allow.

A PG's part of the reads follows its bytes, corrected by its reads as far as these differ by more
than chance (`weights`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from controllers.dlr_pg.swaps import Descent, SwapProblem, osd_loads, pg_loads
from schemas.closed_network import Station, seen_of, throughput
from testbed.stores.contract import Pg

_GAIN = 1e-4  # relative rise of the throughput below which the choice is final
_LEAST = 1e-9  # requests in flight that a swap must save


def weights(pgs: Sequence[Pg], reads: Mapping[str, float]) -> dict[str, float]:
    """Return each PG's part of all reads (sums to 1). `reads`: counted reads by PG.

    Bytes predict the reads m_j of PG j. If chance alone makes the counts c_j differ from them,
    their squared differences sum to about sum(m_j) (Poisson). Any more is the PGs' own variance
    v (relative to m_j^2), and the posterior mean of a gamma prior (empirical Bayes) follows:
    weight_j = bytes_j (1 + v c_j) / (1 + v m_j).
    """
    parts = pg_loads(pgs, "bytes")
    total = math.fsum(reads.get(pg, 0.0) for pg in parts)
    if total <= 0:
        return parts
    expected = {pg: part * total for pg, part in parts.items()}
    counted = {pg: reads.get(pg, 0.0) for pg in parts}
    squares = math.fsum((counted[pg] - m) ** 2 for pg, m in expected.items())
    v = max(0.0, squares - total) / math.fsum(m * m for m in expected.values())
    raw = {pg: part * (1 + v * counted[pg]) / (1 + v * expected[pg]) for pg, part in parts.items()}
    scale = math.fsum(raw.values())
    return {pg: value / scale for pg, value in raw.items()}


class _ReadDescent(Descent):
    """Descent in the requests in flight that a rate needs."""

    def __init__(
        self, problem: SwapProblem, stations: Mapping[int, Station], rate: float, seen: float
    ) -> None:
        # At load l an OSD's queue is first * l / (1 - more * l), see `Station.queue`.
        self._first = {osd: rate * (s.delay_s + s.service_s) for osd, s in stations.items()}
        self._more = {osd: rate * seen * s.service_s for osd, s in stations.items()}
        super().__init__(problem, 0.0)

    def _improvement(self, pg: str, position: int) -> float:
        source, target = self.primaries[pg], self._problem.movable[pg][position]
        if source == target or target not in self._first or source not in self._first:
            return 0.0
        part = self._problem.loads[pg]
        at, before = self._load[source], self._load[target]
        more = self._more[target]
        left = 1 - more * (before + part)
        if left <= 0:  # more than the target serves
            return 0.0
        worse = self._first[target] * part / (left * (1 - more * before))
        more = self._more[source]
        left = 1 - more * at
        if left <= 0:
            return 0.0
        better = self._first[source] * part / (left * (1 - more * (at - part)))
        value = better - worse
        return value if value > _LEAST else 0.0


def rate_of(
    problem: SwapProblem,
    stations: Mapping[int, Station],
    in_flight: float,
    chosen: Mapping[str, int] | None = None,
) -> float:
    """Return the throughput with `chosen` primaries in place of the present ones."""
    load = osd_loads({**problem.primaries, **(chosen or {})}, problem.loads, list(stations))
    return throughput([stations[osd] for osd in load], list(load.values()), in_flight)


def best_primaries(
    problem: SwapProblem, stations: Mapping[int, Station], in_flight: float, most: int
) -> dict[str, int]:
    """Map at most `most` PGs to their new primaries, the best swaps first."""
    seen = seen_of(in_flight)
    primaries = dict(problem.primaries)
    rate = rate_of(problem, stations, in_flight)
    left = most
    while left > 0:
        now = SwapProblem(problem.movable, primaries, problem.loads, problem.capacity)
        descent = _ReadDescent(now, stations, rate, seen)
        steps = 0
        while steps < left and descent.step():
            steps += 1
        left -= steps
        primaries = {**primaries, **descent.primaries}
        better = rate_of(problem, stations, in_flight, primaries)
        if better <= rate * (1 + _GAIN):
            break
        rate = better
    return {pg: osd for pg, osd in primaries.items() if osd != problem.primaries[pg]}
