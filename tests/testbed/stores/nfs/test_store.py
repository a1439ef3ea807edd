"""NFS store on the admin node, with scripted nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from testbed.agent.contract import AgentConfig, AgentNode
from testbed.ssh import Completed
from testbed.stores.nfs.store import (
    NfsStore,
    PutParameters,
    SetNetwork,
    observed,
)

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


class Node:
    """Shell that records commands; `answers` by the first words of a python verb or script."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.ran: list[tuple[list[str], bytes]] = []
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, tuple[int, str, str]] = {}

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        self.ran.append((list(argv), input or b""))
        key = " ".join(argv[3:]) if len(argv) > 3 else argv[2]
        for start, (code, out, err) in self.answers.items():
            if key.startswith(start):
                return Completed(tuple(argv), code, out.encode(), err.encode())
        return Completed(tuple(argv), 0, b"{}", b"")

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        self.files[path] = data

    def popen(self, argv: Sequence[str]) -> Any:
        raise NotImplementedError


@pytest.fixture
def nodes() -> dict[str, Node]:
    return {node.name: Node(node.name) for node in CONFIG.nodes}


def make(nodes: dict[str, Node], times: Sequence[float] = (0.0,) * 20) -> NfsStore:
    clock = iter(times)
    return NfsStore(CONFIG, nodes.__getitem__, lambda: next(clock))


def status(requests: int, work: float) -> dict[str, Any]:
    workload = {"name": "web", "requests": requests, "work_seconds": work, "waited_seconds": 2.0}
    workload |= {"held": 1, "queued": 4, "outstanding": 1, "weight": 1.0}
    return {"policy": "pm", "clients": 2, "queued": 4, "outstanding": 1, "workloads": [workload]}


def test_counters_become_rates_over_the_interval(nodes):
    store = make(nodes, (100.0, 101.0, 103.0))
    for name in ("s0", "s1"):
        nodes[name].answers["control status"] = (0, json.dumps(status(100, 0.5)), "")
    first = store.sense()
    assert (first.t_s, first.interval_s) == (1.0, 0.0)
    assert first.servers["s0"].workloads["web"].requests == 0.0
    nodes["s0"].answers["control status"] = (0, json.dumps(status(150, 1.5)), "")
    seen = store.sense()
    web = seen.servers["s0"].workloads["web"]
    assert (seen.interval_s, web.requests, web.work, web.queued) == (2.0, 25.0, 0.5, 4)
    assert seen.servers["s1"].workloads["web"].requests == 0.0
    seen = observed(status(10, 0.1), status(100, 1.0), 1.0)
    assert seen.workloads["web"].requests == 10.0
    assert seen.workloads["web"].work == pytest.approx(0.1)


def test_parameters_go_to_their_server_and_refusals_come_back(nodes):
    store = make(nodes)
    nodes["s1"].answers["control put"] = (2, "", "the NFS proxy refused: depth is -1.\n")
    effects = store.act(
        [
            PutParameters("s0", {"depth": 1}),
            PutParameters("s1", {"depth": -1}),
            PutParameters("s1", None),
            PutParameters("c0", {}),
        ]
    )
    assert [effect.ok for effect in effects] == [True, False, True, False]
    assert nodes["s0"].ran[0][1] == b'{"depth": 1}'
    assert nodes["s1"].ran[1][0][3:] == ["control", "default"]
    assert "node s1: the NFS proxy refused" in effects[1].message
    assert "'c0' of testbed t is no NFS server" in effects[3].message


def test_a_hosts_network_is_its_units_matter_and_may_fail(nodes):
    store = make(nodes)
    done = store.act([SetNetwork("c0", FLOWS), SetNetwork("s0", None), SetNetwork("x", None)])
    assert [effect.ok for effect in done] == [True, True, False]
    assert json.loads(nodes["c0"].files["/etc/hotbed/netenforcer.json"]) == FLOWS
    assert "systemctl reload-or-restart hotbed-netenforcer.service" in nodes["c0"].ran[0][0][2]
    assert nodes["s0"].ran[0][0][2].startswith("systemctl stop hotbed-netenforcer.service")
    assert "there is no node 'x'" in done[2].message
    nodes["c0"].answers = {
        "systemctl reset-failed": (1, "", "Job failed"),
        "journalctl": (0, "netenforcer: device eth0: no.\n", ""),
    }
    effect = make(nodes).act([SetNetwork("c0", FLOWS)])[0]
    assert (effect.ok, effect.message) == (False, "host c0: device eth0: no.")
    assert nodes["c0"].ran[-1][0][2].endswith("rm -f /etc/hotbed/netenforcer.json")


def test_every_host_is_checked_also_those_that_enforce_nothing(nodes):
    for node in nodes.values():
        node.answers["netenforcer check"] = (0, '{"differences": []}', "")
    nodes["c0"].answers["netenforcer check"] = (0, '{"differences": ["x is missing"]}', "")
    found = make(nodes).check({"c0": FLOWS})
    assert found == {"admin": [], "s0": [], "s1": [], "c0": ["x is missing"]}
    assert json.loads(nodes["c0"].ran[0][1]) == FLOWS
    assert nodes["admin"].ran[0][1] == b"null"
