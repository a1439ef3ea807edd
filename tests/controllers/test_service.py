"""Service as a real process, driven by the agent's verbs: stopped, killed, healed."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controllers import control, remote
from controllers.control import Control, unpack
from controllers.journal import read_journal
from controllers.loop import EXIT_DIED, EXIT_FAILED, EXIT_NOT_RESTORED
from controllers.registry import find
from controllers.replay import replay
from schemas.errors import RemoteError, StoreError, UserError
from schemas.names import UnsafeNameError
from tests.controllers import naughty, service_main
from tests.errors import raises
from tests.testbed.fake_store import FakeStore
from tests.waiting import until

HERE = Path(__file__).parent
UNIT = "hotbed-controller@{}.service"


class Ground:
    """Admin node in a folder: store, units, controllers; an `Agent` for the engine's side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store.json"
        self.units = folder / "units"
        self.units.mkdir()
        self.control = Control(
            service_main.open_fake,
            folders=folder / "controllers",
            configs=folder / "etc",
            systemctl=[sys.executable, str(HERE / "fake_systemctl.py")],
            store_answers=lambda: service_main.require(self.store),
        )

    def call(self, verb: str, payload=None, *, timeout_s: float = 60.0):
        """Call a verb as `Agent.call` does: JSON in both directions."""
        function = getattr(self.control, verb.removeprefix("control-"))
        return json.loads(json.dumps(function(json.loads(json.dumps(payload or {})))))

    def changed(self) -> bool:
        return service_main.fake(self.store).save() != FakeStore().save()

    def pid(self, name: str) -> int:
        return int((self.units / UNIT.format(name)).read_text())

    def saved(self, name: str) -> Path:
        return self.folder / "controllers" / name / "saved.json"

    def journal(self, name: str) -> Path:
        return self.folder / "controllers" / name / "journal.jsonl"

    def row(self) -> dict:
        (row,) = remote.status(self)["controllers"]
        return row

    def log(self) -> str:
        return (self.units / "log").read_text()


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    made = Ground(tmp_path)
    root = HERE.parents[1]
    monkeypatch.setenv("FAKE_STORE", str(made.store))
    monkeypatch.setenv("FAKE_UNITS", str(made.units))
    monkeypatch.setenv("FAKE_CONFIGS", str(tmp_path / "etc"))
    monkeypatch.setenv("PYTHONPATH", str(root))
    yield made
    made.call("control-stop")


def gone(pid: int) -> bool:
    # The fake systemctl that started it has ended, so this process need not reap it.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_a_followed_journal_survives_a_broken_connection(ground, monkeypatch):
    monkeypatch.setattr(control, "FOLLOW_S", 0.05)
    monkeypatch.setattr(remote, "AGAIN_S", 0.0)
    remote.start(ground, "dlr", interval_s=0.1)
    asked: list[int] = []

    def stream(verb: str, payload: dict) -> Iterator[dict]:
        assert verb == "control-follow"
        asked.append(payload["offset"])
        for number, piece in enumerate(ground.control.follow(payload)):
            # Pieces end anywhere.
            cut = len(piece["text"]) // 2
            yield {
                "text": piece["text"][:cut],
                "offset": piece["offset"] - len(piece["text"]) + cut,
            }
            if len(asked) < 3 and number == 1:
                raise RemoteError("the node is down.", retry=True)
            yield {"text": piece["text"][cut:], "offset": piece["offset"]}

    lost: list[str] = []
    monkeypatch.setattr(ground, "stream", stream, raising=False)
    lines = []
    for line in remote.follow(ground, "dlr", lost.append):
        lines.append(line)
        if line.get("step") == 5:
            remote.stop(ground)
    assert len(lost) == 2
    assert asked[0] == 0 < asked[1] < asked[2]
    journal = read_journal(ground.journal("dlr"))
    assert lines == [journal.header, *journal.steps, journal.footer]


