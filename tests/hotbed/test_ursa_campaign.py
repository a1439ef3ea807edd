"""Planner campaign on the command line, run and drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from processes import run

from hotbed import cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CAMPAIGN: dict[str, Any] = {
    "name": "ursa-tiny",
    "paper": "ursa",
    "planner": "ursa",
    "profile": "quick",
    "seed": 3,
    "parameters": {"time_limit_s": 600},
    "grids": [
        {
            "name": "inputs",
            "repetitions": 1,
            "figures": ["1", "3"],
            "vary": {"kind": ["s1", "s2"]},
            "fixed": {"size": "0.1K-10K", "method": "inputs"},
        },
        {
            "name": "methods",
            "repetitions": 1,
            "figures": ["7", "11", "11-tight"],
            "vary": {"method": ["alp", "alp-fast", "htoc", "sa"], "kind": ["s1", "s2"]},
            "fixed": {"size": "0.1K-0.1M"},
        },
        {
            "name": "selection",
            "figures": ["8"],
            "vary": {"selection": ["highest", "random"]},
            "fixed": {"size": "0.1K-0.1M", "method": "alp"},
        },
        {
            "name": "speedup",
            "repetitions": 1,
            "figures": ["9"],
            "vary": {"divide": ["none", "dc"], "program": ["ilp", "lp"]},
            "fixed": {"kind": "s2", "size": "50-50K", "method": "alp"},
        },
        {
            "name": "optimum",
            "repetitions": 1,
            "figures": ["10"],
            "vary": {"method": ["opt", "alp", "alp-fast", "sa"], "size": ["20-400", "30-900"]},
            "fixed": {"kind": "s2", "time_limit_s": 5},
        },
    ],
}


def test_a_campaign_is_run_and_drawn(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(CAMPAIGN))
    artifacts = tmp_path / "artifacts"
    ended = run("run", str(file), "--artifacts", str(artifacts), "--json")
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    assert facts["ok"], facts["sentence"]
    assert facts["result"]["ran"] == facts["result"]["planned"]

    with pytest.raises(SystemExit) as ok:
        cli.main(["report", "ursa", "--artifacts", str(artifacts), "--json"])
    assert not ok.value.code
    figures = {path.stem for path in (artifacts / "ursa" / "figures").glob("*.png")}
    expected = {"1", "3", "7", "8", "9", "10", "11", "11-tight"}
    assert figures == {f"ursa-fig{name}" for name in expected}
    claims = {
        claim["id"]: claim for claim in json.loads((artifacts / "ursa" / "claims.json").read_text())
    }
    assert claims["ursa-all-removed"]["measured"] == 1.0
    assert claims["ursa-selection-moves"]["measured"] > 1
    assert claims["ursa-time-130"]["effect"] == "not run"
    assert "Simulated" in (artifacts / "ursa" / "report.html").read_text()
