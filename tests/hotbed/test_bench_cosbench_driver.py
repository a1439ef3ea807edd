"""What the bench of the COSBench driver makes of processor times."""

from __future__ import annotations

import runpy
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
    ours, fewer, rate = rows([cost(40, 100), cost(30, 100), cost(90, 300)], theirs, None)
    assert (ours["value"], ours["unit"], ours["limit"]) == (40, "us", None)
    assert (fewer["value"], fewer["limit"], fewer["at_least"]) == (25, 5, True)
    assert fewer["note"] == "swift-bench 1000 us a request"
    assert (rate["value"], rate["note"]) == (pytest.approx(10_000), "swift-bench 1000 /s")
    _, fewer, rate = rows([cost(40, 100)], [], "no network")
    assert (fewer["value"], fewer["note"]) == (None, "no network")
    assert rate["value"] == pytest.approx(10_000)


def test_a_tool_that_fails_is_told_with_what_it_said() -> None:
    bench = runpy.run_path(str(BENCH))
    used = bench["took"]([sys.executable, "-c", "sum(range(10**6))"])
    assert used.processor_s > 0 and used.clock_s > 0
    with pytest.raises(RuntimeError, match="no such store"):
        bench["took"]([sys.executable, "-c", "raise SystemExit('no such store')"])
