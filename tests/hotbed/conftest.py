"""Import path for this folder's helpers, commands with their output, and the only site of one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hotbed.exit_codes import EXIT_USER
from testbed import choose, doctor, sites
from tests.hotbed.runner import Ask, hotbed
from tests.testbed.fake_site import FakeSite

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSite:
    """Return a site in memory that every command of the test finds."""
    found = FakeSite(tmp_path)
    for module in (choose, sites):
        monkeypatch.setattr(module, "kinds", lambda: ("fake",))
        monkeypatch.setattr(module, "open_site", lambda kind="fake", options=None: found)
    monkeypatch.setattr(doctor, "require", lambda *names, **more: None)
    return found


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Return a function that gives every command of the test a deployed testbed with this agent."""

    def reach(agent: object) -> None:
        testbed = SimpleNamespace(name="t", directory=Path("/nonexistent"))
        monkeypatch.setattr("testbed.choose.choose_ready", lambda name: (None, testbed))
        monkeypatch.setattr("testbed.choose.choose_partly", lambda name: testbed)
        monkeypatch.setattr("testbed.client.agent_client", lambda testbed: agent)

    return reach


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return a function that runs ``hotbed WORDS`` with an expected exit code and returns its
    output. A user's mistake is one sentence."""

    def ask(*words: object, code: int = 0) -> Any:
        capsys.readouterr()
        assert hotbed(*words) == code
        said = capsys.readouterr()
        sentences = [one for one in said.err.splitlines() if one.startswith("hotbed: ")]
        assert code != EXIT_USER or len(sentences) == 1
        return said

    return ask
