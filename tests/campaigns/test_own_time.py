"""Throughput of a simulated run. On a store with its own size, operations within the benchmark's
time count; elsewhere all operations that rados bench counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.engine import session
from campaigns.engine.display import Silent
from campaigns.engine.session import Request
from campaigns.papers.dlr import simulated
from campaigns.papers.dlr.simulated import as_rados_bench, in_own_time
from schemas.run import Summary
from testbed.simulated import Benchmark, BenchmarkResult, SimulatedCeph
from testbed.simulated.benchmark import seconds_of
from testbed.simulated.process import PROGRAM
from testbed.spec import load_spec
from workloads import collect as tidied

SPEC = Path(__file__).resolve().parents[2] / "testbed" / "specs" / "dlr.yaml"
built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")


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


def test_operations_that_end_with_a_whole_second_belong_to_it() -> None:
    bench = ended(3.0, [5, 6, 7], [4], 0.0)
    assert [second.iops for second in bench.series] == [5, 6, 11]


@settings(deadline=None)
@given(
    finished=st.lists(st.integers(0, 500), min_size=4, max_size=40),
    late=st.lists(st.integers(0, 500), min_size=1, max_size=40),
    last_s=st.floats(0.001, 1),
)
def test_how_long_the_last_operations_take_changes_nothing(
    finished: list[int], late: list[int], last_s: float
) -> None:
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
def test_the_simulator_counts_what_ends_in_time(
    op: Any, seed: int, concurrency: int, duration_s: int, hot: set[int]
) -> None:
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
def test_only_a_store_of_its_own_size_counts_so(campaign_file: Callable[..., Path]) -> None:
    shared = {"scenario": "heterogeneity", "duration_s": 4, "interval_s": 2, "concurrency": 64}
    grids = [
        {
            "name": name,
            "figures": ["osds"],
            "vary": {"op": ["rand"], "controller": ["default"]},
            "fixed": {**shared, **size},
            "repetitions": 1,
        }
        for name, size in (("own", {"osds": 8, "hot_share": 0.5}), ("spec", {"hot_nodes": 4}))
    ]
    file = campaign_file(ground="sim", time_scale=1, parameters={}, grids=grids)
    artifacts = file.parent / "artifacts"
    result = session.run(
        Request(str(file), artifacts=artifacts), progress=Silent(), in_process=True
    )
    assert result.ok, result.sentence
    found = {}
    for record in artifacts.glob("*/*/attempt-1/run.json"):
        sized = json.loads(record.read_text())["parameters"]["osds"] is not None
        summary = Summary.model_validate_json((record.parent / "summary.json").read_bytes())
        (whole,) = summary.whole
        served = int(pd.read_parquet(record.parent / "latency.parquet")["count"].sum())
        found[sized] = whole, served
    (own, own_served), (spec, spec_served) = found[True], found[False]
    assert own.seconds == 4 < spec.seconds
    # Late operations count for latency in both cases, but for throughput only on the spec's store.
    assert own.operations is not None and own.operations < own_served
    assert spec.operations == spec_served
    assert own.throughput_mb_s == pytest.approx(own.operations * 4.194304 / 4)


@built
@pytest.mark.slow
@pytest.mark.parametrize("queued", [0.0, simulated.QUEUED])
def test_what_waits_at_a_hot_disk_may_take_longer_than_the_benchmark(
    campaign_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, queued: float
) -> None:
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
        Request(str(file), artifacts=artifacts), progress=Silent(), in_process=True
    )
    assert result.ok == (queued > 0), result.sentence
    if not queued:
        assert "5 virtual seconds after its time" in result.sentence
