"""Programs in a bundle: listed, loaded only after consent, and then confined."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import sys
from pathlib import Path

import pytest

from campaigns.bundled import RerunRequest
from controllers import confine
from controllers.decide import PolicyError
from controllers.decider import ChildDecider, open_decider
from controllers.journal import parse_journal
from controllers.registry import FOREIGN, available, create
from controllers.remote import pack as pack_controller
from controllers.replay import replay
from hotbed.bundling import unpacked
from hotbed.verbs.rerun import _agrees
from schemas.errors import UserError
from schemas.names import unpack_tar
from tests.hotbed.own_controllers import SHY, spy, write_shy
from tests.hotbed.runner import hotbed
from tests.hotbed.tiny_bundle import contents, pack


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """Return a file that importing the policy writes."""
    return tmp_path / "marked"


@pytest.fixture
def archive(tmp_path: Path, marked: Path) -> Path:
    """Write a bundle of a simulated campaign with an untrusted controller and notebook."""
    notebook = "../notebooks/strange.ipynb"
    files = contents(tmp_path, "shy", notebook=notebook, time_scale=0.5)  # longer than a read
    files |= {
        "notebooks/strange.ipynb": b"{}",
        "controllers/shy/policy.py": spy(marked).encode(),
    }
    return pack(tmp_path / "x.zip", files)


@pytest.mark.slow
def test_verify_and_a_dry_run_list_code_and_load_none(archive, marked, capsys):
    code = spy(marked).encode()
    digest = hashlib.sha256(code).hexdigest()
    for words in (["verify", archive], ["rerun", archive, "--dry-run"]):
        hotbed(*words, "--json")
        said = json.loads(capsys.readouterr().out)
        report = {one["path"]: one for one in said["foreign_code"]}
        assert report.keys() == {"controllers/shy/policy.py", "notebooks/strange.ipynb"}
        found = report["controllers/shy/policy.py"]
        assert (found["sha256"], found["bytes"]) == (digest, len(code))
    assert any(digest in note for note in said["notes"])
    assert not marked.exists()


def test_code_runs_after_consent_only(archive, marked, tmp_path, capsys):
    new = tmp_path / "new"
    assert hotbed("rerun", archive, "--artifacts", new) == 2
    said = capsys.readouterr().err
    assert "--trust-code" in said
    assert str(confine.outlook()) in said
    assert not marked.exists()
    assert not new.exists()
    assert hotbed("rerun", archive, "--artifacts", new, "--trust-code", "--json") in (0, 1, 4)
    report = capsys.readouterr()
    (record,) = new.glob("dlr-tiny/*/attempt-1/run.json")
    assert json.loads(record.read_text())["status"] == "done"
    assert "\x1b" not in report.err
    assert "policy" in report.err


@pytest.mark.parametrize(("typed", "runs"), [("yes\n", True), ("no\n", False), ("\n", False)])
def test_at_a_terminal_consent_can_be_typed(typed, runs, monkeypatch, capsys):
    for stream in (io.StringIO(typed), sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        if stream is not sys.stderr:
            monkeypatch.setattr(sys, "stdin", stream)
    assert _agrees("what it is") is runs
    assert "what it is" in capsys.readouterr().err


def test_a_strangers_policy_is_confined(archive, marked, tmp_path, monkeypatch):
    if confine.outlook().network:
        pytest.skip("this machine allows no network namespace")
    monkeypatch.setenv("OS_PASSWORD", "hunter22")
    with unpacked(RerunRequest(archive, artifacts=tmp_path / "new")) as ready:
        folder = ready.request.controllers_dir
        assert folder is not None
        controller = available([folder])["shy"]
        with pytest.raises(UserError):
            create(controller, {}, 0)  # in the engine's own process
        decider = open_decider(controller, {}, 0)
        found = decider.parameters
        decider.close()
        unpack_tar(base64.b64decode(pack_controller(controller)), tmp_path / "node", "x")
    assert not marked.exists()
    assert found["uid"] != 0
    assert found["secret"] == "none"
    assert found["network"] in ("OSError", "ConnectionRefusedError")
    assert found["fork"] == "BlockingIOError"
    assert found["home"] in ("PermissionError", "FileNotFoundError") or ".ssh" not in found["home"]
    assert available([tmp_path / "node"])["shy"].foreign  # the mark also reaches the admin node


def test_ones_own_code_is_not_confined(tmp_path):
    write_shy(tmp_path)
    (tmp_path / "shy" / "policy.py").write_text(spy(tmp_path / "marked"))
    decider = ChildDecider("shy", {}, 0, [tmp_path])
    decider.close()
    assert decider.parameters["uid"] == os.getuid()
    assert (tmp_path / "marked").read_text() == "loaded"


def test_a_replay_loads_no_strangers_code_in_the_engine(tmp_path):
    write_shy(tmp_path)
    (tmp_path / "shy" / "policy.py").write_text(spy(tmp_path / "marked"))
    (tmp_path / "shy" / FOREIGN).touch()
    header = {"schema": 1, "header": True, "policy": "shy", "parameters": {}, "seed": 0}
    journal = parse_journal(json.dumps(header | {"code_hash": ""}) + "\n", "test")
    assert replay(journal, [tmp_path]).equal
    assert not (tmp_path / "marked").exists()


@pytest.mark.parametrize("answer", ["print('x')", "print('[' * 100000)", "print('{}')"])
def test_an_answer_that_is_none_is_an_error_of_the_policy(tmp_path, answer):
    write_shy(tmp_path)
    text = f"import os, sys\nsys.stdout = os.fdopen(3, 'w')\n{answer}\nsys.stdout.flush()\n{SHY}"
    (tmp_path / "shy" / "policy.py").write_text(text)
    with pytest.raises(PolicyError):
        ChildDecider("shy", {}, 0, [tmp_path])
