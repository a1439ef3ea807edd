"""Monitor of all nodes at once, over one open ssh channel per node.

A node that is late, unreachable or answers garbage is missing from the result and named in
`Monitor.lost`. It does not delay the other nodes. A broken channel is reopened at the next turn. A
slow channel is kept (late answers are recognised by their number).
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from schemas.errors import HotbedError
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.ssh import end_process

# ----------------------------------------------------------------------------------------------
# Parsed answers of a probe, and the rates between two answers.

SECTOR = 512  # bytes: the unit of the kernel's disk counters on any disk
_IOWAIT = 4  # index in /proc/stat's counters


class DiskCounters(NamedTuple):
    """Cumulative counters of one disk, in the order of the probe's `disks`."""

    reads: int
    read_sectors: int
    writes: int
    write_sectors: int
    busy_ms: int
    weighted_ms: int
    in_flight: int


@dataclass(frozen=True)
class Counters:
    """One answer of a probe, with its names. `t` is the node's monotonic clock, seconds."""

    seq: int
    t: float
    wall: float
    cpu: Sequence[int]
    cpus: int
    cpu_us: int
    pressure_us: int | None
    disks: tuple[DiskCounters, ...]
    net_rx: int
    net_tx: int
    osd_us: Mapping[int, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)


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
        disks = tuple(DiskCounters(*disk) for disk in data["disks"])
        osd_us = {int(osd): total for osd, total in data["osd_us"].items()}
        return Counters(**data | {"disks": disks, "osd_us": osd_us})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a probe's answer: {line[:80]!r}") from error


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
    sectors = SECTOR / seconds / 1e6  # MB/s of each
    return Rates(
        interval_s=seconds,
        cpus=after.cpus,
        iowait=_percent(after.cpu[_IOWAIT] - before.cpu[_IOWAIT], ticks),
        io_pressure=pressure,
        cpu_cores=max(0.0, (after.cpu_us - before.cpu_us) / seconds / 1e6),
        disk_read_mb_s=sum(b.read_sectors - a.read_sectors for a, b in disks) * sectors,
        disk_write_mb_s=sum(b.write_sectors - a.write_sectors for a, b in disks) * sectors,
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


TIMEOUT_S = 2.0
OPEN_TIMEOUT_S = 10.0
RETRY_S = 15.0  # longest wait before a lost node is tried again
_READ = 65536
_LONGEST = 1 << 20  # a channel that sends more without a newline is not a probe


class Channel(Protocol):
    """Byte channel to and from one node's probe."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when an answer (or the end) has come."""

    def send(self, data: bytes) -> None:
        """Write a request; raise OSError if the channel is broken."""

    def close(self) -> None:
        """End the probe."""


Opener = Callable[[AgentNode], Channel]


class ProcessChannel:
    """Pipes of an ssh (or local) process that runs the probe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        os.set_blocking(self._in.fileno(), False)

    def fileno(self) -> int:
        """See `Channel.fileno`."""
        return self._out.fileno()

    def send(self, data: bytes) -> None:
        """See `Channel.send`. Never blocks: a full pipe means that the probe does not read."""
        os.write(self._in.fileno(), data)

    def close(self) -> None:
        """See `Channel.close`."""
        end_process(self._process, 1.0)


def probe_program() -> str:
    """Return the text of the program that is sent to the nodes."""
    return Path(__file__).with_name("probe.py").read_text()


def probe_settings(node: AgentNode, *, processes: bool = False) -> bytes:
    """Return the first line that a probe gets; with `processes`, it also counts these."""
    settings = {
        "pressure_file": node.pressure_file,
        "devices": dict(node.devices),
        "address": node.address,
        "osds": list(node.osds),
        "processes": processes,
    }
    return json.dumps(settings).encode() + b"\n"


def over_ssh(config: AgentConfig, *, processes: bool = False) -> Opener:
    """Return an opener of channels through the admin node's ssh (no ssh to itself)."""
    from testbed.agent.reach import reach

    program = probe_program()

    def open_channel(node: AgentNode) -> Channel:
        process = reach(config, node.name).popen(["python3", "-u", "-c", program])
        channel = ProcessChannel(process)
        channel.send(probe_settings(node, processes=processes))
        return channel

    return open_channel


@dataclass
class _Link:
    node: AgentNode
    channel: Channel | None = None
    opened_at: float = 0.0
    greeted: bool = False  # has answered at least once since it was opened
    buffer: bytes = b""
    last: Counters | None = None
    waiting: bool = False
    failures: int = 0  # failed attempts to open, in a row
    retry_at: float = 0.0
    why: str = ""  # the last failure


@dataclass(frozen=True)
class Reading:
    """Rates of all nodes over one interval. `lost` has the reason for each missing node."""

    nodes: Mapping[str, Rates]
    lost: Mapping[str, str]
    seconds: float


class Monitor:
    """Channels to `nodes`, and their last answers."""

    def __init__(self, nodes: Iterable[AgentNode], open_channel: Opener) -> None:
        self._links = {node.name: _Link(node) for node in nodes}
        self._open = open_channel
        self._seq = 0

    def read(self, timeout_s: float = TIMEOUT_S) -> Reading:
        """Ask every node; rates are since the node's previous answer.

        A node's first answer has no rate yet: call `start` before the first interval.
        """
        start = time.monotonic()
        before = {name: link.last for name, link in self._links.items()}
        lost = self._ask(timeout_s)
        nodes: dict[str, Rates] = {}
        for name, link in self._links.items():
            if name in lost or link.last is None:
                continue
            earlier = before[name]
            rate = None if earlier is None else rates(earlier, link.last)
            if rate is None:
                lost[name] = "answered for the first time: no interval yet"
            else:
                nodes[name] = rate
        return Reading(nodes, lost, time.monotonic() - start)

    def start(self, timeout_s: float = OPEN_TIMEOUT_S) -> Mapping[str, str]:
        """Open every channel and take the first counters; return the lost nodes with reasons."""
        return self._ask(timeout_s)

    def counters(self) -> dict[str, Counters]:
        """Return the last answer of each node that ever answered."""
        return {name: link.last for name, link in self._links.items() if link.last is not None}

    def close(self) -> None:
        """End every probe."""
        for link in self._links.values():
            self._drop(link)

    def _ask(self, timeout_s: float) -> dict[str, str]:
        self._seq += 1
        lost: dict[str, str] = {}
        with selectors.DefaultSelector() as selector:
            for link in self._links.values():
                why = self._request(link, timeout_s)
                if why:
                    lost[link.node.name] = why
                else:
                    assert link.channel is not None
                    selector.register(link.channel.fileno(), selectors.EVENT_READ, link)
            lost |= self._collect(selector, time.monotonic() + timeout_s)
        for link in self._links.values():
            if link.waiting:
                link.waiting = False
                lost[link.node.name] = f"did not answer within {timeout_s:g} s"
        return lost

    def _request(self, link: _Link, timeout_s: float) -> str:
        """Send a request, opening the channel if needed; return the failure, "" on success."""
        stuck = time.monotonic() - link.opened_at > max(OPEN_TIMEOUT_S, timeout_s)
        if link.channel is not None and not link.greeted and stuck:
            self._fail(link, "did not answer since its channel was opened")
        if link.channel is None and time.monotonic() < link.retry_at:
            return link.why
        try:
            if link.channel is None:
                link.channel = self._open(link.node)
                link.opened_at, link.greeted, link.buffer = time.monotonic(), False, b""
            link.channel.send(b"%d\n" % self._seq)
        except (OSError, HotbedError) as error:
            return self._fail(link, f"cannot be reached: {error}")
        link.waiting = True
        return ""

    def _collect(self, selector: selectors.BaseSelector, deadline: float) -> dict[str, str]:
        lost: dict[str, str] = {}
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                link: _Link = key.data
                why = self._receive(link)
                if why or not link.waiting:
                    selector.unregister(key.fileobj)
                if why:
                    lost[link.node.name] = self._fail(link, why)
        return lost

    def _receive(self, link: _Link) -> str:
        """Read what has arrived; return why the channel must be dropped, or ""."""
        assert link.channel is not None
        try:
            data = os.read(link.channel.fileno(), _READ)
        except OSError as error:
            return f"cannot be read: {error}"
        if not data:
            return "its probe ended: the node is down, refuses our ssh key or has no python3"
        link.buffer += data
        *lines, link.buffer = link.buffer.split(b"\n")
        for line in lines:
            try:
                counters = parse(line)
            except ValueError as error:
                return f"answered garbage: {error}"
            link.greeted, link.failures = True, 0
            if counters.seq == self._seq:
                link.last, link.waiting = counters, False
        return "answered garbage: a line without end" if len(link.buffer) > _LONGEST else ""

    def _fail(self, link: _Link, why: str) -> str:
        """Drop a channel. It is reopened at once the first time. A node that stays lost is tried
        less and less often: eight failing ssh per second would load the admin node."""
        self._drop(link)
        wait = min(RETRY_S, 2.0 ** (link.failures - 1)) if link.failures else 0.0
        link.retry_at, link.why = time.monotonic() + wait, why
        link.failures += 1
        return why

    def _drop(self, link: _Link) -> None:
        if link.channel is not None:
            link.channel.close()
        link.channel, link.buffer, link.waiting = None, b"", False
