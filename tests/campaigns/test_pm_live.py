"""PriorityMeister's experiments on a testbed, without one: agent, proxies and shells are fakes."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from pm_reports import report

from campaigns.prioritymeister.alone import Alone
from campaigns.prioritymeister.experiment import Enforcement, Experiment, Replay
from campaigns.prioritymeister.live import replays
from campaigns.prioritymeister.live.machines import Places, client_nodes, machines_of, places_of
from campaigns.prioritymeister.live.overhead import MARGIN
from campaigns.prioritymeister.live.results import result_of
from campaigns.prioritymeister.local_ground import (
    LocalGround,
    Reached,
    laid_out,
    parameters_on,
    wait_s,
)
from campaigns.prioritymeister.machines import Machines
from campaigns.prioritymeister.outcome import Outcome
from campaigns.prioritymeister.topology import Topology
from controllers.prioritymeister.profiles import load_profile
from schemas.campaign import Limits
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import Agent, UnitResult
from testbed.sites.contract import Node, Testbed, Usage
from testbed.sites.fake import FakeSite
from testbed.spec import NfsSpec, TestbedSpec
from testbed.ssh import Completed
from workloads.traces.files_profile import FILE_SIZES

DISK = {"size": "8GiB", "scratch": "7GiB", "positioning": "4ms", "bandwidth": "60MB/s"}


def nodes(clients: int) -> tuple[Node, ...]:
    def node(name: str, last: int, *roles: str) -> Node:
        return Node(name, f"10.77.0.{last}", frozenset(roles), name, cpus=0.5)

    servers = [node("admin", 10, "admin"), node("server", 11, "nfs"), node("ram", 12, "nfs")]
    return (*servers, *(node(f"client{n}", 13 + n, "client") for n in range(clients)))


def a_testbed(folder: Path, clients: int = 2) -> Testbed:
    return Testbed("pm", "local", nodes(clients), folder / "k", folder / "h", folder, "x")


SIZES = {"server": 1 << 28, "ram": 1 << 27}
PLACES = Places("server", "ram", ("client0", "client1"), SIZES, NfsSpec(port=2050))
PROFILE = {"type": "storageConstant", "base": 0.005, "readBandwidth": 6e7, "writeBandwidth": 6e7}


def experiment_in(folder: Path, policy: str = "byslo", **changes: Any) -> Experiment:
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
    made = Experiment(
        name="disk-byslo",
        topology=topology,
        base=folder,
        replays={n: Replay(n, f, 1, 0.0, 4096, 4 * (n == "L")) for n, f in files.items()},
        enforcement=Enforcement(policy),
        plan=None,
        serves={},
        seconds=20.0,
        measured_from_s=10.0,
        seed=7,
    )
    return replace(made, **changes)


class FakeAgent:
    """Units that end at once; `said` is what a unit's program prints, by node."""

    def __init__(self, said: Mapping[str, tuple[int | None, str, str]] | None = None) -> None:
        self.said = said or {}
        self.started: list[tuple[str, str, Sequence[str]]] = []
        self.stopped: list[tuple[str, str]] = []
        self.left: dict[str, list[str]] = {}
        self.stray: dict[str, list[str]] = {}

    def unit_start(self, node: str, name: str, argv: Sequence[str], *, max_s: float) -> None:
        self.started.append((node, name, argv))

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        code, out, wrong = self.said.get(node, (0, json.dumps(report()), ""))
        return UnitResult(node, name, code, 0.0, 1.0, out, wrong)

    def unit_stop(self, node: str, name: str) -> UnitResult | None:
        self.stopped.append((node, name))
        return None

    def units(self) -> Mapping[str, Sequence[str]]:
        return self.left

    def strays(self) -> Mapping[str, Sequence[str]]:
        return self.stray


class FakeShell:
    """Of one node: keeps what is put there."""

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
            told = [{"jobname": j, "error": 0, j.split("-")[0]: lat} for j in jobs[1:]]
            out = json.dumps({"jobs": told}).encode()
        return Completed(tuple(argv), 0, out, b"")

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        self.files[path] = data

    def popen(self, argv: Sequence[str]) -> Any:
        raise AssertionError("nothing is left running")


