"""Verdicts by their definitions, and the runs that count."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import write_run

from analysis.core.claims import Claim, Evidence, Measured, NotRun, evaluate, verdict
from analysis.core.load import load_campaign, table
from analysis.core.stats import Estimate


def claim(**changes: object) -> Claim:
    base: dict[str, object] = {
        "id": "x",
        "figure": "1",
        "statement": "s",
        "paper_value": 0.45,
        "compute": lambda evidence: NotRun("nothing"),
        "unit": "relative change",
    }
    return Claim(**(base | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("estimate", "ground", "expected"),
    [
        (Estimate(0.44, 0.30, 0.58, 3), "chameleon", "reproduced"),
        (Estimate(0.44, 0.30, 0.58, 3), "local", "direction"),
        (Estimate(0.10, 0.05, 0.15, 3), "chameleon", "direction"),
        (Estimate(0.10, -0.05, 0.25, 3), "chameleon", "inconclusive"),
        (Estimate(-0.10, -0.15, -0.05, 3), "chameleon", "not reproduced"),
        (Estimate(0.44, math.nan, math.nan, 1), "chameleon", "inconclusive"),
    ],
)
def test_verdicts(estimate, ground, expected):
    assert verdict(claim(), estimate, ground) == expected


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (Estimate(1.0, 1.0, 1.0, 3), "reproduced"),
        (Estimate(1.01, 0.96, 1.049, 3), "reproduced"),
        (Estimate(1.01, 0.94, 1.08, 3), "inconclusive"),
        (Estimate(1.2, 1.1, 1.3, 3), "not reproduced"),
        (Estimate(1.0, math.nan, math.nan, 1), "inconclusive"),
    ],
)
def test_equality_is_shown_by_the_whole_interval(estimate, expected):
    one = claim(paper_value=1.0, kind="within", tolerance=0.05, unit="ratio", machines=False)
    assert verdict(one, estimate, "sim") == expected


@pytest.mark.parametrize("ground", ["sim", "local+sim"])
def test_simulation_reproduces_nothing_about_machines(ground):
    better, worse = Estimate(0.45, 0.44, 0.46, 9), Estimate(-0.45, -0.46, -0.44, 9)
    for changes in ({}, {"paper_value": None}, {"size": False}):
        assert verdict(claim(**changes), better, ground) == "direction"
        assert verdict(claim(**changes), worse, ground) == "not reproduced"
    assert verdict(claim(size=False), better, "local") == "reproduced"
    # Pure algorithm results need no machine, not even for a size.
    assert verdict(claim(size=False, machines=False), better, ground) == "reproduced"
    assert verdict(claim(kind="at_least", machines=False), better, ground) == "reproduced"
    result = evaluate(
        claim(compute=lambda evidence: Measured(better, ground, 1.0)), Evidence(table([]), [])
    )
    assert result.note is not None and result.note.startswith("simulated")


def test_a_claim_without_runs_or_interval_says_why():
    result = evaluate(claim(), Evidence(table([]), []))
    assert (result.verdict, result.measured, result.n) == ("not run", None, 0)
    assert result.note == "nothing"
    one = claim(compute=lambda e: Measured(Estimate(0.4, math.nan, math.nan, 1), "local", 1.0))
    result = evaluate(one, Evidence(table([]), []))
    assert result.ci95 is None
    assert "single run" in str(result.note)


@given(st.floats(-2, 2), st.floats(0, 1), st.sampled_from(["local", "chameleon"]))
def test_no_effect_in_the_interval_is_never_a_success(value, half, ground):
    estimate = Estimate(value, value - half, value + half, 3)
    got = verdict(claim(), estimate, ground)
    if estimate.low <= 0 <= estimate.high:
        assert got == "inconclusive"
    else:
        assert (got == "not reproduced") is (value < 0)


def test_the_last_done_attempt_of_a_planned_cell_counts_and_others_are_counted(tmp_path):
    campaign = tmp_path / "dlr-quick"
    parameters = {"op": "seq", "scenario": "none", "controller": "default"}
    write_run(campaign, parameters, 0, 1.0, status="spoiled", attempt=1)
    write_run(campaign, parameters, 0, 2.0, attempt=2)
    write_run(campaign, parameters, 1, 3.0, status="failed")
    broken = write_run(campaign, parameters, 2, 4.0)
    (broken / "run.json").write_text("{")
    attempts = load_campaign(campaign)
    assert [run.summary.whole[0].throughput_mb_s for run in attempts.runs] == [2.0]
    assert (attempts.spoiled, attempts.failed, len(attempts.unreadable)) == (1, 1, 1)
    # A changed controller creates new run ids; the old runs stay in the folder.
    new = write_run(campaign, parameters, 3, 5.0)
    (campaign / "campaign.json").write_text(json.dumps({"cells": [{"run_id": new.parent.name}]}))
    attempts = load_campaign(campaign)
    assert [run.run.run_id for run in attempts.runs] == [new.parent.name]
    assert attempts.outdated > 0
