"""Processes that keep a virtual machine's processors awake during a measurement.

An idle processor returns to the hypervisor, and on a shared machine it comes back late. At a quiet
hour sleeps of 2 ms ended 0.49 ms late at the 99th percentile, and 0.16 ms late with processors kept
awake (`hotbed bench --only awake`). The delay is the host's, not the testbed's, and affects every
queue disk, proxy and load generator.

One process for each processor spins, in a control group and a scheduling class that give way at
once to everything else. It ends with the process that started it, however that process ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import UserError
from testbed.sites.contract import SiteError
from testbed.sites.local.cgroups import Cgroups

AWAKE = "HOTBED_AWAKE"
"""Environment variable that decides if processors are kept awake: `yes`, `no`, or by default `auto`
(yes on a virtual machine)."""

_SPIN = """
import os, sys

asked_by = int(sys.argv[1])
while os.getppid() == asked_by:
    for _ in range(1_000_000):
        pass
"""


def wanted(environment: dict[str, str] | None = None, cpuinfo: str | None = None) -> bool:
    """Return True if processors must be kept awake here, by `AWAKE` or by the kind of machine.
    `environment`: replaces this process's. `cpuinfo`: replaces this machine's /proc/cpuinfo.
    UserError: the variable has another value."""
    said = (os.environ if environment is None else environment).get(AWAKE) or "auto"
    if said not in ("auto", "yes", "no"):
        raise UserError(
            f"{AWAKE}={said}",
            do=(
                "say auto (on a virtual machine), yes or no: whether processors are kept awake "
                "while a campaign runs"
            ),
        )
    if said != "auto":
        return said == "yes"
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    flags = (line.partition(":") for line in text.splitlines() if line.startswith("flags"))
    return any("hypervisor" in value.split() for _, _, value in flags)


@contextmanager
def kept_awake(cgroups: Cgroups) -> Iterator[bool]:
    """Keep every processor that this process may use awake; give True if this succeeded. `cgroups`:
    their top group has no other purpose. It is made if missing, and removed afterwards unless
    another process uses it too."""
    group = str(os.getpid())
    spinning: list[subprocess.Popen[bytes]] = []
    try:
        try:
            _start(cgroups, group, spinning)
        except (OSError, SiteError):
            _stop(spinning)
        yield bool(spinning)
    finally:
        _stop(spinning)
        cgroups.remove(group)
        tidy(cgroups)


def tidy(cgroups: Cgroups) -> None:
    """Remove leftovers of killed processes, unless a process uses the group."""
    if not cgroups.pids():
        cgroups.remove()


def _start(cgroups: Cgroups, group: str, spinning: list[subprocess.Popen[bytes]]) -> None:
    # Groups come first: a scheduling class gives way only to processes of its own group.
    procs = cgroups.create(group)
    cgroups.give_way()
    for processor in sorted(os.sched_getaffinity(0)):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's interrupt must not reach it
        )
        spinning.append(process)
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(process.pid, {processor})
        for file in procs:
            file.write_text(str(process.pid))


def _stop(spinning: list[subprocess.Popen[bytes]]) -> None:
    for process in spinning:
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
    spinning.clear()
