"""Conversion of a benchmark and a recording to samples and a summary."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.errors import raises
from tests.workloads.fake_agent import FakeAgent
from workloads.collect import Row, pressure_mean, rows, steady, whole
from workloads.errors import WorkloadError
from workloads.rados_bench import BenchResult, RadosBench, run

DATA = Path(__file__).parents[1] / "data"


def result(op: str = "rand", name: str = "rand-64k.txt", duration_s: float = 24.0) -> BenchResult:
    text = (DATA / "rados-bench/16.2.15" / name).read_text()
    agent = FakeAgent(lambda argv: (0, text, ""))
    bench = RadosBench.model_validate(
        {"op": op, "object_size": 65536, "duration_s": duration_s, "run_name": "r"}
    )
    return run(agent, "client", bench)


def recording(start: float, values: dict[int, float]) -> list[dict[str, Any]]:
    return [
        {"wall": start + t, "values": {"osd0": {"pressure": value, "hot": 1.0}}, "lost": {}}
        for t, value in values.items()
    ]


def test_samples_count_from_the_benchmarks_start() -> None:
    bench = result()
    values = {-3: 1.0, 5: 50.0, 6: 70.0, 7: math.nan, 30: 2.0}
    lines = recording(bench.segments[0].wall, values)
    found = list(rows(bench, lines))
    client = [metric for _, node, metric, _ in found if node == "client"]
    assert set(client) == {"throughput_mb_s", "iops", "latency_s", "in_flight"}
    assert client.count("iops") == 24
    assert times(found) == [-3.0, 5.0, 6.0, 30.0]
    del lines[3]
    assert pressure_mean(bench, lines) == {"osd0": 60.0}  # of the measured time


def times(found: list[Row], metric: str = "pressure") -> list[float]:
    return [t_s for t_s, node, name, _ in found if (node, name) == ("osd0", metric)]


def test_what_was_recorded_in_a_gap_is_left_out() -> None:
    bench = result("seq", "seq-64k.txt", 3.0)
    start, second = bench.segments[0].wall, bench.segments[1].wall
    walls = {0: 1.0, 4: 2.0, second - start + 1: 3.0}
    found = list(rows(bench, recording(start, walls)))  # type: ignore[arg-type]
    assert [value for _, _, metric, value in found if metric == "pressure"] == [1.0, 3.0]
    assert times(found) == pytest.approx([0.0, 1.63567 + 1])


def test_whole_run_is_what_the_tool_says() -> None:
    summary = whole(result())
    assert summary.operations == 174487 and summary.bytes == 174487 * 65536
    assert summary.latency_mean_s == pytest.approx(0.00026843)
    assert summary.latency_sd_s is None and summary.errors == 0


def test_steady_state_leaves_the_beginning_out() -> None:
    bench = result()
    summary = steady(bench, 6.0)
    assert summary.seconds == pytest.approx(18.0)
    assert summary.operations == 174487 - 41119  # finished after the sixth second
    total = 0.00026843 * 174487 - 0.000284861 * 41119
    assert summary.latency_mean_s == pytest.approx(total / summary.operations, rel=1e-4)
    assert summary.latency_max_s is None
    assert steady(bench, 0.0).operations == whole(bench).operations
    with raises(WorkloadError, "24"):
        steady(bench, 24.0)
