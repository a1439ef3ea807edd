"""What every test may count on: where the repository is, and what a `local` test needs."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from testbed import doctor
from testbed.sites.requirements import LOCAL_SITE

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's top folder."""
    return Path(__file__).resolve().parents[1]


@functools.cache
def _cannot_be_local() -> str:
    """One sentence on what this machine or user lacks for a testbed; empty when nothing."""
    missing = doctor.lacking(doctor.examine(LOCAL_SITE))
    if os.geteuid() != 0:
        return "a local testbed needs root: run `make test-local`, which becomes root"
    if missing:
        first = missing[0]
        return f"a local testbed needs {first.what} ({first.found}): {first.how}"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `local` test that cannot run here; where CI promises that it can, fail it."""
    if item.get_closest_marker("local") is None:
        return
    reason = _cannot_be_local()
    if not reason:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
