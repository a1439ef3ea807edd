"""Calibration of the signal: counters, refusals, the report. The node is a fake shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.agent.units import parse_result
from testbed.deploy.inventory import fio_file_bytes
from testbed.sites.contract import Node, Testbed
from testbed.spec import load_spec
from testbed.ssh import Completed
from tests.errors import raises
from tests.workloads.fake_agent import FakeAgent
from workloads import calibrate_signal
from workloads.calibrate_signal import (
    SignalLevel,
    calibrate,
    calibrate_node,
    read_counters,
    signals,
)
from workloads.errors import WorkloadError

ROOT = Path(__file__).parents[2]
FIO = (ROOT / "tests/data/fio/3.33/randread-terminated.txt").read_text()
PRESSURE = "/sys/fs/cgroup/node/io.pressure"


class Node1:
    """Node with tasks that wait for I/O `busy` of the time while fio runs, on two processors."""

    node = "node"

    def __init__(self, busy: float = 0.9) -> None:
        self.busy = busy
        self.now = 100.0
        self.waited_us = 7e6
        self.ticks = [1000.0, 0.0, 500.0, 90000.0, 300.0, 0.0, 0.0, 0.0]
        self.running: list[str] | None = None
        self.loads: list[list[str]] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        waiting = self.busy * seconds if self.running else 0.0
        self.waited_us += waiting * 1e6
        # While a task waits, one of two processors idles with I/O outstanding.
        self.ticks[4] += 100 * waiting
        self.ticks[3] += 100 * (2 * seconds - waiting)

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        out = b""
        if input:
            self.running = [line for line in input.decode().splitlines() if "fio" in line]
            self.loads.append(self.running)
        elif "/proc/stat" in argv[2]:
            assert argv[-1] == PRESSURE
            cpu = " ".join(str(round(tick)) for tick in self.ticks)
            out = (
                f"{self.now}\nsome avg10=0.00 avg60=0.00 avg300=0.00 total={self.waited_us:.0f}\n"
                f"full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n\n"
                f"cpu  {cpu} 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n"
            ).encode()
        elif "systemctl stop" in argv[2]:
            self.running = None
            body = FIO.encode()
            head = f"started 1\nended 7 8\nexit stopped\ntimes \nstdout {len(body)}\nstderr 0\n\n"
            out = head.encode() + body
        return Completed(tuple(argv), 0, out, b"")

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        raise NotImplementedError

    def popen(self, argv: Sequence[str]) -> None:
        raise NotImplementedError


def test_both_signals_are_read_from_counters() -> None:
    node = Node1()
    node.running = ["fio"]
    before = read_counters(node, PRESSURE)  # type: ignore[arg-type]
    node.sleep(10)
    after = read_counters(node, PRESSURE)  # type: ignore[arg-type]
    assert after.cpus == 2
    assert signals(before, after) == pytest.approx((90.0, 45.0))
    with raises(WorkloadError, "same moment"):
        signals(after, after)


def test_every_load_and_the_hotspot_by_each_engine() -> None:
    node = Node1()
    levels = calibrate(node, PRESSURE, 2**27, shares=(0.0, 0.5), sleep=node.sleep)  # type: ignore[arg-type]
    names = ("0 %", "50 %", "hotspot")
    wanted = [(engine, name) for engine in ("libaio", "psync") for name in names]
    assert [(level.engine, level.name) for level in levels] == wanted
    assert levels[0].io_pressure == 0 and levels[0].iops == 0
    assert levels[1].io_pressure == pytest.approx(90)
    assert levels[1].iowait == pytest.approx(45)
    commands = [load[0] for load in node.loads]
    assert len(commands) == 5  # the capacity run, and no fio at 0 %
    assert f"--rate_iops={round(levels[2].iops / 2)} " in commands[1]
    assert node.running is None


def test_fio_that_ends_by_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = parse_result(
        "node",
        "load-calibrate",
        b"started 1\nended 7 8\nexit 1\ntimes \nstdout 0\nstderr 9\n\nno files\n",
        3.0,
    )
    monkeypatch.setattr(calibrate_signal.units, "stop", lambda *_: ended)
    node = Node1()
    with raises(WorkloadError, "ended by itself"):
        calibrate(node, PRESSURE, 2**27, sleep=node.sleep)  # type: ignore[arg-type]


def made_of(*nodes: Node) -> Testbed:
    here = Path("/nowhere")
    return Testbed("t", "fake", nodes, here, here, here, "")


def named(name: str, role: str = "osd", signal: str = "io_pressure") -> Node:
    file = PRESSURE if signal == "io_pressure" else None
    return Node(name, "192.0.2.1", frozenset({role}), "osd", signal=signal, pressure_file=file)


SPEC = load_spec(ROOT / "testbed/specs/dlr.yaml")
IDLE = FakeAgent(lambda argv: (0, "", ""))


def test_what_cannot_be_calibrated_is_refused() -> None:
    busy = FakeAgent(lambda argv: (0, "", ""))
    busy.unit_start("client", "load-bench-rand", ["rados"], max_s=9)
    for message, node, agent in (
        ("calibrate on one of osd1", named("admin", "admin"), IDLE),
        ("needs no calibration", named("osd0", signal="iowait"), IDLE),
        ("not idle: load-bench-rand runs on node client", named("osd0"), busy),
    ):
        shell = Node1()
        shell.node = node.name
        with raises(UserError, message):
            calibrate_node(agent, made_of(node, named("osd1")), SPEC, shell)  # type: ignore[arg-type]
        assert shell.loads == []


def test_the_nodes_own_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    def record(shell: Node1, pressure: str, file_bytes: int, **_: object) -> list[SignalLevel]:
        seen.append((pressure, file_bytes))
        return []

    monkeypatch.setattr(calibrate_signal, "calibrate", record)
    shell = Node1()
    shell.node = "osd1"
    calibrate_node(IDLE, made_of(named("osd1")), SPEC, shell)  # type: ignore[arg-type]
    disk = next(group.disk for group in SPEC.groups if group.disk is not None)
    assert seen == [(PRESSURE, fio_file_bytes(disk, "osd1"))]
