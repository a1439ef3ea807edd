"""Ursa's claims and figures on runs with known values, and the planner's cells (You, Hwang and
Jain, Middleware 2011).

Tests name the section or figure of the paper that they hold. The planner's algorithms are tested in
tests/controllers.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.core.claims import Claim, Evidence, evaluate
from analysis.core.evidence import quotient
from analysis.core.report import build
from analysis.papers.ursa.claims import LIVE_CLAIMS, PLANNER_CLAIMS
from analysis.papers.ursa.figures import LIVE, LIVE_FIGURES, PLANNER, SIMULATED
from analysis.papers.ursa.runs import INSTANCE, cells
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.papers.ursa.cell import make
from campaigns.papers.ursa.kind import planned_s
from campaigns.papers.ursa.measure import method_of
from controllers.ursa.methods import METHODS, Method
from controllers.ursa.run import plan_instance
from schemas.campaign import PlannerCampaign
from schemas.cells.ursa import INPUTS, URSA
from schemas.claim import ClaimResult
from schemas.errors import HotbedError
from schemas.run import Run, Summary
from tests.analysis.synthetic import evidence_of, write_run
from tests.campaigns.tiny_kinds import job
from tests.drawing import texts_by_figure, texts_of
from tests.papers.ursa_runs import SIZES, write_all, write_open, write_plan, write_store


def planner(campaign: Path) -> Evidence:
    return evidence_of(campaign, PLANNER)


def judged(claims: tuple[Claim, ...], evidence: Evidence) -> dict[str, ClaimResult]:
    return {claim.id: evaluate(claim, evidence) for claim in claims}


def judge(claims: tuple[Claim, ...], evidence: Evidence, name: str) -> ClaimResult:
    """Return one evaluated claim."""
    (claim,) = (claim for claim in claims if claim.id == name)
    return evaluate(claim, evidence)


def test_figures_3_and_7_to_11_are_computed_from_pairs_of_one_instance(tmp_path: Path) -> None:
    assert not any(claim.machines for claim in PLANNER.claims)  # their sizes count
    results = judged(PLANNER.claims, planner(write_all(tmp_path)))
    expected = {
        "ursa-third-left": (1 / 3, 6, "confirmed"),
        "ursa-all-removed": (1.0, 60, "confirmed"),
        "ursa-sa-cost-least": (150 / 1.02, 6, "confirmed"),
        "ursa-sa-cost-most": (150 / 1.02, 6, "confirmed"),
        "ursa-htoc-cost-most-hotbed": (10.0, 6, "confirmed"),
        "ursa-same-moves": (1.0, 6, "confirmed"),
        "ursa-optimum": (1.02 / 0.99, 18, "confirmed"),
        "ursa-sa-deviation-small": (0.8 / 0.9, 6, "confirmed"),
        "ursa-alp-deviation-10k": (0.9 / 0.8, 6, "contradicted"),
        "ursa-size": (30e6, 6, "confirmed"),
        "ursa-hotbed-cost": (1 / 1.02, 6, "confirmed"),
        "ursa-hotbed-gap": (0.01 - 0.00125, 6, "confirmed"),
        # A second per hundred nodes, a tenth more per block; the geometric mean counts.
        "ursa-time-130": (
            math.prod(100.0 + 10 * block for block in range(6)) ** (1 / 6),
            6,
            "inconclusive",
        ),
        "ursa-speedup-same-cost": (1.0, 6, "confirmed"),
        "ursa-speedup-time-none-ilp": (8.0, 6, "confirmed"),
        "ursa-ilp-two-days-dc": (6.0, 6, "contradicted"),
        "ursa-selection-cost": (
            1e6 / 102 / (1.1 * 1.2 * 1.3 * 1.4 * 1.5) ** (1 / 6),
            6,
            "confirmed",
        ),
        "ursa-variables-exact": (3e11, 6, "confirmed"),
        "ursa-third-left-small": (1 / 3, 6, "confirmed"),
        "ursa-divide-cost": (1.0, 6, "confirmed"),
        "ursa-scaling-opt": (1.0, 6, "inconclusive"),
        "ursa-sa-deviation-small-none": (0.8, 6, "confirmed"),
        "ursa-deviation-slightly": (0.9 / 0.8, 6, "contradicted"),
    }
    for name, (value, n, verdict) in expected.items():
        found = results[name]
        assert found.measured == pytest.approx(value), name
        assert (found.n, found.effect, found.ground) == (n, verdict, "sim"), name


SMALL = "0.1K-0.1M"
NONE_ILP = ("100-100K", "alp", {"divide": "none", "program": "ilp"})
NEAR, FAR = ((SMALL, "alp", {"first_radius": radius}) for radius in (0.1, 0.4))


@pytest.mark.parametrize(
    ("name", "column", "smaller", "larger"),
    [
        ("divide-time", "decision_s", ("100-100K", "alp", {"program": "ilp"}), NONE_ILP),
        ("relax-time", "decision_s", ("100-100K", "alp", {"divide": "none"}), NONE_ILP),
        ("faster-none-ilp", "decision_s", ("100-100K", "alp", {}), NONE_ILP),
        ("time-comparable-sa", "decision_s", (SMALL, "alp", {}), (SMALL, "sa", {})),
        ("time-comparable-htoc", "decision_s", (SMALL, "alp", {}), (SMALL, "htoc", {})),
        ("sa-moves", "moves", (SMALL, "alp", {}), (SMALL, "sa", {})),
        ("sa-deviation-small-htoc", "load_sd_after", (SMALL, "sa", {}), (SMALL, "htoc", {})),
        ("sa-less-effective", "load_sd_after", (SMALL, "sa", {}), ("10K-10M", "sa", {})),
        ("scaling-opt", "decision_s", ("10-100", "opt", {}), ("30-900", "opt", {})),
        ("radius-rounds", "note_programmes", FAR, NEAR),
        ("radius-time", "s_place", NEAR, FAR),
        ("radius-cost", "cost", NEAR, FAR),
        ("joint-cost", "cost", (SMALL, "joint", {}), (SMALL, "alp", {})),
        ("joint-time", "decision_s", (SMALL, "alp", {}), (SMALL, "joint", {})),
    ],
)
def test_statements_on_plans_can_be_confirmed_and_contradicted(
    tmp_path: Path, name: str, column: str, smaller: Any, larger: Any
) -> None:
    """Sections 3.2, 5.1 and 7: the first plan's number is 20 times smaller, or larger."""
    effects = []
    for folder, first, second in (("a", 1.0, 20.0), ("b", 20.0, 1.0)):
        campaign = tmp_path / f"ursa-{folder}"
        for block in range(6):
            noise = 1 + 0.01 * block
            same = {"decision_s": 1.0, "s_place": 1.0, "note_programmes": 1.0}
            for size in ("10-100", "30-900"):
                write_plan(campaign, size, "alp", block, cell={"kind": "s2"}, decision_s=1.0)
            for (size, method, cell), value in ((smaller, first * noise), (larger, second)):
                wanted = {"kind": "s2" if size in ("10-100", "30-900", "100-100K") else "s1"} | cell
                write_plan(campaign, size, method, block, cell=wanted, **same | {column: value})
        effects.append(judge(PLANNER.claims, planner(campaign), f"ursa-{name}").effect)
    assert effects == ["confirmed", "contradicted"]


