"""Testbeds in memory: an agent of the admin node, and nodes' shells, that record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.grounds.live import LiveTestbed
from controllers import registry
from testbed.agent.contract import Agent, UnitResult
from testbed.spec import TestbedSpec
from testbed.ssh import Completed
from tests.testbed.fake_site import FakeSite

CLUSTER_FILE = "/etc/hotbed/twochoice.json"
HEADER = {"schema": 1, "header": True, "policy": "dlr", "parameters": {}, "seed": 1}
JOURNAL = json.dumps(HEADER | {"code_hash": registry.code_hash(registry.find("dlr"))}) + "\n"


def printed(text: str = "", code: int | None = 0, stderr: str = "") -> UnitResult:
    return UnitResult("client", "u", code, 0.0, 1.0, text, stderr)


class RecordingAgent(Agent):
    """Agent with units that print `printed`; it accepts all verbs, recorded in `calls`."""

    def __init__(self, result: UnitResult | None = None) -> None:
        self.printed = result or printed()
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.live: dict[str, list[str]] = {}
        self.started: list[tuple[str, str, list[str]]] = []
        self.stopped: list[tuple[str, str]] = []
        self.stray: dict[str, list[str]] = {}

    @property
    def called(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        self.calls.append((verb, payload or {}))
        return {
            "clean": {"put_right": []},
            "control-stop": {"was_running": True, "code": 0, "reason": "stopped"},
            "control-log": {"text": JOURNAL, "offset": len(JOURNAL), "size": len(JOURNAL)},
        }.get(verb, {})

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        self.started.append((node, name, list(argv)))
        self.live.setdefault(node, []).append(name)

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        self.live[node].remove(name)
        return self.printed

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        self.stopped.append((node, name))
        if name in self.live.get(node, ()):
            self.live[node].remove(name)
        return None

    def units(self) -> Mapping[str, Sequence[str]]:
        return {node: list(names) for node, names in self.live.items() if names}

    def strays(self) -> Mapping[str, Sequence[str]]:
        return self.stray


class RecordingShell:
    """Shell that records its commands and files; all two-choice agents have the status `has`."""

    has: Mapping[str, int] = {"fragments": 0, "entries": 0, "in_flight": 0}

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.files: dict[str, bytes] = {}

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        self.ran.append(list(argv))
        status = json.dumps({"agents": [{"agent": 3, "has": self.has}]})
        return Completed(tuple(argv), 0, status.encode(), b"")

    def put(self, data: bytes, path: str) -> None:
        self.files[path] = data

    def document(self) -> dict[str, Any]:
        """Return the cluster file."""
        found: dict[str, Any] = json.loads(self.files[CLUSTER_FILE])
        return found


Shells = dict[str, RecordingShell]


def live_of(
    folder: Path, spec: Mapping[str, Any], agent: Agent | None = None
) -> tuple[LiveTestbed, Shells]:
    """Return a testbed of a spec, and the shells of its nodes."""
    site, checked = FakeSite(folder / "site"), TestbedSpec.model_validate(spec)
    testbed = site.provision(checked)
    shells = {node.name: RecordingShell() for node in testbed.nodes}
    shell_to: Any = shells.__getitem__
    return LiveTestbed(site, testbed, checked, agent or RecordingAgent(), shell_to), shells
