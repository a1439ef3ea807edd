"""Packet sizes and TCP congestion control in the local site's network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.sites.local import network, nodes, racks
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import run as really_run
from testbed.sites.local.record import LocalRecord
from testbed.sites.local.site import LocalSite
from testbed.spec import TestbedSpec
from tests.errors import raises

PLACES = LocalNames(Path("/var/lib/hotbed-tests-packets"))
SPEC: dict[str, Any] = {
    "name": "packets",
    "store": None,
    "network": {"mtu": 9000, "priority_levels": 2, "congestion_control": "dctcp"},
    "racks": {"members": {"left": ["a0"], "right": ["a1"]}, "uplink": 20e6},
    "groups": [
        {"name": "core", "roles": ["admin"]},
        {"name": "a", "count": 2, "roles": ["client"]},
    ],
}


class Machine:
    """Recorder of commands, one per line; batch commands carry their namespace."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, *argv: str, text: str | None = None, **_: object) -> str:
        if "-batch" in argv:
            self.said += [f"{argv[2]}: {line}" for line in (text or "").splitlines()]
        else:
            self.said.append(" ".join(argv) + (f" < {text.strip()}" if text else ""))
        return "[]" if "-j" in argv else ""

    def place(self, words: str) -> int:
        """Return the position of the command with these words."""
        return next(n for n, line in enumerate(self.said) if words in line)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    for module in (network, racks):
        monkeypatch.setattr(module, "run", made)
    return made


def test_every_link_and_bridge_has_the_specs_packets(machine):
    spec = TestbedSpec.model_validate(SPEC)
    switch, uplink = PLACES.switch("packets"), PLACES.uplink("packets")
    network.make_switch(PLACES, "packets", 7, mtu=spec.mtu)
    racks.make(PLACES, "packets", spec)
    network.make_link(PLACES, "packets", "a0", "10.77.7.11", 2e8, mtu=spec.mtu)
    sized = [line for line in machine.said if "mtu 9000" in line]
    assert sized == [
        f"{switch}: link set br0 mtu 9000 up",
        f"{switch}: link set up0 mtu 9000",
        f"ip link set {uplink} mtu 9000 up",
        f"{switch}: link set rack0 mtu 9000 up",
        f"{switch}: link set rack0-up mtu 9000",
        f"{switch}: link set rack0-down mtu 9000",
        f"{switch}: link set rack1 mtu 9000 up",
        f"{switch}: link set rack1-up mtu 9000",
        f"{switch}: link set rack1-down mtu 9000",
        f"{PLACES.netns('packets', 'a0')}: link set eth0 mtu 9000",
        f"{switch}: link set {PLACES.port('a0')} mtu 9000",
    ]


def test_congestion_control_is_set_before_anything_can_listen(machine):
    netns = PLACES.netns("packets", "a0")
    told = {"congestion_control": "dctcp"}
    for more, name in (({}, "reno"), (told, "dctcp")):
        machine.said.clear()
        network.make_link(PLACES, "packets", "a0", "10.77.7.11", 2e8, **more)  # type: ignore[arg-type]
        setting = "/proc/sys/net/ipv4/tcp_congestion_control"
        at = machine.place(f"ip netns exec {netns} tee {setting} < {name}")
        assert machine.place(f"ip netns add {netns}") < at < machine.place("link set eth0 up")


def test_a_started_node_gets_what_its_spec_says(tmp_path, monkeypatch):
    """This includes a restarted node and a node of a resumed `up`: all start this way."""
    given: dict[str, Any] = {}

    class Enough(Exception):
        pass

    def make_link(*_: object, **options: object) -> None:
        given.update(options)
        raise Enough

    monkeypatch.setattr(network, "make_link", make_link)
    monkeypatch.setattr(nodes.LocalNodes, "clear", lambda *_: None)
    monkeypatch.setattr(nodes.LocalNodes, "of", lambda *_: tmp_path)
    record = LocalRecord(TestbedSpec.model_validate(SPEC), 7)
    member = next(one for one in record.members() if one.name == "a0")
    with pytest.raises(Enough):
        nodes.LocalNodes(PLACES, None, "packets").start(record, member, Path("/"))  # type: ignore[arg-type]
    assert given == {
        "bridge": "rack0",
        "levels": 2,
        "mtu": 9000,
        "congestion_control": "dctcp",
    }


