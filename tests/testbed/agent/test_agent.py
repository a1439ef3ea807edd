"""Dispatch, client and bundle: a verb's path from the engine to the admin node."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys

import pytest

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent import __main__ as dispatch
from testbed.agent import facts, speed
from testbed.agent.contract import (
    AgentConfig,
    AgentNode,
    load_config,
)
from testbed.client import AgentClient, result_of
from testbed.deploy import bundle
from testbed.ssh import Completed, LocalShell
from tests.errors import raises

NODES = (
    AgentNode("admin", "10.0.0.1", ("admin", "mon"), "io_pressure", "/x/io.pressure"),
    AgentNode("osd0", "10.0.0.2", ("osd",), "iowait", None, {"osd": "/dev/vdb"}, (0, 1)),
)
CONFIG = AgentConfig("t", "ceph", NODES, ("bench",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"testbed": "t", "store": "c", "nodes": [{"roles": [], "x": 1}]}', "argument 'x'"),
    ],
)
def test_a_broken_configuration_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "agent.json"
    path.write_text(text)
    with raises(UserError, words):
        load_config(str(path))


def serve(monkeypatch, verb, stdin="{}\n"):
    monkeypatch.setattr(dispatch, "find", lambda name: verb)
    monkeypatch.setattr(dispatch, "load_config", lambda: CONFIG)
    out = io.StringIO()
    code = dispatch.serve("verb", io.StringIO(stdin), out)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_verb_gets_configuration_and_payload_and_may_stream(monkeypatch):
    with raises(UserError, "'dance'"):
        dispatch.find("dance")
    code, answers = serve(monkeypatch, lambda c, p: [c.testbed, p["x"]], '{"x": 1}\n')
    assert (code, answers) == (0, [{"ok": True, "result": ["t", 1]}])
    code, answers = serve(monkeypatch, lambda c, p: iter([1, 2]))
    assert (code, [answer["result"] for answer in answers]) == (0, [1, 2])


@pytest.mark.parametrize(
    ("error", "kind", "retry"),
    [
        (UserError("no such thing."), "user", False),
        (StoreError("no such thing."), "store", False),
        (RemoteError("no such thing.", retry=True), "remote", True),
    ],
)
def test_errors_cross_to_the_engine_as_they_are(monkeypatch, error, kind, retry):
    def fails(config, payload):
        raise error

    code, (answer,) = serve(monkeypatch, fails)
    expected = {"ok": False, "error": "no such thing.", "kind": kind, "retry": retry}
    assert (code, answer) == (1, expected)
    with raises(type(error), "no such thing"):
        result_of("verb", json.dumps(answer).encode())


def test_a_full_disk_is_a_sentence_and_a_defect_a_traceback_for_the_log(monkeypatch, capsys):
    def fails(config, payload):
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/hotbed/x")

    code, (answer,) = serve(monkeypatch, fails)
    assert code == 1
    assert answer["error"].startswith("/var/lib/hotbed/x: No space left on device; ")
    assert capsys.readouterr().err == ""
    code, (answer,) = serve(monkeypatch, lambda c, p: 1 / 0)
    assert (code, answer["error"]) == (1, "ZeroDivisionError: division by zero")
    assert "Traceback" in capsys.readouterr().err


class FakeShell:
    """Shell that answers with `completed` and records its input."""

    node = "admin"

    def __init__(self, code: int = 0, stdout: bytes = b"", stderr: bytes = b"") -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr
        self.given: list[tuple[tuple[str, ...], bytes | None, float]] = []

    def run(self, argv, *, input=None, timeout_s=60.0, check=True):
        self.given.append((tuple(argv), input, timeout_s))
        return Completed(tuple(argv), self.code, self.stdout, self.stderr)


def test_client_calls_the_program_with_one_line_of_json():
    shell = FakeShell(stdout=b'{"ok": true, "result": {"a": 1}}\n')
    assert AgentClient(shell).call("health", {"x": [1]}, timeout_s=7) == {"a": 1}
    assert shell.given == [(("/usr/local/bin/hotbed-agent", "health"), b'{"x": [1]}\n', 7)]
    with raises(UserError, do="hotbed deploy"):
        AgentClient(FakeShell(127, stderr=b"sh: not found")).call("health")
    fields = {"node": "osd0", "unit": "u", "exit_code": 0, "started_at": 1.0, "ended_at": 2.0}
    answer = {"ok": True, "result": fields | {"stdout": "x", "stderr": "", "cpu_s": 0.5}}
    shell = FakeShell(stdout=json.dumps(answer).encode())
    assert AgentClient(shell).unit_wait("osd0", "u", timeout_s=30).cpu_s == 0.5
    assert shell.given[0][2] > 30


@pytest.mark.parametrize(
    ("stdout", "words"), [(b"", "said nothing: killed"), (b"hello\n", "answered garbage")]
)
def test_client_on_an_agent_that_breaks(stdout, words):
    with raises(RemoteError, words):
        AgentClient(FakeShell(1, stdout, b"killed\n")).call("health")


class PipeShell:
    node = "admin"

    def __init__(self, script: str) -> None:
        self.script = script
        self.process: subprocess.Popen[bytes] | None = None

    def popen(self, argv):
        self.process = subprocess.Popen(
            ["sh", "-c", self.script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self.process


def test_client_streams_and_ends_what_it_started():
    shell = PipeShell("""read x; while echo '{"ok": true, "result": 5}'; do sleep 0.05; done""")
    stream = AgentClient(shell).stream("top")
    assert [next(stream), next(stream)] == [5, 5]
    stream.close()
    assert shell.process is not None
    assert shell.process.poll() is not None
    with raises(RemoteError, "ended with 3"):
        list(AgentClient(PipeShell("exit 3")).stream("top"))
    with raises(UserError, do="hotbed deploy"):
        list(AgentClient(PipeShell("exit 127")).stream("top"))


def test_bundle_is_the_same_bytes_and_runs_by_itself(tmp_path):
    first = bundle.write(tmp_path / "a.tar")
    assert bundle.write(tmp_path / "b.tar") == first
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    there = tmp_path / "opt"
    there.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "a.tar", "-C", there], check=True)
    assert (there / "BUNDLE").read_text().strip() == first
    # -S: no site-packages, as on an admin node with only the distribution's python3.
    code = "import importlib; from testbed.agent.verbs import VERBS; " + (
        "assert all(callable(getattr(importlib.import_module(module), name)) "
        "for module, name in (verb.split(':') for verb in VERBS.values()))"
    )
    environment = {"PYTHONPATH": str(there), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verb = [sys.executable, "-S", "-m", "testbed.agent", "health"]
    said = subprocess.run(
        verb, env=environment, input="{}\n", capture_output=True, text=True, check=False
    )
    answer = json.loads(said.stdout)
    assert (said.returncode, answer["ok"], answer["kind"]) == (1, False, "user")


def test_packages_are_exact_and_those_of_all_nodes_identify(tmp_path, monkeypatch):
    """A package that is known and not installed has no version."""
    dpkg = tmp_path / "dpkg-query"
    dpkg.write_text("#!/bin/sh\nprintf 'fio=3.39-1 ceph-osd= radosgw=18.2.7+ds-1 '\n")
    dpkg.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    done = LocalShell("here").run(["env", path, "sh", "-c", facts._SCRIPT])
    assert facts.parse(done.text)["packages"] == "fio=3.39-1 radosgw=18.2.7+ds-1"
    nodes = {"a": {"packages": "fio=3.39-1"}, "b": {"packages": "fio=3.39-1 radosgw=18.2"}}
    monkeypatch.setattr(facts, "facts", lambda config, payload: nodes)
    found = facts.versions(AgentConfig("t", "none", ()), {})
    assert found == {"packages": "fio=3.39-1 radosgw=18.2"}


def test_speed_is_units_of_work_in_a_second_of_the_processor(monkeypatch):
    # Another result of a unit would make speeds incomparable with stored runs.
    fixed = "339adcd1623eee1f7590580dd49701152a2b2691beddd3743ccab97b45c4edb9"
    assert speed.work() == fixed
    spent = [0.0]

    def work() -> str:
        spent[0] += 0.002
        return ""

    monkeypatch.setattr(speed, "work", work)
    monkeypatch.setattr(speed.time, "process_time", lambda: spent[0])
    assert speed.core_speed(CONFIG, {}) == {"units_s": pytest.approx(500)}
