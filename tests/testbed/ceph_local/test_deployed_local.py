"""The shared Ceph after deployment: deployed again, stopped, interrupted, removed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.deploy.inventory import FIO_JOBS, fio_file_bytes
from testbed.deploy.lifecycle import save_snapshot, stopped_store
from testbed.deploy.roles import LOG, DeployError, RefusedError, deploy
from testbed.sites.contract import SnapshotSite
from tests.errors import raises
from tests.hotbed.runner import run as hotbed
from tests.testbed.ceph_beds import SPEC, deploying, run

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]


def test_deployed_it_serves_and_keeps_its_secrets(deployed):
    assert run(deployed, "admin", "ceph health").strip() == "HEALTH_OK"
    log = (deployed.directory / LOG).read_text()
    secret = run(deployed, "admin", "ceph auth get-key client.admin").strip()
    osd_secret = run(deployed, "admin", "ceph auth get-key osd.0").strip()
    everything = subprocess.run(
        ["grep", "-rlF", "-e", secret, "-e", osd_secret, str(deployed.directory / "ansible")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert everything.stdout == ""
    assert secret not in log


@pytest.mark.parametrize("daemon", ["mon.*", "mgr", "osd.*"])
def test_all_daemons_judge_heartbeats_alike(deployed, daemon):
    """With Ceph's default of 20 s, the manager warns of heartbeats of 1 s while OSDs allow 60 s."""
    command = f"ceph tell {daemon} config get osd_heartbeat_grace"
    assert set(re.findall(r'"osd_heartbeat_grace": "(\d+)', run(deployed, "admin", command))) == {
        "60"
    }


def test_keys_are_needed(deployed):
    said = run(deployed, "osd0", "timeout 20 ceph --name client.nobody health 2>&1 || echo refused")
    assert "refused" in said


def test_a_daemons_lives_are_distinguished_by_more_than_its_process_id(deployed):
    """By process id alone, a restarted OSD with the same id would never be included again."""
    osds = json.loads(run(deployed, "admin", "ceph osd dump --format json"))["osds"]
    for osd in osds:
        node = f"osd{osd['osd']}"
        nonce = osd["public_addrs"]["addrvec"][0]["nonce"]
        assert nonce != int(run(deployed, node, "pgrep -x ceph-osd"))


def test_fio_reuses_its_files(deployed):
    folder = "/var/lib/hotbed/scratch/fio"
    before = run(deployed, "osd0", f"stat -c '%n %s %i %Y' {folder}/hot.*")
    assert len(before.splitlines()) == FIO_JOBS
    disk = SPEC.groups[1].disk
    assert disk is not None
    fio = (
        f"fio --name=hot --directory={folder} --numjobs=4 --rw=randread --bs=4k --direct=1 "
        "--ioengine=libaio --iodepth=16 --time_based --runtime=1 --allow_file_create=0 "
        f"--size={fio_file_bytes(disk, 'osd0')}"
    )
    assert "err= 0" in run(deployed, "osd0", fio)
    assert run(deployed, "osd0", f"stat -c '%n %s %i %Y' {folder}/hot.*") == before


def test_the_admin_node_knows_the_testbed_and_reaches_it(deployed):
    assert '"ok": true' in run(deployed, "admin", "hotbed-agent units </dev/null")


def test_status_names_everything_that_is_broken_and_store_start_repairs_it(site, deployed, capsys):
    code, out, _ = hotbed(capsys, "status", "tests")
    assert (code, out.splitlines()[0]) == (
        0,
        "testbed tests: ready, 5 of 5 nodes; store: HEALTH_OK",
    )
    scratch = "/var/lib/hotbed/scratch"
    free = int(run(deployed, "osd3", f"df --output=avail -B1 {scratch} | tail -n 1"))
    run(deployed, "osd3", f"fallocate -l {free // 100 * 99} {scratch}/full")
    run(deployed, "osd1", "systemctl stop ceph-osd@1")
    site.link("tests", "osd2", False)
    run(deployed, "admin", "systemctl kill -s KILL ceph-mon@admin; systemctl stop ceph-mon@admin")
    try:
        began = time.monotonic()
        code, out, _ = hotbed(capsys, "status", "tests")
        assert time.monotonic() - began < 12
        first, text = out.splitlines()[0], " ".join(out.split())
        assert code == 0
        for words in ("1 monitor down", "1 OSD down", "1 link cut", "1 disk full", "no answer"):
            assert words in first
        for words in ("mon.admin on node admin", "osd.1 on node osd1", "osd2: link down"):
            assert words in text
        assert re.search(f"{scratch} on node osd3 is (9[5-9]|100)% full", text)
        code, out, _ = hotbed(capsys, "logs", "osd1", "--json")
        states = {row["name"]: row["state"] for row in json.loads(out)}
        assert states["osd.1"].startswith("inactive")
    finally:
        site.link("tests", "osd2", True)
        run(deployed, "osd3", f"rm {scratch}/full")
        assert hotbed(capsys, "store", "start")[0] == 0
    assert "osd.1" in hotbed(capsys, "logs", "osd1", "osd.1", "--lines", "5")[1]


