"""Network of the local site: its commands, and real links without nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.sites.contract import silent
from testbed.sites.local import network, nodes, racks, removal
from testbed.sites.local.cgroups import Cgroups, detect
from testbed.sites.local.container import share_unmounts
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import run as really_run
from testbed.sites.local.record import LocalRecord
from testbed.sites.local.site import LocalSite
from testbed.spec import TestbedSpec
from tests.errors import raises

PLACES = LocalNames(Path("/var/lib/hotbed-tests-links"))
UPLINK = 20e6
RACKED: dict[str, Any] = {
    "name": "racked",
    "store": None,
    "network": {"mtu": 9000},
    "racks": {"members": {"left": ["a0", "a1"], "right": ["a2"]}, "uplink": UPLINK},
    "groups": [
        {"name": "core", "roles": ["admin"]},
        {"name": "a", "count": 3, "roles": ["client"]},
    ],
}
MANY = {"mtu": 9000, "priority_levels": 2, "congestion_control": "dctcp"}
SPEC = TestbedSpec.model_validate(RACKED | {"network": MANY})


# -- commands --------------------------------------------------------------------------------------


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


def test_congestion_control_is_set_before_anything_can_listen(machine):
    netns = PLACES.netns("racked", "a0")
    for more, name in (({}, "reno"), ({"congestion_control": "dctcp"}, "dctcp")):
        machine.said.clear()
        network.make_link(PLACES, "racked", "a0", "10.77.7.11", 2e8, **more)  # type: ignore[arg-type]
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
    record = LocalRecord(spec=SPEC, subnet=7)
    member = next(one for one in record.members() if one.name == "a0")
    with pytest.raises(Enough):
        nodes.LocalNodes(PLACES, None, "racked").start(record, member, Path("/"))  # type: ignore[arg-type]
    assert given == {"bridge": "rack0", "levels": 2} | {
        key: MANY[key] for key in ("mtu", "congestion_control")
    }


def test_switching_shaping_off_and_on_keeps_the_packets(machine, monkeypatch):
    monkeypatch.setattr(LocalSite, "_known", lambda *_: LocalRecord(spec=SPEC, subnet=7))
    LocalSite(places=PLACES).shape("racked", True)
    quanta = {line.split("quantum ")[1] for line in machine.said if "quantum" in line}
    assert quanta == {"9038"}
    shaped = {
        line.split()[line.split().index("dev") + 1] for line in machine.said if "1:100" in line
    }
    assert shaped == set(ends(SPEC)) | {PLACES.port(node) for node in SPEC.node_names()}


def test_a_congestion_control_that_namespaces_may_not_use_is_refused(tmp_path, monkeypatch):
    (tmp_path / "tcp_allowed_congestion_control").write_text("reno bbr\n")
    (tmp_path / "tcp_available_congestion_control").write_text("reno bbr cubic\n")
    check = network.check_congestion_control
    for fine in ("reno", "bbr"):
        check(fine, tmp_path)
    check("reno", tmp_path / "none")  # a kernel without the setting
    with raises(UserError, where="network.congestion_control", do="='reno bbr cubic'"):
        check("cubic", tmp_path)
    with raises(UserError, "'vegas'", do="tcp_vegas"):
        check("vegas", tmp_path)
    # The plan is refused before anything is made.
    monkeypatch.setattr(network, "check_congestion_control", lambda name: check(name, tmp_path))
    with raises(UserError, "'dctcp'"):
        LocalSite(places=PLACES).plan(SPEC)
    assert LocalSite(places=PLACES).plan(TestbedSpec.model_validate(RACKED)).nodes == 4


# -- real links ------------------------------------------------------------------------------------


@contextmanager
def linked(spec: TestbedSpec, rate: float) -> Iterator[dict[str, str]]:
    """Make the network of a spec, as a resumed `up` does, and yield the nodes' addresses."""
    # Testbeds get such a subnet only if all others are taken, so no record contains it.
    subnet = network.choose_subnet(set(range(220)))
    try:
        for _ in range(2):
            network.make_switch(PLACES, spec.name, subnet, mtu=spec.mtu)
            racks.make(PLACES, spec.name, spec)
        assert network.choose_subnet(set(range(220))) != subnet
        addresses = {}
        for index, node in enumerate(spec.node_names()):
            addresses[node] = network.address(subnet, index)
            link(spec, node, addresses[node], rate)
        yield addresses
    finally:
        network.remove(PLACES, spec.name)
    assert network.namespaces(PLACES, spec.name) == []
    assert PLACES.uplink(spec.name) not in network.uplinks(PLACES)


def link(spec: TestbedSpec, node: str, address: str, rate: float) -> None:
    bridge, levels = racks.bridge_of(spec, node), spec.priority_levels
    options: dict[str, Any] = {"bridge": bridge, "levels": levels, "mtu": spec.mtu}
    network.make_link(PLACES, spec.name, node, address, rate, **options)


