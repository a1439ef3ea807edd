"""Campaign of simulated bursts on the command line: killed half way, resumed and drawn. Results are
the same wherever they are computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import kill_when, run

from hotbed import cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCHEDULERS = [
    *("fixed", "random", "two-choice", "collaborative"),
    *("preassign", "both", "prequal", "oracle"),
]
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


def test_a_campaign_is_killed_resumed_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(CAMPAIGN))
    artifacts = tmp_path / "artifacts"
    folder = artifacts / "twochoice-tiny"
    words = ["run", str(file), "--artifacts", str(artifacts)]
    kill_when(words, folder, 5)
    ended = run(*words, "--json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)["result"]
    assert result["already_done"] >= 5
    assert result["already_done"] + result["ran"] == result["planned"] == 62
    assert not list(folder.glob("*/.attempt-*"))

    with pytest.raises(SystemExit) as ok:
        cli.main(["report", "twochoice", "--artifacts", str(artifacts), "--json"])
    assert not ok.value.code
    figures = {path.stem for path in (artifacts / "twochoice" / "figures").glob("*.png")}
    assert figures == {f"twochoice-fig{name}" for name in ("3", "4", "learning", "scale")}
    claims = {
        claim["id"]: claim
        for claim in json.loads((artifacts / "twochoice" / "claims.json").read_text())
    }
    assert claims["twochoice-fixed-even"]["measured"] == 10.0
    assert claims["twochoice-fixed-even"]["verdict"] == "reproduced"
    assert claims["twochoice-oracle"]["measured"] > 1
    assert claims["twochoice-scale"]["verdict"] == "not run"
    assert "Simulated" in (artifacts / "twochoice" / "report.html").read_text()


def test_results_are_the_same_wherever_they_are_computed(tmp_path: Path) -> None:
    grid = {
        "name": "response",
        "figures": ["3"],
        "vary": {"scheduler": SCHEDULERS},
        "fixed": {"size": "50-500", "straggler_ratio": 0.1, "spread_s": 0.02},
        "repetitions": 2,
    }
    seen = []
    for count in ("1", "2"):
        file = tmp_path / "tiny.yaml"
        file.write_text(yaml.safe_dump(CAMPAIGN | {"grids": [grid]}))
        artifacts = tmp_path / f"artifacts-{count}"
        words = ["run", str(file), "--artifacts", str(artifacts), "--workers", count]
        ended = run(*words)
        assert ended.returncode == 0, ended.stderr
        found = {}
        for path in (artifacts / "twochoice-tiny").glob("*/attempt-1"):
            extra = json.loads((path / "summary.json").read_text())["extra"]
            numbers = {name: v for name, v in extra.items() if not name.startswith("cost_")}
            found[path.parent.name] = numbers, (path / "bursts.json").read_text()
        assert len(found) == 16
        seen.append(found)
    assert seen[0] == seen[1]
