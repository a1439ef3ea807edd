"""The other Ceph: its less usual parts, and its object gateway with users and COSBench on S3."""

from __future__ import annotations

import json

import pytest

from testbed import reach
from testbed.client import agent_client
from testbed.deploy.lifecycle import start_store, stop_store
from testbed.deploy.roles import deploy, remove
from testbed.sites.contract import Testbed
from testbed.ssh import Shell
from tests.testbed.ceph_beds import VARIANT, assert_removed, run
from tests.testbed.stores_contract import keep_the_contract
from tests.testbed.strangers import assert_only_documented_ports_answer
from tests.waiting import until
from workloads.cosbench.credentials import filled
from workloads.cosbench.driver import ClientWorkload, run_on, tenant
from workloads.cosbench.workload import TABLE_1, S3Storage, to_xml

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]


def test_killed_on_its_way_it_can_be_deployed_all_the_same(varied):
    assert run(varied, "admin", "ceph health").strip() == "HEALTH_OK"


def test_three_monitors_agree(varied):
    said = run(varied, "admin", "ceph quorum_status -f json")
    assert '"quorum_names":["admin","osd0","osd1"]' in said


def test_the_gateway_answers(varied):
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7480', timeout=20).read())"
    assert "ListAllMyBucketsResult" in run(varied, "admin", f'python3 -c "{ask}"')


def test_to_a_stranger_only_documented_ports_answer(varied):
    assert_only_documented_ports_answer(varied, VARIANT)


def test_stopped_with_the_store_it_ends_by_itself(varied):
    stop_store(varied)
    unit = "'ceph-radosgw@*'"
    assert "Result=success" in run(varied, "admin", f"systemctl show {unit} --all -p Result")
    start_store(varied)
    assert run(varied, "admin", "ceph health").strip() == "HEALTH_OK"


_ASK = """
import json, sys, urllib.error, urllib.parse, urllib.request
url, *token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token[0]}"} if token else {}
try:
    answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20)
    print(answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


def asked(testbed: Testbed, node: str, url: str, *token: str) -> str:
    return shell(testbed, node).run(["python3", "-c", _ASK, url, *token]).text.strip()


def test_prometheus_reads_the_testbeds_and_the_nodes_metrics(varied):
    def values(query: str) -> dict[tuple[str, ...], str]:
        found = asked(varied, "admin", f"http://127.0.0.1:19090/api/v1/query?query={query}")
        return {
            tuple(row["metric"][name] for name in ("osd", "node") if name in row["metric"]): (
                row["value"][1]
            )
            for row in json.loads(found)["data"]["result"]
        }

    nodes = dict.fromkeys([(name,) for name in VARIANT.node_names()], "1")
    until(lambda: values("hotbed_node_up") == nodes, 60)
    assert values("up%7Bjob=%22node%22%7D") == nodes
    affinities = values("hotbed_osd_primary_affinity_ratio")
    assert affinities == {("0", "osd0"): "1", ("1", "osd1"): "1"}
    url = f"http://{varied.admin.address}:19464/metrics"
    assert asked(varied, "osd0", url) == "401"
    mode, owner, token = run(
        varied, "admin", "cd /etc/hotbed/metrics; stat -c '%a %U' token; cat token"
    ).split()
    assert (mode, owner) == ("600", "prometheus")
    assert "hotbed_store_up 1.0" in asked(varied, "osd0", url, token)


def test_a_specs_settings_reach_the_daemons(varied):
    said = run(varied, "osd0", "ceph daemon osd.0 config get osd_max_backfills")
    assert '"7"' in said


def shell(testbed: Testbed, node: str = "admin") -> Shell:
    return reach.shell_to(testbed, testbed.node(node))


def test_each_tenant_has_keys_that_nobody_else_sees_and_that_stay(site, varied):
    admin = shell(varied)
    before = {name: tenant(admin, name).values for name in ("web", "video")}
    assert before["web"]["secretkey"] != before["video"]["secretkey"]
    said = admin.run(["stat", "-c", "%a", "/etc/hotbed/s3/web.json", "/etc/hotbed/s3"]).text
    assert said.split() == ["600", "700"]
    assert deploy(varied, VARIANT, site=site) == dict.fromkeys(VARIANT.node_names(), 0)
    assert {name: tenant(admin, name).values for name in before} == before
    log = (varied.directory / "deploy.log").read_text()
    inventory = json.dumps(
        [path.read_text() for path in (varied.directory / "ansible/inventory").rglob("*.json")]
    )
    for values in before.values():
        assert values["secretkey"] not in log + inventory


def test_cosbench_runs_through_it_and_reads_what_it_wrote(varied, tmp_path):
    workload = TABLE_1["A"].with_(
        name="web", workers=2, containers=2, objects=5, runtime_s=5, storage=S3Storage()
    )
    xml = filled(to_xml(workload), tenant(shell(varied), "web").for_cosdrive(), "web")
    drives = run_on(
        agent_client(varied),
        lambda node: shell(varied, node),
        [ClientWorkload("web", "admin", xml, max_s=200)],
        tmp_path / "out",
    )
    archive = drives["web"].archive
    assert archive.finished
    assert sum(one.operations for one in archive.measured if one.op == "read") > 0
    assert not any(sum(one.failed.values()) for one in archive.measured)
    assert archive.config is not None
    assert tenant(shell(varied), "web").values["secretkey"] not in archive.config


def test_the_cosbench_drivers_s3_keeps_its_contract(varied, tmp_path):
    """This includes the gateway's listings."""
    keep_the_contract(shell(varied), "/etc/hotbed/s3/web.json", ("s3",), tmp_path)


def test_objects_are_in_the_pool_that_controllers_look_at(varied):
    pools = json.loads(shell(varied).run(["ceph", "osd", "pool", "ls", "-f", "json"]).text)
    assert pools.count("default.rgw.buckets.data") == 1
    put = "echo there | rados -p default.rgw.buckets.data put mark -"
    shell(varied).run(["sh", "-c", put])
    assert "mark" in shell(varied).run(["rados", "-p", "default.rgw.buckets.data", "ls"]).text


def test_removed_nothing_is_left(varied):
    """This includes the gateway and the keys of its tenants. A second removal has nothing to do."""
    assert_removed(varied, VARIANT)
    assert sum(remove(varied, VARIANT).values()) == 0
