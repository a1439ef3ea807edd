"""Monitor on nodes that answer, lag, lie, or are gone."""

from __future__ import annotations

import subprocess
import threading

import pytest

from schemas.errors import RemoteError, UserError
from testbed.agent.contract import AgentConfig
from testbed.agent.monitor import Monitor, ProcessChannel
from testbed.agent.sense import NodeSensor, OsdSensor, check_iowait
from tests.errors import raises
from tests.testbed.agent.channels import Site, counters, node


def monitor_of(**answers):
    site = Site(answers)
    nodes = [node(name, number) for number, name in enumerate(answers)]
    return Monitor(nodes, site.open), site, AgentConfig("t", "ceph", tuple(nodes))


def test_rates_of_every_node():
    monitor, _, _ = monitor_of(a=counters, b=counters)
    assert monitor.start(2.0) == {}
    reading = monitor.read(2.0)
    assert reading.lost == {}
    found = reading.nodes["b"]
    assert found.io_pressure == pytest.approx(50)
    assert found.iowait == pytest.approx(15)
    assert found.cpu_cores == pytest.approx(0.25)
    assert found.disk_read_mb_s == pytest.approx(2000 * 512 / 1e6)
    assert found.disk_util == pytest.approx(80)
    assert found.disk_queue == pytest.approx(3)
    assert (found.net_rx_mb_s, found.net_tx_mb_s) == (1, 2)
    monitor.close()


def test_a_node_that_ends_is_named_and_asked_again():
    def dies(seq, turn):
        return b"" if turn == 2 else counters(seq, turn)

    monitor, site, _ = monitor_of(a=counters, b=dies)
    monitor.start(2.0)
    reading = monitor.read(2.0)
    assert set(reading.nodes) == {"a"}
    assert "its probe ended" in reading.lost["b"]
    site.answers["b"] = lambda seq, turn: counters(seq, turn + 10)
    assert set(monitor.read(2.0).nodes) == {"a", "b"}
    assert site.opened == {"a": 1, "b": 2}


def test_a_node_that_stays_away_is_tried_less_and_less_often(monkeypatch):
    clock = [100.0]
    monitor, site, _ = monitor_of(b=lambda seq, turn: b"")
    monkeypatch.setattr("testbed.agent.monitor.time.monotonic", lambda: clock[0])
    for _ in range(60):
        assert "its probe ended" in monitor.start(2.0)["b"]
        clock[0] += 1
    assert site.opened["b"] <= 10
    site.answers["b"] = counters
    clock[0] += 16
    assert monitor.start(2.0) == {}


def test_a_slow_node_is_named_does_not_hold_up_and_keeps_its_channel():
    held = threading.Event()

    def slow(seq, turn):
        if turn == 2:
            held.wait(60)
        return counters(seq, turn)

    monitor, site, _ = monitor_of(a=counters, b=slow)
    monitor.start(60.0)
    reading = monitor.read(0.2)  # returns while b is still held
    held.set()
    assert reading.lost["b"] == "did not answer within 0.2 s"
    again = monitor.read(60.0)
    assert again.lost == {}
    # The number of the late answer identifies it, so the rate spans both intervals.
    assert again.nodes["b"].interval_s == 2
    assert site.opened["b"] == 1


@pytest.mark.parametrize(
    "garbage",
    [b"Last login: Monday\n", b"{}\n", b'{"seq": 1, "t": "x"}\n', b"[1]\n", b"\xff\xfe\n"],
)
def test_garbage_is_named(garbage):
    def lies(seq, turn):
        return garbage if turn == 2 else counters(seq, turn)

    monitor, _, _ = monitor_of(a=counters, b=lies)
    monitor.start(2.0)
    reading = monitor.read(2.0)
    assert "answered garbage" in reading.lost["b"]
    assert "a" in reading.nodes


def test_a_node_that_restarted_has_no_rate_for_one_interval():
    turns = iter([100, 40, 41])  # seconds since the node's start
    monitor, _, _ = monitor_of(a=lambda seq, turn: counters(seq, next(turns)))
    monitor.start(2.0)
    reading = monitor.read(2.0)
    assert not reading.nodes
    assert set(reading.lost) == {"a"}
    assert monitor.read(2.0).nodes["a"].io_pressure == pytest.approx(50)


def test_a_node_that_cannot_be_opened_is_named():
    def refuse(_node):
        raise RemoteError("no route to host", retry=True)

    monitor = Monitor([node("a")], refuse)
    assert monitor.start(1.0) == {"a": "cannot be reached: no route to host"}
    assert monitor.read(1.0).nodes == {}

    def opener(_node):
        gone = subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        gone.wait()
        return ProcessChannel(gone)

    monitor = Monitor([node("a")], opener)
    assert "a" in monitor.start(2.0)
    assert "a" in monitor.read(2.0).lost


def test_node_sensor_gives_every_osd_its_nodes_pressure():
    monitor, _, config = monitor_of(a=counters, b=lambda seq, turn: b"")
    sensor = NodeSensor(config, monitor)
    assert sensor.pressure() == {0: pytest.approx(50)}
    assert sensor.signal == "io_pressure"
    assert "b" in sensor.lost
    sensor.close()
    check_iowait("a", 4)
    many = Site({"a": lambda seq, turn: counters(seq, turn, cpus=48)})
    nodes = (node("a", 0, "iowait"),)
    with raises(UserError, "48"):
        NodeSensor(AgentConfig("t", "ceph", nodes), Monitor(nodes, many.open))


def test_osd_sensor_reads_the_osds_own_group():
    own = Site({"a": lambda seq, turn: counters(seq, turn, osd_us={"0": 100_000 * turn})})
    nodes = (node("a", 0),)
    sensor = OsdSensor(AgentConfig("t", "ceph", nodes), Monitor(nodes, own.open))
    assert sensor.pressure() == {0: pytest.approx(10)}
    with pytest.raises(UserError):
        OsdSensor(AgentConfig("t", "ceph", nodes), Monitor(nodes, Site({"a": counters}).open))
