"""Cells of MOS: parameters, load and division of the pool; COSPerf; profiles from measured runs."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.session import typed_cells
from campaigns.papers.mos.cell import (
    COURSES,
    Steps,
    divided,
    division_of,
    layers,
    length_s,
    loads_of,
    measured,
)
from campaigns.papers.mos.kind import own
from campaigns.papers.mos.profile import points as points_module
from campaigns.papers.mos.profile.document import cross_validated, points_of
from campaigns.papers.mos.profile.fit import cospurf_rate, fit
from campaigns.papers.mos.profile.points import (
    MeasuredPoint,
    from_run_folders,
    keep,
    reference,
    references,
)
from campaigns.papers.mos.profile.simulator import (
    FITTED,
    NOISE,
    calibrated,
    configurations,
    predict,
    relative_error,
    simulated_runs,
)
from campaigns.papers.mos.simulated import (
    SERIES_FILE,
    constants,
    errors,
    made_wrong,
    make,
    policy_parameters,
    profiled,
)
from campaigns.papers.mos.swift import LARGE, MEGABIT, SMALL, MicrostorePool
from controllers.journal import read_journal
from controllers.microstores.performance import CURVES, PiecewiseLinear
from schemas.campaign import MosCampaign
from schemas.cells.mos import COSPERF, MOS
from schemas.errors import UserError
from testbed.simulated.cosperf.machines import Constants, paper_pool, total
from testbed.simulated.cosperf.stages import paper_stages
from testbed.simulated.cosperf.store import SimulatedMicrostores
from tests.campaigns.tiny_kinds import job
from tests.errors import raises

HALF_HOUR, QUICK_S = 1800, 200


@pytest.mark.parametrize("name", ["mos-quick", "mos-local"])
def test_campaigns_divide_a_pool_that_suffices(name: str) -> None:
    file, pool = find_campaign(name), MicrostorePool()
    campaign = load_campaign(file)
    assert isinstance(campaign, MosCampaign)
    for cells in typed_cells(campaign, file).values():
        for cell in cells:
            divided(cell, pool, "mos")


def workers_at(steps: Steps, minute: float) -> int:
    return next(count for at, count in reversed(steps) if at <= minute)


steps_of_load = st.lists(st.integers(0, 12), min_size=1, max_size=12).map(
    lambda counts: [(float(3 * at), count) for at, count in enumerate(counts)]
)


@settings(max_examples=40)
@given(steps=steps_of_load.filter(lambda steps: any(count for _, count in steps)))
def test_layers_are_as_many_workers_as_steps_say(steps: list[tuple[float, int]]) -> None:
    ends = steps[-1][0] + 3
    found = layers(steps, ends)
    for minute in [at + 0.5 for at, _ in steps]:
        there = sum(workers for begin, end, workers in found if begin <= minute < end)
        assert there == workers_at(steps, minute)
    assert all(begin < end <= ends for begin, end, _ in found)
    assert len({(begin, end) for begin, end, _ in found}) == len(found)


@pytest.mark.parametrize("name", list(COURSES))
def test_courses_are_section_8_1_s(name: str) -> None:
    course = COURSES[name]
    small, large = (course.steps[letter] for letter in "AC")
    first, second, third = course.stages
    assert first == 0
    assert workers_at(large, 0) > workers_at(small, 0)  # stage 1: large objects dominate
    assert workers_at(small, second) > 4 * workers_at(small, second - 1)  # A spikes
    between = [count for at, count in small if second <= at < third]
    assert all(b < a for a, b in pairwise(between))  # then A gradually shifts down
    rising = [count for at, count in large if second <= at < third]
    assert all(b > a for a, b in pairwise(rising))  # while C slowly increases
    assert rising[0] < workers_at(large, second - 1)
    assert workers_at(small, third) == max(count for _, count in small)
    assert workers_at(large, third) * 2 == workers_at(large, third - 1)
    spike_ends = next(at for at, _ in small if at > second)
    assert spike_ends - second >= 3 * 3  # epochs of three minutes
    if name == "paper":
        assert course.stages == (0, 40, 230)


def test_loads_of_cells() -> None:
    four = loads_of(MOS.of(experiment="setups", small_workers=6, large_workers=3))
    assert [(one.letter, one.workers) for one in four] == [("A", 6), ("B", 6), ("C", 3), ("D", 3)]
    assert [one.mix for one in four] == [(90, 5, 5), (5, 90, 5)] * 2
    assert [one.objects.most for one in four] == [128_000] * 2 + [16_000_000] * 2
    load = MOS.of(experiment="load", setup="mos-pp", settle_epochs=2, epoch_s=10)
    assert {one.rampup_s for one in loads_of(load)} == {22.0}
    assert measured(load) == (22.0, 34.0)
    assert measured(load.model_copy(update={"setup": "static"})) == measured(load)
    sizes = MOS.of(experiment="sizes", object_kb=16_000)
    (one,) = loads_of(sizes)
    assert (one.objects.least, one.objects.most, one.mix) == (16_000_000, 16_000_000, (100, 0, 0))
    assert one.objects.containers * one.objects.each == 4
    course = MOS.of(experiment="adaptation", setup="mos-pp")
    assert length_s(course) == 42 * 4
    assert measured(course) == (0.0, 168.0)


# Division of the pool.

POOL = MicrostorePool()


def test_static_is_section_8_1_s() -> None:
    found = division_of(MOS.of(experiment="load", setup="static"), POOL)
    small, large = found.shares[SMALL], found.shares[LARGE]
    assert (small.proxy_cores, large.proxy_cores) == (0.6, 0.2)
    assert (small.storage_cores, large.storage_cores) == (0.6, 0.2)
    assert small.network == pytest.approx(120 * MEGABIT)
    assert large.network == pytest.approx(280 * MEGABIT)
    for setup in ("mos", "mos-pp"):
        assert division_of(MOS.of(experiment="load", setup=setup), POOL) == found
    default = division_of(MOS.of(experiment="adaptation", setup="default"), POOL)
    assert default.layout == "default"
    assert default.shares[SMALL] == default.shares[LARGE]


def test_section_1_s_proxies_change_hands() -> None:
    found = {
        setup: division_of(MOS.of(experiment="setups", setup=setup), POOL)
        for setup in ("default", "favors-small", "favors-large")
    }
    small, large = found["favors-small"].shares, found["favors-large"].shares
    assert small[SMALL] == large[LARGE]
    assert small[LARGE] == large[SMALL]
    # 32 cores behind 1 Gbit/s, 8 cores behind 10 Gbit/s.
    assert small[SMALL].network == 10 * small[LARGE].network
    assert small[SMALL].proxy_cores < small[LARGE].proxy_cores
    assert set(found["default"].shares.values()) == set(small.values())
    assert [one.layout for one in found.values()] == ["default", "static", "static"]
    assert len({one.storage_cores for one in small.values()}) == 1


# ---- COSPerf (section 8.2) ----

SHORT = {"minutes": 84, "epoch_s": 60}


def _make(folder: Path, **parameters: object) -> dict[str, float]:
    folder.mkdir()
    typed = COSPERF.check(SHORT | parameters, "here")
    make(job(typed.model_dump(mode="json")), folder)
    extra: dict[str, float] = json.loads((folder / "summary.json").read_text())["extra"]
    return extra


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mos", "mos-at-once", "mos-pp", "mos-pp-learning"])
def test_the_real_loop_drives_it(policy: str, tmp_path: Path) -> None:
    extra = _make(tmp_path / "cell", policy=policy)
    journal = read_journal(tmp_path / "cell" / "journal.jsonl")
    assert journal.header["policy"] == policy
    assert len(journal.steps) == 83  # the first epoch passes before the first decision
    assert not any(step["error"] for step in journal.steps)
    assert sum(bool(step["actions"]) for step in journal.steps) > 10
    assert ("cospurf_error_A" in extra) == (policy.startswith("mos-pp"))
    # Both policies serve more than their initial quarter of the pool could.
    series = json.loads((tmp_path / "cell" / SERIES_FILE).read_text())
    assert extra["A_stage_4_requests_s"] > 3 * series["tenants"]["A"]["requests_s"][0]


@pytest.mark.slow
def test_learning_can_be_switched_off() -> None:
    hosts = paper_pool(1)
    judge, _ = constants("local", "same", 4)
    store = SimulatedMicrostores(hosts, paper_stages(1), constants=judge)
    cospurf = PiecewiseLinear({}, "")
    report = {
        learns: policy_parameters(
            store, COSPERF.of(policy="mos-pp-learning", learns=learns), cospurf
        )
        for learns in (True, False)
    }
    assert "learn" not in report[True]
    assert report[False]["learn"] == 0
    assert set(report[True]["tenants"]) == set("ABCD")
    assert policy_parameters(store, COSPERF.of(policy="mos"), cospurf) == {}


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
    assert simulated_runs(judge, pool, 1) == simulated_runs(judge, pool, 1)
    assert simulated_runs(judge, pool, 1) != simulated_runs(judge, pool, 2)
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


# ---- Profiles: cospurf (equation 3) and COSPerf's constants ----

TRUTH = Constants(
    proxy_request_s=0.012,
    proxy_byte_s=2.5e-9,
    storage_request_s=0.008,
    storage_byte_s=4e-9,
    network_efficiency=0.7,
)
FIFTY = total(paper_pool(1))


def _noisy(points: list[MeasuredPoint], seed: int, noise: float) -> list[MeasuredPoint]:
    rng = np.random.default_rng(seed)
    rates = predict(points, TRUTH) * np.exp(rng.normal(0, noise, len(points)))
    return [
        point.model_copy(update={"requests_s": float(rate)})
        for point, rate in zip(points, rates, strict=True)
    ]


def _asked(seed: int, mixes: int = 8) -> list[MeasuredPoint]:
    rng = random.Random(seed)
    return [
        point
        for letter in "ABCD"
        for point in configurations(letter, FIFTY, rng, alone=(0.05, 0.3), mixes=mixes)
    ]


@pytest.mark.slow
def test_the_simulators_constants_are_recovered_within_the_noise() -> None:
    found = calibrated(_noisy(_asked(1), 1, noise=0.03), TRUTH.replicas)
    for name in FITTED:
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.08), name


def test_cospurf_predicts_configurations_that_it_has_not_seen() -> None:
    model = fit(simulated_runs(TRUTH, FIFTY, seed=3), FIFTY, "synthetic")
    asked = [point for point in _asked(4) if len(point.limited_by) > 1 and not point.workers]
    errors = [
        relative_error(cospurf_rate(model, point), float(rate))
        for point, rate in zip(asked, predict(asked, TRUTH), strict=True)
    ]
    assert len(errors) == 32
    assert PiecewiseLinear.from_json(json.loads(json.dumps(model.to_json()))) == model
    assert model.tables["A"].capacity(FIFTY) > model.tables["C"].capacity(FIFTY)
    assert np.median(errors) < 3 * NOISE
    assert np.quantile(errors, 0.9) < 0.25


def test_errors_are_of_configurations_that_were_held_out() -> None:
    """The model fits only its training data."""
    points = _noisy(_asked(5, mixes=4), 5, noise=0.0)
    doubled = [*points, *points]
    seen: list[tuple[object, ...]] = []

    def by_heart(fitted: object, held_out: object) -> list[float]:
        known = {point.configuration for point in fitted}  # type: ignore[attr-defined]
        for point in held_out:  # type: ignore[attr-defined]
            assert point.configuration not in known
            seen.append(point.configuration)
        return [2 * point.rate for point in held_out]  # type: ignore[attr-defined]

    errors = cross_validated(doubled, by_heart)
    assert len(seen) == len(doubled)
    assert [one["workload"] for one in errors] == list("ABCD")
    assert relative_error(2.0, 1.0) == relative_error(1.0, 2.0) == pytest.approx(1.0)
    for one in errors:
        assert [one["median"], *one["ci95"]] == pytest.approx([1.0] * 3)
        assert one["configurations"] == len(points) / 4


def _run(folder: Path, name: str, parameters: dict[str, object], **extra: float) -> None:
    attempt = folder / name / "attempt-1"
    attempt.mkdir(parents=True)
    run = {"status": "done", "run_id": name, "campaign": "mos-local", "parameters": parameters}
    (attempt / "run.json").write_text(json.dumps(run))
    (attempt / "summary.json").write_text(json.dumps({"extra": extra}))


PROXY = {
    "experiment": "proxy",
    "workload": "C",
    "workers": 8,
    "proxies": 2,
    "proxy_cores": 0.3,
    "storage_cores": 0.4,
    "network_mbit": 100,
    "large_mb": 16,
    "ssds": 3,
    "hdds": 0,
}


def test_points_are_read_from_run_folders(tmp_path: Path) -> None:
    _run(tmp_path, "a", PROXY, C_qps=4.0, C_mb_s=30.0, C_mean_s=2.0, storage_servers=2)
    _run(tmp_path, "b", {"experiment": "load", "setup": "mos"}, A_qps=5.0)
    _run(
        tmp_path,
        "c",
        PROXY | {"experiment": "sizes", "object_kb": 64},
        A_qps=100.0,
        storage_servers=2,
    )
    _run(tmp_path, "d", PROXY | {"experiment": "disks", "ssds": 1, "hdds": 2}, C_qps=3.0)
    points = from_run_folders(tmp_path)
    assert [point.workload for point in points.runs] == ["C", "A", "C"]
    first, sizes, disks = points.runs
    assert first.proxy_cores == pytest.approx(0.6)
    assert first.storage_cores == pytest.approx(0.8)
    assert first.network == pytest.approx(25e6)
    assert first.limited_by == ("proxy_cores", "storage_cores", "network")
    assert (first.rate, first.latency_s, first.workers) == (4.0, 2.0, 8)
    assert sizes.objects.mean_bytes == 64_000
    assert sizes.objects.read == 1
    assert (disks.ssds, disks.hdds) == (1, 2)


def test_sources_without_runs_are_refused(tmp_path: Path) -> None:
    with raises(UserError, "no finished run", where=str(tmp_path), allowed="proxy"):
        points_of(str(tmp_path))
    with raises(UserError, where="nowhere", allowed="local, paper"):
        points_of("nowhere")
    _run(tmp_path, "a", PROXY, C_qps=4.0)
    with raises(UserError, allowed="at least 4"):
        points_of(str(tmp_path))
    point = {"workload": "A", "requests_s": 5, "source": "x", "proxy_cores": 1}
    bad = tmp_path / "points.json"
    for run in ({}, point | {"requests_s": float("inf")}, point | {"ssds": 0, "hdds": 0}):
        bad.write_text(json.dumps({"name": "x", "about": "y", "replicas": 2, "runs": [run]}))
        with raises(UserError, where="points.json"):
            points_of(str(bad))


def test_kept_points_are_a_profile_of_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = reference("local")
    monkeypatch.setattr(points_module, "FILES", tmp_path)
    cell = {"experiment": "load", "setup": "mos-pp", "profile": "mine"}
    with raises(UserError, "no profile 'mine'", allowed="none", do="--keep NAME"):
        own(MOS.of(**cell))
    path = keep(local, "mine")
    assert reference("mine") == local.model_copy(update={"name": "mine"})
    assert references() == ("mine",)
    assert own(MOS.of(**cell))
    before = path.read_bytes()
    with raises(UserError, "is there already"):
        keep(local, "mine")
    assert path.read_bytes() == before
    for name in ("", "../mine", "Mine", "a" * 41, "mine.json"):
        with raises(UserError, where="--keep", allowed="a-z, 0-9 and -"):
            keep(local, name)
    assert references() == ("mine",)
