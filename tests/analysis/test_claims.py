"""Verdicts by their definitions, and the DLR claims on runs with known effects."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import write_campaign, write_run

from analysis.core.claims import Claim, Evidence, Measured, NotRun, evaluate, verdict
from analysis.core.load import load_campaign, table
from analysis.core.report import load_evidence
from analysis.core.stats import Estimate
from analysis.papers.dlr.claims import CLAIMS, STATED
from schemas.claim import ClaimResult


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
def test_verdicts(estimate: Estimate, ground: str, expected: str) -> None:
    assert verdict(claim(), estimate, ground) == expected


@pytest.mark.parametrize("ground", ["sim", "local+sim"])
def test_what_is_simulated_reproduces_nothing_about_machines(ground: str) -> None:
    better, worse = Estimate(0.45, 0.44, 0.46, 9), Estimate(-0.45, -0.46, -0.44, 9)
    for changes in ({}, {"paper_value": None}, {"size": False}):
        assert verdict(claim(**changes), better, ground) == "direction"
        assert verdict(claim(**changes), worse, ground) == "not reproduced"
    assert verdict(claim(size=False), better, "local") == "reproduced"
    # Pure algorithm results need no machine.
    assert verdict(claim(size=False, machines=False), better, ground) == "reproduced"
    told = evaluate(
        claim(compute=lambda evidence: Measured(better, ground, 1.0)), Evidence(table([]), [])
    )
    assert told.note is not None and told.note.startswith("simulated")


def test_at_least_accepts_more_and_at_most_accepts_less() -> None:
    more, less = Estimate(2.0, 1.8, 2.2, 3), Estimate(0.05, 0.01, 0.09, 3)
    assert verdict(claim(kind="at_least"), more, "chameleon") == "reproduced"
    assert verdict(claim(kind="at_most"), more, "chameleon") == "direction"
    assert verdict(claim(kind="at_most"), less, "chameleon") == "reproduced"


@given(st.floats(-2, 2), st.floats(0, 1), st.sampled_from(["local", "chameleon"]))
def test_no_effect_in_the_interval_is_never_a_success(
    value: float, half: float, ground: str
) -> None:
    estimate = Estimate(value, value - half, value + half, 3)
    got = verdict(claim(), estimate, ground)
    if estimate.low <= 0 <= estimate.high:
        assert got == "inconclusive"
    else:
        assert (got == "not reproduced") is (value < 0)


def test_a_claim_without_runs_says_why() -> None:
    result = evaluate(claim(), Evidence(table([]), []))
    assert (result.verdict, result.measured, result.n, result.note) == (
        "not run",
        None,
        0,
        "nothing",
    )


def test_the_papers_14_numbers_are_declared() -> None:
    stated = [c.paper_value for c in STATED]
    assert stated == [
        0.54,
        2.2,
        0.55,
        2.3,
        0.45,
        0.65,
        0.30,
        0.41,
        0.09,
        0.19,
        0.08,
        0.16,
        0.98,
        0.96,
    ]
    assert len({c.id for c in CLAIMS}) == len(CLAIMS)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ClaimResult]:
    campaign = write_campaign(tmp_path_factory.mktemp("artifacts"), with_samples=False)
    evidence, _ = load_evidence([campaign])
    return {c.id: evaluate(c, evidence) for c in CLAIMS}


def test_dlr_claims_find_the_effects_that_are_there(results: dict[str, ClaimResult]) -> None:
    seq = results["dlr-heterogeneity-seq-throughput"]
    assert seq.measured == pytest.approx(0.25, abs=0.04)
    assert seq.ci95 is not None
    assert seq.ci95[0] > 0
    assert seq.n == 3
    latency = results["dlr-heterogeneity-seq-latency"]
    assert latency.measured == pytest.approx(1 - 1 / 1.25, abs=0.03)
    assert latency.depends_on == ["dlr-heterogeneity-seq-throughput"]
    assert results["heterogeneity-throughput"].measured == pytest.approx(0.4, abs=0.03)
    assert results["heterogeneity-latency"].measured == pytest.approx(1 / 0.6, abs=0.1)
    assert results["write-small-gain"].verdict == "inconclusive"
    assert results["mean-pressure-hurts"].verdict == "reproduced"
    assert results["threshold-0.2-best"].measured == pytest.approx(0.1, abs=0.04)


def test_the_96_percent_claim_is_the_quotient_of_latencies(tmp_path: Path) -> None:
    campaign = tmp_path / "dlr-quick"
    for block in range(3):
        for controller, throughput in (("dlr", 200.0), ("reweight", 100.0 + block)):
            write_run(
                campaign,
                {"op": "seq", "scenario": "heterogeneity", "controller": controller},
                block,
                throughput,
            )
    evidence, _ = load_evidence([campaign])
    by_id = {c.id: c for c in STATED}
    assert evaluate(by_id["dlr-reweight-latency"], evidence).measured == pytest.approx(
        0.98, abs=0.01
    )


def test_inert_cells_support_no_claim(tmp_path: Path) -> None:
    campaign = tmp_path / "dlr-quick"
    for block in range(3):
        for controller in ("dlr", "reweight"):
            write_run(
                campaign,
                {"op": "seq", "scenario": "heterogeneity", "controller": controller},
                block,
                150.0 + block,
                inert=controller == "reweight",
            )
    evidence, _ = load_evidence([campaign])
    result = evaluate({c.id: c for c in STATED}["dlr-reweight-throughput"], evidence)
    assert result.verdict == "not run"
    assert "inert" in str(result.note)


def test_the_last_done_attempt_counts_and_others_are_counted(tmp_path: Path) -> None:
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


def test_measured_without_interval_is_noted() -> None:
    one = claim(compute=lambda e: Measured(Estimate(0.4, math.nan, math.nan, 1), "local", 1.0))
    result = evaluate(one, Evidence(table([]), []))
    assert result.ci95 is None
    assert "single run" in str(result.note)


def test_runs_of_cells_that_have_changed_since_do_not_count(tmp_path: Path) -> None:
    """A changed controller creates new run ids; the old runs stay in the folder."""
    campaign = tmp_path / "dlr-quick"
    parameters = {"op": "seq", "scenario": "none", "controller": "default"}
    old = write_run(campaign, parameters, 0, 1.0)
    new = write_run(campaign, parameters, 1, 2.0)
    cells = [{"run_id": new.parent.name}]
    (campaign / "campaign.json").write_text(json.dumps({"cells": cells}))
    attempts = load_campaign(campaign)
    assert [run.run.run_id for run in attempts.runs] == [new.parent.name]
    assert attempts.outdated == 1
    assert old.exists()


def test_a_shortened_cell_does_not_get_into_another_figure(tmp_path: Path) -> None:
    """Figure 10 also runs the standard cells, but for half the time."""
    campaign = tmp_path / "dlr-full"
    for block in range(3):
        for controller, long, short in (("default", 100.0, 50.0), ("dlr", 150.0 + block, 40.0)):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_run(campaign, cell, block, long)
            write_run(campaign, cell | {"duration_s": 90}, block, short)
    evidence, _ = load_evidence([campaign])
    by_id = {c.id: c for c in STATED}
    result = evaluate(by_id["dlr-heterogeneity-seq-throughput"], evidence)
    assert result.measured == pytest.approx(0.51, abs=0.01)
    assert result.n == 3


def test_whether_a_controller_beats_dlr_is_told_over_all_reads(tmp_path: Path) -> None:
    """Settings differ more than controllers; a block that lacks one does not count."""
    campaign = tmp_path / "dlr-full"
    gains = {("seq", "heterogeneity"): 1.4, ("seq", "interference"): 0.8}
    for block in range(4):
        for op in ("seq", "rand"):
            for scenario in ("heterogeneity", "interference"):
                cell = {"op": op, "scenario": scenario}
                gain = gains.get((op, scenario), 1.1 + 0.01 * block)
                level = 100.0 * (1 + block)
                write_run(campaign, cell | {"controller": "dlr"}, block, level)
                if (block, op, scenario) != (3, "rand", "interference"):
                    write_run(campaign, cell | {"controller": "dlr-pg"}, block, level * gain)
    evidence, _ = load_evidence([campaign])
    by_id = {c.id: c for c in CLAIMS}
    result = evaluate(by_id["dlr-pg-beats-dlr"], evidence)
    middle = (1.4 * 0.8) ** 0.25 * (1.10 * 1.11 * 1.12) ** (1 / 6) - 1
    assert result.measured == pytest.approx(middle)
    assert (result.n, result.verdict) == (3, "reproduced")
    assert evaluate(by_id["dlr-auto-beats-dlr"], evidence).verdict == "not run"


def test_a_slower_block_does_not_hide_what_load_does(tmp_path: Path) -> None:
    """Seen with figure 3: a block of another day read a fifth slower under every mix."""
    campaign = tmp_path / "dlr-full"
    for block, level in enumerate((100.0, 150.0, 140.0)):
        for step, mix in enumerate("ABCDE"):
            write_run(
                campaign,
                {"op": "seq", "scenario": "mix", "mix": mix, "controller": "default"},
                block,
                level * (1 - 0.05 * step),
                # the slowest block has the least pressure
                pressures={f"osd{n}": 10.0 + 15 * step + 5 * block for n in range(4)},
            )
    evidence, _ = load_evidence([campaign])
    by_id = {c.id: c for c in CLAIMS}
    found = evaluate(by_id["mean-pressure-hurts"], evidence)
    assert found.verdict == "reproduced"
    assert found.measured is not None
    assert found.measured < -0.9
