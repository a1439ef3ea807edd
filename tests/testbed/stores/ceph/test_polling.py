"""Polling of counters without waiting for the slowest OSD."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from testbed.stores.ceph.connection import Reply
from testbed.stores.ceph.perf import CounterPoller, LatencySensor


class Osds:
    """OSDs that have served more reads at each request; a `stuck` OSD waits."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}
        self.stuck: dict[int, threading.Event] = {}
        self.dead: set[int] = set()
        self.latency_s: dict[int, float] = {}

    def osd(self, osd: int, prefix: str, **arguments: Any) -> Reply:
        assert (prefix, arguments) == ("perf dump", {"logger": "osd"})
        self.asked[osd] = self.asked.get(osd, 0) + 1
        if osd in self.stuck:
            self.stuck[osd].wait(10)
        if osd in self.dead:
            return Reply(-110, "", "timed out", 0.0)
        reads = 10 * self.asked[osd]
        latency = {"avgcount": reads, "sum": reads * self.latency_s.get(osd, 0.01)}
        counters = {"op_r": reads, "op_r_out_bytes": 0, "op_w": 0, "op_w_in_bytes": 0}
        writes = {"avgcount": 0, "sum": 0}
        return Reply(
            0, {"osd": counters | {"op_r_latency": latency, "op_w_latency": writes}}, "", 0.0
        )


@pytest.fixture
def osds() -> Osds:
    return Osds()


def test_everyone_who_answers_is_there_at_once(osds: Osds) -> None:
    found = CounterPoller(osds).read(range(40), 3600.0)  # type: ignore[arg-type]
    assert {osd: answer.counters.reads for osd, answer in found.items()} == dict.fromkeys(
        range(40), 10
    )


def test_a_slow_one_is_not_waited_for_nor_asked_twice_and_comes_later(osds: Osds) -> None:
    osds.stuck[1] = threading.Event()
    poller = CounterPoller(osds)  # type: ignore[arg-type]
    assert set(poller.read((0, 1, 2), 0.05)) == {0, 2}
    assert set(poller.read((0, 1, 2), 0.05)) == {0, 2}
    assert osds.asked == {0: 2, 1: 1, 2: 2}
    osds.stuck.pop(1).set()
    deadline = time.monotonic() + 5
    late: dict[int, Any] = {}
    while 1 not in late and time.monotonic() < deadline:
        late = poller.read((0, 1, 2), 0.05)
    assert late[1].counters.reads in (10, 20)  # the late answer, or a newer one
    assert poller.read((1,), 5.0)[1].counters.reads > 10


def test_one_that_fails_is_absent_and_asked_again(osds: Osds) -> None:
    osds.dead.add(2)
    poller = CounterPoller(osds)  # type: ignore[arg-type]
    assert set(poller.read((1, 2), 5.0)) == {1}
    osds.dead.clear()
    assert set(poller.read((1, 2), 5.0)) == {1, 2}


def test_the_latency_signal_judges_a_late_one_when_it_has_come(
    osds: Osds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.stores.ceph.perf.PATIENCE_S", 0.05)
    osds.latency_s = {3: 0.1}
    sensor = LatencySensor(osds, range(4))  # type: ignore[arg-type]
    osds.stuck[3] = threading.Event()
    assert set(sensor.pressure()) == {0, 1, 2}
    assert sensor.lost == {"osd.3": "does not answer"}
    osds.stuck.pop(3).set()
    deadline = time.monotonic() + 10
    late: dict[int, float] = {}
    while 3 not in late and time.monotonic() < deadline:
        late = sensor.pressure()
    assert late[3] == pytest.approx(90)
