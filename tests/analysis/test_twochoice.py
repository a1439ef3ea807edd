"""Claims and figures of the simulations on runs with known values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_twochoice import PLACED, RATIOS, write_all, write_bursts

from analysis.core.claims import Evidence, evaluate
from analysis.core.load import load_campaign
from analysis.core.papers import paper
from analysis.core.report import build
from analysis.papers.twochoice import placement
from analysis.papers.twochoice.catalogue import SIMULATED
from analysis.papers.twochoice.claims import CLAIMS
from analysis.papers.twochoice.runs import BURSTS_FILE, cells, quotient, ratios, table
from analysis.papers.twochoice.tables import tables
from campaigns.papers.twochoice.cell import BURSTS_FILE as WRITTEN_FILE
from schemas.claim import ClaimResult
from tests.drawing import texts_by_figure

STATED = {
    "twochoice-native-not-better": 1.0,
    "twochoice-stable": 1.0,
    "twochoice-stable-alone": 1.0,
    "twochoice-load-7": 60.0,
    "twochoice-few-stragglers": 10.0,
    "twochoice-fixed-even": 10.0,
    "twochoice-fixed-straggler": 10.0,
    "twochoice-random-even": 1.0,
    "twochoice-two-choice-avoids": 0.0,
    "twochoice-collaborative-avoids": 0.0,
    "twochoice-preassign-avoids": 0.0,
    "twochoice-both-avoids": 0.0,
}
"""Numbers in sections III.A to III.C about figures 3 and 4, stated or read off."""


def evidence_of(campaign: Path) -> Evidence:
    runs = [run for run in load_campaign(campaign).runs if SIMULATED.takes(run.run)]
    return Evidence(table(runs), runs)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(write_all(tmp_path_factory.mktemp("artifacts"), blocks=2, variations=False))


@pytest.fixture(scope="module")
def results(evidence: Evidence) -> dict[str, ClaimResult]:
    return {claim.id: evaluate(claim, evidence) for claim in CLAIMS}


def test_every_stated_number_is_a_claim() -> None:
    stated = {claim.id: claim.paper_value for claim in CLAIMS if claim.paper_value is not None}
    assert stated == STATED
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.paper == "twochoice" and not claim.machines for claim in CLAIMS)


def test_the_bursts_are_in_the_file_of_the_campaigns() -> None:
    assert BURSTS_FILE == WRITTEN_FILE


def test_claims_are_measured_from_paired_runs(results: dict[str, ClaimResult]) -> None:
    expected = {
        "random-worse": 1.8 / 1.5,
        "native-not-better": 1.35 * 1.01 / 1.5,
        "native-grows": 1.5 / 1.01,
        "preassign-better": 0.6 / 0.9,
        "better-than-fixed": 0.6 / 1.5,
        "better-than-fixed-alone": 1.1 / 1.5,
        "stable": 1.0,
        "load-7": 64.0,
        "few-stragglers": 8.0,
        "fixed-even": 10.0,
        "random-most": 2.005,
        "native-herds": 1.8,
        "collaborative-herds": 22 / 18,
        "two-choice-avoids": 0.0,
        "oracle": 1.5,
        "prequal": 0.3,
        "learning": 0.6 / 0.7,
        "scale": 0.6 / 1.5,
    }
    for name, value in expected.items():
        found = results[f"twochoice-{name}"]
        assert found.measured == pytest.approx(value, rel=0.01), name
        assert found.n == 2, name


def test_verdicts_follow_from_the_values(results: dict[str, ClaimResult]) -> None:
    assert {result.verdict for result in results.values()} == {"reproduced"}


def test_what_is_the_other_way_is_not_reproduced(tmp_path: Path) -> None:
    campaign = tmp_path / "twochoice-quick"
    for block in range(3):
        for series, response in (("fixed", 1.0), ("random", 0.5), ("two-choice", 0.5)):
            for share in RATIOS:
                write_bursts(campaign, series, share, block, response_s=response + block / 100)
        write_bursts(campaign, "fixed", PLACED, block)
        write_bursts(campaign, "two-choice", PLACED, block, straggler_most=1.0)
    evidence = evidence_of(campaign)
    found = {claim.id: evaluate(claim, evidence).verdict for claim in CLAIMS}
    assert found["twochoice-random-worse"] == "not reproduced"
    assert found["twochoice-native-not-better"] == "not reproduced"
    assert found["twochoice-two-choice-avoids"] == "not reproduced"
    assert found["twochoice-both-avoids"] == "not run"


def test_without_runs_nothing_is_claimed(tmp_path: Path) -> None:
    found = [evaluate(claim, Evidence(table([]), [])) for claim in CLAIMS]
    assert {result.verdict for result in found} == {"not run"}
    for entry in SIMULATED.figures:
        assert hasattr(entry.draw(Evidence(table([]), []), tmp_path, "x"), "runs"), entry.id
    assert tables(table([])) == []


@pytest.mark.parametrize("series", ["random", "both", "fixed"])
def test_a_campaign_of_one_scheduler_claims_no_comparison(tmp_path: Path, series: str) -> None:
    campaign = tmp_path / "twochoice-own"
    for block in range(2):
        for share in (0.05, PLACED, 0.5):
            write_bursts(campaign, series, share, block, cell={"learn_rounds": 1})
            write_bursts(campaign, series, share, block)
    evidence = evidence_of(campaign)
    found = {claim.id: evaluate(claim, evidence).verdict for claim in CLAIMS}
    assert found["twochoice-random-worse"] == "not run"
    assert found["twochoice-native-herds"] == "not run"
    drawn = {
        entry.id: entry.draw(evidence, tmp_path, entry.id)
        for entry in SIMULATED.figures
        if entry.id in ("3", "4")
    }
    assert all(hasattr(one, "runs") for one in drawn.values()), drawn


@pytest.mark.slow
def test_learning_is_drawn_at_whichever_ratios_there_are(tmp_path: Path) -> None:
    campaign = tmp_path / "twochoice-own"
    for share in (0.0, 0.05, 0.5):
        write_bursts(campaign, "both", share, 0)
    learning = next(entry for entry in SIMULATED.figures if entry.id == "learning")
    path = learning.draw(evidence_of(campaign), tmp_path, "learning")
    assert isinstance(path, Path)
    assert path.stat().st_size > 10_000


def test_a_longer_run_replaces_a_shorter_one(tmp_path: Path) -> None:
    campaign = tmp_path / "twochoice-full"
    for rounds in (5, 10):
        write_bursts(campaign, "fixed", 0.1, 0, cell={"rounds": rounds}, most=float(rounds))
    write_bursts(campaign, "both", 0.1, 0)
    write_bursts(campaign, "both", 0.1, 0, cell={"learn_rounds": 200})
    rows = evidence_of(campaign).table
    assert cells(rows, "fixed")["most"].tolist() == [10.0]
    assert cells(rows, "both")["learn_rounds"].tolist() == [20]
    assert sorted(cells(rows, "both", learn_rounds=None)["learn_rounds"]) == [20, 200]


def test_another_prior_is_another_cell_and_older_runs_had_the_usual_one(tmp_path: Path) -> None:
    folder = write_bursts(tmp_path, "both", 0.1, 0)
    write_bursts(tmp_path, "both", 0.1, 0, cell={"prior_weight": 1e6})
    stated = json.loads((folder / "run.json").read_text())
    del stated["parameters"]["prior_weight"]
    (folder / "run.json").write_text(json.dumps(stated))
    found = evidence_of(tmp_path).table
    assert sorted(found["prior_weight"]) == [1.0, 1e6]
    assert list(cells(found, "both")["prior_weight"]) == [1.0]


def test_pairs_are_of_the_same_bursts(evidence: Evidence) -> None:
    rows = evidence.table
    both, fixed = cells(rows, "both"), cells(rows, "fixed")
    assert ratios(both, fixed) == sorted({*RATIOS, PLACED})
    one = quotient(both[both["block"] > 0], fixed, "response_s")
    assert one is not None
    assert one.value == pytest.approx(0.4)
    assert one.n == 1
    assert quotient(both, fixed.iloc[:0], "response_s") is None


def test_figure_4_has_the_fewest_stragglers(evidence: Evidence) -> None:
    assert placement.ratio_shown(evidence.table, ("fixed", "both")) == PLACED
    rows = placement.given(evidence, "two-choice", PLACED)
    assert placement.common(rows) == [7, 10, 13]
    assert placement.by_load(rows, "most")[7].value == pytest.approx(27.05)


def test_the_table_has_every_scheduler(evidence: Evidence) -> None:
    (made,) = tables(evidence.table)
    assert len({row[0] for row in made.rows}) == 10
    assert all(len(row) == len(made.heads) for row in made.rows)


@pytest.mark.slow
def test_every_figure_is_drawn_without_overlapping_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(tmp_path)
    texts = texts_by_figure(monkeypatch)
    made = build(tmp_path, "twochoice")
    expected = {"3", "4", "learning", "nodes", "spread", "light", "home", "scale"}
    drawn = {figure.entry.id for figure in made.figures if figure.path is not None}
    assert drawn == expected, {f.entry.id: f.missing for f in made.figures}
    assert {entry.id for entry in SIMULATED.figures} == expected
    assert {entry.id for entry in paper("twochoice").figures} > expected
    assert any("preassign, cold" in text for text in texts["twochoice-fig3"])
    assert any("paper: about 60 servers" in text for text in texts["twochoice-fig4"])
    assert "stragglers" in texts["twochoice-fig4"]
    assert any("n = 3 runs" in text for text in texts["twochoice-fig3"])
    assert "Simulated" in made.path.read_text()
    claims = json.loads(made.claims_path.read_text())
    assert len(claims) == sum(len(part.claims) for part in paper("twochoice").parts)
    (table_csv,) = (tmp_path / "twochoice").glob("*.csv")
    assert table_csv.name == "schedulers.csv"