class FakeEnforcement:
    """Proxies and network that do as they are told; `calls` in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.charges: list[float] = []
        self.asked = 0
        self.depth = 1
        self.lag_s = 0.01
        self.of_each = 8
        self.told: Mapping[str, Any] = {"storage": {}}
        self.differences: dict[str, list[str]] = {}

    def apply(self, parameters: Mapping[str, Any]) -> None:
        self.calls.append("apply")
        self.told = parameters

    def parameters(self, server: str) -> dict[str, Any]:
        default = {"policy": "none", "depth": self.depth, "workloads": []}
        told = (p for queue, p in self.told["storage"].items() if queue.startswith(server))
        return next(told, default)

    def put_profile(self, server: str, profile: Mapping[str, Any]) -> bool:
        self.calls.append(f"profile {server} {profile['type']}")
        rows = profile.get("bandwidthTable", [{"requestSize": 4096, "readBandwidth": 1e6}])
        self.charges.append(max(row["requestSize"] / row["readBandwidth"] for row in rows))
        return False

    def remove(self) -> None:
        self.calls.append("removed")

    def status(self, server: str) -> dict[str, Any]:
        self.asked += 1
        beside = 0.0304 - self.charges[-1] if self.charges else 0.0
        service = {
            "calls": 100,
            "charged_seconds": 1.0,
            "busy_seconds": 1.0 + 100 * beside,
            "lag_seconds": self.lag_s + 10 * abs(beside),
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
        assert network["policy"] == self.told["policy"]
        return self.differences

    def caches(self) -> None:
        self.calls.append("caches")


class Bench:
    """A ground on fakes."""

    def __init__(self, folder: Path, agent: FakeAgent | None = None, off: float = 0.0) -> None:
        self.agent, self.enforcement = agent or FakeAgent(), FakeEnforcement()
        self.shells = {node.name: FakeShell(node.name, off) for node in nodes(2)}
        self.reached = Reached(
            site=QuietSite(),
            testbed=a_testbed(folder),
            places=PLACES,
            agent=cast(Agent, self.agent),
            enforcement=self.enforcement,
            shell_to=lambda name: self.shells[name],
        )
        self.ground = LocalGround(self.reached, Machines(), Limits())


class QuietSite(FakeSite):
    """A site that tells of no load."""

    outside = 0.1
    shaping: Sequence[bool] = ()

    def shape(self, name: str, on: bool) -> None:
        self.shaping = [*self.shaping, on]

    def usage_counters(self, name: str) -> Mapping[str, float]:
        return {}

    def usage_between(self, before: Mapping[str, float], after: Mapping[str, float]) -> Usage:
        return Usage(20.0, self.outside, 0.0, {"client0": 0.1, "client1": 0.2, "server": 0.3})


def test_an_experiment_from_parameters_to_results(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcome = bench.ground.carry_out(experiment_in(tmp_path))
    assert outcome.spoiled is None
    assert outcome.results["A"].requests == 20
    assert outcome.extra["outside_cores"] == 0.1
    assert outcome.extra["client_share"] == pytest.approx(0.4)
    assert outcome.extra["cores.server"] == 0.3
    assert outcome.extra["charged_s.server"] == 2.5
    assert set(outcome.logs) >= {"parameters.json", "profile-server.json", "replay-A.json"}
    assert json.loads(outcome.logs["proxy-server.json"])["queued"] == 0
    profile = "profile server storageConstant"
    assert bench.enforcement.calls == ["removed", "caches", profile, "apply", "removed"]
    sent = {node: list(argv) for node, name, argv in bench.agent.started if name == replays.UNIT}
    assert sent["client0"][-2:] == ["--slo", "50000000ns"]
    assert sent["client1"][-3:] == ["--closed", "4", "--repeat"]
    starts = {argv[argv.index("--start-at") + 1] for argv in sent.values()}
    assert len(starts) == 1
    assert "10.77.0.11:2050" in sent["client0"]
    shell = bench.shells["client0"]
    assert gzip.decompress(shell.files[f"{replays.FOLDER}/A.csv.gz"]).startswith(b"0,0x1000")
    assert shell.removed == [replays.FOLDER]


def test_proxies_are_told_clients_by_their_addresses(tmp_path: Path) -> None:
    told = parameters_on(experiment_in(tmp_path, "ps"), a_testbed(tmp_path))
    (found,) = told.storage.values()
    clients = {one["name"]: one["clients"] for one in found["workloads"]}
    assert clients == {"A": ["10.77.0.13"], "L": ["10.77.0.14"]}
    assert told.network.mode == "fifo"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((1, "", "replay: the connection to 10.77.0.11:2049 was lost: EOF\n"), "was lost: EOF"),
        ((None, "", ""), "it was stopped"),
        ((0, "garbage", ""), "printed no result"),
        ((0, json.dumps(report(errors={"NFS status 5": 3})), ""), r"3 requests failed \(NFS sta"),
    ],
)
def test_a_fault_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, said: tuple[int | None, str, str], words: str
) -> None:
    bench = Bench(tmp_path, FakeAgent({"client0": said}))
    with pytest.raises(HotbedError, match=f"the replayer of A on node client0.*{words}"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert ("client1", replays.UNIT) in bench.agent.stopped
    assert bench.enforcement.calls[-2:] == ["apply", "removed"]
    assert bench.shells["client1"].removed == [replays.FOLDER]


def test_a_network_that_is_not_as_told_is_a_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.differences = {"client0": [], "server": ["class 1:11 is missing"]}
    with pytest.raises(HotbedError, match="node server is not as told: class 1:11"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.enforcement.calls[-1] == "removed"


def test_what_spoils_a_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeAgent({"client0": (0, json.dumps(report(lag=2e-3)), "")}))
    outcome = bench.ground.carry_out(experiment_in(tmp_path))
    assert outcome.spoiled is not None and "the replayer of A was late" in outcome.spoiled
    noisy = Bench(tmp_path)
    cast(Any, noisy.reached.site).outside = 1.5
    outcome = noisy.ground.carry_out(experiment_in(tmp_path))
    assert outcome.spoiled is not None and "1.5" in outcome.spoiled


def test_load_that_is_not_ours_and_clocks_that_are_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.agent.stray = {"client0": ["77 fio --name=x"]}
    bench.agent.left = {"client1": ["load-replay"]}
    with pytest.raises(HotbedError, match="node client0 runs load that is not Hotbed's"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.agent.stopped == [("client1", "load-replay")]
    with pytest.raises(UserError, match=r"the clock of node client0 is [-+]3\.\d+ s off"):
        Bench(tmp_path, off=3.0).ground.carry_out(experiment_in(tmp_path))


def test_files_are_laid_out_and_disks_measured_once(tmp_path: Path) -> None:
    bench, told = Bench(tmp_path), list[str]()
    spec = spec_of_two(tmp_path)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    made = laid_out(bench.reached, told.append)
    assert made.disk == tmp_path / "pm-profile-server.json"
    assert made.ramdisk == tmp_path / "pm-profile-ram.json"
    assert load_profile(made.disk).storage is not None
    assert list(cast(Any, bench.reached.site).shaping) == [False, True, False, True]
    made_files = [argv for _, name, argv in bench.agent.started if name == replays.PREPARE_UNIT]
    sizes = {tuple(argv)[-1] for argv in made_files}
    assert sizes == {f"{1 << 28}B", f"{1 << 27}B"}
    assert any("measuring" in words for words in told)
    document = json.loads(made.disk.read_text())
    assert document["overhead"]["request"] == 0
    assert document["overhead"]["latency"] == pytest.approx(MARGIN * 0.01)  # charged what it takes
    took = [
        row["requestSize"] / row[kind]
        for row in document["bandwidthTable"]
        for kind in ("readBandwidth", "writeBandwidth")
    ]
    # Of 512 bytes nothing was seen: fio's 5 ms, and what the others took beyond it.
    assert took == pytest.approx([0.0304] * len(took))
    assert load_profile(made.disk).overhead.latency == pytest.approx(MARGIN * 0.01)
    runs = [(node, name) for node, name, _ in bench.agent.started if name == replays.UNIT]
    assert len(runs) == 2 * 2 * 2  # two clients, two servers, twice
    assert bench.shells["client0"].removed
    told.clear()
    laid_out(bench.reached, told.append)
    assert not any("measuring" in words for words in told)


def test_a_path_on_which_too_little_was_answered_has_no_profile(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.of_each = 7
    (tmp_path / "spec.json").write_text(spec_of_two(tmp_path).model_dump_json())
    with pytest.raises(HotbedError, match="too few reads were answered to tell"):
        laid_out(bench.reached)


def test_a_server_of_several_requests_at_a_time_has_no_overhead_to_tell(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.depth = 8
    spec = spec_of_two(tmp_path)
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    made = laid_out(bench.reached)
    assert "overhead" not in json.loads(made.disk.read_text())
    assert not [name for _, name, _ in bench.agent.started if name == replays.UNIT]


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


def test_places_come_from_roles_and_disks(tmp_path: Path) -> None:
    spec, testbed = spec_of_two(tmp_path), a_testbed(tmp_path)
    places = places_of(testbed, spec, tmp_path / "pm.yaml")
    assert (places.disk, places.ram, places.clients) == ("server", "ram", ("client0", "client1"))
    assert places.servers["server"] == 1 << 29
    machines = machines_of(spec, places)
    assert (machines.link, machines.server) == (2e8, "server")
    assert machines.network["K"] == ("ram", "ram")
    other = tmp_path / "other.yaml"
    other.write_text((tmp_path / "pm.yaml").read_text().replace("4ms", "5ms"))
    with pytest.raises(UserError, match="was not made from"):
        places_of(testbed, spec, other)


def test_a_plan_for_a_testbed_counts_with_its_packets(tmp_path: Path) -> None:
    small, testbed = spec_of_two(tmp_path), a_testbed(tmp_path)
    body = yaml.safe_load((tmp_path / "pm.yaml").read_text()) | {"network": {"mtu": 9000}}
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(body))
    large = TestbedSpec.model_validate(body)
    for spec, name, frame in ((small, "pm.yaml", 1538), (large, "large.yaml", 9038)):
        places = places_of(testbed, spec, tmp_path / name)
        machines = machines_of(spec, places)
        assert places.frame == machines.frame == frame
        assert machines.bucket is not None and machines.bucket(1e6, 5.0) == (1e6, frame)
        assert machines.frames(100.0) == frame  # whatever the modelled network's are
    assert Machines().frames(100.0) == 100.0


def test_an_experiment_that_the_testbed_cannot_carry_out_is_refused(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path)
    assert client_nodes(experiment.topology, a_testbed(tmp_path)) == {
        "A": "client0",
        "L": "client1",
    }
    with pytest.raises(UserError, match="needs a host client1"):
        client_nodes(experiment.topology, a_testbed(tmp_path, clients=1))
    both = experiment.topology.model_copy(
        update={
            "workloads": tuple(
                w.model_copy(update={"client": "client0"}) for w in experiment.topology.workloads
            )
        }
    )
    with pytest.raises(UserError, match="would share node client0"):
        client_nodes(both, a_testbed(tmp_path))


def test_replies_are_waited_for_by_the_loosest_slo(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path)
    assert wait_s(experiment) == 5.0
    first, *rest = experiment.topology.workloads
    loose = first.model_copy(update={"slo": first.slo.model_copy(update={"latency": 4.0})})
    topology = experiment.topology.model_copy(update={"workloads": (loose, *rest)})
    assert wait_s(replace(experiment, topology=topology)) == 12.0


class NoisyGround:
    """A ground whose first runs are spoiled."""

    name = "local"
    machines = Machines()

    def __init__(self, spoiled: int) -> None:
        self.spoiled, self.runs = spoiled, 0

    def carry_out(self, experiment: Experiment) -> Outcome:
        self.runs += 1
        why = "somebody else worked" if self.runs <= self.spoiled else None
        (name,) = experiment.replays
        told = {"replay-A.json": "{}"}
        return Outcome({name: result_of(report(), 10.0, 20.0)}, spoiled=why, logs=told)


def test_a_workload_alone_is_measured_again_while_it_is_spoiled(tmp_path: Path) -> None:
    alone = experiment_in(tmp_path).alone("A")
    noisy = NoisyGround(2)
    kept = tmp_path / ".alone"
    assert Alone(kept).percentile(noisy, alone, 50) == pytest.approx(1e-3, rel=1e-3)
    assert noisy.runs == 3
    assert [path.name for path in kept.glob("*/*")] == ["replay-A.json"]
    assert Alone(kept).percentile(noisy, alone, 50) == pytest.approx(1e-3, rel=1e-3)
    assert noisy.runs == 3
    with pytest.raises(HotbedError, match="alone was not measured: somebody else worked"):
        Alone().percentile(NoisyGround(99), alone, 50)
