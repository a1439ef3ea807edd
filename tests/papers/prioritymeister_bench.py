"""PriorityMeister's testbed ground on fakes of agent, shells, proxies and network, and the made-up
output of replayers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from campaigns.grounds.live import LiveTestbed
from campaigns.papers.prioritymeister.experiment import PmExperiment
from campaigns.papers.prioritymeister.live import LocalGround, NfsPlaces, NfsTestbed
from campaigns.papers.prioritymeister.mixes import PmMachines, SentRequests
from campaigns.papers.prioritymeister.plan import EnforcedPolicy
from campaigns.papers.prioritymeister.topology import Topology
from schemas.campaign import Limits
from testbed.agent.contract import UnitResult
from testbed.sites.contract import MachineUsage, Node, Testbed
from testbed.spec import NfsSpec, TestbedSpec
from testbed.ssh import Completed
from tests.papers.live_fakes import RecordingAgent
from tests.testbed.fake_site import FakeSite
from workloads.traces.files_profile import FILE_SIZES


def part(requests: int, waiting: int = 0) -> dict[str, Any]:
    """Return a report of requests of 1 ms, `waiting` of them without an answer after 7 ms."""
    latency: dict[str, Any] = {"count": requests, "mean": 1e-3, "max": 2e-3, "p99": 1e-3}
    buckets = [[1_000_000, 1_000_512, requests - waiting], [7_000_000, 7_004_096, waiting]]
    unanswered: dict[str, Any] = {"count": waiting}
    if waiting:
        unanswered["buckets"] = buckets[1:]
    return {
        "requests": requests,
        "slo_misses": waiting,
        "bytes": 4096 * (requests - waiting),
        "latency": latency | {"buckets": buckets if waiting else buckets[:1]},
        "unanswered": unanswered,
    }


def report(lag: float = 1e-4, **changes: Any) -> dict[str, Any]:
    bins = [{"requests": 2, "slo_misses": second % 2, "max": 0.1} for second in range(20)]
    made: dict[str, Any] = {
        "whole": part(40),
        "second_half": part(20),
        "timeline": {"bin_s": 1.0, "bins": bins},
        "send_lag": {"p99": lag, "max": 2 * lag},
        "errors": {},
        "max_outstanding": 3,
        "max_backlog": 0,
        "started": 100.0,
    }
    return made | changes


DISK = {"size": "8GiB", "scratch": "7GiB", "positioning": "4ms", "bandwidth": "60MB/s"}


def nodes(clients: int) -> tuple[Node, ...]:
    def node(name: str, last: int, *roles: str) -> Node:
        return Node(name, f"10.77.0.{last}", frozenset(roles), name, cpus=0.5)

    servers = [node("admin", 10, "admin"), node("server", 11, "nfs"), node("ram", 12, "nfs")]
    return (*servers, *(node(f"client{n}", 13 + n, "client") for n in range(clients)))


def a_testbed(folder: Path, clients: int = 2) -> Testbed:
    return Testbed("pm", "local", nodes(clients), folder / "k", folder / "h", folder, "x")


SIZES = {"server": 1 << 28, "ram": 1 << 27}
PLACES = NfsPlaces("server", "ram", ("client0", "client1"), SIZES, NfsSpec(port=2050))
PROFILE = {"type": "storageConstant", "base": 0.005, "readBandwidth": 6e7, "writeBandwidth": 6e7}


def experiment_in(folder: Path, policy: str = "byslo", **changes: Any) -> PmExperiment:
    (folder / "disk.json").write_text(json.dumps(PROFILE))
    files = {}
    for name in "AL":
        files[name] = folder / f"{name}.csv"
        files[name].write_text("0,0x1000,DiskRead,0x0\n")
    workload = {"server": "server", "format": "plain"}
    topology = Topology.model_validate(
        {
            "hosts": {
                "server": {"link": "200Mbit", "devices": {"disk": "disk.json"}},
                "client0": {"link": "200Mbit"},
                "client1": {"link": "200Mbit"},
            },
            "workloads": [
                workload
                | {"name": "A", "client": "client0", "trace": "A.csv", "slo": {"latency": "50ms"}},
                workload
                | {"name": "L", "client": "client1", "trace": "L.csv", "slo": {"completion": "9s"}},
            ],
        }
    )
    made = PmExperiment(
        name="disk-byslo",
        topology=topology,
        base=folder,
        replays={n: SentRequests(f, 4 * (n == "L")) for n, f in files.items()},
        enforcement=EnforcedPolicy(policy),
        plan=None,
        serves={},
        seconds=20.0,
        measured_from_s=10.0,
        seed=7,
    )
    return replace(made, **changes)


class FakeAgent(RecordingAgent):
    """Units that end at once; `said` maps a node to the output of its unit's program."""

    def __init__(self, said: Mapping[str, tuple[int | None, str, str]] | None = None) -> None:
        super().__init__()
        self.said = said or {}

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        code, out, wrong = self.said.get(node, (0, json.dumps(report()), ""))
        self.live[node].remove(name)
        return UnitResult(node, name, code, 0.0, 1.0, out, wrong)


