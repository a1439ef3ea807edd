"""Access to machines through the real or a played ssh client, and reports of failures."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import RemoteError, UserError
from testbed.sites.inventory import contact
from testbed.sites.inventory.contact import Contact
from testbed.ssh import SshShell, SshTarget
from tests.errors import raises


@pytest.fixture
def target(tmp_path: Path) -> SshTarget:
    return SshTarget("osd0", "192.0.2.1", None, tmp_path / "known_hosts")


@pytest.fixture
def ssh_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install an ssh that prints a message and fails to connect."""

    def says(stderr: str) -> None:
        program = tmp_path / "ssh"
        program.write_text(f"#!/bin/sh\nprintf '%s' '{stderr}' >&2\nexit 255\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return says


THROUGH = "me@bastion: Permission denied (publickey).\nConnection closed by UNKNOWN port 65535\n"


@pytest.mark.parametrize(
    ("stderr", "said", "again"),
    [
        ("ssh: connect to host a port 22: Connection timed out\n", "Connection timed out", True),
        (THROUGH, "me@bastion: Permission denied (publickey).", False),
        ("Connection closed by UNKNOWN port 65535\n", "Connection closed by UNKNOWN", True),
        ("@@@ WARNING\nHost key verification failed.\n", "Host key verification failed", False),
        ("ssh: Could not resolve hostname a: Name or service not known\n", "resolve", False),
        ("", "no message", True),
    ],
)
def test_no_answer_is_an_error_that_says_if_a_retry_helps(ssh_says, target, stderr, said, again):
    ssh_says(stderr)
    with pytest.raises(RemoteError) as unseen:
        Contact().host_keys(target)
    with pytest.raises(RemoteError) as lost:
        SshShell(target).run(["true"])
    for error in (unseen.value, lost.value):
        assert "192.0.2.1" in str(error)
        assert said in str(error)
        assert error.retry is again


def test_a_client_that_hangs_or_is_missing(tmp_path, monkeypatch, target):
    def hang(argv: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(argv, 60.0)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", hang)
        with raises(RemoteError, "60 s") as lost:
            Contact().host_keys(target)
        assert lost.value.retry
        (tmp_path / "socket").touch()
        Contact().hang_up(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for ask in (lambda: Contact().host_keys(target), lambda: SshShell(target).run(["true"])):
        with raises(RemoteError, "'ssh'"):
            ask()


# -- host keys ------------------------------------------------------------------------------------

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEgKAJy+80440ScWRO4N2WJ+KYAShWkBB6pYs1gEEJtJ"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfYXybGcthgQsBxn3w+gzi8b//Z6aQV93Nhy6cymxJa"
RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDI"


def test_a_key_in_a_file_is_trusted_unless_revoked(tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text(f"# a comment\n192.0.2.1 {KEY}\n[192.0.2.1]:2222,door {OTHER}\n")
    assert contact.known([tmp_path / "none", file], "192.0.2.1", 22) == ([KEY], [])
    assert contact.known([file], "192.0.2.1", 2222) == ([OTHER], [])
    assert contact.known([file], "192.0.2.9", 22) == ([], [])
    file = tmp_path / "known_hosts"
    file.write_text(f"@revoked 192.0.2.1 {KEY}\n@cert-authority 192.0.2.1 {OTHER}\n")
    assert contact.known([file], "192.0.2.1", 22) == ([], [KEY])
    for more in ({"accept": True}, {"expected": KEY}, {"vouched": [KEY]}):
        with pytest.raises(UserError):
            contact.judge("m", [KEY], **{"vouched": [], "revoked": [KEY], **more})
    assert contact.judge("m", [OTHER], vouched=[], revoked=[KEY], accept=True) == [OTHER]


def test_what_files_or_users_vouch_for_is_pinned():
    assert contact.judge("m", [KEY], vouched=[KEY, RSA]) == [KEY, RSA]
    # ssh requests a known key type; unrequested keys of other types do not matter.
    assert contact.judge("m", [KEY], vouched=[RSA], accept=True) == [RSA]
    # One of several keys of the same type is enough, as with ssh.
    assert contact.judge("m", [KEY], vouched=[KEY, OTHER]) == [KEY, OTHER]
    with raises(UserError, "known_hosts has another"):
        contact.judge("m", [KEY], vouched=[OTHER], accept=True)
    for expected in (KEY, f"{KEY} root@m", contact.fingerprint(KEY)):
        assert contact.judge("m", [RSA, KEY], vouched=[], expected=expected) == [KEY]
    with pytest.raises(UserError):
        contact.judge("m", [OTHER], vouched=[OTHER], expected=KEY, accept=True)
    assert contact.judge("m", [KEY], vouched=[], accept=True) == [KEY]
    with pytest.raises(UserError) as refused:
        contact.judge("m", [KEY], vouched=[])
    assert contact.fingerprint(KEY) in str(refused.value)
    assert "--accept-host-keys" in str(refused.value)
