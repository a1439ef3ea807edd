"""How much of a group's CPU quota the kernel hands to a processor at a time.

By default it is 5 ms. Of a node with 0.2 core and a period of 25 ms that is the whole quota: the
first processor takes it, keeps what it does not use, and processes on the other wait for the next
period. Storage servers that were throttled in three of four periods used half of what was theirs,
and a proxy of 0.4 core 0.22; with 0.5 ms it used 0.398.

The setting is the machine's. While any testbed is up it is short; the last one that goes puts back
what was there.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from schemas.durable import make_folder, write_file
from schemas.locks import RUN, machine_lock
from testbed.sites.files import locked
from testbed.sites.local.names import Places

SLICE_US = 500
SETTING = Path("/proc/sys/kernel/sched_cfs_bandwidth_slice_us")
CLAIMS = RUN / "quota-slice"
"""A file for each state folder that has testbeds, and what was set before: gone after a boot, as
the setting is."""
LOCK = "quota-slice"
_BEFORE = "before"
_BUSY = "another hotbed command is changing how CPU quotas are handed out; try again"


def shorten(places: Places) -> bool:
    """Have quotas handed out in small slices, for testbeds of `places`; whether they are.

    A machine that does not let us (in a container, /proc/sys can be read-only) stays as it is.
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


def put_back(places: Places) -> None:
    """`places` has no testbed any more: what was set before is set again, unless others have."""
    with locked(machine_lock(LOCK), timeout_s=15.0, busy=_BUSY):
        before = CLAIMS / _BEFORE
        if not before.exists():
            return
        (CLAIMS / _claim(places)).unlink(missing_ok=True)
        if [path for path in CLAIMS.iterdir() if path != before]:
            return
        if _now() == SLICE_US:  # else somebody has changed it meanwhile, and means it
            with contextlib.suppress(OSError):
                SETTING.write_text(before.read_text())
        shutil.rmtree(CLAIMS)


def claimed(places: Places) -> bool:
    """Whether testbeds of `places` are a reason for the setting."""
    return (CLAIMS / _claim(places)).exists()


def _claim(places: Places) -> str:
    return f"of{places.tag}"


def _now() -> int | None:
    try:
        return int(SETTING.read_text())
    except (OSError, ValueError):
        return None