class FakeShell:
    """Shell of one node; it keeps the files put there."""

    def __init__(self, node: str, off: float = 0.0) -> None:
        self.node, self.off = node, off
        self.files: dict[str, bytes] = {}
        self.removed: list[str] = []

    def run(self, argv: Sequence[str], **_: Any) -> Completed:
        out = b""
        if argv[0] == "date":
            out = f"{time.time() + self.off:.6f}\n".encode()
        elif argv[0] == "rm":
            self.removed.append(argv[-1])
        elif argv[0] == "fio":
            jobs = [line[1:-1] for line in _["input"].decode().splitlines() if line[0] == "["]
            lat = {"total_ios": 9, "lat_ns": {"mean": 5e6}}
            done = [{"jobname": j, "error": 0, j.split("-")[0]: lat} for j in jobs[1:]]
            out = json.dumps({"jobs": done}).encode()
        return Completed(tuple(argv), 0, out, b"")

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        self.files[path] = data

    def popen(self, argv: Sequence[str]) -> Any:
        raise AssertionError("nothing is left running")


class FakeEnforcement:
    """Fakes of proxies and network; `calls` lists the calls in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.charges: list[float] = []
        self.asked = 0
        self.depth = 1
        self.lag_s = 0.01
        self.of_each = 8
        self.given: Mapping[str, Any] = {"storage": {}}
        self.differences: dict[str, list[str]] = {}

    def apply(self, parameters: Mapping[str, Any], *, unknown: str = "refuse") -> None:
        assert unknown == "refuse"
        self.calls.append("apply")
        self.given = parameters

    def parameters(self, server: str) -> dict[str, Any]:
        default = {"policy": "none", "depth": self.depth, "workloads": []}
        mine = (p for queue, p in self.given["storage"].items() if queue.startswith(server))
        return next(mine, default)

    def put_profile(self, server: str, profile: Mapping[str, Any]) -> bool:
        self.calls.append(f"profile {server} {profile['type']}")
        rows = profile.get("bandwidthTable", [{"requestSize": 4096, "readBandwidth": 1e6}])
        self.charges.append(max(row["requestSize"] / row["readBandwidth"] for row in rows))
        return False

    def remove(self) -> None:
        self.calls.append("removed")

    def status(self, server: str) -> dict[str, Any]:
        self.asked += 1
        excess = 0.0304 - self.charges[-1] if self.charges else 0.0
        service = {
            "calls": 100,
            "charged_seconds": 1.0,
            "busy_seconds": 1.0 + 100 * excess,
            "lag_seconds": self.lag_s + 10 * max(excess, 0.0),
            "turns": [
                {"kind": kind, "most_bytes": most, "calls": self.of_each, "seconds": seconds}
                for kind in ("read", "write")
                for most in FILE_SIZES[1:]
                for seconds in (self.of_each * 0.0304,)
            ],
        }
        work = [{"work_seconds": 2.5 * self.asked}]
        return {"queued": 0, "outstanding": 0, "service": service, "workloads": work}

    def metrics(self, server: str) -> str:
        return "up 1\n"

    def network_check(self, network: Mapping[str, Any]) -> dict[str, list[str]]:
        assert network["policy"] == self.given["policy"]
        return self.differences

    def caches(self) -> None:
        self.calls.append("caches")


class Bench:
    """Ground on fakes."""

    def __init__(self, folder: Path, agent: FakeAgent | None = None, off: float = 0.0) -> None:
        self.agent, self.enforcement = agent or FakeAgent(), FakeEnforcement()
        self.shells = {node.name: FakeShell(node.name, off) for node in nodes(2)}
        live = LiveTestbed(
            site=QuietSite(),
            testbed=a_testbed(folder),
            spec=spec_of_two(folder),
            agent=self.agent,
            shell_to=lambda name: self.shells[name],
        )
        self.nfs = NfsTestbed(live, PLACES, self.enforcement)
        self.ground = LocalGround(self.nfs, PmMachines(), Limits())


class QuietSite(FakeSite):
    """Site that reports no load."""

    outside = 0.1
    shaping: Sequence[bool] = ()

    def shape(self, name: str, on: bool) -> None:
        self.shaping = [*self.shaping, on]

    def usage_counters(self, name: str) -> Mapping[str, float]:
        return {}

    def usage_between(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> MachineUsage:
        return MachineUsage(
            20.0, self.outside, 0.0, {"client0": 0.1, "client1": 0.2, "server": 0.3}
        )


def spec_of_two(folder: Path) -> TestbedSpec:
    body = {
        "name": "pm",
        "store": {"kind": "nfs"},
        "groups": [
            {"name": "admin", "roles": ["admin"]},
            {"name": "server", "roles": ["nfs"], "network": "200Mbit", "disk": DISK},
            {"name": "ram", "roles": ["nfs"], "disk": DISK | {"positioning": "0ms"}},
            {"name": "client", "roles": ["client"], "count": 2, "network": "200Mbit"},
        ],
    }
    (folder / "pm.yaml").write_text(yaml.safe_dump(body))
    return TestbedSpec.model_validate(body)
