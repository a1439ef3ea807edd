"""Service of each disk, as its present disturbance leaves it, from latency, rate and pressure.

The law is that of `schemas.closed_network`: latency = delay + service * (1 + queue seen), and the
queue is rate * latency (Little). Reads that an OSD served and their latency are measured; what is
left is to divide a latency into delay and service.

- *Service*. A disk that nobody disturbs has no delay, so latency / (1 + queue seen) is its service.
  The lower quartile over the OSDs is such a disk's, even if most are disturbed.
- *Delay*. A disturbed disk needs the same service for itself. The rest of its latency is its delay.
- *Pressure* is the part of the time in which somebody waits for the disk. A disk that others occupy
  for the part b makes a request wait about service * b / (1 - b). So low pressure ends a delay at
  once, before any read shows it. High pressure says little about a delay (85 and 95 % are the same
  load to a real disk), so measured delays count alone. Before any read of a disturbed OSD, all of
  them count as the most pressed one: reads left there cost more than reads kept away.

An OSD is disturbed if its delay exceeds its service: others take more than half of its disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.closed_network import Station, seen_of
from schemas.random_effects import mean_and_between
from testbed.stores.contract import Observation

MOST = 0.99  # pressure of 100 % does not mean that a request waits forever


@dataclass(frozen=True)
class DiskRates:
    """Stations by OSD, the requests in flight, the OSDs that are disturbed, and the service of a
    disk that nobody disturbs.

    Without any measured read the service is 1: only ratios are known then.
    """

    stations: Mapping[int, Station]
    in_flight: float
    disturbed: frozenset[int]
    service_s: float


def remember(
    memory: Mapping[str, Any], observation: Observation, fade: float
) -> dict[str, list[float]]:
    """Return {OSD: [reads, seconds of all reads together, seconds]} after one more interval.
    Older sums weigh `fade` of what they did. An interval without any read counts for nothing, and
    so does one without an answer from the OSD: its next answer covers both intervals."""
    now = observation.latency or {}
    if not any(found.reads for found in now.values()):
        return dict(memory)
    rates = observation.activity.osds if observation.activity else {}
    after = dict(memory)
    for osd, found in now.items():
        reads, took, seconds = memory.get(str(osd), (0.0, 0.0, 0.0))
        took_now = found.reads * (found.read_s or 0.0)
        rate = rates[osd].reads if osd in rates else 0.0
        seconds_now = found.reads / rate if rate else observation.interval_s
        after[str(osd)] = [
            round(fade * reads + found.reads, 6),
            round(fade * took + took_now, 6),
            round(fade * seconds + seconds_now, 6),
        ]
    return after


def in_flight_of(sums: Mapping[str, Any]) -> float:
    """Return the mean number of reads at all OSDs (Little)."""
    return math.fsum(took / seconds for _, took, seconds in sums.values() if seconds > 0)


def rates_of(
    sums: Mapping[str, Any],
    pressure: Mapping[int, float],
    osds: frozenset[int],
    in_flight: float,
    before_s: float | None,
) -> DiskRates:
    """Return the stations of `osds` by the sums of `remember` and the last interval's pressure.
    An OSD with neither latency nor pressure counts as calm. `before_s`: the service
    of an undisturbed disk, in seconds, from earlier intervals; None: measure it from `sums`."""
    queues, latencies = {}, {}
    for osd in osds:
        reads, took, seconds = sums.get(str(osd), (0.0, 0.0, 0.0))
        if reads > 0 and seconds > 0:
            queues[osd], latencies[osd] = took / seconds, took / reads
    seen = seen_of(max(1.0, in_flight))
    alone = {osd: latencies[osd] / (1 + seen * queues[osd]) for osd in latencies}
    ordered = sorted(alone.values())
    service = before_s or (ordered[(len(ordered) - 1) // 4] if ordered else 1.0)
    services = {osd: min(service, alone.get(osd, service)) for osd in osds}
    delays = {
        osd: max(0.0, latencies[osd] - services[osd] * (1 + seen * queues[osd])) for osd in alone
    }
    most = {osd: services[osd] * _stretch(pressure.get(osd)) for osd in osds}
    disturbed = frozenset(
        osd for osd in osds if min(most[osd], delays.get(osd, math.inf)) > services[osd]
    )
    likely = _shrunk(
        {osd: delays[osd] for osd in disturbed if osd in delays},
        {osd: latencies[osd] ** 2 / sums[str(osd)][0] for osd in disturbed if osd in delays},
    )
    unknown = math.fsum(likely.values()) / len(likely) if likely else 0.0
    if disturbed and not likely:
        unknown = max(most[osd] for osd in disturbed)
    stations = {}
    for osd in sorted(osds):
        calm = min(delays.get(osd, 0.0), most[osd])
        delay = likely.get(osd, unknown) if osd in disturbed else calm
        stations[osd] = Station(delay, services[osd])
    return DiskRates(stations, max(1.0, in_flight), disturbed, service)


def _stretch(pressure: float | None) -> float:
    """Return the longest wait for others, in services, at a pressure; None counts as none."""
    others = min(MOST, max(0.0, (pressure or 0.0) / 100))
    return others / (1 - others)


def _shrunk(values: Mapping[int, float], variances: Mapping[int, float]) -> dict[int, float]:
    """Return means drawn towards their common mean as far as chance explains their differences
    (DerSimonian and Laird 1986): few slow reads do not make one disturbed disk worse than others.
    """
    if not values:
        return {}
    mean, between = mean_and_between(list(values.values()), [1 / variances[key] for key in values])
    return {
        key: (between * value + variances[key] * mean) / (between + variances[key])
        for key, value in values.items()
    }
