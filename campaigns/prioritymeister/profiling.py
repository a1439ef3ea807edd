"""Runs fio on a device of this machine and keeps what it tells as a profile."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controllers.prioritymeister.profiles import parse_profile
from schemas.errors import UserError
from workloads.errors import WorkloadError
from workloads.traces.device_profile import ProfilePlan, build

_SLACK_S = 60.0


def profile_device(
    device: Path,
    out: Path,
    *,
    kind: str,
    depth: int,
    seconds: float,
    writes: bool,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Measure and write a profile; see `ProfilePlan`.

    Raises:
        UserError: the device, an option or `out` is not fit; nothing has been measured then.
        WorkloadError: fio failed.
    """
    if out.exists():
        raise UserError(f"{out} exists: choose another name, nothing is overwritten.")
    fio = shutil.which("fio")
    if fio is None:
        raise UserError("fio is not installed here: apt-get install fio.")
    try:
        plan = ProfilePlan(kind, capacity(device), depth=depth, writes=writes, seconds=seconds)
    except UserError as error:
        raise UserError(f"{device}: {error}.") from error
    if writes:
        _refuse_used(device)
    tell(f"measuring {device} for about {plan.total_s:.0f} s")
    with tempfile.NamedTemporaryFile("w", suffix=".fio") as jobs:
        jobs.write(plan.job_file(str(device.resolve())))
        jobs.flush()
        done = subprocess.run(
            [fio, "--output-format=json", jobs.name],
            capture_output=True,
            text=True,
            timeout=2 * plan.total_s + _SLACK_S,
            check=False,
        )
    if done.returncode != 0:
        raise WorkloadError(f"fio failed on {device}: {' '.join(done.stderr.split())[:300]}.")
    document = build(plan, done.stdout)
    parse_profile(document, f"the profile of {device}")
    with out.open("x") as file:
        file.write(json.dumps(document, indent=1) + "\n")
    return document


def capacity(device: Path) -> int:
    """Bytes of a block device or file; UserError when it is neither, or cannot be opened."""
    try:
        mode = device.stat().st_mode
        if not (stat.S_ISBLK(mode) or stat.S_ISREG(mode)):
            raise UserError(f"{device}: neither a block device nor a file.")
        with device.open("rb") as file:
            return file.seek(0, os.SEEK_END)
    except OSError as error:
        raise UserError(f"{device}: cannot be opened ({error.strerror}).") from error


def _refuse_used(device: Path) -> None:
    """UserError when a device, or a partition of it, is mounted or used as swap."""
    real = str(device.resolve())
    for table in ("/proc/mounts", "/proc/swaps"):
        for line in Path(table).read_text().splitlines():
            used = line.split()[:1]
            if (
                used
                and used[0].startswith("/dev/")
                and Path(used[0]).resolve().is_relative_to(real)
            ):
                raise UserError(f"{device} is in use ({used[0]}): --overwrite would destroy it.")
            if used and device.is_block_device() and used[0].startswith(real):
                raise UserError(f"{device} is in use ({used[0]}): --overwrite would destroy it.")
