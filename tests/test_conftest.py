"""A `local` test never passes by not running: it is skipped with a reason, or fails under CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import doctor
from testbed.checks import Finding

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
