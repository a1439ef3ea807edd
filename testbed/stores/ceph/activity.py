"""Activity of a cluster: operations per PG from the manager, per OSD from the OSD's own counters.

The manager hears from the OSDs every `mgr_stats_period` (5 s), so its PG data are up to 5 s late.
Rates are counter differences over the time between two calls. Over many calls, no operation is lost
or counted twice. The mean over a window is wrong by at most the part of a period at its ends. (The
reports' own times, `last_fresh`, are those of the last operation. Two of them may be a millisecond
apart, so a difference over them is useless.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.perf import OsdCounters
from testbed.stores.ceph.polling import PATIENCE_S, Answer, CounterPoller
from testbed.stores.contract import Activity, OpRates, Pg

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

    @property
    def clean(self) -> bool:
        """True if all replicas are whole; scrubbing does not matter."""
        return set(_CLEAN.split("+")) <= set(self.state.split("+"))


def parse_reports(dump: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, PgReport]:
    """Return reports by PG from any form of `pg dump` (whole or part ``pgs``, Ceph 16 to 19)."""
    if isinstance(dump, Mapping):
        stats: Iterable[Mapping[str, Any]] = dump.get("pg_map", dump)["pg_stats"]
    else:
        stats = dump
    return {str(item["pgid"]): _report(item) for item in stats}


def _report(item: Mapping[str, Any]) -> PgReport:
    counted = item["stat_sum"]
    return PgReport(
        reads=int(counted["num_read"]),
        writes=int(counted["num_write"]),
        state=str(item["state"]),
        up=tuple(int(osd) for osd in item["up"]),
        acting=tuple(int(osd) for osd in item["acting"]),
    )


def pg_rates(
    before: Mapping[str, PgReport], now: Mapping[str, PgReport], seconds: float
) -> dict[str, OpRates]:
    """Return operations per second of the PGs in both reports. A PG is left out if its counters
    went back (PG created anew, statistics repaired)."""
    found = {}
    for pg, report in now.items():
        then = before.get(pg)
        if then is None or report.reads < then.reads or report.writes < then.writes:
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


def osd_rates(before: Answer, now: Answer) -> OpRates | None:
    """Return reads and writes per second between two answers of an OSD, replica writes included."""
    seconds = now.at - before.at
    if seconds <= 0:
        return None
    since: OsdCounters = now.counters.since(before.counters)
    writes = since.writes + since.replica_writes
    return OpRates(round(since.reads / seconds, _DIGITS), round(writes / seconds, _DIGITS))


class ActivitySensor:
    """Sensor of activity that keeps the last reports; the first call returns no rates."""

    def __init__(
        self, connection: Connection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._poller = CounterPoller(connection, clock=clock)
        self._osds: dict[int, Answer] = {}
        self._reports: tuple[float, dict[str, PgReport]] | None = None

    def read(self, osds: Sequence[int], pgs: Sequence[Pg]) -> Activity:
        """Return rates since the previous call. Raises StoreError."""
        reply = self._connection.mgr("pg dump", dumpcontents=["pgs"])
        reports = parse_reports(reply.checked("pg dump"))
        rates = self._since(reports)
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

    def _since(self, reports: dict[str, PgReport]) -> dict[str, OpRates]:
        """Return the rates of PGs since the previous call."""
        now, before = self._clock(), self._reports
        self._reports = (now, reports)
        if before is None or now <= before[0]:
            return {}
        return pg_rates(before[1], reports, now - before[0])
