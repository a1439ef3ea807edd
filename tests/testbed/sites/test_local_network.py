"""Namespaces, links and loop devices of the local site, without nodes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.sites.contract import silent
from testbed.sites.local import network, removal
from testbed.sites.local.cgroups import Cgroups, detect
from testbed.sites.local.container import share_unmounts
from testbed.sites.local.names import LocalNames

pytestmark = pytest.mark.local

PLACES = LocalNames(Path("/var/lib/hotbed-tests-network"))
NAME = "links"


@pytest.fixture
def subnet() -> Iterator[int]:
    # Testbeds get this subnet only if all others are taken, so no record contains it.
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
    # It took half a minute when every start gave the node a new hardware address.
    where = {node: network.address(subnet, index) for index, node in enumerate("ab")}
    for node, address in where.items():
        network.make_link(PLACES, NAME, node, address, 1e9)
    other = ["ip", "netns", "exec", PLACES.netns(NAME, "b")]
    for prefix in ([], other):
        assert answers_within(prefix, where["a"], 2.0)
    network.make_link(PLACES, NAME, "a", where["a"], 1e9)
    for prefix in ([], other):
        assert answers_within(prefix, where["a"], 2.0)


def test_a_network_in_use_is_not_given_again(subnet: int) -> None:
    assert network.choose_subnet(set(range(250))) != subnet


def test_a_loop_device_that_a_killed_up_left_goes_with_the_testbed(tmp_path: Path) -> None:
    """It was not mounted yet, so it would not disappear with its mount."""
    places = LocalNames(tmp_path)
    folder = places.testbed(NAME)
    image = folder / "nodes" / "a" / "files.img"
    image.parent.mkdir(parents=True)
    share_unmounts(folder)
    with image.open("wb") as made:
        made.truncate(1 << 20)
    attach = ["losetup", "-f", "--show", str(image)]
    device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    removal.remove(places, Cgroups(detect(), places.cgroup), NAME, silent)
    assert not Path("/sys/block", Path(device).name, "loop").exists()
    assert not folder.exists()
