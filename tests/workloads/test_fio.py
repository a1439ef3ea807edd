"""fio: command lines, and its JSON as 3.33 really printed it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.errors import raises
from tests.workloads.fake_agent import FakeAgent
from workloads.errors import WorkloadError
from workloads.fio import FioLoad, bucket, measure_capacity, parse_fio

DATA = Path(__file__).parents[1] / "data" / "fio" / "3.33"


def read(name: str) -> str:
    return (DATA / name).read_text()


def test_hotspot_is_the_papers_and_an_offered_load_is_poisson_on_all_files() -> None:
    argv = FioLoad(file_bytes=2**27).argv(600)
    words = "--rw=randread --bs=4096 --ioengine=libaio --iodepth=16 --numjobs=4 --direct=1"
    assert {*words.split(), f"--size={2**27}", "--allow_file_create=0"} <= set(argv)
    assert not any(word.startswith("--rate") for word in argv)
    argv = FioLoad(file_bytes=2**27, offered_iops=24.6).argv(600)
    words = "--rate_iops=25 --rate_process=poisson --iodepth=64"
    words += " --filename=hot.0.0:hot.1.0:hot.2.0:hot.3.0"
    assert {*words.split(), f"--size={4 * 2**27}"} <= set(argv)
    assert not any(word.startswith("--numjobs") for word in argv)


@pytest.mark.parametrize(
    "wrong", [{"file_bytes": 1}, {"file_bytes": 4096, "offered_iops": 0}, {"directory": "x:y"}]
)
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FioLoad.model_validate(wrong)


def test_recorded_runs() -> None:
    result = parse_fio(read("randread-4-jobs.json"))
    assert (result.version, result.op, result.operations) == ("3.33", "read", 245052)
    assert result.iops == pytest.approx(81656.78)
    assert result.seconds == pytest.approx(3.001)
    assert result.latency_mean_s == pytest.approx(777676.77e-9)
    assert 0 < result.percentiles[50.0] < result.percentiles[99.0] <= result.latency_max_s
    assert result.histogram == () and result.errors == 0 and not result.terminated
    assert result.throughput_mb_s == pytest.approx(245052 * 4096 / 3.001 / 1e6)
    other = parse_fio(read("randread-4-jobs.json"), "write")
    assert (other.operations, other.percentiles) == (0, {})
    missing = parse_fio(read("files-missing.json"))
    assert (missing.operations, missing.iops) == (0, 0)
    assert missing.latency_mean_s is missing.latency_max_s is None
    ended = parse_fio(read("randread-terminated.txt"))
    assert ended.terminated
    assert (ended.operations, ended.seconds) == (182410, pytest.approx(2.244))


def test_jobs_that_were_not_grouped_are_added_up() -> None:
    # Two groups of one recorded job, as fio prints without group_reporting.
    document = json.loads(read("randread-4-jobs.json"))
    document["jobs"] *= 2
    result = parse_fio(json.dumps(document))
    assert result.operations == 2 * 245052
    assert result.latency_mean_s == pytest.approx(777676.77e-9)
    assert result.percentiles == {} and result.latency_sd_s is None


def test_offered_load_run_has_a_histogram() -> None:
    result = parse_fio(read("poisson-60-iops.json"))
    assert result.iops == pytest.approx(56.05, abs=0.01)
    assert sum(count for _, _, count in result.histogram) == result.operations == 338
    assert all(low < high for low, high, _ in result.histogram)
    worst = max(high for _, high, _ in result.histogram)
    assert result.latency_max_s is not None
    assert result.latency_max_s * 1e9 <= worst


@pytest.mark.parametrize("text", ["", "fio: terminating on signal 15\n", '{\n  "jobs" : [\n'])
def test_killed_fio_is_an_error(text: str) -> None:
    with raises(WorkloadError, "left no result"):
        parse_fio(text)


@given(st.integers(0, 2**40))
def test_buckets_hold_the_value_and_are_as_narrow_as_fios(value: int) -> None:
    low, high = bucket(value)
    assert low <= value < high
    assert high - low <= max(1, value / 64)


def test_capacity_is_measured_node_by_node() -> None:
    agent = FakeAgent(lambda argv: (0, read("randread-4-jobs.json"), ""))
    capacity = measure_capacity(agent, ("osd0", "osd1"), 2**27)
    assert set(capacity) == {"osd0", "osd1"}
    assert [node for node, *_ in agent.started] == ["osd0", "osd1"]
    agent = FakeAgent(lambda argv: (4, read("files-missing.json"), read("files-missing.err")))
    with raises(WorkloadError, "file creation disallowed"):
        measure_capacity(agent, ("osd0",), 2**27)
