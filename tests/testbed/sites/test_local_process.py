"""Detached processes: in their groups, and known, when `detach` returns."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.sites.contract import SiteError
from testbed.sites.local.process import alive, detach, read_pid, stop
from tests.errors import raises


def test_a_detached_process_is_known_at_once(tmp_path: Path) -> None:
    # A node without a process id so far was mistaken for one that died while booting.
    for attempt in range(20):
        pid_file, procs = tmp_path / f"pid{attempt}", tmp_path / f"procs{attempt}"
        detach(["sleep", "60"], procs=[procs], pid_file=pid_file, log=tmp_path / "log")
        pid = read_pid(pid_file)
        assert pid is not None
        try:
            assert alive(pid)
            assert int(procs.read_text()) == pid
            assert os.getpgid(pid) != os.getpgid(0)
        finally:
            assert stop(pid, timeout_s=5.0, number=signal.SIGKILL)
        assert not alive(pid)


def test_a_group_that_cannot_be_joined_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.sites.local.process._START_S", 0.3)
    with raises(SiteError, "could not be started"):
        detach(
            ["sleep", "60"],
            procs=[tmp_path / "missing" / "cgroup.procs"],
            pid_file=tmp_path / "pid",
            log=tmp_path / "log",
        )
