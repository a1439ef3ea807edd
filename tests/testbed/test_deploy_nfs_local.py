"""NFS servers and a plan on nodes of this machine: deployed, used, enforced, removed."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.grounds.live import LoadMeter
from campaigns.papers.prioritymeister import apply as work
from testbed import reach
from testbed.client import agent_client
from testbed.deploy.enforcement import NfsEnforcement
from testbed.deploy.lifecycle import start_store, stop_store
from testbed.deploy.nfs_variables import profile_of
from testbed.deploy.roles import deploy, remove
from testbed.sites.contract import Testbed
from tests.testbed.ceph_beds import killed_at
from tests.testbed.nfs_testbed import NODES, SPEC, nfs_site
from tests.testbed.strangers import assert_only_documented_ports_answer

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

UNITS = ("hotbed-rpcbind", "hotbed-ganesha", "hotbed-nfsproxy")


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


@pytest.fixture(scope="module")
def served(nfs_testbed):
    for node, name in (("client0", "web"), ("client1", "load")):
        run(nfs_testbed, node, replay(nfs_testbed, "prepare", name, "--size", "8MiB"))
    return nfs_testbed


@pytest.fixture
def enforcement(served):
    return NfsEnforcement(served)


def replay(testbed: Testbed, verb: str, name: str, *more: object) -> str:
    """Return the command line of the replayer on a client."""
    server = testbed.node("server").address
    words = ["/usr/local/bin/hotbed-replay", verb, "--server", f"{server}:2049"]
    words += ["--mount", f"{server}:20048", "--export", "/export", "--file", name]
    return " ".join([*words, *map(str, more)])


def test_deployed_it_serves_and_a_second_run_changes_nothing(served):
    assert deploy(served, SPEC, site=nfs_site()) == dict.fromkeys(NODES, 0)
    for unit in UNITS:
        assert run(served, "server", f"systemctl is-active {unit}").strip() == "active"
    listening = run(served, "server", "ss -Hltn | awk '{print $4}'").split()
    address = served.node("server").address
    ports = {where.rpartition(":")[2]: where.rpartition(":")[0] for where in listening}
    assert "127.0.0.1" in ports["12049"]
    assert "127.0.0.1" in ports["12048"]
    assert ports["2049"] == ports["20048"] == ports["9811"] == address
    assert "111" not in ports
    found = agent_client(served).call("versions")
    assert f"nfs-ganesha={found['nfs-ganesha']}" in found["packages"]


def test_only_clients_of_the_testbed_are_served(served):
    call = (
        "import socket, sys\n"
        "with socket.create_connection((sys.argv[1], 2049), 5) as connection:\n"
        "    try:\n"
        "        print(connection.recv(9))\n"
        "    except ConnectionResetError:\n"
        "        print(b'')\n"
    )
    argv = ["python3", "-c", call, served.node("server").address]
    said = reach.shell_to(served, served.node("admin")).run(argv).text
    assert said.strip() == "b''"


def test_to_a_stranger_only_documented_ports_answer(served):
    assert_only_documented_ports_answer(served, SPEC)


def test_files_are_the_same_byte_for_byte_while_parameters_change(served, enforcement):
    """Files are written, read, truncated, renamed and removed by two clients, under other load."""
    policies: list[dict[str, Any]] = [
        {"policy": "pm", "workloads": [{"priority": 1, "pairs": [[0.9, 0.1]]}, {"priority": 2}]},
        {"policy": "ps", "workloads": [{"weight": 3}, {}]},
        {"policy": "edf", "workloads": [{"slo": 0.1}, {"slo": 1}]},
        {"policy": "none", "workloads": [{}, {}]},
    ]
    clients = [served.node(f"client{n}") for n in range(2)]
    before = enforcement.status("server")
    with ThreadPoolExecutor(3) as pool:
        same = [
            pool.submit(run, served, node, replay(served, "check", f"f-{node}", "--steps", 120))
            for node in ("client0", "client1")
        ]
        more = "--size 16KiB --depth 2 --duration 6s"
        load = pool.submit(run, served, "client1", replay(served, "load", "load", more))
        turns = 0
        while not all(future.done() for future in same):
            for policy in policies:
                workloads = [
                    {"name": node.name, "clients": [node.address], **one}
                    for node, one in zip(clients, policy["workloads"], strict=True)
                ]
                enforcement.put("server", {**policy, "depth": 2, "workloads": workloads})
                turns += 1
    for future in same:
        assert json.loads(future.result())["same"] is True
    assert turns >= len(policies)
    result = json.loads(load.result())
    assert not result.get("errors")
    assert result["whole"]["requests"] > 0
    status = enforcement.status("server")
    assert all(status[count] == before[count] for count in ("lost", "timed_out"))
    enforcement.default("server")
    assert enforcement.parameters("server")["policy"] == "none"


def topology(folder: Path) -> Path:
    disk = SPEC.groups[1].disk
    assert disk is not None
    (folder / "disk.json").write_text(json.dumps(profile_of(disk)))
    for name, kind in (("web", "DiskRead"), ("copy", "DiskWrite")):
        rows = [f"{n * 40_000_000},1000,{kind},{n * 7 % 100 << 16:x}" for n in range(100)]
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    hosts = {name: {"link": "100Mbit"} for name in ("client0", "client1")}
    path = folder / "topology.yaml"
    workloads = [
        {"name": name, "client": client, "server": "server", "trace": f"{name}.csv"}
        | {"slo": {"latency": slo}}
        for name, client, slo in (("web", "client0", "100ms"), ("copy", "client1", "1s"))
    ]
    server = {"link": "100Mbit", "devices": {"disk": "disk.json"}}
    path.write_text(yaml.safe_dump({"hosts": {**hosts, "server": server}, "workloads": workloads}))
    return path


def shaping(testbed: Testbed, node: str) -> str:
    """Return the output of tc and nft about a node's shaping."""
    return run(
        testbed,
        node,
        'tc -j qdisc show dev eth0 | sed \'s/"handle":"[^"]*"//g\'; tc filter show dev eth0; '
        "nft list ruleset ip; ip -d link show eth0 | grep -o 'gso_max_segs [0-9]*'",
    )


