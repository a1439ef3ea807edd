"""A node that is started again keeps what a deployment let in."""

from __future__ import annotations

from pathlib import Path

from testbed.sites.local.container import Container


def test_a_restart_keeps_the_admin_node_s_key_and_renews_the_login_key(tmp_path: Path) -> None:
    container = Container(tmp_path / "osd0", "osd0", "machine")
    for folder in ("etc/ssh", "root"):
        (container.root / folder).mkdir(parents=True)
    host_key = tmp_path / "host_key"
    for path in (host_key, host_key.with_suffix(".pub")):
        path.write_text("key\n")
    container.furnish("127.0.0.1 localhost\n", "ssh-ed25519 OLD hotbed-dlr", host_key)
    keys = container.root / "root" / ".ssh" / "authorized_keys"
    with keys.open("a") as stream:
        stream.write("ssh-ed25519 ADMIN hotbed-admin\n")
    container.furnish("127.0.0.1 localhost\n", "ssh-ed25519 NEW hotbed-dlr", host_key)
    assert keys.read_text().splitlines() == [
        "ssh-ed25519 NEW hotbed-dlr",
        "ssh-ed25519 ADMIN hotbed-admin",
    ]
    assert keys.stat().st_mode & 0o777 == 0o600
