"""Small campaign of PriorityMeister, really simulated, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.core.load import load_campaign
from analysis.core.report import build
from campaigns.engine import session
from campaigns.engine.progress import Silent
from campaigns.engine.session import Request
from campaigns.engine.workers import Workers
from workloads.traces.standins import TABLE2

SMALL: dict[str, Any] = {
    "name": "pm-small",
    "paper": "prioritymeister",
    "system": "prioritymeister",
    "profile": "quick",
    "seed": 3,
    "retries": 0,
    "parameters": {"seconds": 40, "slo_percentile": 99, "k": 4},
    "grids": [
        {
            "name": "burst",
            "figures": ["7"],
            "vary": {"policy": ["pm", "none"]},
            # F's requests are few and large: 481 count, and a 99th percentile needs 1,000.
            "fixed": {"scenario": "burst", "burst": "F", "slo_percentile": 95},
            "repetitions": 1,
        },
        {
            "name": "misbehave",
            "figures": ["8"],
            "vary": {"policy": ["pm", "none"]},
            "fixed": {"scenario": "misbehave", "misbehaves": True, "k": 8},
            "repetitions": 1,
        },
        {
            "name": "table2",
            "figures": ["table2"],
            "vary": {"policy": ["inputs"]},
            "fixed": {"scenario": "table2"},
            "repetitions": 1,
        },
    ],
}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pm")
    file = folder / "pm-small.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    request = Request(str(file), artifacts=folder / "artifacts")
    result = session.run(request, progress=Silent(), workers=Workers(count=1))
    assert result.ok, result.sentence
    assert result.ran == 5
    again = session.run(request, progress=Silent(), workers=Workers(count=1))
    assert (again.already_done, again.ran) == (5, 0)
    return folder / "artifacts" / "pm-small"


@pytest.mark.slow
def test_simulated_cells_keep_their_bounds(campaign: Path) -> None:
    extras = {
        (run.run.parameters["scenario"], run.run.parameters["policy"]): run.summary.extra
        for run in load_campaign(campaign).runs
    }
    assert len(extras) == 5
    for (_, policy), extra in extras.items():
        if policy == "pm":
            assert extra["bounds"] >= 1
            assert extra["bounds_broken"] == 0
            assert 0 < max(v for k, v in extra.items() if k.endswith("_bound_ratio")) <= 1
    assert extras["burst", "pm"]["F_mean_s"] < extras["burst", "none"]["F_mean_s"]
    inputs = extras["table2", "inputs"]
    assert inputs["A_network"] == pytest.approx(TABLE2["A"].network_load, rel=0.1)
    assert inputs["A_storage"] == pytest.approx(TABLE2["A"].storage_load, rel=0.1)
    flooded = {policy: extras["misbehave", policy] for policy in ("pm", "none")}
    assert flooded["pm"]["C_p99_s"] < flooded["none"]["C_p99_s"]


@pytest.mark.slow
def test_it_has_a_report(campaign: Path) -> None:
    made = build(campaign.parent, "pm-small")
    verdicts = {claim.id: claim.verdict for claim in made.claims}
    assert verdicts["pm-bounds"] != "not reproduced"
    assert verdicts["pm-all-slos"] == "not run"
    assert made.path.exists()
