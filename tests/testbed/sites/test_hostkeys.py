"""Whose word makes a host key trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.sites.inventory import hostkeys

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEgKAJy+80440ScWRO4N2WJ+KYAShWkBB6pYs1gEEJtJ"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfYXybGcthgQsBxn3w+gzi8b//Z6aQV93Nhy6cymxJa"
RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDI"


def test_a_key_in_a_file_is_trusted_and_another_of_its_kind_never(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"# a comment\n192.0.2.1 {KEY}\n[192.0.2.1]:2222,door {OTHER}\n")
    assert hostkeys.known([tmp_path / "none", file], "192.0.2.1", 22) == [KEY]
    assert hostkeys.known([file], "192.0.2.1", 2222) == [OTHER]
    assert hostkeys.known([file], "192.0.2.9", 22) == []


def test_what_files_say_is_pinned() -> None:
    assert hostkeys.judge("m", [KEY], vouched=[KEY, RSA]) == [KEY, RSA]
    # ssh asks for a kind that is known: what it shows without asking does not matter.
    assert hostkeys.judge("m", [KEY], vouched=[RSA], accept=True) == [RSA]
    # One of several of its kind will do, as with ssh.
    assert hostkeys.judge("m", [KEY], vouched=[KEY, OTHER]) == [KEY, OTHER]
    with pytest.raises(UserError, match="known_hosts has another"):
        hostkeys.judge("m", [KEY], vouched=[OTHER], accept=True)


def test_a_key_or_fingerprint_of_the_users() -> None:
    for expected in (KEY, f"{KEY} root@m", hostkeys.fingerprint(KEY)):
        assert hostkeys.judge("m", [RSA, KEY], vouched=[], expected=expected) == [KEY]
    with pytest.raises(UserError, match="else this is another machine, or somebody listens"):
        hostkeys.judge("m", [OTHER], vouched=[OTHER], expected=KEY, accept=True)


def test_a_key_that_was_revoked_is_not_taken_at_first_sight(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"@revoked 192.0.2.1 {KEY}\n@cert-authority 192.0.2.1 {OTHER}\n")
    assert hostkeys.known([file], "192.0.2.1", 22) == []
    with pytest.raises(UserError, match=r"has as revoked \(@revoked\)"):
        hostkeys.require_unrevoked("m", [KEY], [file], "192.0.2.1", 22)
    hostkeys.require_unrevoked("m", [OTHER], [file], "192.0.2.1", 22)
    hostkeys.require_unrevoked("m", [KEY], [file], "192.0.2.9", 22)


def test_nobody_vouches() -> None:
    assert hostkeys.judge("m", [KEY], vouched=[], accept=True) == [KEY]
    with pytest.raises(UserError) as refused:
        hostkeys.judge("m", [KEY], vouched=[])
    assert hostkeys.fingerprint(KEY) in str(refused.value)
    assert "--accept-host-keys" in str(refused.value)


def test_a_fingerprint_is_what_ssh_keygen_prints(tmp_path: Path) -> None:
    # As `ssh-keygen -l` prints it: SHA-256 of the key, base64 without padding.
    assert hostkeys.fingerprint(KEY).startswith("SHA256:")
    assert len(hostkeys.fingerprint(KEY)) == len("SHA256:") + 43


def test_pinned_names_have_their_port(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    hostkeys.pin(path, {("192.0.2.1", 22): [KEY], ("192.0.2.1", 2222): [OTHER]})
    assert path.read_text() == f"192.0.2.1 {KEY}\n[192.0.2.1]:2222 {OTHER}\n"
