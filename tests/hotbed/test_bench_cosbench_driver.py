"""What the bench of the COSBench driver makes of processor times."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_cosbench_driver.py"


def test_rows_are_medians_without_the_start() -> None:
    bench = runpy.run_path(str(BENCH))
    cost, took, rows = bench["Cost"], bench["Took"], bench["rows"]
    requests = 3 * (bench["REQUESTS"] - bench["STARTING"])
    whole = took(0.5 + requests * 40e-6, 2 + requests * 100e-6)
    assert bench["each"](whole, took(0.5, 2)) == pytest.approx((40, 100))
    theirs = [cost(800, 1000), cost(1200, 1000), cost(1000, 1000)]
    real = [cost(400, 9000)]
    ours, fewer, rate, times = rows(
        [cost(40, 100), cost(30, 100), cost(90, 300)], theirs, None, real, None
    )
    assert (ours["value"], ours["unit"], ours["limit"]) == (40, "us", None)
    assert (fewer["value"], fewer["limit"], fewer["at_least"]) == (25, 5, True)
    assert fewer["note"] == "swift-bench 1000 us a request"
    assert (rate["value"], rate["note"]) == (pytest.approx(10_000), "swift-bench 1000 /s")
    assert (times["value"], times["limit"], times["at_least"]) == (10, 5, True)
    assert times["note"] == "COSBench 400 us a request"
    _, fewer, rate, times = rows([cost(40, 100)], [], "no network", [], "no release")
    assert (times["value"], times["note"], times["n"]) == (None, "no release", 0)
    assert (fewer["value"], fewer["note"]) == (None, "no network")
    assert rate["value"] == pytest.approx(10_000)


def test_a_tool_that_fails_is_told_with_what_it_said() -> None:
    bench = runpy.run_path(str(BENCH))
    used = bench["took"]([sys.executable, "-c", "sum(range(10**6))"])
    assert used.processor_s > 0 and used.clock_s > 0
    with pytest.raises(RuntimeError, match="no such store"):
        bench["took"]([sys.executable, "-c", "raise SystemExit('no such store')"])


def test_a_releases_java_processes_are_counted(tmp_path: Path) -> None:
    java_s = runpy.run_path(str(BENCH))["java_s"]
    (tmp_path / "java").symlink_to(sys.executable)
    burn = "sum(range(3 * 10**6)); print(flush=True); input()"
    with pytest.raises(LookupError, match="start it"):
        java_s(tmp_path)
    with subprocess.Popen(
        [tmp_path / "java", "-c", burn],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert java_s(tmp_path) > 0
        process.stdin.write("\n")


def test_a_release_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release_s = runpy.run_path(str(BENCH))["release_s"]
    monkeypatch.delenv("HOTBED_COSBENCH", raising=False)
    assert release_s("http://127.0.0.1", tmp_path) == (
        [],
        "HOTBED_COSBENCH names no release that runs here",
    )
    monkeypatch.setenv("HOTBED_COSBENCH", str(tmp_path))
    found, why = release_s("http://127.0.0.1", tmp_path)
    assert not found
    assert "start it" in why
