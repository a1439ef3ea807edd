"""Cells and campaigns of Ursa's planner: parameters, plans, and the folder of a cell."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.dask import Workers
from campaigns.engine.session import Request
from campaigns.papers.ursa import cell as cell_module
from campaigns.papers.ursa.cell import InstanceCache, make
from campaigns.papers.ursa.kind import planned_s
from campaigns.papers.ursa.measure import method_of
from controllers.ursa.methods import METHODS, Method
from controllers.ursa.run import plan_instance
from schemas.campaign import PlannerCampaign
from schemas.cells.ursa import INPUTS, URSA, Placing, UrsaCell
from schemas.errors import HotbedError, UserError
from schemas.run import Run, Summary
from tests.campaigns.tiny_kinds import URSA as TINY
from tests.campaigns.tiny_kinds import job, written

check = URSA.check


@pytest.mark.parametrize("name", ["ursa-quick", "ursa-full"])
def test_the_campaigns_feed_every_figure_at_the_papers_sizes(name: str, tmp_path: Path) -> None:
    campaign = load_campaign(find_campaign(name))
    assert isinstance(campaign, PlannerCampaign)
    assert campaign.ground == "sim"
    assert all(grid.repetitions >= 3 for grid in campaign.grids)
    figures = {figure for grid in campaign.grids for figure in grid.figures}
    assert figures >= {"1", "3", "7", "8", "9", "10", "11"}
    sizes = {
        (figure, size)
        for grid in campaign.grids
        for figure in grid.figures
        for size in grid.vary.get("size", [])
    }
    if name == "ursa-full":  # sections 5.1 and 5.2
        for figure in ("7", "8", "11"):
            assert {(figure, size) for size in ("0.1K-0.1M", "5K-5M", "10K-10M")} <= sizes
        assert {("9", "150-150K"), ("10", "30-3K")} <= sizes
    assert session.prepare(Request(name, artifacts=tmp_path)).plan.cells
    assert not list(tmp_path.iterdir())


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
    "changes",
    [
        {"size": "10K"},
        {"size": "2-400"},
        {"nodes": 10},
        {"method": "best"},
        {"kind": "s9"},
        {"time_limit_s": 0},
        {"time_limit_s": True},
        {"swap_success": 2},
        {"selection": "random"},
        {"program": "ilp"},
        {"racks": 500},
        {"memory": 3},
        {"size": "20-5000M"},
    ],
)
def test_a_mistake_in_a_cell_is_refused(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(UserError) as raised:
        check({"size": "20-400", "method": "htoc"} | changes, "file: grid x")
    assert str(raised.value).startswith("file: grid x: ")
    assert name in str(raised.value) or str(changes[name]).split("-")[0] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_dry_run_estimates_time_and_names_limits(tmp_path: Path) -> None:
    request = Request("ursa-full", figure="9", artifacts=tmp_path)
    report = session.dry_run(request)
    assert {cell.parameters.controller for cell in report.pending} == {"algorithm1"}
    assert any("algorithm1 120 s" in note for note in report.notes)
    assert any("5K-5M" in note for note in report.notes)
    both = session.dry_run(request, workers=Workers(count=2))
    assert both.pending_s == pytest.approx(report.pending_s / 2) and report.pending_s > 0


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


def test_variants_of_algorithm_1_are_named_as_in_section_3_2() -> None:
    plain = check({"size": "20-400", "method": "algorithm1"}, "cell")
    named = {"size": "20-400", "method": "algorithm1", "program": "lp", "divide": "dc"}
    assert plain == check(named, "cell")
    assert plain.label() == "s1 20-400 algorithm1"
    other = check(named | {"program": "ilp", "divide": "none"}, "cell")
    assert other.label() == "s1 20-400 algorithm1 NONE+ILP"
    variant = method_of(other)
    assert isinstance(variant, Method)
    wanted = {"divide": False, "relax": False, "first_radius": None, "step": None}
    assert vars(variant.arguments["variant"]) == wanted
    # Random objects (figure 8) are moved as they were selected.
    chosen = method_of(check({"size": "20-400", "method": "alp", "selection": "random"}, "cell"))
    assert isinstance(chosen, Method) and not chosen.prune
    assert method_of(check({"size": "20-400", "method": "alp"}, "cell")) == "alp"


class _Instance:
    def __init__(self, mib: float) -> None:
        self.nbytes = mib * 2**20


def test_a_worker_keeps_the_instances_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def generated(parameters: UrsaCell, seed: int) -> Any:
        made.append((parameters.size, seed))
        return _Instance(parameters.input_mib)

    monkeypatch.setattr(cell_module, "make_instance", generated)
    cache = InstanceCache()
    small, large = (check({"size": size}, "cell") for size in ("10K-10M", "30K-30M"))
    for seed in (1, 2, 1, 2):
        cache.get(small, seed)
    assert made == [("10K-10M", 1), ("10K-10M", 2)]
    cache.get(large, 1)  # memory has no room for both
    cache.get(small, 2)
    assert made[2:] == [("30K-30M", 1)]
    cache.get(small, 1)
    assert made[-1] == ("10K-10M", 1)


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
@pytest.mark.parametrize("variant", [("none", "ilp"), ("dc", "ilp"), ("none", "lp"), ("dc", "lp")])
def test_variants_of_algorithm_1_plan_for_the_same_instance(
    variant: tuple[str, str], tmp_path: Path
) -> None:
    divide, program = variant
    values = made_in(tmp_path, method="algorithm1", divide=divide, program=program).values
    plain = made_in(tmp_path, method="greedy").values
    assert values["hot_after_swaps"] == plain["hot_after_swaps"]
    assert values["hot_after"] <= plain["hot_after_swaps"]


@pytest.mark.slow
def test_an_invalid_plan_fails_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(*arguments: Any, **options: Any) -> Any:
        made = plan_instance(*arguments, **options)
        return replace(made, move_to=made.move_to * 0)

    monkeypatch.setattr("campaigns.papers.ursa.measure.plan_instance", wrong)
    with pytest.raises(HotbedError):
        made_in(tmp_path, method="alp")
    assert not list(tmp_path.iterdir())
