"""`hotbed mos profile`: from measured runs to cospurf and COSPerf's constants."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from campaigns.papers.mos.kind import own
from campaigns.papers.mos.profile import points as points_module
from campaigns.papers.mos.profile.calibrate import FITTED, calibrated, predict, relative_error
from campaigns.papers.mos.profile.check import cospurf_rate, cross_validated, most_of
from campaigns.papers.mos.profile.document import document, measured, write
from campaigns.papers.mos.profile.fit import concave, fit
from campaigns.papers.mos.profile.grid import NOISE, configurations, simulated_runs
from campaigns.papers.mos.profile.points import (
    Point,
    Points,
    from_run_folders,
    halves,
    keep,
    reference,
    references,
)
from controllers.microstores.performance import PiecewiseLinear
from schemas.cells.mos import MOS
from schemas.errors import UserError
from testbed.simulated.cosperf.constants import Constants
from testbed.simulated.cosperf.machines import paper_pool, total

TRUTH = Constants(
    proxy_request_s=0.012,
    proxy_byte_s=2.5e-9,
    storage_request_s=0.008,
    storage_byte_s=4e-9,
    network_efficiency=0.7,
)
POOL = total(paper_pool(1))


def _noisy(points: list[Point], seed: int, noise: float) -> list[Point]:
    rng = np.random.default_rng(seed)
    rates = predict(points, TRUTH) * np.exp(rng.normal(0, noise, len(points)))
    return [
        point.model_copy(update={"requests_s": float(rate)})
        for point, rate in zip(points, rates, strict=True)
    ]


def _asked(seed: int, mixes: int = 8) -> list[Point]:
    rng = random.Random(seed)
    return [
        point
        for letter in "ABCD"
        for point in configurations(letter, POOL, rng, alone=(0.05, 0.3), mixes=mixes)
    ]


@pytest.mark.slow
def test_the_simulators_constants_are_recovered_within_the_noise() -> None:
    found = calibrated(_noisy(_asked(1), 1, noise=0.03), TRUTH.replicas)
    for name in FITTED:
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.08), name


def test_a_curve_is_concave_rises_and_is_recovered() -> None:
    rng = np.random.default_rng(2)
    amounts = np.repeat(np.linspace(1, 40, 14), 4)
    truth = np.minimum(10 * amounts, 100 + 4 * amounts)
    curve = concave(amounts, truth * np.exp(rng.normal(0, 0.03, len(truth))), 60.0)
    assert curve.concave
    assert len(curve.points) <= 5
    for amount in (5, 15, 30, 40):
        assert curve.value(amount) == pytest.approx(min(10 * amount, 100 + 4 * amount), rel=0.08)


def test_a_saturated_run_does_not_tell_what_an_idle_store_takes() -> None:
    """Eight workers behind a slow link wait for each other; a single worker waits for nobody."""
    slow = Point(workload="C", network=25e6, workers=8, bytes_s=20e6, source="link")
    quick = Point(workload="C", proxy_cores=0.5, bytes_s=200e6, source="cores")
    most = most_of([slow, quick])
    found = fit([slow, quick], most, "").tables["C"]
    # 400 MB/s per core is the core's time for an object.
    assert found.idle_s == pytest.approx(quick.objects.payload / 400e6)
    assert found.predict(most, 4).bytes_s > 0.9 * 20e6
    alone = Point(workload="C", workers=1, latency_s=0.3, requests_s=3.0, source="alone")
    assert fit([slow, quick, alone], most, "").tables["C"].idle_s == 0.3


def test_cospurf_predicts_configurations_that_it_has_not_seen() -> None:
    model = fit(simulated_runs(TRUTH, POOL, seed=3), POOL, "synthetic")
    asked = [point for point in _asked(4) if len(point.limited_by) > 1 and not point.workers]
    errors = [
        relative_error(cospurf_rate(model, point), float(rate))
        for point, rate in zip(asked, predict(asked, TRUTH), strict=True)
    ]
    assert len(errors) == 32
    assert np.median(errors) < 3 * NOISE
    assert np.quantile(errors, 0.9) < 0.25


def test_a_cospurf_is_one_that_the_controller_reads() -> None:
    model = fit(simulated_runs(TRUTH, POOL, seed=3), POOL, "synthetic")
    assert PiecewiseLinear.from_json(json.loads(json.dumps(model.to_json()))) == model
    assert model.tables["A"].capacity(POOL) > model.tables["C"].capacity(POOL)


@pytest.mark.parametrize("name", references())
@pytest.mark.parametrize("seed", [0, 1])
def test_halves_are_disjoint_and_repetitions_stay_together(name: str, seed: int) -> None:
    points = reference(name)
    first, second = halves(points.runs, seed)
    assert len(first) + len(second) == len(points.runs)
    assert not {p.configuration for p in first} & {p.configuration for p in second}
    assert abs(len(first) - len(second)) <= 3
    for half in (first, second):
        assert {point.workload for point in half} == {"A", "C"}
    if seed:
        assert halves(points.runs, 0) == (second, first)


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
    assert [one.workload for one in errors] == list("ABCD")
    for one in errors:
        assert one.median == one.low == one.high == pytest.approx(1.0)
        assert one.configurations == len(points) / 4


def test_an_error_is_the_same_up_and_down() -> None:
    assert relative_error(2.0, 1.0) == pytest.approx(1.0)
    assert relative_error(1.0, 2.0) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_document_has_everything(tmp_path: Path) -> None:
    points = Points(
        name="synthetic", about="made", replicas=3, runs=tuple(_noisy(_asked(6, 4), 6, 0.02))
    )
    made = document(points, seed=0)
    assert set(made["errors"]) == {"cospurf", "simulator"}
    assert not set(made["runs"]["cospurf"]) - {"simulated profile"}
    path = tmp_path / "profile.json"
    write(made, path)
    read = json.loads(path.read_text())
    assert PiecewiseLinear.from_json(read) == fit(points.runs, most_of(points.runs), made["source"])
    Constants.model_validate(read["simulator"])
    with pytest.raises(UserError, match="not overwritten"):
        write(made, path)


# --- runs on disk -------------------------------------------------------------------------------


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


def test_nothing_to_profile_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        measured(str(tmp_path))
    with pytest.raises(UserError, match="local, paper"):
        measured("nowhere")
    _run(tmp_path, "a", PROXY, C_qps=4.0)
    with pytest.raises(UserError, match="at least 4"):
        measured(str(tmp_path))
    point = {"workload": "A", "requests_s": 5, "source": "x", "proxy_cores": 1}
    bad = tmp_path / "points.json"
    for run in ({}, point | {"requests_s": float("inf")}, point | {"ssds": 0, "hdds": 0}):
        bad.write_text(json.dumps({"name": "x", "about": "y", "replicas": 2, "runs": [run]}))
        with pytest.raises(UserError, match=r"points\.json"):
            measured(str(bad))


def test_a_workload_of_one_configuration_has_no_errors() -> None:
    """The only configuration cannot be held out: the model would have no data."""
    points = [Point(workload="A", requests_s=5 * n, source="x", proxy_cores=n) for n in (1, 2, 3)]
    alone = Point(workload="C", requests_s=2, source="x", proxy_cores=1)

    def predictions(fitted: Sequence[Point], held_out: Sequence[Point]) -> list[float]:
        assert held_out
        return [point.rate for point in held_out]

    found = cross_validated([*points, alone], predictions)
    assert [(one.workload, one.configurations) for one in found] == [("A", 3)]


def test_kept_points_are_a_profile_of_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = reference("local")
    monkeypatch.setattr(points_module, "FILES", tmp_path)
    cell = {"experiment": "load", "setup": "mos-pp", "profile": "mine"}
    with pytest.raises(UserError, match="there is no profile 'mine': there are none"):
        own(MOS.of(**cell))
    path = keep(local, "mine")
    assert reference("mine") == local.model_copy(update={"name": "mine"})
    assert references() == ("mine",)
    assert own(MOS.of(**cell))
    before = path.read_bytes()
    with pytest.raises(UserError, match="--keep mine: there is a profile of this name"):
        keep(local, "mine")
    assert path.read_bytes() == before
    for name in ("", "../mine", "Mine", "a" * 41, "mine.json"):
        with pytest.raises(UserError, match="small letters, digits and - only"):
            keep(local, name)
    assert references() == ("mine",)
    with pytest.raises(UserError, match="profile belongs to experiment load, adaptation: leave"):
        MOS.of(experiment="proxy", profile="mine")


def test_runs_that_lack_several_things_at_once_are_fitted_together() -> None:
    """With one limit blamed per run, a fifth of the measured rates was predicted."""
    runs = reference("testbed").runs
    model = fit(runs, most_of(runs), "testbed")
    for letter in "AC":
        errors = [
            relative_error(cospurf_rate(model, point), point.rate)
            for point in runs
            if point.workload == letter
        ]
        assert np.median(errors) < 0.25
    # Twice the proxies, twice the requests: no curve ends at a slow measured minute.
    proxies = model.tables["A"].proxy_cores
    assert proxies.value(0.6) == pytest.approx(2 * proxies.value(0.3), rel=0.1)