@pytest.mark.parametrize(
    ("name", "size", "method", "values"),
    [
        ("third-left-small", SMALL, "alp", {"hot_after_swaps": 5.0}),
        ("divide-cost", "50-50K", "alp", {"cost": 2.0}),
        ("sa-deviation-small-none", SMALL, "sa", {"load_sd_after": 1.5}),
    ],
)
def test_statements_on_equal_plans_can_be_contradicted(
    tmp_path: Path, name: str, size: str, method: str, values: dict[str, float]
) -> None:
    campaign = tmp_path / "ursa-x"
    for block in range(6):
        write_plan(campaign, size, method, block, **values)
        if size == "50-50K":
            write_plan(campaign, size, method, block, cell={"divide": "none"}, cost=1.0)
    assert judge(PLANNER.claims, planner(campaign), f"ursa-{name}").effect == "contradicted"


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
                write_plan(tmp_path / campaign, size, "alp", block, cost=1.0)
                write_plan(tmp_path / campaign, size, "htoc", block, cost=50.0 / blocks**2)
        return judge(PLANNER_CLAIMS, planner(tmp_path / campaign), "ursa-htoc-cost-most")

    alone, several = htoc("ursa-a", {SIZES[0]: 1}), htoc("ursa-b", {SIZES[0]: 1, SIZES[1]: 2})
    assert (alone.measured, alone.n, alone.effect) == (pytest.approx(50.0), 1, "inconclusive")
    assert (several.measured, several.n) == (pytest.approx(12.5), 2)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return artifacts with runs for every figure of the planner, in two blocks."""
    return write_all(tmp_path_factory.mktemp("artifacts"), blocks=2).parent


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_report_has_every_figure_of_the_planner(plans: Path) -> None:
    drawn = {one.entry.id for one in build(plans, "ursa-full").figures if one.path}
    assert drawn == {entry.id for entry in PLANNER.figures}


@pytest.mark.slow
def test_a_page_of_the_planner_is_whole(plans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = texts_by_figure(monkeypatch)
    made = build(plans, "ursa-full", only="10")
    assert {"simulated", "some ended by their time limit", "30-900", "OPT"} <= texts_of(texts)
    page = made.path.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert page.count("data:image/png;base64") == len(made.figures)
    assert "<b>Simulated</b> where a figure says so" in page
    assert "made up, 2 processors" in page
    assert "--ground sim" not in page
    (table,) = made.tables
    row = next(row for row in table.as_json() if row["method"] == "OPT")
    assert row["seconds"].endswith("(2 ended by the limit)")
    claims = json.loads(made.claims_path.read_text())
    assert {claim["figure"].rstrip("ab") for claim in claims} == {"10"}


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
    assert alone.path == tmp_path / "ursa-sim" / "report-fig7.html"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("artifacts") / "ursa-live-test")


def live(campaign: Path) -> Evidence:
    return evidence_of(campaign, LIVE)


def test_figures_4_12_and_13_are_computed_from_pairs_of_one_block(store: Path) -> None:
    results = judged(LIVE_CLAIMS, live(store))
    expected = {
        "ursa-live-knee": (math.prod(range(20, 50, 5)) ** (1 / 6), 6, "confirmed"),
        "ursa-live-settling-10": (2.6748, 6, "confirmed"),
        "ursa-live-migrations-10": (1.0, 6, "confirmed"),
        "ursa-live-cost-30": (0.2, 6, "confirmed"),
        "ursa-live-controlled-seconds": (76.6667, 6, "confirmed"),
        "ursa-live-stable": (1.0, 18, "confirmed"),
        "ursa-live-settling-random-10": (None, 0, "not run"),
    }
    for name, (value, n, verdict) in expected.items():
        found = results[name]
        wanted = value if value is None else pytest.approx(value, rel=1e-4)
        assert (found.measured, found.n, found.effect) == (wanted, n, verdict), name
    bound = results["ursa-live-default-10"]
    assert bound.measured is not None and bound.measured > 3
    assert "never became stable" in str(bound.note)


@pytest.mark.parametrize(("name", "controller"), [("stable", "ursa"), ("stable-htoc", "htoc")])
@pytest.mark.parametrize(
    ("unsettled", "verdict"), [(0, "confirmed"), (1, "inconclusive"), (6, "contradicted")]
)
def test_section_5_2_stability_needs_every_run(
    tmp_path: Path, name: str, controller: str, unsettled: int, verdict: str
) -> None:
    folder = tmp_path / "ursa-live-stable"
    for block in range(6):
        write_open(folder, controller, block, settled_s=None if block < unsettled else 40.0)
    assert judge(LIVE.claims, live(folder), f"ursa-live-{name}").effect == verdict


@pytest.mark.parametrize(("first_s", "verdict"), [(0.5, "confirmed"), (50.0, "contradicted")])
def test_section_5_2_response_times_rise_before_the_call(
    tmp_path: Path, first_s: float, verdict: str
) -> None:
    for block in range(6):
        write_open(tmp_path / "ursa-live-x", "ursa", block, first_s=first_s * (1 + 0.01 * block))
    found = judge(LIVE.claims, live(tmp_path / "ursa-live-x"), "ursa-live-rise")
    assert (found.effect, found.n) == (verdict, 6)
    assert found.measured == pytest.approx(5 / first_s, rel=0.05)


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("clearer", {"osds": 30, "uplink": None}, {"osds": 30}),
        ("gap-grows", {"osds": 30}, {"osds": 50}),
    ],
)
def test_section_5_2_gains_are_compared_between_stores(
    tmp_path: Path, name: str, less: Any, more: Any
) -> None:
    effects = []
    for gain in (2.0, 0.5):
        folder = tmp_path / f"ursa-live-{gain:g}"
        for block in range(6):
            for store, settled_s in ((less, 60.0), (more, 60.0 * gain)):
                write_open(folder, "ursa", block, settled_s=20.0 + block, **store)
                write_open(folder, "htoc", block, settled_s=settled_s, **store)
        every = (*LIVE.claims, *SIMULATED.claims)
        effects.append(judge(every, live(folder), f"ursa-live-{name}").effect)
    assert effects == ["confirmed", "contradicted"]


@pytest.mark.slow
def test_the_report_has_figures_4_12_and_13(store: Path) -> None:
    report = build(store.parent, store.name)
    drawn = {figure.entry.id for figure in report.figures if figure.path is not None}
    assert {entry.id for entry in LIVE_FIGURES} <= drawn
    claims = pd.read_json(report.claims_path)
    assert {claim.id for claim in LIVE_CLAIMS} <= set(claims["id"])
    assert not any(isinstance(v, float) and math.isinf(v) for v in claims["measured"])


# Cells of the planner: parameters, plans, and the folder of a cell.


check = URSA.check


def test_the_campaign_feeds_every_figure_at_the_papers_sizes() -> None:
    """Sections 5.1 and 5.2."""
    campaign = load_campaign(find_campaign("ursa-full"))
    assert isinstance(campaign, PlannerCampaign)
    assert all(grid.repetitions >= 3 for grid in campaign.grids)
    sizes = {
        (figure, size)
        for grid in campaign.grids
        for figure in grid.figures
        for size in grid.vary.get("size", [])
    }
    for figure in ("7", "8", "11"):
        assert {(figure, size) for size in ("0.1K-0.1M", "5K-5M", "10K-10M")} <= sizes
    assert {("9", "150-150K"), ("10", "30-3K")} <= sizes


@given(
    method=st.sampled_from([*METHODS, INPUTS]),
    kind=st.sampled_from(["s1", "s2", "s3"]),
    nodes=st.integers(3, 10**6),
    partitions=st.integers(1, 10**9),
)
def test_a_cell_survives_being_written(method: str, kind: str, nodes: int, partitions: int) -> None:
    values = {"kind": kind, "nodes": nodes, "partitions": partitions, "method": method}
    cell = check(values, "cell")
    assert check(json.loads(json.dumps(cell.model_dump(mode="json"))), "again") == cell
    assert cell.memory_mib > cell.input_mib > 0
    assert planned_s(cell) > 0


def test_variants_of_algorithm_1_are_named_as_in_section_3_2() -> None:
    plain = check({"size": "20-400", "method": "alp"}, "cell")
    named = {"size": "20-400", "method": "algorithm1", "program": "lp", "divide": "dc"}
    assert plain == check(named, "cell")
    assert plain.label() == "s1 20-400 alp"
    other = check(named | {"program": "ilp", "divide": "none"}, "cell")
    assert other.label() == "s1 20-400 alp NONE+ILP"
    variant = method_of(other)
    assert isinstance(variant, Method)
    wanted = {"divide": False, "relax": False, "first_radius": None, "step": None}
    assert vars(variant.arguments["variant"]) == wanted
    assert not variant.trim and not variant.prune
    # Random objects (figure 8) are moved as they were selected.
    chosen = method_of(
        check({"size": "20-400", "method": "alp-fast", "selection": "random"}, "cell")
    )
    assert isinstance(chosen, Method) and not chosen.prune
    assert method_of(check({"size": "20-400"}, "cell")) == "alp-fast"


@dataclass
class CellFolder:
    """Files of a cell, and the numbers of its summary."""

    files: dict[str, str]
    values: dict[str, float]


def made_in(folder: Path, **parameters: Any) -> CellFolder:
    cell = check({"size": "40-1600", "kind": "s2"} | parameters, "cell")
    make(job(cell.model_dump(mode="json")), folder)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    return CellFolder(files, Summary.model_validate_json(files["summary.json"]).extra)


@pytest.mark.slow
def test_a_cell_is_planned_checked_and_written(tmp_path: Path) -> None:
    found = made_in(tmp_path, method="alp")
    run = Run.model_validate_json(found.files["run.json"])
    assert (run.status, run.seed, run.parameters["method"]) == ("done", 5, "alp")
    assert set(run.phases_s) == {"generate", "plan", "check", "count"}
    assert run.provenance.hosts["planner"]["cpus"] >= 1
    assert found.values["hot_before"] > found.values["hot_after"] >= 0
    assert found.values["load_sd_after"] != found.values["load_sd_before"]
    assert found.values["limited"] == 0
    assert found.values["decision_s"] > 0
    assert found.values["peak_rss_mib"] > 10
    assert json.loads(found.files["plan.json"])["method"] == "alp"
    random = made_in(tmp_path, method="alp", selection="random").values  # figure 8
    assert random["hot_before"] == found.values["hot_before"]
    assert random["moves"] > found.values["moves"] > 0


@pytest.mark.slow
def test_a_cell_without_a_plan_describes_its_instance(tmp_path: Path) -> None:
    """Figures 1 and 3 show inputs."""
    found = made_in(tmp_path, method=INPUTS)
    described = json.loads(found.files["inputs.json"])
    assert len(described["ratio"]) == len(described["load"]) == 40
    assert described["ratio"] == sorted(described["ratio"], reverse=True)
    assert described["partition_share"][-1] == 1.0
    assert found.values["hot_before"] == sum(ratio > 0.7 for ratio in described["ratio"])
    assert "plan.json" not in found.files


@pytest.mark.slow
def test_an_invalid_plan_fails_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(*arguments: Any, **options: Any) -> Any:
        made = plan_instance(*arguments, **options)
        return replace(made, move_to=made.move_to * 0)

    monkeypatch.setattr("campaigns.papers.ursa.measure.plan_instance", wrong)
    with pytest.raises(HotbedError):
        made_in(tmp_path, method="alp")
    assert not list(tmp_path.iterdir())
