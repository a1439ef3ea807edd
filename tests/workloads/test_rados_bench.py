"""Runs of rados bench: passes, time-outs, refusals. The agent is a fake with recorded output."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import RemoteError
from tests.errors import raises
from tests.workloads.fake_agent import FakeAgent
from workloads.collect import steady
from workloads.errors import WorkloadError
from workloads.rados_bench import GRACE_S, RadosBench, run

DATA = Path(__file__).parents[1] / "data" / "rados-bench" / "16.2.15"


def bench(op: str, **changes: object) -> RadosBench:
    values = {"op": op, "object_size": 65536, "duration_s": 24.0, "run_name": "r"} | changes
    return RadosBench.model_validate(values)


def says(name: str) -> FakeAgent:
    return FakeAgent(lambda argv: (0, (DATA / name).read_text(), ""))


def test_argv_of_a_read_leaves_the_size_to_the_metadata() -> None:
    read = "rados -p bench bench 30 seq -t 4 --run-name r --show-time"
    assert bench("seq", concurrency=4).argv(29.2) == read.split()
    argv = bench("write").argv()
    assert argv[4:6] == ["24", "write"]
    assert argv[-3:] == ["-b", "65536", "--no-cleanup"]


READER = """#!{python}
import ctypes, time
libc = ctypes.CDLL(None)
libc.srand(int(time.time()))
print([libc.rand() for _ in range(5)])
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_read_seed_replaces_the_programs_own(tmp_path, monkeypatch) -> None:
    (tmp_path / "rados").write_text(READER.format(python=sys.executable))
    (tmp_path / "rados").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def drawn(seed: int) -> str:
        argv = bench("rand", read_seed=seed).argv()
        (place,) = (number for number, word in enumerate(argv) if word.endswith(".so"))
        argv[place] = str(tmp_path / "seed.so")
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    first = drawn(7)
    built = (tmp_path / "seed.so").stat().st_mtime_ns
    assert first == drawn(7) != drawn(8)
    assert (tmp_path / "seed.so").stat().st_mtime_ns == built
    assert bench("seq", read_seed=7).argv() == bench("seq").argv()


@pytest.mark.parametrize(
    "changes", [{"run_name": "a b"}, {"run_name": "$(x)"}, {"duration_s": 0}, {"concurrency": 0}]
)
def test_nonsense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        bench("rand", **changes)


def test_rand_is_one_pass() -> None:
    wrong = "benchmark_data_c_1_object7 is not correct!\n"
    agent = FakeAgent(lambda argv: (0, (DATA / "rand-64k.txt").read_text(), wrong))
    began: list[float] = []
    result = run(agent, "client", bench("rand"), started=began.append)
    assert len(agent.started) == 1 and len(began) == 1
    assert agent.limits == [24 + GRACE_S]
    assert result.operations == 174487
    assert result.bytes == 174487 * 65536
    assert result.throughput_mb_s == pytest.approx(174487 * 65536 / 24 / 1e6)
    assert result.latency_sd_s is None and result.cpu_s == 0.5
    assert (len(result.series), result.incorrect) == (24, 1)


def test_the_wait_for_the_last_reads_is_no_measured_time() -> None:
    """Four of eight disks were busy: after 17 s rados bench waited 6 s for 16 of 732 reads."""
    text = (DATA.parent / "18.2.7" / "rand-4m-busy-disks.txt").read_text()
    asked = bench("rand", object_size=4194304, duration_s=100 / 6)
    result = run(FakeAgent(lambda argv: (0, text, "")), "client", asked)
    assert result.seconds == pytest.approx(17, abs=0.01)
    assert (result.operations, result.iops) == (716, pytest.approx(716 / 17, rel=1e-3))
    assert (len(result.series), result.series[-1].in_flight) == (17, 16)
    assert result.latency_mean_s == pytest.approx(0.405529)  # of all
    assert steady(result, 20 / 3).operations == 716 - 316


def test_seq_reads_its_set_in_passes_and_leaves_the_gaps_out() -> None:
    agent = says("seq-64k.txt")  # 1.64 s per pass
    result = run(agent, "client", bench("seq", duration_s=4.5))
    assert len(agent.started) == 3
    assert [argv[4] for *_, argv in agent.started] == ["5", "3", "2"]
    assert [verb for verb, _ in agent.calls] == ["caches", "caches"]
    assert result.seconds == pytest.approx(3 * 1.63567)
    assert result.operations == 3 * 17987
    assert result.latency_mean_s == pytest.approx(0.000353828)
    times = [sample.t_s for sample in result.series]
    assert times == sorted(times) and times[-1] == pytest.approx(result.seconds)
    first, second, _ = result.segments
    assert result.measured(first.wall - 2) == -2
    assert result.measured(first.wall + 1) == pytest.approx(1)
    assert result.measured(first.wall + 5) is None  # between the passes
    assert result.measured(second.wall + 0.5) == pytest.approx(1.63567 + 0.5)


@pytest.mark.parametrize(
    ("file", "code", "wanted", "facts"),
    [
        ("rand-4m-terminated.txt", None, {"op": "rand"}, ["did not end within 144 s"]),
        ("no-metadata.err", 1, {"op": "seq"}, ["exit code 1"]),
        ("rand-64k.txt", 0, {"op": "rand", "object_size": 4194304}, ["65536 bytes", "4194304"]),
        ("rand-64k.txt", 0, {"op": "rand", "duration_s": 26.0}, ["24.0 s", "26 s", "95"]),
        (
            "seq-4m-under-a-second.txt",
            0,
            {"op": "seq", "object_size": 4194304},
            ["prefill more objects"],
        ),
    ],
)
def test_what_is_no_result_is_an_error(
    file: str, code: int | None, wanted: dict[str, Any], facts: list[str]
) -> None:
    text = (DATA / file).read_text()
    out, err = ("hints = 1\n", text) if file.endswith(".err") else (text, "")
    with raises(WorkloadError, *facts):
        run(FakeAgent(lambda argv: (code, out, err)), "client", bench(**wanted))


@pytest.mark.parametrize("error", [RemoteError("lost", retry=True), KeyboardInterrupt()])
def test_whatever_interrupts_the_wait_stops_the_load(error: BaseException) -> None:
    def fail(argv: list[str]) -> tuple[int, str, str]:
        raise error

    agent = FakeAgent(fail)
    with pytest.raises(type(error)):
        run(agent, "client", bench("rand"))
    assert agent.stopped == [("client", "load-bench-rand")]
    assert agent.units() == {}
