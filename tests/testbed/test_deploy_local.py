"""Deploys a small Ceph on three nodes of this machine: again, stopped, removed, and another one.

The other one has the less usual parts: three monitors, a gateway, FileStore, settings of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import reach
from testbed.deploy import LOG, DeployError, RefusedError, deploy, remove, save_spec
from testbed.inventory import FIO_JOBS, fio_file_bytes
from testbed.lifecycle import start_store, stop_store, wait_healthy
from testbed.sites.contract import SnapshotSite, Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import Places
from testbed.spec import TestbedSpec

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

DISK = {"size": "4GiB", "scratch": "2GiB"}


def spec_of_three(roles: dict[str, list[str]], store: dict[str, object]) -> TestbedSpec:
    """The three nodes in these roles, with this store."""
    admin = {"name": "admin", "roles": roles["admin"], "cpus": 1.5, "memory": "2GiB"}
    osd = {"name": "osd", "count": 2, "roles": roles["osd"], "cpus": 1, "disk": DISK}
    return TestbedSpec.model_validate(
        {"name": "deploy-test", "groups": [admin, osd], "store": store}
    )


SPEC = spec_of_three(
    {"admin": ["admin", "mon", "mgr", "client"], "osd": ["osd"]},
    {"pools": [{"name": "bench", "pg_num": 16}]},
)
VARIANT = spec_of_three(
    {"admin": ["admin", "mon", "mgr", "client", "rgw"], "osd": ["osd", "mon"]},
    {
        "objectstore": "filestore",
        "pools": [{"name": "bench", "pg_num": 8}],
        "config": {
            "global": {"osd_pool_default_pg_num": 4, "osd_pool_default_pgp_num": 4},
            "osd": {"osd_max_backfills": 7},
        },
    },
)
NODES = SPEC.node_names()


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    found = LocalSite(
        places=Places(Path("/var/lib/hotbed-tests-deploy"), Places.of_environment().cache)
    )
    found.release(SPEC.name)
    yield found
    found.release(SPEC.name)


@pytest.fixture(scope="module")
def bare(site: LocalSite) -> Testbed:
    testbed = site.provision(SPEC)
    save_spec(testbed, SPEC)
    return testbed


@pytest.fixture(scope="module")
def deployed(site: LocalSite, bare: Testbed) -> Testbed:
    changed = deploy(bare, SPEC, site=site)
    assert all(changed[node.name] > 0 for node in bare.nodes)
    return bare


@pytest.fixture(scope="module")
def varied(site: LocalSite, deployed: Testbed) -> Testbed:
    """The other store on the same machines: its deployment was killed again and again on its way,
    and the next call took up where the killed one was."""
    if run(deployed, "admin", "ls -d /etc/hotbed 2>/dev/null || true"):
        remove(deployed, SPEC)
    roles = {name: group.roles for group in VARIANT.groups for name in group.node_names()}
    nodes = tuple(dataclasses.replace(n, roles=frozenset(roles[n.name])) for n in deployed.nodes)
    found = dataclasses.replace(deployed, nodes=nodes)
    for task in ("base: ", "ceph: Make the OSDs' stores", "agent: "):
        _killed_at(found, VARIANT, task)
    deploy(found, VARIANT, site=site)
    return found


def test_a_device_in_use_is_refused_before_anything_changes(bare: Testbed) -> None:
    run(bare, "osd1", "mkfs.ext4 -q -F /dev/hotbed/osd && mount /dev/hotbed/osd /mnt")
    with pytest.raises(RefusedError, match=r"of node osd1 is mounted at /mnt"):
        deploy(bare, SPEC)
    run(bare, "osd1", "umount /mnt")
    with pytest.raises(RefusedError, match=r"of node osd1 holds an ext2/3/4 file system"):
        deploy(bare, SPEC)
    run(bare, "osd1", "wipefs -q -a /dev/hotbed/osd")
    assert run(bare, "osd0", "ls /etc/ceph").split() == ["rbdmap"]


def test_deployed_it_serves_and_a_second_run_changes_nothing(
    site: LocalSite, deployed: Testbed
) -> None:
    assert run(deployed, "admin", "ceph health").strip() == "HEALTH_OK"
    assert deploy(deployed, SPEC, site=site) == dict.fromkeys(NODES, 0)
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


def test_keys_are_needed(deployed: Testbed) -> None:
    said = run(deployed, "osd0", "timeout 20 ceph --name client.nobody health 2>&1 || echo refused")
    assert "refused" in said


def test_a_daemons_lives_are_told_apart_by_more_than_its_process_id(deployed: Testbed) -> None:
    """With the process id alone a restarted OSD that got the same one was never taken in again."""
    osds = json.loads(run(deployed, "admin", "ceph osd dump --format json"))["osds"]
    for osd, node in zip(osds, ("osd0", "osd1"), strict=True):
        nonce = osd["public_addrs"]["addrvec"][0]["nonce"]
        assert nonce != int(run(deployed, node, "pgrep -x ceph-osd"))


def test_fio_reuses_its_files(deployed: Testbed) -> None:
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


def test_the_admin_node_knows_the_testbed_and_reaches_it(deployed: Testbed) -> None:
    assert '"ok": true' in run(deployed, "admin", "hotbed-agent units </dev/null")


def test_stopped_started_and_back_from_a_snapshot(site: LocalSite, deployed: Testbed) -> None:
    stop_store(deployed)
    assert run(deployed, "osd0", "pgrep -c ceph-osd || true").strip() == "0"
    assert isinstance(site, SnapshotSite)
    site.snapshot(deployed.name, "deployed")
    start_store(deployed)
    run(deployed, "admin", "ceph osd pool create scribble 1 && ceph osd primary-affinity 0 0.5")
    start = time.monotonic()
    site.restore(deployed.name, "deployed")
    wait_healthy(deployed)
    assert time.monotonic() - start < 15
    assert run(deployed, "admin", "rados lspools").split() == ["bench"]


def test_an_unreachable_node_is_named(deployed: Testbed) -> None:
    nodes = tuple(
        dataclasses.replace(node, ssh_port=1) if node.name == "osd1" else node
        for node in deployed.nodes
    )
    with pytest.raises(DeployError, match="node osd1 cannot be reached by ssh"):
        deploy(dataclasses.replace(deployed, nodes=nodes), SPEC)


def _deploying(testbed: Testbed, spec: TestbedSpec, task: str) -> subprocess.Popen[bytes]:
    """A process that deploys, when it has come to a task that begins so."""
    code = (
        "import pickle, sys; from testbed.deploy import deploy;"
        "testbed, spec = pickle.load(sys.stdin.buffer);"
        "deploy(testbed, spec, lambda phase, share: print(phase, flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(pickle.dumps((testbed, spec)))
    process.stdin.close()
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(task.encode()):
            return process
    raise AssertionError(f"it never came to {task!r}: {said}")


def _killed_at(testbed: Testbed, spec: TestbedSpec, task: str) -> None:
    process = _deploying(testbed, spec, task)
    process.kill()
    process.wait(timeout=10)


def test_interrupted_it_ends_its_processes_and_can_go_on(deployed: Testbed) -> None:
    process = _deploying(deployed, SPEC, "ceph: Write ceph.conf")
    assert process.stdout is not None
    os.kill(process.pid, signal.SIGINT)
    process.stdout.read()
    assert process.wait(timeout=40) != 0
    mark = str(deployed.directory / "ansible")
    left = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def assert_removed(testbed: Testbed, spec: TestbedSpec) -> None:
    """Removed, nothing is left; and a second time there is nothing to do."""
    assert sum(remove(testbed, spec).values()) == len(NODES)
    for node in NODES:
        left = run(
            testbed,
            node,
            "ls -d /etc/ceph/* /etc/hotbed /opt/hotbed /var/lib/hotbed /var/lib/ceph/*/ceph-* "
            "/etc/systemd/system/*hotbed* /etc/systemd/system/ceph-*@.service.d 2>/dev/null; "
            "pgrep -a 'ceph|radosgw'; grep -s hotbed /etc/hosts; true",
        )
        assert left.split() == ["/etc/ceph/rbdmap"]
    assert sum(remove(testbed, spec).values()) == 0


def test_removed_nothing_is_left(deployed: Testbed) -> None:
    assert_removed(deployed, SPEC)


def test_killed_on_its_way_it_can_be_deployed_all_the_same(varied: Testbed) -> None:
    assert run(varied, "admin", "ceph health").strip() == "HEALTH_OK"


def test_three_monitors_agree(varied: Testbed) -> None:
    said = run(varied, "admin", "ceph quorum_status -f json")
    assert '"quorum_names":["admin","osd0","osd1"]' in said


def test_objects_are_files_beside_fios(varied: Testbed) -> None:
    assert "filestore" in run(varied, "admin", "ceph osd metadata 1 -f json")
    run(varied, "admin", "dd if=/dev/zero bs=1M count=4 | rados -p bench put thing -")
    found = run(varied, "osd0", "find /var/lib/hotbed/scratch/osd -name '*thing*' -size +4000k")
    assert len(found.split()) == 1
    assert len(run(varied, "osd0", "ls /var/lib/hotbed/scratch/fio").split()) == FIO_JOBS


def test_the_gateway_answers(varied: Testbed) -> None:
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7480', timeout=20).read())"
    assert "ListAllMyBucketsResult" in run(varied, "admin", f'python3 -c "{ask}"')


def test_a_specs_settings_reach_the_daemons(varied: Testbed) -> None:
    said = run(varied, "osd0", "ceph daemon osd.0 config get osd_max_backfills")
    assert '"7"' in said


def test_the_other_one_is_removed_as_well(varied: Testbed) -> None:
    assert_removed(varied, VARIANT)


def test_killed_it_goes_with_the_testbed(site: LocalSite, deployed: Testbed) -> None:
    _killed_at(deployed, SPEC, "ceph: ")
    marks = (deployed.directory, reach.control_dir(SPEC.name, deployed.directory))
    site.release(SPEC.name)
    for mark in marks:
        listing = ["pgrep", "-af", str(mark)]
        left = subprocess.run(listing, capture_output=True, text=True, check=False)
        assert left.stdout == ""
        assert not mark.exists()
    assert site.find(SPEC.name) is None
