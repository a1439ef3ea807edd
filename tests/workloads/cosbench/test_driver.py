"""Embedded driver here and on client nodes: credentials, progress, archives, interruptions."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import HotbedError, UserError
from testbed.agent.contract import UnitResult
from tests.errors import raises
from workloads.cosbench import driver
from workloads.cosbench.driver import (
    ClientWorkload,
    DriveOptions,
    install,
    run_here,
    run_on,
    tenant,
)
from workloads.errors import WorkloadError

SECRET = "s3cr3t"
XML = f'<workload name="web"><auth config="password={SECRET}"/></workload>'


class NodeAgent:
    """Agent with processes of this machine as units, on the node of the shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: list[str] = []
        self.started = threading.Event()

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        folder = Path(self.shell.here(f"{driver.UNITS}/{name}"))
        folder.mkdir(parents=True)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            command = [self.shell.here(word) for word in argv]
            self.processes[name] = subprocess.Popen(command, stdout=out, stderr=err)
        self.started.set()

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        code = self.processes[name].wait(timeout=60)
        folder = Path(self.shell.here(f"{driver.UNITS}/{name}"))
        texts = [(folder / stream).read_text() for stream in ("stdout", "stderr")]
        stopped = name in self.stopped
        return UnitResult(node, name, None if stopped else code, 1.0, 2.0, *texts, 0.5)

    def unit_stop(self, node: str, name: str) -> None:
        self.stopped.append(name)
        if name in self.processes:
            self.processes[name].terminate()

    def call(self, verb: str, payload: Mapping[str, Any] | None = None, **_: Any) -> Any:
        raise AssertionError(verb)

    units = strays = call


def test_here(stand_in: Path, tmp_path: Path) -> None:
    phases: list[tuple[str, float]] = []
    driven = run_here(
        XML,
        "web.xml",
        tmp_path / "out",
        DriveOptions(rate=200, arrivals="constant", seed=7, only_stages=("prepare", "main")),
        lambda phase, share: phases.append((phase, share)),
        program=stand_in,
    )
    assert phases == [("s3-main", 0.25), ("s3-main, 50 operations, 1 failed", 0.5), ("done", 1.0)]
    assert driven.warnings == ("web.xml: afr has no effect",)
    folder = stand_in.parent
    assert (folder / "seen.xml").read_text() == XML
    (command,) = (folder / "commands").read_text().splitlines()
    assert SECRET not in command
    assert command.endswith(
        "--open-loop 200:constant --seed 7 --only-stage prepare --only-stage main"
    )
    assert f"--archive {tmp_path / 'out'}" in command


def test_an_interruption_ends_it_and_keeps_the_archive(stand_in: Path, tmp_path: Path) -> None:
    def interrupt(phase: str, share: float) -> None:
        raise KeyboardInterrupt

    xml = XML.replace("web", "patient")
    with pytest.raises(KeyboardInterrupt):
        run_here(xml, "web.xml", tmp_path / "out", None, interrupt, program=stand_in)
    assert (tmp_path / "out" / "w1-mos-A").is_dir()


def test_a_mistake_and_a_driver_that_is_not_built(
    stand_in: Path, tmp_path: Path, local_shell: Any
) -> None:
    xml = XML.replace("web", "broken")
    with raises(UserError, "line 3", where="web.xml"):
        run_here(xml, "web.xml", tmp_path / "out", program=stand_in)
    with raises(UserError, "line 3", where="web.xml"):
        driver.check(xml, "web.xml", program=stand_in)
    assert driver.check(XML, "web.xml", program=stand_in)["name"] == "web"
    for refused in (
        lambda: driver.check(XML, "web.xml", program=tmp_path / "none"),
        lambda: install(local_shell, tmp_path / "none"),
    ):
        with raises(HotbedError, "is not built", "make setup"):
            refused()


def test_on_a_node(stand_in: Path, tmp_path: Path, local_shell: Any) -> None:
    agent = NodeAgent(local_shell)
    loads = [
        ClientWorkload("small", "client", XML, 60.0),
        ClientWorkload("large", "client", XML.replace("web", "video"), 60.0, DriveOptions(rate=5)),
    ]
    out = tmp_path / "out"
    found = run_on(agent, lambda _: local_shell, loads, out, binary=stand_in, poll_s=0.01)
    assert list(found) == ["small", "large"]
    assert found["small"].archive.folder == out / "small" / "w1-mos-A"
    commands = (stand_in.parent / "commands").read_text().splitlines()
    assert sorted("--open-loop 5:poisson" in command for command in commands) == [False, True]
    assert not install(local_shell, stand_in)  # the node has it already
    # No credentials were on a command line, and none remain on the node.
    assert not [word for argv in local_shell.ran for word in argv if SECRET in word]
    assert not [
        word for process in agent.processes.values() for word in process.args if SECRET in word
    ]
    assert not list(Path(local_shell.here(driver.FOLDER)).iterdir())
    assert SECRET not in repr(loads)


