"""Whole testbed with racks and several disks per node: the nodes' resources, and persistence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite, network, racks
from tests.testbed.sites.local_support import (
    everything_on_the_machine,
    local_site,
    places,
    racked_spec,
    shell,
)

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]

SPEC = racked_spec()


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    found = local_site()
    for name in found.names():
        found.release(name)
    yield found
    for name in found.names():
        found.release(name)
    assert everything_on_the_machine() == []


@pytest.fixture(scope="module")
def up(site: LocalSite) -> Testbed:
    return site.provision(SPEC)


def masters() -> dict[str, str]:
    """Return the bridge of each port in the switch."""
    text = subprocess.run(
        ["ip", "-n", places().switch(SPEC.name), "-j", "link"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {link["ifname"]: link["master"] for link in json.loads(text) if "master" in link}


def limits() -> dict[str, int]:
    """Return the rate in bits per second of every shaped device in the switch."""
    text = subprocess.run(
        ["tc", "-n", places().switch(SPEC.name), "-j", "qdisc"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {
        qdisc["dev"]: 8 * qdisc["options"]["rate"]
        for qdisc in json.loads(text)
        if qdisc["kind"] == "tbf"
    }


def test_every_disk_is_a_whole_device_of_its_own(up: Testbed) -> None:
    node = up.node("osd1")
    assert node.osd_devices == ("/dev/hotbed/osd", "/dev/hotbed/osd1")
    assert "scratch" not in node.devices
    assert node.rack == "rack0"
    assert up.osds == 6
    answer = shell(up, "osd1").run(["blockdev", "--getsize64", *node.osd_devices])
    sizes = [int(line) for line in answer.text.split()]
    assert all(2**30 - 2**22 < size < 2**30 for size in sizes)
    write = "printf one > /dev/hotbed/osd && printf two > /dev/hotbed/osd1 && sync"
    shell(up, "osd1").run(["sh", "-c", write])
    read = "dd if=/dev/hotbed/osd bs=3 count=1; dd if=/dev/hotbed/osd1 bs=3 count=1"
    assert shell(up, "osd1").run(["sh", "-c", read]).text == "onetwo"


def test_links_go_to_the_bridges_of_their_racks(up: Testbed) -> None:
    found = masters()
    for node in up.nodes:
        assert found[places().port(node.name)] == racks.bridge_of(SPEC, node.name)
    assert {found[places().port(node.name)] for node in up.nodes} == {"br0", "rack0", "rack1"}


def test_a_node_that_starts_again_is_in_its_rack_with_its_disks(site, up):
    shell(up, "osd2").run(["sh", "-c", "printf kept > /dev/hotbed/osd1; sync"])
    nodes = site._nodes(SPEC.name)
    member = next(m for m in site._known(SPEC.name).members() if m.name == "osd2")
    nodes.clear("osd2")
    assert nodes.gone(member, network.ports(places(), SPEC.name))["node"]
    assert site.provision(SPEC) == up
    assert masters()[places().port("osd2")] == "rack1"
    read = ["dd", "if=/dev/hotbed/osd1", "bs=4", "count=1"]
    assert shell(up, "osd2").run(read).text == "kept"


def test_shaping_off_takes_the_uplinks_limits_away_too(site: LocalSite, up: Testbed) -> None:
    def different() -> set[tuple[str, str]]:
        return {(s.node, s.name) for s in site.settings(SPEC.name) if s.differs}

    site.shape(SPEC.name, False)
    assert limits() == {}
    assert different() >= {("rack1", "downlink"), ("osd2", "network"), ("osd2", "disk1.shaping")}
    site.shape(SPEC.name, True)
    assert different() == set()
    ends = {end for bridge in ("rack0", "rack1") for end in racks.ends(bridge)}
    assert {limits()[end] for end in ends} == {40_000_000}


def test_a_snapshot_holds_files_and_every_disk(site: LocalSite, up: Testbed) -> None:
    write = (
        "echo {0} > /srv/file; printf {0} > /dev/hotbed/osd; printf {1} > /dev/hotbed/osd1; sync"
    )
    read = "cat /srv/file; dd if=/dev/hotbed/osd bs=3 count=1; dd if=/dev/hotbed/osd1 bs=3 count=1"
    shell(up, "osd0").run(["sh", "-c", write.format("old", "too")])
    site.snapshot(SPEC.name, "both")
    shell(up, "osd0").run(["sh", "-c", write.format("new", "won")])
    site.restore(SPEC.name, "both")
    assert shell(up, "osd0").run(["sh", "-c", read]).text == "old\noldtoo"


def test_a_fault_is_every_disks(site: LocalSite, up: Testbed) -> None:
    site.disk_fault(SPEC.name, "osd1", error=True)
    read = "dd if=/dev/hotbed/osd{} of=/dev/null bs=4096 count=1 iflag=direct"
    for disk in ("", "1"):
        done = shell(up, "osd1").run(["sh", "-c", read.format(disk)], check=False)
        assert done.returncode != 0
    site.disk_fault(SPEC.name, "osd1")
    shell(up, "osd1").run(["sh", "-c", read.format("1")])