def test_start_run_stop(ground):
    started = remote.start(ground, "dlr", interval_s=0.1)
    assert started["healed"] == []
    until(ground.changed)
    shown = remote.status(ground)
    assert shown["running"] == "dlr"
    until(lambda: remote.status(ground)["controllers"][0]["last"])
    stopped = remote.stop(ground)
    assert (stopped["name"], stopped["was_running"], stopped["code"]) == ("dlr", True, 0)
    assert stopped["reason"] == "stopped"
    assert not ground.changed()
    path = remote.fetch_journal(ground, "dlr", ground.folder / "fetched.jsonl")
    journal = read_journal(path)
    assert journal.header["parameters"]["theta_h"] == 50
    assert journal.footer is not None
    assert replay(journal).equal
    assert replay(journal).same_code


def test_kill_9_is_healed_by_the_next_start(ground):
    remote.start(ground, "dlr", interval_s=0.1)
    until(ground.changed)
    pid = ground.pid("dlr")
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    assert ground.changed()
    assert ground.saved("dlr").exists()
    assert ground.row()["leftover"]
    assert ground.row()["steered"]
    started = remote.start(ground, "default", interval_s=0.1)
    assert [effect["ok"] for effect in started["healed"]] == [True]
    assert not ground.changed()
    assert not ground.saved("dlr").exists()


def test_kill_9_is_healed_by_stop(ground):
    remote.start(ground, "dlr-pg", interval_s=0.1)
    until(ground.changed)
    os.kill(ground.pid("dlr-pg"), signal.SIGKILL)
    until(lambda: gone(ground.pid("dlr-pg")))
    assert ground.changed()
    journal = ground.journal("dlr-pg")
    with journal.open("a") as file:
        file.write('{"schema": 1, "step": 99')  # a line cut off by the kill
    stopped = remote.stop(ground, "dlr-pg")
    assert not stopped["was_running"]
    assert stopped["code"] == EXIT_DIED
    assert len(stopped["healed"]) == 1
    assert not ground.changed()
    ended = read_journal(journal)
    assert ended.footer is not None
    assert ended.footer["restored"] == stopped["healed"]
    assert not ended.torn
    assert stopped["steps"] == len(ended.steps)
    assert replay(ended).equal
    assert remote.stop(ground)["healed"] == []


def test_kill_9_takes_the_policys_process_along(ground):
    marker = ground.folder / "asleep"
    bad = f"open({str(marker)!r}, 'w').close(); time.sleep(600)"
    dirs = [naughty.write(ground.folder / "outside", "sleepy", bad, good=0)]
    remote.start(ground, "sleepy", interval_s=0.1, controllers_dirs=dirs)
    pid = ground.pid("sleepy")
    until(marker.exists)
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(child))


def test_kill_9_is_healed_by_exec_stop_post(ground):
    remote.start(ground, "oracle", interval_s=0.1)
    until(ground.changed)
    os.kill(ground.pid("oracle"), signal.SIGKILL)
    until(lambda: gone(ground.pid("oracle")))
    config = str(ground.folder / "etc" / "oracle.json")
    down = ground.folder / "down"
    down.touch()
    assert service_main.main(["--restore", config], service_main.open_fake) == EXIT_NOT_RESTORED
    assert ground.row()["leftover"]
    assert ground.row()["outcome"]["code"] == EXIT_DIED
    assert read_journal(ground.journal("oracle")).footer is not None
    down.unlink()
    for _ in range(2):
        assert service_main.main(["--restore", config], service_main.open_fake) == 0
        assert not ground.changed()
        assert not ground.row()["leftover"]
        assert len(read_journal(ground.journal("oracle")).steps) == ground.row()["outcome"]["steps"]


def test_a_store_that_does_not_answer_does_not_hold_up_a_stop(ground):
    remote.start(ground, "dlr", interval_s=0.1)
    until(ground.changed)
    (ground.folder / "down").touch()
    with raises(StoreError, "no monitor answers") as refused:
        remote.stop(ground)
    assert all(f"osd.{osd}=" in str(refused.value) for osd in range(4))
    assert "osd.4" not in str(refused.value)
    until(lambda: gone(ground.pid("dlr")))
    (ground.folder / "down").unlink()
    remote.stop(ground)
    assert not ground.changed()


