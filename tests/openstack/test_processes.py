"""Processes that end with whoever started them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openstack.parts import REPOSITORY
from tests.openstack.processes import NotHealthy, Processes
from tests.waiting import ends

_STARTS = """
import sys
from pathlib import Path
from tests.openstack.processes import Processes
processes = Processes(Path(sys.argv[1]))
processes.start("sleeper", ["sleep", "600"])
print(processes.pid("sleeper"), flush=True)
sys.stdin.read()
"""


def test_an_end_that_was_not_asked_for_is_told_with_its_words(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("talker", ["sh", "-c", "echo why it ended; exit 3"])
    with pytest.raises(NotHealthy, match=r"ended with 3(?s:.*)why it ended"):
        processes.wait("talker", lambda: False)
    with pytest.raises(NotHealthy, match="why it ended"):
        processes.check()
    processes.stop()


def test_stop_takes_what_was_forked(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    told = tmp_path / "child"
    script = f"trap '' TERM; sleep 600 & echo $! > {told}; wait; wait"
    processes.start("parent", ["sh", "-c", script])
    processes.wait("parent", lambda: told.exists() and told.read_text().strip() != "")
    processes.stop(timeout_s=0.1)
    assert ends(int(told.read_text()))


def test_the_kernel_ends_them_when_we_are_killed(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTS, str(tmp_path)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert ends(pid)
