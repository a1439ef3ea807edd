"""Devices that the role `remove` regards as its own."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from tests.errors import raises

MINE = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
OTHER = "00000000-7425-40de-944b-e07fc1f90ae7"
FSID, STRANGE = "5b8ac5f6-6d0e-5c43-9d0b-3a5c5e0f2f11", "11111111-2222-4333-8444-555555555555"
WANTED = {
    "fsid": FSID,
    "osds": [{"id": n, "uuid": uuid, "device": "/dev/x"} for n, uuid in enumerate(MINE)],
    "scratch_label": "hotbed-scratch",
}


@pytest.fixture
def remove(script: Callable[[str, str], ModuleType]) -> ModuleType:
    return script("remove", "remove")


def bluestore(uuid: str) -> bytes:
    return f"bluestore block device\n{uuid}\n".encode().ljust(4096, b"\0")


def test_the_osds_of_this_machine_are_ours_and_no_others(remove: ModuleType) -> None:
    for uuid in MINE:
        assert remove.is_ours(bluestore(uuid), WANTED)
    assert not remove.is_ours(bluestore(OTHER), WANTED)
    assert not remove.is_ours(bluestore(MINE[0]), {**WANTED, "osds": []})
    assert not remove.is_ours(bytes(4096), WANTED)


def test_a_device_of_ours_is_wiped_and_anothers_left(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove.shutil, "chown", lambda *arguments: None)
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.write_bytes(bluestore(MINE[1]))
    other.write_bytes(bluestore(OTHER))
    assert remove.wipe(str(mine), WANTED) == [f"{mine} wiped"]
    assert remove.wipe(str(other), WANTED) == []
    assert mine.read_bytes() == bytes(4096)
    assert other.read_bytes() == bluestore(OTHER)
    assert remove.wipe(str(tmp_path / "none"), WANTED) == remove.wipe("", WANTED) == []


def test_an_installed_cosbench_goes_with_its_units_and_account(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "ROOT", tmp_path)
    unit = tmp_path / "etc/systemd/system/hotbed-cosbench-driver.service"
    release, other = tmp_path / "opt/hotbed-cosbench", tmp_path / "opt/cosbench"
    for folder in (unit.parent, release / "release/archive", other):
        folder.mkdir(parents=True)
    unit.touch()
    assert remove.remove_files(WANTED) == [f"{unit} removed", f"{release} removed"]
    assert not unit.exists()
    assert not release.exists()
    assert other.is_dir()


def test_an_account_of_ours_is_told_only_where_there_was_one(
    remove: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, ran = iter((0, 6)), []

    def run(argv: list[str], **options: object) -> object:
        ran.append(argv)
        return subprocess.CompletedProcess(argv, next(codes) if argv[0] == "userdel" else 1)

    monkeypatch.setattr(remove.subprocess, "run", run)
    assert remove.remove_user("hotbed-cosbench") == ["user hotbed-cosbench removed"]
    assert remove.remove_user("hotbed-cosbench") == []
    assert ran[0] == ["pkill", "-KILL", "-u", "hotbed-cosbench"]


def test_what_a_deploying_machine_remembers_stays(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may be the deploying machine, as root. Its records, also of other testbeds, and its
    open connections do not belong to a node."""
    monkeypatch.setattr(remove, "ROOT", tmp_path)
    state, run = tmp_path / "var/lib/hotbed", tmp_path / "run/hotbed"
    kept = [
        *(state / "sites/inventory/mine/record.json", state / "testbeds/other/record.json"),
        *(state / "locks/other", run / "mine-0a1b/ssh/socket", run / "locks/subnet.lock"),
    ]
    gone = [state / "units/fio", state / "hostname.before", run / "netenforcer.json"]
    for file in (*kept, *gone):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert sorted([*remove.remove_files(WANTED), *remove.remove_state()]) == [
        f"{run / 'netenforcer.json'} removed",
        f"{state / 'hostname.before'} removed",
        f"{state / 'units'} removed",
    ]
    assert all(file.exists() for file in kept)
    assert not any(file.exists() for file in gone)
    assert remove.remove_files(WANTED) == remove.remove_state() == []


def test_nothing_is_left_of_a_node_that_is_nothing_else(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "ROOT", tmp_path)
    state, run = tmp_path / "var/lib/hotbed", tmp_path / "run/hotbed"
    for folder in (state / "scratch", run / "nfsproxy"):
        folder.mkdir(parents=True)
    remove.remove_files(WANTED)
    assert remove.remove_state() == [f"{state / 'scratch'} removed"]
    assert not state.exists()
    assert not run.exists()
    assert remove.remove_state() == []


HOSTS = (
    b"127.0.0.1 localhost\r\n# the B\xfcro\n# BEGIN hotbed\n10.1.0.10 admin\n# END hotbed\n::1 ip6"
)
KEYS = b"ssh-ed25519 AAAA J\xfcrgen\r\nssh-ed25519 BBBB hotbed-admin\nssh-rsa CCCC hotbed-admins\n"


def test_names_and_keys_of_others_stay_as_they_are_byte_for_byte(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "ROOT", tmp_path)
    hosts, keys = tmp_path / "etc/hosts", tmp_path / "root/.ssh/authorized_keys"
    for path, content in ((hosts, HOSTS), (keys, KEYS)):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    keys.chmod(0o640)
    before = keys.stat()
    assert remove.forget_names() == [f"{hosts} cleaned", f"{keys} cleaned"]
    assert hosts.read_bytes() == b"127.0.0.1 localhost\r\n# the B\xfcro\n::1 ip6"
    assert keys.read_bytes() == b"ssh-ed25519 AAAA J\xfcrgen\r\nssh-rsa CCCC hotbed-admins\n"
    after = keys.stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert after.st_ino != before.st_ino, "it is whole at any moment"
    assert remove.forget_names() == []
    assert [path.name for path in keys.parent.iterdir()] == [keys.name]


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EROFS])
def test_a_file_that_is_a_mount_of_its_own_is_written_in_place(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"before")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, "x")

    monkeypatch.setattr(Path, "replace", refuse)
    with nullcontext() if code == errno.EBUSY else raises(OSError, "x"):
        remove.rewrite(file, b"after")
    assert file.read_bytes() == (b"after" if code == errno.EBUSY else b"before")
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_to_another_swifts_settings_stays(
    remove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "swift"
    monkeypatch.setattr(remove, "SWIFT_LINK", link)
    link.symlink_to("/etc/hotbed/swift")
    assert remove.remove_link() == [f"{link} removed"]
    assert not link.is_symlink()
    link.symlink_to(tmp_path / "theirs")
    assert remove.remove_link() == []
    assert link.is_symlink()
