"""Swift microstores on nodes of this machine: deployed, changed under load, broken."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any

import pytest

from campaigns.grounds.live import LoadMeter
from testbed import reach
from testbed.deploy.roles import deploy
from tests.testbed.stores_contract import keep_the_contract
from tests.testbed.swift_beds import Bed
from tests.testbed.swift_client import Stored

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]


@pytest.fixture
def agent(bed):
    return bed.agent


@pytest.fixture(scope="module")
def stored(bed):
    found = Stored(bed.client("small"), "objects")
    for number in range(40):
        assert found.put(f"first-{number}", 1000 * number)
    return found


def quota(bed: Bed, node: str, group: str) -> float:
    text = bed.run(node, f"cat /opt/hotbed-site/cpu/swift-{group}/cpu.cfs_quota_us")
    return int(text) / 25_000


def test_nothing_secret_is_where_others_look(bed):
    secrets = json.loads((bed.testbed.directory / "swift-secrets.json").read_text())
    keys = [secrets["prefix"], secrets["suffix"], *secrets["keys"].values()]
    log = (bed.testbed.directory / "deploy.log").read_text()
    inventory = "".join(
        path.read_text() for path in (bed.testbed.directory / "ansible/inventory").rglob("*.json")
    )
    for node in bed.spec.node_names():
        log += bed.run(node, "ps -eo args; cat /etc/hotbed/swift/cluster.json || true")
    for key in keys:
        assert key not in log
        assert key not in inventory
    keys_of_tenants = "/etc/hotbed/swift/small.json /etc/hotbed/swift/large.json"
    assert bed.run("admin", f"stat -c %a {keys_of_tenants}").split() == ["600", "600"]


def test_a_second_run_changes_nothing(bed):
    again = deploy(bed.testbed, bed.spec, site=bed.site)
    assert again == dict.fromkeys(bed.spec.node_names(), 0)


def test_shares_change_within_a_second_and_nothing_fails(bed, agent, stored):
    assert quota(bed, "proxy0", "proxy") == pytest.approx(0.4)
    before = agent.call("swift-status")["state"]
    with stored.load():
        failed = stored.failed
        for cores, network in ((0.6, 15e6), (0.2, 35e6)):
            other = {"proxy_cores": 0.8 - cores, "storage_cores": 0.6, "network": 50e6 - network}
            mine = {"proxy_cores": cores, "storage_cores": 0.6, "network": network}
            actions = [
                {"action": "SetResources", "microstore": name, "resources": share}
                for name, share in (("small", mine), ("large", other))
            ]
            effects = agent.call("swift-act", {"actions": actions})
            assert all(effect["ok"] for effect in effects), effects
            assert quota(bed, "proxy0", "proxy") == pytest.approx(cores)
            shown = json.loads(bed.run("proxy0", "tc -j qdisc show dev eth0"))
            assert shown[0]["options"]["rate"] == pytest.approx(network, rel=0.01)
            read = LoadMeter(bed.site, bed.testbed).require_settings()
            sent = read["groups.proxy.network_sent"]
            assert sent["proxy0"] == pytest.approx(8 * network, rel=0.01)
        assert stored.failed == failed
    [effect] = agent.call("swift-restore", {"state": before})
    assert effect["ok"], effect["message"]
    assert quota(bed, "proxy0", "proxy") == pytest.approx(0.4)


def test_tenants_are_seen_and_mapped(bed, agent, stored):
    with stored.load():
        seen = agent.call("swift-status", {"interval_s": 3})["microstores"]
    tenants = {tenant["name"]: tenant for tenant in seen["tenants"]}
    assert tenants["small"]["requests_s"] > 1
    assert tenants["small"]["mean_latency_s"] > 0
    assert set(tenants["small"]["sizes"]) <= {"14"} | {str(n) for n in range(17)}
    assert tenants["large"]["requests_s"] == 0
    stores = {store["name"]: store for store in seen["stores"]}
    assert 0.02 < stores["small"]["utilization"]["proxy_cpu"] <= 1
    assert len(stores["small"]["slots"]) >= 5
    action = {"action": "MapTenant", "tenant": "small", "microstore": "large"}
    [effect] = agent.call("swift-act", {"actions": [action]})
    assert effect["ok"], effect["message"]
    other = Stored(bed.client("small"), "objects")
    other.sums = dict(list(stored.sums.items())[:20])
    assert other.lost() == []
    agent.call("swift-restore")


def test_the_cosbench_drivers_stores_keep_their_contract(bed, tmp_path):
    """Both Swift's own protocol and s3api, which has different listings."""
    shell = reach.shell_to(bed.testbed, bed.testbed.node("admin"))
    keep_the_contract(shell, "/etc/hotbed/swift/small.json", ("swift", "s3"), tmp_path)


