"""Commands on the node's side of a connection."""

import shlex
import subprocess
from pathlib import Path

import pytest

from testbed.ssh import SshTarget, attended
from tests import waiting


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
def test_a_command_ended_by_a_signal_is_told_from_a_node_that_does_not_answer(
    script: str, code: int
) -> None:
    assert _on_the_node(["sh", "-c", script]) == code
    assert _on_the_node(attended(["sh", "-c", script])) == code


def test_arguments_arrive_as_they_were_given(tmp_path: Path) -> None:
    words = ["test", "a b;exit 3", "=", "a b;exit 3"]
    assert _on_the_node(words) == 0
    assert _on_the_node(attended(words)) == 0
    assert _on_the_node(attended(["no-such-program"])) == 127
    # A user's own machine may have no Python yet.
    for name in ("sh", "test"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    assert _on_the_node(attended(words), PATH=str(tmp_path)) == 0


@pytest.mark.parametrize("ignored", ["", "TERM"])
def test_an_attended_command_ends_with_its_connection(ignored: str) -> None:
    script = f"trap '' {ignored}; sleep 1000 & echo $$ $!; wait"
    process = subprocess.Popen(
        _line(attended(["sh", "-c", script])), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    process.stdout.close()  # as sshd does when the client is gone
    assert [waiting.ends(pid) for pid in pids] == [True, True]
    process.wait(30)


def test_an_attended_command_reads_its_input_to_the_end() -> None:
    line = _line(attended(["sh", "-c", "cat; echo end"]))
    assert subprocess.check_output(line, input=b"text\n") == b"text\nend\n"


def test_through_another_machine_host_keys_are_checked_at_every_step() -> None:
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


def test_ssh_takes_a_path_with_spaces_for_one(tmp_path: Path) -> None:
    """A path that ssh has to split is refused."""
    folder = tmp_path / 'my "100 %" state'
    target = SshTarget(
        "osd1", "192.0.2.1", folder / "id", folder / "known_hosts", control_dir=folder / "ssh"
    )
    done = subprocess.run(
        ["ssh", "-G", *target.options(), "root@192.0.2.1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert told["userknownhostsfile"] == f"{folder}/known_hosts"
    assert told["controlpath"].startswith(f"{folder}/ssh/")
    assert told["identityfile"].replace("%%", "%") == f"{folder}/id"  # expanded later
