"""Verbs up, down, status, ssh, exec and snapshot on the fake site. A script that runs the command
here replaces ssh.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from testbed import choose, doctor, reach, sites
from testbed import client as agent
from testbed.checks import CheckResult
from testbed.deploy import deployment
from testbed.sites.contract import Progress, SiteError, Status, Testbed, silent
from testbed.sites.fake import FakeSite
from tests.hotbed.runner import hotbed

SPEC = """
name: small
store: null
site: {kind: fake}
groups:
  - {name: admin, roles: [admin, client]}
  - {name: osd, count: 2, roles: [osd], disk: {}}
"""

SSH = """#!/bin/sh
while [ "$1" != -- ]; do address=$1; shift; done
case $FAIL_ON in ?*) echo "$address" | grep -q "$FAIL_ON" && exit 3;; esac
exec sh -c "$2"
"""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSite:
    found = FakeSite(tmp_path)
    for module in (choose, sites):
        monkeypatch.setattr(module, "kinds", lambda: ("fake",))
        monkeypatch.setattr(module, "open_site", lambda kind="fake", options=None: found)
    monkeypatch.setattr(doctor, "require", lambda *names, **more: None)
    monkeypatch.setattr(reach, "control_dir", lambda name, directory: tmp_path / "control")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return found


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SPEC)
    return path


def test_up_only_tells_what_it_takes(
    site: FakeSite, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hotbed("up", spec_file, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 3
    assert hotbed("up", spec_file, "--dry-run") == 0
    assert "3 nodes, 0 node-hours; in memory" in capsys.readouterr().out
    assert site.names() == []


def test_up_status_down(
    site: FakeSite, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hotbed("up", spec_file, "--name", "mine", "--json") == 0
    up = json.loads(capsys.readouterr().out)
    assert [node["name"] for node in up["nodes"]] == ["admin", "osd0", "osd1"]
    assert hotbed("status", "--json") == 0
    (status,) = json.loads(capsys.readouterr().out)
    assert (status["name"], status["state"]) == ("mine", "ready")
    assert hotbed("status", "mine") == 0
    assert "osd1" in capsys.readouterr().out
    assert hotbed("down", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": ["mine"]}
    assert hotbed("down", "--all") == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_what_was_interrupted_says_in_a_line_how_to_resume(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hotbed("up", spec_file)
    site.snapshot("small", "clean")
    for ending, code in ((KeyboardInterrupt(), 130), (SystemExit(143), 143)):
        ends = mock.Mock(side_effect=ending)
        for owner, name in ((site, "provision"), (deployment, "bring"), (site, "restore")):
            monkeypatch.setattr(owner, name, ends)
        for words in (["up", str(spec_file)], ["deploy"], ["snapshot", "restore", "clean"]):
            monkeypatch.setattr("sys.argv", ["/bin/hotbed", *words])
            capsys.readouterr()
            assert hotbed(*words) == code
            *_, last = capsys.readouterr().err.splitlines()
            assert last.endswith(shlex.join(["hotbed", *words]))


def test_down_all_goes_on_after_one_that_cannot_be_removed(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("first", "away", "last"):
        assert hotbed("up", spec_file, "--name", name) == 0
    release = site.release

    def releases(name: str, progress: Progress = silent) -> None:
        if name == "away":
            raise SiteError("host h1 does not answer.")
        release(name, progress)

    monkeypatch.setattr(site, "release", releases)
    capsys.readouterr()
    assert hotbed("down", "--all", "--json") == 1
    out, error = capsys.readouterr()
    assert json.loads(out) == {"removed": ["first", "last"]}
    assert "1 of 3 testbeds" in error
    assert site.names() == ["away"]
    assert hotbed("down") == 1
    assert capsys.readouterr().err.count("host h1 does not answer") == 1


def test_doctor_looks_for_open_back_ends_where_a_testbed_is_up(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = {"osd0": CheckResult("peers", "ports 873", False, "no rule for 873", "hotbed deploy")}
    monkeypatch.setattr(doctor, "diagnose", lambda *_: [])
    monkeypatch.setattr(doctor, "peer_findings", lambda testbed: opened)
    assert hotbed("doctor", "--site", spec_file) == 0
    assert hotbed("up", spec_file) == 0
    capsys.readouterr()
    assert hotbed("doctor", "--site", spec_file, "--json") == 1
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    assert (machine["node"], machine["findings"][0]["ok"]) == ("osd0", False)
    opened.clear()
    assert hotbed("doctor", "--site", spec_file) == 0


def test_one_that_cannot_be_asked_does_not_hide_the_others(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("away", "there"):
        assert hotbed("up", spec_file, "--name", name) == 0
    status = site.status

    def asked(name: str) -> Status:
        if name == "away":
            raise SiteError("the cloud does not answer.", retry_after_s=30.0)
        return status(name)

    monkeypatch.setattr(site, "status", asked)
    capsys.readouterr()
    assert hotbed("status", "--json") == 0
    away, there = json.loads(capsys.readouterr().out)
    assert (away["state"], there["state"]) == ("failed", "ready")
    assert away["detail"].endswith("the cloud does not answer")
    assert hotbed("status", "away") == 1
    assert "Try again in 30 s" in capsys.readouterr().err


def test_a_name_is_one_testbeds_on_all_sites(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = FakeSite()
    monkeypatch.setattr(other, "kind", "other", raising=False)
    monkeypatch.setattr(choose, "existing", lambda: [(other, "small")])
    assert hotbed("up", spec_file) == 2
    error = capsys.readouterr().err
    assert "'small' is there already" in error
    assert "--name" in error
    assert site.names() == []


def test_a_users_mistakes_are_one_sentence(
    site: FakeSite, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in (
        (("down", "gone"), "no testbed 'gone'"),
        (("down", "gone", "--all"), "not both"),
        (("up", spec_file, "--name", "Not A Name"), "--name"),
        (("up", "missing.yaml"), "missing.yaml"),
        (("exec", "all", "--", "true"), "hotbed up SPEC"),
    ):
        assert hotbed(*arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.strip().splitlines()) == 1


def test_exec_prefixes_lines_and_fails_when_one_does(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hotbed("up", spec_file)
    capsys.readouterr()
    assert hotbed("exec", "osd", "--", "echo", "two  words", "$HOME") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "osd0 | two  words $HOME",
        "osd1 | two  words $HOME",
    ]
    assert hotbed("exec", "admin", "--", "echo a; echo b >&2") == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("admin | a\n", "admin | b\n")
    osd1 = site.provision(site._kept["small"].spec).node("osd1").address
    monkeypatch.setenv("FAIL_ON", osd1)
    assert hotbed("exec", "all", "--", "true") == 1
    assert capsys.readouterr().err.strip() == "osd1  | exit code 3"


def test_ssh_hands_over(
    site: FakeSite,
    spec_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hotbed("up", spec_file)
    seen: list[str] = []

    def execvp(program: str, argv: list[str]) -> None:
        seen[:] = argv
        raise SystemExit(0)

    monkeypatch.setattr(os, "execvp", execvp)
    address = site.provision(site._kept["small"].spec).node("osd1").address
    assert hotbed("ssh", "osd1") == 0
    assert seen[-1] == f"root@{address}"
    assert "StrictHostKeyChecking=yes" in seen
    assert hotbed("ssh", "osd1", "printf", "'%s-'", "a", "'b c' | cat") == 0
    assert f"root@{address}" in seen
    assert subprocess.check_output(["sh", "-c", seen[-1]]) == b"a-b c-"
    assert hotbed("ssh", "osd") == 2
    assert "more than one node (osd0, osd1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("top", "--once"), *(("control", *verb) for verb in (["stop"], ["status"], ["log", "dlr"]))],
)
def test_looking_and_stopping_work_on_what_is_there(
    site: FakeSite, spec_file: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    site.fail_after = 2
    assert hotbed("up", spec_file) == 1
    assert hotbed("exec", "admin", "--", "true") == 0
    reached: list[Testbed] = []

    def client(testbed: Testbed) -> None:
        reached.append(testbed)
        raise SiteError("as far as this test goes")

    monkeypatch.setattr(agent, "agent_client", client)
    assert hotbed(*words) == 1
    assert [testbed.name for testbed in reached] == ["small"]
    assert hotbed("control", "start", "dlr") == 2
    assert len(reached) == 1


def test_snapshots(site: FakeSite, spec_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hotbed("up", spec_file)
    assert hotbed("snapshot", "save", "clean") == 0
    capsys.readouterr()
    assert hotbed("snapshot", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == ["clean"]
    assert hotbed("snapshot", "restore", "clean") == 0
    assert hotbed("snapshot", "restore", "dirty") == 2
    assert "allowed: clean" in capsys.readouterr().err
