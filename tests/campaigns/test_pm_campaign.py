"""PriorityMeister's experiments: allowed cells, the rule of SLOs, counted requests."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pm_grounds import FakeGround, result_of
from tiny_kinds import job

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.kind import Prepared
from campaigns.engine.session import Request, prepare, typed_cells
from campaigns.papers.prioritymeister import rule
from campaigns.papers.prioritymeister.alone import Alone
from campaigns.papers.prioritymeister.cell import Maker, bound_holds
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.mixes import Mix, build, labels_of
from campaigns.papers.prioritymeister.outcome import histogram
from campaigns.papers.prioritymeister.real_traces import window
from campaigns.validate import figures_of
from controllers.prioritymeister.estimators import Costs, SizeProfile
from schemas.campaign import ReplayCampaign
from schemas.cells.prioritymeister import PM
from schemas.errors import UserError
from schemas.run import Run, Summary
from workloads.traces import standins
from workloads.traces.arrivals import scv
from workloads.traces.requests import RequestBlock, save

FILES = ("pm-quick", "pm-full", "pm-local", "pm-why")
FIGURES = {"1", "4", "5", "6", "7", "8", "9", "10", "11", "table2"}
SHORT = {"seconds": 12.0, "slo_percentile": 99.0}


@pytest.mark.parametrize("name", FILES)
def test_the_campaigns_files_are_right(name: str) -> None:
    file = find_campaign(name)
    campaign = load_campaign(file)
    assert isinstance(campaign, ReplayCampaign)
    cells = typed_cells(campaign, file)
    assert all(cells.values())
    some = {"pm-local": {"1", "5", "6", "7", "8", "9"}, "pm-why": {"7", "9", "10", "11"}}
    assert some.get(name, FIGURES) <= set(figures_of(campaign))


def test_every_policy_has_the_same_blocks() -> None:
    file = find_campaign("pm-quick")
    campaign = load_campaign(file)
    cells = typed_cells(campaign, file)
    policies = {parameters.policy for parameters in cells["disk"]}
    assert policies == {"pm", "ps", "cake", "edf", "byslo", "mclock", "none"}
    assert len({parameters.contents() for parameters in cells["disk"]}) == 1


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"scenario": "disk", "wrong": 1}, "unknown parameter 'wrong'"),
        ({"scenario": "disc"}, "scenario: 'disc' is not allowed; allowed: disk, burst"),
        ({"policy": "pm"}, "scenario is missing"),
        (
            {"scenario": "disk", "policy": "ps", "mode": "best-effort"},
            "mode belongs to policy pm",
        ),
        ({"scenario": "disk", "burst": "F"}, "burst belongs to scenario burst: leave"),
        ({"scenario": "burst"}, "burst is missing; allowed: B, D"),
        ({"scenario": "disk", "permutation": "122"}, "permutation holds each of"),
        ({"scenario": "disk", "k": True}, "k: True is not allowed; allowed: a number above 0"),
        ({"scenario": "disk", "k": 0}, "allowed: a number above 0"),
        ({"scenario": "table2"}, "the scenario table2 and the policy inputs"),
        ({"scenario": "burst", "burst": "F", "cake_upper": 2}, "cake_upper belongs to policy cake"),
        ({"scenario": "network", "misbehaves": True}, "belongs to scenario misbehave, buckets"),
        ({"scenario": "disk", "limiters": "fast"}, "limiters belongs to scenario buckets"),
        (
            {"scenario": "disk", "policy": "edf", "blocking": True},
            "belongs to policy pm, mclock",
        ),
        ({"scenario": "burst", "burst": "H", "sharpness": 3}, "sharpness is of sharp gaps"),
        ({"scenario": "network", "copy_kib": 64}, "copy_kib belongs to scenario disk, burst"),
        ({"scenario": "burst", "burst": "F", "network_share": 0.5}, "belongs to scenario disk"),
    ],
)
def test_wrong_cells_are_refused_in_one_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=r"^here: .*\.$") as error:
        PM.check(values, "here")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_name_what_is_not_usual() -> None:
    cell = PM.check({"scenario": "disk", "policy": "cake", "cake_upper": 2, "seconds": 60}, "here")
    assert cell.label() == "disk cake k=2 seconds=60 cake_upper=2"
    assert PM.check(cell.model_dump(mode="json"), "again") == cell


def test_a_local_campaign_needs_a_spec(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    body: dict[str, Any] = {
        "name": "mine",
        "paper": "prioritymeister",
        "system": "prioritymeister",
        "profile": "quick",
        "ground": "local",
        "grids": [{"name": "a", "figures": ["5"], "vary": {"policy": ["pm"]}}],
    }
    file.write_text(yaml.safe_dump(body))
    with pytest.raises(UserError, match=r"spec is missing"):
        load_campaign(file)


# The rule.

ALONE = {"A": 0.01, "B": 0.02, "C": 0.1, "F": 0.03}


def test_slos_are_k_times_what_each_has_alone() -> None:
    cell = PM.check({"scenario": "disk", "k": 3}, "here")
    assert rule.slos(cell, ALONE) == pytest.approx({"A": 0.03, "B": 0.06, "C": 0.3})
    assert [name for name, _ in rule.measured_alone(cell)] == ["A", "B", "C"]


def test_burstier_traces_have_the_slo_of_the_least_bursty_one() -> None:
    cell = PM.check({"scenario": "burst", "burst": "H", "k": 2}, "here")
    ((name, where),) = rule.measured_alone(cell)
    assert (name, where.burst) == ("F", "F")
    assert rule.slos(cell, ALONE) == pytest.approx({"H": 0.06})
    own = PM.check({"scenario": "burst", "burst": "B", "k": 2}, "here")
    assert rule.slos(own, ALONE) == pytest.approx({"B": 0.04})


@settings(max_examples=12)
@given(st.permutations("124"))
def test_permutations_give_three_numbers_to_three_workloads(order: list[str]) -> None:
    cell = PM.check({"scenario": "disk", "k": 1.25, "permutation": "".join(order)}, "here")
    found = rule.slos(cell, ALONE)
    assert sorted(found.values()) == pytest.approx([0.125, 0.25, 0.5])
    assert found["A"] == pytest.approx(0.125 * int(order[0]))


def test_tenants_have_slos_up_to_eight_times_as_loose() -> None:
    cell = PM.check({"scenario": "levels", "k": 1}, "here")
    found = rule.slos(cell, dict.fromkeys(labels_of(cell), 0.01))
    assert found["V1"] == pytest.approx(0.01)
    assert found["V12"] == pytest.approx(0.08)


# Counted requests.


def test_percentiles_are_told_with_ten_requests_beyond() -> None:
    some = result_of(np.linspace(0.001, 1.0, 9_990), None)
    assert some.percentile(99.9) is None
    assert some.percentile(99) == pytest.approx(0.99, rel=2e-3)
    enough = result_of(np.linspace(0.001, 1.0, 10_000), 0.5)
    assert enough.percentile(99.9) == pytest.approx(0.999, rel=2e-3)
    assert enough.within == pytest.approx(0.5, abs=1e-3)


def test_requests_without_an_answer_are_longer_than_anything() -> None:
    answered = result_of(np.linspace(0.001, 0.1, 970), 0.2)
    hung = replace(answered, requests=1000, unfinished=30, misses=30)
    assert hung.percentile(95) == pytest.approx(0.1, rel=0.05)
    assert math.isinf(hung.percentile(98) or 0)
    assert hung.within == pytest.approx(0.97)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50))
def test_histograms_keep_counts_and_three_digits(latencies: list[int]) -> None:
    low, high, count = histogram(np.array(latencies, np.int64))
    assert count.sum() == len(latencies)
    assert (low <= high).all()
    assert (np.diff(low) > 0).all()
    assert high[-1] == max(latencies)
    assert ((high - low) <= np.maximum(1, high // 1000)).all()


# Traces.


@pytest.mark.slow
def test_sharp_bursts_have_the_same_variability_and_more_intensity() -> None:
    sharp = np.diff(standins.sharp(100.0, 20.0, 200_000, 1))
    balanced = np.diff(standins.balanced(100.0, 20.0, 200_000, 1))
    assert scv(sharp) == pytest.approx(20, rel=0.15)
    assert scv(balanced) == pytest.approx(20, rel=0.01)
    assert np.median(sharp) < 0.3 * np.median(balanced)
    assert 1 / sharp.mean() == pytest.approx(100, rel=0.1)
    milder = np.diff(standins.sharp(100.0, 20.0, 200_000, 1, sharpness=3))
    assert scv(milder) == pytest.approx(20, rel=0.15)
    assert np.median(sharp) < 0.5 * np.median(milder) < 0.5 * np.median(balanced)


def test_real_traces_are_played_until_they_load_the_device(tmp_path: Path) -> None:
    times = np.cumsum(np.full(1000, 10_000_000))  # ten seconds
    whole = RequestBlock(
        times, np.full(1000, 65536), np.full(1000, True), np.full(1000, -1, np.int64)
    )
    save([whole], tmp_path / "A.csv.gz")
    rates = np.array([1e8])
    costs = Costs(SizeProfile(np.array([4096.0]), rates, rates))
    found = window(tmp_path, "A", costs, load=0.5, seconds=60, seed=3)
    assert found is not None
    assert (np.diff(found.time_ns) >= 0).all()
    assert 0 <= found.time_ns[0] <= found.time_ns[-1] < 60e9
    assert len(found) * 65536 / 1e8 / 60 == pytest.approx(0.5, rel=0.01)
    assert window(tmp_path, "B", costs, load=0.5, seconds=60, seed=3) is None
    with pytest.raises(UserError, match="no folder of traces"):
        window(tmp_path / "none", "A", costs, load=0.5, seconds=60, seed=3)


# Whole cells, on a ground that answers at once.


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Mix:
    cell = PM.check({"scenario": "disk", **SHORT}, "here")
    return build(cell, 5, Machines(), tmp_path_factory.mktemp("mix"))


@pytest.mark.slow
def test_an_experiment_is_planned_for_what_is_announced(disk: Mix) -> None:
    cell = PM.check({"scenario": "disk", **SHORT}, "here")
    made = rule.experiment(cell, disk, ALONE, Machines(), 5)
    assert made.plan is not None
    assert {w.name for w in made.plan.workloads} == {"A", "B", "C", "L"}
    assert made.replays["L"].closed == cell.copy_in_flight
    alone = {
        policy: rule.alone_experiment(
            PM.check({"scenario": "disk", "policy": policy, "k": k, **SHORT}, "here"),
            disk,
            Machines(),
            5,
            "A",
        ).digest()
        for policy, k in (("pm", 2), ("cake", 3), ("none", 1))
    }
    assert len(set(alone.values())) == 1
    assert set(rule.alone_experiment(cell, disk, Machines(), 5, "A").replays) == {"A"}
    other = rule.alone_experiment(cell, disk, Machines(), 5, "B").digest()
    assert other not in alone.values()


@pytest.mark.slow
def test_a_bound_is_proven_of_who_keeps_to_its_trace(disk: Mix) -> None:
    cell = PM.check({"scenario": "disk", **SHORT}, "here")
    assert [bound_holds(cell, disk, name) for name in "ABCL"] == [True, True, True, False]
    rough = cell.model_copy(update={"estimator": "constant"})
    assert not bound_holds(rough, disk, "A")
    best = cell.model_copy(update={"mode": "best-effort"})
    assert not bound_holds(best, disk, "A")


@pytest.fixture
def maker() -> Iterator[Maker]:
    made = Maker(FakeGround())
    yield made
    made.close()


@pytest.mark.slow
def test_a_cell_leaves_what_the_figures_need(maker: Maker, tmp_path: Path) -> None:
    run = maker.make(job({"scenario": "disk", "policy": "pm", "k": 2, **SHORT}), tmp_path)
    assert run == Run.model_validate_json((tmp_path / "run.json").read_text())
    extra = Summary.model_validate_json((tmp_path / "summary.json").read_text()).extra
    assert extra["A_slo_s"] == pytest.approx(2 * extra["A_alone_s"])
    assert extra["A_within"] == 1.0
    assert extra["L_required_bytes_s"] > 0
    assert "L_slo_s" not in extra
    assert extra["bounds"] == 3
    assert extra["A_bound_ratio"] > 0
    latency = pd.read_parquet(tmp_path / "latency.parquet")
    assert set(latency["tenant"]) == {"A", "B", "C", "L"}
    samples = pd.read_parquet(tmp_path / "samples.parquet")
    assert set(samples["metric"]) == {"requests", "misses"}
    assert json.loads((tmp_path / "plan.json").read_text())["workloads"]
    assert (tmp_path / "logs" / "note.txt").read_text() == "made up\n"


@pytest.mark.slow
def test_figure_4_has_the_order_and_the_bucket_that_it_names(maker: Maker, tmp_path: Path) -> None:
    cell = {"scenario": "buckets", "limiters": "slow", "misbehaves": True, **SHORT}
    maker.make(job(cell), tmp_path)
    extra = Summary.model_validate_json((tmp_path / "summary.json").read_text()).extra
    assert [extra[f"{name}_priority"] for name in "BAC"] == [1, 2, 3]
    assert extra["bounds"] == 0  # with one bucket there is no proof
    plan = json.loads((tmp_path / "plan.json").read_text())
    stages = {s["stage"]: s for w in plan["workloads"] if w["name"] == "B" for s in w["stages"]}
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert stages["storage"]["pairs"] == [pytest.approx(curve["slow"])]
    assert np.all(np.diff(curve["bursts"]) <= 1e-12)


@pytest.mark.slow
def test_short_traces_cannot_have_slos(tmp_path: Path) -> None:
    class Few(FakeGround):
        def carry_out(self, experiment: Any) -> Any:
            outcome = super().carry_out(experiment)
            few = {name: result_of(np.linspace(0.001, 0.1, 500), 1.0) for name in outcome.results}
            return replace(outcome, results=few)

    maker = Maker(Few())
    try:
        with pytest.raises(UserError, match=r"99\.9th percentile needs 10,000 that are answered"):
            maker.make(job({"scenario": "disk", "seconds": 12.0}), tmp_path)
    finally:
        maker.close()


@pytest.mark.slow
def test_what_workloads_have_alone_is_measured_once(disk: Mix, tmp_path: Path) -> None:
    cell = PM.check({"scenario": "disk", **SHORT}, "here")
    experiment = rule.alone_experiment(cell, disk, Machines(), 5, "A")
    ground = FakeGround()
    first = Alone(tmp_path)
    value = first.percentile(ground, experiment, 99)
    assert first.percentile(ground, experiment, 99) == value
    again = Alone(tmp_path)
    assert again.percentile(ground, experiment, 99) == value
    assert len(ground.carried) == 1
    assert again.percentile(ground, experiment, 100) == pytest.approx(0.01)
    assert len(ground.carried) == 1


# Sessions.


def prepared(**changes: Any) -> Prepared:
    file = find_campaign("pm-quick")
    return prepare(Request(str(file), **changes))


@pytest.mark.slow
def test_a_figure_is_a_part_of_the_campaign(tmp_path: Path) -> None:
    whole = prepared(artifacts=tmp_path)
    part = prepared(artifacts=tmp_path, figure="10")
    assert {cell.parameters.label() for cell in part.plan.cells} == {
        "disk pm k=2 seconds=300 estimator=constant"
    }
    assert {cell.run_id for cell in part.plan.cells} < {cell.run_id for cell in whole.plan.cells}


@pytest.mark.slow
def test_the_dry_run_tells_cells_and_time(tmp_path: Path) -> None:
    report = session.dry_run(Request("pm-quick", figure="5", artifacts=tmp_path / "none"))
    assert report.cells == len(report.pending) == 52
    assert report.pending_s > 0
    assert not (tmp_path / "none").exists()


def test_parameters_are_the_same_however_they_are_written() -> None:
    assert PM.of(scenario="disk").contents() == PM.check({"scenario": "disk"}, "x").contents()
