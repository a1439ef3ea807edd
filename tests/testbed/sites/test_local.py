"""Local site on this machine: the contract, racks, and several disks a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import RemoteError
from testbed.sites.contract import State, Testbed
from testbed.sites.local import LocalSite, image, network, racks
from testbed.sites.local.process import run
from testbed.spec import TestbedSpec
from testbed.ssh import SshShell
from tests.errors import raises
from tests.testbed.sites.conformance import SiteConformance
from tests.testbed.sites.local_support import (
    break_node,
    everything_on_the_machine,
    local_site,
    places,
    racked_spec,
    shell,
    small_spec,
)

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]


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
def spec() -> TestbedSpec:
    return small_spec()


class TestLocalSite(SiteConformance):
    def test_nodes_answer_and_are_named(self, up: Testbed) -> None:
        for node in up.nodes:
            answer = shell(up, node.name).run(["sh", "-c", "hostname; date +%Z; id -un"])
            assert answer.text.split() == [node.name, "UTC", "root"]

    def test_nodes_know_each_other(self, up: Testbed) -> None:
        answer = shell(up, "admin").run(["getent", "ahostsv4", "osd1"])
        assert answer.text.split()[0] == up.node("osd1").address
        shell(up, "admin").run(["ping", "-c", "1", "-W", "2", "osd1"])

    def test_systemd_runs_whole(self, up: Testbed) -> None:
        for node in up.nodes:
            state = shell(up, node.name).run(
                ["systemctl", "is-system-running", "--wait"], check=False
            )
            assert state.text.strip() == "running", node.name

    def test_nodes_have_the_asked_suite_and_the_unified_tree(self, up: Testbed) -> None:
        shown = '. /etc/os-release; echo "$VERSION_CODENAME"; stat -fc %T /sys/fs/cgroup'
        said = shell(up, "osd0").run(["sh", "-c", shown]).text.split()
        codename = {"sid": "forky"}.get(image.DEFAULT_SUITE, image.DEFAULT_SUITE)
        assert said == [codename, "cgroup2fs"]

    def test_a_service_has_a_pressure_of_its_own_in_its_nodes(self, up: Testbed) -> None:
        """The agent separates an OSD's from fio's, and the node's includes both."""
        osd1 = shell(up, "osd1")
        osd1.run(["systemd-run", "--unit=own-pressure", "sleep", "60"])
        pid = osd1.run(["systemctl", "show", "-P", "MainPID", "own-pressure"]).text.strip()
        group = osd1.run(["cat", f"/proc/{pid}/cgroup"]).text.rpartition("0::")[2].strip()
        assert group == "/system.slice/own-pressure.service"
        files = [f"/sys/fs/cgroup{group}/io.pressure", "/opt/hotbed-site/cgroup/io.pressure"]
        assert osd1.run(["cat", *files]).text.count("some ") == 2
        osd1.run(["systemctl", "stop", "own-pressure"])

    def test_a_wrong_host_key_is_refused(self, up: Testbed) -> None:
        lines = up.known_hosts.read_text().splitlines()
        keys = [line.split(" ", 1)[1] for line in lines]
        names = [line.split(" ", 1)[0] for line in lines]
        assert len(set(keys)) == len(up.nodes)
        wrong = up.directory / "wrong_known_hosts"
        pairs = zip(names, keys[1:] + keys[:1], strict=True)
        wrong.write_text("".join(f"{name} {key}\n" for name, key in pairs))
        target = shell(up, "admin").target
        with raises(RemoteError, "Host key"):
            SshShell(replace(target, known_hosts=wrong, control_dir=None)).run(["true"])

    def test_passwords_are_refused(self, up: Testbed) -> None:
        settings = shell(up, "admin").run(["sshd", "-T"]).text.splitlines()
        assert "passwordauthentication no" in settings
        assert "permitrootlogin without-password" in settings

    @pytest.mark.parametrize(
        "state", ["stopped", "node gone", "disk gone", "link gone", "link down"]
    )
    def test_a_broken_node_is_named_by_its_part_and_mended(self, site, spec, up, state):
        shell(up, "osd1").run(["sh", "-c", "echo kept > /srv/kept; sync"])
        break_node(site, spec.name, "osd1", state)
        status = site.status(spec.name)
        assert (status.state, status.nodes["osd1"]) == (State.FAILED, state)
        assert shell(up, "admin").run(["hostname"]).text == "admin\n"
        site.provision(spec)
        assert site.status(spec.name).state is State.READY
        assert shell(up, "osd1").run(["cat", "/srv/kept"]).text == "kept\n"

    def test_what_fills_a_root_does_not_fill_the_host(self, spec: TestbedSpec, up: Testbed) -> None:
        limit = spec.groups[1].root_size
        osd0 = shell(up, "osd0")
        write = ["dd", "if=/dev/zero", "of=/var/log/fill", "bs=1M", f"count={2 * limit >> 20}"]
        full = osd0.run(write, check=False, timeout_s=90.0)
        assert full.returncode != 0 and b"No space left on device" in full.stderr
        assert (up.directory / "nodes/osd0/files.img").stat().st_blocks * 512 <= limit
        shell(up, "osd1").run(["sh", "-c", "echo kept > /var/log/kept; sync"])
        osd0.run(["sh", "-c", "rm /var/log/fill; echo kept > /var/log/kept; sync"])

    def test_a_cut_link_cuts(self, site: LocalSite, spec: TestbedSpec, up: Testbed) -> None:
        site.link(spec.name, "osd0", False)
        ping = ["ping", "-c", "1", "-W", "1", "osd0"]
        assert shell(up, "admin").run(ping, check=False).returncode != 0
        site.link(spec.name, "osd0", True)
        shell(up, "admin").run(["ping", "-c", "1", "-W", "3", "osd0"])


