"""Program that senses one node: it runs there, sent as text over ssh, with nothing installed.

It answers each line on standard input (a number, returned as `seq`) with one JSON line of counters;
the reader computes rates. The first line is its settings, {"pressure_file", "devices", "address",
"osds", "processes"}. Standard library only, and no import from the project: `monitor.py` sends this
file's text.

All values are cumulative:
  pressure_us  "some ... total=" of the node's io.pressure (microseconds in which a task waited)
  cpu          the first line of /proc/stat, in ticks; `cpus` counts the CPUs online
  cpu_us       processor time of the node's own cgroup if it has one, else of /proc/stat
  disks        for each of the node's disks: reads, sectors read, writes, sectors written, ms busy,
               weighted milliseconds, requests in flight (the kernel's stat file, iostats.rst)
  net_rx, net_tx  bytes received and sent on the interface that carries the node's address
  osd_us       io.pressure "some" total of each OSD's own control group, if it has or can have one
  detail       only if "processes" is true: names of the disks and interfaces, and for each process,
               by PID.START: its command, processor microseconds, bytes read and written on disks
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

CGROUP2_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_SIOCGIFADDR = 0x8915
_STAT_FIELDS = (0, 2, 4, 6, 9, 10, 8)  # of the stat file, in the order of the docstring's `disks`
# Plain calls in place of pathlib: a probe runs every second on the machine that is measured.
# ruff: noqa: PTH110, PTH116, PTH120, PTH123, PTH208


def read(path: str) -> str:
    """Return the text of a (small) file."""
    with open(path) as file:
        return file.read()


def some_total(text: str) -> int | None:
    """Return the microseconds of ``some ... total=N`` in a pressure file."""
    found = re.search(r"^some .*\btotal=(\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else None


def cpu_ticks(text: str) -> tuple[list[int], int]:
    """Return the first eight counters of /proc/stat's line ``cpu``, and the online CPUs' number."""
    lines = text.splitlines()
    counters = [int(word) for word in lines[0].split()[1:9]]
    return counters, sum(1 for line in lines if re.match(r"cpu\d", line))


def net_bytes(text: str, interfaces: Iterable[str]) -> list[int]:
    """Return bytes received and sent on `interfaces`, from /proc/net/dev."""
    wanted, received, sent = set(interfaces), 0, 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() in wanted:
            words = rest.split()
            received, sent = received + int(words[0]), sent + int(words[8])
    return [received, sent]


def disk_counters(text: str) -> list[int]:
    """Return the counters in use from a block device's stat file."""
    words = text.split()
    return [int(words[field]) for field in _STAT_FIELDS]


