"""Connections and commands: the node's side, the client's folder, ends with the starter."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed import reach
from testbed.sites.contract import Node, Testbed
from testbed.sites.local.process import tied
from testbed.ssh import SshTarget, attended
from tests import waiting
from tests.errors import raises
from tests.waiting import ends


def _line(argv: list[str]) -> list[str]:
    """Return the command that sshd runs on the node."""
    target = SshTarget("osd1", "127.0.0.1", Path("key"), Path("known_hosts"))
    return ["/bin/bash", "-c", target.command(argv)[-1]]


def _on_the_node(argv: list[str], **environment: str) -> int:
    """Return the exit code that sshd's shell would pass on."""
    return subprocess.run(_line(argv), env=environment or None, check=False).returncode


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_a_command_ended_by_a_signal_differs_from_a_node_that_does_not_answer(script, code):
    assert _on_the_node(["sh", "-c", script]) == code
    assert _on_the_node(attended(["sh", "-c", script])) == code


def test_arguments_and_input_arrive_as_they_were_given(tmp_path):
    words = ["test", "a b;exit 3", "=", "a b;exit 3"]
    assert _on_the_node(words) == 0
    assert _on_the_node(attended(words)) == 0
    assert _on_the_node(attended(["no-such-program"])) == 127
    # A user's own machine may have no Python yet.
    for name in ("sh", "test"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    assert _on_the_node(attended(words), PATH=str(tmp_path)) == 0
    line = _line(attended(["sh", "-c", "cat; echo end"]))
    assert subprocess.check_output(line, input=b"text\n") == b"text\nend\n"


@pytest.mark.slow  # it waits for time limits
@pytest.mark.parametrize("ignored", ["", "TERM"])
def test_an_attended_command_ends_with_its_connection(ignored):
    script = f"trap '' {ignored}; sleep 1000 & echo $$ $!; wait"
    process = subprocess.Popen(
        _line(attended(["sh", "-c", script])), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    process.stdout.close()  # as sshd does when the client is gone
    assert [waiting.ends(pid) for pid in pids] == [True, True]
    process.wait(30)


def test_through_another_machine_host_keys_are_checked_at_every_step():
    key, known = Path("my key"), Path("/keys/known%hosts")
    gateway = SshTarget("bastion", "192.0.2.1", None, known, user="me", port=2222)
    head = SshTarget("head", "10.0.0.1", key, known, jump=gateway)
    inside = SshTarget("osd0", "2001:db8::7", key, known, port=2200, jump=head)
    proxy = inside.proxy_command
    assert proxy is not None
    assert f"ProxyCommand={proxy}" in inside.options()
    # ssh's reading: each hop removes one level of percent signs and quotes.
    outer = shlex.split(proxy.replace("%%", "%"))
    assert outer[-3:] == ["-W", "[2001:db8::7]:2200", "root@10.0.0.1"]
    assert "StrictHostKeyChecking=yes" in outer
    assert 'IdentityFile="my key"' in outer
    (nested,) = (word for word in outer if word.startswith("ProxyCommand="))
    inner = shlex.split(nested.removeprefix("ProxyCommand=").replace("%%", "%"))
    assert inner[-3:] == ["-W", "10.0.0.1:22", "me@192.0.2.1"]
    assert "StrictHostKeyChecking=yes" in inner
    assert "UserKnownHostsFile=/keys/known%%hosts" in inner  # ssh expands it once more
    assert inner[inner.index("-p") + 1] == "2222"
    # Without a given key, ssh chooses.
    assert not any(word.startswith("IdentityFile=") for word in inner)


# -- folder of a testbed's connections -------------------------------------------------------------


ME = 12345


@pytest.fixture
def testbed(tmp_path, monkeypatch):
    """Return a testbed of a user who is not root."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: ME)
    lstat = Path.lstat

    def mine(path: Path) -> object:
        found = list(lstat(path))
        found[stat.ST_UID] = 666 if path.name.startswith("theirs") else ME
        return type("Found", (), {"st_mode": found[stat.ST_MODE], "st_uid": found[stat.ST_UID]})

    monkeypatch.setattr(Path, "lstat", mine)
    return Testbed("t", "fake", (), tmp_path / "key", tmp_path / "known", tmp_path, "hash")


def test_the_folder_is_closed_to_others_and_a_link_is_not_followed(testbed, tmp_path):
    folder = reach.make_control_dir(testbed)
    assert folder == reach.control_dir("t", testbed.directory)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with raises(UserError, "is no folder of yours"):
        reach.make_control_dir(testbed)


def test_what_it_lies_in_may_be_nobody_elses(testbed, monkeypatch, tmp_path):
    """Its owner could replace the folder by one with other connections."""
    monkeypatch.setattr(reach, "control_dir", lambda *_: tmp_path / "theirs" / "t")
    with raises(UserError, do="XDG_RUNTIME_DIR"):
        reach.make_control_dir(testbed)


def test_a_key_that_a_volume_lets_others_read_is_closed_again(tmp_path):
    """Otherwise ssh would refuse the key."""
    node = Node("a", "192.0.2.1", frozenset(), "g")
    testbed = Testbed("t", "fake", (node,), tmp_path / "key", tmp_path / "known", tmp_path, "hash")
    reach.target_of(testbed, node)  # ssh reports a missing key itself
    for mode in (0o660, 0o600, 0o400):
        testbed.ssh_key.write_text("")
        testbed.ssh_key.chmod(mode)
        reach.target_of(testbed, node)
        assert stat.S_IMODE(testbed.ssh_key.stat().st_mode) == mode & 0o700
        testbed.ssh_key.unlink()


# -- commands that end with their starter ----------------------------------------------------------


REPOSITORY = Path(__file__).parents[2]
_STARTS = """
import subprocess, sys
from testbed.sites.local.process import tied
print(subprocess.Popen(tied(["sleep", "600"])).pid, flush=True)
sys.stdin.read()
"""
# Run the real one once this file exists, so that its starter has time to die first.
_LATE = """#!/bin/sh
while [ ! -e {go} ]; do sleep 0.02; done
PATH={path} exec setpriv "$@"
"""


def start(path: str) -> tuple[subprocess.Popen[bytes], int]:
    """Return a process that has started a tied process, and the tied process's id."""
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTS],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    return starter, int(starter.stdout.readline())


def kill(starter: subprocess.Popen[bytes]) -> None:
    starter.send_signal(signal.SIGKILL)
    starter.wait()


def test_it_runs_while_its_starter_lives_and_not_longer():
    starter, pid = start(os.environ["PATH"])
    comm = Path(f"/proc/{pid}/comm")
    end = time.monotonic() + 30.0
    while comm.read_text() != "sleep\n":
        assert time.monotonic() < end, "it was not started"
        time.sleep(0.01)
    kill(starter)
    assert ends(pid)


def test_it_does_not_begin_when_its_starter_died_before_the_kernel_was_asked(tmp_path):
    go, late = tmp_path / "go", tmp_path / "setpriv"
    late.write_text(_LATE.format(go=go, path=os.environ["PATH"]))
    late.chmod(0o755)
    starter, pid = start(f"{tmp_path}:{os.environ['PATH']}")
    kill(starter)
    go.touch()
    assert ends(pid)


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_the_command_s_arguments_and_exit_code_stay_its_own(name):
    script = 'printf "%s|" "$@"; exit 7'
    done = subprocess.run(
        tied(["sh", "-c", script, "sh", "a b", "$x", ""], name), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (7, b"a b|$x||")
