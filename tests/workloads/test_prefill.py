"""Prefilling: the needed amount, and no repeated writes."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.spec import DiskSpec
from tests.errors import raises
from tests.workloads.fake_agent import FakeAgent
from workloads.errors import WorkloadError
from workloads.prefill import (
    SHARE,
    Prefilled,
    PrefillPlan,
    decode_metadata,
    disk_bound_iops,
    plan_prefill,
    prefill,
    usable_bytes,
)

# `rados get` of metadata by `rados bench write -b 65536` (16.2.15): 17987 objects, process 9488.
RECORDED = "0000010000000000434600001025000000000100 00000000"
DISKS = [DiskSpec()] * 8


def test_metadata_of_a_real_run() -> None:
    metadata = decode_metadata(bytes.fromhex(RECORDED))
    assert metadata is not None
    assert (metadata.object_size, metadata.operations, metadata.pid) == (65536, 17987, 9488)
    assert decode_metadata(b"something else") is None


@given(
    size=st.sampled_from([4096, 65536, 2**20, 4 * 2**20, 2**24]),
    duration=st.floats(1, 200),
    usable=st.integers(2**36, 2**42),
)
def test_a_plan_fits_and_lasts_as_long_as_it_says(size: int, duration: float, usable: int) -> None:
    fastest = disk_bound_iops(DISKS, size)
    plan = plan_prefill(object_size=size, duration_s=duration, max_iops=fastest, usable=usable)
    assert plan.bytes <= SHARE * usable
    assert plan.pass_s == pytest.approx(plan.objects / fastest)
    if plan.bytes + size < SHARE * usable:
        assert plan.pass_s >= duration * 0.999


def test_a_store_that_is_too_small_is_refused_with_numbers() -> None:
    with raises(WorkloadError, "128", "16777216 bytes"):
        plan_prefill(object_size=2**24, duration_s=30, max_iops=10, usable=2**30)
    # 4 ms and 4 MiB at 60 MB/s take 73.9 ms per disk.
    assert disk_bound_iops(DISKS, 4 * 2**20) == pytest.approx(8 / 0.0739, rel=1e-3)
    assert usable_bytes(DISKS, 2) == 8 * 9 * 2**30 // 2


def metadata_of(size: int) -> bytes:
    """Return the metadata of 17987 objects by process 9488."""
    numbers = [(size, 8), (17987, 4), (9488, 4), (size, 8)]
    return b"".join(value.to_bytes(width, "little") for value, width in numbers)


class Pool:
    """Pool that answers the commands of `prefill`."""

    def __init__(self, size: int = 65536, objects: int = 0, *, metadata: bool = True) -> None:
        self.size, self.objects, self.metadata = size, objects, metadata
        self.fills: list[list[str]] = []
        self.cleaned = 0

    def __call__(self, argv: list[str]) -> tuple[int | None, str, str]:
        if argv[3] == "empty":
            self.cleaned += self.objects > 0
            self.objects = 0
        elif argv[0] == "rados":
            self.fills.append(argv)
            self.size = int(argv[argv.index("-b") + 1])
            self.objects = int(argv[argv.index("--max-objects") + 1])
            self.metadata = True
        elif argv[3] == "find" and self.metadata and self.objects:
            return 0, f"{metadata_of(self.size).hex(' ')}\nobjects\n{self.objects}\n", ""
        return 0, "", ""


PLAN = PrefillPlan(objects=500, object_size=65536, pass_s=9.0)


def test_an_empty_pool_is_filled_once() -> None:
    pool = Pool()
    agent = FakeAgent(pool)
    assert prefill(agent, "client", "bench", PLAN).written
    assert not prefill(agent, "client", "bench", PLAN).written
    assert len(pool.fills) == 1
    assert pool.fills[0][-2:] == ["--max-objects", "500"]
    assert "hotbed-prefill-65536" in pool.fills[0]


@pytest.mark.parametrize(("size", "objects"), [(65536, 499), (4194304, 500)])
def test_missing_objects_and_objects_of_another_size_are_replaced(size: int, objects: int) -> None:
    pool = Pool(size=size, objects=objects)
    assert prefill(FakeAgent(pool), "client", "bench", PLAN).written
    assert (pool.cleaned, pool.size, pool.objects) == (1, 65536, 500)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Folder of files, on which the stand-in `rados` in `tmp_path` works."""
    found = tmp_path / "pool"
    found.mkdir()
    rados = tmp_path / "rados"
    rados.write_text(
        f"#!/bin/sh\nshift 2\ncd {found} || exit\ncase $1 in\n"
        'ls) ls;;\nget) cp "$2" "$OLDPWD/$3";;\nrm) rm "$2";;\ncleanup) rm "$3"*;;\nesac\n'
    )
    rados.chmod(0o755)
    return found


def scripts(tmp_path: Path, kept: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of `prefill` with the word `kept`, and an environment to run it in."""
    argv: list[list[str]] = []

    def keep(words: list[str]) -> tuple[int | None, str, str]:
        argv.append(words)
        return (0, "", "")

    with raises(WorkloadError, "wrote 0 of 500"):
        prefill(FakeAgent(keep), "client", "bench", PLAN)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return next(words for words in argv if kept in words), environment


def test_only_the_objects_of_the_run_are_found(tmp_path: Path, pool: Path) -> None:
    finding, environment = scripts(tmp_path, "find")

    def found_now() -> Prefilled:
        def answer(words: list[str]) -> tuple[int | None, str, str]:
            if "find" not in words:
                return 0, "", ""
            done = subprocess.run(
                finding, check=True, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            return 0, done.stdout, ""

        return prefill(FakeAgent(answer), "client", "bench", PLAN)

    with raises(WorkloadError, "wrote 0 of 500"):
        found_now()
    (pool / PLAN.run_name).write_bytes(metadata_of(65536))
    host = platform.node()[:29]
    for name in (f"{host}_948", f"{host}_94880", "elsewhere_9488"):
        (pool / f"benchmark_data_{name}_object1").touch()
    with raises(WorkloadError, "wrote 0 of 500"):
        found_now()
    for number in range(500):
        (pool / f"benchmark_data_{host}_9488_object{number}").touch()
    assert (found_now().objects, found_now().written) == (500, False)


def test_emptying_the_pool_takes_benchmarks_and_nothing_else(tmp_path: Path, pool: Path) -> None:
    for name in ("benchmark_data_a_1_object0", "benchmark_data_b_2_object7", "kept"):
        (pool / name).touch()
    (pool / "hotbed-prefill-65536").touch()
    (pool / "hotbed-prefill-65536-mine").touch()
    emptying, environment = scripts(tmp_path, "empty")
    for _ in range(2):  # an empty pool is not an error
        subprocess.run(emptying, check=True, cwd=tmp_path, env=environment)
        assert sorted(path.name for path in pool.iterdir()) == ["hotbed-prefill-65536-mine", "kept"]


def test_a_fill_that_ends_early_is_an_error() -> None:
    class Full(Pool):
        def __call__(self, argv: list[str]) -> tuple[int | None, str, str]:
            answer = super().__call__(argv)
            self.objects = min(self.objects, 100)
            return answer

    with raises(WorkloadError, "100 of 500 objects"):
        prefill(FakeAgent(Full()), "client", "bench", PLAN)
    with raises(WorkloadError, "did not end in time"):
        prefill(FakeAgent(lambda argv: (None, "", "")), "client", "bench", PLAN)
