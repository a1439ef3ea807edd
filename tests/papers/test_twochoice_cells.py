"""Campaigns of the two-choice paper's simulated bursts (section III), from file to report, and
`hotbed twochoice bench` on an in-memory testbed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.papers.twochoice import cell as cell_module
from campaigns.papers.twochoice.bench import (
    BenchOptions,
    answer,
    joined,
    new_folder,
    refuse,
    run,
)
from campaigns.papers.twochoice.cell import MESSAGES, make, numbers, simulate
from campaigns.papers.twochoice.servers import PLAN_FILE, Agents
from hotbed import cli
from schemas.campaign import BurstCampaign
from schemas.cells.twochoice import BURSTS, Learning
from schemas.errors import HotbedError, StoreError, UserError
from schemas.run import Run, Summary
from testbed.agent.contract import UnitResult
from testbed.deploy import parts
from testbed.simulated.programs import answer_of
from tests.campaigns.tiny_kinds import job
from tests.errors import raises
from tests.hotbed.processes import kill_when
from tests.hotbed.processes import run as hotbed
from tests.papers.live_fakes import RecordingAgent, live_of, printed

ROUND: dict[str, Any] = {
    "response_s": 0.5,
    "mean_s": 0.3,
    "best_s": 0.4,
    "most": 20,
    "calm_most": 20,
    "straggler_most": 0,
    "straggler_writes": 0,
    "stragglers": 2,
    "redirected_share": 0.9,
    "messages": dict.fromkeys(MESSAGES, 400)
    | {"writes": 200, "acknowledgements": 200, "records": 0},
}
ANSWER: dict[str, Any] = {
    "rounds": [ROUND, ROUND | {"response_s": 0.7, "straggler_writes": 3, "straggler_most": 2}],
    "learning": [ROUND | {"response_s": 0.9}],
    "loads": [{"load": 7, "straggler": False, "servers": 20, "most": 20, "largest": 21}],
    "history": [{"load": 7, "told": 10, "chosen": 5}],
    "cost": {"events": 5, "cpu_s": 0.1, "wall_s": 0.2, "peak_mib": 9.0},
}


@pytest.mark.parametrize("name", ["twochoice-quick", "twochoice-full"])
def test_bundled_campaigns_have_the_sizes_of_section_3a(name: str) -> None:
    campaign = load_campaign(find_campaign(name))
    assert isinstance(campaign, BurstCampaign)
    cells = session.typed_cells(campaign, Path(name))
    by_figure = {
        figure: [
            cell for grid in campaign.grids if figure in grid.figures for cell in cells[grid.name]
        ]
        for figure in ("3", "4")
    }
    for its in by_figure.values():
        assert {(cell.servers, cell.processes) for cell in its} == {(1000, 10_000)}
        assert {(cell.round_trip_s, cell.straggler_factor) for cell in its} == {(0.005, 5.0)}
        assert len({cell.scheduler for cell in its}) == 8
    ratios = {cell.straggler_ratio for cell in by_figure["3"]}
    assert (min(ratios), max(ratios)) == (0, 0.5)
    learning = [cell for cell in by_figure["3"] if isinstance(cell, Learning)]
    assert {cell.history for cell in learning} == {"learned", "cold"}
    assert all(0 < cell.straggler_ratio * 1000 < 10 for cell in by_figure["4"])
    assert all(grid.repetitions >= 3 for grid in campaign.grids)
    if name == "twochoice-full":
        (scale,) = (grid for grid in campaign.grids if grid.name == "scale")
        assert "10K-1M" in scale.vary["size"]


def test_a_cell_has_one_notation() -> None:
    plain = BURSTS.check({"scheduler": "fixed", "servers": 100, "processes": 1000}, "x")
    sized = {"scheduler": "fixed", "size": "0.1K-1K", "learn_rounds": 7}
    assert BURSTS.check(sized, "x") == plain
    cold = BURSTS.check({"scheduler": "both", "history": "cold", "learn_rounds": 7}, "x")
    assert isinstance(cold, Learning)
    assert cold.learn_rounds == 0


def test_a_cell_writes_its_folder_with_means_over_bursts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_module, "simulate", lambda parameters, seed, limit_s: ANSWER)
    cell = BURSTS.of(scheduler="both", servers=20, processes=200)
    make(job(cell.model_dump(mode="json")), tmp_path)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(files) == {"run.json", "summary.json", "bursts.json"}
    assert Run.model_validate_json(files["run.json"]).status == "done"
    found = Summary.model_validate_json(files["summary.json"]).extra
    expected = {"response_s": 0.6, "response_least_s": 0.5, "response_largest_s": 0.7, "hit": 0.5}
    expected |= {"straggler_writes": 1.5, "bursts": 2, "probes_per_write": 2, "cost_peak_mib": 9.0}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    messages = sum(found[f"{kind}_per_write"] for kind in MESSAGES)
    assert found["messages_per_write"] == messages == pytest.approx(8)
    bursts = json.loads(files["bursts.json"])
    assert (bursts["loads"], bursts["learning"]) == (ANSWER["loads"], [0.9])


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (None, StoreError, "cannot be started"),
        ("echo 'tcsim: rounds is 0' >&2; exit 1", StoreError, "exit code 1: tcsim: rounds is 0"),
        ("echo 'tcsim: rounds is 0' >&2; exit 2", UserError, "rounds is 0"),
        ("echo 'panic: index out of range' >&2; exit 2", StoreError, "exit code 2: panic"),
        ("echo 'progress 0.5' >&2; echo {", StoreError, "exit code 0."),
        ("exec sleep 60", StoreError, "did not end within 0.3 s"),
    ],
)
def test_a_simulator_that_fails_is_one_sentence(
    tmp_path: Path, text: str | None, kind: type[HotbedError], said: str
) -> None:
    program, shares = tmp_path / "tcsim", list[float]()
    if text is not None:
        program.write_text(f"#!/bin/sh\ncat >/dev/null; {text}\n")
        program.chmod(0o755)
    limit = 0.3 if "sleep" in str(text) else 30.0
    with raises(kind, said):
        answer_of(program, {}, limit_s=limit, progress=shares.append)
    assert shares == [0.5] * ("progress" in str(text))


def test_the_program_simulates_by_seed_and_refuses_nonsense() -> None:
    parameters = BURSTS.of(
        scheduler="both", servers=20, processes=100, straggler_ratio=0.1, rounds=2, learn_rounds=1
    )
    found = simulate(parameters, 7)
    assert len(found["rounds"]) == 2
    assert numbers(found)["response_s"] >= numbers(found)["best_s"] > 0
    assert simulate(parameters, 7)["rounds"] == found["rounds"]
    assert simulate(parameters, 8)["rounds"] != found["rounds"]
    heavy = parameters.model_copy(update={"prior_weight": 1e9})
    assert simulate(heavy, 7)["rounds"] != found["rounds"]
    done = subprocess.run(
        [cell_module.PROGRAM, "run"], input="{", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tcsim: the request cannot be read: unexpected EOF\n"


SCHEDULERS = list(BenchOptions.schedulers)
CAMPAIGN: dict[str, Any] = {
    "name": "twochoice-tiny",
    "paper": "twochoice",
    "simulation": "twochoice",
    "profile": "quick",
    "seed": 3,
    "parameters": {"rounds": 2, "learn_rounds": 20},
    "grids": [
        {
            "name": "response",
            "figures": ["3", "4", "learning"],
            "vary": {"scheduler": SCHEDULERS, "straggler_ratio": [0, 0.008, 0.1]},
            "repetitions": 2,
        },
        {
            "name": "cold",
            "figures": ["3"],
            "vary": {"scheduler": ["both"], "straggler_ratio": [0, 0.008, 0.1]},
            "fixed": {"history": "cold"},
            "repetitions": 2,
        },
        {
            "name": "scale",
            "figures": ["scale"],
            "vary": {"size": ["1K-10K", "2K-20K"], "scheduler": ["fixed", "both", "oracle"]},
            "fixed": {"straggler_ratio": 0.1, "learn_rounds": 5},
            "repetitions": 2,
        },
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_is_killed_resumed_and_drawn(tmp_path: Path) -> None:
    file, artifacts = tmp_path / "tiny.yaml", tmp_path / "artifacts"
    file.write_text(yaml.safe_dump(CAMPAIGN))
    folder = artifacts / "twochoice-tiny"
    words = ["run", str(file), "--artifacts", str(artifacts)]
    kill_when(words, folder, 5)
    ended = hotbed(*words, "--json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)["result"]
    assert result["already_done"] >= 5
    assert result["already_done"] + result["ran"] == result["planned"] == 62
    assert not list(folder.glob("*/.attempt-*"))

    with pytest.raises(SystemExit) as ok:
        cli.main(["report", "twochoice", "--artifacts", str(artifacts), "--json"])
    assert not ok.value.code
    report = artifacts / "twochoice"
    figures = {path.stem for path in (report / "figures").glob("*.png")}
    assert figures == {f"twochoice-fig{name}" for name in ("3", "4", "learning", "scale")}
    claims = {claim["id"]: claim for claim in json.loads((report / "claims.json").read_text())}
    assert claims["twochoice-fixed-even"]["measured"] == 10.0
    assert claims["twochoice-fixed-even"]["effect"] == "confirmed"
    assert claims["twochoice-oracle"]["measured"] > 1
    assert claims["twochoice-scale"]["effect"] == "not run"
    assert "Simulated" in (report / "report.html").read_text()


SPREAD = {"n": 4, "mean": 0.5, "p50": 0.4, "p90": None, "p99": None, "max": 2.0}
OPTIONS = BenchOptions(schedulers=("fixed", "both"), nodes=3, processes=2, size=1000, writes=2)


def report_of(name: str, *, failed: int = 0, bad: Sequence[str] = ()) -> dict[str, Any]:
    app = {
        "name": name,
        "writes": 4,
        "failed": failed,
        "bytes": 4000,
        "redirected": 1,
        "rank_seconds": [1.0, 2.0],
        "server_bytes": [1000, 3000],
        "latency": SPREAD,
    }
    verified = {"objects": 4, "bad": list(bad), "home": SPREAD, "elsewhere": SPREAD}
    return {"apps": [app], "verified": verified}


class AgentsInMemory(RecordingAgent):
    """Two OSD nodes with agents, and client nodes; `history` has the schedulers of the agents and
    of the plan of each load."""

    def __init__(self, tmp_path: Path, clients: int = 1) -> None:
        super().__init__()
        disk = {"size": "2GiB", "scratch": 0}
        spec = {
            "name": "t",
            "groups": [
                {"name": "admin", "roles": ["admin", "mon", "mgr"]},
                {"name": "osd", "count": 2, "roles": ["osd"], "disk": disk},
                {"name": "client", "count": clients, "roles": ["client"]},
            ],
            "store": {"pools": [], "twochoice": {"scheduler": "prequal"}},
        }
        live, self.shells = live_of(tmp_path, spec, self)
        self.machines = Agents(live.testbed, live.spec, self, live.shell_to)
        self.history: list[tuple[str, str]] = []

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        super().unit_wait(node, name, timeout_s=timeout_s)
        plan = json.loads(self.shells[node].files[PLAN_FILE])
        self.history.append((self.deployed("osd0"), plan["apps"][0]["scheduler"]))
        return self.generate(node, plan)

    def generate(self, node: str, plan: Mapping[str, Any]) -> UnitResult:
        return printed(json.dumps(report_of(plan["apps"][0]["name"])))

    def deployed(self, node: str) -> str:
        return str(self.shells[node].document()["scheduler"]["scheduler"])


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(parts, "BINARIES", tmp_path)


@pytest.mark.usefixtures("built")
def test_each_scheduler_runs_on_empty_agents_with_its_settings(tmp_path: Path) -> None:
    world = AgentsInMemory(tmp_path)
    seen: list[float] = []
    outcome = run(world.machines, OPTIONS, tmp_path, lambda phase, share: seen.append(share))
    assert outcome.good
    assert [one.scheduler for one in outcome.rows] == ["fixed", "both"]
    assert world.history == [("fixed", "fixed"), ("both", "both")]
    emptied = [payload for verb, payload in world.calls if verb == "pinned-empty"]
    assert emptied == [{"prefix": "twochoice.", "osds": [0, 1]}] * 3  # including once at the end
    assert world.deployed("client") == "prequal"
    assert not world.units()
    assert seen == sorted(seen)
    files = {path.stem for path in tmp_path.glob("*.json")}
    assert files == {"bench", "fixed", "both", "result"}
    # Agents stop before their pools are replaced and start afterwards.
    verbs = [argv[2].split()[1] for argv in world.shells["osd0"].ran]
    assert verbs == ["stop", "start"] * 3


@pytest.mark.usefixtures("built")
def test_the_bench_reports_a_scheduler_that_fails_and_runs_the_others(tmp_path: Path) -> None:
    world = AgentsInMemory(tmp_path)

    def generate(node: str, plan: Mapping[str, Any]) -> UnitResult:
        if plan["apps"][0]["scheduler"] == "fixed":
            return printed("", 1, "twochoicebench: no agent answers\n")
        return printed(json.dumps(report_of("both", bad=["x"])), 1)

    world.generate = generate  # type: ignore[method-assign]
    outcome = run(world.machines, OPTIONS, tmp_path, lambda phase, share: None)
    assert not outcome.good
    assert outcome.failed["fixed"].endswith("failed: no agent answers")
    assert outcome.rows[0].bad == 1
    with raises(HotbedError, "on c failed", "stopped"):
        answer("c", printed(code=None))


@pytest.mark.usefixtures("built")
def test_an_interrupted_bench_stops_the_load_and_keeps_results(tmp_path: Path) -> None:
    world = AgentsInMemory(tmp_path)

    def generate(node: str, plan: Mapping[str, Any]) -> UnitResult:
        if len(world.history) == 2:
            world.live[node] = ["load-twochoice"]  # it still runs
            raise KeyboardInterrupt
        return printed(json.dumps(report_of(plan["apps"][0]["name"])))

    world.generate = generate  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(world.machines, OPTIONS, tmp_path, lambda phase, share: None)
    assert not world.units()
    assert (tmp_path / "fixed.json").exists()
    assert not (tmp_path / "result.json").exists()
    assert world.deployed("osd1") == "prequal"


@pytest.mark.usefixtures("built")
def test_client_nodes_share_the_compute_nodes_and_no_file(tmp_path: Path) -> None:
    world = AgentsInMemory(tmp_path, clients=2)
    with raises(UserError, "2 client nodes", do="--schedulers"):
        refuse(world.machines, BenchOptions())
    outcome = run(world.machines, OPTIONS, tmp_path, lambda phase, share: None)
    assert (outcome.client_nodes, outcome.rows[0].writes) == (2, 8)
    kept = json.loads((tmp_path / "both.json").read_text())
    assert [one["apps"][0]["name"] for one in kept["reports"]] == ["both-0", "both-1"]
    assert [plan["nodes"] for plan in OPTIONS.plans("both", 2)] == [2, 1]
    assert [plan["nodes"] for plan in replace(OPTIONS, nodes=1).plans("both", 2)] == [1, 1]


def test_reports_of_several_machines_are_joined() -> None:
    found = joined("both", [report_of("a"), report_of("b", failed=1, bad=["x"])])
    assert (found.writes, found.failed, found.redirected) == (8, 1, 2)
    assert (found.bytes_per_s, found.server_bytes) == (4000.0, (2000, 6000))
    assert (found.verified, found.bad, found.read_home_s) == (8, 1, 0.5)
    assert (found.p50_s, found.p99_s) == (0.4, None)


def test_a_duration_is_a_background_that_ends_with_one_write() -> None:
    (plan,) = BenchOptions(writes=None, duration_s=30.0).plans("both", 1)
    work, end = plan["apps"]
    assert (work["background"], work["repeat"]) == (True, True)
    assert (end["start"], end["writes"], end["size"], end["nodes"]) == (30.0, 1, 1, 1)
    assert not BenchOptions().plans("both", 1)[0]["apps"][0].get("background")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schedulers": ("both", "best")}, "--schedulers: 'best'"),
        ({"schedulers": ("both", "both")}, "--schedulers: a scheduler is named twice"),
        ({"nodes": 0}, "--nodes: 0 is not allowed; allowed: 1 to 4096"),
        ({"nodes": 4096, "processes": 5}, "20480 client processes; allowed: at most 16384"),
        ({"duration_s": 3.0}, "either --writes or --duration"),
        ({"writes": 0}, "--writes: 0"),
        ({"writes": None, "duration_s": 0.1}, "--duration: 0.1"),
    ],
)
def test_a_wrong_option_of_the_bench_is_refused(changes: dict[str, Any], said: str) -> None:
    with raises(UserError, said):
        BenchOptions(**changes).check()


def test_results_of_a_bench_are_never_overwritten(tmp_path: Path) -> None:
    with raises(UserError, where=str(tmp_path), do="another folder"):
        new_folder(tmp_path)
    assert new_folder(tmp_path / "a" / "b").is_dir()