def test_sigint_restores_too(ground):
    remote.start(ground, "dlr", interval_s=0.1)
    until(ground.changed)
    os.kill(ground.pid("dlr"), signal.SIGINT)
    until(lambda: gone(ground.pid("dlr")))
    assert not ground.changed()
    assert not ground.saved("dlr").exists()


def test_a_journal_that_is_cut_short_stops_the_controller(ground):
    """The kernel writes only a part of a line."""
    remote.start(ground, "dlr", interval_s=0.1)
    path = ground.folder / "controllers" / "dlr" / "journal.jsonl"
    until(ground.changed)
    until(lambda: path.stat().st_size > 2 * ground.store.stat().st_size)
    pid, limit = ground.pid("dlr"), path.stat().st_size + 700
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
    until(lambda: gone(pid))
    assert not ground.changed()
    stopped = remote.stop(ground, "dlr")
    assert stopped["code"] == EXIT_FAILED
    assert str(path) in stopped["reason"]
    journal = read_journal(path)
    assert not journal.torn
    assert replay(journal).equal


def test_an_outcome_that_cannot_be_written_is_a_failure(ground):
    remote.start(ground, "dlr", interval_s=0.1)
    until(ground.changed)
    pid = ground.pid("dlr")
    (ground.folder / "controllers" / "dlr" / "outcome.json").mkdir()
    os.kill(pid, signal.SIGTERM)
    until(lambda: gone(pid))
    assert not ground.changed()
    assert remote.stop(ground, "dlr")["code"] is None
    assert "outcome.json" in ground.log()


def test_one_controller_at_a_time(ground):
    remote.start(ground, "dlr", interval_s=0.1)
    with pytest.raises(UserError):
        remote.start(ground, "oracle", interval_s=0.1)
    with pytest.raises(UserError):
        remote.stop(ground, "oracle")


def test_a_start_that_fails_says_why(ground):
    (ground.folder / "down").touch()
    with raises(StoreError, "no monitor answers"):
        remote.start(ground, "dlr", interval_s=0.1)
    (ground.folder / "down").unlink()
    assert remote.status(ground)["running"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "../x"}, "no controller's name"),
        ({"interval_s": 0}, "allowed"),
        ({"seed": 1.5}, "whole number"),
        ({"parameters": 3}, "mapping"),
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"signal": ...}, "'signal' is missing"),
    ],
)
def test_settings_are_checked_on_the_admin_node_as_well(ground, change, words):
    payload = {"name": "dlr", "seed": 1, "interval_s": 1.0, "signal": "node"} | change
    payload = {name: value for name, value in payload.items() if value is not ...}
    with raises(UserError, words):
        ground.call("control-start", payload)


def test_what_is_packed_is_unpacked(tmp_path):
    naughty.write(tmp_path, "mine", "return state, []")
    (tmp_path / "mine" / "__pycache__").mkdir()
    (tmp_path / "mine" / "__pycache__" / "x.pyc").write_bytes(b"x")
    code = remote.pack(find("mine", [tmp_path]))
    assert code == remote.pack(find("mine", [tmp_path]))
    unpack(code, tmp_path / "there")
    files = [p.relative_to(tmp_path / "there").as_posix() for p in (tmp_path / "there").rglob("*")]
    assert sorted(files) == ["mine", "mine/policy.py"]


def test_an_archive_that_leads_out_is_refused(tmp_path):
    import base64
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    with pytest.raises(UnsafeNameError):
        unpack(base64.b64encode(buffer.getvalue()).decode(), tmp_path / "in")
    with raises(UserError, "no base64 tar"):
        unpack("%%%", tmp_path / "in")
    assert not (tmp_path / "evil").exists()
