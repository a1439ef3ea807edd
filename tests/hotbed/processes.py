"""`hotbed run` in its own process, which may be killed half way."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from campaigns.engine.store import RunStore

ROOT = Path(__file__).resolve().parents[2]


def hotbed(*words: str) -> list[str]:
    """Return the command line."""
    return [sys.executable, "-m", "hotbed.cli", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``hotbed WORDS`` to its end."""
    return subprocess.run(hotbed(*words), cwd=ROOT, capture_output=True, text=True, check=False)


def kill_when(words: list[str], folder: Path, at_least: int) -> None:
    """Start ``hotbed WORDS`` and end it with kill -9 once `at_least` runs are done in the
    campaign's folder."""
    process = subprocess.Popen(
        hotbed(*words), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while sum(run.status == "done" for run in RunStore(folder).runs()) < at_least:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
