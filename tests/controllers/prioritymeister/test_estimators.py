"""Estimators compared with the formulas of the facts and of section 4.2; checks of profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controllers.prioritymeister.estimators import (
    NetworkCost,
    StageCosts,
    load_profile,
    measure,
    parse_profile,
)
from controllers.prioritymeister.limiters import rb_curve
from schemas.errors import UserError
from tests.errors import raises
from workloads.traces.requests import RequestBlock

BY_SIZE = {
    "type": "storageSSD",
    "readMPL": 48,
    "bandwidthTable": [
        {"requestSize": 1024, "readBandwidth": 1e6, "writeBandwidth": 5e5},
        {"requestSize": 3072, "readBandwidth": 3e6, "writeBandwidth": 1e6},
        {"requestSize": 4096, "readBandwidth": 2e6, "writeBandwidth": 2e6},
    ],
}
TABLE = {
    "offsets": [0, 1000],
    "distances": [-100, 0, 100],
    "base": [[0.010, 0.002, 0.010], [0.020, 0.004, 0.020]],
    "bandwidth": [[1e6] * 3, [5e5] * 3],
}
BY_DISTANCE = {"type": "storageTable", "history": 2, "read": TABLE, "write": TABLE}


def block(
    size: list[int],
    read: bool | list[bool] = True,
    offset: list[int] | None = None,
    times: list[int] | None = None,
) -> RequestBlock:
    n = len(size)
    return RequestBlock(
        np.array(times or list(range(n)), np.int64),
        np.array(size, np.int64),
        np.array([read] * n if isinstance(read, bool) else read),
        np.array(offset or [-1] * n, np.int64),
    )


def storage(document: dict[str, Any], requests: RequestBlock) -> list[float]:
    work: list[float] = parse_profile(document).work("storage", requests).tolist()
    return work


def test_by_size_is_size_by_interpolated_bandwidth() -> None:
    sizes = [512, 1024, 2048, 3584, 4096, 9000]
    bandwidths = [1e6, 1e6, 2e6, 2.5e6, 2e6, 2e6]
    found = storage(BY_SIZE, block(sizes))
    assert found == pytest.approx([s / b for s, b in zip(sizes, bandwidths, strict=True)])
    assert storage(BY_SIZE, block([2048], read=False)) == pytest.approx([2048 / 7.5e5])


def test_network_carries_data_one_way() -> None:
    costs = StageCosts(None)
    mixed = block([1000, 1000], [True, False])
    assert costs.work("network-in", mixed).tolist() == [225.0, 1300.0]
    assert costs.work("network-out", mixed).tolist() == [1300.0, 225.0]
    other = parse_profile(BY_SIZE | {"network": {"dataConstant": 0, "dataFactor": 2}})
    assert other.network == NetworkCost(data_constant=0.0, data_factor=2.0)


def test_overhead_is_a_part_of_every_requests_work() -> None:
    profile = {"type": "storageConstant", "base": 0.01, "readBandwidth": 1e6, "writeBandwidth": 5e5}
    profile |= {"overhead": {"request": 0.002, "latency": 0.05}}
    assert storage(profile, block([1000, 0], [True, False])) == pytest.approx([0.013, 0.012])
    costs = parse_profile(profile)
    assert (costs.overhead.request, costs.overhead.latency) == (0.002, 0.05)
    assert costs.work("network-in", block([1000])).tolist() == [225.0]  # not the network's


def test_by_distance_interpolates_and_knows_sequential_requests() -> None:
    offsets = [0, 50, 60, 160, 70, 1000]
    sizes = [10, 10, 10, 10, 10, 1000]
    found = storage(BY_DISTANCE, block(sizes, offset=offsets))
    expected = [
        0.010 + 10 / 1e6,  # the first uses the largest distance
        (0.006 * 0.95 + 0.012 * 0.05) + 10 / (1e6 - 5e5 * 0.05),
        10 / (1e6 - 5e5 * 0.06),  # begins where the previous request ended
        (0.010 * 0.84 + 0.020 * 0.16) + 10 / (1e6 - 5e5 * 0.16),
        10 / (1e6 - 5e5 * 0.07),  # begins where the request before the previous one ended
        0.020 + 1000 / 5e5,
    ]
    assert found == pytest.approx(expected)


def test_blocks_of_a_trace_are_estimated_as_one() -> None:
    random = np.random.default_rng(1)
    offset = (random.integers(0, 40, 200) * 10).tolist()
    whole = block([10] * 200, random.random(200).round().astype(bool).tolist(), offset)
    estimator = parse_profile(BY_DISTANCE).estimator("storage")
    parts = [whole.chosen(slice(i, i + 7)) for i in range(0, 200, 7)]
    found = np.concatenate([estimator(part) for part in parts])
    assert found.tolist() == pytest.approx(storage(BY_DISTANCE, whole))


def test_by_distance_needs_offsets() -> None:
    with raises(UserError, "has no offsets"):
        storage(BY_DISTANCE, block([512]))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "not a JSON object"),
        ({"type": "disk"}, "type: 'disk'"),
        ({"type": "storageSSD"}, "bandwidthTable: is missing"),
        (
            {"type": "storageSSD", "bandwidthTable": [BY_SIZE["bandwidthTable"][0]] * 2},
            "requestSize twice",
        ),
        (
            {"type": "storageSSD", "bandwidthTable": [{"requestSize": 1, "readBandwidth": 0}]},
            "readBandwidth: 0",
        ),
        (BY_SIZE | {"network": {"factor": 1}}, "network: unknown key 'factor'"),
        (BY_SIZE | {"overhead": {"lag": 1}}, "'lag'"),
        ({"type": "storageConstant", "base": 10**400}, "base: 1000"),
        (BY_DISTANCE | {"history": 0}, "history: 0"),
        (BY_DISTANCE | {"read": TABLE | {"offsets": [1, 1]}}, "offsets: must rise"),
        (BY_DISTANCE | {"read": TABLE | {"base": [[1, 2, 3]]}}, "2 rows"),
    ],
)
def test_a_wrong_profile_is_refused(document: object, reason: str) -> None:
    with raises(UserError, reason):
        parse_profile(document)


def test_profile_files(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with raises(UserError, "cannot be read"):
        load_profile(path)
    path.write_text("{")
    with raises(UserError, "is not JSON"):
        load_profile(path)
    path.write_text('{"base": 1' + "0" * 5000 + "}")  # more digits than Python parses
    with raises(UserError, "is not JSON"):
        load_profile(path)
    path.write_text(json.dumps(BY_SIZE))
    with pytest.raises(UserError):
        load_profile(path).estimator("disk")
    with raises(UserError, do="give --profile"):
        StageCosts(None).estimator("storage")


def test_a_trace_is_measured_once_for_all_stages() -> None:
    times = [0, 1_000_000_000, 1_500_000_000, 4_000_000_000]
    requests = block([1024, 4096, 1024, 1024], [True, True, False, True], times=times)
    costs = parse_profile(BY_SIZE)
    halves = [requests.chosen(slice(*part)) for part in ((0, 1), (1, 4))]
    found = measure(halves, costs)
    gaps = np.array([1.0, 0.5, 2.5])
    assert (found.requests, found.reads, found.bytes) == (4, 3, 7168)
    assert found.seconds == 4.0
    assert found.scv == pytest.approx(gaps.var() / gaps.mean() ** 2)
    work = storage(BY_SIZE, requests)
    assert found.load("storage") == pytest.approx(sum(work) / 4)
    assert found.largest["storage"] == pytest.approx(max(work))
    rates = np.linspace(0, 1, 30)
    expected = rb_curve(np.array(times) / 1e9, work).burst(rates)
    np.testing.assert_allclose(found.curves["storage"].burst(rates), expected, rtol=1e-12)
    assert measure(halves, costs, ["storage"], curves=False).curves == {}
    with raises(UserError, "no request"):
        measure([], costs)


@pytest.mark.parametrize("count", [40, 1500])
def test_a_week_of_requests_some_100_ns_apart_has_exact_bursts(count: int) -> None:
    """In seconds, times within a week round to 1e-10, a thousandth of these gaps."""
    random = np.random.default_rng(count)
    times = np.cumsum(random.integers(1, 9, count) * 100) + 7 * 86400 * 10**9
    times[0] = 0
    found = measure(
        [block([4096] * count, [True] * count, times=times.tolist())],
        StageCosts(None),
        ["network-out"],
    )
    work, rates = 200 + 1.1 * 4096, np.geomspace(1e8, 3e10, 20)
    for rate, burst in zip(rates, found.curves["network-out"].burst(rates), strict=True):
        fill = most = 0.0
        for gap in np.diff(times, prepend=0).tolist():
            fill = max(0.0, fill - rate * (gap * 1e-9)) + work
            most = max(most, fill)
        assert burst == pytest.approx(most, rel=1e-9)


def test_work_that_no_number_holds_is_refused() -> None:
    tiny = {"type": "storageConstant", "base": 0, "readBandwidth": 5e-324, "writeBandwidth": 1}
    for curves in (True, False):
        with pytest.raises(UserError):
            measure([block([4096], [True], times=[0])], parse_profile(tiny), curves=curves)