def on(spec: TestbedSpec, node: str, *argv: object) -> list[str]:
    return ["ip", "netns", "exec", PLACES.netns(spec.name, node), *map(str, argv)]


def ends(spec: TestbedSpec) -> list[str]:
    return [end for bridge in racks.bridges(spec).values() for end in racks.ends(bridge)]


# 9000 bytes without the IP and ICMP headers, never fragmented.
LARGE = ("ping", "-q", "-c", "2", "-W", "5", "-M", "do", "-s", "8972")
FLAT = TestbedSpec.model_validate(RACKED)
BYTES = 4 * 2**20
LEAST_S = 0.95 * (BYTES - 96 * 1024) * 8 / UPLINK
"""Least time for `BYTES` through a token bucket that starts full."""
RECEIVE = """
import socket, sys, time
with socket.create_server((sys.argv[1], 7000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    start, total = time.monotonic(), 0
    while data := connection.recv(65536):
        total += len(data)
    print(total, time.monotonic() - start)
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with linked(FLAT, 1e9) as found:
        yield found


def seconds(addresses: dict[str, str], source: str, target: str) -> float:
    """Return the time to send `BYTES` from one node to another."""
    address = addresses[target]
    receive = on(FLAT, target, sys.executable, "-c", RECEIVE, address)
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            send = on(FLAT, source, sys.executable, "-c", SEND, address, BYTES)
            subprocess.run(send, check=True, timeout=60)
            total, took = server.stdout.readline().split()
        finally:
            server.kill()
    assert int(total) == BYTES
    return float(took)


def passed(end: str) -> int:
    """Return the bytes that have left by an uplink's end so far."""
    switch = PLACES.switch(FLAT.name)
    text = really_run("tc", "-n", switch, "-j", "-s", "qdisc", "show", "dev", end)
    return sum(int(qdisc["bytes"]) for qdisc in json.loads(text) if qdisc["kind"] == "tbf")


@pytest.mark.local
@pytest.mark.parametrize(
    ("source", "target", "crossed"),
    [
        ("a0", "a2", ["rack0-up", "rack1-down"]),
        ("core", "a2", ["rack1-down"]),
        ("a2", "core", ["rack1-up"]),
    ],
)
def test_what_leaves_a_rack_is_held_to_its_uplink(addresses, source, target, crossed):
    before = {end: passed(end) for end in ends(FLAT)}
    assert seconds(addresses, source, target) >= LEAST_S
    grown = [end for end in ends(FLAT) if passed(end) - before[end] >= BYTES]
    assert sorted(grown) == sorted(crossed)


@pytest.mark.local
def test_what_stays_in_a_rack_passes_no_uplink(addresses: dict[str, str]) -> None:
    before = sum(passed(end) for end in ends(FLAT))
    seconds(addresses, "a0", "a1")
    seconds(addresses, "a1", "a0")
    # At most a few broadcasts.
    assert sum(passed(end) for end in ends(FLAT)) - before < BYTES / 100


def sizes(*where: str) -> dict[str, int]:
    links = json.loads(really_run("ip", *where, "-j", "link", "show"))
    return {one["ifname"]: one["mtu"] for one in links if one["ifname"] != "lo"}


@pytest.mark.local
def test_a_large_packet_crosses_racks_and_reaches_the_host(addresses: dict[str, str]) -> None:
    netns = PLACES.netns(FLAT.name, "a0")
    assert set(sizes("-n", PLACES.switch(FLAT.name)).values()) == {9000}
    assert sizes("-n", netns) == {"eth0": 9000}
    assert sizes()[PLACES.uplink(FLAT.name)] == 9000
    for target in ("core", "a2"):
        assert "2 received" in really_run(*on(FLAT, "a0", *LARGE, addresses[target]))
    assert "2 received" in really_run(*LARGE, addresses["a0"])
    read = on(FLAT, "a0", "cat", "/proc/sys/net/ipv4/tcp_congestion_control")
    assert really_run(*read).strip() == "reno"


