"""Swift and strangers, and the removal of Swift: the last tests of the testbed shared by the files
here."""

from __future__ import annotations

import pytest

from testbed.deploy.roles import remove
from testbed.doctor import peer_findings
from testbed.sites.contract import State
from tests.testbed.strangers import assert_only_documented_ports_answer
from tests.waiting import until

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]


def test_to_a_stranger_only_sshd_and_proxies_answer(bed):
    for node, own in (("proxy0", {8080, 11211}), ("storage0", {873, 6200, 6201, 6202, 6210})):
        listening = bed.run(node, "ss -Hltn | awk '{print $4}'").split()
        address = bed.testbed.node(node).address
        assert {f"{address}:{port}" for port in own} <= set(listening)
    assert_only_documented_ports_answer(bed.testbed, bed.spec)
    allowed = bed.run("storage0", "grep 'hosts allow' /etc/hotbed/swift/rsyncd.conf").split()[3:]
    assert allowed == [node.address for node in bed.testbed.with_role("storage")]


def test_back_ends_are_closed_after_a_reboot_and_doctor_sees_one_that_is_open(bed):
    closed = {"proxy0", "proxy1", "storage0", "storage1", "storage2"}
    bed.run("storage2", "systemctl --no-block poweroff")
    until(lambda: bed.site.status(bed.testbed.name).state is not State.READY)
    bed.site.provision(bed.spec)
    assert {node for node, found in peer_findings(bed.testbed).items() if found.ok} == closed
    bed.run("proxy1", "nft delete table inet hotbed_peers")
    bed.run("storage1", "nft flush table inet hotbed_peers")
    found = peer_findings(bed.testbed)
    assert {node for node in closed if not found[node].ok} == {"proxy1", "storage1"}
    for node in ("proxy1", "storage1"):
        bed.run(node, "systemctl restart hotbed-peers")
    assert all(one.ok for one in peer_findings(bed.testbed).values())


def test_removed_it_leaves_nothing_and_can_be_deployed_again(bed):
    remove(bed.testbed, bed.spec, site=bed.site)
    look = (
        "ls -d /etc/hotbed /etc/swift /srv/hotbed-swift /run/hotbed* /opt/hotbed /var/lib/hotbed "
        "/etc/systemd/system/hotbed-* 2>/dev/null; getent passwd hotbed-swift; "
        "ps -eo args | grep -c '[s]wift-'; mount | grep srv; nft list tables"
    )
    for node in bed.spec.node_names():
        assert bed.run(node, f"({look}) || true").split() == ["0"], node
    # Tests of Ceph and NFS deploy again; only the wiped disks differ here.
    assert "XFSB" not in bed.run("storage0", "head -c 4 /dev/hotbed/osd | tr -d '\\0'")
