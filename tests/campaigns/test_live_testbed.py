"""Steps that the live cells of every paper share, against a scripted admin node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_live_services import ScriptedAgent, live_of

from campaigns.engine.lock import InUseError, alone
from campaigns.grounds import testbed as opening
from campaigns.grounds.live import LiveTestbed, Recorder
from schemas.errors import HotbedError, UserError
from testbed.deploy.roles import save_spec
from testbed.sites.fake import FakeSite
from testbed.spec import load_spec

SPEC = Path("testbed/specs/dlr.yaml")


@pytest.fixture
def agent() -> ScriptedAgent:
    return ScriptedAgent()


@pytest.fixture
def live(tmp_path: Path, agent: ScriptedAgent) -> LiveTestbed:
    site, spec = FakeSite(tmp_path / "site"), load_spec(SPEC)
    made = site.provision(spec)
    made.directory.mkdir(parents=True)
    save_spec(made, spec)
    return live_of(site, made, agent)


@pytest.mark.parametrize(
    ("services", "verbs"),
    [
        ((), []),
        (("controller", "recorder"), ["control-stop", "recorder-stop"]),
        (
            ("controller", "disturbance", "recorder"),
            ["control-stop", "disturb-stop", "recorder-stop"],
        ),
    ],
)
def test_everything_that_a_killed_cell_left_is_stopped_and_strays_are_refused(
    live: LiveTestbed, agent: ScriptedAgent, services: Any, verbs: list[str]
) -> None:
    agent.live = {"osd1": ["load-hot-osd1"], "admin": ["load-bench-seq"]}
    live.quiet(*services)
    # The services are stopped in parallel.
    assert sorted(agent.verbs[:-2]) == verbs
    assert agent.verbs[-2:] == ["stop load-hot-osd1", "stop load-bench-seq"]
    agent.stray = {"osd2": ["77 fio --name=x"], "osd3": ["78 fio", "79 fio"]}
    says = r"osd2 runs load .*'77 fio --name=x' \(2 more\); .* hotbed exec osd2 -- kill 77"
    with pytest.raises(HotbedError, match=says):
        live.quiet(*services)


def test_a_controller_runs_around_the_block_and_its_failure_is_raised(
    live: LiveTestbed, agent: ScriptedAgent, tmp_path: Path
) -> None:
    journal = tmp_path / "journal.jsonl"
    with live.controller("dlr", interval_s=2.0, seed=3, journal=journal):
        assert agent.verbs == ["control-start"]
    assert agent.verbs == ["control-start", "control-stop", "control-log"]
    assert agent.asked[0][1]["seed"] == 3
    agent.ended = {"was_running": True, "code": 3, "reason": "it raised"}
    failed = tmp_path / "failed.jsonl"
    with (
        pytest.raises(HotbedError, match="the controller dlr failed: it raised"),
        live.controller("dlr", interval_s=2.0, journal=failed),
    ):
        pass
    assert failed.read_text() == journal.read_text()  # it shows why
    with pytest.raises(KeyError), live.controller("dlr", interval_s=2.0):
        raise KeyError
    assert agent.verbs[-2:] == ["control-start", "control-stop"]


def test_a_recording_is_stopped_moved_and_judged(
    live: LiveTestbed, agent: ScriptedAgent, tmp_path: Path
) -> None:
    recorder = Recorder(live.agent, "abc")
    with pytest.raises(KeyError), recorder.recording(30.0):
        raise KeyError
    (start, asked), (stop, _) = agent.asked
    assert (start, asked["max_s"], stop) == ("recorder-start", 30.0, "recorder-stop")
    samples = recorder.fetch(tmp_path)
    assert agent.asked[-1] == ("recorder-fetch", {"name": asked["name"], "forget": True})
    lines = (tmp_path / "recording.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == samples
    assert recorder.stalled == 0.0


@pytest.fixture
def opened(live: LiveTestbed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return `open_live` of the testbed, which has the present code."""
    monkeypatch.setattr(opening, "choose_ready", lambda name: (live.site, live.testbed))
    monkeypatch.setattr(opening, "reach", lambda site, testbed: live)
    monkeypatch.setattr(opening, "require_current", lambda testbed: None)
    return lambda spec=SPEC, **more: opening.open_live(
        "dlr", spec, lambda given: [given], say=print, **more
    )


def test_an_open_testbed_is_locked_and_restored_at_the_end(
    live: LiveTestbed, opened: Callable[..., Any]
) -> None:
    restored: list[Any] = []

    def restore(view: Any) -> None:
        restored.append(view)
        raise HotbedError("the node is gone")

    with pytest.raises(KeyError), opened(restore=restore) as view:
        assert view == [live]
        with pytest.raises(InUseError), alone(live.testbed):
            pass
        raise KeyError
    assert restored == [[live]]
    with alone(live.testbed):
        pass
    with (
        pytest.raises(UserError, match=r"was not made from .*mos\.yaml"),
        opened(Path("testbed/specs/mos.yaml")),
    ):
        pass
