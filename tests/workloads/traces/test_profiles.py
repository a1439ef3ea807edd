"""Profiles of devices and of files on one disk, from fio's output: recorded with fio 3.33 on a file
in memory (0.1 s per measurement), for files as documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from tests.errors import raises
from workloads.errors import WorkloadError
from workloads.traces.device_profile import SIZES, ProfilePlan, build
from workloads.traces.files_profile import FILE_SIZES, FilesPlan, build_files

DATA = Path(__file__).resolve().parents[2] / "data" / "fio-profile"
CAPACITY = 64 << 20


def recorded(kind: str) -> str:
    return (DATA / f"{kind}.json").read_text()


def jobs(kind: str) -> dict[str, Any]:
    text = recorded(kind)
    return {job["jobname"]: job for job in json.loads(text[text.index("{") :])["jobs"]}


def plan(kind: str, **options: Any) -> ProfilePlan:
    return ProfilePlan(kind, CAPACITY, depth=4, seconds=0.1, **options)


def test_by_size_is_the_bandwidth_of_each_size() -> None:
    profile = build(plan("by-size"), recorded("by-size"))
    given = jobs("by-size")
    assert profile["type"] == "storageSSD"
    assert [row["requestSize"] for row in profile["bandwidthTable"]] == list(SIZES)
    for row in profile["bandwidthTable"]:
        job = given[f"read-rand-{row['requestSize']}-0-{CAPACITY}"]
        assert row["readBandwidth"] == job["read"]["bw_bytes"] > 0
        assert row["writeBandwidth"] == row["readBandwidth"]  # writes were not measured


def test_by_distance_is_latency_less_transfer_at_each_place() -> None:
    made = plan("by-distance", writes=True)
    profile = build(made, recorded("by-distance"))
    given = jobs("by-distance")
    assert profile["type"] == "storageTable"
    for kind in ("read", "write"):
        table = profile[kind]
        assert table["offsets"] == made.places()
        assert table["distances"] == sorted(table["distances"])
        place = table["offsets"][2]
        zone = table["offsets"][1]
        bandwidth = given[f"{kind}-seq-1048576-{place}-{zone}"][kind]["bw_bytes"]
        assert table["bandwidth"][2][0] == bandwidth
        near = given[f"{kind}-rand-4096-{place}-1048576"][kind]["lat_ns"]["mean"] / 1e9
        column = table["distances"].index((1 << 20) / 3)
        assert table["base"][2][column] == pytest.approx(max(0, near - 4096 / bandwidth))
        far = given[f"{kind}-rand-4096-0-{CAPACITY}"][kind]["lat_ns"]["mean"] / 1e9
        assert table["base"][2][-1] == pytest.approx(max(0, far - 4096 / bandwidth))
        assert table["base"][2] == table["base"][2][::-1]  # symmetric in both directions


def test_every_measurement_is_a_job_of_the_file() -> None:
    made = plan("by-distance", writes=True)
    text = made.job_file("/dev/none")
    assert "runtime=100ms" in text
    for measurement in made.measurements:
        assert f"[{measurement.name}]" in text
        assert measurement.begin + measurement.span <= CAPACITY
    assert "rw=randwrite" not in plan("by-size").job_file("/dev/none")
    assert made.total_s == pytest.approx(0.1 * len(made.measurements))


def test_plans_that_cannot_be_and_what_fio_left_out_or_failed_are_reported() -> None:
    with raises(WorkloadError, "left no result"):
        build(plan("by-size"), "fio: no such device\n")
    with raises(WorkloadError, "512"):
        build(plan("by-size"), recorded("by-distance"))
    text = recorded("by-size")
    broken = json.loads(text[text.index("{") :])
    broken["jobs"][3]["error"] = 5
    with raises(WorkloadError, "failed (error 5)"):
        build(plan("by-size"), json.dumps(broken))
    for kind, capacity, depth in (("by-size", 1000, 1), ("by-magic", CAPACITY, 1)):
        with pytest.raises(UserError):
            ProfilePlan(kind, capacity, depth=depth)
    with raises(UserError, "depth must be"):
        ProfilePlan("by-size", CAPACITY, depth=0)


PLAN = FilesPlan(("/e/a", "/e/b"), 1 << 26, seconds=0.5)


def report(plan: FilesPlan, **lost: Any) -> str:
    jobs = []
    for m in plan.measurements:
        took = {"read": 4e6, "write": 9e6}[m.kind] + m.size * 10.0
        jobs.append(
            {"jobname": m.name, "error": 0, m.kind: {"total_ios": 9, "lat_ns": {"mean": took}}}
        )
    return json.dumps({"jobs": jobs[: len(jobs) - lost.get("last", 0)]})


def test_all_files_are_read_and_written_at_random_one_request_at_a_time() -> None:
    jobs = PLAN.job_file()
    assert "filename=/e/a:/e/b\n" in jobs
    assert f"size={2 << 26}\n" in jobs
    assert "sync=1\n" in jobs
    assert "iodepth" not in jobs
    assert jobs.count("rw=randread") == jobs.count("rw=randwrite") == len(FILE_SIZES)
    assert PLAN.total_s == pytest.approx(0.5 * 2 * len(FILE_SIZES))


def test_what_is_missing_or_not_fit_is_reported() -> None:
    with raises(WorkloadError, "1048576"):
        build_files(PLAN, report(PLAN, last=1))
    with raises(UserError, allowed="at least 16 MiB"):
        FilesPlan(("/e/a",), 4096)
    with raises(UserError, "none with a colon"):
        FilesPlan(("/e/a:b",), 1 << 26)
