"""What the bench of the redirect table reads out of Go's benchmarks."""

from __future__ import annotations

import runpy
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_twochoice_redirect.py"

RECORDED = """goos: linux
BenchmarkRedirect/create/1-2      30000  66693 ns/op  1.809 cpu-us/op  118701 live  60 B/op
BenchmarkRedirect/query/1-2       30000  53167 ns/op  1.353 cpu-us/op  100000 live  0 B/op
BenchmarkRedirect/create/1000-2   30000  82555 ns/op  2.314 cpu-us/op  118914 live  58 B/op
BenchmarkRedirectMemory/1-2       30000  53575 ns/op  91.18 B/entry
BenchmarkCommit                     300  1.25e+06 ns/op
PASS
"""


def test_rows_are_the_slowest_of_both_and_what_is_missing_is_told() -> None:
    bench = runpy.run_path(str(BENCH))
    found = bench["parse"](RECORDED)
    create, query, memory = bench["table_rows"](found, "exit code 1")
    assert create["value"] == 2.314
    assert create["limit"] == 20
    assert create["n"] == 60_000
    assert query["value"] is None
    assert query["note"].endswith("exit code 1")
    assert memory["value"] == 91.18
    assert memory["note"] == "91 B in 1 objects"
    commit, rewritten, _ = bench["log_rows"](found, "exit code 1")
    assert (commit["value"], commit["unit"]) == (1.25, "ms")
    assert rewritten["value"] is None
