"""Counters of each OSD (`perf dump`), their differences, and a pressure from read latencies.

`ceph osd perf` reports whole milliseconds and often 0; the sums behind `perf dump` are exact.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from testbed.stores.ceph.connection import CONCURRENCY, Connection, start_workers
from testbed.stores.ceph.pgs import pg_stats
from testbed.stores.contract import Activity, OpRates, OsdLatency, Pg

LATENCY_FLOOR_S = 0.005
"""Mean read latencies up to this value are no pressure: less than one positioning of a disk."""


@dataclass(frozen=True)
class OsdCounters:
    """Cumulative counters of one OSD since it started: client operations, bytes and seconds.

    `read_process_s` leaves out the wait in the OSD's own queue. `replica_writes` are the OSD's
    writes for PGs of other primaries (subop_w)."""

    reads: int = 0
    read_bytes: int = 0
    read_latency_n: int = 0
    read_latency_s: float = 0.0
    read_process_s: float = 0.0
    writes: int = 0
    write_bytes: int = 0
    write_latency_s: float = 0.0
    replica_writes: int = 0

    def since(self, before: OsdCounters) -> OsdCounters:
        """Return the difference; an OSD that restarted in between counts from its start."""
        restarted = self.reads < before.reads or self.writes < before.writes
        base = OsdCounters() if restarted else before
        return OsdCounters(
            **{f.name: getattr(self, f.name) - getattr(base, f.name) for f in fields(self)}
        )

    @property
    def read_latency_mean_s(self) -> float | None:
        """Mean op_r_latency in seconds, None without reads."""
        return self.read_latency_s / self.read_latency_n if self.read_latency_n > 0 else None

    def latency(self) -> OsdLatency:
        """Return the operations and their mean seconds."""
        return OsdLatency(
            reads=self.reads,
            read_s=_mean(self.read_latency_s, self.reads),
            read_service_s=_mean(self.read_process_s, self.reads),
            writes=self.writes,
            write_s=_mean(self.write_latency_s, self.writes),
        )


def _mean(seconds: float, count: int) -> float | None:
    return round(seconds / count, 6) if count > 0 else None


def parse_counters(dump: Mapping[str, Any]) -> OsdCounters:
    """Return counters from the JSON of `perf dump` (whole, or its section ``osd``)."""
    osd = dump["osd"]
    read = osd["op_r_latency"]
    return OsdCounters(
        reads=int(osd["op_r"]),
        read_bytes=int(osd["op_r_out_bytes"]),
        read_latency_n=int(read["avgcount"]),
        read_latency_s=float(read["sum"]),
        read_process_s=float(osd["op_r_process_latency"]["sum"]),
        writes=int(osd["op_w"]),
        write_bytes=int(osd["op_w_in_bytes"]),
        write_latency_s=float(osd["op_w_latency"]["sum"]),
        replica_writes=int(osd.get("subop_w", 0)),
    )


def perf_dump(connection: Connection, osd: int) -> Mapping[str, Any] | None:
    """Return the section ``osd`` of an OSD's `perf dump`, None without an answer."""
    reply = connection.osd(osd, "perf dump", logger="osd")
    return reply.data if reply.ok and isinstance(reply.data, dict) and "osd" in reply.data else None


