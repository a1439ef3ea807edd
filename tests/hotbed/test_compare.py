"""`hotbed compare` and `hotbed new controller`, from the command line to the files."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from campaigns import comparison
from campaigns.engine.display import CampaignResult, Silent
from campaigns.grounds.sim import SIMULATIONS
from campaigns.papers.dlr.kind import KIND
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


def test_interrupted_it_draws_nothing_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CampaignResult("compare-fake", 4, 1, 1, interrupted=True)
    made = SimpleNamespace(result=result, folder=tmp_path)
    monkeypatch.setattr(comparison, "compare", lambda ask, **_: made)
    ended = invoke(tmp_path, "--json")
    assert ended.exit_code == 130
    assert "give the same command again to resume" in json.loads(ended.stdout)["sentence"]
