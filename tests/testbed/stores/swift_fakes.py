"""Swift store on nodes with daemons that accept everything and count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.agent.contract import AgentConfig, AgentNode
from testbed.stores.swift.channels import Lost, NodeChannels
from testbed.stores.swift.cluster import SwiftCluster, cluster_from_json
from testbed.stores.swift.store import SwiftStore

EVEN = {"proxy_cores": 0.4, "storage_cores": 0.4, "network": 25e6}
DATA: dict[str, Any] = {
    "microstores": {
        "small": {"proxies": ["p0"], "storage": ["s0", "s1"], "port": 6200},
        "large": {"proxies": ["p1"], "storage": ["s0", "s1"], "port": 6210},
    },
    "tenants": {"a": "small", "b": "large"},
    "pool": {
        "total": {"proxy_cores": 0.8, "storage_cores": 0.8, "network": 50e6},
        "step": {"proxy_cores": 0.1, "storage_cores": 0.1, "network": 2.5e6},
        "machine": None,
    },
    "layouts": {
        "static": {
            "microstores": {"small": EVEN, "large": EVEN},
            "tenants": {"a": ["small"], "b": ["large"]},
        },
        "default": {
            "microstores": {"small": EVEN, "large": EVEN},
            "tenants": {"a": ["small", "large"], "b": ["small", "large"]},
        },
    },
    "layout": "static",
    "replicas": 2,
    "part_power": 6,
    "workers": 1,
    "s3": True,
    "port": 8080,
    "disks": {"s0": ["d0"], "s1": ["d0"]},
    "clients": ["admin"],
}
CONFIG = AgentConfig(
    "t",
    "swift",
    tuple(
        AgentNode(name, f"10.0.0.{place}", (role,), "iowait")
        for place, (name, role) in enumerate(
            (
                *(("admin", "admin"), ("p0", "proxy"), ("p1", "proxy")),
                *(("s0", "storage"), ("s1", "storage")),
            )
        )
    ),
)
SECRETS = {"prefix": "pre", "suffix": "suf", "keys": {"a": "key-a", "b": "key-b"}}


def cluster(**pool: Any) -> SwiftCluster:
    return cluster_from_json(DATA | {"pool": DATA["pool"] | pool})


class FakeNodes(NodeChannels):
    """Daemons that accept everything and count."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Mapping[str, Any]]] = []
        self.refuse: set[str] = set()
        self.lost: set[str] = set()
        self.answers: dict[str, Any] = {}

    def slept(self, seconds: float) -> None:
        """Record a sleep among the requests, in place of time.sleep."""
        self.asked.append({"slept": {"op": "sleep", "seconds": seconds}})

    def try_ask(
        self, requests: Mapping[str, Mapping[str, Any]], timeout_s: float = 1.0
    ) -> tuple[dict[str, Any], dict[str, str]]:
        if any(request["op"] != "sense" for request in requests.values()):
            self.asked.append(requests)
        answers = {
            node: self.answers.get(node, {"tenants": {}, "slots": [], "changed": []})
            for node in requests
            if node not in self.refuse | self.lost
        }
        problems = {node: "refuses." for node in requests if node in self.refuse}
        return answers, problems | {node: Lost("away") for node in requests if node in self.lost}


def opened(tmp_path: Path, **pool: Any) -> tuple[SwiftStore, FakeNodes]:
    nodes = FakeNodes()
    path = tmp_path / "state.json"
    return SwiftStore(CONFIG, cluster(**pool), nodes, path, sleep=nodes.slept), nodes
