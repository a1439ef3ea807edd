"""Devices, files, names and units that the role `remove` regards as its own, also on machines with
another owner's Ceph, NFS server or Swift."""

from __future__ import annotations

import errno
import json
import stat
import subprocess
from contextlib import nullcontext
from pathlib import Path

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
def remove(script, tmp_path, monkeypatch):
    module = script("remove", "remove")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def bluestore(uuid: str) -> bytes:
    return f"bluestore block device\n{uuid}\n".encode().ljust(4096, b"\0")


def test_the_osds_of_this_machine_are_ours_and_no_others(remove):
    for uuid in MINE:
        assert remove.is_ours(bluestore(uuid), WANTED)
    assert not remove.is_ours(bluestore(OTHER), WANTED)
    assert not remove.is_ours(bluestore(MINE[0]), {**WANTED, "osds": []})
    assert not remove.is_ours(bytes(4096), WANTED)


def test_a_device_of_ours_is_wiped_and_anothers_left(remove, tmp_path, monkeypatch):
    monkeypatch.setattr(remove.shutil, "chown", lambda *arguments: None)
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.write_bytes(bluestore(MINE[1]))
    other.write_bytes(bluestore(OTHER))
    assert remove.wipe(str(mine), WANTED) == [f"{mine} wiped"]
    assert remove.wipe(str(other), WANTED) == []
    assert mine.read_bytes() == bytes(4096)
    assert other.read_bytes() == bluestore(OTHER)
    assert remove.wipe(str(tmp_path / "none"), WANTED) == remove.wipe("", WANTED) == []


def test_folders_of_packages_that_a_purge_took_come_back(remove, tmp_path, monkeypatch):
    """A later deployment would fail without them, because the packages stay."""
    listed = ["/.", "/etc/ceph", "/etc/ceph/rbdmap", "/usr/bin/ceph", "/var/lib/ceph/mon"]
    output = "\n".join([*listed, "/var/log/ceph", "/var/lib/ceph", "/etc/ceph"])

    def run(argv: list[str], **options: object) -> object:
        return subprocess.CompletedProcess(argv, 1, output)  # some packages are not installed

    owned: list[Path] = []
    monkeypatch.setattr(remove.subprocess, "run", run)
    monkeypatch.setattr(remove.shutil, "chown", lambda path, *owner: owned.append(path))
    for parent in ("etc", "var/lib", "var/log"):
        (tmp_path / parent).mkdir(parents=True)
    kept = tmp_path / "var/log/ceph"
    kept.mkdir(mode=0o700)
    data = tmp_path / "var/lib/ceph"
    assert remove.restore_folders() == [
        f"{folder} restored" for folder in (tmp_path / "etc/ceph", data, data / "mon")
    ]
    assert owned == [data, data / "mon"]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (data, kept)] == [0o750, 0o700]
    assert remove.restore_folders() == []


def test_an_installed_cosbench_goes_with_its_units_and_account(remove, tmp_path):
    unit = tmp_path / "etc/systemd/system/hotbed-cosbench-driver.service"
    release, other = tmp_path / "opt/hotbed-cosbench", tmp_path / "opt/cosbench"
    for folder in (unit.parent, release / "release/archive", other):
        folder.mkdir(parents=True)
    unit.touch()
    assert remove.remove_files(WANTED) == [f"{unit} removed", f"{release} removed"]
    assert not unit.exists()
    assert not release.exists()
    assert other.is_dir()


def test_an_account_of_ours_is_reported_only_where_there_was_one(remove, monkeypatch):
    codes, ran = iter((0, 6)), []

    def run(argv: list[str], **options: object) -> object:
        ran.append(argv)
        return subprocess.CompletedProcess(argv, next(codes) if argv[0] == "userdel" else 1)

    monkeypatch.setattr(remove.subprocess, "run", run)
    assert remove.remove_user("hotbed-cosbench") == ["user hotbed-cosbench removed"]
    assert remove.remove_user("hotbed-cosbench") == []
    assert ran[0] == ["pkill", "-KILL", "-u", "hotbed-cosbench"]


