"""PriorityMeister's cells: parameters, the rule of SLOs, traces, counted requests, and whole cells
on a ground that answers at once and in the simulator.

Tests name the section, figure or table of the paper that they hold.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from analysis.core.load import load_campaign as load_runs
from analysis.core.report import build as build_report
from campaigns.engine import session
from campaigns.engine.campaign_file import ROOT, find_campaign, load_campaign
from campaigns.engine.dask import Workers
from campaigns.engine.display import Progress
from campaigns.engine.plan import Cell, raw_cells
from campaigns.engine.session import Request
from campaigns.papers.prioritymeister.cell import (
    AloneLatencies,
    PmCellMaker,
    bound_holds,
    require_windows,
)
from campaigns.papers.prioritymeister.experiment import (
    MeasuredRequests,
    PmExperiment,
    PmOutcome,
    alone_experiment,
    cell_experiment,
    measured_alone,
    slos,
)
from campaigns.papers.prioritymeister.mixes import (
    Mix,
    PmMachines,
    TraceMaker,
    build,
    labels_of,
    write_profiles,
)
from campaigns.papers.prioritymeister.simulate import PmSimGround
from campaigns.papers.prioritymeister.traces import REFERENCE, window
from controllers.prioritymeister.estimators import SizeProfile, StageCosts, load_profile
from schemas.cells.prioritymeister import INPUTS, PM, PmCell
from schemas.errors import UserError
from schemas.run import Run, Summary
from tests.campaigns.tiny_kinds import PM as TINY_PM
from tests.campaigns.tiny_kinds import job, written
from tests.errors import raises
from workloads.traces import standins
from workloads.traces.arrivals import scv
from workloads.traces.reader import load
from workloads.traces.requests import RequestBlock, save

SHORT = {"seconds": 12.0, "slo_percentile": 99.0}
ALONE = {"A": 0.01, "B": 0.02, "C": 0.1, "F": 0.03}
MADE_UP = 20_000


def cell(scenario: str = "disk", **values: Any) -> PmCell:
    return PM.check({"scenario": scenario, **values}, "here")


def summary(folder: Path) -> dict[str, float]:
    return Summary.model_validate_json((folder / "summary.json").read_text()).extra


# Parameters and campaigns.


def test_a_local_campaign_needs_a_spec(tmp_path: Path) -> None:
    grid = {"name": "a", "figures": ["5"], "vary": {"policy": ["pm"]}}
    body = {**TINY_PM, "ground": "local", "grids": [grid]}
    with raises(UserError, "spec"):
        load_campaign(written(tmp_path, body))


# The rule of SLOs.


def test_slos_are_multiples_of_a_latency_alone() -> None:
    """Sections 6.1 and 6.2: k times the own latency alone; figure 7: one SLO for all burstinesses;
    figure 11: three numbers in six orders; section 4.7: up to eight times as loose."""
    usual = cell(k=3)
    assert slos(usual, ALONE) == pytest.approx({"A": 0.03, "B": 0.06, "C": 0.3})
    assert [name for name, _ in measured_alone(usual)] == ["A", "B", "C"]
    bursty = cell("burst", burst="H", k=2)
    ((name, where),) = measured_alone(bursty)
    assert (name, where.burst) == ("F", "F")
    assert slos(bursty, ALONE) == pytest.approx({"H": 0.06})
    assert slos(cell("burst", burst="B", k=2), ALONE) == pytest.approx({"B": 0.04})
    permuted = slos(cell(k=1.25, permutation="412"), ALONE)
    assert permuted == pytest.approx({"A": 0.5, "B": 0.125, "C": 0.25})
    tenants = cell("levels", k=1)
    loose = slos(tenants, dict.fromkeys(labels_of(tenants), 0.01))
    assert (loose["V1"], loose["V12"]) == pytest.approx((0.01, 0.08))


def test_a_cell_gives_the_slo_of_each_workload() -> None:
    """Section 5.2: each workload has its own SLO. Figure 11: three numbers in six orders."""
    given = cell(slos="A=400ms B=500ms C=300ms")
    assert measured_alone(given) == []
    assert slos(given, {}) == pytest.approx({"A": 0.4, "B": 0.5, "C": 0.3})
    permuted = cell(slos=given.slos, permutation="412")
    assert slos(permuted, {}) == pytest.approx({"A": 0.5, "B": 0.3, "C": 0.4})
    for text in ("A=400ms B=500ms", "A=400ms B=500ms C=300ms D=1ms", "A=400ms B=500ms B=300ms"):
        with raises(UserError, "A, B, C"):
            slos(cell(slos=text), {})
    for wrong in ({"slos": "A=0.4s"}, {"slos": given.slos, "k": 3}):
        with raises(UserError):
            cell(**wrong)


# Counted requests.


def made_up(latencies_s: np.ndarray, slo_s: float | None) -> MeasuredRequests:
    """Return the result of a workload with these latencies, all in the measured half."""
    each, count = np.unique(np.round(latencies_s * 1e9).astype(np.int64), return_counts=True)
    misses = None if slo_s is None else int((latencies_s > slo_s).sum())
    number, longest = len(latencies_s), float(latencies_s.max())
    return MeasuredRequests(
        requests=number,
        misses=misses,
        mean_s=float(latencies_s.mean()),
        max_s=longest,
        max_whole_s=longest,
        low_ns=each,
        high_ns=each,
        count=count,
        bytes=number << 16,
        series=((number // 2, 0), (number // 2, misses or 0)),
    )


def test_percentiles_are_reported_with_ten_requests_beyond() -> None:
    some = made_up(np.linspace(0.001, 1.0, 9_990), None)
    assert some.percentile(99.9) is None
    assert some.percentile(99) == pytest.approx(0.99, rel=2e-3)
    enough = made_up(np.linspace(0.001, 1.0, 10_000), 0.5)
    assert enough.percentile(99.9) == pytest.approx(0.999, rel=2e-3)
    assert enough.within == pytest.approx(0.5, abs=1e-3)
    answered = made_up(np.linspace(0.001, 0.1, 970), 0.2)
    hung = replace(answered, requests=1000, unfinished=30, misses=30)
    assert hung.percentile(95) == pytest.approx(0.1, rel=0.05)
    assert math.isinf(hung.percentile(98) or 0)
    assert hung.within == pytest.approx(0.97)


# Stand-ins (Table 2).


@pytest.mark.slow
def test_sharp_bursts_have_the_same_variability_and_more_intensity() -> None:
    """Figures 1 and 7."""
    sharp = np.diff(standins.sharp(100.0, 20.0, 200_000, 1))
    balanced = np.diff(standins.balanced(100.0, 20.0, 200_000, 1))
    assert scv(sharp) == pytest.approx(20, rel=0.15)
    assert scv(balanced) == pytest.approx(20, rel=0.01)
    assert np.median(sharp) < 0.3 * np.median(balanced)
    assert 1 / sharp.mean() == pytest.approx(100, rel=0.1)
    milder = np.diff(standins.sharp(100.0, 20.0, 200_000, 1, sharpness=3))
    assert scv(milder) == pytest.approx(20, rel=0.15)
    assert np.median(sharp) < 0.5 * np.median(milder) < 0.5 * np.median(balanced)


def standin(folder: Path, label: str, of: PmCell) -> RequestBlock:
    machines = PmMachines()
    write_profiles(machines, folder)
    maker = TraceMaker(of, 5, machines, folder)
    return maker.standin(maker.row(label), maker.disk).block


def disk_work(block: RequestBlock) -> np.ndarray:
    return load_profile(REFERENCE).work("storage", block)


@pytest.mark.parametrize("label", ["F", "G", "H"])
def test_bursty_stand_ins_are_random_access(label: str, tmp_path: Path) -> None:
    """Section 6.2."""
    made = {
        access: standin(tmp_path, label, cell("burst", burst=label, seconds=60.0, access=access))
        for access in ("random", "mixed")
    }
    for access, block in made.items():
        follows = block.offset[1:] == block.offset[:-1] + block.size[:-1]
        assert bool(follows.mean() > 0.5) == (access == "mixed")
        assert float(disk_work(block).sum()) / 60 == pytest.approx(0.25, rel=0.05)
    assert len(made["random"]) < len(made["mixed"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pm-quick", "pm-full", "pm-why", "pm-local", "pm-local-quick"])
def test_traces_are_long_enough_for_their_slos(name: str, tmp_path: Path) -> None:
    campaign = load_campaign(find_campaign(name))
    machines = local_machines(tmp_path) if name.startswith("pm-local") else PmMachines()
    write_profiles(machines, tmp_path)
    known: dict[tuple[str, str], int] = {}
    for raw in (one for grid in campaign.grids for one in raw_cells(campaign, grid)):
        made = PM.check(raw, name)
        if made.policy == INPUTS or made.slo_percentile == 100:
            continue
        for label, where in measured_alone(made):
            key = (label, where.contents())
            if key not in known:
                known[key] = int(rate_of(label, where, machines, tmp_path) * where.seconds / 2)
            needed = 10 / (1 - made.slo_percentile / 100)
            assert known[key] >= 0.99 * needed, f"{name}: {made.label()}: {label}"


def rate_of(label: str, where: PmCell, machines: PmMachines, folder: Path) -> float:
    """Return the requests per second of a stand-in."""
    short = where.model_copy(update={"seconds": 60.0})
    maker = TraceMaker(short, 5, machines, folder)
    row = maker.row(label)
    on_ram = row.storage_load is None
    costs = maker.ram if on_ram else maker.disk
    return len(maker.standin(row, costs, "ram" if on_ram else None).block) / 60


def size_profile(path: Path, positioning_s: float, sizes: np.ndarray) -> Path:
    """Write a disk's profile by request size: a positioning time and 150 MB/s."""
    rates = sizes / (positioning_s + sizes / 150e6)
    rows = [
        {"requestSize": size, "readBandwidth": rate, "writeBandwidth": rate}
        for size, rate in zip(sizes.tolist(), rates.tolist(), strict=True)
    ]
    path.write_text(json.dumps({"type": "storageSSD", "bandwidthTable": rows}))
    return path


