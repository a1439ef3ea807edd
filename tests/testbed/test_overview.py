"""The state of a testbed in one answer: the agent's verb `overview`, and the engine's on top."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import RemoteError
from testbed import overview
from testbed.agent import __main__ as dispatch
from testbed.agent import overview as agent_side
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.stores.ceph import Connection
from tests.testbed.fake_site import FakeSite
from tests.testbed.plain_specs import plain_spec
from tests.testbed.sites.fake_shells import PlayedShell
from tests.testbed.stores.ceph.fake_rados import FakeRados

DF = """Filesystem 1024-blocks Used Available Capacity Mounted on
overlay 1000 100 900 1% /
none 0 0 0 - /run/lock
/dev/loop1 1000 100 900 1% /var/lib/hotbed/scratch
"""


class Node(PlayedShell):
    """A node with these units, and a scratch file system of which a tenth is used."""

    def __init__(self, units: Mapping[str, str], strays: str = "") -> None:
        self.node, self.units, self.strays = "", dict(units), strays

    def answer(self, argv: list[str], input: bytes | None) -> str:
        shown = "".join(f"{unit} loaded {state} x x\n" for unit, state in self.units.items())
        return f"{shown}==\n{DF}==\n{self.strays}"


class Lost(PlayedShell):
    node = ""

    def answer(self, argv: list[str], input: bytes | None) -> str:
        raise RemoteError("node osd1 (10.0.0.2) cannot be reached by ssh: no route.", retry=True)


def config(store: str, *nodes: tuple[str, str, tuple[int, ...]]) -> AgentConfig:
    made = [AgentNode(n, "10.0.0.1", tuple(r.split()), "iowait", osds=osds) for n, r, osds in nodes]
    return AgentConfig("t", store, tuple(made))


CEPH = config("ceph", ("admin", "admin mon", ()), *((f"osd{n}", "osd", (n,)) for n in range(3)))
STEERING = {"name": "dlr", "running": True, "leftover": False, "last": None, "steered": []}


@pytest.fixture
def nodes(monkeypatch):
    """Return the shells of Ceph's nodes, by name."""
    found: dict[str, PlayedShell] = {"admin": Node({"ceph-mon@admin.service": "active"})}
    # One as a package installs it, the others as cephadm does.
    fsid = "01234567-89ab-cdef-0123-456789abcdef"
    found["osd0"] = Node({"ceph-osd@0.service": "active", "hotbed-load-fio.service": "active"})
    found["osd1"] = Node({f"ceph-{fsid}@osd.1.service": "active"}, strays="7 fio --name=x\n")
    found["osd2"] = Node({f"ceph-{fsid}@osd.2.service": "active"})
    monkeypatch.setattr(agent_side, "reach", lambda config, name: found[name])
    planned = {"loads": [{"node": "osd0", "name": "load-fio", "rate_iops": 50}]}
    monkeypatch.setattr(agent_side, "read_state", lambda: planned)
    verbs: dict[str, Any] = {"control-status": lambda *_: {"controllers": [STEERING]}}
    monkeypatch.setattr(dispatch, "find", verbs.get)
    return found


@pytest.fixture
def raw(monkeypatch):
    """Return the monitors."""
    found = FakeRados(16)
    monkeypatch.setattr(agent_side, "connect", lambda timeout_s: Connection(found))
    return found


def test_a_healthy_ceph_with_loads_and_a_controller(nodes, raw):
    seen = agent_side.overview(CEPH, {})
    assert (seen["health"], seen["unanswered"]) == ({"status": "HEALTH_OK", "checks": []}, {})
    assert seen["osds_down"] == seen["mons_down"] == []
    assert seen["controllers"] == [STEERING]
    assert [(load["node"], load["iops"]) for load in seen["loads"]] == [
        ("osd0", 50),
        ("osd1", None),
    ]
    used = {(disk["node"], disk["path"]): disk["used_share"] for disk in seen["disks"]}
    assert used["osd1", "osd.1"] == 0.25
    assert used["osd1", "/var/lib/hotbed/scratch"] == used["admin", "/"] == 0.1


def test_a_manager_that_hangs_is_not_waited_for(nodes, raw):
    raw.before = lambda prefix: time.sleep(5) if prefix == "osd df" else None
    began = time.monotonic()
    seen = agent_side.overview(CEPH, {})
    assert time.monotonic() - began < 4
    assert seen["health"]["status"] == "HEALTH_OK"


@pytest.mark.parametrize("store", ["nfs", "swift"])
def test_stores_without_checks_of_their_own_are_as_healthy_as_their_daemons(
    monkeypatch, nodes, store
):
    role, unit = {"nfs": ("nfs", "ganesha"), "swift": ("proxy", "swift-proxy")}[store]
    bed = config(store, ("admin", "admin", ()), ("osd0", role, ()), ("osd1", role, ()))
    verbs: dict[str, Any] = {
        "control-status": lambda *_: {"controllers": []},
        "swift-status": lambda *_: {"state": "asked"},
    }
    monkeypatch.setattr(dispatch, "find", verbs.get)
    asked: list[str] = []
    servers = SimpleNamespace(servers=("osd0", "osd1"), ask=lambda name, verb: asked.append(name))
    monkeypatch.setattr(agent_side, "nfs_of", lambda config: servers)
    for name in ("osd0", "osd1"):
        nodes[name] = Node({f"hotbed-{unit}.service": "active", "hotbed-x.service": "failed"})
    seen = agent_side.overview(bed, {})
    assert (seen["health"]["status"], sorted(asked)) == (
        "HEALTH_OK",
        ["osd0", "osd1"] if store == "nfs" else [],
    )
    assert seen["swift"] == ({"state": "asked"} if store == "swift" else None)
    nodes["osd0"].units[f"hotbed-{unit}.service"] = "failed"
    nodes["osd1"] = Lost()
    seen = agent_side.overview(bed, {})
    assert seen["health"]["status"] == "HEALTH_ERR"
    assert [c["code"] for c in seen["health"]["checks"]] == ["DAEMON_DOWN", "NO_ANSWER"]
    assert f"hotbed-{unit} on node osd0" in seen["health"]["checks"][0]["summary"]


# -- the engine's side ---------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [RemoteError("node admin is down.", retry=True), None])
def test_a_lost_admin_node_is_said_and_the_rest_still_told(answer, monkeypatch):
    """Without an answer it is no longer waited for."""
    monkeypatch.setattr(overview, "ANSWER_S", 0.1)
    monkeypatch.setattr(overview, "_SLACK_S", 0.1)

    def call(verb: str, payload: Any, *, timeout_s: float) -> Any:
        if answer is not None:
            raise answer
        time.sleep(60)

    monkeypatch.setattr(overview, "agent_client", lambda _: SimpleNamespace(call=call))
    site = FakeSite()
    found = overview.overview(site.provision(plain_spec()), site)
    assert (found["state"], found["deployed"], found["health"]) == ("ready", True, None)
    assert len(found["unanswered"]) == 1
    assert "store: no answer" in overview.verdict(found)
