"""Disturbance unit without shared ssh connections, because its stop would wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.agent import disturb, reach
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.ssh import SshShell

CONFIG = AgentConfig(
    testbed="dlr",
    store="ceph",
    nodes=(
        AgentNode("admin", "10.0.0.1", ("admin",), "io_pressure"),
        AgentNode("osd0", "10.0.0.2", ("osd",), "io_pressure"),
    ),
)


def test_every_command_of_the_unit_has_a_connection_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    used: list[Sequence[str]] = []

    def clean(config: AgentConfig) -> int:
        shell = reach.reach(config, "osd0")
        assert isinstance(shell, SshShell)
        used.append(shell.target.command(["true"]))
        return 0

    monkeypatch.setattr(reach, "_control_dir", [])
    monkeypatch.setattr("testbed.agent.contract.CONTROL_DIR", tmp_path)
    monkeypatch.setattr(disturb, "load_config", lambda: CONFIG)
    monkeypatch.setattr(disturb, "clean_loads", clean)
    assert disturb.main(["clean"]) == 0
    assert not any("Control" in word for word in used[0])
