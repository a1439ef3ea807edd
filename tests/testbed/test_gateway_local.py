"""Ceph's object gateway on nodes of this machine: users, COSBench through S3, and taken away."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import reach
from testbed.agent.client import agent_client
from testbed.deploy import deploy, remove, save_spec
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import Places
from testbed.spec import TestbedSpec
from testbed.ssh import Shell
from tests.testbed.stores_contract import keep_the_contract
from workloads.cosbench.access import S3Storage
from workloads.cosbench.driver import Load, run_on, tenant
from workloads.cosbench.workload import TABLE_1, to_xml
from workloads.cosbench.xml_text import filled

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

DISK = {"size": "4GiB", "scratch": "2GiB"}
SPEC = TestbedSpec.model_validate(
    {
        "name": "gateway-test",
        "groups": [
            {
                "name": "admin",
                "roles": ["admin", "mon", "mgr", "client", "rgw"],
                "cpus": 1.5,
                "memory": "2GiB",
            },
            {"name": "osd", "count": 2, "roles": ["osd"], "cpus": 1, "disk": DISK},
        ],
        "store": {
            "pools": [{"name": "default.rgw.buckets.data", "pg_num": 16}],
            "tenants": ["web", "video"],
            "config": {"global": {"osd_pool_default_pg_num": 4, "osd_pool_default_pgp_num": 4}},
        },
    }
)


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    found = LocalSite(
        places=Places(Path("/var/lib/hotbed-tests-gateway"), Places.of_environment().cache)
    )
    found.release(SPEC.name)
    yield found
    found.release(SPEC.name)


@pytest.fixture(scope="module")
def deployed(site: LocalSite) -> Testbed:
    testbed = site.provision(SPEC)
    save_spec(testbed, SPEC)
    assert deploy(testbed, SPEC, site=site)["admin"] > 0
    return testbed


def shell(testbed: Testbed, node: str = "admin") -> Shell:
    return reach.shell_to(testbed, testbed.node(node))


def test_each_tenant_has_keys_that_nobody_else_sees_and_that_stay(
    site: LocalSite, deployed: Testbed
) -> None:
    admin = shell(deployed)
    before = {name: tenant(admin, name).values for name in ("web", "video")}
    assert before["web"]["secretkey"] != before["video"]["secretkey"]
    said = admin.run(["stat", "-c", "%a", "/etc/hotbed/s3/web.json", "/etc/hotbed/s3"]).text
    assert said.split() == ["600", "700"]
    assert deploy(deployed, SPEC, site=site) == dict.fromkeys(SPEC.node_names(), 0)
    assert {name: tenant(admin, name).values for name in before} == before
    log = (deployed.directory / "deploy.log").read_text()
    inventory = json.dumps(
        [path.read_text() for path in (deployed.directory / "ansible/inventory").rglob("*.json")]
    )
    for values in before.values():
        assert values["secretkey"] not in log + inventory


def test_cosbench_runs_through_it_and_reads_what_it_wrote(
    deployed: Testbed, tmp_path: Path
) -> None:
    workload = TABLE_1["A"].with_(
        name="web", workers=2, containers=2, objects=5, runtime_s=5, storage=S3Storage()
    )
    xml = filled(to_xml(workload), tenant(shell(deployed), "web").for_cosdrive(), "web")
    drives = run_on(
        agent_client(deployed),
        lambda node: shell(deployed, node),
        [Load("web", "admin", xml, max_s=200)],
        tmp_path / "out",
    )
    archive = drives["web"].archive
    assert archive.finished
    assert sum(one.operations for one in archive.measured if one.op == "read") > 0
    assert not any(sum(one.failed.values()) for one in archive.measured)
    assert archive.config is not None
    assert tenant(shell(deployed), "web").values["secretkey"] not in archive.config


def test_the_cosbench_drivers_s3_keeps_its_contract(deployed: Testbed, tmp_path: Path) -> None:
    """Listings of the gateway included."""
    keep_the_contract(shell(deployed), "/etc/hotbed/s3/web.json", ("s3",), tmp_path)


def test_the_cosbench_drivers_librados_keeps_its_contract(
    deployed: Testbed, tmp_path: Path
) -> None:
    """Of the same Ceph without its gateway: pools are containers, made and removed."""
    program, there = tmp_path / "rados.test", "/tmp/rados.test"
    subprocess.run(
        ["../tools/go", "test", "-c", "-o", str(program), "./cosbench/storage/rados"],
        cwd=Path(__file__).parents[2] / "dataplane",
        env=os.environ | {"CGO_ENABLED": "0"},
        check=True,
    )
    admin = shell(deployed)
    admin.run(["sh", "-c", f"cat > {there}; chmod 700 {there}"], input=program.read_bytes())
    who = "HOTBED_RADOS=/etc/ceph/ceph.conf admin /etc/ceph/ceph.client.admin.keyring"
    wanted = "TestACephKeepsTheContract"
    run = ["env", who, there, "-test.v", "-test.run", wanted]
    try:
        said = admin.run(run, check=False, timeout_s=240).text
    finally:
        admin.run(["rm", "-f", there])
    assert f"--- PASS: {wanted}" in said, said
    pools = json.loads(admin.run(["ceph", "osd", "pool", "ls", "-f", "json"]).text)
    assert "cosbench-contract" not in pools


def test_objects_are_in_the_pool_that_controllers_look_at(deployed: Testbed) -> None:
    pools = json.loads(shell(deployed).run(["ceph", "osd", "pool", "ls", "-f", "json"]).text)
    assert pools.count("default.rgw.buckets.data") == 1
    put = "echo there | rados -p default.rgw.buckets.data put mark -"
    shell(deployed).run(["sh", "-c", put])
    assert "mark" in shell(deployed).run(["rados", "-p", "default.rgw.buckets.data", "ls"]).text


def test_removed_it_leaves_no_keys_and_no_gateway(site: LocalSite, deployed: Testbed) -> None:
    remove(deployed, SPEC, site=site)
    look = "ls -d /etc/hotbed/s3 /var/lib/ceph/radosgw/* 2> /dev/null; pgrep -c radosgw"
    assert shell(deployed).run(["sh", "-c", f"({look}) || true"]).text.split() == ["0"]
