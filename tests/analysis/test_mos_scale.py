"""Claims, figures and tables of COSPerf on runs with known values."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_mos_sim import GAIN, write_all, write_run

from analysis.core.claims import Evidence, evaluate
from analysis.core.figures import Missing
from analysis.core.load import load_campaign
from analysis.core.report import draw
from analysis.papers.mos.catalogue import PARTS
from analysis.papers.mos.scale import FIGURES, SCALE
from analysis.papers.mos.scale_claims import CLAIMS
from analysis.papers.mos.scale_runs import (
    MOS,
    MOS_PP,
    SERIES_FILE,
    STAGES,
    cells,
    gain,
    paired,
    table,
    windows,
)
from analysis.papers.mos.scale_tables import tables
from campaigns.engine.campaign_file import find_campaign
from campaigns.engine.campaign_file import load_campaign as campaign_of
from campaigns.papers.mos.simulated import SERIES_FILE as WRITTEN_FILE
from campaigns.validate import figures_of
from schemas.claim import ClaimResult
from testbed.simulated.cosperf.stages import STAGE_MINUTES


def evidence_of(campaign: Path) -> Evidence:
    runs = load_campaign(campaign).runs
    assert all(SCALE.takes(run.run) for run in runs)
    return Evidence(table(runs), runs)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(write_all(tmp_path_factory.mktemp("artifacts")))


@pytest.fixture(scope="module")
def results(evidence: Evidence) -> dict[str, ClaimResult]:
    return {claim.id.removeprefix("mos-sim-"): evaluate(claim, evidence) for claim in CLAIMS}


def test_what_the_analysis_takes_for_granted_is_the_campaigns() -> None:
    assert SERIES_FILE == WRITTEN_FILE
    assert [span[0] for span in STAGES.values()] == list(STAGE_MINUTES[:-1])
    assert SCALE in PARTS
    known = figures_of(campaign_of(find_campaign("mos-sim")))
    assert {entry.campaign for entry in FIGURES} <= set(known)


def test_averages_are_of_pairs_within_blocks(results: dict[str, ClaimResult]) -> None:
    for tenant, value in GAIN.items():
        found = results[f"average-{tenant.lower()}"]
        assert found.measured == pytest.approx(value, rel=0.05)
        assert found.n == 3
        assert found.verdict == "direction"  # simulated: never reproduced
    assert results["static"].measured == pytest.approx(1.6, rel=0.1)


def test_up_to_is_the_best_window_of_the_stage(results: dict[str, ClaimResult]) -> None:
    assert results["stage-3-a"].measured == pytest.approx(1.1 * 1.5, rel=0.05)
    assert results["stage-3-d"].measured == pytest.approx(1.05 * 1.4, rel=0.05)
    assert results["stage-4-a"].measured == pytest.approx(1.1 * 1.6, rel=0.05)
    assert results["stage-4-b"].measured == pytest.approx(1.2 * 1.3, rel=0.05)
    note = results["stage-4-a"].note
    assert note is not None
    assert "minute 682" in note


def test_a_wrong_model_costs(results: dict[str, ClaimResult]) -> None:
    for kind in ("error", "own-runs-error"):
        gains = [results[f"{kind}-{error}"].measured for error in (0, 10, 20, 30)]
        assert all(one is not None for one in gains)
        assert gains == sorted(gains, reverse=True)  # type: ignore[type-var]
    assert results["error-costs-without-learning"].measured == pytest.approx(0.82, rel=0.02)
    assert results["other-runs-cost"].measured == pytest.approx(1.0)
    assert results["error-costs"].measured == pytest.approx(0.91, rel=0.02)
    assert results["error-costs"].verdict == "direction"


def test_what_is_held_decides_claims(results: dict[str, ClaimResult]) -> None:
    assert results["all-used"].measured == pytest.approx(1.0)
    assert results["all-used"].verdict == "direction"
    assert results["all-used-pp"].measured == pytest.approx(0.8)
    assert results["all-used-pp"].verdict == "not reproduced"
    assert results["just-enough"].measured == pytest.approx(1.25)


def test_a_caption_is_of_the_panels_that_are_drawn(tmp_path: Path) -> None:
    for error in (0.0, 0.3):
        write_run(tmp_path, 0, policy="mos-pp", model_error=error)
    write_run(tmp_path, 0, policy="mos")
    entry = next(one for one in FIGURES if one.id == "error")
    drawn = draw(entry, evidence_of(tmp_path), tmp_path / "figures", "mos")
    assert "Other runs:" in drawn.entry.caption
    assert "no learning" not in drawn.entry.caption


def test_without_runs_nothing_is_claimed(tmp_path: Path) -> None:
    write_run(tmp_path, 0, policy="mos")
    lonely = evidence_of(tmp_path)
    for claim in CLAIMS:
        if claim.id != "mos-sim-all-used":
            assert evaluate(claim, lonely).verdict == "not run", claim.id
    for entry in FIGURES:
        assert isinstance(entry.draw(lonely, tmp_path / "figures", entry.id), Missing)
    assert not [one for one in tables(lonely.table) if one.id == "table-3"]


def test_policies_are_compared_as_they_were_run(evidence: Evidence) -> None:
    assert len(cells(evidence.table, MOS_PP)) == 3
    assert len(cells(evidence.table, MOS_PP, model_error=0.3)) == 3
    assert len(paired(evidence.table, MOS_PP, MOS, profile="local")) == 3
    assert gain([]) is None


def test_windows_are_of_a_quarter_of_an_hour(evidence: Evidence) -> None:
    found = windows(cells(evidence.table, MOS)["folder"].iloc[0], "C")
    assert len(found.minutes) == 56
    assert found.minutes[0] == 7.5
    assert found.values[0] == pytest.approx(40 * 6e7, rel=0.3)


def test_table_3_has_the_papers_values_beside_ours(evidence: Evidence) -> None:
    made = {one.id: one for one in tables(evidence.table)}
    rows = made["table-3"].as_json()
    assert [row["workload"] for row in rows] == list("ABCDABCD")
    assert rows[0]["MOS, paper"] == "4,444 QPS"
    assert rows[3]["MOS++, paper"] == "1.9 GB/s"
    assert rows[1]["gain, paper"] == "15.7 %"
    assert rows[1]["gain, ours"].startswith("+21")
    assert len(made["stages"].rows) == 12


@pytest.mark.slow
def test_every_figure_is_drawn(evidence: Evidence, tmp_path: Path) -> None:
    for entry in FIGURES:
        path = entry.draw(evidence, tmp_path, entry.id)
        assert isinstance(path, Path)
        assert path.stat().st_size > 10_000
