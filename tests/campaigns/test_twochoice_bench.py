"""`hotbed twochoice bench` on an in-memory testbed: emptied agents, plans, reports as rows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from campaigns.papers.twochoice.bench.agents import Machines
from campaigns.papers.twochoice.bench.options import Options, plan, row, shares
from campaigns.papers.twochoice.bench.run import new_folder, refuse, run
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import UnitResult
from testbed.deploy import twochoice_variables
from testbed.sites.fake import FakeSite
from testbed.spec import CephSpec, TestbedSpec

SPREAD = {"n": 4, "mean": 0.5, "p50": 0.4, "p90": None, "p99": None, "max": 2.0}


def report(scheduler: str, *, failed: int = 0, bad: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "apps": [
            {
                "name": scheduler,
                "writes": 4,
                "failed": failed,
                "bytes": 4000,
                "redirected": 1,
                "rank_seconds": [1.0, 2.0],
                "server_bytes": [1000, 3000],
                "latency": SPREAD,
            }
        ],
        "verified": {"objects": 4, "bad": list(bad), "home": SPREAD, "elsewhere": SPREAD},
    }


class World:
    """Two OSD nodes with agents, and client nodes; it records every request."""

    def __init__(self, tmp_path: Path, clients: int = 1) -> None:
        disk = {"size": "2GiB", "scratch": 0}
        spec = TestbedSpec.model_validate(
            {
                "name": "t",
                "groups": [
                    {"name": "admin", "roles": ["admin", "mon", "mgr"]},
                    {"name": "osd", "count": 2, "roles": ["osd"], "disk": disk},
                    {"name": "client", "count": clients, "roles": ["client"]},
                ],
                "store": {"pools": [], "twochoice": {"scheduler": "prequal"}},
            }
        )
        assert isinstance(spec.store, CephSpec)
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.commands: list[tuple[str, str]] = []
        self.files: dict[tuple[str, str], Any] = {}
        self.history: list[tuple[str, str]] = []  # scheduler of the agents and of the plan
        self.running: list[str] = []
        self.results: dict[str, UnitResult] = {}
        self.machines = Machines(
            testbed=FakeSite(tmp_path / "site").provision(spec),
            store=spec.store,
            shell_to=lambda name: Shell(self, name),  # type: ignore[arg-type, return-value]
            call=self.call,
            start=self.start,
            wait=self.wait,
            stop=self.stop,
        )

    def call(self, verb: str, payload: Mapping[str, Any], timeout_s: float) -> Any:
        self.calls.append((verb, payload))
        return {"ceph": "16.2.15"} if verb == "versions" else {}

    def start(self, node: str, unit: str, argv: Sequence[str], max_s: float) -> None:
        name = argv[argv.index("--plan") + 1]
        self.results[node] = self.generate(node, self.files[node, name])
        self.running.append(node)

    def generate(self, node: str, plan: Mapping[str, Any]) -> UnitResult:
        settings = self.files["osd0", "/etc/hotbed/twochoice.json"]
        self.history.append((settings["scheduler"]["scheduler"], plan["apps"][0]["scheduler"]))
        text = json.dumps(report(plan["apps"][0]["name"]))
        return UnitResult(node, "u", 0, 0.0, 1.0, text, "")

    def wait(self, node: str, unit: str, timeout_s: float) -> UnitResult:
        return self.results[node]

    def stop(self, node: str, unit: str) -> None:
        self.running.remove(node)


class Shell:
    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node

    def run(self, argv: Sequence[str], **_: Any) -> Any:  # the used part of testbed.ssh.Done
        self.world.commands.append((self.node, " ".join(argv)))
        done = subprocess.CompletedProcess(argv, 0, b"", b"")
        return type("Done", (), {"returncode": done.returncode, "text": '{"agents": []}'})

    def put(self, data: bytes, path: str) -> None:
        self.world.files[self.node, path] = json.loads(data)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(twochoice_variables, "BINARIES", tmp_path)


OPTIONS = Options(schedulers=("fixed", "both"), nodes=3, processes=2, size=1000, writes=2)


@pytest.mark.usefixtures("built")
def test_each_scheduler_runs_on_empty_agents_that_go_by_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    seen: list[float] = []
    outcome = run(world.machines, OPTIONS, tmp_path, lambda phase, share: seen.append(share))
    assert outcome.good
    assert [one.scheduler for one in outcome.rows] == ["fixed", "both"]
    assert world.history == [("fixed", "fixed"), ("both", "both")]
    emptied = [payload for verb, payload in world.calls if verb == "pinned-empty"]
    assert emptied == [{"prefix": "twochoice.", "osds": [0, 1]}] * 3  # including once at the end
    assert (
        world.files["client", "/etc/hotbed/twochoice.json"]["scheduler"]["scheduler"] == "prequal"
    )
    assert world.running == []
    assert seen == sorted(seen)
    assert {path.name for path in tmp_path.glob("*.json")} == {
        "bench.json",
        "fixed.json",
        "both.json",
        "result.json",
    }
    # Agents stop before their pools are replaced and start afterwards.
    verbs = [command.split()[1] for node, command in world.commands if node == "osd0"]
    assert verbs == ["stop", "start"] * 3


@pytest.mark.usefixtures("built")
def test_a_scheduler_that_fails_is_told_and_the_others_run(tmp_path: Path) -> None:
    world = World(tmp_path)

    def generate(node: str, plan: Mapping[str, Any]) -> UnitResult:
        if plan["apps"][0]["scheduler"] == "fixed":
            return UnitResult(node, "u", 1, 0.0, 1.0, "", "twochoicebench: no agent answers\n")
        return UnitResult(node, "u", 1, 0.0, 1.0, json.dumps(report("both", bad=["x"])), "")

    world.generate = generate  # type: ignore[method-assign]
    outcome = run(world.machines, OPTIONS, tmp_path, lambda phase, share: None)
    assert not outcome.good
    assert outcome.failed["fixed"].endswith("failed: no agent answers")
    assert outcome.rows[0].bad == 1


@pytest.mark.usefixtures("built")
def test_an_interruption_stops_the_load_and_keeps_what_was_done(tmp_path: Path) -> None:
    world = World(tmp_path)

    def wait(node: str, unit: str, timeout_s: float) -> UnitResult:
        if len(world.history) == 2:
            raise KeyboardInterrupt
        return world.results[node]

    world.machines = type(world.machines)(**{**vars(world.machines), "wait": wait})
    with pytest.raises(KeyboardInterrupt):
        run(world.machines, OPTIONS, tmp_path, lambda phase, share: None)
    assert world.running == []
    assert (tmp_path / "fixed.json").exists()
    assert not (tmp_path / "result.json").exists()
    assert world.files["osd1", "/etc/hotbed/twochoice.json"]["scheduler"]["scheduler"] == "prequal"


@pytest.mark.usefixtures("built")
def test_client_nodes_share_the_compute_nodes_and_no_file(tmp_path: Path) -> None:
    world = World(tmp_path, clients=2)
    with pytest.raises(UserError, match="the oracle has to be told of all writes"):
        refuse(world.machines, Options())
    outcome = run(world.machines, OPTIONS, tmp_path, lambda phase, share: None)
    assert outcome.client_nodes == 2
    assert outcome.rows[0].writes == 8
    kept = json.loads((tmp_path / "both.json").read_text())
    assert [one["apps"][0]["name"] for one in kept["reports"]] == ["both-0", "both-1"]
    assert shares(3, 2) == [2, 1]
    assert shares(1, 2) == [1, 1]


def test_rows_join_machines() -> None:
    joined = row("both", [report("a"), report("b", failed=1, bad=["x"])])
    assert (joined.writes, joined.failed, joined.redirected) == (8, 1, 2)
    assert joined.bytes_per_s == 4000.0
    assert joined.server_bytes == (2000, 6000)
    assert (joined.verified, joined.bad) == (8, 1)
    assert joined.p50_s == 0.4
    assert joined.p99_s is None
    assert joined.read_home_s == 0.5


def test_a_duration_is_a_background_that_ends_with_one_write() -> None:
    made = plan(Options(writes=None, duration_s=30.0), "both", 0, 8)
    work, end = made["apps"]
    assert (work["background"], work["repeat"]) == (True, True)
    assert (end["start"], end["writes"], end["size"], end["nodes"]) == (30.0, 1, 1, 1)
    assert not plan(Options(), "both", 0, 8)["apps"][0].get("background")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schedulers": ("both", "best")}, "--schedulers names 'best'; there are fixed, random"),
        ({"schedulers": ()}, "--schedulers names none"),
        ({"schedulers": ("both", "both")}, "names one twice"),
        ({"choices": "home"}, "--choices is 'home'"),
        ({"nodes": 0}, "--nodes is 0; write 1 to 4096"),
        (
            {"nodes": 4096, "processes": 5},
            "4096 --nodes with 5 --processes each are 20480 client processes; 16384 are the most",
        ),
        ({"seed": -1}, "--seed is -1; write 0 to 4294967295"),
        ({"size": 2**30}, "--size is 1073741824 bytes"),
        ({"duration_s": 3.0}, "give either --writes or --duration"),
        ({"writes": None}, "give either --writes or --duration"),
        ({"writes": 0}, "--writes is 0"),
        ({"writes": None, "duration_s": 0.1}, "--duration is 0.1 s"),
    ],
)
def test_bad_options_are_a_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        Options(**changes).check()
    assert said in str(caught.value)


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is there already"):
        new_folder(tmp_path)
    assert new_folder(tmp_path / "a" / "b").is_dir()


def test_errors_of_the_generator_name_its_node(tmp_path: Path) -> None:
    from campaigns.papers.twochoice.bench.agents import _answer

    with pytest.raises(HotbedError, match="on c failed: it was stopped"):
        _answer("c", UnitResult("c", "u", None, 0.0, 1.0, "", ""))
