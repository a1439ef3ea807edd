"""`hotbed compare` and `hotbed new controller`, from the command line to the files."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from own_controllers import write_shy
from typer.testing import Result

from campaigns import comparison
from campaigns.engine.display import CampaignResult, Silent
from campaigns.grounds.sim import SIMULATIONS
from campaigns.papers.dlr.kind import KIND
from tests.drawing import texts_by_figure, texts_of
from tests.hotbed.runner import Runner

pytestmark = pytest.mark.timeout(300)  # drawing imports large libraries, slowly on a busy machine

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "campaigns"
SHORT = ["-p", "duration_s=5", "-p", "interval_s=1", "--time-scale", "0.001"]


@pytest.fixture(autouse=True)
def fake_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide the ground `fake`: shy does well and upmap always fails. Run its cells in this
    process, as simulated cells run."""
    monkeypatch.setenv("HOTBED_FAKE_GROUND", str(FAKES / "fake_ground.py"))
    monkeypatch.setenv("HOTBED_FAKE_LOCKS", str(tmp_path))
    effects: dict[str, Any] = {
        "shy": {"gain": 1.5},
        "upmap": {"fails": "the balancer is gone"},
        "reweight": {"inert": True},
    }
    monkeypatch.setenv("HOTBED_FAKE_CONTROLLERS", json.dumps(effects))
    fake = replace(KIND.grounds["fake"], same=SIMULATIONS)
    monkeypatch.setitem(KIND.grounds, "fake", fake)
    monkeypatch.setattr(comparison, "compare", partial(comparison.compare, progress=Silent()))


def invoke(tmp_path: Path, *arguments: str) -> Result:
    words = ["compare", "--ground", "fake", *SHORT, "--artifacts", str(tmp_path / "artifacts")]
    return Runner().run([*words, *arguments])


@pytest.mark.slow
def test_a_controller_of_one_s_own_is_in_figure_table_and_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = texts_by_figure(monkeypatch)
    folder = write_shy(tmp_path / "own")
    ended = invoke(
        tmp_path, "--controllers", "shy,reweight", "--controllers-dir", str(folder), "--op", "rand"
    )
    assert ended.exit_code == 0, ended.output
    assert "simulated" not in ended.output
    made = tmp_path / "artifacts" / "compare-fake"
    assert "Figure: " + str(made / "comparison.png") in ended.output
    assert (made / "comparison.png").stat().st_size > 10_000
    assert {"shy", "reweight", "default"} <= texts_of(drawn)
    assert any("place 1" in text for text in texts_of(drawn))
    (row,) = [
        line for line in (made / "comparison.md").read_text().splitlines() if "| shy |" in line
    ]
    assert "| better |" in row
    assert "| 1 |" in row
    claims = {claim["id"]: claim for claim in json.loads((made / "claims.json").read_text())}
    claim = claims["compare-shy-heterogeneity-rand-throughput"]
    assert claim["verdict"] in ("reproduced", "direction")
    assert claim["paper_value"] is None
    assert (claim["n"], claim["ground"], claim["baseline"]) == (3, "fake", "default")
    assert claim["ci95"][0] < 0.5 < claim["ci95"][1]
    assert claims["compare-reweight-heterogeneity-rand-throughput"]["verdict"] == "not run"


def test_interrupted_it_draws_nothing_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CampaignResult("compare-fake", 4, 1, 1, interrupted=True)
    made = SimpleNamespace(result=result, folder=tmp_path)
    monkeypatch.setattr(comparison, "compare", lambda ask, **_: made)
    ended = invoke(tmp_path, "--json")
    assert ended.exit_code == 130
    assert "give the same command again to resume" in json.loads(ended.stdout)["sentence"]
