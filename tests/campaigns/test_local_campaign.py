"""Campaign on a real Ceph with foreign load, and with a disk changed by hand; and the controllers
that a real Ceph can run.

A whole campaign is in test_local_engine_room.py.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time

import pytest
import yaml
from live_campaigns import ROOT, folders, go

from campaigns.comparison import Ask, plan
from campaigns.grounds.live import LoadMeter
from campaigns.papers.dlr.live import Snapshots
from testbed.client import agent_client
from testbed.deploy.roles import spec_of
from testbed.reach import shell_to
from testbed.sites import open_site
from tests.hotbed.own_controllers import write_shy

pytestmark = [pytest.mark.local, pytest.mark.timeout(900)]


def test_all_is_every_controller_that_a_real_ceph_can_run(tmp_path, deployed):
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(deployed).model_dump(mode="json")))
    ask = Ask(
        ground=deployed.site,
        blocks=1,
        parameters={"hot_nodes": 1},
        spec=spec,
        testbed=deployed.name,
        artifacts=tmp_path / "artifacts",
        controllers_dir=write_shy(tmp_path / "own"),
    )
    everybody = plan(ask).comparison
    assert {"default", "dlr", "dlr-pg", "oracle", "shy"} <= set(everybody.controllers)
    later = {"upmap-read", "balance-reads", "localize-reads", "read-balancer", "mclock", "jj"}
    assert set(everybody.left_out) - later == {
        *("mos", "mos-at-once", "mos-pp", "mos-pp-resource", "mos-pp-learning"),
        "static-microstores",
    }
    assert {name for name in later if name not in everybody.left_out} <= set(everybody.controllers)


def test_foreign_load_is_refused_by_node_and_process(live_campaign, deployed):
    path = live_campaign(
        {"vary": {"op": ["rand"]}, "fixed": {"scenario": "none"}}, retries=0, spoiled_retries=0
    )
    node = deployed.with_role("osd")[0]
    argv = ["fio", "--name=foreign", "--ioengine=null", "--size=1g", "--time_based"]
    stray = shell_to(deployed, node).popen([*argv, "--rate_iops=10", "--runtime=60"])
    try:
        time.sleep(3)
        result = go(path, deployed)
    finally:
        stray.kill()
        stray.wait()
        for line in agent_client(deployed).strays().get(node.name, ()):
            shell_to(deployed, node).run(["kill", line.split()[0]], check=False)
    assert not result.ok
    (failed,) = folders(path).values()
    assert f"node {node.name} runs load that is not Hotbed's" in (failed.reason or "")


def test_a_disk_set_by_hand_fails_the_cell_until_it_is_set_back(live_campaign, deployed):
    grid = {"vary": {"op": ["rand"]}, "fixed": {"scenario": "none"}}
    path = live_campaign(grid, retries=0, spoiled_retries=0)
    # A cell that undoes the writes of an earlier cell restarts the disks with the spec's settings.
    Snapshots(open_site(deployed.site), deployed).undo_writes()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(deployed.directory / "nodes/osd1/disk/control"))
        connection.sendall(b'{"op":"set","positioning_us":8000,"bandwidth_bytes":60e6}\n')
        assert json.loads(connection.makefile().readline())["ok"]
    assert not go(path, deployed).ok
    (failed,) = folders(path).values()
    words = "disk.positioning of node osd1 is 0.008 s, and the spec's is 0.004 s"
    assert (failed.reason or "").startswith(words)
    command = re.search("`hotbed (.*)`", failed.reason or "")
    assert command is not None
    again = [sys.executable, "-m", "hotbed.cli", *command[1].split()]
    subprocess.run(again, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert LoadMeter(open_site(deployed.site), deployed).require_settings()
