"""COSBench on the object gateway: its figures and claims, from made-up runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.core.claims import Evidence, evaluate
from analysis.core.figures import Missing
from analysis.core.report import load_evidence
from analysis.papers.mos.catalogue import PARTS
from analysis.papers.mos.gateway import CLAIMS, FIGURES, GATEWAY, against, bar_of, table
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.validate import figures_of
from schemas.run import OpSummary, Provenance, Run, Summary

SPEED = {"default": 10.0, "dlr": 15.0, "reweight": 10.0}


def write(
    campaign: Path, letter: str, scenario: str, controller: str, block: int, **more: Any
) -> None:
    """Write a made-up run."""
    inert = more.pop("inert", False)
    parameters = {
        **{"op": "s3", "workload": letter, "workers": 16, "scenario": scenario},
        **{"controller": controller, "controller_parameters": {}, "duration_s": 180.0, **more},
    }
    text = json.dumps([parameters, block], sort_keys=True)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = campaign / run_id / "attempt-1"
    folder.mkdir(parents=True)
    speed = SPEED[controller] * (2 if scenario == "none" else 1) * (1 + 0.02 * block)
    if controller == "dlr":
        speed *= 1 + 0.01 * block
    whole = OpSummary(
        op="s3",
        seconds=30.0,
        operations=1000,
        bytes=int(30e6 * speed),
        throughput_mb_s=speed,
        iops=100.0,
        latency_mean_s=1 / speed,
        errors=0,
    )
    read = whole.model_copy(update={"op": "read", "throughput_mb_s": 1.0})
    summary = Summary(whole=[read, whole], steady=[whole], pressure_mean={}, inert=inert)
    (folder / "summary.json").write_text(summary.model_dump_json())
    run = Run(
        kind="dlr",
        **{"run_id": run_id, "campaign": campaign.name, "attempt": 1, "block": block, "order": 0},
        **{"seed": block, "ground": "local", "parameters": parameters, "time_scale": 1 / 6},
        **{"status": "done", "phases_s": {}, "started_at": "2026-01-01T00:00:00+00:00"},
        **{"ended_at": "2026-01-01T00:01:00+00:00", "osd_count": 8},
        provenance=Provenance(
            commit=None, dirty=None, hotbed_version="0", versions={}, hosts={}, site="", signal=None
        ),
    )
    (folder / "run.json").write_text(run.model_dump_json())


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    campaign = tmp_path_factory.mktemp("runs") / "mos-gateway"
    for block in range(3):
        for letter in ("A", "C"):
            write(campaign, letter, "none", "default", block)
            for controller in SPEED:
                write(campaign, letter, "heterogeneity", controller, block)
    for block in range(3):
        write(campaign, "B", "heterogeneity", "default", block)
        write(campaign, "B", "heterogeneity", "reweight", block, inert=True)
    return load_evidence([campaign], GATEWAY)[0]


def test_it_is_a_part_and_the_campaign_makes_its_figures() -> None:
    assert GATEWAY in PARTS
    campaign = load_campaign(find_campaign("mos-gateway"))
    assert campaign.paper == "mos"
    assert figures_of(campaign) == [figure.id for figure in FIGURES]
    assert {claim.figure for claim in CLAIMS} == {figure.id for figure in FIGURES}
    assert table([]).empty


def test_controllers_are_paired_by_block_on_reads_and_writes_together(evidence: Evidence) -> None:
    rows = evidence.table
    base = ("heterogeneity", "default")
    found = against(rows, "A", "throughput", ("heterogeneity", "dlr"), base)
    assert found is not None
    assert found.n == 3
    assert found.value == pytest.approx(1.5 * (1.01 * 1.02) ** (1 / 3))
    assert against(rows, "D", "throughput", ("heterogeneity", "dlr"), base) is None
    # A controller without changes supports nothing.
    assert against(rows, "B", "throughput", ("heterogeneity", "reweight"), base) is None


def test_who_changed_nothing_is_shown_as_such_and_one_run_without_an_interval(
    evidence: Evidence,
) -> None:
    rows = evidence.table
    base, reweight = ("heterogeneity", "default"), ("heterogeneity", "reweight")
    idle = bar_of(rows, "B", "throughput", reweight, base)
    assert idle is not None
    assert idle.inert
    assert idle.ratio.n == 3
    assert idle.ratio.value == pytest.approx(1)
    acting = bar_of(rows, "A", "throughput", reweight, base)
    assert acting is not None
    assert not acting.inert
    single = bar_of(rows[rows["block"] == 1], "A", "throughput", reweight, base)
    assert single is not None
    assert np.isnan(single.ratio.error).all()
    assert bar_of(rows, "D", "throughput", reweight, base) is None


def test_a_claim_without_support_says_who_changed_nothing(evidence: Evidence) -> None:
    name = "mos-gateway-heterogeneity-b-throughput-dlr-over-reweight"
    claim = next(claim for claim in CLAIMS if claim.id == name)
    assert "3 runs changed nothing" in str(evaluate(claim, evidence).note)


def test_claims_are_of_what_was_run(evidence: Evidence) -> None:
    results = {claim.id: evaluate(claim, evidence) for claim in CLAIMS}
    stem = "mos-gateway-heterogeneity-a"
    assert results[f"{stem}-throughput-dlr-over-default"].verdict == "reproduced"
    assert results[f"{stem}-latency-dlr-over-reweight"].verdict == "reproduced"
    assert results["mos-gateway-calm-c-latency"].verdict == "reproduced"
    assert results["mos-gateway-calm-d-latency"].verdict == "not run"
    assert results["mos-gateway-interference-a-latency-dlr-over-default"].verdict == "not run"
    assert all(claim.paper_value is None for claim in CLAIMS)


def test_figures_are_drawn_or_say_what_is_missing(evidence: Evidence, tmp_path: Path) -> None:
    for figure in FIGURES:
        made = figure.draw(evidence, tmp_path, figure.id)
        assert isinstance(made, Path)
        assert made.stat().st_size > 10_000
    nothing = Evidence(evidence.table.iloc[:0], ())
    assert isinstance(FIGURES[0].draw(nothing, tmp_path, "none"), Missing)
