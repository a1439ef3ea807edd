"""Start of detached processes that outlive us, in their control groups from the start."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.sites.contract import SiteError
from testbed.sites.local.tools import ENVIRONMENT, wait_until

_START_S = 10.0
# $1 = file for the process id, then cgroup.procs files, then -- and the command.
_JOIN = """
pid_file=$1; shift
while [ "$1" != -- ]; do echo $$ > "$1" || exit 97; shift; done
echo $$ > "$pid_file.new" && mv "$pid_file.new" "$pid_file"
shift; exec "$@"
"""


def detach(
    argv: Sequence[str],
    *,
    procs: Sequence[Path],
    pid_file: Path,
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start `argv` as a process that is not our child.

    Args:
        procs: cgroup.procs files to join first.
        pid_file: gets the process id once the process is inside its groups.
        log: the process's output is appended to it.

    Raises:
        SiteError: the process could not start, or could not join its groups.
    """
    pid_file.unlink(missing_ok=True)
    with log.open("ab") as output:
        done = subprocess.run(
            ["setsid", "--fork", "sh", "-c", _JOIN, "hotbed", str(pid_file)]
            + [str(file) for file in procs]
            + ["--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**ENVIRONMENT, **(environment or {})},
            timeout=10,
            check=False,
        )
    # setsid does not wait for the process that it starts.
    if done.returncode != 0 or not wait_until(pid_file.exists, _START_S):
        raise SiteError(f"{argv[0]} could not be started; see {log}")


def read_pid(pid_file: Path) -> int | None:
    """Return the process id in `pid_file`; None if there is none."""
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):
        return None


def alive(pid: int | None) -> bool:
    """Return True if a process runs (a zombie does not)."""
    if pid is None:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def stop(pid: int, *, timeout_s: float, number: signal.Signals = signal.SIGTERM) -> bool:
    """Send a signal and wait for the end; return False on a timeout."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    end = time.monotonic() + timeout_s
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
