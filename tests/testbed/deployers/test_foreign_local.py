"""Takes a running Ceph of this machine's over, as if somebody else had made it: pools, settings,
places and the control plane, and the second time nothing.

The cluster is the role `ceph`'s own, put into the state that a stranger leaves one in. The spec
says ceph-ansible, whose daemons are the host's units as here; its playbooks are not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import reach
from testbed.agent.client import agent_client
from testbed.deploy import deploy, save_spec
from testbed.deployers import foreign
from testbed.playbook_run import DeployError, private_data
from testbed.sites.contract import Testbed, silent
from testbed.sites.local import LocalSite
from testbed.sites.local.names import Places
from testbed.spec import TestbedSpec

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

SETTINGS = {"osd": {"osd_max_backfills": "3"}}


def spec_by(deployer: str) -> TestbedSpec:
    """Three nodes with one pool, deployed by `deployer`."""
    return TestbedSpec.model_validate(
        {
            "name": "adopt-test",
            "groups": [
                {
                    "name": "admin",
                    "roles": ["admin", "mon", "mgr", "client"],
                    "cpus": 1.5,
                    "memory": "2GiB",
                },
                {
                    "name": "osd",
                    "count": 2,
                    "roles": ["osd"],
                    "disk": {"size": "4GiB", "scratch": "2GiB"},
                },
            ],
            "store": {
                "kind": "ceph",
                "deployer": deployer,
                "pools": [{"name": "bench", "pg_num": 16}],
            },
        }
    )


OWN, FOREIGN = spec_by("own"), spec_by("ceph-ansible")


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


def asked(testbed: Testbed, command: str) -> Any:
    return json.loads(run(testbed, "admin", f"ceph {command} --format json"))


def adopt(testbed: Testbed, **more: object) -> dict[str, int]:
    made = foreign.inventory(testbed, FOREIGN, "ceph-ansible", {})
    made["all"]["vars"] |= more
    with private_data(testbed) as folder:
        return foreign.adopt(testbed, FOREIGN, folder, made, silent, settings=SETTINGS)


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    found = LocalSite(
        places=Places(Path("/var/lib/hotbed-tests-adopt"), Places.of_environment().cache)
    )
    found.release(OWN.name)
    yield found
    found.release(OWN.name)


@pytest.fixture(scope="module")
def strange(site: LocalSite) -> Testbed:
    """A cluster without pools of ours, with a balancer, and an admin node that knows nothing."""
    testbed = site.provision(OWN)
    save_spec(testbed, OWN)
    deploy(testbed, OWN, site=site)
    run(
        testbed,
        "admin",
        "ceph osd pool delete bench bench --yes-i-really-really-mean-it && "
        "ceph config set mgr mgr/balancer/active true && "
        "rm -rf /etc/hotbed /opt/hotbed /usr/local/bin/hotbed-agent",
    )
    return testbed


def test_an_osd_that_is_down_is_told(strange: Testbed) -> None:
    run(strange, "osd1", "systemctl stop ceph-osd@1")
    try:
        with pytest.raises(DeployError, match=r"OSDs are still down: osd\.1"):
            adopt(strange, adopt_timeout_s=5)
    finally:
        run(strange, "osd1", "systemctl start ceph-osd@1")
    assert run(strange, "admin", "rados lspools").split() == []


def test_it_has_the_specs_pools_settings_and_control_plane(strange: Testbed) -> None:
    changed = adopt(strange)
    assert changed["admin"] > 0
    assert run(strange, "admin", "rados lspools").split() == ["bench"]
    rows = {
        (each["section"], each["name"]): each["value"] for each in asked(strange, "config dump")
    }
    assert rows["osd", "osd_max_backfills"] == "3"
    assert rows["osd", "osd_crush_update_on_start"] == "false"
    assert rows["mgr", "mgr/balancer/active"] == "false"
    told = json.loads(run(strange, "admin", "cat /etc/hotbed/agent.json"))
    numbers = {node["name"]: node["osds"] for node in told["nodes"] if node["osds"]}
    really: dict[str, list[int]] = {}
    for row in asked(strange, "osd metadata"):
        really.setdefault(row["hostname"], []).append(row["id"])
    assert numbers == really
    agent_client(strange).units()  # it answers, and reaches the nodes
    assert run(strange, "admin", "ceph health").strip() == "HEALTH_OK"


def test_a_second_time_changes_nothing(strange: Testbed) -> None:
    assert sum(adopt(strange).values()) == 0
