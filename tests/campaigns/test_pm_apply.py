"""Topology on a testbed: misfits are reported, and the settings in force are compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.papers.prioritymeister import apply as work
from campaigns.papers.prioritymeister.topology import load_topology
from schemas.errors import StoreError, UserError
from testbed.sites.contract import Testbed
from testbed.sites.fake import FakeSite
from testbed.spec import TestbedSpec

DISK = {"size": "2GiB", "scratch": 0}
SPEC = TestbedSpec.model_validate(
    {
        "name": "t",
        "network": {"priority_levels": 7},
        "groups": [
            {"name": "admin", "roles": ["admin"]},
            {"name": "s0", "roles": ["nfs"], "disk": DISK, "network": "1Gbit"},
            {"name": "c", "count": 2, "roles": ["client"], "network": "1Gbit"},
        ],
        "store": {"kind": "nfs", "depth": 2},
    }
)
PROFILE = {"type": "storageConstant", "base": 0.001, "readBandwidth": 1e8, "writeBandwidth": 1e8}


def workload(name: str, client: str, **changes: object) -> dict[str, Any]:
    slo = {"latency": "2s"}
    return {"name": name, "client": client, "server": "s0", "trace": "t.csv", "slo": slo, **changes}


TOPOLOGY: dict[str, Any] = {
    "hosts": {"s0": {"link": "1Gbit", "devices": {"disk": "disk.json"}}, "c0": {}, "c1": {}},
    "workloads": [workload("web", "c0"), workload("copy", "c1")],
}


def written(folder: Path, **changes: object) -> Path:
    (folder / "disk.json").write_text(json.dumps(PROFILE))
    rows = [f"{n * 50_000_000},1000,DiskRead" for n in range(40)]
    (folder / "t.csv").write_text("\n".join(rows) + "\n")
    path = folder / "topology.yaml"
    path.write_text(yaml.safe_dump({**TOPOLOGY, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"hosts": {**TOPOLOGY["hosts"], "db": {}}},
            "host db: testbed t has no such node; it has admin, s0, c0, c1",
        ),
        (
            {"hosts": {**TOPOLOGY["hosts"], "c0": {"link": "10Gbit"}}},
            "host c0: its egress is 1e",
        ),
        ({"workloads": [workload("web", "admin")]}, "there is no host 'admin'"),
        (
            {
                "hosts": {**TOPOLOGY["hosts"], "admin": {}},
                "workloads": [workload("web", "admin")],
            },
            "workload web: client admin has not the role client on testbed t; .*: c0, c1",
        ),
        (
            {"workloads": [workload("web", "c0"), workload("copy", "c0")]},
            "workloads web and copy go from c0 to s0: they cannot be told apart",
        ),
        (
            {
                "hosts": {
                    **TOPOLOGY["hosts"],
                    "s0": {"devices": {"disk": {"profile": "disk.json", "speed": 2}}},
                }
            },
            "device s0:disk has a speed",
        ),
    ],
)
def test_what_does_not_fit_is_told(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(UserError, match=said):
        work.check_fits(load_topology(path), SPEC, path)


def test_the_papers_topology_fits(tmp_path: Path) -> None:
    path = written(tmp_path)
    work.check_fits(load_topology(path), SPEC, path)


class Memory:
    """`Enforcement` with a testbed that accepts everything."""

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.applied: Mapping[str, Any] | None = None
        self.profiles: dict[str, Any] = {}
        self.wrong: dict[str, list[str]] = {}
        self.removed = False

    def addresses(self) -> dict[str, tuple[str, ...]]:
        return {node.name: (node.address,) for node in self.testbed.nodes}

    def put_profile(self, server: str, profile: Any) -> bool:
        before = self.profiles.get(server)
        self.profiles[server] = profile
        return bool(before != profile)

    def apply(self, parameters: Mapping[str, Any], *, unknown: str) -> None:
        assert unknown == "refuse"
        self.applied = parameters

    def network_check(self, network: Any = None) -> dict[str, list[str]]:
        return dict(self.wrong)

    def parameters(self, server: str) -> Mapping[str, Any]:
        assert self.applied is not None
        found: Mapping[str, Any] = self.applied["storage"][f"{server}:disk"]
        return found

    def remove(self) -> None:
        self.removed = True


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    return FakeSite(tmp_path).provision(SPEC)


@pytest.fixture
def memory(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Memory:
    found = Memory(testbed)
    monkeypatch.setattr(work, "Enforcement", lambda testbed: found)
    return found


def test_a_plan_is_applied_checked_and_removed(
    tmp_path: Path, testbed: Testbed, memory: Memory
) -> None:
    with pytest.raises(UserError, match="no plan was applied; hotbed pm apply TOPOLOGY"):
        work.check(testbed)
    done = work.apply(testbed, SPEC, written(tmp_path))
    assert (done.policy, done.met, done.restarted) == ("pm", True, ("s0",))
    assert done.servers == {"s0": ("web", "copy")}
    assert done.hosts == {"c0": 1, "c1": 1, "s0": 2}
    assert "pm, which meets all SLOs: 2 workloads at 1 servers, 4 flows" in done.sentence()
    assert memory.applied is not None
    storage = memory.applied["storage"]["s0:disk"]
    assert storage["depth"] == 2
    assert storage["workloads"][0]["clients"] == [testbed.node("c0").address]
    flow = memory.applied["network"]["hosts"]["s0"]["flows"][0]
    assert flow["destination"] == (testbed.node("c0").address,) or flow["destination"] == [
        testbed.node("c0").address
    ]
    assert work.check(testbed).differences == {}
    again = work.apply(testbed, SPEC, written(tmp_path), policy="byslo", depth=1)
    assert (again.met, again.restarted) == (None, ())
    memory.wrong = {"c0": ["class 1:100 is missing"]}
    assert work.check(testbed).sentence() == "t: c0: class 1:100 is missing"
    with pytest.raises(StoreError, match="node c0: after it was applied, class 1:100 is missing"):
        work.apply(testbed, SPEC, written(tmp_path))
    with pytest.raises(StoreError, match="node c0: after it was removed"):
        work.remove(testbed)
    memory.wrong = {}
    work.remove(testbed)
    assert memory.removed
    with pytest.raises(UserError, match="no plan was applied"):
        work.check(testbed)


def test_a_plan_for_a_testbed_counts_what_its_network_keeps(
    tmp_path: Path, testbed: Testbed, memory: Memory
) -> None:
    heard: list[str] = []
    work.apply(testbed, SPEC, written(tmp_path), tell=heard.append)
    assert memory.applied is not None
    hosts = memory.applied["network"]["hosts"].values()
    bursts = [pair[1] for host in hosts for flow in host["flows"] for pair in flow["pairs"]]
    assert min(bursts) == 1538.0  # HTB's minimum
    said = "links: {share: 0.945, mtu: 1500, enforcer: htb}"
    assert any(text.endswith(said) for text in heard)
    links: dict[str, Any] = {"share": 0.945, "mtu": 1500, "enforcer": "htb"}
    first = memory.applied
    work.apply(testbed, SPEC, written(tmp_path, links=links))
    assert memory.applied == first
    for more in ({"share": 1.0}, {"enforcer": "exact"}, {"overshoot": 1000}):
        with pytest.raises(UserError, match=r"keeps less of a plan: write links: \{share: 0\.945"):
            work.apply(testbed, SPEC, written(tmp_path, links=links | more))
    jumbo = {**SPEC.model_dump(), "network": {"priority_levels": 7, "mtu": 9000}}
    with pytest.raises(UserError, match="mtu: 9000"):
        work.apply(testbed, TestbedSpec.model_validate(jumbo), written(tmp_path, links=links))
    work.apply(testbed, SPEC, written(tmp_path, links=links | {"share": 1.0}), policy="ps")


def test_a_policy_without_network_installs_none(
    tmp_path: Path, testbed: Testbed, memory: Memory
) -> None:
    for policy, network in (("ps", True), ("pm", False)):
        done = work.apply(testbed, SPEC, written(tmp_path), policy=policy, network=network)
        assert done.hosts == {}
        assert "no network enforcement" in done.sentence()
    assert memory.applied is not None
    assert memory.applied["network"]["mode"] == "fifo"


def test_levels_that_the_switch_has_not_are_refused(
    tmp_path: Path, testbed: Testbed, memory: Memory
) -> None:
    one = SPEC.model_copy(update={"network": None})
    with pytest.raises(UserError, match=r"network levels, and the switch of testbed t has 0"):
        work.apply(testbed, one, written(tmp_path), policy="byslo")
    assert memory.applied is None


@pytest.mark.usefixtures("memory")
def test_what_is_no_policy_is_told(tmp_path: Path, testbed: Testbed) -> None:
    with pytest.raises(UserError, match="policy 'fair': there are pm, ps"):
        work.apply(testbed, SPEC, written(tmp_path), policy="fair")
    ceph = TestbedSpec.model_validate({**SPEC.model_dump(), "store": None})
    with pytest.raises(UserError, match="testbed t has no NFS servers"):
        work.apply(testbed, ceph, written(tmp_path))


def test_a_proxys_answer_is_compared_by_meaning() -> None:
    web = {"name": "web", "clients": ["10.0.0.1"], "priority": 1, "pairs": [[0.1, 0.2]]}
    wanted = {"policy": "pm", "mode": "hold", "depth": 1, "workloads": [{**web, "slo": 0.05}]}
    same = {"policy": "pm", "depth": 1, "unknown": "refuse", "workloads": [{**web, "slo": 0.05}]}
    assert work.storage_differences(wanted, same) == []
    assert work.storage_differences(wanted, {**same, "policy": "ps"}) == ["policy is ps, not pm"]
    assert work.storage_differences(wanted, {**same, "workloads": []}) == [
        "workload web is missing"
    ]
    other = [{**web, "pairs": [[0.1, 0.3]]}, {"name": "client0"}]
    assert work.storage_differences(wanted, {**same, "workloads": other}) == [
        "workload web: pairs is [[0.1, 0.3]], not [[0.1, 0.2]]",
        "workload web: slo is None, not 0.05",
        "workload client0 is not the plan's",
    ]
