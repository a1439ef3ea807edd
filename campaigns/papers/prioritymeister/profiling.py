"""Run fio on a device, here or on a testbed's node, and keep its results as a profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from campaigns.papers.prioritymeister.tracework import check_new
from controllers.prioritymeister.profiles import parse_profile
from schemas.errors import UserError
from testbed.agent.reach import LocalShell
from testbed.ssh import Shell
from workloads.errors import WorkloadError
from workloads.traces.device_profile import ProfilePlan, build

_SLACK_S = 60.0

_LOOK = """
import errno, json, os, stat, sys
path, writes = sys.argv[1], sys.argv[2] == "writes"
found = {"size": 0, "error": None, "used": False}
try:
    mode = os.stat(path).st_mode
    if stat.S_ISBLK(mode) or stat.S_ISREG(mode):
        opened = os.open(path, os.O_RDONLY)
        found["size"] = os.lseek(opened, 0, os.SEEK_END)
        os.close(opened)
    else:
        found["error"] = "neither a block device nor a file"
    if writes and stat.S_ISBLK(mode):
        # The kernel gives a device that is mounted, swapped to or otherwise held to nobody else.
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL))
except OSError as error:
    found["used"] = error.errno == errno.EBUSY
    found["error"] = None if found["used"] else f"cannot be opened ({error.strerror})"
print(json.dumps(found))
"""
"""Script that examines a device; it runs on the device's machine."""


def profile_device(
    device: PurePath | str,
    out: Path,
    *,
    kind: str,
    depth: int,
    seconds: float,
    writes: bool,
    tell: Callable[[str], None],
    shell: Shell | None = None,
) -> dict[str, Any]:
    """Measure and write a profile; see `ProfilePlan`.

    Args:
        device: a block device or a large file.
        out: a new file on this machine.
        shell: shell of the machine with the device; None for this machine.

    Raises:
        UserError: the device, an option or `out` is unsuitable; nothing has been measured.
        WorkloadError: fio failed.
        RemoteError: the node cannot be reached.
    """
    check_new(out)
    place = shell or LocalShell("this machine")
    name = str(device) if shell is None else f"{device} of node {place.node}"
    size = capacity(place, str(device), name, writes=writes)
    try:
        plan = ProfilePlan(kind, size, depth=depth, writes=writes, seconds=seconds)
    except UserError as error:
        raise UserError(f"{name}: {error}.") from error
    _require_fio(place)
    tell(f"measuring {name} for about {plan.total_s:.0f} s")
    done = place.run(
        ["fio", "--output-format=json", "-"],
        input=plan.job_file(str(device)).encode(),
        timeout_s=2 * plan.total_s + _SLACK_S,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(done.stderr.decode(errors="replace").split())
        raise WorkloadError(f"fio failed on {name}: {words[:300]}.")
    document = build(plan, done.text)
    parse_profile(document, f"the profile of {name}")
    with out.open("x") as file:
        file.write(json.dumps(document, indent=1) + "\n")
    return document


def capacity(shell: Shell, device: str, name: str, *, writes: bool) -> int:
    """Return the bytes of a block device or file.

    Raises:
        UserError: the path is neither, cannot be opened, or would be written while in use.
    """
    how = "writes" if writes else "reads"
    found = json.loads(shell.run(["python3", "-c", _LOOK, device, how]).text)
    if found["error"]:
        raise UserError(f"{name}: {found['error']}.")
    if found["used"]:
        raise UserError(f"{name} is in use: --overwrite would destroy what is on it.")
    return int(found["size"])


def _require_fio(shell: Shell) -> None:
    if shell.run(["sh", "-c", "command -v fio"], check=False).returncode != 0:
        raise UserError(f"fio is not installed on {shell.node}: apt-get install fio.")
