"""What a machine's processors do, and for whom. Nothing here changes anything."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.sites.inventory.hostside.base import Machine

UNITS = ("ceph-*", "hotbed-*", "system-ceph*", "system-hotbed*")
SCOPES = ("system.slice/docker-*", "docker/*", "machine.slice/libpod-*", "libpod_parent/libpod-*")
"""Containers of Docker and of Podman, where systemd makes their groups and where they do."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def usage(machine: Machine, request: dict[str, Any]) -> dict[str, Any]:
    """Counters in seconds: of all CPUs, busy, steal, the kernel's threads, and of what is ours.

    Ours are the units of the store and of Hotbed, root's sessions, as which we log in, and
    ``containers``: those of the cluster ``fsid``, each by its group, for a new one begins at 0.
    Where control groups do not tell CPU time, everything counts as ours.
    """
    tick = os.sysconf("SC_CLK_TCK")
    fields = [
        int(field) / tick for field in machine.text("proc/stat").split("\n", 1)[0].split()[1:]
    ]
    user, nice, system, idle, wait, irq, softirq, steal = (fields + [0.0] * 8)[:8]
    busy = user + nice + system + irq + softirq
    kernel = _kernel_threads(machine) / tick
    ours, containers = busy - kernel, {}
    fsid = str(request.get("fsid") or "")
    top = machine.path("sys/fs/cgroup")
    for tree, name, unit in ((top, "cpu.stat", 1e6), (top / "cpuacct", "cpuacct.usage", 1e9)):
        if (tree / "system.slice" / name).exists():
            ours = sum(_cpu_time(group / name) / unit for group in _groups(tree, fsid))
            containers = {
                str(group.relative_to(tree)): _cpu_time(group / name) / unit
                for group in _containers(machine, tree, fsid)
            }
            break
    return {
        "all": busy + idle + wait + steal,
        "busy": busy,
        "steal": steal,
        "kernel": kernel,
        "ours": ours,
        "containers": containers,
    }


def _groups(tree: Path, fsid: str) -> Iterator[Path]:
    """Of the store, of Hotbed and of root. Where a cluster is named (cephadm), only of ours."""
    for pattern in UNITS:
        for group in (tree / "system.slice").glob(pattern):
            cluster = UUID.search(group.name.replace("\\x2d", "-"))
            if cluster is None or cluster.group() == fsid:
                yield group
    yield tree / "user.slice/user-0.slice"


def _containers(machine: Machine, tree: Path, fsid: str) -> Iterator[Path]:
    """Containers that have a folder of the cluster: Docker's are in no unit of the store."""
    for pattern in SCOPES if fsid else ():
        for group in tree.glob(pattern):
            # Podman puts what runs in a container into a group of its own.
            if any(_has_folder(machine, each, fsid) for each in (group, group / "container")):
                yield group


def _has_folder(machine: Machine, group: Path, fsid: str) -> bool:
    try:
        first = (group / "cgroup.procs").read_text().split("\n", 1)[0]
    except OSError:
        return False
    mounts = machine.text(f"proc/{first}/mountinfo") if first else ""
    # The field is the folder that was mounted, such as /var/lib/ceph/FSID/osd.0.
    folders = (line.split()[3] for line in mounts.splitlines() if len(line.split()) > 3)
    return any(fsid in folder.split("/") for folder in folders)


def _cpu_time(path: Path) -> float:
    try:
        text = path.read_text()
    except OSError:
        return 0.0
    found = re.search(r"^(?:usage_usec )?(\d+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def _kernel_threads(machine: Machine) -> int:
    """Clock ticks used by the kernel's own threads: they are nobody's."""
    ticks = 0
    for entry in machine.path("proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields and fields[1] == "2":
            ticks += int(fields[11]) + int(fields[12])
    return ticks
