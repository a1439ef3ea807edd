"""Steps and facts that the live cells of every paper share, against a scripted admin node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_live_services import ScriptedAgent, live_of, provisioned

from campaigns.engine.identity import identifying_versions
from campaigns.engine.lock import InUseError, alone
from campaigns.engine.provenance import deployer
from campaigns.grounds import testbed as opening
from campaigns.grounds.live import LiveTestbed, Recorder
from schemas.errors import HotbedError, UserError
from testbed.ssh import Completed
from testbed.stores.contract import HOT, OSDS, PRESSURE, PRIMARY_AFFINITY, Needs
from tests.errors import raises
from tests.testbed.deployers.beds import spec_with
from tests.testbed.fake_site import FakeSite

SPEC = Path("testbed/specs/dlr.yaml")


@pytest.fixture
def agent() -> ScriptedAgent:
    return ScriptedAgent()


@pytest.fixture
def live(tmp_path: Path, agent: ScriptedAgent) -> LiveTestbed:
    site = FakeSite(tmp_path / "site")
    return live_of(site, provisioned(site, "dlr"), agent)


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
    live, agent, services, verbs
):
    agent.live = {"osd1": ["load-hot-osd1"], "admin": ["load-bench-seq"]}
    live.quiet(*services)
    # The services are stopped in parallel.
    assert sorted(agent.verbs[:-2]) == verbs
    assert agent.verbs[-2:] == ["stop load-hot-osd1", "stop load-bench-seq"]
    agent.stray = {"osd2": ["77 fio --name=x"], "osd3": ["78 fio", "79 fio"]}
    facts = "osd2 runs load", "'77 fio --name=x' (2 more)", "hotbed exec osd2 -- kill 77"
    with raises(HotbedError, *facts):
        live.quiet(*services)


def test_a_controller_runs_around_the_block_and_its_failure_is_raised(live, agent, tmp_path):
    journal = tmp_path / "journal.jsonl"
    with live.controller("dlr", interval_s=2.0, seed=3, journal=journal):
        assert agent.verbs == ["control-start"]
    assert agent.verbs == ["control-start", "control-stop", "control-log"]
    assert agent.asked[0][1]["seed"] == 3
    agent.ended = {"was_running": True, "code": 3, "reason": "it raised"}
    failed = tmp_path / "failed.jsonl"
    with (
        raises(HotbedError, "controller dlr failed", "it raised"),
        live.controller("dlr", interval_s=2.0, journal=failed),
    ):
        pass
    assert failed.read_text() == journal.read_text()  # it shows why
    with pytest.raises(KeyError), live.controller("dlr", interval_s=2.0):
        raise KeyError
    assert agent.verbs[-2:] == ["control-start", "control-stop"]


def test_a_recording_is_stopped_moved_and_judged(live, agent, tmp_path):
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


def test_an_open_testbed_is_locked_and_restored_at_the_end(live, opened):
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
        raises(UserError, "testbed/specs/mos.yaml", do="--testbed"),
        opened(Path("testbed/specs/mos.yaml")),
    ):
        pass


def test_only_another_deployer_is_part_of_an_identity():
    assert deployer(spec_with("own")) == {}
    assert identifying_versions({"ceph": "16.2.15"} | deployer(spec_with())) == {"ceph": "16.2.15"}
    found = identifying_versions({"python3": "3.11"} | deployer(spec_with("ceph-ansible")))
    assert found == {"deployer": "ceph-ansible"}


# Signals and actions that a deployed store offers, queried on its admin node.

STAND_INS = {
    "contract.py": "def load_config():\n    return 'the config'\n",
    "sense.py": (
        "from types import SimpleNamespace\n"
        "def open_store(config, signal):\n"
        "    assert (config, signal) == ('the config', None)\n"
        "    needs = SimpleNamespace(senses=frozenset({'osds', 'hot'}),\n"
        "        acts=frozenset({'primary-affinity'}))\n"
        "    return SimpleNamespace(offers=lambda: needs)\n"
    ),
}


class AdminNode:
    """Admin node that runs commands here, with a stand-in for the agent's code."""

    def __init__(self, root: Path, answer: bytes | None = None) -> None:
        self.root = root
        self.answer = answer

    def run(self, argv: list[str], **_: Any) -> Completed:
        if self.answer is not None:
            return Completed(tuple(argv), 0, self.answer, b"")
        here = [sys.executable if word == "python3" else word for word in argv]
        here[1] = f"PYTHONPATH={self.root}"
        done = subprocess.run(here, capture_output=True, check=True, cwd=self.root)
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)


def a_testbed(monkeypatch: pytest.MonkeyPatch, node: AdminNode) -> Any:
    monkeypatch.setattr(opening, "shell_to", lambda testbed, admin: node)
    return SimpleNamespace(name="dlr", admin="admin")


def test_the_store_on_the_admin_node_is_asked(tmp_path, monkeypatch):
    for folder in ("testbed", "testbed/agent"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    for name, text in STAND_INS.items():
        (tmp_path / "testbed" / "agent" / name).write_text(text)
    found = opening.read_offers(a_testbed(monkeypatch, AdminNode(tmp_path)))
    # The store is opened without a sensor; a testbed has sensors.
    assert found == Needs(frozenset({OSDS, HOT, PRESSURE}), frozenset({PRIMARY_AFFINITY}))