def test_processes_change_without_refusing(agent, stored):
    with stored.load():
        for count in (2, 1):
            action = {"action": "workers", "microstore": "small", "workers": count}
            [effect] = agent.call("swift-act", {"actions": [action]})
            assert effect["ok"], effect["message"]
    assert stored.lost() == []


def test_a_half_written_ring_is_never_read(bed, agent, stored):
    """The node's daemon refuses it, and ignores a file left next to the ring by a crash."""
    path = "/etc/hotbed/swift/small/object.ring.gz"
    before = bed.run("proxy0", f"sha256sum < {path}")
    whole = base64.b64decode(bed.run("proxy0", f"base64 -w0 {path}"))
    bed.run(
        "proxy0",
        f"head -c {len(whole) // 2} {path} > /etc/hotbed/swift/small/.object.ring.gz.new",
    )
    half = base64.b64encode(whole[: len(whole) // 2]).decode()
    request = {
        "op": "ring",
        "microstore": "small",
        "rings": dict.fromkeys(("object", "container", "account"), half),
    }
    digest = hashlib.sha256(base64.b64decode(half)).hexdigest()
    for digests, said in (("0" * 64, "is not what was sent"), (digest, "is cut off or damaged")):
        body = request | {"digests": dict.fromkeys(("object", "container", "account"), digests)}
        script = "cd /opt/hotbed && python3 -m testbed.stores.swift.relay"
        shell = reach.shell_to(bed.testbed, bed.testbed.node("proxy0"))
        answer = json.loads(
            shell.run(["sh", "-c", script], input=json.dumps(body).encode() + b"\n").text
        )
        assert not answer["ok"]
        assert said in answer["error"]
    assert bed.run("proxy0", f"sha256sum < {path}") == before
    bed.run("proxy0", "systemctl restart hotbed-swift-proxy")
    assert stored.lost() == []


def test_a_proxy_that_is_killed_comes_back(bed, agent, stored):
    with stored.load():
        time.sleep(1)
        bed.run("proxy0", "systemctl kill -s KILL hotbed-swift-proxy")
        agent.call("swift-ready", {"timeout_s": 60}, timeout_s=90)
        failed = stored.failed
        time.sleep(1)
    assert failed > 0  # they were counted
    assert stored.lost() == []


def test_a_full_disk_loses_nothing(bed, stored):
    fill = "/srv/hotbed-swift/d0/fill"
    bed.run(
        "storage0",
        f"fallocate -l $(($(stat -f -c '%a * %S' /srv/hotbed-swift/d0) - 65536)) {fill}",
    )
    try:
        with stored.load():
            time.sleep(4)
        assert stored.lost() == []
    finally:
        bed.run("storage0", f"rm -f {fill}")


def test_a_storage_node_that_dies_under_load_loses_nothing(bed, agent, stored):
    with stored.load():
        time.sleep(1)
        bed.run(
            "storage1",
            "systemctl kill -s KILL 'hotbed-swift-*-small' 'hotbed-swift-*-large'",
        )
        bed.site.link(bed.testbed.name, "storage1", False)
        time.sleep(5)
    assert stored.lost() == []
    down = agent.call("swift-status", timeout_s=90)
    assert "storage1" in down["lost"]
    bed.site.link(bed.testbed.name, "storage1", True)
    bed.run("storage1", "systemctl start 'hotbed-swift-*-small' 'hotbed-swift-*-large'")
    [effect] = agent.call("swift-act", {"actions": [{"action": "replicate"}]}, timeout_s=300)
    assert effect["ok"], effect["message"]
    assert stored.lost() == []


@pytest.mark.timeout(900)
def test_a_storage_node_leaves_and_returns_under_load(bed, agent, stored):
    with stored.load(threads=2):
        failed = stored.failed
        leave: dict[str, Any] = {"action": "remove-storage", "node": "storage2"}
        [effect] = agent.call("swift-act", {"actions": [leave]}, timeout_s=600)
        assert effect["ok"], effect["message"]
        back = {"action": "add-storage", "node": "storage2", "microstore": "small"}
        [effect] = agent.call("swift-act", {"actions": [back]}, timeout_s=120)
        assert effect["ok"], effect["message"]
        assert stored.failed == failed
    assert stored.lost() == []
