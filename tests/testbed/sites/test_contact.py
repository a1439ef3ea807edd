"""Reaching machines by the real ssh client, or one that is played: what goes wrong is told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import RemoteError
from testbed.sites.inventory.clocks import offset_of
from testbed.sites.inventory.contact import OpenSsh
from testbed.ssh import Completed, SshShell, SshTarget
from tests.testbed.sites.manual_clock import ManualClock


@pytest.fixture
def target(tmp_path: Path) -> SshTarget:
    return SshTarget("osd0", "192.0.2.1", None, tmp_path / "known_hosts")


@pytest.fixture
def ssh_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stands in an ssh that says so and does not get through."""

    def says(stderr: str) -> None:
        program = tmp_path / "ssh"
        program.write_text(f"#!/bin/sh\nprintf '%s' '{stderr}' >&2\nexit 255\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return says


THROUGH = "me@bastion: Permission denied (publickey).\nConnection closed by UNKNOWN port 65535\n"


@pytest.mark.parametrize(
    ("stderr", "told", "again"),
    [
        ("ssh: connect to host a port 22: Connection timed out\n", "Connection timed out", True),
        (THROUGH, "me@bastion: Permission denied (publickey).", False),
        ("Connection closed by UNKNOWN port 65535\n", "Connection closed by UNKNOWN", True),
        ("@@@ WARNING\nHost key verification failed.\n", "Host key verification failed", False),
        ("ssh: Could not resolve hostname a: Name or service not known\n", "resolve", False),
        ("", "no message", True),
    ],
)
def test_who_does_not_answer_is_told_and_whether_to_try_again(
    ssh_says: Callable[[str], None], target: SshTarget, stderr: str, told: str, again: bool
) -> None:
    ssh_says(stderr)
    with pytest.raises(RemoteError) as unseen:
        OpenSsh().host_keys(target)
    with pytest.raises(RemoteError) as lost:
        SshShell(target).run(["true"])
    for error in (unseen.value, lost.value):
        assert "192.0.2.1" in str(error)
        assert told in str(error)
        assert error.retry is again


def test_without_ssh_it_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: SshTarget
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for ask in (lambda: OpenSsh().host_keys(target), lambda: SshShell(target).run(["true"])):
        with pytest.raises(RemoteError, match="'ssh' is missing on this machine"):
            ask()


def test_a_client_that_hangs_is_a_machine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: SshTarget
) -> None:
    def hang(argv: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(argv, 60.0)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(RemoteError, match="showed no host key within 60 s") as lost:
        OpenSsh().host_keys(target)
    assert lost.value.retry
    (tmp_path / "socket").touch()
    OpenSsh().hang_up(tmp_path)


class NoClock:
    """A machine whose `date` knows no nanoseconds."""

    node = "osd0"

    def run(self, argv: list[str], **options: object) -> Completed:
        return Completed(tuple(argv), 0, b"1700000000.%N\n", b"")


def test_a_date_without_nanoseconds_is_a_sentence() -> None:
    with pytest.raises(RemoteError, match=r"osd0 does not tell its time.*'1700000000\.%N'"):
        offset_of(NoClock(), ManualClock())  # type: ignore[arg-type]
