"""PriorityMeister's plans on networks and testbeds: parameters of enforcers, limits of links,
`hotbed pm apply`, and profiles of devices.

Tests name the section of the paper that they hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.papers.prioritymeister import apply as work
from campaigns.papers.prioritymeister.apply import profile_device
from campaigns.papers.prioritymeister.plan import (
    EnforcedPolicy,
    MeasuredTraces,
    load_addresses,
    network_parameters,
    parameters_of,
    plan_of,
    planned,
    storage_parameters,
)
from campaigns.papers.prioritymeister.simulate import (
    SimulationSetting,
    scenario_of,
    simulate_topology,
)
from campaigns.papers.prioritymeister.topology import (
    LINK_SHARE,
    Topology,
    htb_links,
    load_topology,
)
from controllers.prioritymeister.estimators import load_profile
from controllers.prioritymeister.prioritizer import FRAME, PriorityPlan, StagePlan, WorkloadPlan
from schemas.errors import StoreError, UserError
from testbed.sites.contract import Testbed
from testbed.spec import TestbedSpec
from testbed.ssh import Completed
from tests.errors import raises
from tests.papers.prioritymeister_bench import FakeEnforcement
from tests.testbed.fake_site import FakeSite
from workloads.errors import WorkloadError


def topology(slos: dict[str, float | None], levels: int | None = 7) -> Topology:
    """Return workloads on one server, each with its own client; None is a completion SLO."""
    hosts = {f"c-{name}": {"link": 8e8} for name in slos}
    return Topology.model_validate(
        {
            "hosts": {"s": {"link": 1e9, "devices": {"d": "p.json"}}, **hosts},
            "workloads": [
                {
                    "name": name,
                    "client": f"c-{name}",
                    "server": "s",
                    "trace": "t.csv",
                    "slo": {"completion": 60} if slo is None else {"latency": slo},
                }
                for name, slo in slos.items()
            ],
            "network_levels": levels,
        }
    )


def plan_for(given: Topology) -> PriorityPlan:
    """Return a plan with priorities in workload order, and reversed levels on the way out."""
    count = len(given.workloads)

    def stage(name: str, queues: tuple[str, ...], priority: int, level: int | None) -> StagePlan:
        pairs = ((0.9, 0.01 * priority), (0.2, 0.5))
        return StagePlan(name, queues, priority, level, pairs, 0.0, 1.0, 1.0)

    workloads = []
    for k, workload in enumerate(given.workloads, start=1):
        routes = given.routes(workload)
        stages = (
            stage("network-in", routes["network-in"], k, k),
            stage("storage", routes["storage"], k, None),
            stage("network-out", routes["network-out"], count + 1 - k, count + 1 - k),
        )
        workloads.append(WorkloadPlan(workload.name, "latency", 1.0, 1.0, 1.0, True, stages))
    return PriorityPlan(True, tuple(workloads), ())


THREE: dict[str, float | None] = {"a": 0.05, "b": 0.02, "l": None}


def test_the_proxy_has_priorities_buckets_slos_and_clients() -> None:
    """Section 4.6; other policies have parameters of their own (section 5.3)."""
    given, plan = topology(THREE), plan_for(topology(THREE))
    addresses = {"c-a": ["10.0.0.1"], "c-b": ["10.0.0.2"], "b": ["10.0.0.9"]}
    found = storage_parameters(given, plan, "s:d", EnforcedPolicy(), addresses)
    workloads = found.pop("workloads")
    assert found == {"policy": "pm", "depth": 1, "mode": "hold"}
    assert workloads[0] == {
        "name": "a",
        "clients": ["10.0.0.1"],
        "weight": 1.0,
        "slo": 0.05,
        "priority": 1,
        "pairs": [[0.9, 0.01], [0.2, 0.5]],
    }
    assert [(w["clients"], w.get("slo")) for w in workloads[1:]] == [
        (["10.0.0.9"], 0.02),
        ([], None),
    ]
    for reserved, each in ((None, [0.2, 0.2, 0.2]), ({"a": 0.5}, [0.5, 0.0, 0.0])):
        mclock = EnforcedPolicy("mclock", reservations=reserved)
        found = storage_parameters(given, plan, "s:d", mclock)["workloads"]
        assert [w["reservation"] for w in found] == each
    cake = storage_parameters(given, None, "s:d", EnforcedPolicy("cake", cake={"upper": 2}))
    assert cake["cake"] == {"upper": 2}
    assert "priority" not in cake["workloads"][0] and "mode" not in cake
    every = parameters_of(given, plan, EnforcedPolicy(mode="best-effort", depth=4))
    assert list(every.storage) == ["s:d"]
    assert every.storage["s:d"]["mode"] == "best-effort" and every.storage["s:d"]["depth"] == 4
    assert json.loads(every.model_dump_json())["network"]["hosts"]["s"]["rate"] == 1.25e8


def test_hosts_have_the_flows_that_leave_them() -> None:
    """Section 4.6."""
    given = topology(THREE)
    addresses = {"c-a": ["10.0.0.1"], "s": ["10.0.0.100"]}
    found = network_parameters(given, plan_for(given), addresses=addresses)
    marks = [(1, 56, "cs7"), (2, 48, "cs6"), (3, 40, "cs5")]
    assert [(m.level, m.dscp, m.name) for m in found.levels] == marks
    client, server = found.hosts["c-a"], found.hosts["s"]
    assert (client.queue, client.rate) == ("c-a->switch", 1e8)
    flow = client.flows[0]
    assert (flow.workload, flow.stage, flow.to) == ("a", "network-in", "s")
    assert (flow.level, flow.dscp) == (1, 56)
    assert (flow.source, flow.destination) == (("10.0.0.1",), ("10.0.0.100",))
    assert flow.pairs == ((0.9, 0.01), (0.2, 0.5))
    levels = [("a", "c-a", 3), ("b", "c-b", 2), ("l", "c-l", 1)]
    assert [(f.workload, f.to, f.level) for f in server.flows] == levels
    assert server.flows[0].source == ("10.0.0.100",)
    clients = {f"switch->c-{name}": 1e8 for name in "abl"}
    assert found.ports == {**clients, "switch->s": 1.25e8}


def test_by_slo_has_only_levels_and_other_policies_have_nothing() -> None:
    """Section 5.3; more SLOs than levels share them in order."""
    given = topology(THREE)
    found = network_parameters(given, None, policy="byslo")
    assert found.mode == "levels"
    flows = {f.workload: (f.level, f.dscp, f.pairs) for f in found.hosts["s"].flows}
    assert flows == {"a": (2, 48, ()), "b": (1, 56, ()), "l": (3, 40, ())}
    for policy in ("ps", "cake", "edf", "none"):
        found = network_parameters(given, None, policy=policy)
        assert (found.mode, found.levels) == ("fifo", ())
        assert {(f.level, f.dscp, f.pairs) for h in found.hosts.values() for f in h.flows} == {
            (1, 0, ())
        }
    slos: dict[str, float | None] = {f"w{k}": 0.1 * k + 0.1 for k in range(10)}
    flows_of = network_parameters(topology(slos, 4), None, policy="byslo").hosts["s"].flows
    levels = [f.level for f in flows_of]
    assert levels == sorted(levels)
    assert set(levels) == {1, 2, 3, 4}
    free = network_parameters(topology(slos, None), None, policy="byslo")
    assert [f.level for f in free.hosts["s"].flows] == list(range(1, 11))
    assert [m.dscp for m in free.levels] == list(range(63, 53, -1))
    many: dict[str, float | None] = {f"w{k}": 0.1 * k + 0.1 for k in range(64)}
    with raises(UserError, "64 network levels"):
        network_parameters(topology(many, None), None, policy="byslo")


def test_wrong_policies_plans_and_addresses_are_refused(tmp_path: Path) -> None:
    given = topology(THREE)
    plan = plan_for(given)
    for options, allowed in (
        ({"policy": "x"}, "pm, ps"),
        ({"mode": "x"}, "hold, best-effort"),
        ({"depth": -1}, "0 (any number) to 65536"),
    ):
        with raises(UserError, allowed=allowed):
            EnforcedPolicy(**options)
    with raises(UserError, "no workload uses it", allowed="s:d"):
        storage_parameters(given, plan, "s:x", EnforcedPolicy())
    for policy in ("pm", "mclock"):
        with raises(UserError, "from a plan"):
            parameters_of(given, None, EnforcedPolicy(policy))
    with raises(UserError, "from a plan"):
        network_parameters(given, None, policy="ps", mode="priority")
    with raises(UserError, "workload a is not in the plan"):
        parameters_of(given, PriorityPlan(True, (), ()), EnforcedPolicy())
    file = tmp_path / "a.json"
    with raises(UserError, "cannot be read"):
        load_addresses(file)
    for text in ("x", "[]", '{"a": 1}'):
        file.write_text(text)
        with raises(UserError, where="a.json", allowed="{name: [address, ...]}"):
            load_addresses(file)
    file.write_text('{"a": ["10.0.0.1"]}')
    assert load_addresses(file) == {"a": ("10.0.0.1",)}


# `hotbed pm apply`.

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


HOSTS: dict[str, Any] = {
    "s0": {"link": "1Gbit", "devices": {"disk": "disk.json"}},
    **{"c0": {}, "c1": {}},
}
FAST_DISK = {"devices": {"disk": {"profile": "disk.json", "speed": 2}}}
TOPOLOGY: dict[str, Any] = {
    "hosts": HOSTS,
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
    ("changes", "facts"),
    [
        ({"hosts": {**HOSTS, "db": {}}}, ("'db'", "admin, s0")),
        ({"hosts": {**HOSTS, "c0": {"link": "10Gbit"}}}, ("host c0", "its egress is 1e", "1e+09")),
        ({"workloads": [workload("web", "admin")]}, ("no host 'admin'",)),
        (
            {"hosts": {**HOSTS, "admin": {}}, "workloads": [workload("web", "admin")]},
            ("workload web", "admin has not the role client", "c0, c1"),
        ),
        (
            {"workloads": [workload("web", "c0"), workload("copy", "c0")]},
            ("workload copy", "from c0 to s0, as web does"),
        ),
        ({"hosts": {**HOSTS, "s0": FAST_DISK}}, ("device s0:disk has a speed",)),
    ],
)
def test_a_topology_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], facts: tuple[str, ...]
) -> None:
    path = written(tmp_path, **changes)
    with raises(UserError, *facts):
        work.check_fits(load_topology(path), SPEC, path)


class Memory(FakeEnforcement):
    """Proxies and network that accept everything; `differences` of the network by node."""

    def __init__(self, testbed: Testbed) -> None:
        super().__init__()
        self.testbed = testbed
        self.profiles: dict[str, Any] = {}

    def addresses(self) -> dict[str, tuple[str, ...]]:
        return {node.name: (node.address,) for node in self.testbed.nodes}

    def put_profile(self, server: str, profile: Any) -> bool:
        before, self.profiles[server] = self.profiles.get(server), profile
        return bool(before != profile)

    def network_check(self, network: Any = None) -> dict[str, list[str]]:
        return dict(self.differences)


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    return FakeSite(tmp_path).provision(SPEC)


@pytest.fixture
def memory(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Memory:
    found = Memory(testbed)
    monkeypatch.setattr(work, "NfsEnforcement", lambda testbed: found)
    return found


def test_a_plan_is_applied_checked_and_removed(
    tmp_path: Path, testbed: Testbed, memory: Memory
) -> None:
    with raises(UserError, "no plan was applied", do="hotbed pm apply TOPOLOGY.yaml"):
        work.check(testbed)
    done = work.apply(testbed, SPEC, written(tmp_path))
    assert (done.policy, done.met, done.restarted) == ("pm", True, ("s0",))
    assert done.servers == {"s0": ("web", "copy")}
    assert done.hosts == {"c0": 1, "c1": 1, "s0": 2}
    assert "pm, which meets all SLOs: 2 workloads at 1 servers, 4 flows" in done.sentence()
    assert memory.given["storage"]
    storage = memory.given["storage"]["s0:disk"]
    assert storage["depth"] == 2
    assert storage["workloads"][0]["clients"] == [testbed.node("c0").address]
    flow = memory.given["network"]["hosts"]["s0"]["flows"][0]
    assert list(flow["destination"]) == [testbed.node("c0").address]
    assert work.check(testbed).differences == {}
    again = work.apply(testbed, SPEC, written(tmp_path), policy="byslo", depth=1)
    assert (again.met, again.restarted) == (None, ())
    memory.differences = {"c0": ["class 1:100 is missing"]}
    assert work.check(testbed).sentence() == "t: c0: class 1:100 is missing"
    with raises(StoreError, "node c0: after it was applied, class 1:100 is missing"):
        work.apply(testbed, SPEC, written(tmp_path))
    with raises(StoreError, "node c0: after it was removed"):
        work.remove(testbed)
    memory.differences = {}
    work.remove(testbed)
    assert memory.calls[-1] == "removed"
    with raises(UserError, "no plan was applied"):
        work.check(testbed)


def test_a_plan_for_a_testbed_counts_its_networks_limits(
    tmp_path: Path, testbed: Testbed, memory: Memory
) -> None:
    heard: list[str] = []
    work.apply(testbed, SPEC, written(tmp_path), tell=heard.append)
    assert memory.given["storage"]
    hosts = memory.given["network"]["hosts"].values()
    bursts = [pair[1] for host in hosts for flow in host["flows"] for pair in flow["pairs"]]
    assert min(bursts) == 1538.0  # HTB's minimum
    said = "links: {share: 0.945, mtu: 1500, enforcer: htb}"
    assert any(text.endswith(said) for text in heard)
    links: dict[str, Any] = {"share": 0.945, "mtu": 1500, "enforcer": "htb"}
    first = memory.given
    work.apply(testbed, SPEC, written(tmp_path, links=links))
    assert memory.given == first
    for more in ({"share": 1.0}, {"enforcer": "exact"}, {"overshoot": 1000}):
        with raises(UserError, "keeps less of a plan", do="write links: {share: 0.945"):
            work.apply(testbed, SPEC, written(tmp_path, links=links | more))
    jumbo = {**SPEC.model_dump(), "network": {"priority_levels": 7, "mtu": 9000}}
    with raises(UserError, do="mtu: 9000"):
        work.apply(testbed, TestbedSpec.model_validate(jumbo), written(tmp_path, links=links))
    work.apply(testbed, SPEC, written(tmp_path, links=links | {"share": 1.0}), policy="ps")


@pytest.mark.usefixtures("memory")
def test_other_stores_are_refused(tmp_path: Path, testbed: Testbed) -> None:
    ceph = TestbedSpec.model_validate({**SPEC.model_dump(), "store": None})
    with raises(UserError, "has no NFS servers", where="testbed t"):
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


# Limits of links (section 4.6).

HTB = {"share": LINK_SHARE, "mtu": 9000, "enforcer": "htb"}


def loaded(folder: Path, **links: Any) -> tuple[Topology, Path]:
    path = written(folder, **({"links": links} if links else {}))
    return load_topology(path), path


def network_pairs(plan: PriorityPlan) -> list[tuple[float, float]]:
    return [
        pair
        for workload in plan.workloads
        for stage in workload.stages
        if stage.level is not None
        for pair in stage.pairs
    ]


def test_a_topologys_links_make_the_plan_that_a_campaign_makes(tmp_path: Path) -> None:
    bare, path = loaded(tmp_path)
    known = MeasuredTraces(tmp_path)
    tenants = [known.tenant(bare, workload) for workload in bare.workloads]
    campaigns = planned(bare, tenants, links=htb_links(9038))
    topology, path = loaded(tmp_path, **HTB)
    made = plan_of(topology, path)
    assert made == campaigns
    assert min(burst for _, burst in network_pairs(made)) == 9038
    for more, less in zip(made.workloads, plan_of(bare, path).workloads, strict=True):
        assert more.bound > less.bound
        assert more.bound_blocking > less.bound_blocking
    rates = {queue.queue: queue.bandwidth for queue in made.queues}
    assert rates["s0:disk"] == 1.0
    assert rates["s0->switch"] == pytest.approx(LINK_SHARE * 1e9 / 8)


def test_each_link_setting_changes_the_plan(tmp_path: Path) -> None:
    plain = plan_of(*loaded(tmp_path))
    shared = plan_of(*loaded(tmp_path, share=0.5))
    for queue, other in zip(plain.queues, shared.queues, strict=True):
        half = 1.0 if ":" in queue.queue else 0.5
        assert other.bandwidth == half * queue.bandwidth
    assert network_pairs(shared) == network_pairs(plain)
    large = plan_of(*loaded(tmp_path, mtu=9000))
    assert network_pairs(large) == network_pairs(plain)
    assert [w.bound for w in large.workloads] == [w.bound for w in plain.workloads]
    assert any(
        more.bound_blocking > less.bound_blocking
        for more, less in zip(large.workloads, plain.workloads, strict=True)
    )
    over = plan_of(*loaded(tmp_path, overshoot="3kB"))
    assert network_pairs(over) == network_pairs(plain)
    assert all(m.bound > n.bound for m, n in zip(over.workloads, plain.workloads, strict=True))
    kept = loaded(tmp_path, enforcer="htb", overshoot="1kB")[0].kept
    assert (kept.frame, kept.overshoot, kept.share) == (1538, 1000, 1.0)
    assert kept.bucket is not None


def test_packets_are_simulated_as_large_as_a_topology_says(tmp_path: Path) -> None:
    topology, path = loaded(tmp_path, mtu=9000)
    plan = plan_of(topology, path)
    assert scenario_of(topology, path, plan, SimulationSetting()).document["frame"] == 9038
    bounds = [one.bound for one in simulate_topology(topology, path, SimulationSetting()).workloads]
    assert all(bound is not None and bound.held for bound in bounds)
    bare, path = loaded(tmp_path)
    found = scenario_of(bare, path, plan_of(bare, path), SimulationSetting())
    assert found.document["frame"] == FRAME


# `hotbed pm profile`.


class Node:
    """Shell that answers as a node with fio does: 4 KiB take 10 ms, long reads 100 MB/s."""

    node = "server"

    def __init__(self, *, fio: bool = True, look: dict[str, object] | None = None) -> None:
        self.fio = fio
        self.look = {"size": 2**33, "error": None, "used": False} | (look or {})
        self.calls: list[tuple[str, ...]] = []
        self.jobs = ""

    def run(self, argv: Sequence[str], *, input: bytes = b"", **_: object) -> Completed:
        self.calls.append(tuple(argv))
        code, out = 0, ""
        if argv[0] == "python3":
            out = json.dumps(self.look)
        elif argv[0] == "sh":
            code = 0 if self.fio else 127
        else:
            self.jobs = input.decode()
            out = "fio: note\n" + json.dumps({"jobs": [self._job(j) for j in self._names()]})
        return Completed(tuple(argv), code, out.encode(), b"")

    def _names(self) -> list[str]:
        return [n for n in re.findall(r"^\[(.*)\]$", self.jobs, re.MULTILINE) if n != "global"]

    def _job(self, name: str) -> dict[str, object]:
        kind = name.split("-")[0]
        part = {"total_ios": 100, "bw_bytes": 100e6, "lat_ns": {"mean": 10e6}}
        return {"jobname": name, "error": 0, kind: part}


def profiled(node: Node, out: Path, **changes: object) -> dict[str, object]:
    asked: dict[str, object] = {"kind": "by-distance", "depth": 1, "seconds": 2.0, "writes": False}
    asked |= {"tell": lambda _: None, "shell": node}
    return profile_device("/dev/hotbed/scratch", out, **(asked | changes))  # type: ignore[arg-type]


def test_a_nodes_device_is_measured_there_and_the_profile_is_kept_here(tmp_path: Path) -> None:
    node, messages = Node(), list[str]()
    made = profiled(node, tmp_path / "p.json", tell=messages.append)
    assert node.calls[-1] == ("fio", "--output-format=json", "-")
    assert "filename=/dev/hotbed/scratch\n" in node.jobs
    assert "rw=randwrite" not in node.jobs
    assert messages[0].startswith("measuring /dev/hotbed/scratch of node server for about ")
    assert made["read"] == made["write"]
    assert load_profile(tmp_path / "p.json").storage is not None


@pytest.mark.parametrize(
    ("look", "writes", "words"),
    [
        ({"used": True}, True, "of node server: is in use; --overwrite would destroy"),
        ({"error": "cannot be opened (No such file or directory)"}, False, "cannot be opened"),
        ({"size": 4096}, False, "too few to profile"),
    ],
)
def test_an_unfit_device_is_refused(
    tmp_path: Path, look: dict[str, object], writes: bool, words: str
) -> None:
    node = Node(look=look)
    with raises(UserError, words):
        profiled(node, tmp_path / "p.json", writes=writes)
    assert not any(call[0] == "fio" for call in node.calls)
    assert not (tmp_path / "p.json").exists()


def test_a_node_without_fio_and_fio_without_jobs(tmp_path: Path) -> None:
    with raises(UserError, "fio is not installed on server"):
        profiled(Node(fio=False), tmp_path / "p.json")
    node = Node()
    node._names = list  # type: ignore[method-assign]
    with raises(WorkloadError, "no job"):
        profiled(node, tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()
