"""The ground `sim`: whole campaigns on modelled testbeds, with the files of a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.by_hand import make_run
from campaigns.engine import engine, session
from campaigns.engine.display import CampaignResult, Progress
from campaigns.engine.estimate import NOT_MEASURED
from campaigns.engine.session import Request
from campaigns.engine.store import RunStore, read_run
from campaigns.grounds.sim import SimulatedGround, open_sim
from campaigns.papers.dlr import simulated
from campaigns.papers.dlr.simulated import as_rados_bench, in_own_time
from controllers.journal import read_journal
from schemas.errors import StoreError, UserError
from schemas.run import Run, Summary
from testbed.simulated import (
    Benchmark,
    BenchmarkResult,
    ModelParameters,
    SimulatedCeph,
    SimulatedClock,
    sources,
)
from testbed.simulated.benchmark import seconds_of
from testbed.simulated.process import PROGRAM
from testbed.spec import load_spec
from tests.controllers import naughty
from tests.errors import raises
from tests.hotbed.runner import run as command
from workloads import collect as tidied

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "testbed" / "specs" / "dlr.yaml"
pytestmark = pytest.mark.timeout(300)
built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")
SIM = {"ground": "sim", "name": "tiny", "time_scale": 1 / 12, "retries": 0}


def grid(**changes: Any) -> list[dict[str, Any]]:
    body = {
        "name": "fig6",
        "figures": ["6a"],
        "vary": {"op": ["rand"], "controller": ["default", "dlr"]},
        "fixed": {"scenario": "heterogeneity", "duration_s": 60, "interval_s": 12},
        "repetitions": 1,
    }
    return [body | changes]


def run(file: Path, **more: Any) -> tuple[CampaignResult, list[Run], Path]:
    """Run the campaign in `file` in this process; return result, records and folder."""
    artifacts = file.parent / "artifacts"
    result = session.run(
        Request(str(file), artifacts=artifacts, **more), progress=Progress(), in_process=True
    )
    store = RunStore(artifacts / result.campaign)
    return result, list(store.runs()), store.folder


@built
def test_a_simulated_campaign_speaks_of_nothing_deployed(campaign_file, capsys):
    file = campaign_file(**SIM, parameters={}, grids=grid())
    swift = ROOT / "testbed" / "specs" / "mos.yaml"
    for code, more in ((0, ["--dry-run"]), (0, ["--no-notebook"]), (2, ["--spec", swift])):
        words = ("run", file, "--artifacts", file.parent / "artifacts", *more)
        ended, out, err = command(capsys, *words)
        assert (ended, "testbed" in out + err) == (code, False), out + err


@built
def test_the_time_is_that_of_stored_runs_made_in_the_same_way(campaign_file):
    file = campaign_file(**SIM, parameters={}, grids=grid())
    _, runs, folder = run(file)
    for one in runs:
        times = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:40Z"}
        record = one.model_copy(update={**times, "phases_s": {}})
        (folder / one.run_id / "attempt-1" / "run.json").write_text(record.model_dump_json())
    folder = folder.rename(folder.with_name("other"))
    asked = Request(str(file), artifacts=folder.parent)

    def measured(**how: bool) -> int:
        report = session.dry_run(asked, **how)
        assert (report.done, NOT_MEASURED in report.sentence) == (0, not report.measured)
        if report.measured:
            assert list(report.planned_s.values()) == pytest.approx([40, 40])
        return report.measured

    assert (measured(in_process=True), measured()) == (2, 0)
    (folder / runs[0].run_id / "attempt-1" / "notebook.ipynb").touch()
    assert (measured(in_process=True), measured()) == (1, 1)


@built
def test_a_simulated_run_leaves_what_a_live_one_does(campaign_file):
    result, runs, folder = run(campaign_file(**SIM, parameters={}, grids=grid()))
    assert result.ok, result.sentence
    assert {found.parameters["controller"] for found in runs} == {"default", "dlr"}
    for found in runs:
        assert (found.ground, found.provenance.site) == ("sim", "simulated")
        assert found.provenance.versions["hotbedsim"].startswith("model ")
        assert found.provenance.calibration["model"]["fio_iodepth"] == 16
        assert (found.osd_count, found.provenance.signal) == (8, "io_pressure")
        attempt = folder / found.run_id / "attempt-1"
        summary = Summary.model_validate_json((attempt / "summary.json").read_bytes())
        (whole,) = summary.whole
        assert whole.operations and whole.throughput_mb_s
        # 60 s of the paper's time, divided by twelve.
        assert whole.seconds == 5
        samples = pd.read_parquet(attempt / "samples.parquet")
        assert list(samples.columns) == ["t_s", "node", "metric", "value"]
        client = set(samples[samples["node"] == "client"]["metric"])
        assert {"throughput_mb_s", "iops", "latency_s", "in_flight"} <= client
        assert {"pressure", "hot", "disk_util"} <= set(samples[samples["node"] == "osd3"]["metric"])
        assert "primary_affinity" in set(samples[samples["node"] == "osd.3"]["metric"])
        assert samples["t_s"].min() < 0
        latency = pd.read_parquet(attempt / "latency.parquet")
        late = latency["count"].sum() - whole.operations  # in flight at the benchmark's end
        assert 0 < late <= 16
        journal = read_journal(attempt / "journal.jsonl")
        assert journal.footer is not None
        assert not (attempt / "logs" / "saved.json").exists()


@built
def test_a_decision_that_does_not_come_out_again_fails_the_cell(campaign_file):
    cells = grid(vary={"controller": ["drawn", "dlr"], "op": ["rand"]})
    file = campaign_file(**SIM, parameters={}, grids=cells)
    drawn = "import random; return state, [SetPrimaryAffinity(1, random.random())]"
    naughty.write(file.parent / "own", "drawn", drawn, good=0)
    _, runs, folder = run(file, controllers_dir=file.parent / "own")
    found = {one.parameters["controller"]: one for one in runs}
    assert {name: one.status for name, one in found.items()} == {"drawn": "failed", "dlr": "done"}
    reason = str(found["drawn"].reason)
    journal = read_journal(folder / found["drawn"].run_id / "attempt-1" / "journal.jsonl")
    assert "step 0: " in reason
    assert str(journal.steps[0]["actions"][0]) in reason  # the first differing action
    assert len(reason) < 500
    assert found["dlr"].phases_s["replay"] >= 0


@built
def test_a_cell_reads_its_journal_once(campaign_file, monkeypatch):
    opened: list[str] = []
    opens = Path.open

    def noted(path: Path, *how: Any, **more: Any) -> Any:
        opened.append(path.name)
        return opens(path, *how, **more)

    monkeypatch.setattr(Path, "open", noted)
    cells = grid(vary={"controller": ["dlr"], "op": ["rand"]})
    _, (made,), folder = run(campaign_file(**SIM, parameters={}, grids=cells))
    assert opened.count("journal.jsonl") == 1
    summary = Summary.model_validate_json(
        (folder / made.run_id / "attempt-1" / "summary.json").read_bytes()
    )
    assert summary.controller["actions"] > 0


@built
def test_equal_cells_give_equal_results_and_are_not_run_twice(campaign_file):
    file = campaign_file(
        **SIM, parameters={}, grids=grid(vary={"controller": ["dlr"], "op": ["seq"]})
    )
    _, (first,), folder = run(file)
    again, _, _ = run(file)
    assert (again.ran, again.already_done) == (0, 1)
    (folder / first.run_id).rename(folder.parent / "first")
    _, (second,), _ = run(file)
    assert second.run_id == first.run_id
    for name in ("summary.json", "journal.jsonl", "samples.parquet", "latency.parquet"):
        one = folder.parent / "first" / "attempt-1" / name
        assert one.read_bytes() == (folder / second.run_id / "attempt-1" / name).read_bytes(), name


@built
def test_a_simulator_of_other_sources_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(sources, "digest", lambda _program: "0" * 64)
    with raises(StoreError, "built from other sources than", "run `make setup`"):
        open_sim("dlr").facts()


def test_other_constants_are_another_simulator(tmp_path):
    file = tmp_path / "model.yaml"
    file.write_text("fio_iodepth: 4\n")
    plain, other = open_sim("dlr"), open_sim("dlr", SPEC, file)
    assert plain.name == other.name == "dlr"
    versions = [ground.facts().versions["hotbedsim"] for ground in (plain, other)]
    assert versions[0] != versions[1]
    assert plain == SimulatedGround(load_spec(SPEC), "dlr", ModelParameters())


BAD = {
    "unknown-osd": ("return state, [SetPrimaryAffinity(77, 0.5)]", "there is no osd.77"),
    "endless": ("while True: pass", "took more than 0.5 s"),
    "leaver": ("os._exit(3)", "ended with code 3"),
}
"""Some of all that tests/controllers/test_loop.py has."""


@built
def test_a_bad_policy_fails_its_cell_alone(tmp_path, campaign_file, monkeypatch):
    monkeypatch.setattr("campaigns.papers.dlr.simulated.DECIDE_LIMIT_S", 0.5)
    for name, (body, _) in BAD.items():
        naughty.write(tmp_path / "own", name, body)
    vary = {"op": ["rand"], "controller": ["default", *BAD]}
    file = campaign_file(**SIM, parameters={}, grids=grid(vary=vary))
    result, runs, folder = run(file, controllers_dir=tmp_path / "own")
    assert not result.ok
    by_name = {found.parameters["controller"]: found for found in runs}
    assert by_name["default"].status == "done"
    for name, (_, said) in BAD.items():
        found = by_name[name]
        assert (found.status, found.attempt) == ("failed", 1)
        assert str(found.reason).startswith(f"the controller {name} failed: ")
        assert said in str(found.reason) and "\n" not in str(found.reason)
    assert {path.name for path in folder.glob("*/attempt-*")} == {"attempt-1"}


@built
def test_an_interrupted_cell_is_marked_and_its_simulator_ends(campaign_file, monkeypatch):
    from campaigns.papers.dlr import simulated

    stores: list[Any] = []
    engines: list[Any] = []

    def stopping(store: Any, **named: Any) -> Any:
        stores.append(store)
        engines[-1].stop()  # like a Ctrl-C while the simulator runs
        return SimulatedClock(store, **named)

    def remembered(*arguments: Any, **named: Any) -> Any:
        engines.append(engine.Engine(*arguments, **named))
        return engines[-1]

    monkeypatch.setattr(simulated, "SimulatedClock", stopping)
    monkeypatch.setattr(session, "Engine", remembered)
    result, (found,), _ = run(campaign_file(**SIM, parameters={}, grids=grid()))
    assert result.interrupted
    assert (found.status, found.reason) == ("interrupted", "interrupted")
    assert len(stores) == 1
    with raises(StoreError, "closed"):
        stores[0].advance(1)


def test_code_that_never_returns_is_refused_before_anything_starts(
    tmp_path, campaign_file, monkeypatch
):
    monkeypatch.setattr("controllers.decider.START_LIMIT_S", 1.0)
    folder = tmp_path / "own" / "stuck"
    folder.mkdir(parents=True)
    (folder / "policy.py").write_text("while True: pass\n")
    fixed = {"scenario": "heterogeneity", "controller": "stuck"}
    file = campaign_file(**SIM, parameters={}, grids=grid(vary={"op": ["seq"]}, fixed=fixed))
    with raises(UserError, "stuck", "start took more than 1 s"):
        session.prepare(Request(str(file), controllers_dir=tmp_path / "own"))
    assert not (tmp_path / "artifacts").exists()


@built
def test_a_cell_by_hand_is_simulated_from_a_spec_s_name(tmp_path):
    folder = make_run(
        {"op": "rand", "scenario": "none", "duration_s": 30, "controller": "default"},
        testbed="dlr",
        ground="sim",
        artifacts=tmp_path,
        time_scale=0.1,
    )
    made = read_run(folder)
    assert made is not None
    assert (made.status, made.ground, made.provenance.site) == ("done", "sim", "simulated")
    assert made.provenance.versions["hotbedsim"].startswith("model ")
    assert (folder / "samples.parquet").is_file()
    with raises(UserError, "'moon'", allowed="dlr, dlr-chameleon,"):
        make_run({"op": "rand"}, testbed="moon", ground="sim", artifacts=tmp_path)


# Throughput: operations within the benchmark's own time count.


def ended(duration_s: float, finished: list[int], late: list[int], last_s: float) -> Any:
    """Return a benchmark with `finished` operations per second, and `late` ones after its time. It
    ended `last_s` into its last second."""
    benchmark = Benchmark("rand", duration_s=duration_s)
    counts = [*finished, *late]
    seconds = len(counts) - 1 + last_s
    flat = [number for count in counts for number in (count, 0.5 * count, 4)]
    return as_rados_bench(
        BenchmarkResult(
            benchmark=benchmark,
            started_s=7.0,
            seconds=seconds,
            operations=sum(counts),
            in_time=sum(finished),
            bytes=sum(counts) * benchmark.object_size,
            latency_mean_s=0.5,
            latency_min_s=0.1,
            latency_max_s=9.0,
            histogram=((0, 10**9, sum(counts)),),
            series=seconds_of(flat, benchmark, seconds),
            fio_reads={},
        )
    )


@settings(deadline=None)
@given(
    finished=st.lists(st.integers(0, 500), min_size=4, max_size=40),
    late=st.lists(st.integers(0, 500), min_size=1, max_size=40),
    last_s=st.floats(0.001, 1),
)
def test_how_long_the_last_operations_take_changes_nothing(finished, late, last_s):
    duration_s, operations = float(len(finished)), sum(finished)
    bench = in_own_time(ended(duration_s, finished, late, last_s), operations)
    whole, steady = tidied.whole(bench), tidied.steady(bench, duration_s / 2)
    assert (whole.seconds, whole.operations) == (duration_s, operations)
    assert whole.iops == pytest.approx(operations / duration_s)
    assert whole.throughput_mb_s == pytest.approx(operations * 4.194304 / duration_s)
    # Identical to the last bit, even if everything ends with the benchmark or a minute later.
    for other in ([0], [*late, *([3] * 60)]):
        again = in_own_time(ended(duration_s, finished, other, last_s), operations)
        assert tidied.whole(again) == whole
        assert tidied.steady(again, duration_s / 2) == steady
    # Count operations of the second half of the benchmark, and none after its end.
    assert steady.operations == sum(finished[-(-len(finished) // 2) :])


@built
@settings(deadline=None, max_examples=15)
@given(
    op=st.sampled_from(["rand", "seq", "write"]),
    seed=st.integers(0, 2**32),
    concurrency=st.integers(1, 48),
    duration_s=st.integers(1, 8),
    hot=st.sets(st.integers(0, 7), max_size=4),
)
def test_the_simulator_counts_what_ends_in_time(op, seed, concurrency, duration_s, hot):
    with SimulatedCeph(load_spec(SPEC), seed=seed) as ceph:
        ceph.prefill(100, 4 * 2**20)
        ceph.start_disturbance([(0.0, {ceph.nodes[number]: None for number in hot})])
        asked = Benchmark(op, concurrency=concurrency, duration_s=duration_s)
        ceph.start_benchmark(asked, in_s=1.0)
        result = ceph.run_benchmark(grace_s=600.0)
    # Every operation in flight at the end began earlier and counts as late.
    in_time = sum(second.operations for second in result.series if second.t_s <= duration_s)
    assert result.in_time == in_time
    assert 0 <= result.operations - result.in_time <= concurrency
    assert result.seconds >= duration_s or result.operations == result.in_time


@built
@pytest.mark.slow
@pytest.mark.parametrize("queued", [0.0, simulated.QUEUED])
def test_what_waits_at_a_hot_disk_may_take_longer_than_the_benchmark(
    campaign_file, monkeypatch, queued
):
    """Seen with 1,000 OSDs, ten of them hot: the cell failed as if no OSD served it."""
    monkeypatch.setattr(simulated, "GRACE_S", 5.0)
    monkeypatch.setattr(simulated, "QUEUED", queued)
    fixed = {"scenario": "heterogeneity", "osds": 64, "hot_share": 0.016, "concurrency": 100}
    grid = {
        "name": "hot",
        "figures": ["hot"],
        "vary": {"op": ["rand"], "controller": ["default"]},
        "fixed": {**fixed, "duration_s": 20, "interval_s": 10},
        "repetitions": 1,
    }
    file = campaign_file(ground="sim", time_scale=1, parameters={}, grids=[grid])
    artifacts = file.parent / "artifacts"
    result = session.run(
        Request(str(file), artifacts=artifacts), progress=Progress(), in_process=True
    )
    assert result.ok == (queued > 0), result.sentence
    if not queued:
        assert "5 virtual seconds after its time" in result.sentence
