"""Adoption of a running Ceph on this machine, as if deployed by others: pools, settings, places and
the control plane; a second adoption changes nothing.

The cluster comes from the role `ceph`, put into a foreign cluster's state. The spec names
ceph-ansible, which also runs daemons as the host's units; its playbooks are not run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.client import agent_client
from testbed.deploy import foreign
from testbed.deploy.lifecycle import restore_snapshot
from testbed.deploy.playbook import DeployError, play, private_data
from testbed.sites import open_site
from testbed.sites.contract import SnapshotSite, Testbed, silent
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.ceph_beds import SPEC, pools_of, run

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

SETTINGS = {"osd": {"osd_max_backfills": "3"}}


FOREIGN = TestbedSpec.model_validate(
    SPEC.model_dump(mode="json")
    | {"store": SPEC.store.model_dump(mode="json") | {"deployer": "ceph-ansible"}}
)


def asked(testbed: Testbed, command: str) -> Any:
    return json.loads(run(testbed, "admin", f"ceph {command} --format json"))


def adopt(testbed: Testbed, **more: object) -> dict[str, int]:
    made = foreign.inventory(testbed, FOREIGN, "ceph-ansible", {})
    with private_data(testbed) as folder:
        made["all"]["vars"] |= more | foreign.adoption(testbed, FOREIGN, folder, SETTINGS)
        return play(testbed, folder, "adopt.yml", made, silent, ansible=foreign.OURS)


@pytest.fixture(scope="module")
def strange(deployed):
    """Return a cluster with a balancer, without our pools, and with a bare admin node."""
    site = open_site(deployed.site)
    assert isinstance(site, SnapshotSite)
    run(
        deployed,
        "admin",
        "ceph osd pool delete bench bench --yes-i-really-really-mean-it && "
        "ceph config set mgr mgr/balancer/active true && "
        "rm -rf /etc/hotbed /opt/hotbed /usr/local/bin/hotbed-agent",
    )
    yield deployed
    restore_snapshot(site, deployed.name)


def test_an_osd_that_is_down_is_an_error(strange):
    run(strange, "osd1", "systemctl stop ceph-osd@1")
    try:
        with raises(DeployError, "osd.1"):
            adopt(strange, adopt_timeout_s=5)
    finally:
        run(strange, "osd1", "systemctl start ceph-osd@1")
    assert pools_of(strange) == []


def test_it_has_the_specs_pools_settings_and_control_plane(strange):
    changed = adopt(strange)
    assert changed["admin"] > 0
    assert pools_of(strange) == ["bench"]
    rows = {
        (each["section"], each["name"]): each["value"] for each in asked(strange, "config dump")
    }
    assert rows["osd", "osd_max_backfills"] == "3"
    assert rows["osd", "osd_crush_update_on_start"] == "false"
    assert rows["mgr", "mgr/balancer/active"] == "false"
    config = json.loads(run(strange, "admin", "cat /etc/hotbed/agent.json"))
    numbers = {node["name"]: node["osds"] for node in config["nodes"] if node["osds"]}
    really: dict[str, list[int]] = {}
    for row in asked(strange, "osd metadata"):
        really.setdefault(row["hostname"], []).append(row["id"])
    assert numbers == really
    agent_client(strange).units()  # it answers and reaches the nodes
    assert run(strange, "admin", "ceph health").strip() == "HEALTH_OK"


def test_a_second_time_changes_nothing(strange):
    assert sum(adopt(strange).values()) == 0
