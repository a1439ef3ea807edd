"""Runner of the machine's own tools."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from testbed.sites.contract import SiteError

# A user's PATH often lacks sbin, and messages are parsed, so they must be English.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin",
    "LC_ALL": "C",
}


def run(*argv: str, timeout_s: float = 30.0, check: bool = True, text: str | None = None) -> str:
    """Run a command and return its standard output.

    Args:
        timeout_s: the command is killed after so many seconds.
        check: a non-zero exit is an error.
        text: standard input.

    Raises:
        SiteError: the command is missing, failed (when `check`) or did not end in time.
    """
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


def wait_until(condition: object, timeout_s: float, *, pause_s: float = 0.02) -> bool:
    """Call `condition` until it is true or the time is over; return its last answer."""
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(pause_s)
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
