"""Counters of load on this machine, inside and outside a testbed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from testbed.sites.local.cgroups import Cgroups

_TICK = os.sysconf("SC_CLK_TCK")
_PF_KTHREAD = 0x00200000


def counters(cgroups: Cgroups, name: str, awake: Cgroups) -> dict[str, float]:
    """Return the counters (`testbed.sites.usage`) of this machine, called ``here``, and of each
    node of the testbed.

    Kernel threads (loop devices, write-back, interrupts) work mostly for the testbed and have no
    owner. Of the testbed are its nodes and queue disks, and the processes in `awake`.
    """
    user, nice, system, *rest = (
        int(field) / _TICK for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    found = {
        "wall": time.monotonic(),
        "busy:here": cgroups.machine_usage_s() or user + nice + system,
        "all:here": user + nice + system + sum(rest[:5]),
        "steal:here": rest[4],
        "kernel:here": _kernel_threads(),
        "ours:here": cgroups.usage_s(name),
        "ours awake:here": awake.usage_s(),
    }
    for node in sorted(cgroups.children(name)):
        if not node.startswith("_"):
            found[f"node:{node}"] = cgroups.usage_s(f"{name}/{node}")
    return found


def _kernel_threads() -> float:
    """Return the CPU seconds of the kernel's threads."""
    ticks = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[6]) & _PF_KTHREAD:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK
