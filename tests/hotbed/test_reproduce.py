"""`hotbed reproduce`: its steps and their order, without executing them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import analysis.core.report
import testbed.deploy.deployment
import testbed.deploy.roles
import testbed.doctor
import testbed.sites
from campaigns.engine import session
from campaigns.engine.display import CampaignResult
from campaigns.grounds import testbed as facts
from tests.hotbed.runner import Runner


class Steps:
    """Stand-in for a site; it records every request."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.up = False

    def says(self, name: str, answer: Any = None) -> Callable[..., Any]:
        def step(*_: Any, **__: Any) -> Any:
            self.done.append(name)
            return answer

        return step

    def provision(self, *_: Any) -> Any:
        self.done.append("up")
        self.up = True
        return SimpleNamespace(name="dlr")

    def folder(self, _name: str) -> Path:
        return Path("/nonexistent")

    def release(self, *_: Any) -> None:
        self.done.append("down")

    def find(self, _name: str) -> Any:
        return SimpleNamespace(name="dlr") if self.up else None


def prepared(
    monkeypatch: pytest.MonkeyPatch, *, done: int = 0, deployed: bool = False, failed: bool = False
) -> Steps:
    steps = Steps()
    missing = (("seq none default (block 0)", "it broke"),) if failed else ()
    result = CampaignResult("dlr-quick", 24, done, 24 - done, missing)
    made = SimpleNamespace(path=Path("report.html"), claims_path=Path("claims.json"), claims=())
    known = SimpleNamespace(done=done, cells=24)
    monkeypatch.setattr(session, "dry_run", lambda request: known)
    monkeypatch.setattr(session, "run", steps.says("run", result))
    monkeypatch.setattr(testbed.doctor, "require", steps.says("doctor"))
    monkeypatch.setattr(testbed.sites, "open_site", lambda *_: steps)
    monkeypatch.setattr(testbed.deploy.roles, "save_spec", lambda *_: None)
    monkeypatch.setattr(testbed.deploy.deployment, "bring", steps.says("deploy"))
    monkeypatch.setattr(facts, "deployed", lambda testbed: deployed)
    monkeypatch.setattr(analysis.core.report, "build", steps.says("report", made))
    return steps


@pytest.mark.parametrize(
    ("state", "arguments", "code", "order"),
    [
        ({}, [], 0, ["doctor", "up", "deploy", "run", "report", "down"]),
        ({"deployed": True}, [], 0, ["doctor", "up", "run", "report", "down"]),
        ({}, ["--keep"], 0, ["doctor", "up", "deploy", "run", "report"]),
        ({"failed": True}, [], 1, ["doctor", "up", "deploy", "run", "report"]),
        ({"done": 24}, [], 0, ["report"]),
    ],
)
def test_the_steps_in_order(*, monkeypatch, state, arguments, code, order, tmp_path):
    steps = prepared(monkeypatch, **state)
    ended = Runner().run(["reproduce", "--artifacts", str(tmp_path), *arguments])
    assert ended.exit_code == code, ended.output
    assert steps.done == order
    assert "Report: " in ended.output


def test_nothing_is_built_for_a_place_that_cannot_be_written(monkeypatch):
    steps = prepared(monkeypatch)
    ended = Runner().run(["reproduce", "--artifacts", __file__])
    assert isinstance(ended.exception, OSError)
    assert steps.done == []
