"""Swift microstores on nodes of this machine: deployed, changed under load, broken, taken away."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import reach
from testbed.agent.client import AgentClient, agent_client
from testbed.deploy import deploy, remove, save_spec
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import Places
from testbed.spec import load_spec, renamed
from tests.testbed.stores_contract import keep_the_contract
from tests.testbed.swift_client import Client, Stored

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

SPEC = renamed(load_spec(Path(__file__).parents[2] / "testbed/specs/mos-quick.yaml"), "swift-test")
NODES = SPEC.node_names()


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    found = LocalSite(
        places=Places(Path("/var/lib/hotbed-tests-swift"), Places.of_environment().cache)
    )
    found.release(SPEC.name)
    yield found
    found.release(SPEC.name)


@pytest.fixture(scope="module")
def deployed(site: LocalSite) -> Testbed:
    testbed = site.provision(SPEC)
    save_spec(testbed, SPEC)
    changed = deploy(testbed, SPEC, site=site)
    assert all(changed[node] > 0 for node in NODES)
    return testbed


@pytest.fixture
def agent(deployed: Testbed) -> AgentClient:
    return agent_client(deployed)


@pytest.fixture(scope="module")
def stored(deployed: Testbed) -> Stored:
    found = Stored(client(deployed, "small"), "objects")
    for number in range(40):
        assert found.put(f"first-{number}", 1000 * number)
    return found


def client(testbed: Testbed, tenant: str) -> Client:
    """As a driver does: by the file that the store keeps on client nodes."""
    path = f"/etc/hotbed/swift/{tenant}.json"
    assert run(testbed, "admin", f"stat -c %a {path}").strip() == "600"
    return Client(json.loads(run(testbed, "admin", f"cat {path}")))


def quota(testbed: Testbed, node: str, group: str) -> float:
    text = run(testbed, node, f"cat /opt/hotbed-site/cpu/swift-{group}/cpu.cfs_quota_us")
    return int(text) / 25_000


def test_nothing_secret_is_where_others_look(deployed: Testbed) -> None:
    secrets = json.loads((deployed.directory / "swift-secrets.json").read_text())
    keys = [secrets["prefix"], secrets["suffix"], *secrets["keys"].values()]
    log = (deployed.directory / "deploy.log").read_text()
    inventory = "".join(
        path.read_text() for path in (deployed.directory / "ansible/inventory").rglob("*.json")
    )
    for node in NODES:
        log += run(deployed, node, "ps -eo args; cat /etc/hotbed/swift/cluster.json || true")
    for key in keys:
        assert key not in log
        assert key not in inventory


def test_a_second_run_changes_nothing(site: LocalSite, deployed: Testbed) -> None:
    assert deploy(deployed, SPEC, site=site) == dict.fromkeys(NODES, 0)


def test_shares_change_within_a_second_and_nothing_fails(
    deployed: Testbed, agent: AgentClient, stored: Stored
) -> None:
    assert quota(deployed, "proxy0", "proxy") == pytest.approx(0.4)
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
            assert quota(deployed, "proxy0", "proxy") == pytest.approx(cores)
            shown = json.loads(run(deployed, "proxy0", "tc -j qdisc show dev eth0"))
            assert shown[0]["options"]["rate"] == pytest.approx(network, rel=0.01)
        assert stored.failed == failed
    [effect] = agent.call("swift-restore", {"state": before})
    assert effect["ok"], effect
    assert quota(deployed, "proxy0", "proxy") == pytest.approx(0.4)


def test_tenants_are_seen_and_mapped(deployed: Testbed, agent: AgentClient, stored: Stored) -> None:
    with stored.load():
        seen = agent.call("swift-sense", {"interval_s": 3})
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
    assert effect["ok"], effect
    other = Stored(client(deployed, "small"), "objects")
    other.sums = dict(list(stored.sums.items())[:20])
    assert other.lost() == []
    agent.call("swift-restore")


def test_the_cosbench_drivers_stores_keep_their_contract(deployed: Testbed, tmp_path: Path) -> None:
    """Through Swift's own protocol and through s3api, which lists otherwise."""
    shell = reach.shell_to(deployed, deployed.node("admin"))
    keep_the_contract(shell, "/etc/hotbed/swift/small.json", ("swift", "s3"), tmp_path)


def test_processes_change_without_refusing(agent: AgentClient, stored: Stored) -> None:
    with stored.load():
        for count in (2, 1):
            action = {"action": "workers", "microstore": "small", "workers": count}
            [effect] = agent.call("swift-act", {"actions": [action]})
            assert effect["ok"], effect
    assert stored.lost() == []


