"""Faults under a running cell: an OSD, the monitor, a node's link.

The cell may fail with one sentence. It may not hang, leave a process running or change the store.
The same campaign must resume once the fault is gone.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live_campaigns import (
    HOT,
    assert_clean,
    folders,
    go,
    live_units,
)

from campaigns.engine.display import CampaignResult
from schemas.errors import UserError
from testbed.client import agent_client
from testbed.deploy.lifecycle import wait_healthy
from testbed.faults import in_force
from testbed.reach import shell_to
from testbed.sites import open_site
from testbed.sites.contract import CountedDisksSite, FaultSite, Testbed
from tests.hotbed.runner import hotbed
from tests.waiting import until

HAND = """
import socket, sys
socket.create_connection((sys.argv[1], 22), float(sys.argv[2]))
"""

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

CELL = {"vary": {"op": ["rand"]}, "fixed": {**HOT, "controller": "dlr"}}


def strike(path: Path, where: Testbed, fault: Callable[[], None]) -> CampaignResult:
    """Run the campaign at `path` and call `fault` two seconds into its first benchmark."""
    done: list[CampaignResult] = []
    thread = threading.Thread(target=lambda: done.append(go(path, where)))
    thread.start()
    agent = agent_client(where)
    deadline = time.monotonic() + 200
    while thread.is_alive() and not any("bench" in unit for unit in live_units(agent)):
        assert time.monotonic() < deadline, "no benchmark was started"
        time.sleep(0.2)
    assert thread.is_alive()
    time.sleep(2)
    fault()
    thread.join(timeout=300)
    assert not thread.is_alive(), "the campaign hangs"
    return done[0]


def check_recovery(path: Path, where: Testbed) -> None:
    """Assert that failed attempts have a one-line reason and that the campaign completes."""
    for found in folders(path).values():
        assert found.status in ("done", "failed", "spoiled")
        if found.status == "failed":
            assert found.reason
            assert "\n" not in found.reason
            assert "Traceback" not in found.reason
    result = go(path, where)
    assert result.ok, result.sentence
    assert_clean(where)


def test_an_osd_killed_under_a_cell(live_campaign, deployed):
    path = live_campaign(CELL, retries=0)
    node = shell_to(deployed, deployed.node("osd2"))

    def kill() -> None:
        node.run(["systemctl", "kill", "--signal=KILL", "ceph-osd@2"])

    strike(path, deployed, kill)
    node.run(["systemctl", "reset-failed", "ceph-osd@2"], check=False)
    node.run(["systemctl", "start", "ceph-osd@2"], timeout_s=60)
    check_recovery(path, deployed)


def test_the_monitor_restarted_under_a_cell(live_campaign, deployed):
    path = live_campaign(CELL, retries=0)
    admin = shell_to(deployed, deployed.admin)
    result = strike(
        path, deployed, lambda: admin.run(["systemctl", "restart", "ceph-mon@admin"]) and None
    )
    assert result.ok, result.sentence
    assert_clean(deployed)


def test_a_link_cut_under_a_cell(live_campaign, deployed):
    path = live_campaign(CELL, retries=0)
    site = open_site(deployed.site)
    assert isinstance(site, FaultSite)

    def cut() -> None:
        site.link(deployed.name, "osd1", up=False)
        time.sleep(6)
        site.link(deployed.name, "osd1", up=True)

    try:
        strike(path, deployed, cut)
    finally:
        site.link(deployed.name, "osd1", up=True)
    check_recovery(path, deployed)


def test_a_slow_disk_shows_in_its_service_times(deployed):
    """The site's slow-node fault reaches fio on the node, and ends."""
    site = open_site(deployed.site)
    assert isinstance(site, FaultSite)
    node = shell_to(deployed, deployed.node("osd0"))
    argv = "fio --name=slow --filename=/dev/hotbed/scratch --readonly --rw=randread --bs=4k"
    argv += " --direct=1 --ioengine=psync --runtime=2 --time_based --output-format=terse"

    def once() -> float:
        line = node.run(["sh", "-c", argv], timeout_s=30).text.splitlines()[-1]
        return float(line.split(";")[39]) / 1000

    def milliseconds(enough: float) -> float:
        """Return the least disturbed of up to ten values, because the OSD and the machine
        interfere. All read the same blocks."""
        least = math.inf
        for _ in range(10):
            least = min(least, once())
            if least < enough:
                break
        return least

    try:
        site.disk_fault(deployed.name, "osd0", slow=1.0)
        before = milliseconds(4.5)
        site.disk_fault(deployed.name, "osd0", slow=4.0)
        during = milliseconds(4.5 * before)
    finally:
        site.disk_fault(deployed.name, "osd0", slow=1.0)
    assert 3 < during / before < 5
    assert milliseconds(1.2 * before) < 1.5 * before


def test_faults_by_hand_are_seen_and_undone(deployed, live_campaign):
    """Each fault shows where it acts. One is undone after its time, the others by `clear`."""
    site, agent = open_site(deployed.site), agent_client(deployed)
    assert isinstance(site, CountedDisksSite)
    admin = shell_to(deployed, deployed.admin)

    def reaches(node: str, within_s: float = 10.0) -> bool:
        argv = ["python3", "-c", HAND, deployed.node(node).address, str(within_s)]
        return admin.run(argv, check=False).returncode == 0

    def runs(node: str, unit: str) -> bool:
        shell = shell_to(deployed, deployed.node(node))
        return shell.run(["systemctl", "is-active", "-q", unit], check=False).returncode == 0

    def slow() -> object:
        return site.disks_stats(deployed.name, "osd0")[0]["slow"]

    def hot() -> set[str]:
        (sample,) = agent.stream("top", {"count": 1})
        return {name for name, values in sample["nodes"].items() if values.get("hot")}

    try:
        assert reaches("osd1")
        assert hotbed("fault", "disk", "osd0", "--slow", "4", "--for", "6s") == 0
        assert slow() == 4
        assert hotbed("fault", "link", "osd1", "--cut") == 0
        assert not reaches("osd1", 1.0)
        with pytest.raises(UserError) as caught:
            go(live_campaign(CELL), deployed)
        assert "hotbed fault clear" in caught.value.do
        until(lambda: len(in_force(deployed.directory)) == 1, 20)  # the command has ended long ago
        assert slow() == 1
        assert [one.kind for one in in_force(deployed.directory)] == ["link"]
        assert hotbed("fault", "link", "osd1", "--rate", "100Mbit") == 0
        assert reaches("osd1")
        assert hotbed("fault", "osd", "osd2") == 0
        assert hotbed("fault", "mon", "admin") == 0
        assert hotbed("fault", "node", "osd3") == 0
        assert not runs("osd2", "ceph-osd@2") and not runs("admin", "ceph-mon@admin")
        assert not reaches("osd3", 1.0)
        assert site.status(deployed.name).nodes["osd3"] == "stopped"
        assert hotbed("fault", "clear") == 0
        assert runs("osd2", "ceph-osd@2") and runs("admin", "ceph-mon@admin") and reaches("osd3")
        assert not [one for one in site.settings(deployed.name, {}) if one.differs]
        wait_healthy(deployed)
        assert hotbed("load", "start", "hotspot", "osd0", "--for", "60s") == 0
        assert hot() == {"osd0"}
        assert hotbed("load", "stop", "hotspot", "osd0") == 0
        assert hot() == set()
    finally:
        assert hotbed("fault", "clear") == 0
        wait_healthy(deployed)
    assert in_force(deployed.directory) == []
    assert_clean(deployed)
