"""PriorityMeister's claims and figures on runs with known values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_pm import (
    REQUESTS,
    all_runs,
    as_in_the_paper,
    cells,
    extra_of,
    run_of,
    why_runs,
    write,
)

from analysis.core import style
from analysis.core.claims import Claim, Evidence, NotRun, evaluate
from analysis.core.load import LoadedRun
from analysis.core.papers import paper
from analysis.core.report import build
from analysis.papers.prioritymeister.bound_table import bound_tables
from analysis.papers.prioritymeister.catalogue import FIGURES, LOCAL_FIGURES, PARTS
from analysis.papers.prioritymeister.claims import CLAIMS, LOCAL_CLAIMS
from analysis.papers.prioritymeister.runs import at_k, bootstrap, latency, met, table, varied
from analysis.papers.prioritymeister.runs import cells as rows_of
from analysis.papers.prioritymeister.settings import settings, share_met
from analysis.papers.prioritymeister.table2 import tables as table2
from analysis.papers.prioritymeister.why_claims import CAUSES
from analysis.papers.prioritymeister.why_figure import causes
from schemas.cells.prioritymeister import PM, PmCell
from schemas.claim import ClaimResult
from schemas.errors import UserError
from schemas.run import Summary

OF_FIGURES = tuple(claim for claim in CLAIMS if claim not in CAUSES)

pytestmark = pytest.mark.slow
"""Creating and tabulating hundreds of runs takes seconds."""


def evidence_of(runs: list[LoadedRun]) -> Evidence:
    return Evidence(table(runs), runs)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return evidence_of(all_runs())


@pytest.fixture(scope="module")
def results(evidence: Evidence) -> dict[str, ClaimResult]:
    return {claim.id: evaluate(claim, evidence) for claim in OF_FIGURES}


def changed(run: LoadedRun, **values: float) -> LoadedRun:
    extra = run.summary.extra | values
    return replace(
        run, summary=Summary.model_validate({**run.summary.model_dump(), "extra": extra})
    )


def test_every_figure_of_the_paper_is_there() -> None:
    ids = {entry.id for entry in FIGURES}
    assert {"1", "4", "5", "6", "7", "8", "9", "10", "11", "table2"} <= ids
    assert {entry.id for entry in LOCAL_FIGURES} >= {f"{n}-local" for n in "156789"}
    assert len(ids) == len(FIGURES)
    assert paper("pm").parts == PARTS


def test_claims_have_names_of_their_own() -> None:
    every = [claim.id for claim in (*CLAIMS, *LOCAL_CLAIMS)]
    assert len(set(every)) == len(every)
    assert all(claim.paper == "prioritymeister" for claim in CLAIMS)
    assert all(claim.machines for claim in LOCAL_CLAIMS)
    figures = {entry.id for entry in FIGURES}
    assert {claim.figure.rstrip("abc") for claim in CLAIMS} <= figures


def test_what_holds_as_in_the_paper_ends_at_direction(results: dict[str, ClaimResult]) -> None:
    verdicts = {name: result.verdict for name, result in results.items()}
    algorithm = {claim.id for claim in OF_FIGURES if not claim.machines}
    for name, verdict in verdicts.items():
        assert verdict == ("reproduced" if name in algorithm else "direction"), (name, verdict)
    assert algorithm >= {"pm-bounds", "pm-table2"}


def test_claims_are_measured_from_blocks(results: dict[str, ClaimResult]) -> None:
    assert results["pm-orders-byslo"].measured == pytest.approx(5.0)
    assert results["pm-orders-more-cake"].measured == pytest.approx(6.0)
    assert results["pm-cake-96-balanced"].measured == pytest.approx(0.05)
    assert results["pm-cake-grows-sharp"].measured == pytest.approx(0.045)
    assert results["pm-only-edf"].measured == pytest.approx(1.0)
    assert results["pm-levels-one-measured"].measured == pytest.approx(2 / 12)
    assert {result.n for result in results.values()} == {2}
    assert "all of it in 2 of 2 blocks" in (results["pm-all-slos"].note or "")


def test_the_other_way_is_not_reproduced() -> None:
    def worse(cell: PmCell, workload: str) -> float:
        if cell.policy == "pm":
            return 0.9
        return 1.0

    evidence = evidence_of(all_runs(worse))
    found = {claim.id: evaluate(claim, evidence).verdict for claim in CLAIMS}
    for name in ("pm-all-slos", "pm-only-cake", "pm-contained", "pm-orders", "pm-settings-edf"):
        assert found[name] == "not reproduced", name


def test_nothing_is_run_without_runs() -> None:
    evidence = evidence_of([])
    assert {evaluate(claim, evidence).verdict for claim in CLAIMS} == {"not run"}
    assert all(isinstance(claim.compute(evidence), NotRun) for claim in CLAIMS)


def test_a_broken_bound_shows_loudly(evidence: Evidence) -> None:
    runs = list(evidence.runs)
    index = next(i for i, run in enumerate(runs) if "A_bound_ratio" in run.summary.extra)
    runs[index] = changed(runs[index], A_bound_ratio=1.2)
    broken = evidence_of(runs)
    (made,) = bound_tables(broken.table)
    assert "1 BROKEN" in made.title
    assert made.rows[0][0].startswith(f"BROKEN in run {runs[index].run.run_id}")
    claim = next(one for one in CLAIMS if one.id == "pm-bounds")
    result = evaluate(claim, broken)
    assert result.verdict != "reproduced"
    assert "1 of" in (result.note or "")


def test_an_slo_is_met_by_its_share_of_requests(evidence: Evidence) -> None:
    rows = latency(rows_of(evidence.table, "disk", "cake", k=2.0))
    b = rows["workload"] == "B"
    assert met(rows, 99.0).all()
    assert not met(rows[b], 99.9).any()
    assert met(rows[~b], 99.9).all()


def test_blind_policies_are_held_against_every_k(evidence: Evidence) -> None:
    found = settings(evidence.table)
    assert set(found[found["variant"] == "byslo"]["k"]) == {1.25, 2.0, 3.0}
    assert share_met(evidence.table, "pm").tolist() == [1.0, 1.0]
    assert share_met(evidence.table, "none").tolist() == [0.0, 0.0]
    rows = latency(rows_of(evidence.table, "disk", "ps", k=2.0))
    loose = at_k(rows, 20.0)
    assert (loose["within"] == 1.0).all()
    assert loose["slo_s"].tolist() == pytest.approx((10 * rows["slo_s"]).tolist())


def test_the_longest_traces_of_a_scenario_count() -> None:
    short, long = (
        run_of(cell, 0, extra_of(cell, 0, as_in_the_paper), "sim")
        for cell in (PM.of(scenario="disk", seconds=s) for s in (300, 600))
    )
    found = table([short, long])
    assert set(found["seconds"]) == {300, 600}
    assert set(found[found["usual"]]["seconds"]) == {600}
    other = PM.of(scenario="misbehave", seconds=300)
    both = table([short, long, run_of(other, 0, extra_of(other, 0, as_in_the_paper), "sim")])
    assert set(both[both["usual"]]["scenario"]) == {"disk", "misbehave"}


@pytest.mark.parametrize("other", [{"depth": 4}, {"copy_kib": 64}, {"slo_percentile": 100.0}])
def test_runs_that_are_not_as_usual_feed_no_figure(other: dict[str, float]) -> None:
    usual = PM.of(scenario="disk")
    unusual = PM.of(**{"scenario": "disk", **other})
    runs = [run_of(cell, 0, extra_of(cell, 0, as_in_the_paper), "sim") for cell in (usual, unusual)]
    found = table(runs)
    assert found["run_id"].nunique() == 2
    assert set(rows_of(found, "disk", "pm", k=2.0)["run_id"]) == {runs[0].run.run_id}
    at = {"k": 2.0, "seconds": 600.0}
    assert set(varied(found, "disk", "pm", **at, **other)["run_id"]) == {runs[1].run.run_id}


@pytest.mark.parametrize(
    ("name", "values"),
    [("trace_windows", ("random", "consecutive")), ("trace_load", ("table2", "own"))],
)
def test_windows_of_real_traces_are_told_apart(name: str, values: tuple[str, str]) -> None:
    told = {"scenario": "disk", "traces": "/traces"}
    cells = [PM.of(**{**told, name: value}) for value in values]
    runs = [run_of(cell, 0, extra_of(cell, 0, as_in_the_paper), "sim") for cell in cells]
    assert table(runs)["run_id"].nunique() == 2


def test_longer_traces_of_pm_why_push_no_figures_runs_aside() -> None:
    cell = PM.of(scenario="disk", seconds=300)
    longer = cell.model_copy(update={"seconds": 1000.0})
    (usual, why) = (
        run_of(one, 0, extra_of(one, 0, as_in_the_paper), "sim") for one in (cell, longer)
    )
    why = replace(why, run=why.run.model_copy(update={"campaign": "pm-why"}))
    assert set(rows_of(table([usual, why]), "disk", "pm", k=2.0)["seconds"]) == {300}


def test_suspected_causes_are_compared_with_a_figures_own_cells() -> None:
    def within(cell: PmCell, workload: str) -> float:
        if cell.scenario == "burst":
            missed = {"balanced": 0.01, "sharp": 0.01 * cell.sharpness}[cell.gaps]
            return 1 - missed / cell.k * (0.5 if cell.copy_kib == 64 else 1.0)
        provable = cell.k >= 2 or cell.slo_percentile == 100
        if cell.policy == "pm":
            return 1.0 if provable else 0.9
        return 0.9 if cell.policy == "byslo" or not provable else 1.0

    evidence = evidence_of(why_runs(within))
    found = {claim.id: evaluate(claim, evidence) for claim in CAUSES}
    assert found["pm-why-orders-k"].measured == pytest.approx(6.0)
    assert found["pm-why-orders-k"].verdict == "direction"
    assert found["pm-why-orders-copy"].verdict == "inconclusive"
    assert found["pm-why-orders-k-edf"].measured == pytest.approx(0.0)
    assert found["pm-why-orders-longest-byslo"].measured == pytest.approx(6.0)
    assert found["pm-why-network-k5"].measured == pytest.approx(1.0)
    assert found["pm-why-estimator-0.2"].measured == pytest.approx(0.0)
    assert found["pm-why-low-copy"].measured == pytest.approx(0.0025)
    assert found["pm-why-low-k"].measured == pytest.approx(0.0025)
    assert found["pm-why-high-sharp10-cake"].measured == pytest.approx(0.045)
    assert {one.n for one in found.values()} == {2}


def test_grounds_are_kept_apart(evidence: Evidence) -> None:
    simulated, measured = PARTS
    assert all(simulated.takes(run.run) and not measured.takes(run.run) for run in evidence.runs)


def test_a_grounds_own_k_counts_where_it_has_one_alone() -> None:
    runs = [
        run_of(cell, block, extra_of(cell, block, as_in_the_paper), "local")
        for cell in (PM.of(scenario="disk", policy=p, k=3) for p in ("pm", "cake"))
        for block in range(2)
    ]
    found = {one.id: evaluate(one, evidence_of(runs)) for one in LOCAL_CLAIMS}
    assert found["pm-only-cake-local"].measured == pytest.approx(1.0)
    assert found["pm-only-cake-local"].ground == "local"


def test_table_2_is_told_beside_the_papers(evidence: Evidence) -> None:
    (made,) = table2(evidence.table)
    rows = {row[0]: row for row in made.rows}
    assert rows["C"][1:3] == ("55 %", "55 %")
    assert rows["E"][1:3] == ("120 %", "> 100 %")
    assert rows["K"][1:3] == ("N/A", "N/A")
    assert rows["D"][5:] == ("23", "23", "2")


def test_a_single_run_has_no_interval() -> None:
    one = bootstrap([3.0])
    assert one is not None
    assert one.low != one.low  # NaN
    many = bootstrap([1.0, 2.0, 3.0, 4.0, 5.0])
    assert many is not None
    assert many.low <= many.value == 3.0 <= many.high
    assert bootstrap([]) is None


def test_requests_of_the_synthetic_runs_suffice() -> None:
    assert REQUESTS >= 10_000
    assert len(list(cells("pm-full"))) > 150  # all of the paper's figures


def test_only_causes_that_were_looked_for_have_a_panel(tmp_path: Path) -> None:
    runs = [
        run
        for run in why_runs(as_in_the_paper)
        if run.run.parameters["scenario"] == "disk" and run.run.parameters["permutation"]
    ]
    with style.recorded(pdf=False) as shown:
        causes(evidence_of(runs), tmp_path, "why")
    assert len([panel for panel in shown["why"] if "lines" in panel]) == 1


# 84 s with one parallel job: every figure of the paper is drawn, with its intervals.
@pytest.mark.timeout(400)
def test_a_report_has_every_figure(tmp_path: Path) -> None:
    for run in (*all_runs(), *why_runs(as_in_the_paper)):
        write(run, tmp_path)
    made = build(tmp_path, "pm")
    drawn = {figure.entry.id for figure in made.figures if figure.path is not None}
    missing = {figure.entry.id: figure.missing for figure in made.figures if figure.path is None}
    assert drawn == {entry.id for entry in FIGURES}, missing
    assert set(missing) == {entry.id for entry in LOCAL_FIGURES}
    for figure in made.figures:
        if figure.path is not None:
            assert figure.path.with_suffix(".pdf").exists()
    written = json.loads(made.claims_path.read_text())
    assert {one["id"] for one in written} == {one.id for one in (*CLAIMS, *LOCAL_CLAIMS)}
    assert "Simulated" in made.path.read_text()
    with pytest.raises(UserError, match="has no such figure"):
        build(tmp_path, "pm", only="12")


def test_claims_are_declared_with_what_they_are_held_against() -> None:
    stated: dict[str, Claim] = {c.id: c for c in CLAIMS if c.paper_value is not None}
    assert stated["pm-orders-byslo"].paper_value == 5
    assert stated["pm-cake-96-sharp"].paper_value == pytest.approx(0.04)
    assert stated["pm-all-slos"].kind == "within"
    assert "pm-only-mclock" not in stated
