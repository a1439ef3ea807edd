"""What runs on the node's side of a connection."""

import subprocess
from pathlib import Path

import pytest

from testbed.ssh import SshTarget


def _on_the_node(argv: list[str]) -> int:
    """The exit code that sshd's shell would pass on."""
    target = SshTarget("osd1", "127.0.0.1", Path("key"), Path("known_hosts"))
    return subprocess.run(["bash", "-c", target.command(argv)[-1]], check=False).returncode


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_a_command_ended_by_a_signal_is_told_from_a_node_that_does_not_answer(
    script: str, code: int
) -> None:
    assert _on_the_node(["sh", "-c", script]) == code


def test_arguments_arrive_as_they_were_given() -> None:
    assert _on_the_node(["test", "a b;exit 3", "=", "a b;exit 3"]) == 0
