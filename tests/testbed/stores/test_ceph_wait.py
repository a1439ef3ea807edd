"""Waits until a Ceph serves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import StoreError
from testbed.stores.ceph import connect
from testbed.stores.ceph_wait import Apart, Ask, asker, wait, what_is_missing
from tests.errors import raises
from tests.testbed.sites.manual_clock import ManualClock

STATUS = {
    "osdmap": {"num_up_osds": 3, "num_in_osds": 3},
    "health": {"status": "HEALTH_OK", "checks": {}},
}


def groups(**states: int) -> dict[str, Any]:
    rows = [{"name": name.replace("_", "+"), "num": number} for name, number in states.items()]
    return {"pg_summary": {"num_pg_by_state": rows, "num_pgs": sum(states.values())}}


def cluster(status: Mapping[str, Any] = STATUS, **states: int) -> Ask:
    answers = {("mon", "status"): status, ("mgr", "pg stat"): groups(**states)}
    return lambda daemon, command: answers[daemon, command]


NOOUT = {"OSD_FLAGS": {"summary": {"message": "noout flag(s) set"}}}


@pytest.mark.parametrize(
    ("health", "states", "osds", "said"),
    [
        ({}, {"active_clean": 128}, 3, None),
        ({}, {"active_clean": 128}, 4, "3 of 4 OSDs are up and 3 in"),
        # The manager reports placement groups, not the monitor.
        (
            {},
            {"active_clean": 100, "peering": 28},
            3,
            "100 of 128 placement groups are active+clean",
        ),
        (
            {"status": "HEALTH_WARN", "checks": NOOUT},
            {"active_clean": 1},
            3,
            "HEALTH_WARN: noout flag(s) set",
        ),
    ],
)
def test_what_a_cluster_lacks_is_reported(health, states, osds, said):
    status = STATUS | ({"health": health} if health else {})
    assert what_is_missing(cluster(status, **states), osds) == said


def test_wait_outlasts_silent_monitors_and_ends_with_what_is_missing():
    clock = ManualClock(0.0)

    def ask(daemon: str, command: str) -> Mapping[str, Any]:
        if clock.now() < 5:
            raise OSError("timed out")
        return cluster(active_clean=8)(daemon, command)

    assert wait(ask, 3, 30, clock=clock.now, sleep=clock.sleep) == pytest.approx(5, abs=0.2)
    clock = ManualClock(0.0)
    with raises(TimeoutError, "after 30 s", "3 of 8"):
        wait(cluster(active_clean=8), 8, 30, clock=clock.now, sleep=clock.sleep)


class Handle:
    """Handle of librados on a cluster that admits nobody yet."""

    open = 0

    def __init__(self, **_: object) -> None:
        Handle.open += 1

    def connect(self, **_: object) -> None:
        raise RadosError("RADOS permission denied")

    def shutdown(self) -> None:
        Handle.open -= 1


class RadosError(Exception):
    """``rados.Error``."""


@pytest.fixture
def refusing(monkeypatch):
    monkeypatch.setitem(sys.modules, "rados", SimpleNamespace(Rados=Handle, Error=RadosError))
    monkeypatch.setattr(Handle, "open", 0)
    return Handle


def test_attempts_that_fail_leave_no_handles(refusing):
    """A handle without shutdown keeps nine file descriptors. Ten attempts per second used up a
    process's 1,024, and librados aborted the process."""
    clock = ManualClock(0.0)
    with raises(TimeoutError, "do not answer"):
        wait(asker(), 3, 30, clock=clock.now, sleep=clock.sleep)
    assert refusing.open == 0
    with raises(StoreError, "cannot connect to the Ceph"):
        connect()
    assert refusing.open == 0


@contextmanager
def apart(make: Callable[[], Ask], **options: float) -> Iterator[Apart]:
    asking = Apart(make, **options)
    try:
        yield asking
    finally:
        asking.close()


def once(marker: Path, first: Callable[[], object]) -> Callable[[], Ask]:
    """Return an asker: the first question in any process ends in `first`, all others answer."""

    def make() -> Ask:
        def ask(daemon: str, command: str) -> Mapping[str, Any]:
            if not marker.exists():
                marker.touch()
                first()
            return cluster(active_clean=8)(daemon, command)

        return ask

    return make


def test_a_library_that_ends_its_process_costs_a_question(tmp_path):
    """An abort is such an end; the test uses a kill, for which pytest prints no long report."""
    clock = ManualClock(0.0)
    with apart(once(tmp_path / "asked", lambda: os.kill(os.getpid(), signal.SIGKILL))) as asking:
        with raises(OSError, "-9"):
            asking("mon", "status")
        assert wait(asking, 3, 30, clock=clock.now, sleep=clock.sleep) == 0


def test_one_that_hangs_is_left(tmp_path):
    with apart(once(tmp_path / "asked", lambda: time.sleep(600)), patience_s=0.5) as asking:
        with raises(OSError, "no answer within 0.5 s"):
            asking("mon", "status")
        assert asking("mon", "status") == STATUS


def test_what_a_cluster_answers_comes_through():
    def make() -> Ask:
        def refuse(daemon: str, command: str) -> Mapping[str, Any]:
            raise OSError(f"{daemon} refuses {command}")

        return refuse

    with apart(make) as asking:
        for _ in range(2):
            with raises(OSError, "mgr refuses pg stat"):
                asking("mgr", "pg stat")


def test_its_process_ends_with_it():
    with apart(lambda: cluster(active_clean=8)) as asking:
        asking("mon", "status")
        assert asking._child is not None
        child = asking._child[0]
        assert child.is_alive()
    assert not child.is_alive()