def local_machines(folder: Path) -> PmMachines:
    """Return machines like testbed/specs/pm-local.yaml, with fio's profile of the disk."""
    disk = size_profile(folder / "queue-disk.json", 0.0048, 2.0 ** np.arange(9, 21))
    return PmMachines(link=200e6, other_links={"ram": 100e6}, disk=disk)


# Windows of real traces.

SLOW = StageCosts(SizeProfile(np.array([4096.0]), np.array([1e8]), np.array([1e8])))


def ten_seconds(folder: Path, slower: int = 1) -> RequestBlock:
    """Write A.csv.gz: 1,000 requests of 41 us each at random times within ten seconds, `slower`
    times as long; return the requests in ten seconds."""
    random = np.random.default_rng(5)
    times = np.sort(random.integers(0, 10**10, 1000))
    times[[0, -1]] = 0, 10**10
    made = RequestBlock(
        times, np.full(1000, 4096), random.random(1000) < 0.5, np.arange(1000) * 4096
    )
    (folder / "A.csv.gz").unlink(missing_ok=True)
    save([replace(made, time_ns=slower * times)], folder / "A.csv.gz")
    return made


def test_real_traces_are_played_until_they_load_the_device(tmp_path: Path) -> None:
    times = np.cumsum(np.full(1000, 10_000_000))  # ten seconds
    made = RequestBlock(times, np.full(1000, 65536), np.full(1000, True), np.full(1000, -1))
    save([made], tmp_path / "A.csv.gz")
    found = window(tmp_path, "A", SLOW, load=0.5, seconds=60, seed=3)
    assert found is not None
    assert (np.diff(found.time_ns) >= 0).all()
    assert 0 <= found.time_ns[0] <= found.time_ns[-1] < 60e9
    assert len(found) * 65536 / 1e8 / 60 == pytest.approx(0.5, rel=0.01)
    assert window(tmp_path, "B", SLOW, load=0.5, seconds=60, seed=3) is None
    with raises(UserError, "no folder of traces"):
        window(tmp_path / "none", "A", SLOW, load=0.5, seconds=60, seed=3)