# -- racks, and several disks a node ---------------------------------------------------------------


RACKED = racked_spec()


@pytest.fixture(scope="module")
def racked(site: LocalSite) -> Testbed:
    return site.provision(RACKED)


def in_switch(*command: str) -> list[dict[str, Any]]:
    """Return the answer of ip or tc in the switch of the racks."""
    program, *words = command
    found: list[dict[str, Any]] = json.loads(
        run(program, "-n", places().switch(RACKED.name), "-j", *words)
    )
    return found


def masters() -> dict[str, str]:
    """Return the bridge of each port in the switch."""
    return {link["ifname"]: link["master"] for link in in_switch("ip", "link") if "master" in link}


def limits() -> dict[str, int]:
    """Return the rate in bits per second of every shaped device in the switch."""
    qdiscs = in_switch("tc", "qdisc")
    return {q["dev"]: 8 * q["options"]["rate"] for q in qdiscs if q["kind"] == "tbf"}


def test_every_disk_is_a_whole_device_of_its_own(racked: Testbed) -> None:
    node = racked.node("osd1")
    assert node.osd_devices == ("/dev/hotbed/osd", "/dev/hotbed/osd1")
    assert "scratch" not in node.devices
    assert node.rack == "rack0"
    assert racked.osds == 6
    answer = shell(racked, "osd1").run(["blockdev", "--getsize64", *node.osd_devices])
    sizes = [int(line) for line in answer.text.split()]
    assert all(2**30 - 2**22 < size < 2**30 for size in sizes)
    write = "printf one > /dev/hotbed/osd && printf two > /dev/hotbed/osd1 && sync"
    shell(racked, "osd1").run(["sh", "-c", write])
    read = "dd if=/dev/hotbed/osd bs=3 count=1; dd if=/dev/hotbed/osd1 bs=3 count=1"
    assert shell(racked, "osd1").run(["sh", "-c", read]).text == "onetwo"


def test_a_node_that_starts_again_is_in_its_rack_with_its_disks(site, racked):
    shell(racked, "osd2").run(["sh", "-c", "printf kept > /dev/hotbed/osd1; sync"])
    nodes = site._nodes(RACKED.name)
    member = next(m for m in site._known(RACKED.name).members() if m.name == "osd2")
    nodes.clear("osd2")
    assert nodes.gone(member, network.ports(places(), RACKED.name))["node"]
    assert site.provision(RACKED) == racked
    assert masters()[places().port("osd2")] == "rack1"
    read = ["dd", "if=/dev/hotbed/osd1", "bs=4", "count=1"]
    assert shell(racked, "osd2").run(read).text == "kept"


def test_shaping_off_takes_the_uplinks_limits_away_too(site: LocalSite, racked: Testbed) -> None:
    def different() -> set[tuple[str, str]]:
        return {(s.node, s.name) for s in site.settings(RACKED.name) if s.differs}

    site.shape(RACKED.name, False)
    assert limits() == {}
    assert different() >= {("rack1", "downlink"), ("osd2", "network"), ("osd2", "disk1.shaping")}
    site.shape(RACKED.name, True)
    assert different() == set()
    ends = {end for bridge in ("rack0", "rack1") for end in racks.ends(bridge)}
    assert {limits()[end] for end in ends} == {40_000_000}


def test_a_snapshot_holds_files_and_every_disk(site: LocalSite, racked: Testbed) -> None:
    write = (
        "echo {0} > /srv/file; printf {0} > /dev/hotbed/osd; printf {1} > /dev/hotbed/osd1; sync"
    )
    read = "cat /srv/file; dd if=/dev/hotbed/osd bs=3 count=1; dd if=/dev/hotbed/osd1 bs=3 count=1"
    shell(racked, "osd0").run(["sh", "-c", write.format("old", "too")])
    site.snapshot(RACKED.name, "both")
    shell(racked, "osd0").run(["sh", "-c", write.format("new", "won")])
    site.restore(RACKED.name, "both")
    assert shell(racked, "osd0").run(["sh", "-c", read]).text == "old\noldtoo"


def test_a_fault_is_every_disks(site: LocalSite, racked: Testbed) -> None:
    site.disk_fault(RACKED.name, "osd1", error=True)
    read = "dd if=/dev/hotbed/osd{} of=/dev/null bs=4096 count=1 iflag=direct"
    for disk in ("", "1"):
        done = shell(racked, "osd1").run(["sh", "-c", read.format(disk)], check=False)
        assert done.returncode != 0
    site.disk_fault(RACKED.name, "osd1")
    shell(racked, "osd1").run(["sh", "-c", read.format("1")])
