"""Folder of a testbed's ssh connections: a user with write access controls the machines."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed import reach
from testbed.sites.contract import Node, Testbed
from tests.errors import raises

ME = 12345


@pytest.fixture
def testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Testbed:
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


def test_it_is_closed_to_others_and_so_is_what_it_lies_in(testbed: Testbed) -> None:
    folder = reach.make_control_dir(testbed)
    assert folder == reach.control_dir("t", testbed.directory)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700


def test_what_it_lies_in_may_be_nobody_elses(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its owner could replace the folder by one with other connections."""
    monkeypatch.setattr(reach, "control_dir", lambda *_: tmp_path / "theirs" / "t")
    with raises(UserError, do="XDG_RUNTIME_DIR"):
        reach.make_control_dir(testbed)


def test_a_link_is_not_followed(testbed: Testbed, tmp_path: Path) -> None:
    folder = reach.control_dir("t", testbed.directory)
    folder.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with raises(UserError, "is no folder of yours"):
        reach.make_control_dir(testbed)


def test_where_it_cannot_be_made_is_a_sentence(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with raises(UserError, do="XDG_RUNTIME_DIR"):
        reach.make_control_dir(testbed)


def test_a_key_that_a_volume_lets_others_read_is_closed_again(tmp_path: Path) -> None:
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