def test_the_xml_on_a_node_is_gone_before_the_driver_begins(
    stand_in: Path, tmp_path: Path, local_shell: Any
) -> None:
    stand_in.write_text(
        f"#!/bin/sh\nls -l {local_shell.here(driver.FOLDER)}/one > {tmp_path}/there\n"
        f'cp "$2" {tmp_path}/seen\nexit 1\n'
    )
    load = ClientWorkload("one", "client", XML, 60.0)
    with raises(WorkloadError, "failed with exit code 1 on"):
        run_on(
            NodeAgent(local_shell), lambda _: local_shell, [load], tmp_path / "o", binary=stand_in
        )
    assert (tmp_path / "seen").read_text() == XML
    assert "workload.xml" not in (tmp_path / "there").read_text()
    assert local_shell.modes == {"/var/lib/hotbed/cosbench/one/workload.xml": 0o600}


def test_one_that_fails_ends_all(stand_in: Path, tmp_path: Path, local_shell: Any) -> None:
    agent = NodeAgent(local_shell)
    (stand_in.parent / "second").touch()
    loads = [
        ClientWorkload("long", "client", XML.replace("web", "patient"), 60.0),
        ClientWorkload("wrong", "client", XML.replace("web", "broken"), 60.0),
    ]
    out = tmp_path / "out"
    with raises(UserError, "line 3"):
        run_on(agent, lambda _: local_shell, loads, out, binary=stand_in, poll_s=0.01)
    assert "load-cosbench-long" in agent.stopped
    assert all(process.poll() is not None for process in agent.processes.values())
    # The interrupted driver's results so far are kept.
    assert (out / "long" / "w1-mos-A" / "w1-mos-A.csv").exists()
    assert not list(Path(local_shell.here(driver.FOLDER)).iterdir())


@pytest.mark.slow  # it waits for time limits
@pytest.mark.parametrize("begins", [False, True])
def test_an_interruption_on_a_node(
    stand_in: Path, tmp_path: Path, local_shell: Any, begins: bool
) -> None:
    """Also while a load begins: it is stopped although it was not there yet."""
    agent = NodeAgent(local_shell)
    start, over = agent.unit_start, threading.Event()

    def slow(*arguments: Any, **options: Any) -> None:
        over.wait(30)
        start(*arguments, **options)

    def stop(node: str, name: str) -> None:
        NodeAgent.unit_stop(agent, node, name)
        over.set()

    def interrupt(phase: str, share: float) -> None:
        if not begins:
            agent.started.wait(30)
        raise KeyboardInterrupt

    if begins:
        agent.unit_start, agent.unit_stop = slow, stop  # type: ignore[method-assign]
    load = ClientWorkload("long", "client", XML.replace("web", "patient"), 60.0)
    with pytest.raises(KeyboardInterrupt):
        run_on(agent, lambda _: local_shell, [load], tmp_path / "out", interrupt, binary=stand_in)
    assert agent.processes["load-cosbench-long"].wait(30) is not None


def test_a_tenant_of_a_swift_and_of_an_object_gateway(local_shell: Any) -> None:
    path = Path(local_shell.here("/etc/hotbed/swift")) / "web.json"
    path.write_text(json.dumps({"auth_url": "http://192.0.2.1/a", "user": "w:w", "key": SECRET}))
    assert tenant(local_shell, "web").values["password"] == SECRET
    with raises(UserError, "'video'"):
        tenant(local_shell, "video")
    with raises(UserError, "names no tenant"):
        tenant(local_shell, "../shadow")
    path = Path(local_shell.here("/etc/hotbed/s3")) / "s3.json"
    path.parent.mkdir(parents=True)
    keys = {"endpoint": "http://192.0.2.1:7480", "accesskey": "a", "secretkey": SECRET}
    path.write_text(json.dumps({**keys, "proxies": ["http://192.0.2.1:7480"]}))
    assert tenant(local_shell, "s3").for_cosdrive() == keys


def test_loads_have_names_of_their_own(tmp_path: Path, local_shell: Any) -> None:
    (tmp_path / "b").mkdir()
    for names in ((), ("a", "a"), ("Web Server",), ("b",)):
        with pytest.raises(UserError):
            loads = [ClientWorkload(name, "client", XML, 1.0) for name in names]
            run_on(NodeAgent(local_shell), lambda _: local_shell, loads, tmp_path)
