"""Profiles of files on one disk, from fio's output as documented."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.prioritymeister.profiles import parse_profile
from schemas.errors import UserError
from testbed.stores.nfs.wire import network_of
from tests.errors import raises
from workloads.errors import WorkloadError
from workloads.traces.files_profile import FILE_SIZES, FilesPlan, build_files

PLAN = FilesPlan(("/e/a", "/e/b"), 1 << 26, seconds=0.5)


def told(plan: FilesPlan, **lost: Any) -> str:
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


def test_a_request_costs_its_mean_latency() -> None:
    storage = parse_profile(build_files(PLAN, told(PLAN))).storage
    assert storage is not None
    assert build_files(PLAN, told(PLAN))["network"] == network_of()  # packets are counted there
    rows = build_files(PLAN, told(PLAN))["bandwidthTable"]
    assert [row["requestSize"] for row in rows] == list(FILE_SIZES)
    assert 4096 / rows[3]["readBandwidth"] == pytest.approx(4e-3 + 4096e-8)
    assert rows[-1]["requestSize"] / rows[-1]["writeBandwidth"] == pytest.approx(9e-3 + 1048576e-8)


def test_what_is_missing_or_not_fit_is_told() -> None:
    with raises(WorkloadError, "1048576"):
        build_files(PLAN, told(PLAN, last=1))
    with raises(UserError, allowed="at least 16 MiB"):
        FilesPlan(("/e/a",), 4096)
    with raises(UserError, "none with a colon"):
        FilesPlan(("/e/a:b",), 1 << 26)
