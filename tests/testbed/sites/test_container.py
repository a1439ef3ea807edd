"""What the local site writes into a node's root before it boots."""

from __future__ import annotations

import pytest

from testbed.sites.local.container import Container


@pytest.fixture
def container(tmp_path):
    for folder in ("etc/ssh", "root"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    return Container(tmp_path, "osd0", "hotbed-test-osd0")


@pytest.fixture
def host_key(tmp_path):
    path = tmp_path / "host_key"
    path.write_text("private\n")
    path.with_suffix(".pub").write_text("public\n")
    return path


def test_a_restarted_node_keeps_the_keys_that_were_let_in(container, host_key):
    container.furnish("127.0.0.1 localhost\n", "ssh-ed25519 AAA hotbed-dlr", host_key)
    authorized = container.root / "root" / ".ssh" / "authorized_keys"
    # The role agent lets the admin node in; a restore from a snapshot starts the node anew.
    authorized.write_text(authorized.read_text() + "ssh-ed25519 BBB hotbed-admin\n")
    container.furnish("127.0.0.1 localhost\n", "ssh-ed25519 AAA hotbed-dlr", host_key)
    assert authorized.read_text().splitlines() == [
        "ssh-ed25519 AAA hotbed-dlr",
        "ssh-ed25519 BBB hotbed-admin",
    ]
    assert authorized.stat().st_mode & 0o777 == 0o600


def test_a_site_key_made_anew_replaces_the_old_one(container, host_key):
    container.furnish("", "ssh-ed25519 AAA hotbed-dlr", host_key)
    container.furnish("", "ssh-ed25519 CCC hotbed-dlr", host_key)
    authorized = container.root / "root" / ".ssh" / "authorized_keys"
    assert authorized.read_text() == "ssh-ed25519 CCC hotbed-dlr\n"
