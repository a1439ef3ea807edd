"""Commands that end with their starter, even if the starter is killed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.sites.local.process import tied
from tests.waiting import ends

REPOSITORY = Path(__file__).parents[2]
_STARTS = """
import subprocess, sys
from testbed.sites.local.process import tied
print(subprocess.Popen(tied(["sleep", "600"])).pid, flush=True)
sys.stdin.read()
"""
# Run the real one once this file exists, so that its starter has time to die first.
_LATE = """#!/bin/sh
while [ ! -e {go} ]; do sleep 0.02; done
PATH={path} exec setpriv "$@"
"""


def start(path: str) -> tuple[subprocess.Popen[bytes], int]:
    """Return a process that has started a tied process, and the tied process's id."""
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTS],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    return starter, int(starter.stdout.readline())


def kill(starter: subprocess.Popen[bytes]) -> None:
    starter.send_signal(signal.SIGKILL)
    starter.wait()


def test_it_runs_while_its_starter_lives_and_not_longer() -> None:
    starter, pid = start(os.environ["PATH"])
    comm = Path(f"/proc/{pid}/comm")
    end = time.monotonic() + 30.0
    while comm.read_text() != "sleep\n":
        assert time.monotonic() < end, "it was not started"
        time.sleep(0.01)
    kill(starter)
    assert ends(pid)


def test_it_does_not_begin_when_its_starter_died_before_the_kernel_was_asked(
    tmp_path: Path,
) -> None:
    go, late = tmp_path / "go", tmp_path / "setpriv"
    late.write_text(_LATE.format(go=go, path=os.environ["PATH"]))
    late.chmod(0o755)
    starter, pid = start(f"{tmp_path}:{os.environ['PATH']}")
    kill(starter)
    go.touch()
    assert ends(pid)


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_the_command_s_arguments_and_exit_code_stay_its_own(name: str) -> None:
    script = 'printf "%s|" "$@"; exit 7'
    done = subprocess.run(
        tied(["sh", "-c", script, "sh", "a b", "$x", ""], name), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (7, b"a b|$x||")
