"""Evidence of different grounds is never paired or pooled, and simulated results are labelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import write_run

from analysis.core.evidence import pairs
from analysis.core.load import load_campaign, table
from analysis.core.report import build, campaign_folders
from analysis.papers.dlr.runs import BLOCKS
from schemas.errors import UserError
from tests.drawing import texts_by_figure, texts_of
from tests.errors import raises


def some(artifacts: Path, name: str, ground: str, gain: float = 1.3) -> Path:
    for block in range(3):
        for controller, factor in (("default", 1.0), ("dlr", gain)):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_run(artifacts / name, cell, block, (100 + block) * factor, ground=ground)
    return artifacts / name


@pytest.mark.slow
def test_a_paper_s_report_leaves_simulated_runs_to_one_of_their_own(tmp_path, monkeypatch):
    texts = texts_by_figure(monkeypatch)
    some(tmp_path, "dlr-quick", "local", 1.3)
    some(tmp_path, "dlr-quick-sim", "sim", 2.0)
    real = build(tmp_path, "dlr", only="6a")
    assert real.path == tmp_path / "dlr" / "report-fig6a.html"
    assert real.runs == 6
    assert {claim.ground for claim in real.claims} == {"local", None}
    also = {claim.id: claim.grounds for claim in real.claims if claim.ground == "local"}
    (modelled,) = also["dlr-heterogeneity-seq-throughput"]
    assert (modelled.ground, modelled.measured) == ("sim", pytest.approx(1.0))
    assert "Simulated." not in real.path.read_text()
    assert "simulated" not in texts_of(texts)
    simulated = build(tmp_path, "dlr-sim", only="6a")
    assert simulated.path == tmp_path / "dlr-sim" / "report-fig6a.html"
    assert simulated.runs == 6
    assert {claim.ground for claim in simulated.claims} == {"sim", None}
    assert "Simulated." in simulated.path.read_text()
    assert "testbed" not in simulated.path.read_text()
    assert "simulated" in texts_of(texts)
    assert not any(claim.reproduced for claim in simulated.claims)
    assert build(tmp_path, "dlr", ground="sim", only="6a").path == simulated.path
    assert build(tmp_path, "dlr-quick-sim", only="6a").runs == 6
    with raises(UserError, "no runs of dlr on ground chameleon"):
        build(tmp_path, "dlr", ground="chameleon")


def test_runs_that_measure_variation_feed_no_paper_s_report(tmp_path):
    quick, repeated = (some(tmp_path, name, "local") for name in ("dlr-quick", "dlr-variation"))
    plan = {"campaign": {"grids": [{"repeats": 1}, {"repeats": 2}]}}
    (repeated / "campaign.json").write_text(json.dumps(plan))
    assert campaign_folders(tmp_path, "dlr", None)[1] == [quick]
    assert campaign_folders(tmp_path, "dlr-variation", None)[1] == [repeated]


@pytest.mark.slow
def test_several_real_grounds_ask_for_a_choice(tmp_path):
    some(tmp_path, "dlr-quick", "local")
    some(tmp_path, "dlr-paper", "chameleon")
    with raises(UserError, "several grounds", allowed="chameleon, local", do="--ground"):
        build(tmp_path, "dlr")
    made = build(tmp_path, "dlr", ground="chameleon", only="6a")
    assert made.path.parent.name == "dlr-chameleon"
    assert {claim.ground for claim in made.claims} == {"chameleon", None}


def test_runs_of_two_grounds_in_one_folder_are_refused(tmp_path):
    folder = some(tmp_path, "dlr-quick", "local")
    cell = {"op": "rand", "scenario": "heterogeneity", "controller": "dlr"}
    write_run(folder, cell, 0, 100.0, ground="sim")
    with raises(UserError, "several grounds"):
        build(tmp_path, folder.name)


def test_pairs_are_of_one_ground(tmp_path):
    cell = {"op": "seq", "scenario": "heterogeneity", "controller": "dlr"}
    write_run(tmp_path / "a", cell, 0, 100.0)
    write_run(tmp_path / "b", cell | {"controller": "default"}, 0, 90.0, ground="sim")
    runs = [one for name in "ab" for one in load_campaign(tmp_path / name).runs]
    rows = table(runs)
    rows["campaign"] = "same"
    treated, base = rows[rows["ground"] == "local"], rows[rows["ground"] == "sim"]
    assert pairs(treated, base, "throughput_mb_s", BLOCKS).empty
