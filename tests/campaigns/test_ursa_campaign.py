"""Campaigns of the planner: allowed files, early refusals, and a cell's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_kinds import URSA as TINY
from tiny_kinds import job, written

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.sameness import Code
from campaigns.engine.session import Request
from campaigns.engine.workers import Workers
from campaigns.papers.ursa import cell as cell_module
from campaigns.papers.ursa.cell import Kept, make
from campaigns.papers.ursa.kind import SAME, planned_s
from campaigns.papers.ursa.measure import method_of
from controllers.ursa.methods import METHODS, Method
from controllers.ursa.run import plan_instance
from schemas.campaign import PlannerCampaign
from schemas.cells.ursa import INPUTS, URSA, Placing, UrsaCell
from schemas.errors import HotbedError, UserError
from schemas.run import Run, Summary

FILES = ("ursa-quick", "ursa-full")

check = URSA.check


@pytest.mark.parametrize("name", FILES)
def test_what_comes_with_hotbed_is_sound_and_feeds_every_figure(name: str, tmp_path: Path) -> None:
    campaign = load_campaign(find_campaign(name))
    assert isinstance(campaign, PlannerCampaign)
    assert campaign.ground == "sim"
    figures = {figure for grid in campaign.grids for figure in grid.figures}
    assert figures >= {"1", "3", "7", "8", "9", "10", "11"}
    assert all(grid.repetitions >= 3 for grid in campaign.grids)
    prepared = session.prepare(Request(name, artifacts=tmp_path))
    assert prepared.plan.cells
    assert not list(tmp_path.iterdir())


def test_the_full_campaign_has_the_paper_s_sizes() -> None:
    sizes = {
        (figure, size)
        for grid in load_campaign(find_campaign("ursa-full")).grids
        for figure in grid.figures
        for size in grid.vary.get("size", [])
    }
    for figure in ("7", "8", "11"):
        assert {(figure, "0.1K-0.1M"), (figure, "5K-5M"), (figure, "10K-10M")} <= sizes
    assert {("9", "150-150K"), ("10", "30-3K")} <= sizes


def test_every_method_of_a_block_gets_the_same_instances(tmp_path: Path) -> None:
    cells = session.prepare(Request(str(written(tmp_path, TINY)))).plan.cells
    seeds: dict[int, set[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.block, set()).add(cell.seed)
    assert [len(found) for found in seeds.values()] == [1, 1, 1]
    assert len(set.union(*seeds.values())) == 3
    for block in range(3):
        order = [cell.parameters.contents() for cell in cells if cell.block == block]
        assert len(order) == 4
        # Cells with the same instance follow each other, so it is created once.
        assert sum(a != b for a, b in pairwise(order)) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": "10K"}, "'10K' is no size such as 0.1K-0.1M"),
        ({"size": "2-400"}, "3 replicas do not fit on 2 nodes"),
        ({"nodes": 10}, "size already says nodes and partitions"),
        ({"method": "best"}, "method: 'best' is not allowed; allowed: alp"),
        ({"kind": "s9"}, "kind: 's9' is not allowed; allowed: s1, s2, s3"),
        ({"time_limit_s": 0}, "time_limit_s: 0 is not allowed; allowed: a number above 0"),
        ({"time_limit_s": True}, "time_limit_s: True is not allowed"),
        ({"swap_success": 2}, "allowed: a number at least 0 and at most 1"),
        (
            {"selection": "random"},
            "selection belongs to method alp, ilp, greedy, algorithm1: leave",
        ),
        ({"program": "ilp"}, "program belongs to method algorithm1: leave it out of htoc"),
        ({"racks": 500}, "racks: 500 for 20 nodes"),
        ({"memory": 3}, "unknown parameter 'memory'; a cell has size, kind"),
        ({"size": "20-5000M"}, "allowed: a whole number at least 1 and at most 1,000,000,000"),
    ],
)
def test_a_mistake_in_a_cell_is_one_sentence(changes: dict[str, Any], said: str) -> None:
    values = {"size": "20-400", "method": "htoc"} | changes
    with pytest.raises(UserError) as raised:
        check(values, "file: grid x")
    assert said in str(raised.value)
    assert str(raised.value).startswith("file: grid x: ")
    assert "\n" not in str(raised.value)


def test_a_dry_run_tells_cells_time_and_limits(tmp_path: Path) -> None:
    report = session.dry_run(Request("ursa-full", figure="9", artifacts=tmp_path))
    assert {cell.parameters.controller for cell in report.pending} == {"algorithm1"}
    assert any("algorithm1 120 s" in note for note in report.notes)
    assert any("5K-5M" in note for note in report.notes)
    assert report.pending_s > 0
    both = session.dry_run(
        Request("ursa-full", figure="9", artifacts=tmp_path), workers=Workers(count=2)
    )
    assert both.pending_s == pytest.approx(report.pending_s / 2)
    assert any("slow each other down" in note for note in both.notes)
    with pytest.raises(UserError, match="has no figure '99'; it has 1, 3, 7"):
        session.dry_run(Request("ursa-full", figure="99", artifacts=tmp_path))


def test_the_models_know_every_method() -> None:
    known = {name: URSA.model_of({"method": name}) for name in METHODS}
    assert {name for name, model in known.items() if issubclass(model, Placing)} == {
        name for name, method in METHODS.items() if method.kind == "placer"
    }


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


def test_the_paper_s_variant_is_written_in_one_way() -> None:
    plain = check({"size": "20-400", "method": "algorithm1"}, "cell")
    named = {"size": "20-400", "method": "algorithm1", "program": "lp", "divide": "dc"}
    assert plain == check(named, "cell")
    assert plain.label() == "s1 20-400 algorithm1"
    other = check(named | {"program": "ilp", "divide": "none"}, "cell")
    assert other.label() == "s1 20-400 algorithm1 NONE+ILP"
    variant = method_of(other)
    assert isinstance(variant, Method)
    assert vars(variant.arguments["variant"]) == {
        "divide": False,
        "relax": False,
        "first_radius": None,
        "step": None,
    }


def test_random_objects_are_moved_as_they_were_selected() -> None:
    chosen = method_of(check({"size": "20-400", "method": "alp", "selection": "random"}, "cell"))
    assert isinstance(chosen, Method)
    assert not chosen.prune
    assert method_of(check({"size": "20-400", "method": "alp"}, "cell")) == "alp"


def test_a_worker_whose_arithmetic_differs_is_told() -> None:
    ours = Code("3.11", {"numpy": "2.0"}, "abc", probe="123")
    assert SAME.difference(ours, ours) is None
    assert "generates other instances" in str(SAME.difference(ours, replace(ours, probe="x")))


class _Instance:
    def __init__(self, mib: float) -> None:
        self.nbytes = mib * 2**20


def test_a_worker_keeps_the_instances_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def generated(parameters: UrsaCell, seed: int) -> Any:
        made.append((parameters.size, seed))
        return _Instance(parameters.input_mib)

    monkeypatch.setattr(cell_module, "make_instance", generated)
    kept = Kept()
    small, large = (check({"size": size}, "cell") for size in ("10K-10M", "30K-30M"))
    for seed in (1, 2, 1, 2):
        kept.get(small, seed)
    assert made == [("10K-10M", 1), ("10K-10M", 2)]
    kept.get(large, 1)  # memory has no room for both
    kept.get(small, 2)
    assert made[2:] == [("30K-30M", 1)]
    kept.get(small, 1)
    assert made[-1] == ("10K-10M", 1)


@dataclass
class Left:
    """Folder of a cell: its files, and the numbers of its summary."""

    files: dict[str, str]
    values: dict[str, float]


def left(folder: Path, **parameters: Any) -> Left:
    cell = check({"size": "40-1600", "kind": "s2"} | parameters, "cell")
    make(job(cell.model_dump(mode="json")), folder)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    return Left(files, Summary.model_validate_json(files["summary.json"]).extra)


@pytest.mark.slow
def test_a_cell_is_planned_checked_and_written(tmp_path: Path) -> None:
    found = left(tmp_path, method="alp")
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


@pytest.mark.slow
def test_a_cell_that_plans_nothing_describes_its_instance(tmp_path: Path) -> None:
    found = left(tmp_path, method=INPUTS)
    described = json.loads(found.files["inputs.json"])
    assert len(described["ratio"]) == len(described["load"]) == 40
    assert described["ratio"] == sorted(described["ratio"], reverse=True)
    assert described["partition_share"][-1] == 1.0
    assert found.values["hot_before"] == sum(ratio > 0.7 for ratio in described["ratio"])
    assert "plan.json" not in found.files


@pytest.mark.slow
@pytest.mark.parametrize("variant", [("none", "ilp"), ("dc", "ilp"), ("none", "lp"), ("dc", "lp")])
def test_variants_of_algorithm_1_are_other_plans_for_the_same_instance(
    variant: tuple[str, str], tmp_path: Path
) -> None:
    values = left(tmp_path, method="algorithm1", divide=variant[0], program=variant[1]).values
    plain = left(tmp_path, method="greedy").values
    assert values["hot_after_swaps"] == plain["hot_after_swaps"]
    assert values["hot_after"] <= plain["hot_after_swaps"]


@pytest.mark.slow
def test_a_plan_that_violates_something_is_a_failed_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong(*arguments: Any, **options: Any) -> Any:
        made = plan_instance(*arguments, **options)
        return replace(made, move_to=made.move_to * 0)

    monkeypatch.setattr("campaigns.papers.ursa.measure.plan_instance", wrong)
    with pytest.raises(HotbedError):
        left(tmp_path, method="alp")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_random_selection_moves_more(tmp_path: Path) -> None:
    few = left(tmp_path, method="alp").values
    many = left(tmp_path, method="alp", selection="random").values
    assert many["hot_before"] == few["hot_before"]
    assert many["moves"] > few["moves"] > 0
