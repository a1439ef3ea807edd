"""Stranger in a local testbed's network, outside its nodes, and the ports that answer it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from testbed.deploy import ports
from testbed.reach import shell_to
from testbed.sites.contract import Node, Testbed
from testbed.sites.local import network
from testbed.sites.local.names import LocalNames
from testbed.spec import TestbedSpec

EPHEMERAL = 32768
ASK = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def answers(port):
    try:
        socket.create_connection((sys.argv[1], port), 3).close()
    except OSError:
        return False
    return True
ports = json.loads(sys.argv[2])
with ThreadPoolExecutor(len(ports)) as pool:
    print(json.dumps([port for port, yes in zip(ports, pool.map(answers, ports)) if yes]))
"""


@contextmanager
def stranger(testbed: Testbed) -> Iterator[list[str]]:
    """Return the prefix of a command in the testbed's network, at an address of no node."""
    places = LocalNames(testbed.directory.parents[1], Path())
    address = testbed.admin.address.rpartition(".")[0] + ".250"
    network.make_link(places, testbed.name, "stranger", address, 1e9)
    try:
        yield ["ip", "netns", "exec", places.netns(testbed.name, "stranger")]
    finally:
        network.drop_link(places, testbed.name, "stranger")


def assert_only_documented_ports_answer(testbed: Testbed, spec: TestbedSpec) -> None:
    """Assert that on every node only sshd and the ports documented as open answer a stranger.

    The test tries every port with a listener on the node, at any address.
    """
    with stranger(testbed) as inside, ThreadPoolExecutor(len(testbed.nodes)) as pool:
        found = pool.map(lambda node: _answering(testbed, node, inside), testbed.nodes)
        answering = {node.name: one for node, one in zip(testbed.nodes, found, strict=True)}
    assert all(22 in found for found in answering.values())
    assert {name: found - _documented(spec, name) for name, found in answering.items()} == {
        name: set() for name in answering
    }


def _answering(testbed: Testbed, node: Node, inside: list[str]) -> set[int]:
    listed = shell_to(testbed, node).run(["ss", "-Hltun"]).text.splitlines()
    sockets = [(line.split()[0], *line.split()[4].rsplit(":", 1)) for line in listed]
    listening = sorted({int(port) for kind, _, port in sockets if kind == "tcp"})
    argv = [sys.executable, "-c", ASK, node.address, json.dumps(listening)]
    done = subprocess.run([*inside, *argv], stdout=subprocess.PIPE, check=True)
    # A pure sender also has an unconnected socket, at a port chosen by the kernel.
    return set(json.loads(done.stdout)) | {
        int(port)
        for kind, address, port in sockets
        if kind == "udp" and not address.startswith("127.") and int(port) < EPHEMERAL
    }


def _documented(spec: TestbedSpec, node: str) -> set[int]:
    known = {22, *(port.number for port in ports.ports_of(spec, node) if not port.peers)}
    return known | set(ports.DAEMONS if ports.chosen_by_daemons(spec, node) else ())
