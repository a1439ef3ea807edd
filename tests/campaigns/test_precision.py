"""Grids that ask for precision: added blocks, resumption, records, and the reports' interval."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tiny_campaigns import OneByOne, plan_of, tiny

from analysis.core.claims import Evidence, Measured
from analysis.core.evidence import quotient
from analysis.core.load import load_campaign, table
from analysis.core.papers import paper
from analysis.core.precision import statistic_of
from analysis.papers.dlr.runs import BLOCKS
from campaigns.engine.attempts import InProcess
from campaigns.engine.display import Progress
from campaigns.engine.engine import Engine
from campaigns.engine.job import Job, Outcome, Phases
from campaigns.engine.plan import Cell, Plan
from campaigns.engine.precision import Blocks, require_pairs, sentence, statistics_of
from campaigns.engine.provenance import Facts, provenance
from campaigns.engine.session import Request, dry_run, make_cells, prepare
from campaigns.engine.store import RunStore
from campaigns.engine.write_cell import write_cell
from campaigns.papers.dlr.cell import make_cell
from schemas.campaign import Campaign, PlannerCampaign
from schemas.cells.dlr import DLR
from schemas.errors import UserError
from schemas.precision import Reached, two_stage
from schemas.run import OpSummary, Run, Summary
from tests.analysis.synthetic_runs import written
from tests.campaigns import tiny_kinds
from tests.errors import raises

ASKS = {"compare": ["dlr", "default"], "half_width": 0.1, "max_blocks": 40}
GRID: Mapping[str, Any] = {
    "name": "pair",
    "figures": ["6a"],
    "vary": {"controller": ["default", "dlr"]},
    "fixed": {"scenario": "heterogeneity", "op": "rand"},
    "repetitions": 5,
    "precision": ASKS,
}


def asking(**precision: Any) -> Campaign:
    return tiny(grids=[{**GRID, "precision": {**ASKS, **precision}}])


def blocks_of(campaign: Campaign, folder: Path) -> Blocks:
    cells = {"pair": [DLR.of(scenario="heterogeneity", op="rand", controller="dlr")]}
    return Blocks(campaign, cells, cells, lambda blocks, _: plan_of(blocks), RunStore(folder))


CLAIM = "dlr-interference-rand-throughput"
ALL_REMOVED = {"claim": "ursa-all-removed", "half_width": 0.25}
"""With five looks, a share of 1 is known well enough at the second."""


def claimed(folder: Path) -> Blocks:
    """Return the blocks of a grid that asks for the precision of `CLAIM`, on the ground sim."""
    asks = {"claim": CLAIM, "half_width": 0.1, "max_blocks": 40}
    fixed = {"scenario": "interference", "op": "rand"}
    campaign = tiny(ground="sim", grids=[{**GRID, "fixed": fixed, "precision": asks}])
    blocks = blocks_of(campaign, folder)
    return replace(blocks, claims=statistics_of(campaign, blocks.cells, statistic_of))


def throughput(cell: Cell) -> float:
    """Return the throughput of a cell: dlr doubles it, and both vary from run to run."""
    draw = random.Random(f"{cell.block} {cell.parameters.controller}")
    gain = 2.0 if cell.parameters.controller == "dlr" else 1.0
    return 100 * gain * math.exp(draw.gauss(0, 0.12))


class Measures(OneByOne):
    """Executor that stores the throughput of each cell, and ends after `left` attempts."""

    def __init__(self, folder: Path, left: int = 10**6, ground: str = "local") -> None:
        self.folder, self.left, self.ground = folder, left, ground
        self.made: list[Cell] = []

    def interrupt(self) -> None:
        self.left = 0

    kill = interrupt

    def execute(self, cell: Cell) -> Outcome:
        self.left -= 1
        if self.left < 0:
            return Outcome("failed", "the machine is gone", fatal=True)
        self.made.append(cell)
        value = throughput(cell)
        one = OpSummary(
            op="rand",
            seconds=10,
            operations=10,
            bytes=10,
            throughput_mb_s=value,
            iops=value,
            latency_mean_s=1,
        )
        body = cell.parameters.model_dump(mode="json")
        summary = Summary(whole=[one], steady=[one], pressure_mean={})
        changes = {"run_id": cell.run_id, "seed": cell.seed, "stopping": cell.stopping}
        written(self.folder, cell.block, "dlr", body, summary, ground=self.ground, **changes)
        return Outcome("done", None, 1.0)


def engine(blocks: Blocks, executor: Measures) -> Engine:
    def grow() -> Plan:
        return blocks.plans()[0]

    return Engine(grow(), blocks.store, executor, Progress(), grow=grow)


def reached(blocks: Blocks) -> Reached:
    return blocks.plans()[2][0]


def test_whole_blocks_are_added_until_the_interval_is_narrow(tmp_path):
    blocks = blocks_of(asking(), tmp_path)
    first = blocks.plans()[0]
    executor = Measures(tmp_path)
    result = engine(blocks, executor).run()
    plan, full, (found,) = blocks.plans()
    assert result.ok
    assert plan == full
    assert (found.why, found.rule, found.first_stage) == ("narrow enough", "two-stage", 5)
    assert 5 < found.n == found.blocks < 40
    assert result.planned == result.ran == len(executor.made) == 2 * found.n
    assert {cell.run_id for cell in first.cells} < {cell.run_id for cell in plan.cells}
    assert [cell.block for cell in plan.cells] == sorted(2 * list(range(found.n)))
    assert found.half_width is not None
    assert found.half_width <= math.log(1.1)


@pytest.mark.parametrize("left", [3, 10, 13])
def test_an_interrupted_campaign_resumes_with_the_same_blocks(tmp_path, left):
    whole = blocks_of(asking(), tmp_path / "whole")
    engine(whole, Measures(whole.store.folder)).run()
    cut = blocks_of(asking(), tmp_path / "cut")
    assert not engine(cut, Measures(cut.store.folder, left)).run().ok
    again = Measures(cut.store.folder)
    assert engine(cut, again).run().ok
    assert len(again.made) == len(whole.plans()[0].cells) - left
    assert cut.plans() == whole.plans()
    assert engine(cut, Measures(cut.store.folder)).run().ran == 0


def test_a_budget_in_blocks_or_minutes_ends_it(tmp_path):
    few = blocks_of(asking(half_width=0.01, max_blocks=7), tmp_path)
    engine(few, Measures(tmp_path)).run()
    assert (reached(few).blocks, reached(few).why) == (7, "budget spent")
    minutes = asking(half_width=0.01, max_blocks=None, max_minutes=0.3)
    timed = blocks_of(minutes, tmp_path)
    assert (reached(timed).most, reached(timed).blocks) == (9, 9), "a run took a second"


def test_a_report_has_the_interval_of_the_rule(tmp_path):
    blocks = blocks_of(asking(), tmp_path)
    engine(blocks, Measures(tmp_path)).run()
    found = reached(blocks)
    rows = table(load_campaign(tmp_path).runs)
    dlr, default = (rows[rows["controller"] == name] for name in ("dlr", "default"))
    for column in ("throughput_mb_s", "iops"):
        estimate = quotient(dlr, default, column, keys=BLOCKS)
        assert estimate is not None
        assert (estimate.n, estimate.n > 5) == (found.n, True)
        assert math.log(estimate.value) == pytest.approx(found.estimate)
        assert math.log(estimate.high / estimate.value) == pytest.approx(found.half_width)
    early = quotient(dlr[dlr["block"] < 5], default, "iops", keys=BLOCKS)
    logs = [math.log(a / b) for a, b in zip(*_first(dlr, default), strict=True)]
    assert early is not None
    assert math.log(early.high / early.value) == pytest.approx(
        two_stage(logs, 5, 9.0, 5).half_width
    )


def _first(dlr: Any, default: Any) -> list[list[float]]:
    return [
        rows[rows["block"] < 5].sort_values("block")["iops"].tolist() for rows in (dlr, default)
    ]


def test_a_claim_has_the_same_interval_in_engine_and_report(tmp_path):
    blocks = claimed(tmp_path)
    (grid,) = blocks.campaign.grids
    (statistic,) = blocks.claims.values()
    engine(blocks, Measures(tmp_path, 8, "sim")).run()
    plan, _, (some,) = blocks.plans()
    assert (some.n, some.why) == (4, "blocks to run")
    assert "4 stored pairs" in sentence(grid, plan, blocks.store, some, statistic)
    assert engine(blocks, Measures(tmp_path, ground="sim")).run().ok
    plan, _, (found,) = blocks.plans()
    assert (found.rule, found.why, found.first_stage) == ("two-stage", "narrow enough", 5)
    assert 5 < found.n == found.blocks < 40
    assert f"n = {found.n} gives" in sentence(grid, plan, blocks.store, found, statistic)
    (part,) = paper("dlr").parts
    (claim,) = [claim for claim in part.claims if claim.id == CLAIM]
    runs = load_campaign(tmp_path).runs
    measured = claim.compute(Evidence(part.tabulate(runs), runs))
    assert isinstance(measured, Measured)
    estimate = measured.estimate
    gain, low, high = (math.log1p(v) for v in (estimate.value, estimate.low, estimate.high))
    assert gain == pytest.approx(found.estimate)
    assert (high - low) / 2 == pytest.approx(found.half_width)


def relieved(job: Job, folder: Path) -> Run:
    """Make a cell with a plan that leaves no node hot."""
    return write_cell(folder, job, {"hot_after": 0.0}, Phases())


def test_the_share_of_a_claim_is_looked_at_as_declared(tmp_path):
    grid = {
        "name": "all",
        "figures": ["7"],
        "vary": {"size": ["0.1K-0.1M"]},
        "fixed": {"method": "alp"},
        "repetitions": 5,
        "precision": {**ALL_REMOVED, "max_blocks": 80},
    }
    path = tiny_kinds.written(tmp_path, tiny_kinds.URSA, grids=[grid])
    request = Request(str(path), artifacts=tmp_path / "artifacts", claims=statistic_of)
    prepared = prepare(request)
    prepared.store.prepare()
    made_by = provenance(Facts("synthetic", {}))
    assert make_cells(prepared, made_by, InProcess(relieved), Progress()).ok
    (found,) = prepare(request).reached
    assert (found.rule, found.looks, found.why) == ("looks", 5, "narrow enough")
    assert (found.blocks, found.n, found.estimate) == (10, 10, 1.0)
    assert {run.stopping.looks for run in prepared.store.runs() if run.stopping} == {5}


@pytest.mark.parametrize(
    "changes",
    [
        {"half_width": 0},
        {"max_blocks": None},
        {"max_minutes": 3},
        {"share_of": "dlr"},
        {"compare": None},
        {"compare": ["dlr", "dlr"]},
        {"max_blocks": 4},
        {"compare": None, "share_of": "dlr", "max_blocks": None, "max_minutes": 9},
        {"claim": CLAIM},
        {"compare": None, "claim": CLAIM, "metric": "iops"},
    ],
)
def test_precision_is_checked_with_the_file(changes):
    with pytest.raises(ValueError, match=r"precision|compare|max_|share_of|half_width"):
        asking(**changes)
    with pytest.raises(ValueError, match="first stage"):
        tiny(grids=[{**GRID, "repetitions": 4}])


@pytest.mark.parametrize(
    ("asks", "facts"),
    [
        ({"claim": "ursa-all-remove"}, ["ursa-all-remove'", "ursa-all-removed?"]),
        ({"claim": "ursa-variables-exact"}, ["no interval"]),
        ({"claim": "ursa-live-cost-10"}, ["no claim"]),
        ({"claim": "ursa-sa-cost-least"}, ["no rule"]),
        ({"max_blocks": None, "max_minutes": 3}, ["max_blocks"]),
    ],
)
def test_a_claim_is_refused_without_a_rule(asks, facts):
    grid = {**tiny_kinds.URSA["grids"][0], "repetitions": 5}
    grid["precision"] = {**ALL_REMOVED, "max_blocks": 40, **asks}
    campaign = PlannerCampaign.model_validate({**tiny_kinds.URSA, "grids": [grid]})
    with raises(UserError, *facts, where="grid methods, precision"):
        statistics_of(campaign, {"methods": []}, statistic_of)
    with raises(UserError, "hotbed run", where="grid methods, precision"):
        statistics_of(campaign, {"methods": []}, None)


@pytest.mark.parametrize("controllers", [["dlr"], ["dlr", "default", "default"]])
def test_a_grid_needs_one_cell_of_each_controller(controllers):
    cells = {"pair": [DLR.of(scenario="none", op="rand", controller=name) for name in controllers]}
    with pytest.raises(UserError, match="default"):
        require_pairs(asking(), cells)


def test_a_campaign_records_what_it_reached(tmp_path, campaign_file, monkeypatch):
    effects = {"default": {}, "dlr": {"gain": 1.5}}
    monkeypatch.setenv("HOTBED_FAKE_CONTROLLERS", json.dumps(effects))
    asks = {**ASKS, "half_width": 0.0001, "max_blocks": 7}
    grid = {**GRID, "precision": asks}
    path = campaign_file(grids=[grid], parameters={"duration_s": 1, "interval_s": 1})
    request = Request(str(path), artifacts=tmp_path / "artifacts")
    assert dry_run(request).cells == 10
    prepared = prepare(request)
    assert prepared.ground is not None
    assert prepared.facts is not None
    prepared.store.prepare()
    how = InProcess(partial(make_cell, prepared.ground))
    result = make_cells(prepared, provenance(prepared.facts), how, Progress())
    assert result.ok
    assert result.ran == 14
    report = dry_run(request)
    assert (report.cells, report.done) == (14, 14)
    kept = json.loads((prepared.store.folder / "campaign.json").read_text())
    (found,) = map(Reached.model_validate, kept["precision"])
    assert (found.grid, found.n, found.why) == ("pair", 7, "budget spent")
    assert len(kept["cells"]) == 14
    assert {run.stopping.first_stage for run in prepared.store.runs() if run.stopping} == {5}
