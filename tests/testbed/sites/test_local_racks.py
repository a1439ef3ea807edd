"""Racks in the local site's network, without nodes: traffic inside and outside an uplink."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.sites.local import network, racks
from testbed.sites.local.names import LocalNames
from testbed.spec import TestbedSpec

pytestmark = pytest.mark.local

PLACES = LocalNames(Path("/var/lib/hotbed-tests-racks"))
NAME = "racks"
RATE = 20e6
BYTES = 4 * 2**20
SPEC = TestbedSpec.model_validate(
    {
        "name": NAME,
        "store": None,
        "racks": {"members": {"left": ["a0", "a1"], "right": ["a2"]}, "uplink": RATE},
        "groups": [
            {"name": "core", "roles": ["admin"]},
            {"name": "a", "count": 3, "roles": ["client"]},
        ],
    }
)
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
def subnet() -> Iterator[int]:
    found = network.choose_subnet(set(range(240)))
    network.make_switch(PLACES, NAME, found)
    try:
        racks.make(PLACES, NAME, SPEC)
        racks.make(PLACES, NAME, SPEC)  # like a resumed `up`
        for index, node in enumerate(SPEC.node_names()):
            where = network.address(found, index)
            bridge = racks.bridge_of(SPEC, node)
            network.make_link(PLACES, NAME, node, where, 1e9, bridge=bridge)
        yield found
    finally:
        network.remove(PLACES, NAME)
    assert network.namespaces(PLACES) == []
    assert network.uplinks(PLACES) == []


def seconds(subnet: int, source: str, target: str) -> float:
    """Return the time to send `BYTES` from one node to another."""
    names = list(SPEC.node_names())
    address = network.address(subnet, names.index(target))

    def on(node: str, code: str, *arguments: str) -> list[str]:
        netns = PLACES.netns(NAME, node)
        return ["ip", "netns", "exec", netns, sys.executable, "-c", code, *arguments]

    with subprocess.Popen(
        on(target, RECEIVE, address), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            subprocess.run(on(source, SEND, address, str(BYTES)), check=True, timeout=60)
            total, took = server.stdout.readline().split()
        finally:
            server.kill()
    assert int(total) == BYTES
    return float(took)


def passed(end: str) -> int:
    """Return the bytes that have left by an uplink's end so far."""
    text = subprocess.run(
        ["tc", "-n", PLACES.switch(NAME), "-j", "-s", "qdisc", "show", "dev", end],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sum(int(qdisc["bytes"]) for qdisc in json.loads(text) if qdisc["kind"] == "tbf")


def ends() -> list[str]:
    return [end for bridge in racks.bridges(SPEC).values() for end in racks.ends(bridge)]


LEAST_S = 0.95 * (BYTES - 96 * 1024) * 8 / RATE
"""Least time for `BYTES` through a token bucket that starts full."""


@pytest.mark.parametrize(
    ("source", "target", "crossed"),
    [
        ("a0", "a2", ["rack0-up", "rack1-down"]),
        ("core", "a2", ["rack1-down"]),
        ("a2", "core", ["rack1-up"]),
    ],
)
def test_what_leaves_a_rack_is_held_to_its_uplink(
    subnet: int, source: str, target: str, crossed: list[str]
) -> None:
    before = {end: passed(end) for end in ends()}
    assert seconds(subnet, source, target) >= LEAST_S
    grown = [end for end in ends() if passed(end) - before[end] >= BYTES]
    assert sorted(grown) == sorted(crossed)


def test_what_stays_in_a_rack_passes_no_uplink(subnet: int) -> None:
    before = sum(passed(end) for end in ends())
    seconds(subnet, "a0", "a1")
    seconds(subnet, "a1", "a0")
    # At most a few broadcasts.
    assert sum(passed(end) for end in ends()) - before < BYTES / 100


def test_shaping_is_switched_off_and_on(subnet: int) -> None:
    racks.set_rate(PLACES, NAME, SPEC, None)
    assert [passed(end) for end in ends()] == [0] * 4  # no token bucket remains
    racks.set_rate(PLACES, NAME, SPEC, RATE)
    assert seconds(subnet, "a0", "a2") >= LEAST_S
