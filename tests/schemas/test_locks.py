"""Locks: one holder at a time, in folders that no other user can change."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from campaigns.engine.lock import Lock
from schemas import locks
from schemas.errors import HotbedError, UserError
from schemas.locks import held, machine_lock, open_lock, own_folder, run_folder, take
from testbed.sites.records import locked
from tests.errors import raises

HOLDERS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "held": held,
    "of a site": lambda path: locked(path, timeout_s=0.0, busy="busy"),
    "of a campaign": lambda path: Lock(path, "x"),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_no_lock_is_taken_through_a_link(holder, tmp_path):
    link, target = tmp_path / "lock", tmp_path / "theirs"
    link.symlink_to(target)
    with pytest.raises((OSError, HotbedError)), HOLDERS[holder](link):
        pass
    assert not target.exists()


def test_a_lock_has_one_holder_and_ends_with_its_descriptor(tmp_path):
    handle = take(tmp_path / "deep" / "lock")
    with pytest.raises(BlockingIOError):
        take(tmp_path / "deep" / "lock", wait_s=0.0)
    os.close(handle)
    os.close(take(tmp_path / "deep" / "lock", wait_s=0.0))


def test_a_lock_is_not_inherited(tmp_path):
    handle = open_lock(tmp_path / "lock")
    code = f"import os; os.fstat({handle})"
    child = [sys.executable, "-c", code]
    assert subprocess.run(child, close_fds=False, capture_output=True, check=False).returncode == 1
    os.close(handle)


def test_locks_of_the_machine_are_closed_to_others(monkeypatch):
    path = machine_lock("subnet")
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    path.parent.chmod(0o777)
    assert machine_lock("subnet") == path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with raises(UserError, "no folder of yours"):
        own_folder(path.parent)


def test_nobody_s_folder_is_in_one_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert run_folder() == locks.RUN
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert run_folder() == tmp_path / ".cache" / "hotbed"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert run_folder() == tmp_path / "run" / "hotbed"
