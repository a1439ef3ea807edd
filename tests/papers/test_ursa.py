"""Ursa's claims and figures on runs with known values (You, Hwang and Jain, Middleware 2011).

Tests name the section or figure of the paper that they hold. The planner's algorithms are tested in
tests/controllers, its cells in test_ursa_cells.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis.core.claims import Claim, Evidence, evaluate
from analysis.core.evidence import quotient
from analysis.core.figures import Missing
from analysis.core.load import load_campaign
from analysis.core.papers import paper
from analysis.core.report import build, load_evidence
from analysis.papers.ursa import figures
from analysis.papers.ursa.claims import LIVE_CLAIMS, PLANNER_CLAIMS, SIMULATED_CLAIMS
from analysis.papers.ursa.figures import LIVE, LIVE_FIGURES, PLANNER, SIMULATED
from analysis.papers.ursa.runs import (
    INSTANCE,
    cells,
    controlled_by,
    live_sizes,
    live_table,
    planner_table,
    sizes,
)
from schemas.claim import ClaimResult
from schemas.sizes import count_of, counts_of, size_name
from tests.analysis.synthetic import write_run
from tests.drawing import texts_by_figure, texts_of
from tests.papers.ursa_runs import (
    SIZES,
    write_all,
    write_inputs,
    write_open,
    write_plan,
    write_store,
)

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
"""Numbers about the planner in the abstract and sections 1, 2.1, 5.1 and 7, or read from them."""


def planner(campaign: Path) -> Evidence:
    return load_evidence([campaign], PLANNER)[0]


def judged(claims: tuple[Claim, ...], evidence: Evidence) -> dict[str, ClaimResult]:
    return {claim.id: evaluate(claim, evidence) for claim in claims}


def test_every_number_of_section_5_1_is_a_claim() -> None:
    stated = {c.id: c.paper_value for c in PLANNER_CLAIMS if c.paper_value is not None}
    ours = {f"{name}-hotbed" for name in STATED}
    assert {name: value for name, value in stated.items() if name not in ours} == STATED
    assert len({claim.id for claim in PLANNER_CLAIMS}) == len(PLANNER_CLAIMS)
    assert all(claim.paper == "ursa" and not claim.machines for claim in PLANNER_CLAIMS)


def test_figures_3_and_7_to_11_are_computed_from_pairs_of_one_instance(tmp_path: Path) -> None:
    results = judged(PLANNER_CLAIMS, planner(write_all(tmp_path)))
    expected = {
        "ursa-third-left": (1 / 3, 3, "reproduced"),
        "ursa-all-removed": (1.0, 27, "reproduced"),
        "ursa-sa-cost-least": (150 / 1.02, 3, "reproduced"),
        "ursa-sa-cost-most": (150 / 1.02, 3, "reproduced"),
        "ursa-htoc-cost-most-hotbed": (10.0, 3, "reproduced"),
        "ursa-same-moves": (1.0, 3, "reproduced"),
        "ursa-optimum": (1.02 / 0.99, 9, "reproduced"),
        "ursa-sa-deviation-small": (0.8 / 0.9, 3, "reproduced"),
        "ursa-alp-deviation-10k": (0.9 / 0.8, 3, "not reproduced"),
        "ursa-size": (30e6, 3, "reproduced"),
        "ursa-hotbed-cost": (1 / 1.02, 3, "reproduced"),
        "ursa-hotbed-gap": (0.01 - 0.0011, 3, "reproduced"),
        # A second per hundred nodes, a tenth more per block; the geometric mean counts.
        "ursa-time-130": ((100.0 * 110.0 * 120.0) ** (1 / 3), 3, "reproduced"),
        "ursa-speedup-same-cost": (1.0, 3, "reproduced"),
        "ursa-speedup-time-none-ilp": (8.0, 3, "reproduced"),
        "ursa-ilp-two-days-dc": (6.0, 3, "not reproduced"),
        "ursa-selection-cost": (1e6 / 100 / (1.1 * 1.2) ** (1 / 3), 3, "reproduced"),
    }
    for name, (value, n, verdict) in expected.items():
        found = results[name]
        assert found.measured == pytest.approx(value), name
        assert (found.n, found.verdict, found.ground) == (n, verdict, "sim"), name


def test_without_plans_nothing_is_claimed(tmp_path: Path) -> None:
    write_inputs(tmp_path / "ursa-x", SIZES[0], "s2", 0)
    for result in judged(PLANNER_CLAIMS, planner(tmp_path / "ursa-x")).values():
        assert result.verdict == "not run", result.id
        assert result.note


def test_the_note_names_a_method_that_left_nodes_hot(tmp_path: Path) -> None:
    """Figure 11a compares costs; a partial plan costs less."""
    for block in range(3):
        write_plan(tmp_path / "ursa-x", "0.1K-0.1M", "algorithm1", block)
        write_plan(tmp_path / "ursa-x", "0.1K-0.1M", "sa", block, hot_after=4.0)
    found = judged(PLANNER_CLAIMS, planner(tmp_path / "ursa-x"))["ursa-sa-cost-least"]
    assert "the other leaves 4 nodes hot there on average" in str(found.note)


def test_a_plan_is_compared_with_plans_for_the_same_instance_alone(tmp_path: Path) -> None:
    campaign = tmp_path / "ursa-x"
    for block in range(3):
        write_plan(campaign, "0.1K-0.1M", "alp", block, cost=1.0 + block)
    for block in (1, 2, 3):
        write_plan(campaign, "0.1K-0.1M", "htoc", block, cost=10.0 * (1 + block))
    write_plan(campaign, "0.1K-0.1M", "alp", 3, cost=0.0)  # nothing had to move
    write_plan(campaign, "10K-10M", "htoc", 0, cost=5.0)
    rows = planner(campaign).table
    found = quotient(cells(rows, "htoc"), cells(rows, "alp"), "cost", keys=INSTANCE)
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(10.0), 2)


def test_a_single_instance_counts_only_if_there_is_nothing_else(tmp_path: Path) -> None:
    def htoc(campaign: str, sizes_there: dict[str, int]) -> ClaimResult:
        for size, blocks in sizes_there.items():
            for block in range(blocks):
                write_plan(tmp_path / campaign, size, "algorithm1", block, cost=1.0)
                write_plan(tmp_path / campaign, size, "htoc", block, cost=50.0 / blocks**2)
        return judged(PLANNER_CLAIMS, planner(tmp_path / campaign))["ursa-htoc-cost-most"]

    alone, several = htoc("ursa-a", {SIZES[0]: 1}), htoc("ursa-b", {SIZES[0]: 1, SIZES[1]: 2})
    assert (alone.measured, alone.n, alone.verdict) == (pytest.approx(50.0), 1, "inconclusive")
    assert (several.measured, several.n) == (pytest.approx(12.5), 2)


def test_the_longer_limit_counts_and_unlike_instances_do_not(tmp_path: Path) -> None:
    quick, full = tmp_path / "ursa-quick", tmp_path / "ursa-full"
    for block in range(2):
        write_plan(quick, SIZES[0], "sa", block, cost=2.0)
        write_plan(full, SIZES[0], "sa", block, cell={"time_limit_s": 1800.0}, cost=1.0)
    for name, value in {"tail": 2.0, "load_max": 3.0, "racks": 4, "replicas": 2}.items():
        write_plan(full, SIZES[0], "alp", 0, cell={name: value})
    rows = planner_table([*load_campaign(quick).runs, *load_campaign(full).runs])
    assert list(rows["cost"]) == [1.0, 1.0]
    assert set(rows["time_limit_s"]) == {1800.0}


def test_sizes_are_named_and_ordered_as_in_the_paper(tmp_path: Path) -> None:
    names = ["30-900", "150-150K", "0.1K-0.1M", "10K-10M", "5K-5M", "50-2500"]
    for name in names:
        write_plan(tmp_path / "ursa-x", name, "alp", 0)
        assert size_name(*counts_of(name)) == name
    order = ["30-900", "50-2500", "0.1K-0.1M", "150-150K", "5K-5M", "10K-10M"]
    assert sizes(planner(tmp_path / "ursa-x").table) == order
    assert count_of("0.1k") == 100
    for wrong in ("0.0001K", "K", "-1", "1e3", ""):
        with pytest.raises(ValueError):
            count_of(wrong)
    with pytest.raises(ValueError):
        counts_of("10K")


def test_figures_are_in_the_papers_order() -> None:
    ids = [entry.id for entry in paper("ursa").figures]
    numbers = [int(name.partition("-")[0]) for name in ids]
    assert numbers == sorted(numbers)
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
def test_the_report_has_every_figure_of_the_planner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = texts_by_figure(monkeypatch)
    write_all(tmp_path)
    made = build(tmp_path, "ursa-full")
    drawn = {figure.entry.id: figure for figure in made.figures}
    for entry in PLANNER.figures:
        assert drawn[entry.id].missing is None, entry.id
        path = drawn[entry.id].path
        assert path is not None
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert {"simulated", "some ended by their time limit", "30-900", "OPT"} <= texts_of(texts)
    page = made.path.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.count("data:image/png;base64") == len(PLANNER.figures)
    assert "<b>Simulated</b> where a figure says so" in page
    assert "made up, 2 processors" in page
    assert "--ground sim" not in page
    (table,) = made.tables
    row = next(row for row in table.as_json() if row["method"] == "OPT")
    assert row["seconds"].endswith("(3 ended by the limit)")
    assert {claim["id"] for claim in json.loads(made.claims_path.read_text())} >= set(STATED)


@pytest.mark.slow
def test_runs_of_a_store_and_of_the_planner_are_not_pooled(tmp_path: Path) -> None:
    write_all(tmp_path, blocks=2)
    cell = {"op": "seq", "scenario": "heterogeneity", "controller": "dlr"}
    campaign = tmp_path / "ursa-live"
    write_run(campaign, cell, 0, 100.0, ground="local")
    body = {"campaign": {"paper": "ursa", "ground": "local"}}
    (campaign / "campaign.json").write_text(json.dumps(body))
    made = build(tmp_path, "ursa", only="7")
    of_planner = {claim.id for claim in PLANNER_CLAIMS}
    assert {claim.ground for claim in made.claims if claim.id in of_planner} <= {"sim", None}
    assert [figure.missing for figure in made.figures] == [None]
    alone = build(tmp_path, "ursa", only="7", ground="sim")
    assert alone.path == tmp_path / "ursa-sim" / "report.html"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("artifacts") / "ursa-live-test")


def live(campaign: Path) -> Evidence:
    return load_evidence([campaign], LIVE)[0]


def test_runs_on_a_store_become_a_table(store: Path) -> None:
    rows = live(store).table
    assert live_sizes(rows) == ["10-100", "30-900"]
    assert set(rows["network"]) == {"Controlled", "Random"}
    never = controlled_by("upmap", "Controlled", 10)(rows)
    assert never["settled_s"].isna().all()
    assert (never["censored_s"] == 150.0).all()  # 180 s, called at 30 s
    assert live_table([]).empty


def test_figures_4_12_and_13_are_computed_from_pairs_of_one_block(store: Path) -> None:
    results = judged(LIVE_CLAIMS, live(store))
    expected = {
        "ursa-live-knee": ((20.0 * 25.0 * 30.0) ** (1 / 3), 3, "reproduced"),
        "ursa-live-settling-10": (2.5, 3, "reproduced"),
        "ursa-live-migrations-10": (1.0, 3, "reproduced"),
        "ursa-live-cost-30": (0.2, 3, "reproduced"),
        "ursa-live-controlled-seconds": (63.0, 3, "reproduced"),
        "ursa-live-stable": (1.0, 9, "reproduced"),
        "ursa-live-settling-random-10": (None, 0, "not run"),
    }
    for name, (value, n, verdict) in expected.items():
        found = results[name]
        wanted = value if value is None else pytest.approx(value)
        assert (found.measured, found.n, found.verdict) == (wanted, n, verdict), name
    bound = results["ursa-live-default-10"]
    assert bound.measured is not None and bound.measured > 3
    assert "never became stable" in str(bound.note)


@pytest.mark.parametrize(
    ("unsettled", "verdict"), [(0, "reproduced"), (1, "inconclusive"), (3, "not reproduced")]
)
def test_section_5_2_stability_needs_every_run(
    tmp_path: Path, unsettled: int, verdict: str
) -> None:
    folder = tmp_path / "ursa-live-stable"
    for block in range(3):
        write_open(folder, "ursa", block, settled_s=None if block < unsettled else 40.0)
    assert judged(LIVE_CLAIMS, live(folder))["ursa-live-stable"].verdict == verdict


@pytest.mark.parametrize(("blocks", "verdict"), [(1, "inconclusive"), (3, "not reproduced")])
def test_a_slower_ursa_is_not_reproduced(tmp_path: Path, blocks: int, verdict: str) -> None:
    folder = tmp_path / "ursa-live-slow"
    for block in range(blocks):
        write_open(folder, "ursa", block, settled_s=100.0 + 3 * block)
        write_open(folder, "htoc", block, settled_s=40.0)
    assert judged(LIVE_CLAIMS, live(folder))["ursa-live-settling-10"].verdict == verdict


def test_simulated_runs_on_a_store_have_claims_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "ursa-live-50"
    for block in range(3):
        for controller in ("ursa", "htoc"):
            write_open(folder, controller, block, osds=50, pgs=2500, ground="sim")
    assert not live(folder).runs
    results = judged(SIMULATED_CLAIMS, load_evidence([folder], SIMULATED)[0])
    assert results["ursa-live-settling-50"].verdict == "direction"
    assert results["ursa-live-settling-50"].measured == pytest.approx(2.5)


@pytest.mark.slow
def test_the_report_has_figures_4_12_and_13(store: Path) -> None:
    report = build(store.parent, store.name)
    drawn = {figure.entry.id for figure in report.figures if figure.path is not None}
    assert {entry.id for entry in LIVE_FIGURES} <= drawn
    claims = pd.read_json(report.claims_path)
    assert {claim.id for claim in LIVE_CLAIMS} <= set(claims["id"])
    assert not any(isinstance(v, float) and math.isinf(v) for v in claims["measured"])


@pytest.mark.parametrize("draw", [figures.load, figures.response, figures.settling])
def test_a_figure_names_the_runs_that_it_lacks(tmp_path: Path, draw) -> None:  # type: ignore[no-untyped-def]
    assert isinstance(draw(Evidence(live_table([]), []), tmp_path, "fig"), Missing)