def test_a_plan_is_put_into_force_checked_and_taken_away(served, enforcement, tmp_path):
    before = {node: shaping(served, node) for node in NODES}
    done = work.apply(served, SPEC, topology(tmp_path))
    assert (done.policy, done.met, done.restarted) == ("pm", True, ())
    assert done.hosts == {"client0": 1, "client1": 1, "server": 2}
    for node in ("client0", "client1", "server"):
        assert "dscp set cs" in shaping(served, node)
    marked = "nft list table ip hotbed | grep -o 'packets [0-9]*' | head -n 1"
    run(served, "client0", replay(served, "load", "web", "--size 4KiB --depth 1 --duration 1s"))
    assert int(run(served, "client0", marked).split()[1]) > 10
    assert work.check(served).differences == {}
    settings = LoadMeter(nfs_site(), served)
    assert "htb" in settings.require_settings()["groups.server.network_sent"]
    workloads = enforcement.status("server")["workloads"]
    assert {one["name"] for one in workloads} == {"web", "copy", "unknown"}
    # A change from outside is detected, and applying again restores the settings.
    run(served, "client0", "tc filter del dev eth0 parent 1: prio 20")
    assert "client0" in work.check(served).differences
    work.apply(served, SPEC, topology(tmp_path), policy="byslo")
    assert work.check(served).differences == {}
    work.remove(served)
    assert {node: shaping(served, node) for node in NODES} == before
    assert settings.require_settings()["groups.server.network_sent"] == pytest.approx(100e6)
    assert enforcement.network_check() == {}