def test_switching_shaping_off_and_on_keeps_the_packets(machine, monkeypatch):
    spec = TestbedSpec.model_validate(SPEC)
    known = LocalRecord(spec, 7)
    monkeypatch.setattr(LocalSite, "_known", lambda *_: known)
    LocalSite(places=PLACES).shape("packets", True)
    quanta = {line.split("quantum ")[1] for line in machine.said if "quantum" in line}
    assert quanta == {"9038"}
    shaped = {
        line.split()[line.split().index("dev") + 1] for line in machine.said if "1:100" in line
    }
    ends = {end for bridge in ("rack0", "rack1") for end in racks.ends(bridge)}
    assert shaped == ends | {PLACES.port(node) for node in spec.node_names()}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "tcp_allowed_congestion_control").write_text("reno bbr\n")
    (tmp_path / "tcp_available_congestion_control").write_text("reno bbr cubic\n")
    return tmp_path


def test_a_congestion_control_that_namespaces_may_not_use_is_refused(settings):
    for fine in ("reno", "bbr"):
        network.check_congestion_control(fine, settings)
    network.check_congestion_control("reno", settings / "none")  # a kernel without the setting
    with pytest.raises(UserError) as caught:
        network.check_congestion_control("cubic", settings)
    assert caught.value.where == "network.congestion_control"
    assert "tcp_allowed_congestion_control='reno bbr cubic'" in caught.value.do
    with raises(UserError, "'vegas'", do="tcp_vegas"):
        network.check_congestion_control("vegas", settings)


def test_the_plan_of_a_testbed_is_refused_before_anything_is_made(settings, monkeypatch):
    check = network.check_congestion_control
    monkeypatch.setattr(network, "check_congestion_control", lambda name: check(name, settings))
    with raises(UserError, "kernel has no 'dctcp'"):
        LocalSite(places=PLACES).plan(TestbedSpec.model_validate(SPEC))
    usual = SPEC | {"network": {"mtu": 9000}}
    assert LocalSite(places=PLACES).plan(TestbedSpec.model_validate(usual)).nodes == 3


# --- on real links -----------------------------------------------------------------------------


@pytest.fixture
def made() -> Iterator[TestbedSpec]:
    spec = TestbedSpec.model_validate(SPEC | {"network": {"mtu": 9000, "priority_levels": 2}})
    subnet = network.choose_subnet(set(range(220)))
    try:
        for _ in range(2):  # like a resumed `up`
            network.make_switch(PLACES, spec.name, subnet, mtu=spec.mtu)
            racks.make(PLACES, spec.name, spec)
        for index, node in enumerate(spec.node_names()):
            network.make_link(
                PLACES,
                spec.name,
                node,
                network.address(subnet, index),
                1e9,
                bridge=racks.bridge_of(spec, node),
                levels=2,
                mtu=spec.mtu,
            )
        yield spec
    finally:
        network.remove(PLACES, spec.name)
    assert network.namespaces(PLACES) == []
    assert network.uplinks(PLACES) == []


def sizes(*where: str) -> dict[str, int]:
    links = json.loads(really_run("ip", *where, "-j", "link", "show"))
    return {one["ifname"]: one["mtu"] for one in links if one["ifname"] != "lo"}


@pytest.mark.local
def test_a_large_packet_crosses_racks_and_reaches_the_host(made: TestbedSpec) -> None:
    netns = PLACES.netns(made.name, "a0")
    assert set(sizes("-n", PLACES.switch(made.name)).values()) == {9000}
    assert sizes("-n", netns) == {"eth0": 9000}
    assert sizes()[PLACES.uplink(made.name)] == 9000
    shown = json.loads(really_run("ip", "-n", netns, "-j", "addr", "show", "eth0"))
    prefix = shown[0]["addr_info"][0]["local"].rpartition(".")[0]
    # 9000 minus the IP and ICMP headers, never fragmented.
    ping = ("ping", "-q", "-c", "2", "-W", "5", "-M", "do", "-s", "8972")
    inside = ("ip", "netns", "exec", netns, *ping)
    for last in (network.FIRST_NODE, network.FIRST_NODE + 2):
        assert "2 received" in really_run(*inside, f"{prefix}.{last}")
    assert "2 received" in really_run(*ping, f"{prefix}.{network.FIRST_NODE + 1}")
    using = really_run(
        "ip", "netns", "exec", netns, "cat", "/proc/sys/net/ipv4/tcp_congestion_control"
    )
    assert using.strip() == "reno"
