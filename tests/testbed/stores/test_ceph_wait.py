"""Waiting for a Ceph that serves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import StoreError
from testbed.stores.ceph import connect
from testbed.stores.ceph_wait import Ask, asker, wait, what_is_missing

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


def test_a_cluster_that_serves_lacks_nothing() -> None:
    assert what_is_missing(cluster(active_clean=128), 3) is None


def test_osds_come_first() -> None:
    said = what_is_missing(cluster(active_clean=128), 4)
    assert said == "3 of 4 OSDs are up and 3 in"


def test_placement_groups_are_the_managers_not_the_monitors() -> None:
    said = what_is_missing(cluster(active_clean=100, peering=28), 3)
    assert said == "100 of 128 placement groups are active+clean"


def test_warnings_are_told() -> None:
    checks = {"OSD_FLAGS": {"summary": {"message": "noout flag(s) set"}}}
    status = {**STATUS, "health": {"status": "HEALTH_WARN", "checks": checks}}
    said = what_is_missing(cluster(status, active_clean=1), 3)
    assert said == "HEALTH_WARN: noout flag(s) set"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_wait_outlasts_silent_monitors_and_tells_how_long_it_took() -> None:
    clock = Clock()

    def ask(daemon: str, command: str) -> Mapping[str, Any]:
        if clock.now < 5:
            raise OSError("timed out")
        return cluster(active_clean=8)(daemon, command)

    assert wait(ask, 3, 30, clock=clock, sleep=clock.sleep) == pytest.approx(5, abs=0.2)


def test_wait_ends_with_what_is_missing() -> None:
    clock = Clock()
    with pytest.raises(TimeoutError, match="after 30 s: 3 of 8 OSDs are up"):
        wait(cluster(active_clean=8), 8, 30, clock=clock, sleep=clock.sleep)


class Handle:
    """librados' handle on a cluster that lets nobody in yet."""

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
def refusing(monkeypatch: pytest.MonkeyPatch) -> type[Handle]:
    monkeypatch.setitem(sys.modules, "rados", SimpleNamespace(Rados=Handle, Error=RadosError))
    monkeypatch.setattr(Handle, "open", 0)
    return Handle


def test_attempts_that_fail_leave_no_handles(refusing: type[Handle]) -> None:
    """A handle that is not shut down keeps nine file descriptors; ten attempts a second used up the
    1,024 of a process, and librados aborted it."""
    clock = Clock()
    with pytest.raises(TimeoutError, match="do not answer"):
        wait(asker(), 3, 30, clock=clock, sleep=clock.sleep)
    assert refusing.open == 0


def test_nor_do_those_of_the_agent(refusing: type[Handle]) -> None:
    with pytest.raises(StoreError, match="cannot connect to the Ceph cluster"):
        connect()
    assert refusing.open == 0
