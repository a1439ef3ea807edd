"""The ground sim by command line: plans, and a user's own controller among the others."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from own_controllers import write_shy
from typer.testing import Result

from campaigns import comparison
from campaigns.engine.display import CampaignResult
from controllers.journal import read_journal
from tests.drawing import texts_by_figure, texts_of
from tests.hotbed.runner import Runner

pytestmark = pytest.mark.timeout(300)


def compare(tmp_path: Path, *arguments: str) -> Result:
    words = ["compare", "--controllers-dir", str(tmp_path / "own"), "--op", "rand"]
    words += ["-p", "duration_s=60", "--artifacts", str(tmp_path / "artifacts")]
    return Runner().run([*words, *arguments])


@pytest.mark.slow
def test_it_is_in_figure_table_and_claims(tmp_path, monkeypatch):
    drawn = texts_by_figure(monkeypatch)
    write_shy(tmp_path / "own")
    ended = compare(tmp_path, "--controllers", "shy,dlr", "--blocks", "3")
    assert ended.exit_code == 0, ended.output
    assert "simulated" in ended.output
    made = tmp_path / "artifacts" / "compare-sim"
    assert {"shy", "dlr", "default"} <= texts_of(drawn)
    assert any("simulated" in text for text in texts_of(drawn))
    assert "| shy |" in (made / "comparison.md").read_text()
    claims = {claim["id"]: claim for claim in json.loads((made / "claims.json").read_text())}
    claim = claims["compare-shy-heterogeneity-rand-throughput"]
    assert (claim["n"], claim["ground"], claim["paper_value"]) == (3, "sim", None)
    # Half of the nodes are hot, so avoiding them helps in every queueing model.
    assert claim["effect"] == "confirmed"
    assert claim["ci95"][0] > 0
    planned = json.loads((made / "comparison.json").read_text())
    cells = [cell["run_id"] for cell in planned["cells"] if cell["controller"] == "shy"]
    journal = read_journal(made / cells[0] / "attempt-1" / "journal.jsonl")
    assert any(step["actions"] for step in journal.steps)
    again = compare(tmp_path, "--controllers", "shy,dlr", "--blocks", "3", "--json")
    assert "9 of 9 runs done (9 of them before)" in json.loads(again.stdout)["sentence"]


def test_a_missing_run_is_an_exit_code(tmp_path, monkeypatch):
    result = CampaignResult("compare-sim", 4, 0, 3, (("rand shy (block 0)", "it broke"),))
    planned = SimpleNamespace(model_dump=lambda **_: {}, left_out={})
    made = SimpleNamespace(result=result, folder=tmp_path, comparison=planned)
    monkeypatch.setattr(comparison, "compare", lambda ask, **_: made)
    ranking = SimpleNamespace(rows=[], claims=(), figure=tmp_path, claims_path=tmp_path)
    monkeypatch.setattr("analysis.comparison.build.build", lambda *_: ranking)
    ended = compare(tmp_path, "--json")
    assert (ended.exit_code, json.loads(ended.stdout)["ok"]) == (1, False)


def test_interrupted_it_draws_nothing_and_says_how_to_resume(tmp_path, monkeypatch):
    result = CampaignResult("compare-sim", 4, 1, 1, interrupted=True)
    made = SimpleNamespace(result=result, folder=tmp_path)
    monkeypatch.setattr(comparison, "compare", lambda ask, **_: made)
    ended = compare(tmp_path, "--json")
    assert ended.exit_code == 130
    assert "give the same command again to resume" in json.loads(ended.stdout)["sentence"]


def test_a_cells_parameter_may_be_true(tmp_path):
    write_shy(tmp_path / "own")
    ended = compare(tmp_path, "--controllers", "dlr", "-p", "same_objects=true", "--dry-run")
    assert ended.exit_code == 0, ended.output
