"""Control groups of a testbed's nodes, on hosts with cgroup v1, v2 or both.

A node joins its groups before its first process starts, so all its processes are inside: limits,
accounting and killing all use the membership.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.sites.contract import SiteError

CPU_PERIOD_US = 25_000
"""Quota period. It is short, so that a node at its limit waits for milliseconds, as for a busy
core, and not for a tenth of a second."""

_V1_WANTED = ("cpu", "cpuacct", "memory", "blkio")


@dataclass(frozen=True)
class Hierarchies:
    """Mount points of the control group trees.

    `v1` maps a controller to its tree, `named` is systemd's v1 tree (None without one), `v2` is the
    unified tree, and `v2_controllers` are the controllers it manages (empty on a v1 host).
    """

    v1: dict[str, Path]
    named: Path | None
    v2: Path | None
    v2_controllers: frozenset[str]

    @property
    def unified(self) -> bool:
        """True if v2 manages cpu and memory."""
        return {"cpu", "memory"} <= self.v2_controllers

    def trees(self) -> list[Path]:
        """Return every tree that a node joins, each once."""
        trees = [] if self.unified else list(dict.fromkeys(self.v1.values()))
        trees += [tree for tree in (self.named, self.v2) if tree is not None]
        return trees


def detect(mountinfo: str | None = None) -> Hierarchies:
    """Find the trees of this machine (or of the text of a /proc/self/mountinfo). SiteError: neither
    version offers both cpu and memory."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    v1: dict[str, Path] = {}
    named: Path | None = None
    v2: Path | None = None
    for line in text.splitlines():
        fields, separator, tail = line.partition(" - ")
        kind = tail.split()[0] if separator else ""
        point = Path(fields.split()[4]) if kind.startswith("cgroup") else Path("/")
        options = tail.split()[-1].split(",") if separator else []
        if kind == "cgroup2" and v2 is None:
            v2 = point
        elif kind == "cgroup" and "name=systemd" in options:
            named = named or point
        elif kind == "cgroup":
            for controller in _V1_WANTED:
                if controller in options:
                    v1.setdefault(controller, point)
    controllers: frozenset[str] = frozenset()
    if v2 is not None:
        available = v2 / "cgroup.controllers"
        controllers = frozenset(available.read_text().split() if available.exists() else ())
    found = Hierarchies(v1, named, v2, controllers)
    if not found.unified and not {"cpu", "memory"} <= v1.keys():
        raise SiteError("no cgroup tree with the controllers cpu and memory is mounted")
    return found


