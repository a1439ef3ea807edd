"""Load on the machine from outside the testbed, which can spoil a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from testbed.sites.contract import MachineUsage
from testbed.sites.local.cgroups import Cgroups

_TICK = os.sysconf("SC_CLK_TCK")
_PF_KTHREAD = 0x00200000
_NODE = "node:"


def counters(cgroups: Cgroups, name: str, awake: Cgroups | None = None) -> dict[str, float]:
    """Return counters in seconds: wall clock, CPU time of the machine's processes, of kernel
    threads, of the testbed (nodes and queue disks), of each node and of the processes in `awake`,
    and steal.

    Kernel threads (loop devices, write-back, interrupts) work mostly for the testbed and have no
    owner, so they count neither as inside nor as outside; nor do the processes in `awake`.
    """
    user, nice, system, *rest = (
        int(field) / _TICK for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    found = {
        "wall": time.monotonic(),
        "busy": cgroups.machine_usage_s() or user + nice + system,
        "all": user + nice + system + sum(rest[:5]),
        "steal": rest[4],
        "kernel": _kernel_threads(),
        "testbed": cgroups.usage_s(name),
        "awake": 0.0 if awake is None else awake.usage_s(),
    }
    for node in sorted(cgroups.children(name)):
        if not node.startswith("_"):
            found[f"{_NODE}{node}"] = cgroups.usage_s(f"{name}/{node}")
    return found


def between(before: Mapping[str, float], after: Mapping[str, float]) -> MachineUsage:
    """Return the load between two readings of `counters`."""
    delta = {key: after[key] - before.get(key, 0.0) for key in after}
    interval = max(delta["wall"], 1e-9)
    outside = delta["busy"] - delta["testbed"] - delta["kernel"] - delta.get("awake", 0.0)
    return MachineUsage(
        interval_s=delta["wall"],
        outside_cores=max(outside / interval, 0.0),
        steal=max(delta["steal"] / delta["all"], 0.0) if delta["all"] > 0 else 0.0,
        node_cores={
            key.removeprefix(_NODE): value / interval
            for key, value in delta.items()
            if key.startswith(_NODE)
        },
    )


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