def reading(served: Testbed, seconds: float) -> dict[str, float]:
    """Return the bytes per second of each client when both read the cache at full speed."""
    with ThreadPoolExecutor(2) as pool:
        more = f"--size 64KiB --depth 8 --duration {seconds}s"
        futures = {
            node: pool.submit(run, served, node, replay(served, "load", name, more))
            for node, name in (("client0", "web"), ("client1", "load"))
        }
    results = {node: json.loads(future.result()) for node, future in futures.items()}
    return {node: 65536 * one["whole"]["requests"] / seconds for node, one in results.items()}


def test_priorities_and_buckets_act_on_a_saturated_link(served, enforcement):
    """Two clients read from a server, and the link cannot serve both."""
    server, seconds = served.node("server").address, 4.0

    def flow(client: str, level: int, pairs: list[list[float]]) -> dict[str, Any]:
        mark = 64 - 8 * level
        flow = {"workload": client, "stage": "network-out", "to": client, "level": level}
        where = {"source": [server], "destination": [served.node(client).address]}
        return {**flow, "dscp": mark, "pairs": pairs, **where}

    def put(*flows: dict[str, Any]) -> None:
        hosts = {"server": {"queue": "server->switch", "rate": 12.5e6, "flows": list(flows)}}
        enforcement.network_apply({"mode": "priority", "hosts": hosts})

    put(flow("client0", 1, []), flow("client1", 2, []))
    got = reading(served, seconds)
    assert got["client0"] > 4 * got["client1"]
    put(flow("client0", 2, []), flow("client1", 1, []))
    got = reading(served, seconds)
    assert got["client1"] > 4 * got["client0"]
    rate, burst = 2e6, 4e5
    put(flow("client0", 1, [[rate, burst]]), flow("client1", 2, []))
    got = reading(served, seconds)
    assert seconds * got["client0"] <= rate * (seconds + 0.5) + burst
    assert got["client1"] > got["client0"]
    enforcement.remove()


def test_stopped_and_started_it_serves(served):
    stop_store(served)
    assert run(served, "server", "pgrep -c ganesha || true").strip() == "0"
    start_store(served)
    run(served, "client0", replay(served, "check", "again", "--steps", 20))


@pytest.fixture(scope="module")
def nfs_removed(nfs_testbed, tmp_path_factory):
    """Remove the store while a plan is in force and return every node's shaping before the plan."""
    before = {node: shaping(nfs_testbed, node) for node in NODES}
    work.apply(nfs_testbed, SPEC, topology(tmp_path_factory.mktemp("plan")))
    assert sum(remove(nfs_testbed, SPEC).values()) == len(NODES)
    return before


def test_removed_nothing_is_left(nfs_testbed, nfs_removed):
    for node in NODES:
        left = run(
            nfs_testbed,
            node,
            "ls -d /etc/hotbed /opt/hotbed /var/lib/hotbed /usr/local/bin/hotbed-* /run/hotbed "
            "/etc/systemd/system/*hotbed* /etc/systemd/system/*.wants/*hotbed* /run/rpcbind.sock "
            "/var/lib/nfs/ganesha 2>/dev/null; pgrep -a 'ganesha|rpcbind|hotbed'; "
            "grep -s hotbed /etc/hosts; nft list tables inet; true",
        )
        assert left == ""
        assert shaping(nfs_testbed, node) == nfs_removed[node]
    assert sum(remove(nfs_testbed, SPEC).values()) == 0


@pytest.mark.usefixtures("nfs_removed")
def test_a_killed_deployment_goes_with_the_testbed(nfs_testbed):
    killed_at(nfs_testbed, SPEC, "base: ")
    marks = (nfs_testbed.directory, reach.control_dir(SPEC.name, nfs_testbed.directory))
    nfs_site().release(SPEC.name)
    for mark in marks:
        listing = ["pgrep", "-af", str(mark)]
        left = subprocess.run(listing, capture_output=True, text=True, check=False)
        assert left.stdout == ""
        assert not mark.exists()
    assert nfs_site().find(SPEC.name) is None