def interfaces_of(address: str) -> list[str]:
    """Return the interface with `address`; all but loopback if none has it (for example NAT)."""
    names = [name for _, name in socket.if_nameindex()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for name in names:
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(handle.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # no IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return [name]
    return [name for name in names if name != "lo"]


def stat_files(devices: Mapping[str, str]) -> list[str]:
    """Return each stat file of the disks under `devices` once; a partition counts as its disk.

    They are found by device number when the probe starts. An earlier name under /sys/block may now
    be another node's disk (a loop device gets a new number at each start).
    """
    found: list[str] = []
    for path in devices.values():
        try:
            number = os.stat(path).st_rdev
        except OSError:
            continue
        folder = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
        if os.path.exists(f"{folder}/partition"):
            folder = os.path.dirname(folder)
        if os.path.exists(f"{folder}/stat") and f"{folder}/stat" not in found:
            found.append(f"{folder}/stat")
    return found


def osd_processes(osds: Iterable[int]) -> dict[int, int]:
    """Return the process by OSD, for OSDs that run here."""
    wanted, found = {str(osd) for osd in osds}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if read(f"/proc/{entry}/comm").strip() != "ceph-osd":
                continue
            words = read(f"/proc/{entry}/cmdline").split("\0")
        except OSError:
            continue  # the process ended in between
        for flag in ("-i", "--id"):
            if flag in words[:-1] and words[words.index(flag) + 1] in wanted:
                found[int(words[words.index(flag) + 1])] = int(entry)
    return found


def own_pressure(pid: int) -> str | None:
    """Return the pressure file of an OSD's own control group; None if there is none. Systemd on
    cgroup v2 gives the OSD's service such a group."""
    text = read(f"/proc/{pid}/cgroup")
    found = re.search(r"^0::(/.*)$", text, re.MULTILINE)
    path = found.group(1) if found else "/"
    if path.rstrip("/").endswith(".service"):
        for mount in CGROUP2_MOUNTS:
            if os.path.exists(f"{mount}{path}/io.pressure"):
                return f"{mount}{path}/io.pressure"
    return None


def process_counters(commands: dict[str, str]) -> dict[str, list[Any]]:
    """Return the counters of every process; `commands` keeps the commands that were read."""
    hertz, found = os.sysconf("SC_CLK_TCK"), {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            head, _, rest = read(f"/proc/{entry}/stat").rpartition(")")
            words = rest.split()
            key = f"{entry}.{words[19]}"  # a process number may be used again
            if key not in commands:
                line = read(f"/proc/{entry}/cmdline").replace("\0", " ").strip()
                commands[key] = line[:160] or f"[{head.partition('(')[2]}]"
            io = dict(line.split(": ") for line in read(f"/proc/{entry}/io").splitlines())
        except (OSError, ValueError):
            continue  # the process ended in between, or its command is no text
        cpu_us = (int(words[11]) + int(words[12])) * 1_000_000 // hertz
        found[key] = [commands[key], cpu_us, int(io["read_bytes"]), int(io["write_bytes"])]
    return found


class Probe:
    """Reader of counters that locates them once."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.pressure_file: str | None = settings.get("pressure_file")
        group = os.path.dirname(self.pressure_file) if self.pressure_file else None
        # On a dedicated machine the pressure file is /proc/pressure/io: no control group.
        self.group = group if group and os.path.exists(f"{group}/cgroup.procs") else None
        self.stats = stat_files(settings.get("devices") or {})
        self.interfaces = interfaces_of(str(settings.get("address", "")))
        self.osds = [int(osd) for osd in settings.get("osds") or ()]
        self.processes: dict[int, int] = {}
        self.own: dict[int, str] = {}
        self.commands: dict[str, str] | None = {} if settings.get("processes") else None

    def sample(self) -> dict[str, Any]:
        """Return all current counters."""
        ticks, cpus = cpu_ticks(read("/proc/stat"))
        received, sent = net_bytes(read("/proc/net/dev"), self.interfaces)
        return {
            "t": time.monotonic(),
            "wall": time.time(),
            "pressure_us": some_total(read(self.pressure_file)) if self.pressure_file else None,
            "cpu": ticks,
            "cpus": cpus,
            "cpu_us": self._cpu_us(ticks),
            "disks": [disk_counters(read(path)) for path in self.stats],
            "net_rx": received,
            "net_tx": sent,
            "osd_us": self._osd_us(),
        } | self._detail()

    def _detail(self) -> dict[str, Any]:
        if self.commands is None:
            return {}
        names = [path.split("/")[-2] for path in self.stats]
        processes = process_counters(self.commands)
        return {
            "detail": {"disks": names, "net": ", ".join(self.interfaces), "processes": processes}
        }

    def _cpu_us(self, ticks: list[int]) -> int:
        if self.group is not None:
            try:
                return int(read(f"{self.group}/cpu.stat").split("usage_usec", 1)[1].split()[0])
            except (OSError, IndexError):
                pass
        user, nice, system, _, _, irq, softirq, _ = ticks
        hertz = os.sysconf("SC_CLK_TCK")
        return (user + nice + system + irq + softirq) * 1_000_000 // hertz

    def _osd_us(self) -> dict[str, int]:
        if not self.osds:
            return {}
        alive = {osd: pid for osd, pid in self.processes.items() if os.path.exists(f"/proc/{pid}")}
        if len(alive) < len(self.osds):
            found = osd_processes(self.osds)
            for osd, pid in found.items():
                path = own_pressure(pid)
                if path is not None:
                    self.own[osd] = path
            self.processes = found
        totals: dict[str, int] = {}
        for osd in self.processes:
            try:
                total = some_total(read(self.own[osd]))
            except (KeyError, OSError):
                continue
            if total is not None:
                totals[str(osd)] = total
        return totals


def main() -> None:
    """Answer until standard input ends."""
    probe = Probe(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        if line.strip():
            print(json.dumps({"seq": int(line)} | probe.sample()), flush=True)


if __name__ == "__main__":
    main()