def test_a_half_written_ring_is_never_read(
    deployed: Testbed, agent: AgentClient, stored: Stored
) -> None:
    """Refused by the node's daemon; and one that a crash left beside the ring is not looked at."""
    path = "/etc/hotbed/swift/small/object.ring.gz"
    before = run(deployed, "proxy0", f"sha256sum < {path}")
    whole = base64.b64decode(run(deployed, "proxy0", f"base64 -w0 {path}"))
    run(
        deployed,
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
        shell = reach.shell_to(deployed, deployed.node("proxy0"))
        answer = json.loads(
            shell.run(["sh", "-c", script], input=json.dumps(body).encode() + b"\n").text
        )
        assert not answer["ok"]
        assert said in answer["error"]
    assert run(deployed, "proxy0", f"sha256sum < {path}") == before
    run(deployed, "proxy0", "systemctl restart hotbed-swift-proxy")
    assert stored.lost() == []


def test_a_proxy_that_is_killed_comes_back(
    deployed: Testbed, agent: AgentClient, stored: Stored
) -> None:
    with stored.load():
        time.sleep(1)
        run(deployed, "proxy0", "systemctl kill -s KILL hotbed-swift-proxy")
        agent.call("swift-ready", {"timeout_s": 60}, timeout_s=90)
        failed = stored.failed
        time.sleep(1)
    assert failed > 0  # they were counted
    assert stored.lost() == []


def test_a_full_disk_loses_nothing(deployed: Testbed, stored: Stored) -> None:
    fill = "/srv/hotbed-swift/d0/fill"
    run(
        deployed,
        "storage0",
        f"fallocate -l $(($(stat -f -c '%a * %S' /srv/hotbed-swift/d0) - 65536)) {fill}",
    )
    try:
        with stored.load():
            time.sleep(4)
        assert stored.lost() == []
    finally:
        run(deployed, "storage0", f"rm -f {fill}")


def test_a_storage_node_that_dies_under_load_loses_nothing(
    site: LocalSite, deployed: Testbed, agent: AgentClient, stored: Stored
) -> None:
    with stored.load():
        time.sleep(1)
        run(
            deployed,
            "storage1",
            "systemctl kill -s KILL 'hotbed-swift-*-small' 'hotbed-swift-*-large'",
        )
        site.link(SPEC.name, "storage1", False)
        time.sleep(5)
    assert stored.lost() == []
    down = agent.call("swift-status", timeout_s=90)
    assert "storage1" in down["lost"]
    site.link(SPEC.name, "storage1", True)
    run(deployed, "storage1", "systemctl start 'hotbed-swift-*-small' 'hotbed-swift-*-large'")
    [effect] = agent.call("swift-act", {"actions": [{"action": "replicate"}]}, timeout_s=300)
    assert effect["ok"], effect
    assert stored.lost() == []


@pytest.mark.timeout(900)
def test_a_storage_node_leaves_and_returns_under_load(
    deployed: Testbed, agent: AgentClient, stored: Stored
) -> None:
    with stored.load(threads=2):
        failed = stored.failed
        leave: dict[str, Any] = {"action": "remove-storage", "node": "storage2"}
        [effect] = agent.call("swift-act", {"actions": [leave]}, timeout_s=600)
        assert effect["ok"], effect
        back = {"action": "add-storage", "node": "storage2", "microstore": "small"}
        [effect] = agent.call("swift-act", {"actions": [back]}, timeout_s=120)
        assert effect["ok"], effect
        assert stored.failed == failed
    assert stored.lost() == []


def test_removed_it_leaves_nothing_and_can_be_deployed_again(
    site: LocalSite, deployed: Testbed
) -> None:
    remove(deployed, SPEC, site=site)
    look = (
        "ls -d /etc/hotbed /etc/swift /srv/hotbed-swift /run/hotbed* /opt/hotbed /var/lib/hotbed "
        "/etc/systemd/system/hotbed-* 2>/dev/null; getent passwd hotbed-swift; "
        "ps -eo args | grep -c '[s]wift-'; mount | grep srv"
    )
    for node in NODES:
        assert run(deployed, node, f"({look}) || true").split() == ["0"], node
    # Ceph's and NFS's tests deploy again; what was wiped here is all that differs.
    assert "XFSB" not in run(deployed, "storage0", "head -c 4 /dev/hotbed/osd | tr -d '\\0'")