def test_consecutive_windows_of_a_real_trace_are_all_of_it_once(tmp_path: Path) -> None:
    every = ten_seconds(tmp_path)
    at = partial(window, tmp_path, "A", SLOW, seed=3)
    windows = [at(load=None, seconds=2.5, place=k) for k in range(4)]
    assert all(one is not None and one.time_ns[-1] < 2.5e9 for one in windows)
    back = [one.time_ns + k * 2_500_000_000 for k, one in enumerate(windows) if one is not None]
    assert np.concatenate(back).tolist() == every.time_ns[:-1].tolist()
    offsets = np.concatenate([one.offset for one in windows if one is not None])
    assert offsets.tolist() == every.offset[:-1].tolist()
    with raises(UserError, "lasts 10 s", "4 windows of 2.5 s", "5 blocks", do="fewer repetitions"):
        at(load=None, seconds=2.5, place=4)
    # At half the speed there are half the requests and twice as many windows.
    own = every.size.sum() / 1e8 / 10
    last = at(load=own / 2, seconds=2.5, place=7)
    assert last is not None and 80 < len(last) < 170
    with raises(UserError, "8 windows"):
        at(load=own / 2, seconds=2.5, place=8)
    with raises(UserError, "no two requests", "1e-06 s"):
        at(load=None, seconds=1e-6, place=1)


