"""A `local` test never passes by not running: it is skipped with a reason, or fails under CI.
What a slow machine has no time for is left out, and counted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from testbed import doctor
from testbed.checks import Finding
from tests import time_left

LOCAL_TEST = """
    import pytest

    @pytest.mark.local
    def test_on_testbed():
        pass

    def test_anywhere():
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, root: Path) -> pytest.Pytester:
    """A folder with our conftest, one local test and one other."""
    pytester.makeconftest((root / "tests" / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    local: needs a testbed\n")
    pytester.makepyfile(LOCAL_TEST)
    return pytester


def _found(monkeypatch: pytest.MonkeyPatch, *, ok: bool) -> None:
    finding = Finding("fuse", "FUSE", ok, "no /dev/fuse", "modprobe fuse")
    monkeypatch.setattr(doctor, "examine", lambda names: [finding])
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_missing_thing_skips_with_reason(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    _found(monkeypatch, ok=False)
    result = project.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*needs FUSE (no /dev/fuse): modprobe fuse*"])


def test_missing_thing_fails_in_ci(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    _found(monkeypatch, ok=False)
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_nothing_missing_runs_it(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    _found(monkeypatch, ok=True)
    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_not_root_says_so(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    _found(monkeypatch, ok=True)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = project.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*needs root: run `make test-local`*"])


LONG_TESTS = """
    import pytest

    @pytest.fixture(scope="session")
    def testbed():
        raise AssertionError("made")

    @pytest.mark.slow
    def test_long(testbed):
        pass

    @pytest.mark.openstack
    def test_longer(testbed):
        pass

    def test_short():
        pass
"""


@pytest.fixture
def long_project(pytester: pytest.Pytester, root: Path) -> pytest.Pytester:
    pytester.makeconftest((root / "tests" / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    slow: long\n    openstack: longer\n")
    pytester.makepyfile(LONG_TESTS)
    return pytester


def test_when_time_is_over_long_tests_are_left_out_and_counted(
    long_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(time_left.UNTIL, str(time.time() - 1))
    result = long_project.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*left out, for the time for tests was over at ??:??*"])
    result.stdout.fnmatch_lines(["*2 tests left out: this machine was too slow for all*"])


@pytest.mark.parametrize("until", ["", str(2**40)])
def test_while_there_is_time_nothing_is_left_out(
    long_project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    monkeypatch.setenv(time_left.UNTIL, until)
    result = long_project.runpytest_inprocess("-rs")
    result.assert_outcomes(passed=1, errors=2)
    assert "left out" not in result.stdout.str()