def test_what_a_deploying_machine_remembers_stays(remove, tmp_path, monkeypatch):
    """A node may be the deploying machine, as root. Its records, also of other testbeds, and its
    open connections do not belong to a node."""
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
    # Nothing is left of a node that is nothing else.
    monkeypatch.setattr(remove, "ROOT", tmp_path / "node")
    state, run = tmp_path / "node/var/lib/hotbed", tmp_path / "node/run/hotbed"
    for folder in (state / "scratch", run / "nfsproxy"):
        folder.mkdir(parents=True)
    remove.remove_files(WANTED)
    assert remove.remove_state() == [f"{state / 'scratch'} removed"]
    assert not state.exists()
    assert not run.exists()


HOSTS = (
    b"127.0.0.1 localhost\r\n# the B\xfcro\n# BEGIN hotbed\n10.1.0.10 admin\n# END hotbed\n::1 ip6"
)
KEYS = b"ssh-ed25519 AAAA J\xfcrgen\r\nssh-ed25519 BBBB hotbed-admin\nssh-rsa CCCC hotbed-admins\n"


def test_names_and_keys_of_others_stay_as_they_are_byte_for_byte(remove, tmp_path):
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
def test_a_file_that_is_a_mount_of_its_own_is_written_in_place(remove, tmp_path, monkeypatch, code):
    file = tmp_path / "hosts"
    file.write_bytes(b"before")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, "x")

    monkeypatch.setattr(Path, "replace", refuse)
    with nullcontext() if code == errno.EBUSY else raises(OSError, "x"):
        remove.rewrite(file, b"after")
    assert file.read_bytes() == (b"after" if code == errno.EBUSY else b"before")
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_to_another_swifts_settings_stays(remove, tmp_path, monkeypatch):
    link = tmp_path / "swift"
    monkeypatch.setattr(remove, "SWIFT_LINK", link)
    link.symlink_to("/etc/hotbed/swift")
    assert remove.remove_link() == [f"{link} removed"]
    assert not link.is_symlink()
    link.symlink_to(tmp_path / "theirs")
    assert remove.remove_link() == []
    assert link.is_symlink()


CEPH = (
    "etc/ceph/ceph.client.admin.keyring",
    "etc/ceph/ceph.client.lab.keyring",
    "var/lib/ceph/mon/ceph-head/store.db/CURRENT",
    "var/lib/ceph/mgr/ceph-head/keyring",
    "var/lib/ceph/osd/ceph-7/whoami",
    "var/lib/ceph/radosgw/ceph-rgw.head/keyring",
    "var/lib/ceph/crash/posted",
    "var/log/ceph/ceph.log",
    "run/ceph/ceph-osd.7.asok",
)
DROPIN = "etc/systemd/system/ceph-osd@.service.d/hotbed.conf"


