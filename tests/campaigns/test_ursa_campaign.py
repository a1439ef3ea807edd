"""Campaigns of the planner: what a file may say, what is refused before anything starts, and a
cell's folder."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from campaigns import session
from campaigns.campaign_file import find_campaign, load_campaign
from campaigns.display import CampaignView, RunView
from campaigns.job import Job
from campaigns.session import Request
from campaigns.ursa import cell as cell_module
from campaigns.ursa import session as planner
from campaigns.ursa.cell import Kept, Task, make, run_task
from campaigns.ursa.code import Code, difference, here
from campaigns.ursa.measure import method_of
from campaigns.ursa.parameters import INPUTS, UrsaParameters, check
from campaigns.workers import Workers
from controllers.ursa.methods import METHODS, Method
from controllers.ursa.run import plan_instance
from schemas.campaign import Campaign, PlannerCampaign
from schemas.errors import UserError
from schemas.run import Provenance, Run, Summary

FILES = ("ursa-quick", "ursa-full")
TINY: dict[str, Any] = {
    "name": "ursa-tiny",
    "paper": "ursa",
    "planner": "ursa",
    "profile": "quick",
    "parameters": {"time_limit_s": 20},
    "grids": [
        {
            "name": "methods",
            "figures": ["11"],
            "vary": {"size": ["20-400", "30-900"], "method": ["alp", "htoc"]},
            "fixed": {"kind": "s2"},
            "repetitions": 3,
        }
    ],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY | changes))
    return path


@pytest.mark.parametrize("name", FILES)
def test_what_comes_with_hotbed_is_sound_and_feeds_every_figure(name: str, tmp_path: Path) -> None:
    campaign = load_campaign(find_campaign(name))
    assert isinstance(campaign, PlannerCampaign)
    assert campaign.ground == "sim"
    figures = {figure for grid in campaign.grids for figure in grid.figures}
    assert figures >= {"1", "3", "7", "8", "9", "10", "11"}
    assert all(grid.repetitions >= 3 for grid in campaign.grids)
    prepared = planner.prepare(Request(name, artifacts=tmp_path))
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
    cells = planner.prepare(Request(str(written(tmp_path)))).plan.cells
    seeds: dict[int, set[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.block, set()).add(cell.seed)
    assert [len(found) for found in seeds.values()] == [1, 1, 1]
    assert len(set.union(*seeds.values())) == 3
    for block in range(3):
        order = [cell.parameters.contents() for cell in cells if cell.block == block]
        assert len(order) == 4
        # Cells that share an instance follow each other: it is made once for them.
        assert sum(a != b for a, b in pairwise(order)) == 1


def test_the_seed_the_planner_and_nothing_else_make_a_run(tmp_path: Path) -> None:
    request = Request(str(written(tmp_path)))
    first = [cell.run_id for cell in planner.prepare(request).plan.cells]
    assert len(set(first)) == 12
    again = [cell.run_id for cell in planner.prepare(request).plan.cells]
    assert first == again
    other = planner.prepare(Request(str(written(tmp_path, seed=2)))).plan.cells
    assert not {cell.run_id for cell in other} & set(first)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": "10K"}, "'10K' is no size such as 0.1K-0.1M"),
        ({"size": "2-400"}, "3 replicas do not fit on 2 nodes"),
        ({"nodes": 10}, "size already says nodes and partitions"),
        ({"method": "best"}, "method: there is no 'best'; there are alp"),
        ({"kind": "s9"}, "kind: 's9' is not allowed; allowed: s1, s2, s3"),
        ({"time_limit_s": 0}, "time_limit_s: 0 is not allowed; allowed: a number above 0"),
        ({"time_limit_s": True}, "time_limit_s: True is not allowed"),
        ({"swap_success": 2}, "allowed: a number at least 0 and at most 1"),
        ({"selection": "random"}, "selection: htoc chooses the objects by itself"),
        ({"program": "ilp"}, "program, divide, first_radius and radius_step are algorithm1's"),
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"planner": "best"}, "planner: "),
        ({"ground": "local"}, "ground: "),
        ({"spec": "testbed/specs/dlr.yaml"}, "spec: "),
        ({"time_scale": 0.5}, "time_scale: "),
    ],
)
def test_a_planner_s_file_says_nothing_of_testbeds(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        session.dry_run(Request(str(written(tmp_path, **changes))))


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"ground": "local"}, "--ground"),
        ({"testbed": "dlr"}, "--testbed"),
        ({"controllers_dir": Path()}, "--controllers-dir"),
        ({"model": Path("m.yaml")}, "--model"),
    ],
)
def test_options_of_testbeds_are_refused(
    tmp_path: Path, changes: dict[str, Any], option: str
) -> None:
    request = replace(Request(str(written(tmp_path))), **changes)
    with pytest.raises(UserError, match=f"on no testbed: leave out {option}"):
        session.dry_run(request)


def test_what_memory_does_not_hold_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = tmp_path / "artifacts"
    request = Request("ursa-full", artifacts=artifacts)
    monkeypatch.setattr(planner, "available_mib", lambda: 3000.0)
    session.dry_run(request)
    with pytest.raises(UserError, match=r"10K-10M .* in each of 4 processes, and 2.9 GiB are free"):
        session.dry_run(request, workers=Workers(count=4))
    monkeypatch.setattr(planner, "available_mib", lambda: 1000.0)
    for ask in (session.dry_run, session.run):
        with pytest.raises(UserError, match="choose smaller sizes or a single figure"):
            ask(request)
    # What is not known, or not ours, is not refused.
    session.dry_run(request, workers=Workers(scheduler="tcp://10.0.0.1:8786"))
    monkeypatch.setattr(planner, "available_mib", lambda: None)
    session.dry_run(request)
    assert not artifacts.exists()


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


@given(
    method=st.sampled_from([*METHODS, INPUTS]),
    kind=st.sampled_from(["s1", "s2", "s3"]),
    nodes=st.integers(3, 10**6),
    partitions=st.integers(1, 10**9),
)
def test_a_cell_survives_being_written(method: str, kind: str, nodes: int, partitions: int) -> None:
    values = {"kind": kind, "nodes": nodes, "partitions": partitions, "method": method}
    cell = check(values, "cell")
    assert check(json.loads(json.dumps(cell.canonical())), "again") == cell
    assert cell.memory_mib > cell.input_mib > 0
    assert planner.planned_s(cell) > 0


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


def test_a_worker_that_plans_with_something_else_is_told() -> None:
    ours = Code("3.11", {"numpy": "2.0"}, "abc", "123")
    assert difference(ours, ours) is None
    for changes, said in (
        ({"sources": "x"}, "another version of Hotbed's code"),
        ({"python": "3.9"}, "runs Python 3.9, and here it is 3.11"),
        ({"libraries": {"numpy": "1.0"}}, "has numpy 1.0, and here it is 2.0"),
        ({"probe": "x"}, "generates other instances"),
    ):
        assert said in str(difference(ours, replace(ours, **changes)))


class _Instance:
    def __init__(self, mib: float) -> None:
        self.nbytes = mib * 2**20


def test_a_worker_keeps_the_instances_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def generated(parameters: UrsaParameters, seed: int) -> Any:
        made.append((parameters.size, seed))
        return _Instance(parameters.input_mib)

    monkeypatch.setattr(cell_module, "make_instance", generated)
    kept = Kept()
    small, large = (check({"size": size}, "cell") for size in ("10K-10M", "30K-30M"))
    for seed in (1, 2, 1, 2):
        kept.get(small, seed)
    assert made == [("10K-10M", 1), ("10K-10M", 2)]
    kept.get(large, 1)  # there is no room beside it for both
    kept.get(small, 2)
    assert made[2:] == [("30K-30M", 1)]
    kept.get(small, 1)
    assert made[-1] == ("10K-10M", 1)


def job(**parameters: Any) -> Job:
    return Job(
        run_id="abc",
        campaign="ursa-tiny",
        attempt=1,
        block=0,
        order=0,
        seed=5,
        ground="sim",
        parameters=check({"size": "40-1600", "kind": "s2"} | parameters, "cell").canonical(),
        time_scale=1.0,
        testbed="synthetic",
        notebook="tiny.yaml",
        timeout_s=60,
        started_at="2026-01-01T00:00:00+00:00",
        provenance=Provenance(
            commit=None,
            dirty=None,
            hotbed_version="0",
            versions={},
            hosts={},
            site="synthetic",
            signal=None,
        ),
    )


@pytest.mark.slow
def test_a_cell_is_planned_checked_and_written() -> None:
    made = make(job(method="alp"))
    run = Run.model_validate_json(made["run.json"])
    assert (run.status, run.seed, run.parameters["method"]) == ("done", 5, "alp")
    assert set(run.phases_s) == {"generate", "plan", "check", "count"}
    assert run.provenance.hosts["planner"]["cpus"] >= 1
    values = Summary.model_validate_json(made["summary.json"]).extra
    assert values["hot_before"] > values["hot_after"] >= 0
    assert values["load_sd_after"] != values["load_sd_before"]
    assert values["limited"] == 0
    assert values["decision_s"] > 0
    assert values["peak_rss_mib"] > 10
    assert json.loads(made["plan.json"])["method"] == "alp"


@pytest.mark.slow
def test_a_cell_that_plans_nothing_describes_its_instance() -> None:
    made = make(job(method=INPUTS))
    described = json.loads(made["inputs.json"])
    assert len(described["ratio"]) == len(described["load"]) == 40
    assert described["ratio"] == sorted(described["ratio"], reverse=True)
    assert described["partition_share"][-1] == 1.0
    values = Summary.model_validate_json(made["summary.json"]).extra
    assert values["hot_before"] == sum(ratio > 0.7 for ratio in described["ratio"])
    assert "plan.json" not in made


@pytest.mark.slow
@pytest.mark.parametrize("variant", [("none", "ilp"), ("dc", "ilp"), ("none", "lp"), ("dc", "lp")])
def test_variants_of_algorithm_1_are_other_plans_for_the_same_instance(
    variant: tuple[str, str],
) -> None:
    made = make(job(method="algorithm1", divide=variant[0], program=variant[1]))
    values = Summary.model_validate_json(made["summary.json"]).extra
    plain = Summary.model_validate_json(make(job(method="greedy"))["summary.json"]).extra
    assert values["hot_after_swaps"] == plain["hot_after_swaps"]
    assert values["hot_after"] <= plain["hot_after_swaps"]


@pytest.mark.slow
def test_a_plan_that_violates_something_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any, **options: Any) -> Any:
        made = plan_instance(*arguments, **options)
        return replace(made, move_to=made.move_to * 0)

    monkeypatch.setattr("campaigns.ursa.measure.plan_instance", wrong)
    ended = run_task(Task(job(method="alp").model_dump_json(), here()))
    assert set(ended.files) == {"error.json"}


@pytest.mark.slow
def test_random_selection_moves_more() -> None:
    few = Summary.model_validate_json(make(job(method="alp"))["summary.json"]).extra
    many = Summary.model_validate_json(
        make(job(method="alp", selection="random"))["summary.json"]
    ).extra
    assert many["hot_before"] == few["hot_before"]
    assert many["moves"] > few["moves"] > 0


def test_its_runs_show_themselves_in_a_notebook() -> None:
    run = job(method="htoc").record("done", None)
    assert "s2 40-1600 htoc" in CampaignView("ursa-tiny", (run,))._repr_html_()
    assert "s2 40-1600 htoc (block 0" in RunView(run, None, Path())._repr_html_()


def test_other_campaigns_are_what_they_were() -> None:
    for name in ("dlr-quick", "dlr-full", "dlr-scale"):
        assert type(load_campaign(find_campaign(name))) is Campaign
