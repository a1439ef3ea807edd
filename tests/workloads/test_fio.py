"""fio: command lines, and its JSON as 3.33 really printed it."""

from __future__ import annotations

import copy
import html
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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


def test_of_several_documents_the_last_one_counts_with_a_warning() -> None:
    """`--status-interval` prints a whole document each time, covering everything so far."""
    last = read("randread-4-jobs.json")
    early = last.replace('"total_ios" : 245052', '"total_ios" : 81000', 1)
    assert early != last
    result = parse_fio(f"{early}\n{early}\n{last}\n")
    assert len(result.warnings) == 1 and result.warnings[0] in html.unescape(result._repr_html_())
    assert replace(result, warnings=()) == parse_fio(last)
    # fio was killed while it wrote the last document.
    assert parse_fio(f"{early}\n{last[: len(last) // 2]}").operations == 81000


def as_2_2(document: dict[str, Any]) -> dict[str, Any]:
    """Convert to the shape of fio 2.2, from its stat.c: microseconds and KiB, no nanoseconds."""
    document["fio version"] = "fio-2.2.10"
    for job in document["jobs"]:
        for op in ("read", "write", "trim"):
            for kind in ("slat", "clat", "lat"):
                job[op][kind] = job[op].pop(f"{kind}_ns")
    return document


def test_fio_2_and_operations_that_were_not_reported_are_refused() -> None:
    document = as_2_2(json.loads(read("randread-4-jobs.json")))
    mixed = json.loads(read("randread-4-jobs.json"))  # with `unified_rw_reporting`
    for op in ("read", "write", "trim"):
        mixed["jobs"][0]["mixed"] = mixed["jobs"][0].pop(op)
    for wrong in (document, document | {"fio version": "fio-own-build"}, mixed):
        with pytest.raises(WorkloadError):
            parse_fio(json.dumps(wrong))


def as_clients(document: dict[str, Any], clients: int) -> dict[str, Any]:
    """Convert to the shape of a client of `clients` servers, as 3.33 printed it: a job per server
    and, for several, their sum without percentiles."""
    (job,) = document.pop("jobs")
    jobs = [job | {"hostname": "127.0.0.1", "port": 8765 + n} for n in range(clients)]
    if clients > 1:
        summed = copy.deepcopy(jobs[-1]) | {"jobname": "All clients"}
        summed["read"]["total_ios"] *= clients
        del summed["read"]["clat_ns"]["percentile"]
        jobs.append(summed)
    return document | {"client_stats": jobs}


@pytest.mark.parametrize("clients", [1, 2])
def test_output_of_client_and_server(clients: int) -> None:
    recorded = parse_fio(read("randread-4-jobs.json"))
    document = as_clients(json.loads(read("randread-4-jobs.json")), clients)
    result = parse_fio("<vm> Starting 1 process\n" + json.dumps(document))
    assert result.operations == clients * recorded.operations
    assert result.iops == pytest.approx(clients * recorded.iops)
    assert result.latency_mean_s == pytest.approx(recorded.latency_mean_s)
    assert (result.percentiles == recorded.percentiles) is (clients == 1)
    document["client_stats"] = document["client_stats"][-1:]  # some users keep only the sum
    assert parse_fio(json.dumps(document)).operations == clients * recorded.operations


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
