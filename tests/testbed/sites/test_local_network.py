"""The local site's network by itself: namespaces and links, without nodes in them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.sites.local import network
from testbed.sites.local.names import Places

pytestmark = pytest.mark.local

PLACES = Places(Path("/var/lib/hotbed-tests-network"))
NAME = "links"


@pytest.fixture
def subnet() -> Iterator[int]:
    # One that no testbed gets unless all others are taken: it is not in any record.
    found = network.choose_subnet(set(range(250)))
    network.make_switch(PLACES, NAME, found)
    yield found
    network.remove(PLACES, NAME)
    assert network.namespaces(PLACES) == []
    assert network.uplinks(PLACES) == []


def answers_within(prefix: list[str], address: str, limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    ping = [*prefix, "ping", "-q", "-c", "1", "-W", "1", address]
    while subprocess.run(ping, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > end:
            return False
    return True


def test_a_node_that_starts_again_is_reached_at_once(subnet: int) -> None:
    # It was half a minute while every start gave the node another hardware address.
    where = {node: network.address(subnet, index) for index, node in enumerate("ab")}
    for node, address in where.items():
        network.make_link(PLACES, NAME, node, address, 1e9)
    other = ["ip", "netns", "exec", PLACES.netns(NAME, "b")]
    for prefix in ([], other):
        assert answers_within(prefix, where["a"], 2.0)
    network.make_link(PLACES, NAME, "a", where["a"], 1e9)
    for prefix in ([], other):
        assert answers_within(prefix, where["a"], 2.0)


def test_a_cut_link_is_cut(subnet: int) -> None:
    address = network.address(subnet, 0)
    network.make_link(PLACES, NAME, "a", address, 1e9)
    assert answers_within([], address, 2.0)
    network.set_link(PLACES, NAME, "a", False)
    assert not answers_within([], address, 1.0)
    network.set_link(PLACES, NAME, "a", True)
    assert answers_within([], address, 2.0)


def test_a_network_in_use_is_not_given_again(subnet: int) -> None:
    assert network.choose_subnet(set(range(250))) != subnet