def test_blocks_have_windows_of_real_traces_at_their_own_speed(tmp_path: Path) -> None:
    ten_seconds(tmp_path, slower=10)
    parameters = {"scenario": "disk", "seconds": 10, "traces": str(tmp_path)}
    made = PM.of(**parameters, trace_windows="consecutive", trace_load="own")
    found, folder = [], tmp_path / "mix"
    for block in (0, 1):
        folder.mkdir()
        build(made, 5, PmMachines(), folder, block=block)
        found.append(load(folder / "A.csv")[0].offset)
        shutil.rmtree(folder)
    assert found[0][0] == 0
    assert found[0][-1] + 4096 == found[1][0]
    assert made.contents() != PM.of(**parameters).contents()


def campaign_of(folder: Path, repetitions: int, **fixed: Any) -> Path:
    """Write a campaign with consecutive windows of the folder's traces as blocks."""
    every = {"scenario": "disk", "traces": str(folder), "trace_windows": "consecutive"}
    grid = {**TINY_PM["grids"][0], "repetitions": repetitions, "fixed": every | fixed}
    return written(folder, TINY_PM, grids=[grid], parameters={"seconds": 10, "slo_percentile": 50})


@pytest.mark.parametrize(("speed", "there"), [("table2", 2), ("own", 4)])
def test_more_blocks_than_windows_are_refused_before_any_runs(
    tmp_path: Path, speed: str, there: int
) -> None:
    every, disk = ten_seconds(tmp_path, slower=4), tmp_path / "disk.json"
    # The whole trace is 1.25 s of this disk. For A's 5 % share it is played in 25 s.
    rate = float(every.size.sum()) / 1.25
    rows = [{"requestSize": 4096, "readBandwidth": rate, "writeBandwidth": rate}]
    disk.write_text(json.dumps({"type": "storageSSD", "bandwidthTable": rows}))

    def asked(blocks: int) -> Request:
        file = campaign_of(tmp_path, blocks, trace_load=speed, device_profile=str(disk))
        return Request(str(file), artifacts=tmp_path / "artifacts")

    assert session.dry_run(asked(there)).cells == 4 * there
    facts = (f"{there} windows of 10 s", f"too few for {there + 1} blocks")
    for carry_out in (session.dry_run, session.run):
        with raises(UserError, *facts, where="A.csv.gz"):
            carry_out(asked(there + 1))
    assert not (tmp_path / "artifacts").exists()
    # The traces of a cluster's workers are unknown here.
    afar = Workers(scheduler="tcp://127.0.0.1:8786")
    assert session.dry_run(asked(there + 1), workers=afar).cells == 4 * (there + 1)


