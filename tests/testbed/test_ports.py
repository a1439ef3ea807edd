"""Ports of a spec's daemons, and the rule that closes back ends."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

from schemas.errors import RemoteError
from testbed import doctor
from testbed.deploy import ports
from testbed.deploy.ports import At, ports_of, to_be_reached
from testbed.doctor import peer_findings
from testbed.sites.contract import Node, Testbed
from testbed.spec import TestbedSpec

CEPH = {"kind": "ceph", "pools": [{"name": "bench", "pg_num": 8}]}
SWIFT = {
    "kind": "swift",
    "microstores": [
        {"name": "blue", "proxies": ["p0"], "storage": ["s"]},
        {"name": "red", "proxies": ["p1"], "storage": ["s"]},
    ],
    "tenants": [{"name": "one", "microstore": "blue"}],
}


def spec_of(store: dict[str, Any], *groups: tuple[str, int, str]) -> TestbedSpec:
    listed = [{"name": "a", "roles": ["admin", "client"]}]
    for name, count, roles in groups:
        listed.append({"name": name, "count": count, "roles": roles.split(), "disk": {}})  # type: ignore[dict-item]
    return TestbedSpec.model_validate({"name": "t", "groups": listed, "store": store})


def numbers(spec: TestbedSpec, node: str) -> list[int]:
    return [port.number for port in ports_of(spec, node)]


def test_ports_of_ceph_and_nfs():
    groups = (("m", 1, "mon mgr"), ("o", 2, "osd"), ("g", 1, "rgw"))
    spec = spec_of(CEPH, *groups)
    assert [numbers(spec, node) for node in ("a", "m", "o1", "g")] == [[], [3300, 6789], [], [7480]]
    assert to_be_reached(spec, "m") == (3300, 6789, 6800)
    assert to_be_reached(spec, "o0") == (6800,)
    watched = spec.model_copy(update={"metrics": True})
    assert numbers(watched, "a") == [19090, 19100, 19464]
    assert ports.for_peers(watched, "a") == ("19100", "19464")
    assert ports.for_peers(watched, "m") == ("19100",)
    agents = spec_of({**CEPH, "twochoice": {"port": 7400}}, *groups)
    assert numbers(agents, "o1") == [7400]
    assert numbers(spec_of({**CEPH, "deployer": {"kind": "cephadm"}}, *groups), "m")[-1] == 8765
    spec = spec_of({"kind": "nfs"}, ("n", 1, "nfs"))
    assert numbers(spec, "n") == [2049, 9811, 12048, 12049, 20048]
    # The server itself is not for others, and an already running portmapper is used.
    assert to_be_reached(spec, "n") == (2049, 9811, 20048)
    assert [p.number for p in ports_of(spec, "n") if p.at is At.LOOPBACK] == [12048, 12049]
    spec = spec_of({"kind": "nfs", "port": 2050, "server_port": 2051}, ("n", 1, "nfs"))
    assert numbers(spec, "n") == [2050, 2051, 9811, 12048, 20048]
    assert numbers(spec, "a") == []


def test_ports_for_the_testbeds_nodes_alone():
    """Swift's servers may move: a storage node closes the ports of all microstores."""
    spec = spec_of(SWIFT, ("p", 2, "proxy"), ("s", 2, "storage"))
    found = {node: ports.for_peers(spec, node) for node in ("a", "p1", "s1")}
    assert found == {"a": (), "p1": ("11211",), "s1": ("873", "6200-6219")}
    nfs = spec_of({"kind": "nfs"}, ("n", 1, "nfs"))
    assert [ports.for_peers(nfs, node) for node in ("a", "n")] == [(), ("9811",)]
    assert ports.for_peers(spec_of(CEPH, ("m", 1, "mon mgr"), ("o", 2, "osd")), "o0") == ()


def test_who_listens_elsewhere_on_a_machine_is_in_nobodys_way():
    """Debian's own memcached is on the loopback; ours is at the node's address."""
    survey = {"listening": [8080], "listening_loopback": [11211, 12049, 7480]}
    taken = {
        at: [number for number in (7480, 8080, 11211) if ports.Port(number, at).taken(survey)]
        for at in At
    }
    assert taken[At.ADDRESS] == [8080]
    assert taken[At.EVERYWHERE] == taken[At.LOOPBACK] == [7480, 8080, 11211]


# -- back ends that must be closed -----------------------------------------------------------------


SPEC = spec_of(SWIFT, ("p", 2, "proxy"), ("s", 2, "storage"))
NODES = tuple(
    Node(name, f"10.0.0.{number}", frozenset(group.roles), group.name)
    for group in SPEC.groups
    for number, name in enumerate(group.node_names(), 10 * SPEC.groups.index(group))
)
TESTBED = Testbed("t", "fake", NODES, Path("k"), Path("known"), Path("d"), "h")


def test_the_rule_names_every_node_of_either_family(root):
    made = run_path(str(root / "playbooks/roles/base/files/peers.py"))["rules"]
    four, six = (
        line for line in made(["1"], ["10.0.0.1", "fd00::1"]).splitlines() if "drop" in line
    )
    assert "ip saddr != { 127.0.0.1, 10.0.0.1 }" in four
    assert "ip6 saddr != { ::1, fd00::1 }" in six


def test_a_node_that_cannot_be_asked_is_found(monkeypatch):
    def away(testbed: Testbed, node: Node) -> None:
        raise RemoteError(f"{node.name} is away")

    monkeypatch.setattr(doctor, "spec_of", lambda testbed: SPEC)
    monkeypatch.setattr(doctor, "shell_to", away)
    found = peer_findings(TESTBED)
    assert not any(one.ok for one in found.values())
    assert "s1 is away" in found["s1"].found