class Cgroups:
    """The groups below one top group (`top`, such as ``hotbed``)."""

    def __init__(self, hierarchies: Hierarchies, top: str) -> None:
        self.hierarchies = hierarchies
        self.top = top

    def create(
        self, group: str, *, cpus: float | None = None, memory: int | None = None
    ) -> list[Path]:
        """Make `group` (``testbed/node``) in every tree and limit it.

        Args:
            cpus: cores that it may use on average over a period.
            memory: bytes, page cache included; above it the kernel kills inside the group.

        Returns:
            The cgroup.procs files; a process joins by writing its id to them.
        """
        folders = [tree / self.top / group for tree in self.hierarchies.trees()]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        if self.hierarchies.unified:
            self._delegate(group)
            self._limit_v2(self._folder(group, "cpu"), memory)
        else:
            self._limit_v1(self._folder(group, "memory"), memory)
        self.limit_cpus(group, cpus)
        return [folder / "cgroup.procs" for folder in folders]

    def _folder(self, group: str, controller: str) -> Path:
        """Return the group's folder in the tree that manages `controller`."""
        trees = self.hierarchies
        tree = trees.v2 if trees.unified else trees.v1[controller]
        assert tree is not None
        return tree / self.top / group

    def _delegate(self, group: str) -> None:
        wanted = self.hierarchies.v2_controllers & {"cpu", "memory", "io"}
        line = " ".join(f"+{controller}" for controller in sorted(wanted))
        folder = self._folder("", "cpu").parent
        for part in ("", self.top, *Path(group).parts[:-1]):
            folder = folder / part
            (folder / "cgroup.subtree_control").write_text(line)

    def limit_cpus(self, group: str, cpus: float | None) -> None:
        """Let `group` use `cpus` cores on average over a period; None: no limit."""
        folder = self._folder(group, "cpu")
        quota = -1 if cpus is None else round(cpus * CPU_PERIOD_US)
        if self.hierarchies.unified:
            (folder / "cpu.max").write_text(f"{'max' if cpus is None else quota} {CPU_PERIOD_US}")
            return
        (folder / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
        # The kernel refuses a quota below that of a group inside (Swift makes some in its nodes).
        for inner in [*_below(folder)][:0:-1] if cpus is not None else ():
            most = quota * int((inner / "cpu.cfs_period_us").read_text()) // CPU_PERIOD_US
            if int((inner / "cpu.cfs_quota_us").read_text()) > most:
                (inner / "cpu.cfs_quota_us").write_text(str(most))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))

    def _limit_v2(self, folder: Path, memory: int | None) -> None:
        (folder / "memory.max").write_text("max" if memory is None else str(memory))
        swap = folder / "memory.swap.max"
        if memory is not None and swap.exists():
            swap.write_text("0")

    def _limit_v1(self, folder: Path, memory: int | None) -> None:
        limit = "-1" if memory is None else str(memory)
        swap = folder / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text("-1")  # the limit of both must be at least that of memory alone
        (folder / "memory.limit_in_bytes").write_text(limit)
        if swap.exists():
            swap.write_text(limit)

    def limits(self, group: str) -> dict[str, float | str]:
        """Return the limits of `group`: `cpus` (cores), `memory` (bytes) and `io` (throttled
        devices), ``none`` without a limit."""
        cpu, held = (self._folder(group, name) for name in ("cpu", "memory"))
        if self.hierarchies.unified:
            quota, period = (cpu / "cpu.max").read_text().split()
            memory = (held / "memory.max").read_text().strip()
        else:
            quota = (cpu / "cpu.cfs_quota_us").read_text().strip()
            period = (cpu / "cpu.cfs_period_us").read_text()
            memory = (held / "memory.limit_in_bytes").read_text().strip()
        throttled = [line.strip() for file in self._throttles(group) for line in file.open()]
        return {
            "cpus": "none" if quota in {"max", "-1"} else int(quota) / int(period),
            "memory": "none" if memory == "max" else int(memory),
            "io": ", ".join(throttled) or "none",
        }

    def unthrottle(self, group: str) -> None:
        """Remove every limit on the group's I/O."""
        for file in self._throttles(group):
            unlimited = "rbps=max wbps=max riops=max wiops=max" if file.name == "io.max" else "0"
            for line in file.read_text().splitlines():
                file.write_text(f"{line.split()[0]} {unlimited}")

    def _throttles(self, group: str) -> list[Path]:
        """Return the kernel's files with limits on the group's I/O."""
        if self.hierarchies.unified:
            files = [self._folder(group, "io") / "io.max"]
        else:
            tree = self.hierarchies.v1.get("blkio", Path())
            files = [
                tree / self.top / group / f"blkio.throttle.{way}_{kind}_device"
                for way in ("read", "write")
                for kind in ("bps", "iops")
            ]
        return [file for file in files if file.exists()]

    def give_way(self) -> None:
        """Let everything below the top group run only when the rest of the machine is idle.

        Kernels before 5.15 have no idle groups: there the group gets the smallest weight.
        """
        unified, folder = self.hierarchies.unified, self._folder("", "cpu")
        weight, least = ("cpu.weight", "1") if unified else ("cpu.shares", "2")
        idle = folder / "cpu.idle"
        if idle.exists():
            idle.write_text("1")
        else:
            (folder / weight).write_text(least)

    def pressure_folder(self, group: str) -> Path | None:
        """Return the folder that holds the group's io.pressure; None if the kernel has none."""
        if self.hierarchies.v2 is None:
            return None
        folder = self.hierarchies.v2 / self.top / group
        return folder if (folder / "io.pressure").exists() else None

    def share_folders(self, group: str) -> dict[str, Path]:
        """Return the group's folders by v1 controller: ``cpu`` and ``cpuacct``, which the node may
        divide further, and ``memory``, whose limit it reads. None under v2, where the node has all
        of them in its own tree."""
        if self.hierarchies.unified:
            return {}
        trees = self.hierarchies.v1
        wanted = ("cpu", "cpuacct", "memory")
        return {name: trees[name] / self.top / group for name in wanted if name in trees}

    def usage_s(self, group: str = "") -> float:
        """Return the CPU seconds used by the group and everything below; 0 if there is no group."""
        return self._usage_s(Path(self.top, group))

    def machine_usage_s(self) -> float:
        """Return the CPU seconds of the whole machine by the same clock; 0 if unknown.

        /proc/stat counts ticks, and misses load that sleeps between ticks.
        """
        return self._usage_s(Path())

    def _usage_s(self, group: Path) -> float:
        try:
            if self.hierarchies.unified:
                assert self.hierarchies.v2 is not None
                stat = (self.hierarchies.v2 / group / "cpu.stat").read_text()
                return int(stat.split("usage_usec", 1)[1].split()[0]) / 1e6
            tree = self.hierarchies.v1.get("cpuacct")
            if tree is None:
                return 0.0
            return int((tree / group / "cpuacct.usage").read_text()) / 1e9
        except (OSError, IndexError):
            return 0.0

    def pids(self, group: str = "") -> set[int]:
        """Return every process in the group or below, in any tree."""
        found: set[int] = set()
        for tree in self.hierarchies.trees():
            for folder in _below(tree / self.top / group):
                try:
                    text = (folder / "cgroup.procs").read_text()
                except OSError:
                    continue
                found.update(int(pid) for pid in text.split() if pid != "0")
        return found

    def children(self, group: str = "") -> set[str]:
        """Return the names of the groups directly below."""
        return {
            child.name
            for tree in self.hierarchies.trees()
            for child in _folders(tree / self.top / group)
        }

    def kill(self, group: str, timeout_s: float) -> bool:
        """Send SIGKILL to everything inside until nothing is left; return False on a timeout."""
        end = time.monotonic() + timeout_s
        while pids := self.pids(group):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def remove(self, group: str = "") -> bool:
        """Remove the group and its systemd's groups below; return False if something is busy."""
        gone = True
        for tree in self.hierarchies.trees():
            for folder in [*_below(tree / self.top / group)][::-1]:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    gone = False
        return gone


def _folders(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _below(folder: Path) -> Iterator[Path]:
    """Yield `folder` and every folder below, parents first."""
    if folder.is_dir():
        yield folder
        for child in _folders(folder):
            yield from _below(child)