def test_only_windows_of_real_traces_are_checked(tmp_path: Path) -> None:
    ten_seconds(tmp_path)
    random: dict[str, Any] = {"scenario": "disk", "seconds": 10, "traces": str(tmp_path)}
    own = random | {"trace_windows": "consecutive", "trace_load": "own"}
    says = "1 windows of 10 s one after the other, too few for 3 blocks"

    def require(disk: Path | None = None, **more: Any) -> None:
        require_windows([Cell("x", PM.of(**more), 2, 5, 0, (), (), 1.0)], disk)

    require(**random)
    require(**own | {"scenario": "misbehave"})  # C and D are stand-ins
    require(**own | {"trace_load": "table2"})  # on a testbed with an unmeasured disk
    with raises(UserError, says):
        require(**own)
    (tmp_path / "A.csv.gz").rename(tmp_path / "K.csv.gz")  # on no disk
    require(PmMachines().disk, **own | {"scenario": "network"})
    (tmp_path / "K.csv.gz").rename(tmp_path / "F.csv.gz")  # H's SLO uses F's latency
    with raises(UserError, says):
        require(**own | {"scenario": "burst", "burst": "H"})
    (tmp_path / "F.csv.gz").rename(tmp_path / "I.csv.gz")
    require(**own | {"scenario": "network"})  # a testbed has no device like figure 9's
    with raises(UserError, says):
        require(PmMachines().disk, **own | {"scenario": "network"})
    with raises(UserError, "is no folder of traces"):
        require(**own | {"traces": str(tmp_path / "none")})


