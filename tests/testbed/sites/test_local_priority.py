"""Port of the local switch that serves DSCP by strict priority."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.sites.local import network, priority
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import run

PLACES = LocalNames(Path("/var/lib/hotbed-tests-priority"))
NAME = "levels"
RATE = 100e6
SECONDS = 3.0


def test_the_commands_of_a_port_with_two_levels():
    lines = priority.commands("p", 1e8, 2)
    least, all_of_it = "rate 8kbit burst 1538", "ceil 100000000bit cburst 12500"
    assert lines[:3] == [
        "qdisc add dev p root handle 1: htb default 3",
        "class add dev p parent 1: classid 1:100 htb rate 100000000bit burst 12500 "
        "cburst 12500 quantum 1538",
        f"class add dev p parent 1:100 classid 1:1 htb {least} {all_of_it} prio 0 quantum 1538",
    ]
    classes = [line for line in lines if line.startswith("class")]
    assert [line.split("prio ")[1].split()[0] for line in classes[1:]] == ["0", "1", "2", "3"]
    assert "rate 5000000bit" in classes[-1]  # ssh's class
    assert lines[-2:] == [
        "filter add dev p parent 1: protocol ip prio 20 u32 match ip dsfield 0xe0 0xfc flowid 1:1",
        "filter add dev p parent 1: protocol ip prio 20 u32 match ip dsfield 0xc0 0xfc flowid 1:2",
    ]


# --- on real links -----------------------------------------------------------------------------

RECEIVE = """
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
SEND = """
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
def addresses() -> Iterator[dict[str, str]]:
    subnet = network.choose_subnet(set(range(230)))
    network.make_switch(PLACES, NAME, subnet)
    try:
        found = {}
        for index, node in enumerate(("a", "b", "c")):
            found[node] = network.address(subnet, index)
            network.make_link(PLACES, NAME, node, found[node], RATE, levels=7)
        yield found
    finally:
        network.remove(PLACES, NAME)
    assert network.namespaces(PLACES) == []
    assert network.uplinks(PLACES) == []


def on(node: str, code: str, *arguments: object) -> list[str]:
    netns = PLACES.netns(NAME, node)
    words = [str(argument) for argument in arguments]
    return ["ip", "netns", "exec", netns, sys.executable, "-c", code, *words]


def received(addresses: dict[str, str], flows: list[tuple[str, int, float]]) -> dict[int, float]:
    """Return the bits per second of each flow (sender, DSCP, rate) at node c, by DSCP."""
    ports = {7000 + dscp: dscp for _, dscp, _ in flows}
    wanted = ",".join(map(str, ports))
    receiver = subprocess.Popen(
        on("c", RECEIVE, addresses["c"], wanted, SECONDS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    senders: list[subprocess.Popen[bytes]] = []
    try:
        assert receiver.stdout is not None and receiver.stdin is not None
        assert receiver.stdout.readline() == "ready\n"
        senders = [
            subprocess.Popen(
                on(node, SEND, addresses["c"], 7000 + dscp, dscp << 2, rate, SECONDS + 2)
            )
            for node, dscp, rate in flows
        ]
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
def test_a_higher_level_passes_a_saturated_port(addresses: dict[str, str]) -> None:
    """Two nodes send 140 Mbit/s to a node with a port of 100. The higher level passes completely;
    the lower level gets the rest, almost nothing if no rest exists."""
    flows = [("a", 8, 90e6), ("b", 56, 50e6)]
    got = received(addresses, flows)
    assert got[56] > 0.9 * 50e6
    assert got[8] < 0.6 * RATE
    flows = [("a", 8, 90e6), ("b", 16, 95e6)]
    got = received(addresses, flows)
    assert got[16] > 5 * got[8]


@pytest.mark.local
@pytest.mark.usefixtures("addresses")
def test_shaping_is_switched_off_and_on_again() -> None:
    def found() -> float | str:
        port, switch = PLACES.port("c"), PLACES.switch(NAME)
        return network.rate_of(switch, port, network.queueing(switch)[port], RATE, 7)

    for _ in range(2):
        network.set_rate(PLACES, NAME, "c", RATE, levels=7)
        assert found() == RATE
        network.set_rate(PLACES, NAME, "c", None, levels=7)
        assert found() == "noqueue"
    network.set_rate(PLACES, NAME, "c", RATE, levels=7)
    link = json.loads(run("ip", "-n", PLACES.switch(NAME), "-d", "-j", "link"))
    segments = {one["ifname"]: one["gso_max_segs"] for one in link}
    assert segments[PLACES.port("c")] == 1
