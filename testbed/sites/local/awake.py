"""Keeping a virtual machine's processors awake while something is measured.

A processor that has nothing to do is given back to the hypervisor, and on a machine that is shared
it comes back late: at a quiet hour sleeps of 2 ms ended 0.49 ms late at the 99th percentile, and
0.16 ms late with processors kept awake (`hotbed bench --only awake`). What is late is not the
testbed but the machine below it, in every queue disk, proxy and load generator.

One process for each processor does nothing, in a control group and a scheduling class that give
way at once to everything else. It ends when who asked for it ends, however that ends.
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
"""Environment variable: whether processors are kept awake (`yes`, `no`); by default (`auto`) on a
virtual machine."""

_SPIN = """
import os, sys

asked_by = int(sys.argv[1])
while os.getppid() == asked_by:
    for _ in range(1_000_000):
        pass
"""


def wanted(environment: dict[str, str] | None = None, cpuinfo: str | None = None) -> bool:
    """Whether processors are to be kept awake here, by `AWAKE` or by what the machine is.

    Args:
        environment: instead of this process's.
        cpuinfo: instead of this machine's /proc/cpuinfo.

    Raises:
        UserError: the variable says something else.
    """
    said = (os.environ if environment is None else environment).get(AWAKE) or "auto"
    if said not in ("auto", "yes", "no"):
        raise UserError(
            f"{AWAKE}={said}: say auto (on a virtual machine), yes or no: whether processors are "
            "kept awake while a campaign runs."
        )
    if said != "auto":
        return said == "yes"
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    flags = (line.partition(":") for line in text.splitlines() if line.startswith("flags"))
    return any("hypervisor" in value.split() for _, _, value in flags)


@contextmanager
def kept_awake(cgroups: Cgroups) -> Iterator[bool]:
    """Keep every processor that this process may use awake; whether that could be done.

    Args:
        cgroups: whose top group is for this alone: it is made where there is none, and gone
            afterwards unless somebody else uses it too.
    """
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
    """Remove what processes that were killed left; nothing while somebody uses it."""
    if not cgroups.pids():
        cgroups.remove()


def _start(cgroups: Cgroups, group: str, spinning: list[subprocess.Popen[bytes]]) -> None:
    # Groups come first: a class alone gives way only to processes of its own group.
    procs = cgroups.create(group)
    cgroups.give_way()
    for processor in sorted(os.sched_getaffinity(0)):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the terminal is not for it
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
