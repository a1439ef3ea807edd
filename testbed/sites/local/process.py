"""Programs of this machine: run to the end, detached in control groups, or tied to this process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed.sites.contract import SiteError

# A user's PATH often lacks sbin, and messages are parsed, so they must be English.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin",
    "LC_ALL": "C",
}


def run(*argv: str, timeout_s: float = 30.0, check: bool = True, text: str | None = None) -> str:
    """Run a command and return its standard output. `timeout_s`: the command is killed after so
    many seconds. `check`: a non-zero exit is an error. `text`: standard input. SiteError: the
    command is missing, failed (when `check`) or did not end in time."""
    try:
        done = subprocess.run(
            argv,
            input=text or "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=ENVIRONMENT,
        )
    except FileNotFoundError as error:
        raise SiteError(f"the program {argv[0]!r} is missing; see `hotbed doctor`") from error
    except subprocess.TimeoutExpired as error:
        if not check:
            return ""
        raise SiteError(f"{' '.join(argv)!r} did not end within {timeout_s:g} s") from error
    if check and done.returncode != 0:
        message = " ".join(done.stderr.split())[-300:] or "no message"
        raise SiteError(f"{' '.join(argv)!r} failed with exit code {done.returncode}: {message}")
    return done.stdout


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Call `condition` until it is true or the time is over; return its last answer."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


def mounts_under(folder: Path) -> list[str]:
    """Return the mount points in or below `folder`, the last made first."""
    found = []
    prefix = f"{folder}/"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point == str(folder) or point.startswith(prefix):
            found.append(point)
    return found[::-1]


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
    """Start `argv` as a process that is not our child. `procs`: cgroup.procs files to join first.
    `pid_file`: gets the process id once the process is inside its groups. `log`: the process's
    output is appended to it. SiteError: the process could not start, or could not join its groups.
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
    return wait_until(lambda: not alive(pid), timeout_s)


# setpriv asks the kernel only once it runs. If the starter is dead by then, the signal never comes.
# The shell started after the request sees this by its parent, and does not begin.
_STILL_MINE = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'


def tied(command: Sequence[str], signal: str = "TERM") -> list[str]:
    """Return `command` as a command that gets `signal` (a name without SIG) when this process ends.

    Only this process may start it, as its child: started by another process it exits at once with
    1. The kernel watches the starting thread, which must live as long as the command may.
    """
    watched = ["setpriv", "--pdeathsig", signal]
    return [*watched, "sh", "-c", _STILL_MINE, str(os.getpid()), *command]
