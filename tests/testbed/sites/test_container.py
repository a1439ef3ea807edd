"""Files that the local site writes into a node's root before it boots."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.sites.contract import SiteError
from testbed.sites.local.container import Container

LOGIN = "ssh-ed25519 AAA hotbed-dlr"


@pytest.fixture
def container(tmp_path: Path) -> Container:
    for folder in ("node/root/etc/ssh", "node/root/root", "outside/ssh", "outside/.ssh"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("hosts", "hostname", "authorized_keys", ".ssh/authorized_keys"):
        (tmp_path / "outside" / name).write_text(f"ssh-ed25519 SECRET {name}\n")
    (tmp_path / "outside").chmod(0o755)
    return Container(tmp_path / "node", "osd0", "hotbed-test-osd0")


@pytest.fixture
def furnish(container: Container, tmp_path: Path) -> Callable[[str], None]:
    host_key = tmp_path / "host_key"
    host_key.write_text("private\n")
    host_key.with_suffix(".pub").write_text("public\n")
    return lambda login: container.furnish("127.0.0.1 localhost\n", login, host_key)


@pytest.fixture
def authorized(container: Container) -> Path:
    return container.root / "root" / ".ssh" / "authorized_keys"


def test_a_plain_root_gets_its_name_and_keys(
    container: Container, furnish: Callable[[str], None], authorized: Path
) -> None:
    furnish(LOGIN)
    etc = container.root / "etc"
    assert (etc / "hostname").read_text() == "osd0\n"
    assert (etc / "hosts").read_text() == "127.0.0.1 localhost\n"
    assert len((etc / "machine-id").read_text()) == 33
    key = etc / "ssh" / "ssh_host_ed25519_key"
    assert (key.read_text(), key.with_suffix(".pub").read_text()) == ("private\n", "public\n")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (key, authorized)}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(authorized.parent.stat().st_mode) == 0o700
    assert [path.name for path in container.root.rglob("*.hotbed")] == []


def test_a_restarted_node_keeps_what_a_deployment_wrote_to_its_hosts(
    container: Container, furnish: Callable[[str], None]
) -> None:
    hosts = container.root / "etc" / "hosts"
    hosts.write_text("192.0.2.1 the-hosts-own\n")
    furnish(LOGIN)
    deployed = hosts.read_text() + "# BEGIN hotbed\n192.0.2.2 osd0\n# END hotbed\n"
    hosts.write_text(deployed)
    for _ in range(2):
        furnish(LOGIN)
        assert hosts.read_text() == deployed


def test_a_restarted_node_keeps_the_keys_that_were_let_in(
    furnish: Callable[[str], None], authorized: Path
) -> None:
    furnish(LOGIN)
    # The agent role admits the admin node; a restore from a snapshot restarts the node.
    authorized.write_bytes(authorized.read_bytes() + b"ssh-ed25519 BBB hotbed-admin\n\xff odd\n")
    furnish("ssh-ed25519 CCC hotbed-dlr")
    assert authorized.read_bytes().splitlines() == [
        b"ssh-ed25519 CCC hotbed-dlr",
        b"ssh-ed25519 BBB hotbed-admin",
        b"\xff odd",
    ]


def _snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *sorted(folder.rglob("*")))
    }


OUT = "{outside}"
UP = "../" * 40 + "{outside}"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(
            (name, target)
            for name in ("etc", "etc/ssh", "root", "root/.ssh")
            for target in (OUT, UP)
        ),
        *((f"etc/{name}", f"{OUT}/{name}") for name in ("hosts", "hostname", "machine-id")),
        *((".ssh_keys", f"{top}/authorized_keys") for top in (OUT, UP)),
        ("etc", "etc"),
        ("root/.ssh", "../root/.ssh"),
        (".ssh_keys", "authorized_keys"),
        ("etc/.hosts.hotbed", f"{OUT}/hosts"),
        ("etc", "/proc/self/cwd"),
        ("root/.ssh", "/proc/self/root{outside}"),
    ],
)
def test_a_nodes_links_lead_the_host_to_nothing_outside(
    container: Container,
    furnish: Callable[[str], None],
    authorized: Path,
    name: str,
    target: str,
) -> None:
    link = container.root / name
    if name == ".ssh_keys":
        link = authorized
        authorized.parent.mkdir()
    if link.is_dir():
        shutil.rmtree(link)
    outside = container.folder.parent / "outside"
    link.symlink_to(target.format(outside=outside))
    before = _snapshot(outside)
    try:
        furnish(LOGIN)
    except SiteError as error:
        assert "osd0" in str(error)
    else:
        assert authorized.read_text() == f"{LOGIN}\n"
    assert _snapshot(outside) == before
    inside = [
        path for path in container.root.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    assert not any(b"SECRET" in path.read_bytes() for path in inside)


def test_a_link_within_the_root_is_followed_as_the_node_would(
    container: Container, furnish: Callable[[str], None]
) -> None:
    (container.root / "root").rmdir()
    (container.root / "home" / "root").mkdir(parents=True)
    (container.root / "root").symlink_to("/home/root")
    furnish(LOGIN)
    assert (container.root / "home/root/.ssh/authorized_keys").read_text() == f"{LOGIN}\n"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


@pytest.mark.parametrize("make", [_pipe, Path.mkdir, _huge])
def test_what_is_no_small_plain_file_is_not_read(
    furnish: Callable[[str], None], authorized: Path, make: Callable[[Path], None]
) -> None:
    authorized.parent.mkdir()
    make(authorized)
    with pytest.raises(SiteError):
        furnish(LOGIN)
