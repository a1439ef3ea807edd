"""Model compared with real runs: synthetic runs with a chosen error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from synthetic import write_run

from analysis.validation import build, effects_text, validate
from schemas.errors import UserError
from tests.errors import raises

CELLS = [("seq", "default", 100.0), ("seq", "dlr", 130.0), ("rand", "default", 90.0)]
NOISE = (0.99, 1.0, 1.01)


def both(artifacts: Path, *, model: float = 1.2, blocks: int = 3) -> None:
    """Write runs on local and, `model` times as fast, on sim."""
    for block in range(blocks):
        for op, controller, speed in CELLS:
            parameters = {
                **{"op": op, "scenario": "heterogeneity", "controller": controller},
                "hot_nodes": 4,
            }
            shared = speed * (1 + 0.3 * block)  # blocks vary much, like their hot nodes
            for campaign, ground, factor in (
                ("dlr-quick", "local", NOISE[block]),
                ("dlr-quick-sim", "sim", model),
            ):
                own = 1 + 0.001 * block if controller == "dlr" else 1.0  # pairs are not all alike
                value = shared * factor * own
                write_run(artifacts / campaign, parameters, block, value, ground=ground)


def test_the_model_s_error_differs_from_pairs_of_one_seed(tmp_path):
    both(tmp_path)
    made = validate([tmp_path])
    assert made.pairs == 9
    cells = {(c.op, c.controller): c for c in made.cells if c.metric != "latency_s"}
    assert set(cells) == {(op, controller) for op, controller, _ in CELLS}
    for cell in cells.values():
        assert cell.error.value == pytest.approx(0.2, abs=0.01)
        assert 0.1 < cell.error.low < cell.error.high < 0.3
        assert cell.word == "model too high"
    dlr = cells["seq", "dlr"]
    assert dlr.effect_measured is not None
    assert dlr.effect_measured.value == pytest.approx(1.3, rel=0.01)
    assert dlr.agreement == "same direction"
    assert effects_text(dlr) == "1.30 / 1.30, same direction"
    assert cells["rand", "default"].metric == "iops"
    latency = next(c for c in made.cells if c.metric == "latency_s")
    assert latency.error.value == pytest.approx(1 / 1.2 - 1, abs=0.01)


@pytest.mark.slow
def test_figures_and_tables_are_written(tmp_path):
    both(tmp_path, model=0.9)
    made = build([tmp_path], tmp_path / "validation")
    assert [path.name for path in made.figures] == ["fig6-sim-local.png"]
    assert made.figures[0].stat().st_size > 10_000
    assert made.figures[0].with_suffix(".pdf").is_file()
    body = json.loads((tmp_path / "validation" / "validation.json").read_text())
    assert "sequential read by 10% in the median" in body["sentence"]
    assert len(body["cells"]) == 6
    table = (tmp_path / "validation" / "validation.md").read_text()
    assert "| heterogeneity | Sequential read | dlr | 3 |" in table
    assert "simulated" in made._repr_html_()


def test_a_folder_of_campaigns_or_a_campaign_and_n_of_every_cell(tmp_path):
    both(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    local = (tmp_path / "dlr-quick").rename(elsewhere / "dlr-quick")
    (local / "campaign.json").write_text(json.dumps({"campaign": {"ground": "local"}}))
    made = validate([tmp_path, elsewhere])
    assert "3 cells in the paper's setting, n = 3 pairs of runs a cell, 9 pairs" in made.sentence
    assert {row["n"] for row in made.rows()} == {3}
    assert validate([local, tmp_path]).rows() == made.rows()


def test_runs_with_another_scheduler_are_no_pair(tmp_path):
    parameters = {"op": "rand", "scenario": "heterogeneity", "controller": "default"}
    clocked = {"model": {"op_queue": "mclock_scheduler"}}
    for block in range(3):
        for campaign, value, more in (
            ("pacific", 90.0, {"ceph": "16.2.15"}),
            ("reef", 100.0, {"ceph": "18.2.7"}),
            ("pacific-sim", 99.0, {"ground": "sim"}),
            ("reef-sim", 130.0, {"ground": "sim", "calibration": clocked}),
        ):
            write_run(tmp_path / campaign, parameters, block, value + block, **more)
    made = validate([tmp_path])
    found = {c.setting: c.error.value for c in made.cells if c.metric != "latency_s"}
    assert set(found) == {"", "mClock"}
    assert found[""] == pytest.approx(0.1, abs=0.01)
    assert found["mClock"] == pytest.approx(0.3, abs=0.01)
    for campaign in ("pacific", "pacific-sim"):
        shutil.rmtree(tmp_path / campaign)
    assert {c.setting for c in validate([tmp_path]).cells} == {""}


def test_other_parameters_or_seeds_are_no_pair_and_what_is_missing_is_named(tmp_path):
    parameters = {"op": "seq", "scenario": "heterogeneity", "controller": "dlr"}
    write_run(tmp_path / "dlr-quick", parameters, 0, 100.0)
    with raises(UserError, "no finished run of ground sim", where=str(tmp_path), do="--ground sim"):
        validate([tmp_path])
    write_run(tmp_path / "dlr-quick-sim", parameters, 1, 100.0, ground="sim")
    write_run(tmp_path / "dlr-quick-sim", parameters | {"duration_s": 90}, 0, 100.0, ground="sim")
    with raises(UserError, "no cell ran on both local and sim"):
        validate([tmp_path])
    with raises(UserError, "no such folder", where="nowhere"):
        validate([tmp_path / "nowhere"])
