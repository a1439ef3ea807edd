"""Waits for other processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


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
