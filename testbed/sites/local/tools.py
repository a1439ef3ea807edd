"""Running the machine's own tools, and small files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
        check: whether a non-zero exit is an error.
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


def write(path: Path, data: str, mode: int = 0o644) -> None:
    """Replace `path` by `data`; a reader sees the old or the new file, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(mode)
    temporary.replace(path)


def wait_until(condition: object, timeout_s: float, *, pause_s: float = 0.02) -> bool:
    """Call `condition` until it is true or the time is over; returns its last answer."""
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(pause_s)
    return True


@contextmanager
def locked(path: Path, *, timeout_s: float, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; it ends with the process, however that ends.

    Raises:
        SiteError: with the text `busy`, when somebody else holds it for longer than `timeout_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:

        def take() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not wait_until(take, timeout_s, pause_s=0.1):
            raise SiteError(busy, retry_after_s=30.0)
        yield


def mounts_under(folder: Path) -> list[str]:
    """Mount points in or below `folder`, deepest last made first."""
    found = []
    prefix = f"{folder}/"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point == str(folder) or point.startswith(prefix):
            found.append(point)
    return found[::-1]
