"""What the bench of the COSBench driver makes of processor times."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.sites.contract import Node, Testbed
from tests.bench.bench_cosbench_driver import Login
from workloads.cosbench import driver
from workloads.cosbench.credentials import Credentials

BENCHES = Path(__file__).resolve().parents[1] / "bench"
BENCH = BENCHES / "bench_cosbench_driver.py"
SWIFT = BENCHES / "bench_mos_driver.py"
LOGIN = Login("http://127.0.0.1", "test:tester", "testing")


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


def test_requests_that_fail_are_no_cheap_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses would make either tool look quick."""
    bench = runpy.run_path(str(BENCH))
    program = tmp_path / "cosdrive"
    monkeypatch.setitem(bench["cosdrive"].__globals__, "PROGRAMS", tmp_path)

    def tool(path: Path, script: str) -> Path:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    results = tmp_path / "results.csv"
    tool(program, f"mkdir -p $4/w1-bench; cp {results} $4/w1-bench/w1-bench.csv")
    for ratio, good in (("100%", True), ("99.5%", False), ("N/A", False)):
        rows = f"init,N/A\nwrite,100%\nread,100%\ndelete,{ratio}\n"
        results.write_text(f"Op-Type,Succ-Ratio\n{rows}")
        if good:
            assert bench["cosdrive"](LOGIN, tmp_path, 8).clock_s > 0
        else:
            with pytest.raises(RuntimeError, match="requests of cosdrive failed"):
                bench["cosdrive"](LOGIN, tmp_path, 8)
    assert (tmp_path / "bench.xml").read_text().count("password=testing") == 1
    for failures, good in ((0, True), (3, False)):
        said = f"swift-bench INFO 8 PUTS **FINAL** [{failures} failures], 77.3/s"
        made = tool(tmp_path / "swift-bench", f"echo '{said}'")
        if good:
            assert bench["swift_bench"](made, LOGIN, tmp_path, 8).clock_s > 0
        else:
            with pytest.raises(RuntimeError, match="3 requests of swift-bench failed"):
                bench["swift_bench"](made, LOGIN, tmp_path, 8)


def test_on_swift_the_first_tenant_of_a_testbed_drives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from testbed import choose, deploy, reach
    from testbed.spec import load_spec

    bench = runpy.run_path(str(SWIFT))
    monkeypatch.setattr(choose, "existing", list)
    with pytest.raises(LookupError, match=r"no testbed with Swift is up: hotbed up .*mos\.yaml"):
        bench["logins"]()
    (row,) = bench["unmeasured"]("nothing is up")
    assert (row["value"], row["limit"], row["note"]) == (None, 5, "nothing is up")
    nodes = tuple(
        Node(name, "10.0.0.1", frozenset({role}), name)
        for name, role in (("proxy0", "proxy"), ("client0", "client"))
    )
    found = Testbed("mos", "fake", nodes, tmp_path, tmp_path, tmp_path, "")

    class Site:
        def find(self, name: str) -> Testbed:
            return found

    told = {"auth_url": "http://10.0.0.1:8080/auth/v1.0", "username": "small:small"}
    asked: list[str] = []

    def tenant(shell: object, name: str) -> Credentials:
        asked.append(name)
        return Credentials({**told, "password": "k"})

    monkeypatch.setattr(choose, "existing", lambda: [(Site(), "mos")])
    monkeypatch.setattr(deploy, "spec_of", lambda _: load_spec(Path("testbed/specs/mos.yaml")))
    monkeypatch.setattr(reach, "shell_to", lambda *_: None)
    monkeypatch.setattr(driver, "tenant", tenant)
    assert bench["logins"]() == ("mos", (told["auth_url"], "small:small", "k"))
    assert asked == ["small"]


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
    assert release_s(LOGIN, tmp_path) == (
        [],
        "HOTBED_COSBENCH names no release that runs here",
    )
    monkeypatch.setenv("HOTBED_COSBENCH", str(tmp_path))
    found, why = release_s(LOGIN, tmp_path)
    assert not found
    assert "start it" in why