@pytest.mark.local
def test_a_node_that_starts_again_is_reached_at_once(addresses: dict[str, str]) -> None:
    # It took half a minute when every start gave the node a new hardware address.
    def answers_within(prefix: list[str], limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        ping = [*prefix, "ping", "-q", "-c", "1", "-W", "1", addresses["a0"]]
        while subprocess.run(ping, capture_output=True, check=False).returncode != 0:
            if time.monotonic() > end:
                return False
        return True

    for start in (False, True):
        if start:
            link(FLAT, "a0", addresses["a0"], 1e9)
        assert answers_within([], 2.0)
        assert answers_within(on(FLAT, "a1"), 2.0)


# -- a switch that serves DSCP by strict priority --------------------------------------------------


LEVELS = TestbedSpec.model_validate(
    RACKED | {"name": "levels", "racks": None, "network": {"mtu": 9000, "priority_levels": 7}}
)
RATE = 100e6
SECONDS = 3.0
COUNT = """
import json, socket, sys, threading, time
ports, seconds = [int(p) for p in sys.argv[2].split(",")], float(sys.argv[3])
counts, sockets = {}, []
for port in ports:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    sock.bind((sys.argv[1], port))
    sock.settimeout(0.2)
    sockets.append(sock)
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds
def count(sock, port):
    counts[port] = 0
    while time.monotonic() < end:
        try:
            counts[port] += len(sock.recv(65536))
        except TimeoutError:
            pass
threads = [threading.Thread(target=count, args=pair) for pair in zip(sockets, ports)]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps(counts))
"""
# Sender of 1400-byte datagrams at a given rate and mark.
STREAM = """
import socket, sys, time
address, port, tos, rate, seconds = sys.argv[1], *map(float, sys.argv[2:])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(tos))
start, sent = time.monotonic(), 0
while (now := time.monotonic() - start) < seconds:
    while sent < now * rate / 8:
        sent += sock.sendto(bytes(1400), (address, int(port)))
    time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def leveled() -> Iterator[dict[str, str]]:
    with linked(LEVELS, RATE) as found:
        yield found


def received(addresses: dict[str, str], flows: list[tuple[str, int, float]]) -> dict[int, float]:
    """Return the bits per second of each flow (sender, DSCP, rate) at node a2, by DSCP."""
    target = addresses["a2"]
    ports = {7000 + dscp: dscp for _, dscp, _ in flows}
    wanted = ",".join(map(str, ports))
    receiver = subprocess.Popen(
        on(LEVELS, "a2", sys.executable, "-c", COUNT, target, wanted, SECONDS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    senders: list[subprocess.Popen[bytes]] = []
    try:
        assert receiver.stdout is not None and receiver.stdin is not None
        assert receiver.stdout.readline() == "ready\n"
        for node, dscp, rate in flows:
            words = (target, 7000 + dscp, dscp << 2, rate, SECONDS + 2)
            senders.append(subprocess.Popen(on(LEVELS, node, sys.executable, "-c", STREAM, *words)))
        receiver.stdin.write("\n")
        receiver.stdin.flush()
        counts = json.loads(receiver.stdout.readline())
    finally:
        processes: list[subprocess.Popen[Any]] = [receiver, *senders]
        for process in processes:
            process.kill()
            process.wait()
    return {dscp: 8 * counts[str(port)] / SECONDS for port, dscp in ports.items()}


@pytest.mark.local
def test_a_higher_level_passes_a_saturated_port(leveled: dict[str, str]) -> None:
    """Two nodes send 140 Mbit/s to a node with a port of 100. The higher level passes completely;
    the lower level gets the rest, almost nothing if no rest exists."""
    got = received(leveled, [("a0", 8, 90e6), ("a1", 56, 50e6)])
    assert got[56] > 0.9 * 50e6
    assert got[8] < 0.6 * RATE
    got = received(leveled, [("a0", 8, 90e6), ("a1", 16, 95e6)])
    assert got[16] > 5 * got[8]
    assert "2 received" in really_run(*on(LEVELS, "a0", *LARGE, leveled["a2"]))


@pytest.mark.local
@pytest.mark.usefixtures("leveled")
def test_shaping_of_levels_is_switched_off_and_on() -> None:
    name, switch, port = LEVELS.name, PLACES.switch(LEVELS.name), PLACES.port("a2")

    def found() -> float | str:
        return network.rate_of(switch, port, network.queueing(switch)[port], RATE, 7)

    for rate in (RATE, None, RATE):
        network.set_rate(PLACES, name, "a2", rate, levels=7, mtu=LEVELS.mtu)
        assert found() == (rate or "noqueue")
    links = json.loads(really_run("ip", "-n", switch, "-d", "-j", "link"))
    assert {one["ifname"]: one["gso_max_segs"] for one in links}[port] == 1


@pytest.mark.local
def test_a_loop_device_that_a_killed_up_left_goes_with_the_testbed(tmp_path: Path) -> None:
    """It was not mounted yet, so it would not disappear with its mount."""
    places = LocalNames(tmp_path)
    folder = places.testbed("loop")
    image = folder / "nodes" / "a" / "files.img"
    image.parent.mkdir(parents=True)
    share_unmounts(folder)
    with image.open("wb") as made:
        made.truncate(1 << 20)
    device = really_run("losetup", "-f", "--show", str(image)).strip()
    removal.remove(places, Cgroups(detect(), places.cgroup), "loop", silent)
    assert not Path("/sys/block", Path(device).name, "loop").exists()
    assert not folder.exists()
