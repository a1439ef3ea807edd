"""Claims and figures of the planner on runs with known values."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from synthetic import write_run
from synthetic_ursa import SIZES, write_all, write_inputs, write_plan

from analysis.core.claims import Claim, Evidence, NotRun, evaluate, verdict
from analysis.core.load import load_campaign
from analysis.core.papers import paper
from analysis.core.report import Report, build
from analysis.core.stats import Estimate
from analysis.papers.ursa.catalogue import PLANNER
from analysis.papers.ursa.claims import CLAIMS
from analysis.papers.ursa.runs import cells, paired, quotient, sizes, table
from schemas.claim import ClaimResult
from schemas.sizes import count_of, counts_of, size_name
from tests.drawing import texts_by_figure, texts_of

STATED = {
    "ursa-input-variation": 10.0,
    "ursa-size": 30e6,
    "ursa-third-left": 1 / 3,
    "ursa-all-removed": 1.0,
    "ursa-speedup-same-cost": 1.0,
    "ursa-ilp-two-days-none": 172800.0,
    "ursa-ilp-two-days-dc": 172800.0,
    "ursa-optimum": 1.0,
    "ursa-sa-cost-least": 80.0,
    "ursa-sa-cost-most": 300.0,
    "ursa-htoc-cost-least": 2.0,
    "ursa-htoc-cost-most": 20.0,
    "ursa-time-two-minutes": 120.0,
    "ursa-time-130": 130.0,
    "ursa-same-moves": 1.0,
}
"""Claims about the planner in the abstract and sections 1, 2.1, 5.1 and 7, or read from them."""


def evidence_of(campaign: Path) -> Evidence:
    runs = [run for run in load_campaign(campaign).runs if PLANNER.takes(run.run)]
    return Evidence(table(runs), runs)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ClaimResult]:
    campaign = write_all(tmp_path_factory.mktemp("artifacts"))
    evidence = evidence_of(campaign)
    return {claim.id: evaluate(claim, evidence) for claim in CLAIMS}


def test_every_stated_number_is_a_claim() -> None:
    stated = {claim.id: claim.paper_value for claim in CLAIMS if claim.paper_value is not None}
    ours = {f"{name}-hotbed" for name in STATED}
    assert {name: value for name, value in stated.items() if name not in ours} == STATED
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.paper == "ursa" and not claim.machines for claim in CLAIMS)


def test_claims_are_measured_from_paired_runs(results: dict[str, ClaimResult]) -> None:
    expected = {
        "ursa-third-left": 1 / 3,
        "ursa-all-removed": 1.0,
        "ursa-sa-cost-least": 150 / 1.02,
        "ursa-htoc-cost-most-hotbed": 10.0,
        "ursa-same-moves": 1.0,
        "ursa-optimum": 1.02 / 0.99,
        "ursa-sa-deviation-small": 0.8 / 0.9,
        "ursa-size": 30e6,
        "ursa-hotbed-cost": 1 / 1.02,
        # A second per hundred nodes, a tenth more per block; the geometric mean counts.
        "ursa-time-130": (100.0 * 110.0 * 120.0) ** (1 / 3),
    }
    for name, value in expected.items():
        assert results[name].measured == pytest.approx(value), name
        assert results[name].ground == "sim"
    assert results["ursa-all-removed"].n == 27
    assert results["ursa-optimum"].n == 9
    assert results["ursa-time-130"].n == 3


def test_a_partial_plan_s_cost_is_told_as_such(tmp_path: Path) -> None:
    for block in range(3):
        write_plan(tmp_path / "ursa-x", "0.1K-0.1M", "algorithm1", block)
        write_plan(tmp_path / "ursa-x", "0.1K-0.1M", "sa", block, hot_after=4.0)
    evidence = evidence_of(tmp_path / "ursa-x")
    found = {claim.id: evaluate(claim, evidence) for claim in CLAIMS}["ursa-sa-cost-least"]
    assert found.note is not None
    assert "the other leaves 4 nodes hot there on average" in found.note


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ursa-third-left", "reproduced"),
        ("ursa-sa-cost-least", "reproduced"),
        ("ursa-sa-cost-most", "reproduced"),
        ("ursa-htoc-cost-most", "reproduced"),
        ("ursa-optimum", "reproduced"),
        ("ursa-same-moves", "reproduced"),
        ("ursa-time-130", "reproduced"),
        ("ursa-speedup-same-cost", "reproduced"),
        ("ursa-speedup-time-none-ilp", "reproduced"),
        ("ursa-ilp-two-days-dc", "not reproduced"),
        ("ursa-sa-deviation-small", "reproduced"),
        ("ursa-alp-deviation-10k", "not reproduced"),
        ("ursa-selection-cost", "reproduced"),
        ("ursa-hotbed-gap", "reproduced"),
    ],
)
def test_verdicts_on_known_runs(results: dict[str, ClaimResult], name: str, expected: str) -> None:
    assert results[name].verdict == expected, results[name]


def test_without_runs_nothing_is_claimed(tmp_path: Path) -> None:
    write_inputs(tmp_path / "ursa-x", SIZES[0], "s2", 0)
    evidence = evidence_of(tmp_path / "ursa-x")
    for claim in CLAIMS:
        result = evaluate(claim, evidence)
        assert result.verdict == "not run", claim.id
        assert result.note


def test_a_plan_is_paired_with_plans_for_the_same_instance_alone(tmp_path: Path) -> None:
    campaign = tmp_path / "ursa-x"
    for block in range(3):
        write_plan(campaign, "0.1K-0.1M", "alp", block, cost=1.0 + block)
    for block in (1, 2, 3):
        write_plan(campaign, "0.1K-0.1M", "htoc", block, cost=10.0 * (1 + block))
    write_plan(campaign, "0.1K-0.1M", "alp", 3, cost=0.0)  # nothing had to move
    write_plan(campaign, "10K-10M", "htoc", 0, cost=5.0)
    rows = evidence_of(campaign).table
    both = paired(cells(rows, "htoc"), cells(rows, "alp"), "cost")
    assert list(both["treated"] / both["baseline"]) == [10.0, 10.0]
    found = quotient(cells(rows, "htoc"), cells(rows, "alp"), "cost")
    assert found is not None
    assert found.value == pytest.approx(10.0)
    assert found.n == 2
    assert quotient(cells(rows, "sa"), cells(rows, "alp"), "cost") is None


def test_a_single_instance_is_shown_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    def htoc(campaign: str) -> ClaimResult:
        evidence = evidence_of(tmp_path / campaign)
        return {claim.id: evaluate(claim, evidence) for claim in CLAIMS}["ursa-htoc-cost-most"]

    for campaign, sizes_there in (("ursa-a", ["0.1K-0.1M"]), ("ursa-b", ["0.1K-0.1M", "5K-5M"])):
        for size in sizes_there:
            for block in range(1 if size == "0.1K-0.1M" else 2):
                write_plan(tmp_path / campaign, size, "algorithm1", block, cost=1.0)
                cost = 50.0 if size == "0.1K-0.1M" else 10.0
                write_plan(tmp_path / campaign, size, "htoc", block, cost=cost)
    alone, several = htoc("ursa-a"), htoc("ursa-b")
    assert alone.measured == pytest.approx(50.0)
    assert (alone.n, alone.verdict) == (1, "inconclusive")
    assert several.measured == pytest.approx(10.0)
    assert several.n == 2


def test_an_instance_counts_once_in_whatever_campaigns_it_was_planned_for(tmp_path: Path) -> None:
    quick, full = tmp_path / "ursa-quick", tmp_path / "ursa-full"
    for block in range(2):
        write_plan(quick, "0.1K-0.1M", "sa", block, cost=2.0)
        write_plan(full, "0.1K-0.1M", "sa", block, cell={"time_limit_s": 1800.0}, cost=1.0)
    runs = [*load_campaign(quick).runs, *load_campaign(full).runs]
    rows = table(runs)
    assert list(rows["cost"]) == [1.0, 1.0]
    assert set(rows["time_limit_s"]) == {1800.0}


def test_instances_unlike_the_paper_s_feed_no_figure(tmp_path: Path) -> None:
    for name, value in {"tail": 2.0, "load_max": 3.0, "racks": 4, "replicas": 2}.items():
        write_plan(tmp_path / "ursa-x", "0.1K-0.1M", "alp", 0, cell={name: value})
    runs = load_campaign(tmp_path / "ursa-x").runs
    assert len(runs) == 4
    assert table(runs).empty


def test_sizes_are_in_order_and_named_as_in_the_paper(tmp_path: Path) -> None:
    names = ["30-900", "150-150K", "0.1K-0.1M", "10K-10M", "5K-5M", "50-2500"]
    for name in names:
        write_plan(tmp_path / "ursa-x", name, "alp", 0)
        assert size_name(*counts_of(name)) == name
    order = ["30-900", "50-2500", "0.1K-0.1M", "150-150K", "5K-5M", "10K-10M"]
    assert sizes(evidence_of(tmp_path / "ursa-x").table) == order
    assert count_of("0.1k") == 100
    for wrong in ("0.0001K", "K", "-1", "1e3", ""):
        with pytest.raises(ValueError, match="whole number"):
            count_of(wrong)
    with pytest.raises(ValueError, match="no size such as"):
        counts_of("10K")


def same(estimate: Estimate, **changes: object) -> str:
    base: dict[str, object] = {
        "id": "x",
        "figure": "1",
        "statement": "s",
        "paper_value": 1.0,
        "compute": lambda evidence: NotRun("nothing"),
        "unit": "ratio",
        "kind": "within",
        "tolerance": 0.05,
        "machines": False,
    }
    return verdict(Claim(**(base | changes)), estimate, "sim")  # type: ignore[arg-type]


def test_equality_is_shown_by_the_whole_interval() -> None:
    assert same(Estimate(1.0, 1.0, 1.0, 3)) == "reproduced"
    assert same(Estimate(1.01, 0.96, 1.049, 3)) == "reproduced"
    assert same(Estimate(1.01, 0.94, 1.08, 3)) == "inconclusive"
    assert same(Estimate(1.2, 1.1, 1.3, 3)) == "not reproduced"
    assert same(Estimate(1.0, math.nan, math.nan, 1)) == "inconclusive"
    assert same(Estimate(1.0, 1.0, 1.0, 3), machines=True) == "direction"


def test_what_algorithms_decide_may_be_reproduced_in_size_without_machines() -> None:
    found = Estimate(100.0, 90.0, 110.0, 3)
    known = {"paper_value": 80.0, "kind": "at_least", "no_effect": 1.0}
    assert same(found, **known) == "reproduced"
    assert same(found, **known, machines=True) == "direction"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    artifacts = tmp_path_factory.mktemp("artifacts")
    write_all(artifacts)
    return build(artifacts, "ursa-full")


@pytest.mark.slow
def test_every_figure_of_the_planner_is_drawn(report: Report) -> None:
    drawn = {figure.entry.id: figure for figure in report.figures}
    for entry in PLANNER.figures:
        figure = drawn[entry.id]
        assert figure.missing is None, entry.id
        assert figure.path is not None
        assert figure.path.read_bytes().startswith(b"\x89PNG")
        assert figure.path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert [figure.entry.id for figure in report.figures][:2] == ["1", "3"]
    numbers = [int(re.match(r"\d+", figure.entry.id)[0]) for figure in report.figures]  # type: ignore[index]
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_the_page_stands_alone_and_says_what_is_simulated(report: Report) -> None:
    page = report.path.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.count("data:image/png;base64") == len(PLANNER.figures)
    assert "<b>Simulated</b> where a figure says so" in page
    assert "What every method came to" in page
    assert "made up, 2 processors" in page
    assert "--ground sim" not in page
    saved = json.loads(report.claims_path.read_text())
    assert {claim["id"] for claim in saved} >= set(STATED)


@pytest.mark.slow
def test_figures_say_that_they_are_simulated_and_where_limits_ended_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = texts_by_figure(monkeypatch)
    write_all(tmp_path, blocks=2)
    made = build(tmp_path, "ursa", only="10")
    assert made.path == tmp_path / "ursa" / "report.html"
    assert {"simulated", "some ended by their time limit", "30-900", "OPT"} <= texts_of(texts)


@pytest.mark.slow
def test_runs_of_a_store_and_of_the_planner_share_a_report_and_are_not_pooled(
    tmp_path: Path,
) -> None:
    write_all(tmp_path, blocks=2)
    cell = {"op": "seq", "scenario": "heterogeneity", "controller": "dlr"}
    campaign = tmp_path / "ursa-live"
    write_run(campaign, cell, 0, 100.0, ground="local")
    body = {"campaign": {"paper": "ursa", "ground": "local"}}
    (campaign / "campaign.json").write_text(json.dumps(body))
    made = build(tmp_path, "ursa", only="7")
    planner = {claim.id for claim in CLAIMS}
    assert {claim.ground for claim in made.claims if claim.id in planner} <= {"sim", None}
    assert [figure.missing for figure in made.figures] == [None]
    alone = build(tmp_path, "ursa", only="7", ground="sim")
    assert alone.path == tmp_path / "ursa-sim" / "report.html"


def test_parts_of_a_paper_keep_the_figures_order() -> None:
    ids = [entry.id for entry in paper("ursa").figures]
    numbers = [int(re.match(r"\d+", name)[0]) for name in ids]  # type: ignore[index]
    assert numbers == sorted(numbers)
    assert len(set(ids)) == len(ids)
    assert [entry.id for entry in paper("dlr").figures][-1] == "S1"
