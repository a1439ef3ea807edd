"""Counters of each OSD (`perf dump`), their differences, and a pressure from read latencies.

`ceph osd perf` reports whole milliseconds and often 0; the sums behind `perf dump` are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from testbed.stores.ceph.connection import Connection

LATENCY_FLOOR_S = 0.005
"""Mean read latencies up to this value are no pressure: less than one positioning of a disk."""


@dataclass(frozen=True)
class OsdCounters:
    """Cumulative counters of one OSD since it started: client operations, bytes and seconds.

    `replica_writes` are the OSD's writes for PGs of other primaries (subop_w)."""

    reads: int = 0
    read_bytes: int = 0
    read_latency_n: int = 0
    read_latency_s: float = 0.0
    writes: int = 0
    write_bytes: int = 0
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


@dataclass(frozen=True)
class OsdPgCounts:
    """Numbers of PGs that an OSD holds, leads, and is still deleting."""

    pgs: int
    primaries: int
    removing: int


def parse_counters(dump: Mapping[str, Any]) -> OsdCounters:
    """Return counters from the JSON of `perf dump` (whole, or its section ``osd``)."""
    osd = dump["osd"]
    read = osd["op_r_latency"]
    return OsdCounters(
        reads=int(osd["op_r"]),
        read_bytes=int(osd["op_r_out_bytes"]),
        read_latency_n=int(read["avgcount"]),
        read_latency_s=float(read["sum"]),
        writes=int(osd["op_w"]),
        write_bytes=int(osd["op_w_in_bytes"]),
        replica_writes=int(osd.get("subop_w", 0)),
    )


def parse_pg_counts(dump: Mapping[str, Any]) -> OsdPgCounts:
    """Return PG counts from the JSON of `perf dump`."""
    osd = dump["osd"]
    return OsdPgCounts(
        pgs=int(osd["numpg"]),
        primaries=int(osd["numpg_primary"]),
        removing=int(osd.get("numpg_removing", 0)),
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
