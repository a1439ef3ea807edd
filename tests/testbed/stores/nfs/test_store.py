"""NFS store on the admin node, with scripted nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.ssh import Completed
from testbed.stores.nfs.store import NfsStore
from tests.errors import raises
from tests.testbed.sites.fake_shells import PlayedShell, ended

CONFIG = AgentConfig(
    "t",
    "nfs",
    (
        AgentNode("admin", "10.1.0.10", ("admin",), "iowait"),
        AgentNode("s0", "10.1.0.11", ("nfs",), "iowait"),
        AgentNode("s1", "10.1.0.12", ("nfs",), "iowait"),
        AgentNode("c0", "10.1.0.13", ("client",), "iowait"),
    ),
)
FLOWS = {"rate": 1e6, "flows": [{"workload": "web"}]}


class Node(PlayedShell):
    """Shell that records commands; `answers` by the first words of a python verb or script."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.ran: list[tuple[list[str], bytes]] = []
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, tuple[int, str, str]] = {}

    def answer(self, argv: list[str], input: bytes | None) -> Completed:
        self.ran.append((argv, input or b""))
        key = " ".join(argv[3:]) if len(argv) > 3 else argv[2]
        found = (answer for start, answer in self.answers.items() if key.startswith(start))
        return ended(argv, *next(found, (0, "{}", "")))

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        self.files[path] = data


@pytest.fixture
def nodes():
    return {node.name: Node(node.name) for node in CONFIG.nodes}


def put(server: str, parameters: object) -> dict[str, Any]:
    return {"action": "put-parameters", "server": server, "parameters": parameters}


def network(host: str, parameters: object) -> dict[str, Any]:
    return {"action": "set-network", "host": host, "parameters": parameters}


def make(nodes: dict[str, Node]) -> NfsStore:
    return NfsStore(CONFIG, nodes.__getitem__)


def test_parameters_go_to_their_server_and_refusals_come_back(nodes):
    store = make(nodes)
    nodes["s1"].answers["control put"] = (2, "", "the NFS proxy refused: depth is -1.\n")
    effects = store.act(
        [
            put("s0", {"depth": 1}),
            put("s1", {"depth": -1}),
            put("s1", None),
            put("c0", {}),
        ]
    )
    assert [effect.ok for effect in effects] == [True, False, True, False]
    assert nodes["s0"].ran[0][1] == b'{"depth": 1}'
    assert nodes["s1"].ran[1][0][3:] == ["control", "default"]
    assert "node s1: the NFS proxy refused" in effects[1].message
    assert "'c0' of testbed t is no NFS server" in effects[3].message
    nodes["s0"].answers["control profile"] = (0, '{"changed": true}', "")
    profile = {"action": "put-profile", "server": "s0", "profile": {"type": "a"}}
    assert store.act([profile])[0].detail == {"changed": 1.0}
    for bad in ({"action": "dance"}, {"action": "put-profile", "server": "s0"}):
        ran = len(nodes["s0"].ran)
        with raises(UserError, bad["action"]):
            store.act([put("s0", {}), bad])
        assert len(nodes["s0"].ran) == ran


def test_a_hosts_network_is_its_units_matter_and_may_fail(nodes):
    store = make(nodes)
    done = store.act([network("c0", FLOWS), network("s0", None), network("x", None)])
    assert [effect.ok for effect in done] == [True, True, False]
    assert json.loads(nodes["c0"].files["/etc/hotbed/netenforcer.json"]) == FLOWS
    assert "systemctl reload-or-restart hotbed-netenforcer.service" in nodes["c0"].ran[0][0][2]
    assert nodes["s0"].ran[0][0][2].startswith("systemctl stop hotbed-netenforcer.service")
    assert "there is no node 'x'" in done[2].message
    nodes["c0"].answers = {
        "systemctl reset-failed": (1, "", "Job failed"),
        "journalctl": (0, "netenforcer: device eth0: no.\n", ""),
    }
    effect = make(nodes).act([network("c0", FLOWS)])[0]
    assert (effect.ok, effect.message) == (False, "host c0: device eth0: no.")
    assert nodes["c0"].ran[-1][0][2].endswith("rm -f /etc/hotbed/netenforcer.json")