def test_a_part_of_the_store_stops_and_a_controller_is_followed(deployed, capsys):
    assert hotbed(capsys, "store", "stop", "osd0")[0] == 0
    assert "noout" in run(deployed, "admin", "ceph osd dump")
    assert "1 OSD down" in hotbed(capsys, "status", "tests")[1]
    assert hotbed(capsys, "store", "start", "osd0")[0] == 0
    assert run(deployed, "admin", "ceph health").strip() == "HEALTH_OK"
    assert hotbed(capsys, "control", "start", "dlr", "--interval", "1")[0] == 0
    words = [sys.executable, "-m", "hotbed.cli", "control", "log", "dlr", "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        line = ""
        while not line.startswith("step 2"):
            line = following.stdout.readline()
        assert "(osd" in line
        children = Path(f"/proc/{following.pid}/task/{following.pid}/children").read_text()
        for child in children.split():
            os.kill(int(child), signal.SIGKILL)  # its ssh
        assert "dlr" in hotbed(capsys, "status", "tests")[1]
        code, _, err = hotbed(capsys, "store", "stop")
        assert (code, "dlr" in err) == (2, True)
        step = int(line.split()[1].rstrip(","))
        assert following.stdout.readline().startswith(f"step {step + 1},")
        assert hotbed(capsys, "control", "stop")[0] == 0
        rest = following.stdout.read().splitlines()
        assert rest[-1].startswith("ended: stopped")
        numbers = [int(each.split()[1].rstrip(",")) for each in rest[:-1]]
        assert numbers == list(range(step + 2, step + 2 + len(numbers)))
    assert following.returncode == 0
    assert "dlr" in hotbed(capsys, "logs", "admin", "control-dlr")[1]


def test_no_snapshot_is_taken_of_a_store_that_is_steered(site, deployed):
    assert isinstance(site, SnapshotSite)
    run(deployed, "admin", "ceph osd primary-affinity 0 0.5")
    with raises(UserError, "primary affinity"):
        save_snapshot(site, deployed, "steered")
    run(deployed, "admin", "ceph osd primary-affinity 0 1")
    with stopped_store(deployed):
        assert run(deployed, "osd0", "pgrep -c ceph-osd || true").strip() == "0"


def test_an_unreachable_node_is_named(deployed):
    nodes = tuple(
        dataclasses.replace(node, ssh_port=1) if node.name == "osd1" else node
        for node in deployed.nodes
    )
    with raises(DeployError, "osd1"):
        deploy(dataclasses.replace(deployed, nodes=nodes), SPEC)


def test_interrupted_it_ends_its_processes_and_can_go_on(deployed):
    process = deploying(deployed, SPEC, "ceph: Write ceph.conf")
    assert process.stdout is not None
    os.kill(process.pid, signal.SIGINT)
    process.stdout.read()
    assert process.wait(timeout=40) != 0
    mark = str(deployed.directory / "ansible")
    left = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_device_in_use_is_refused_before_anything_changes(removed):
    run(removed, "osd1", "mkfs.ext4 -q -F /dev/hotbed/osd && mount /dev/hotbed/osd /mnt")
    with raises(RefusedError, "osd1", "/mnt"):
        deploy(removed, SPEC)
    run(removed, "osd1", "umount /mnt")
    with raises(RefusedError, "ext2/3/4") as refused:
        deploy(removed, SPEC)
    advice = re.search(r"of node osd1 .*: if it may go, run `(.*)` there", str(refused.value))
    assert advice is not None
    run(removed, "osd1", advice[1])
    assert run(removed, "osd0", "ls /etc/ceph").split() == ["rbdmap"]
