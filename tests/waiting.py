"""Waits for other processes and threads."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def ends(pid: int, within_s: float = 30.0) -> bool:
    """Return True if a process ends (a zombie has ended); kill it if it does not."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return False


def until(condition: Callable[[], T], seconds: float = 90) -> T:
    """Wait until `condition()` is true and return its value; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"it was not so within {seconds:g} s"
        time.sleep(0.02)
    return found
