"""Who works how much: operations of each PG from the manager, of each OSD from its own counters.

The manager hears from the OSDs every `mgr_stats_period` (5 s): a PG's counters are of the moment at
which its primary last told (`last_fresh`), so a rate is the difference of two reports over the time
between *them*. A PG whose primary has nothing new to tell is idle, once it has been silent for
longer than a report may take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.perf import OsdCounters
from testbed.stores.ceph.polling import PATIENCE_S, Answer, CounterPoller
from testbed.stores.contract import Activity, OpRates, Pg

SILENCE_S = 15.0
"""A PG that has reported nothing new for so long is idle: three of the OSDs' reports."""

_DIGITS = 3
_CLEAN = "active+clean"


@dataclass(frozen=True)
class PgReport:
    """What a PG's primary last told the manager. `at_s` is its clock, seconds since the epoch."""

    at_s: float
    reads: int
    writes: int
    state: str
    up: tuple[int, ...]
    acting: tuple[int, ...]

    @property
    def clean(self) -> bool:
        """Whether all replicas are whole; scrubbing does not matter."""
        return set(_CLEAN.split("+")) <= set(self.state.split("+"))


@dataclass(frozen=True)
class _Known:
    """The last report of a PG, when it came (our clock) and the rate that came of it, None while
    there has been one report alone."""

    report: PgReport
    came_s: float
    rates: OpRates | None


def parse_reports(dump: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, PgReport]:
    """Reports by PG from any form of `pg dump`: whole, or the part ``pgs``, of Ceph 16 to 19."""
    if isinstance(dump, Mapping):
        stats: Iterable[Mapping[str, Any]] = dump.get("pg_map", dump)["pg_stats"]
    else:
        stats = dump
    return {str(item["pgid"]): _report(item) for item in stats}


def _report(item: Mapping[str, Any]) -> PgReport:
    counted = item["stat_sum"]
    return PgReport(
        at_s=_seconds(str(item["last_fresh"])),
        reads=int(counted["num_read"]),
        writes=int(counted["num_write"]),
        state=str(item["state"]),
        up=tuple(int(osd) for osd in item["up"]),
        acting=tuple(int(osd) for osd in item["acting"]),
    )


def _seconds(stamp: str) -> float:
    """Seconds since the epoch of a stamp such as 2024-05-01T10:00:00.123456+0000."""
    text = stamp.replace("Z", "+0000")
    when = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z")
    return when.astimezone(timezone.utc).timestamp()


class PgRates:
    """Rates of PGs from one `pg dump` after another."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def update(self, reports: Mapping[str, PgReport], now_s: float) -> dict[str, OpRates]:
        """Rates of the PGs whose rate is known; `now_s` is any clock that does not go back."""
        known: dict[str, _Known] = {}
        for pg, report in reports.items():
            before = self._known.get(pg)
            known[pg] = _next(before, report, now_s)
        self._known = known
        return {pg: item.rates for pg, item in known.items() if item.rates is not None}


def _next(before: _Known | None, report: PgReport, now_s: float) -> _Known:
    if before is None:
        return _Known(report, now_s, None)
    then = before.report
    if report.at_s <= then.at_s:
        silent = now_s - before.came_s > SILENCE_S
        return before if not silent else _Known(then, before.came_s, OpRates())
    if report.reads < then.reads or report.writes < then.writes:
        return _Known(report, now_s, None)  # made anew, or its statistics were repaired
    seconds = report.at_s - then.at_s
    rates = OpRates(
        round((report.reads - then.reads) / seconds, _DIGITS),
        round((report.writes - then.writes) / seconds, _DIGITS),
    )
    return _Known(report, now_s, rates)


def unclean(pgs: Iterable[Pg], reports: Mapping[str, PgReport]) -> tuple[str, ...]:
    """PGs that are not known to be clean where the map of now wants them.

    A report that names other OSDs than the map is older than the last change.
    """
    found = []
    for pg in pgs:
        report = reports.get(pg.id)
        if report is None or not report.clean or report.up != pg.up or pg.up != pg.acting:
            found.append(pg.id)
    return tuple(sorted(found))


def osd_rates(before: Answer, now: Answer) -> OpRates | None:
    """Reads and writes a second between two answers of an OSD, writes of replicas included."""
    seconds = now.at - before.at
    if seconds <= 0:
        return None
    since: OsdCounters = now.counters.since(before.counters)
    writes = since.writes + since.replica_writes
    return OpRates(round(since.reads / seconds, _DIGITS), round(writes / seconds, _DIGITS))


class ActivitySensor:
    """Keeps what was told last; the first call knows no rates yet."""

    def __init__(
        self, connection: Connection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._poller = CounterPoller(connection, clock=clock)
        self._osds: dict[int, Answer] = {}
        self._pgs = PgRates()

    def read(self, osds: Sequence[int], pgs: Sequence[Pg]) -> Activity:
        """Rates since the previous call. Raises StoreError."""
        reply = self._connection.mgr("pg dump", dumpcontents=["pgs"])
        reports = parse_reports(reply.checked("pg dump"))
        rates = self._pgs.update(reports, self._clock())
        answers = self._poller.read(osds, PATIENCE_S)
        found = {
            osd: measured
            for osd, answer in answers.items()
            if osd in self._osds and (measured := osd_rates(self._osds[osd], answer)) is not None
        }
        self._osds |= answers
        wanted = {pg.id for pg in pgs}
        known = {pg: rate for pg, rate in sorted(rates.items()) if pg in wanted}
        return Activity(known, dict(sorted(found.items())), unclean(pgs, reports))