def perf_dumps(connection: Connection, osds: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return `perf_dump` of each OSD, asked concurrently; a dead OSD is absent."""
    dumps = connection.together([partial(perf_dump, connection, osd) for osd in osds])
    return {osd: dump for osd, dump in zip(osds, dumps, strict=True) if dump is not None}


def latency_pressure(latencies: Mapping[int, float]) -> dict[int, float]:
    """Return mean read latencies (seconds, by OSD) as a percentage relative to the peers.

    The formula is 100 * (1 - base / latency); base is the lower quartile over the OSDs, at least
    `LATENCY_FLOOR_S`. An OSD as quick as its quick peers is at 0, twice as slow at 50, ten times as
    slow at 90. The median would not do as base: half of the nodes may be hot.
    """
    if not latencies:
        return {}
    ordered = sorted(latencies.values())
    base = max(LATENCY_FLOOR_S, ordered[(len(ordered) - 1) // 4])
    return {
        osd: 100.0 * (1.0 - base / value) if value > base else 0.0
        for osd, value in latencies.items()
    }


# ----------------------------------------------------------------------------------------------
# Counters of many OSDs, without waiting for the slowest.
#
# An OSD with a saturated disk can take seconds for a `perf dump`: its dispatcher waits for the lock
# of a placement group that waits for the disk. On hot nodes, 1.5 to 3.4 s and a time-out of 5 s
# were seen. All other OSDs are sampled on time; a late answer is used when it arrives.

PATIENCE_S = 1.0
"""Longest wait of a controller's sense for the slowest OSD."""


@dataclass(frozen=True)
class PolledCounters:
    """Counters, and the monotonic time of their arrival, in seconds."""

    at: float
    counters: OsdCounters


class CounterPoller:
    """Poller that asks each OSD at most once at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._asked: set[int] = set()
        self._came: dict[int, PolledCounters] = {}

    def read(self, osds: Sequence[int], patience_s: float) -> dict[int, PolledCounters]:
        """Return the newest answer of each OSD that has answered since the previous call. `osds`:
        OSDs to ask; an OSD that still owes an answer is not asked again. `patience_s`: longest wait
        for answers."""
        with self._changed:
            to_ask = [osd for osd in osds if osd not in self._asked]
            self._asked.update(to_ask)
        if to_ask:
            next_osd = iter(to_ask)
            start_workers(lambda: self._ask(next_osd), min(CONCURRENCY, len(to_ask)))
        deadline = time.monotonic() + patience_s
        with self._changed:
            while self._asked.intersection(osds):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            came, self._came = self._came, {}
        return {osd: came[osd] for osd in osds if osd in came}

    def _ask(self, next_osd: Iterator[int]) -> None:
        while True:
            with self._changed:
                osd = next(next_osd, None)
            if osd is None:
                return
            dump = None
            try:
                dump = perf_dump(self._connection, osd)
            finally:
                with self._changed:
                    if dump is not None:
                        self._came[osd] = PolledCounters(time.monotonic(), parse_counters(dump))
                    self._asked.discard(osd)
                    self._changed.notify_all()


class IntervalCounters:
    """Counters of each OSD at its last two answers; the first call returns nothing."""

    def __init__(self, connection: Connection) -> None:
        self._poller = CounterPoller(connection)
        self._last: dict[int, PolledCounters] = {}

    def read(self, osds: Sequence[int]) -> dict[int, tuple[PolledCounters, PolledCounters]]:
        """Return the previous and the new answer of each OSD that has answered in time."""
        answers = self._poller.read(osds, PATIENCE_S)
        pairs = {osd: (self._last[osd], now) for osd, now in answers.items() if osd in self._last}
        self._last |= answers
        return pairs


def latencies(
    counters: Mapping[int, tuple[PolledCounters, PolledCounters]],
) -> dict[int, OsdLatency]:
    """Return the latency of each OSD between two answers."""
    return {
        osd: now.counters.since(then.counters).latency()
        for osd, (then, now) in sorted(counters.items())
    }


class LatencySensor:
    """The signal ``op_r_latency``: each OSD's mean read latency since its last answer, relative to
    its peers. An OSD that served no read in between is absent. An OSD that did not answer is absent
    and listed in ``lost``."""

    signal = "op_r_latency"

    def __init__(self, connection: Connection, osds: Sequence[int]) -> None:
        self._poller = CounterPoller(connection)
        self._osds = tuple(osds)
        self.lost: dict[str, str] = {}
        self._before = self._poller.read(self._osds, PATIENCE_S)

    def pressure(self) -> dict[int, float]:
        """Return percent by OSD. Raises StoreError if the cluster cannot be asked."""
        now = self._poller.read(self._osds, PATIENCE_S)
        self.lost = {f"osd.{osd}": "does not answer" for osd in self._osds if osd not in now}
        latencies: dict[int, float] = {}
        for osd, answer in now.items():
            if osd in self._before:
                since = answer.counters.since(self._before[osd].counters)
                mean = since.read_latency_mean_s
                if mean is not None:
                    latencies[osd] = mean
        self._before |= now
        return latency_pressure(latencies)

    def close(self) -> None:
        """Do nothing: the store owns the connection."""


# ----------------------------------------------------------------------------------------------
# Activity of a cluster: operations per PG from the manager, per OSD from the OSD's own counters.
#
# The manager hears from the OSDs every `mgr_stats_period` (5 s), so its PG data are up to 5 s late.
# Rates are counter differences over the time between two calls. Over many calls, no operation is
# lost or counted twice. The mean over a window is wrong by at most the part of a period at its
# ends. (The reports' own times, `last_fresh`, are those of the last operation. Two of them may be a
# millisecond apart, so a difference over them is useless.)

_DIGITS = 3
_CLEAN = "active+clean"


@dataclass(frozen=True)
class PgReport:
    """Last report of a PG's primary to the manager."""

    reads: int
    writes: int
    state: str
    up: tuple[int, ...]
    acting: tuple[int, ...]
    primary: int

    @property
    def clean(self) -> bool:
        """True if all replicas are whole; scrubbing does not matter."""
        return set(_CLEAN.split("+")) <= set(self.state.split("+"))


def report_of(item: Mapping[str, Any]) -> PgReport:
    """Return the report of a PG from its part of `pg dump`."""
    counted = item["stat_sum"]
    return PgReport(
        reads=int(counted["num_read"]),
        writes=int(counted["num_write"]),
        state=str(item["state"]),
        up=tuple(int(osd) for osd in item["up"]),
        acting=tuple(int(osd) for osd in item["acting"]),
        primary=int(item["acting_primary"]),
    )


def pg_rates(
    before: Mapping[str, PgReport], now: Mapping[str, PgReport], seconds: float
) -> dict[str, OpRates]:
    """Return operations per second of the PGs in both reports. A PG is left out if its counters
    went back (PG created anew, statistics repaired) or another OSD reports it: a new primary
    does not know the reads of the one before, so its counter starts from another value."""
    found = {}
    for pg, report in now.items():
        then = before.get(pg)
        if then is None or report.primary != then.primary:
            continue
        if report.reads < then.reads or report.writes < then.writes:
            continue
        found[pg] = OpRates(
            round((report.reads - then.reads) / seconds, _DIGITS),
            round((report.writes - then.writes) / seconds, _DIGITS),
        )
    return found


def unclean(pgs: Iterable[Pg], reports: Mapping[str, PgReport]) -> tuple[str, ...]:
    """Return the PGs that are not known to be clean where the current map wants them.

    A report that names other OSDs than the map is older than the last change.
    """
    found = []
    for pg in pgs:
        report = reports.get(pg.id)
        if report is None or not report.clean or report.up != pg.up or pg.up != pg.acting:
            found.append(pg.id)
    return tuple(sorted(found))


def osd_rates(before: PolledCounters, now: PolledCounters) -> OpRates | None:
    """Return reads and writes per second between two answers of an OSD, replica writes included."""
    seconds = now.at - before.at
    if seconds <= 0:
        return None
    since: OsdCounters = now.counters.since(before.counters)
    writes = since.writes + since.replica_writes
    return OpRates(round(since.reads / seconds, _DIGITS), round(writes / seconds, _DIGITS))


class ActivitySensor:
    """Sensor of activity that keeps the last reports; the first call returns no rates."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reports: tuple[float, dict[str, PgReport]] | None = None

    def read(
        self, pgs: Sequence[Pg], counters: Mapping[int, tuple[PolledCounters, PolledCounters]]
    ) -> Activity:
        """Return rates since the previous call, those of OSDs from `counters`. StoreError: the
        manager cannot be asked."""
        reports = {pg: report_of(item) for pg, item in pg_stats(self._connection).items()}
        now, before = time.monotonic(), self._reports
        self._reports = (now, reports)
        rates: dict[str, OpRates] = {}
        if before is not None and now > before[0]:
            rates = pg_rates(before[1], reports, now - before[0])
        found = {
            osd: measured
            for osd, (then, later) in counters.items()
            if (measured := osd_rates(then, later)) is not None
        }
        wanted = {pg.id for pg in pgs}
        known = {pg: rate for pg, rate in sorted(rates.items()) if pg in wanted}
        return Activity(known, dict(sorted(found.items())), unclean(pgs, reports))