def write(root: Path, name: str, text: str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def left(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "conf",
    [
        f"[global]\nfsid = {STRANGE}\n",
        "[global]\nmon_host = 192.0.2.1\n",  # a client's file, which needs no fsid
        f"# fsid = {FSID}\n",
        None,
    ],
)
def test_another_clusters_ceph_is_left_whole(remove, tmp_path, conf):
    for name in CEPH:
        write(tmp_path, name)
    if conf is not None:
        write(tmp_path, "etc/ceph/ceph.conf", conf)
    write(tmp_path, "var/lib/ceph/osd/ceph-7/ceph_fsid", STRANGE + "\n")
    before = left(tmp_path)
    write(tmp_path, "etc/hotbed/agent.json")
    assert not remove.ceph_is_ours(WANTED)
    assert remove.ceph_is_strange(WANTED)
    assert remove.remove_files(WANTED) == [f"{tmp_path}/etc/hotbed removed"]
    assert left(tmp_path) == before


@pytest.mark.parametrize("spaced", ["fsid = {}", "\tfsid={} ; ours"])
def test_the_testbeds_ceph_goes_and_keyrings_that_it_did_not_bring_stay(remove, tmp_path, spaced):
    for name in CEPH:
        write(tmp_path, name)
    write(tmp_path, "etc/ceph/ceph.conf", f"[global]\n{spaced.format(FSID)}\n")
    write(tmp_path, DROPIN)
    of_cephadm = f"var/log/ceph/{STRANGE}/ceph-osd.1.log"
    write(tmp_path, of_cephadm)
    changed = remove.remove_files(WANTED)
    assert changed[-1] == f"{tmp_path}/etc/ceph/ceph.conf removed", "the mark of our deployment"
    assert left(tmp_path) == {"etc/ceph/ceph.client.lab.keyring", of_cephadm}
    assert remove.remove_files(WANTED) == []


@pytest.mark.parametrize(
    ("mark", "text"), [(DROPIN, ""), ("var/lib/ceph/osd/ceph-7/ceph_fsid", FSID + "\n")]
)
def test_what_is_left_of_the_testbeds_ceph_goes_without_its_ceph_conf(remove, tmp_path, mark, text):
    write(tmp_path, "var/lib/ceph/osd/ceph-7/whoami")
    write(tmp_path, mark, text)
    assert not remove.ceph_is_strange(WANTED)
    remove.remove_files(WANTED)
    assert left(tmp_path) == set()


def test_a_cluster_of_cephadms_is_strange_without_any_ceph_conf(remove, tmp_path):
    write(tmp_path, f"var/lib/ceph/{FSID}/mon.head/config")
    assert not remove.ceph_is_strange(WANTED)
    write(tmp_path, f"var/lib/ceph/{STRANGE}/mon.head/config")
    assert remove.ceph_is_strange(WANTED)


def test_an_nfs_server_of_the_distributions_keeps_its_state(remove, tmp_path):
    state = write(tmp_path, "var/lib/nfs/ganesha/v4recov/node0/client")
    exports = write(tmp_path, "etc/exports", "/srv *(rw)\n")
    assert remove.remove_files(WANTED) == []
    write(tmp_path, "etc/systemd/system/hotbed-ganesha.service")
    remove.remove_files(WANTED)
    assert not state.exists() and exports.exists()


@pytest.mark.parametrize("ours", [True, False])
def test_units_of_another_cluster_are_neither_stopped_nor_disabled(
    remove, tmp_path, monkeypatch, capsys, ours
):
    asked: list[tuple[str, ...]] = []

    def systemctl(*arguments: str) -> str:
        asked.append(arguments)
        if arguments[0] == "list-units":
            return "".join(f"{each.replace('*', '1')}.service loaded\n" for each in arguments[5:])
        return {"is-active": "active", "is-enabled": "enabled"}.get(arguments[0], "")

    quiet = subprocess.CompletedProcess([], 1, "", "")
    monkeypatch.setattr(remove, "systemctl", systemctl)
    monkeypatch.setattr(remove.subprocess, "run", lambda *_, **__: quiet)
    monkeypatch.setattr(remove, "unmount", lambda wanted: [])
    monkeypatch.setattr(remove, "forget_names", list)
    write(tmp_path, "etc/ceph/ceph.conf", f"fsid = {FSID if ours else STRANGE}\n")
    more = {
        "osds": [],
        "swift_disks": [],
        "swift_venv": "/none",
        "packages": False,
        "scratch_device": "",
    }
    monkeypatch.setattr(remove.sys, "argv", ["-", json.dumps({**WANTED, **more})])
    remove.main()
    stopped = [words for words in asked if words[0] in ("stop", "disable", "kill")]
    assert any("hotbed-1.service" in words for words in stopped)
    assert any("ceph" in word for words in stopped for word in words) is ours
    assert json.loads(capsys.readouterr().out)["strange"] is not ours
