"""Parsed answers of a probe, and the rates between two answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECTOR = 512  # bytes: the unit of the kernel's disk counters on any disk
_IOWAIT = 4  # index in /proc/stat's counters


@dataclass(frozen=True)
class DiskCounters:
    """Cumulative counters of one disk (iostats.rst); `in_flight` is a gauge."""

    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    busy_ms: int
    weighted_ms: int
    in_flight: int


@dataclass(frozen=True)
class Counters:
    """One answer of a probe. `t` is the node's monotonic clock, seconds."""

    seq: int
    t: float
    wall: float
    cpu: tuple[int, ...]
    cpus: int
    cpu_us: int
    pressure_us: int | None
    disks: tuple[DiskCounters, ...]
    net_rx: int
    net_tx: int
    osd_us: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rates:
    """Rates of a node over an interval. Percentages are 0 to 100; MB are 10^6 bytes.

    `io_pressure` is None if the node has no pressure file. `osd_pressure` holds the OSDs that have
    their own pressure file. `disk_queue` is the mean number of requests in the disk.
    """

    interval_s: float
    cpus: int
    iowait: float
    io_pressure: float | None
    cpu_cores: float
    disk_read_mb_s: float
    disk_write_mb_s: float
    disk_util: float
    disk_queue: float
    net_rx_mb_s: float
    net_tx_mb_s: float
    osd_pressure: Mapping[int, float] = field(default_factory=dict)


def parse(line: bytes) -> Counters:
    """Return counters from a probe's line; raise ValueError for anything else."""
    try:
        data = json.loads(line)
        return Counters(
            seq=int(data["seq"]),
            t=float(data["t"]),
            wall=float(data["wall"]),
            cpu=tuple(int(tick) for tick in data["cpu"]),
            cpus=int(data["cpus"]),
            cpu_us=int(data["cpu_us"]),
            pressure_us=None if data["pressure_us"] is None else int(data["pressure_us"]),
            disks=tuple(_disk(disk) for disk in data["disk"]),
            net_rx=int(data["net"][0]),
            net_tx=int(data["net"][1]),
            osd_us={int(osd): int(total) for osd, total in data["osd_us"].items()},
        )
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"not a probe's answer: {line[:80]!r}") from error


def _disk(values: Sequence[Any]) -> DiskCounters:
    reads, read_sectors, writes, write_sectors, busy, weighted, in_flight = map(int, values)
    return DiskCounters(
        reads, read_sectors * SECTOR, writes, write_sectors * SECTOR, busy, weighted, in_flight
    )


def rates(before: Counters, after: Counters) -> Rates | None:
    """Return rates between two answers; None if no time passed or the node restarted."""
    seconds = after.t - before.t
    if seconds <= 0:
        return None
    pressure = None
    if before.pressure_us is not None and after.pressure_us is not None:
        pressure = _percent(after.pressure_us - before.pressure_us, seconds * 1e6)
    ticks = sum(after.cpu) - sum(before.cpu)
    disks = list(zip(before.disks, after.disks, strict=False))
    return Rates(
        interval_s=seconds,
        cpus=after.cpus,
        iowait=_percent(after.cpu[_IOWAIT] - before.cpu[_IOWAIT], ticks),
        io_pressure=pressure,
        cpu_cores=max(0.0, (after.cpu_us - before.cpu_us) / seconds / 1e6),
        disk_read_mb_s=sum(b.read_bytes - a.read_bytes for a, b in disks) / seconds / 1e6,
        disk_write_mb_s=sum(b.write_bytes - a.write_bytes for a, b in disks) / seconds / 1e6,
        # Several disks: the busiest one, because the node's requests wait for it.
        disk_util=max(
            (_percent(b.busy_ms - a.busy_ms, seconds * 1e3) for a, b in disks), default=0
        ),
        disk_queue=sum(b.weighted_ms - a.weighted_ms for a, b in disks) / seconds / 1e3,
        net_rx_mb_s=(after.net_rx - before.net_rx) / seconds / 1e6,
        net_tx_mb_s=(after.net_tx - before.net_tx) / seconds / 1e6,
        osd_pressure={
            osd: _percent(total - before.osd_us[osd], seconds * 1e6)
            for osd, total in after.osd_us.items()
            # A new control group (the OSD restarted) starts from 0.
            if osd in before.osd_us and total >= before.osd_us[osd]
        },
    )


def _percent(part: float, whole: float) -> float:
    # iowait of /proc/stat may go backwards (proc(5)), and clocks differ by a tick.
    return min(100.0, max(0.0, 100.0 * part / whole)) if whole > 0 else 0.0
