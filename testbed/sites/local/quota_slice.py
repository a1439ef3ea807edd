"""Slice of a group's CPU quota that the kernel gives to a processor at a time.

The default is 5 ms. For a node with 0.2 core and a period of 25 ms this is the whole quota: the
first processor takes it and keeps the unused part, and processes on the other one wait for the next
period. Storage servers that were throttled in three of four periods used half of their share. A
proxy of 0.4 core used 0.22, and with 0.5 ms 0.398.

The setting applies to the whole machine. It is short while any testbed is up; removal of the last
testbed restores the old value.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from schemas.durable import make_folder, write_file
from schemas.locks import RUN, machine_lock
from testbed.sites.local.names import LocalNames
from testbed.sites.records import locked

SLICE_US = 500
SETTING = Path("/proc/sys/kernel/sched_cfs_bandwidth_slice_us")
CLAIMS = RUN / "quota-slice"
"""Folder with a file for each state folder that has testbeds, and the old value; like the setting,
it does not survive a boot."""
LOCK = "quota-slice"
_BEFORE = "before"
_BUSY = "another hotbed command is changing how CPU quotas are handed out; try again"


def shorten(places: LocalNames) -> bool:
    """Make the kernel hand out quotas in small slices, for testbeds of `places`; True on success.

    A machine that refuses (in a container, /proc/sys can be read-only) stays unchanged.
    """
    with locked(machine_lock(LOCK), timeout_s=15.0, busy=_BUSY):
        now = _now()
        if now is None:
            return False
        before = CLAIMS / _BEFORE
        if now > SLICE_US:
            make_folder(CLAIMS)
            if not before.exists():
                write_file(before, str(now))
            try:
                SETTING.write_text(str(SLICE_US))
            except OSError:
                shutil.rmtree(CLAIMS)
                return False
        if before.exists():
            (CLAIMS / _claim(places)).touch()
        return True


def put_back(places: LocalNames) -> None:
    """Restore the old value when `places` has no testbed any more, unless others have one."""
    with locked(machine_lock(LOCK), timeout_s=15.0, busy=_BUSY):
        before = CLAIMS / _BEFORE
        if not before.exists():
            return
        (CLAIMS / _claim(places)).unlink(missing_ok=True)
        if [path for path in CLAIMS.iterdir() if path != before]:
            return
        if _now() == SLICE_US:  # another value was set meanwhile on purpose
            with contextlib.suppress(OSError):
                SETTING.write_text(before.read_text())
        shutil.rmtree(CLAIMS)


def _claim(places: LocalNames) -> str:
    return f"of{places.tag}"


def _now() -> int | None:
    try:
        return int(SETTING.read_text())
    except (OSError, ValueError):
        return None
