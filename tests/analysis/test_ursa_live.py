"""Figures 4, 12 and 13 of Ursa, and claims about a running store."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from synthetic_ursa_live import write_open

from analysis.core.claims import Evidence, evaluate
from analysis.core.figures import Missing
from analysis.core.report import build, load_evidence
from analysis.papers.ursa import live_figures
from analysis.papers.ursa.live import FIGURES, LIVE, LIVE_SIMULATED
from analysis.papers.ursa.live_claims import CLAIMS, SIMULATED_CLAIMS
from analysis.papers.ursa.live_runs import pairs, quotient, rebalancing, sizes, table


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    folder = tmp_path / "ursa-live-test"
    for block in range(3):
        for controller in ("ursa", "htoc", "upmap", "default"):
            write_open(folder, controller, block)
            write_open(folder, controller, block, osds=30, pgs=900)
            write_open(folder, controller, block, osds=30, pgs=900, uplink=None)
        for rate, p99 in ((6.0, 0.2), (12.0, 0.3), (24.0, 4.0 + block)):
            write_open(folder, "default", block, scenario="single", rate=rate, p99=p99)
    return folder


def evidence(campaign: Path) -> Evidence:
    return load_evidence([campaign], LIVE)[0]


def verdicts(campaign: Path) -> dict[str, str]:
    found = evidence(campaign)
    return {claim.id: evaluate(claim, found).verdict for claim in CLAIMS}


def test_runs_become_a_table(campaign):
    rows = evidence(campaign).table
    assert sizes(rows) == ["10-100", "30-900"]
    assert set(rows["network"]) == {"Controlled", "Random"}
    never = rows[(rows["controller"] == "upmap") & (rows["osds"] == 10)]
    assert never["settled_s"].isna().all()
    assert (never["censored_s"] == 150.0).all()  # 180 s, called at 30 s


def test_no_runs_make_an_empty_table():
    assert table([]).empty


def test_pairs_are_of_one_block(campaign):
    rows = rebalancing(evidence(campaign).table, network="Controlled")
    rows = rows[rows["osds"] == 10]
    assert len(pairs(rows, "htoc", "ursa", "censored_s")) == 3
    found = quotient(rows, "htoc", "ursa", "censored_s")
    assert found is not None
    assert found.value == pytest.approx(2.5)
    assert found.n == 3


def test_claims_get_their_verdicts(campaign):
    found = verdicts(campaign)
    assert found["ursa-live-knee"] == "reproduced"
    assert found["ursa-live-settling-10"] == "reproduced"
    assert found["ursa-live-migrations-10"] == "reproduced"
    assert found["ursa-live-cost-30"] == "reproduced"
    assert found["ursa-live-controlled-seconds"] == "reproduced"
    assert found["ursa-live-upmap-10"] == "reproduced"
    assert found["ursa-live-settling-random-10"] == "not run"


def test_one_run_supports_no_verdict(tmp_path):
    folder = tmp_path / "ursa-live-one"
    write_open(folder, "ursa", 0)
    write_open(folder, "htoc", 0)
    assert verdicts(folder)["ursa-live-settling-10"] == "inconclusive"


def test_a_store_that_never_settles_is_a_lower_bound_and_says_so(campaign):
    claim = next(claim for claim in CLAIMS if claim.id == "ursa-live-default-10")
    result = evaluate(claim, evidence(campaign))
    assert result.measured is not None
    assert result.measured > 3
    assert result.note is not None
    assert "never became stable" in result.note


@pytest.mark.parametrize(
    ("unsettled", "verdict"), [(0, "reproduced"), (1, "inconclusive"), (3, "not reproduced")]
)
def test_stable_is_said_where_every_run_became_so(tmp_path, unsettled, verdict):
    folder = tmp_path / "ursa-live-stable"
    for block in range(3):
        write_open(folder, "ursa", block, settled_s=None if block < unsettled else 40.0)
    assert verdicts(folder)["ursa-live-stable"] == verdict


def test_where_ursa_is_slower_the_claim_is_not_reproduced(tmp_path):
    folder = tmp_path / "ursa-live-slow"
    for block in range(3):
        write_open(folder, "ursa", block, settled_s=100.0 + 3 * block)
        write_open(folder, "htoc", block, settled_s=40.0)
    assert verdicts(folder)["ursa-live-settling-10"] == "not reproduced"


def test_simulated_runs_stand_for_themselves(tmp_path):
    folder = tmp_path / "ursa-live-50"
    for block in range(3):
        for controller in ("ursa", "htoc"):
            write_open(
                folder, controller, block, osds=50, pgs=2500, ground="sim", jitter=float(block)
            )
    live, simulated = (load_evidence([folder], part)[0] for part in (LIVE, LIVE_SIMULATED))
    assert not live.runs
    results = {claim.id: evaluate(claim, simulated) for claim in SIMULATED_CLAIMS}
    assert results["ursa-live-settling-50"].verdict in {"direction", "inconclusive"}


@pytest.mark.slow
@pytest.mark.parametrize("entry", FIGURES, ids=lambda entry: entry.id)
def test_every_figure_is_drawn(campaign, tmp_path, entry):
    path = entry.draw(evidence(campaign), tmp_path, f"fig{entry.id}")
    assert isinstance(path, Path)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("draw", [live_figures.load, live_figures.response, live_figures.settling])
def test_a_figure_without_runs_says_which_there_would_have_to_be(tmp_path, draw):
    empty = Evidence(table([]), [])
    assert isinstance(draw(empty, tmp_path, "fig"), Missing)


@pytest.mark.slow
def test_a_report_holds_them(campaign):
    report = build(campaign.parent, campaign.name)
    drawn = {figure.entry.id for figure in report.figures if figure.path is not None}
    assert {"4", "12", "13"} <= drawn
    assert report.path.stat().st_size > 100_000
    claims = pd.read_json(report.claims_path)
    assert {claim.id for claim in CLAIMS} <= set(claims["id"])
    assert not any(isinstance(v, float) and math.isinf(v) for v in claims["measured"])
