"""Swift taken away again: the last test of the testbed that the other files here share."""

from __future__ import annotations

import pytest

from testbed.deploy import remove
from tests.testbed.swift_beds import Bed

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]


def test_removed_it_leaves_nothing_and_can_be_deployed_again(bed: Bed) -> None:
    remove(bed.testbed, bed.spec, site=bed.site)
    look = (
        "ls -d /etc/hotbed /etc/swift /srv/hotbed-swift /run/hotbed* /opt/hotbed /var/lib/hotbed "
        "/etc/systemd/system/hotbed-* 2>/dev/null; getent passwd hotbed-swift; "
        "ps -eo args | grep -c '[s]wift-'; mount | grep srv"
    )
    for node in bed.spec.node_names():
        assert bed.run(node, f"({look}) || true").split() == ["0"], node
    # Ceph's and NFS's tests deploy again; what was wiped here is all that differs.
    assert "XFSB" not in bed.run("storage0", "head -c 4 /dev/hotbed/osd | tr -d '\\0'")
