"""Cells of COSPerf and their report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.papers.mos.profile.grid import simulated_runs
from campaigns.papers.mos.simulated import (
    SERIES_FILE,
    averages,
    constants,
    errors,
    made_wrong,
    make,
    planned_s,
    policy_parameters,
    profiled,
)
from controllers.journal import read_journal
from controllers.microstores.performance import CURVES, PiecewiseLinear
from schemas.cells.mos import COSPERF
from schemas.errors import UserError
from testbed.simulated.cosperf.machines import paper_pool, total
from testbed.simulated.cosperf.stages import paper_stages
from testbed.simulated.cosperf.store import SimulatedMicrostores
from tests.campaigns.tiny_kinds import job

SHORT = {"minutes": 84, "epoch_s": 60}


def _make(folder: Path, **parameters: object) -> dict[str, float]:
    folder.mkdir()
    typed = COSPERF.check(SHORT | parameters, "here")
    make(job(typed.model_dump(mode="json")), folder)
    extra: dict[str, float] = json.loads((folder / "summary.json").read_text())["extra"]
    return extra


@pytest.mark.slow
def test_a_static_cell_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (_make(tmp_path / name, policy="static") for name in "ab")
    assert first == second
    assert first["A_requests_s"] > 0
    assert not (tmp_path / "a" / "journal.jsonl").exists()
    series = json.loads((tmp_path / "a" / SERIES_FILE).read_text())
    assert series["t_s"][-1] == pytest.approx(84 * 60)
    assert averages(series)["A_requests_s"] == pytest.approx(first["A_requests_s"])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mos", "mos-pp"])
def test_the_real_loop_drives_it(policy: str, tmp_path: Path) -> None:
    extra = _make(tmp_path / "cell", policy=policy)
    journal = read_journal(tmp_path / "cell" / "journal.jsonl")
    assert journal.header["policy"] == policy
    assert len(journal.steps) == 83  # the first epoch passes before the first decision
    assert not any(step["error"] for step in journal.steps)
    assert sum(bool(step["actions"]) for step in journal.steps) > 10
    assert ("cospurf_error_A" in extra) == (policy == "mos-pp")


@pytest.mark.slow
def test_more_resources_than_the_start_are_worth_something(tmp_path: Path) -> None:
    """Both policies serve more than their initial quarter of the pool could."""
    found = {name: _make(tmp_path / name, policy=name) for name in ("mos", "mos-pp")}
    series = json.loads((tmp_path / "mos" / SERIES_FILE).read_text())
    for extra in found.values():
        first = series["tenants"]["A"]["requests_s"][0]
        assert extra["A_stage_4_requests_s"] > 3 * first


@pytest.mark.slow
def test_a_mos_pp_that_learns_nothing_is_told_so() -> None:
    hosts = paper_pool(1)
    judge, _ = constants("local", "same", 4)
    store = SimulatedMicrostores(hosts, paper_stages(1), constants=judge)
    cospurf = PiecewiseLinear({}, "")
    told = {
        learns: policy_parameters(store, COSPERF.of(policy="mos-pp", learns=learns), cospurf)
        for learns in (True, False)
    }
    assert "learn" not in told[True]
    assert told[False]["learn"] == 0
    assert set(told[True]["tenants"]) == set("ABCD")
    assert policy_parameters(store, COSPERF.of(policy="mos"), cospurf) == {}


def test_what_only_mos_pp_has_is_refused_of_others() -> None:
    with pytest.raises(UserError, match="model_error belongs to policy mos-pp: leave it"):
        COSPERF.check({"policy": "mos", "model_error": 0.1}, "here")
    with pytest.raises(UserError, match="policy"):
        COSPERF.check({"policy": "default"}, "here")


@pytest.mark.slow
def test_judge_and_model_are_of_disjoint_runs() -> None:
    judge, model = constants("local", "disjoint", 4)
    swapped = constants("local", "disjoint", 5)
    assert judge != model
    assert swapped == (model, judge)
    assert constants("local", "same", 4) == (judge, judge)
    assert judge.replicas == 3


@pytest.mark.slow
def test_a_model_made_wrong_is_wrong_by_so_much() -> None:
    pool = total(paper_pool(2))
    judge, _ = constants("local", "same", 4)
    right = profiled(judge, pool, 2)
    assert made_wrong(right, 0.0, 2) is right
    wrong = made_wrong(right, 0.3, 2)
    factors = {
        round(getattr(wrong.tables[name], curve).most / getattr(table, curve).most, 6)
        for name, table in right.tables.items()
        for curve in CURVES
    }
    assert factors == {0.7, 1.3}
    before, after = (errors(one, judge, pool, 2) for one in (right, wrong))
    assert max(before.values()) < 0.15
    assert sum(after.values()) > sum(before.values()) + 0.4


@pytest.mark.slow
def test_a_profile_is_of_the_seed() -> None:
    pool = total(paper_pool(1))
    judge, _ = constants("local", "same", 4)
    assert simulated_runs(judge, pool, 1) == simulated_runs(judge, pool, 1)
    assert simulated_runs(judge, pool, 1) != simulated_runs(judge, pool, 2)


def test_identity_and_plans() -> None:
    short = COSPERF.of(policy="mos-pp", minutes=84)
    assert planned_s(short) < planned_s(COSPERF.of(policy="mos-pp"))
    assert "20 % off" in COSPERF.of(policy="mos-pp", model_error=0.2).label()
