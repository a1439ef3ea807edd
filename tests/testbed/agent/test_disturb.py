"""Disturbance: times of starts and stops, its state, its log and its connections."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import RemoteError, UserError
from testbed.agent import disturb, reach, units
from testbed.agent.contract import AgentConfig, AgentNode, UnitResult
from testbed.agent.disturb import (
    Disturber,
    follow,
    is_steady,
    look_at,
    read_events,
    read_state,
    steps_from_json,
)
from testbed.ssh import SshShell
from tests.errors import raises
from tests.testbed.agent.fake_systemd import FakeSystemdShell
from tests.waiting import until

STEPS = [
    {"t_s": 0, "node": "osd0", "name": "load-hot-osd0", "argv": ["fio"], "rate_iops": None},
    {"t_s": 0, "node": "osd1", "name": "load-hot-osd1", "argv": ["fio"], "rate_iops": 40},
    {"t_s": 0.2, "node": "osd2", "name": "load-hot-osd2", "argv": ["fio"]},
    {"t_s": 0.2, "node": "osd0", "name": "load-hot-osd0", "argv": None},
]


class Nodes:
    """Nodes that record the loads running on them; a test can make them fail."""

    def __init__(self, broken: str = "") -> None:
        self.running: set[tuple[str, str]] = set()
        self.max_s: list[float] = []
        self.broken = broken
        self.lock = threading.Lock()

    def start(self, node: str, name: str, argv: Sequence[str], max_s: float) -> None:
        if node == self.broken:
            raise RemoteError(f"node {node} cannot be reached by ssh", retry=True)
        with self.lock:
            assert (node, name) not in self.running
            self.running.add((node, name))
            self.max_s.append(max_s)

    def stop(self, node: str, name: str) -> UnitResult | None:
        with self.lock:
            if (node, name) not in self.running:
                return None
            self.running.remove((node, name))
        return UnitResult(node, name, None, 1.0, 2.0, "{}", "")


def disturber(nodes: Nodes, folder: Path, steps: Any = STEPS) -> Disturber:
    return Disturber(steps_from_json(steps), nodes.start, nodes.stop, folder, max_s=60)


def hot(folder: Path) -> list[str]:
    state = read_state(folder)
    assert state is not None
    return list(state["hot_nodes"])


def test_the_first_loads_start_at_once_and_are_in_the_state(tmp_path):
    nodes = Nodes()
    subject = disturber(nodes, tmp_path)
    assert hot(tmp_path) == []
    before = time.time()
    subject.at_once()
    state = read_state(tmp_path)
    assert state is not None and state["hot_nodes"] == ["osd0", "osd1"]
    assert state["go"] is None and before <= state["since"] <= time.time()
    assert [load["rate_iops"] for load in state["loads"]] == [None, 40.0]
    assert all(0 < max_s <= 60 for max_s in nodes.max_s)
    subject.finish()
    outputs = [json.loads(path.read_text()) for path in (tmp_path / "outputs").iterdir()]
    assert sorted(output["node"] for output in outputs) == ["osd0", "osd1"]
    assert {output["stdout"] for output in outputs} == {"{}"}


@pytest.mark.parametrize("step_s", [7200.0, -7200.0])
def test_moves_wait_for_go_and_count_from_it_whatever_the_clock_does(tmp_path, monkeypatch, step_s):
    monkeypatch.setattr(disturb, "FOLDER", tmp_path)
    nodes, ended, wall = Nodes(), threading.Event(), time.time
    subject = disturber(nodes, tmp_path)
    monkeypatch.setattr(time, "time", lambda: wall() + step_s)
    thread = threading.Thread(
        target=follow,
        args=(subject,),
        kwargs={"find_go": lambda: disturb.read_go(subject.clock), "ended": ended},
    )
    thread.start()
    time.sleep(0.3)  # longer than the move's time, which must not count yet
    assert hot(tmp_path) == ["osd0", "osd1"]
    disturb.write_go(time.time())
    until(lambda: hot(tmp_path) == ["osd1", "osd2"])
    ended.set()
    thread.join(60)
    moved = [event for event in read_events(tmp_path) if event["planned_t_s"] == 0.2]
    assert [event["action"] for event in moved] == ["stop", "start"]
    assert all(0.2 <= event["t_s"] < 60 for event in moved)
    assert all(0 < max_s <= 60 for max_s in nodes.max_s)
    assert nodes.running == set() and hot(tmp_path) == []


def test_everything_is_stopped_on_the_way_out_even_before_go(tmp_path):
    nodes, ended = Nodes(), threading.Event()
    ended.set()
    follow(disturber(nodes, tmp_path), find_go=lambda: None, ended=ended)
    assert nodes.running == set() and hot(tmp_path) == []
    unplanned = [event for event in read_events(tmp_path) if event["planned_t_s"] is None]
    assert sorted(event["node"] for event in unplanned) == ["osd0", "osd1"]


def test_a_load_that_cannot_start_is_reported_and_not_called_hot(tmp_path):
    nodes = Nodes(broken="osd1")
    subject = disturber(nodes, tmp_path)
    subject.at_once()
    failed = [event for event in read_events(tmp_path) if not event["ok"]]
    assert [(event["node"], event["action"]) for event in failed] == [("osd1", "start")]
    assert "cannot be reached" in failed[0]["error"]
    assert hot(tmp_path) == ["osd0"]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({}, "list of steps"),
        ([{"t_s": "x", "node": "a", "name": "load-x", "argv": None}], "step 0"),
        ([{"t_s": 0, "node": "a", "name": "sshd", "argv": None}], "must begin with 'load-'"),
    ],
)
def test_a_bad_plan_is_refused(plan, message):
    with raises(UserError, message):
        steps_from_json(plan)


def test_a_load_that_died_or_reads_nothing_is_not_steady(tmp_path):
    load = {"node": "osd0", "name": "load-hot-osd0", "rate_iops": None}
    with FakeSystemdShell(tmp_path) as shell:
        units.start(shell, load["name"], ["sh", "-c", "echo no such disk >&2; exit 1"], max_s=9)
        until(lambda: not units.live(shell), 5)
        status = look_at(shell, load)
    assert (status["alive"], status["steady"], status["said"]) == (False, False, "no such disk")
    with FakeSystemdShell(tmp_path / "again") as shell:
        units.start(shell, load["name"], ["sleep", "30"], max_s=60)
        status = look_at(shell, load)
    assert status["alive"] and status["steady"] is not True and status["said"] == ""


@pytest.mark.parametrize(
    ("rates", "offered", "steady"),
    [
        ([240, 250], None, True),
        ([20, 240], None, False),  # still starting
        ([0, 240], None, False),
        ([0, 0], None, False),
        ([240], None, None),
        ([], None, None),
        ([55, 68], 60, True),
        ([20, 22], 120, False),
        ([0, 3], 3, True),
        ([0, 0], 3, False),
    ],
)
def test_steady(rates, offered, steady):
    assert is_steady(rates, offered) is steady


CONFIG = AgentConfig(
    testbed="dlr",
    store="ceph",
    nodes=(
        AgentNode("admin", "10.0.0.1", ("admin",), "io_pressure"),
        AgentNode("osd0", "10.0.0.2", ("osd",), "io_pressure"),
    ),
)


def test_every_command_of_the_unit_has_a_connection_of_its_own(monkeypatch, tmp_path):
    used: list[Sequence[str]] = []

    def clean(config: AgentConfig) -> int:
        shell = reach.reach(config, "osd0")
        assert isinstance(shell, SshShell)
        used.append(shell.target.command(["true"]))
        return 0

    monkeypatch.setattr(reach, "_control_dir", [])
    monkeypatch.setattr("testbed.agent.reach.CONTROL_DIR", tmp_path)
    monkeypatch.setattr(disturb, "load_config", lambda: CONFIG)
    monkeypatch.setattr(disturb, "clean_loads", clean)
    assert disturb.main(["clean"]) == 0
    assert not any("Control" in word for word in used[0])
