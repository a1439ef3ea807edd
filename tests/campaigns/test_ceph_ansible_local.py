"""A Ceph whose monitor, manager and gateway ceph-ansible deploys, with the project's own raw OSDs,
through a campaign's cell to its removal. `make test-ceph-ansible` runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_campaigns import HOT, assert_clean, assert_whole, folders, go, writer

from testbed.client import agent_client
from testbed.deploy.ceph_ansible import SOURCES, TEMPLATE
from testbed.deploy.deployment import bring, take_away
from testbed.deploy.lifecycle import restore_snapshot, wait_healthy
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.spec import TestbedSpec
from tests.testbed.ceph_beds import DISK, run, up_and_down
from tests.testbed.deployers.beds import RAW

pytestmark = [
    pytest.mark.local,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not (os.environ.get(SOURCES) and os.environ.get(TEMPLATE)),
        reason=f"set {SOURCES} and {TEMPLATE} (docs/another-ceph.md)",
    ),
]
SPEC = TestbedSpec.model_validate(
    {
        "name": "by-others",
        "site": {"kind": "local", "options": {"suite": "trixie"}},
        "groups": [
            {"name": "admin", "roles": ["admin", "mon", "mgr", "client"], "cpus": 1.5},
            {"name": "osd", "count": 3, "roles": ["osd"], "cpus": 0.5, "disk": DISK},
            {"name": "gate", "roles": ["rgw"], "cpus": 0.5},
        ],
        "store": {"pools": [{"name": "bench", "pg_num": 32}], "deployer": RAW},
    }
)


@pytest.fixture(scope="module")
def brought() -> Iterator[Testbed]:
    with up_and_down(SPEC, Path("/var/lib/hotbed-tests-by-others")) as testbed:
        yield testbed


def assert_serves(testbed: Testbed) -> None:
    wait_healthy(testbed)
    assert run(testbed, "admin", "rados -p bench put thing /etc/hostname && ceph health") == (
        "HEALTH_OK\n"
    )
    ask = "import urllib.request as u; print(u.urlopen('http://gate:7480', timeout=60).read())"
    # A gateway that starts with its node listens once it has read its settings from the cluster.
    said = run(
        testbed, "admin", f'for n in $(seq 30); do python3 -c "{ask}" && break; sleep 2; done'
    )
    assert "ListAllMyBucketsResult" in said


def test_its_daemons_and_our_osds_are_one_cluster(brought):
    assert_serves(brought)
    units = "systemctl list-units --plain --no-legend --state=running 'ceph-*@*' | cut -d' ' -f1"
    assert {name: run(brought, name, units).split() for name in ("admin", "gate", "osd1")} == {
        "admin": ["ceph-mgr@admin.service", "ceph-mon@admin.service"],
        "gate": ["ceph-radosgw@rgw.default.gate.rgw0.service"],
        "osd1": ["ceph-osd@1.service"],
    }
    versions = run(brought, "admin", "ceph versions -f json")
    assert "18.2" in versions and versions.count("reef") == 5  # four kinds of daemons, and all
    agent_client(brought).units()  # it answers and reaches the nodes


def test_a_second_deployment_and_a_restored_snapshot_serve(brought):
    bring(LocalSite(), brought, snapshot=False)
    assert_serves(brought)
    restore_snapshot(LocalSite(), brought.name)
    assert_serves(brought)


def test_a_cell_of_a_campaign_runs_on_it(brought, tmp_path):
    cell = {"vary": {"op": ["rand"], "controller": ["dlr"]}, "fixed": HOT}
    path = writer(tmp_path, brought)(cell)
    assert go(path, brought).ok
    ((folder, found),) = folders(path).items()
    assert_whole(folder, found, brought)
    assert found.provenance.versions["deployer"] == "ceph-ansible"
    assert_clean(brought)


def test_it_is_removed_whole_and_can_be_deployed_again(brought):
    take_away(LocalSite(), brought)
    left = (
        "ls -d /etc/ceph/* /etc/hotbed /opt/hotbed /var/lib/hotbed /var/lib/ceph/*/* "
        "/usr/share/ceph/mgr/bcrypt.py /etc/systemd/system/*hotbed* "
        "/etc/systemd/system/ceph-*@.service.d 2>/dev/null | "
        "grep -vx -e /etc/ceph/rbdmap -e /var/lib/ceph/crash/posted; "
        "pgrep -a 'ceph|radosgw'; grep -s hotbed /etc/hosts; true"
    )
    assert {node.name: run(brought, node.name, left) for node in brought.nodes} == {
        node.name: "" for node in brought.nodes
    }
    bring(LocalSite(), brought, snapshot=False)
    assert_serves(brought)