TRACES = ROOT.parent / "shared" / "traces" / "workloadcompactor"
LIKE = {"A": "trace0039", "B": "trace0016", "C": "trace0042"}
"""Traces with a C_A^2 like those of Table 2: 1.3, 14 and 2.2. They may not be redistributed;
docs/prioritymeister.md explains how to fetch a few."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Plan a short cell: a fresh checkout compiles the planner's loops, which takes longer than any
    test. The time limit does not count fixtures, and workers read the compiled loops from disk."""
    maker = PmCellMaker(AnsweringGround())
    parameters = {"scenario": "disk", "policy": "pm", "k": 2, **SHORT}
    maker.make(job(parameters), tmp_path_factory.mktemp("compiled"))
    maker.close()


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there")
def test_windows_of_real_traces_are_planned_and_replayed(tmp_path: Path) -> None:
    """Section 5.4; blocks are different windows of the same traces, which have no offsets."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for label, name in LIKE.items():
        (folder / f"{label}.txt.gz").symlink_to(TRACES / f"{name}.txt.gz")
    disk = size_profile(tmp_path / "disk.json", 0.008, 2.0 ** np.arange(12, 21))
    parameters = {"scenario": "disk", "policy": "pm", "seconds": 400.0, "slo_percentile": 95.0}
    parameters |= {"traces": str(folder), "device_profile": str(disk), "k": 5.0}
    found = []
    for seed in (1, 2):
        into = tmp_path / str(seed)
        into.mkdir()
        maker = PmCellMaker(PmSimGround())
        maker.make(job(parameters).model_copy(update={"seed": seed}), into)
        maker.close()
        found.append(summary(into))
    for one in found:
        assert (one["bounds"], one["bounds_broken"]) == (3, 0)
        assert all(one[f"{label}_requests"] >= 200 for label in LIKE)
        assert {one[f"{label}_priority"] for label in LIKE} <= {1.0, 2.0, 3.0, 4.0}
    assert found[0]["A_requests"] != found[1]["A_requests"]


# Whole cells, on a ground that answers at once.


class AnsweringGround:
    """Ground with made-up latencies: 1 ms to 10 ms for the first workload alone, twice as long for
    the second, and 1.5 times as long together."""

    name = "sim"
    machines = PmMachines()

    def __init__(self, requests: int = MADE_UP) -> None:
        self.requests = requests
        self.carried: list[PmExperiment] = []

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        self.carried.append(experiment)
        slower = 1.5 if len(experiment.replays) > 1 else 1.0
        results = {}
        for index, workload in enumerate(experiment.topology.workloads):
            latencies = np.linspace(0.001, 0.01 * (1 + index) * slower, self.requests)
            results[workload.name] = made_up(latencies, workload.slo.latency)
        return PmOutcome(results, extra={"utilisation": 0.5}, logs={"note.txt": "made up\n"})


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Mix:
    return build(cell(**SHORT), 5, PmMachines(), tmp_path_factory.mktemp("mix"))


@pytest.fixture
def maker() -> Iterator[PmCellMaker]:
    made = PmCellMaker(AnsweringGround())
    yield made
    made.close()


@pytest.mark.slow
def test_an_experiment_is_planned_for_announced_traces(disk: Mix) -> None:
    """Section 4.4: a bound is proven for workloads that keep to their traces."""
    usual = cell(**SHORT)
    made = cell_experiment(usual, disk, ALONE, PmMachines(), 5)
    assert made.plan is not None
    assert {w.name for w in made.plan.workloads} == {"A", "B", "C", "L"}
    assert made.replays["L"].closed == usual.copy_in_flight

    def alone(name: str, of: PmCell) -> PmExperiment:
        return alone_experiment(of, disk, PmMachines(), 5, name)

    cells = [cell(policy=p, k=k, **SHORT) for p, k in (("pm", 2), ("cake", 3), ("none", 1))]
    digests = {alone("A", one).digest() for one in cells}
    assert len(digests) == 1
    assert set(alone("A", usual).replays) == {"A"}
    assert alone("B", usual).digest() not in digests
    assert [bound_holds(usual, disk, name) for name in "ABCL"] == [True, True, True, False]
    for changes in ({"estimator": "constant"}, {"mode": "best-effort"}):
        assert not bound_holds(usual.model_copy(update=changes), disk, "A")


@pytest.mark.slow
def test_a_cell_leaves_the_files_of_its_figures(maker: PmCellMaker, tmp_path: Path) -> None:
    run = maker.make(job({"scenario": "disk", "policy": "pm", "k": 2, **SHORT}), tmp_path)
    assert run == Run.model_validate_json((tmp_path / "run.json").read_text())
    extra = summary(tmp_path)
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
def test_figure_4_has_the_order_and_the_bucket_that_it_names(
    maker: PmCellMaker, tmp_path: Path
) -> None:
    maker.make(
        job({"scenario": "buckets", "limiters": "slow", "misbehaves": True, **SHORT}), tmp_path
    )
    extra = summary(tmp_path)
    assert [extra[f"{name}_priority"] for name in "BAC"] == [1, 2, 3]
    assert extra["bounds"] == 0  # with one bucket there is no proof
    plan = json.loads((tmp_path / "plan.json").read_text())
    stages = {s["stage"]: s for w in plan["workloads"] if w["name"] == "B" for s in w["stages"]}
    curve = json.loads((tmp_path / "curve.json").read_text())
    assert stages["storage"]["pairs"] == [pytest.approx(curve["slow"])]
    assert np.all(np.diff(curve["bursts"]) <= 1e-12)


@pytest.mark.slow
def test_latencies_alone_are_measured_once_from_enough_requests(disk: Mix, tmp_path: Path) -> None:
    """Section 6: an SLO is a multiple of the latency of a workload alone."""
    experiment = alone_experiment(cell(**SHORT), disk, PmMachines(), 5, "A")
    ground = AnsweringGround()
    first = AloneLatencies(tmp_path)
    value = first.percentile(ground, experiment, 99)
    assert first.percentile(ground, experiment, 99) == value
    again = AloneLatencies(tmp_path)
    assert again.percentile(ground, experiment, 99) == value
    assert again.percentile(ground, experiment, 100) == pytest.approx(0.01)
    assert len(ground.carried) == 1
    few = PmCellMaker(AnsweringGround(500))
    with raises(UserError, "99.9th percentile needs 10,000 that are answered"):
        few.make(job({"scenario": "disk", "seconds": 12.0}), tmp_path / "few")
    few.close()


# A small campaign, really simulated, and its report.

_F = {"scenario": "burst", "burst": "F", "slo_percentile": 95}  # 481 requests: too few for the 99th
_D = {"scenario": "misbehave", "misbehaves": True, "k": 8}


def grid(figure: str, policies: list[str], fixed: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": fixed["scenario"],
        "figures": [figure],
        "vary": {"policy": policies},
        "fixed": fixed,
        "repetitions": 1,
    }


SMALL: dict[str, Any] = {
    **TINY_PM,
    "name": "pm-small",
    "seed": 3,
    "retries": 0,
    "parameters": {"seconds": 40, "slo_percentile": 99, "k": 4},
    "grids": [
        grid("7", ["pm", "none"], _F),
        grid("8", ["pm", "none"], _D),
        grid("table2", ["inputs"], {"scenario": "table2"}),
    ],
}


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_simulated_cells_keep_their_bounds_and_have_a_report(tmp_path: Path) -> None:
    """Sections 4.4, 6.2 and 6.3; Table 2."""
    file = tmp_path / "pm-small.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    request = Request(str(file), artifacts=tmp_path / "artifacts")
    result = session.run(request, progress=Progress(), workers=Workers(count=1))
    assert result.ok, result.sentence
    assert result.ran == 5
    again = session.run(request, progress=Progress(), workers=Workers(count=1))
    assert (again.already_done, again.ran) == (5, 0)
    extras = {
        (run.run.parameters["scenario"], run.run.parameters["policy"]): run.summary.extra
        for run in load_runs(tmp_path / "artifacts" / "pm-small").runs
    }
    assert len(extras) == 5
    for (_, policy), extra in extras.items():
        if policy == "pm":
            assert extra["bounds"] >= 1
            assert extra["bounds_broken"] == 0
            assert 0 < max(v for k, v in extra.items() if k.endswith("_bound_ratio")) <= 1
    assert extras["burst", "pm"]["F_mean_s"] < extras["burst", "none"]["F_mean_s"]
    assert extras["misbehave", "pm"]["C_p99_s"] < extras["misbehave", "none"]["C_p99_s"]
    inputs, stated = extras["table2", "inputs"], standins.TABLE2["A"]
    assert inputs["A_network"] == pytest.approx(stated.network_load, rel=0.1)
    assert inputs["A_storage"] == pytest.approx(stated.storage_load, rel=0.1)
    made = build_report(tmp_path / "artifacts", "pm-small")
    verdicts = {claim.id: claim.effect for claim in made.claims}
    assert verdicts["pm-bounds"] != "contradicted"
    assert verdicts["pm-all-slos"] == "not run"
    assert made.path.exists()
