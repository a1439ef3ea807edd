"""Campaigns of simulated bursts: allowed files, early refusals, and the contents of a cell's
folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tiny_kinds import job

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.session import Request
from campaigns.papers.twochoice import cell as cell_module
from campaigns.papers.twochoice import simulator
from campaigns.papers.twochoice.cell import make
from campaigns.papers.twochoice.measure import MESSAGES, curves, numbers
from schemas.campaign import BurstCampaign
from schemas.cells.twochoice import BURSTS, Learning
from schemas.errors import StoreError, UserError
from schemas.run import Run, Summary

FILES = ("twochoice-quick", "twochoice-full")
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
    "messages": {
        "probes": 400,
        "answers": 400,
        "decisions": 400,
        "writes": 200,
        "acknowledgements": 200,
        "records": 0,
    },
}
ANSWER: dict[str, Any] = {
    "rounds": [ROUND, ROUND | {"response_s": 0.7, "straggler_writes": 3, "straggler_most": 2}],
    "learning": [ROUND | {"response_s": 0.9}],
    "loads": [{"load": 7, "straggler": False, "servers": 20, "most": 20, "largest": 21}],
    "history": [{"load": 7, "told": 10, "chosen": 5}],
    "cost": {"events": 5, "cpu_s": 0.1, "wall_s": 0.2, "peak_mib": 9.0},
}


check = BURSTS.check


@pytest.mark.parametrize("name", FILES)
def test_what_comes_with_hotbed_is_sound_and_of_the_paper_s_size(name: str, tmp_path: Path) -> None:
    campaign = load_campaign(find_campaign(name))
    assert isinstance(campaign, BurstCampaign)
    cells = session.typed_cells(campaign, Path(name))
    by_figure = {
        figure: [
            cell for grid in campaign.grids if figure in grid.figures for cell in cells[grid.name]
        ]
        for figure in ("3", "4", "scale")
    }
    for figure in ("3", "4"):
        assert {(cell.servers, cell.processes) for cell in by_figure[figure]} == {(1000, 10_000)}
        assert {cell.round_trip_s for cell in by_figure[figure]} == {0.005}
        assert {cell.straggler_factor for cell in by_figure[figure]} == {5.0}
        assert len({cell.scheduler for cell in by_figure[figure]}) == 8
    ratios = {cell.straggler_ratio for cell in by_figure["3"]}
    assert min(ratios) == 0
    assert max(ratios) == 0.5
    learning = [cell for cell in by_figure["3"] if isinstance(cell, Learning)]
    assert {cell.history for cell in learning} == {"learned", "cold"}
    assert all(0 < cell.straggler_ratio * 1000 < 10 for cell in by_figure["4"])
    assert all(grid.repetitions >= 3 for grid in campaign.grids)
    prepared = session.prepare(Request(name, artifacts=tmp_path))
    assert prepared.plan.cells
    assert not list(tmp_path.iterdir())


def test_the_full_campaign_goes_to_ten_thousand_servers_and_a_million_processes() -> None:
    grids = {grid.name: grid for grid in load_campaign(find_campaign("twochoice-full")).grids}
    assert "10K-1M" in grids["scale"].vary["size"]
    assert all(grid.repetitions >= 10 for name, grid in grids.items() if name != "scale")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": "1K"}, "'1K' is no size such as 1K-10K (servers-processes)"),
        ({"size": "1-100"}, "size: '1-100' is not allowed; servers: allowed: a whole"),
        ({"servers": 10}, "size already says servers and processes"),
        ({"scheduler": "best"}, "scheduler: 'best' is not allowed; allowed: fixed, random"),
        ({"straggler_ratio": 2}, "straggler_ratio: 2 is not allowed; allowed: a number at least"),
        ({"straggler_ratio": True}, "straggler_ratio: True is not allowed"),
        ({"redirects": 1}, "redirects: 1 is not allowed; allowed: true or false"),
        (
            {"history": "cold"},
            "history belongs to scheduler preassign, both, prequal: leave it out of two-choice",
        ),
        (
            {"scheduler": "oracle", "choices": "home+random"},
            "choices belongs to scheduler two-choice, collaborative",
        ),
        ({"speed": 3}, "unknown parameter 'speed'; a cell has size, scheduler"),
        ({"rounds": 0}, "rounds: 0 is not allowed; allowed: a whole number at least 1 and at"),
    ],
)
def test_a_mistake_in_a_cell_is_one_sentence(changes: dict[str, Any], said: str) -> None:
    values = {"size": "20-400", "scheduler": "two-choice"} | changes
    with pytest.raises(UserError) as raised:
        check(values, "file: grid x")
    assert said in str(raised.value)
    assert str(raised.value).startswith("file: grid x: ")
    assert "\n" not in str(raised.value)


def test_one_cell_has_one_way_to_be_written() -> None:
    plain = check({"scheduler": "fixed", "servers": 100, "processes": 1000}, "x")
    assert check({"scheduler": "fixed", "size": "0.1K-1K", "learn_rounds": 7}, "x") == plain
    cold = check({"scheduler": "both", "history": "cold", "learn_rounds": 7}, "x")
    assert isinstance(cold, Learning)
    assert cold.learn_rounds == 0


def test_numbers_are_means_over_bursts() -> None:
    found = numbers(ANSWER)
    assert found["response_s"] == pytest.approx(0.6)
    assert (found["response_least_s"], found["response_largest_s"]) == (0.5, 0.7)
    assert found["hit"] == 0.5
    assert found["straggler_writes"] == 1.5
    assert found["bursts"] == 2
    assert found["probes_per_write"] == 2
    assert found["messages_per_write"] == pytest.approx(8)
    assert found["messages_per_write"] == sum(found[f"{kind}_per_write"] for kind in MESSAGES)
    assert curves(ANSWER)["learning"] == [0.9]


def test_a_cell_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_module, "simulate", lambda parameters, seed, limit_s: ANSWER)
    cell = BURSTS.of(scheduler="both", servers=20, processes=200)
    make(job(cell.model_dump(mode="json")), tmp_path)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(files) == {"run.json", "summary.json", "bursts.json"}
    run = Run.model_validate_json(files["run.json"])
    assert run.status == "done"
    extra = Summary.model_validate_json(files["summary.json"]).extra
    assert extra["response_s"] == pytest.approx(0.6)
    assert extra["cost_peak_mib"] == 9.0
    assert json.loads(files["bursts.json"])["loads"] == ANSWER["loads"]


def program(folder: Path, text: str) -> Path:
    path = folder / "tcsim"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "cat >/dev/null; echo 'tcsim: rounds is 0' >&2; exit 1",
            "the simulator failed: rounds is",
        ),
        ("cat >/dev/null; echo '{}'", "answered nonsense"),
        ("cat >/dev/null; echo no", "answered nonsense"),
        ("cat >/dev/null; exec sleep 60", "did not end within 0.3 s: 1K-10K both"),
    ],
)
def test_a_simulator_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(simulator, "PROGRAM", program(tmp_path, text))
    with pytest.raises(StoreError, match=said):
        limit = 0.3 if "sleep" in text else 30.0
        simulator.simulate(BURSTS.of(scheduler="both"), 1, limit_s=limit)


def test_a_simulator_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "PROGRAM", tmp_path / "tcsim")
    with pytest.raises(StoreError, match=r"cannot be started .*: run `make setup`"):
        simulator.simulate(BURSTS.of(scheduler="both"), 1)


def test_the_program_simulates_and_refuses() -> None:
    parameters = BURSTS.of(
        scheduler="both", servers=20, processes=100, straggler_ratio=0.1, rounds=2, learn_rounds=1
    )
    answer = simulator.simulate(parameters, 7)
    assert len(answer["rounds"]) == 2
    assert numbers(answer)["response_s"] >= numbers(answer)["best_s"] > 0
    assert simulator.simulate(parameters, 7)["rounds"] == answer["rounds"]
    assert simulator.simulate(parameters, 8)["rounds"] != answer["rounds"]
    heavy = parameters.model_copy(update={"prior_weight": 1e9})
    assert simulator.simulate(heavy, 7)["rounds"] != answer["rounds"]
    done = subprocess.run(
        [simulator.PROGRAM, "run"], input="{", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tcsim: the request cannot be read: unexpected EOF\n"
