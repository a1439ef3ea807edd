"""Actions on a machine itself: its files stay intact, and only the intended devices are wiped."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.sites.inventory import hostside
from tests.testbed.sites.fake_hosts import FakeHost, Killed, play

KEYS, HOSTS = "root/.ssh/authorized_keys", "etc/hosts"
MARK = {"testbed": "small", "id": "x", "node": "osd0", "since": "now"}
KEY = "ssh-ed25519 AAAAC3Nz hotbed-small"
HOLD = {"do": "hold", "mark": MARK, "key": KEY, "names": {"osd0": "192.0.2.1"}}
LET_GO = {"do": "let_go", "id": "x", "key": KEY}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return play(tmp_path, 1, monkeypatch).hosts["192.0.2.1"]


def done(host: FakeHost, request: dict[str, Any]) -> Any:
    found = host.do(request)
    assert found["ok"], found
    return found["result"]


def refused(host: FakeHost, request: dict[str, Any]) -> str:
    found = host.do(request)
    assert not found["ok"]
    return str(found["error"])


# -- shared files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [False, True])
def test_lines_of_others_stay_and_a_link_stays_a_link(host, link):
    """The files are not UTF-8, and Python would split their lines differently."""
    kept = "etc/ssh/keys/root" if link else KEYS
    host.write(kept, b"ssh-rsa AAAA J\xfcrgen\r\n\nssh-rsa AAAB a\x0cb\n")
    host.write(HOSTS, b"127.0.0.1 localhost # caf\xe9\n")
    if link:
        (host.root / KEYS).parent.mkdir()
        (host.root / KEYS).symlink_to("../../etc/ssh/keys/root")
    before = host.files()
    done(host, {**LET_GO, "key": ""})  # no key takes no line away
    assert host.files() == before
    done(host, HOLD)
    assert f"\n{KEY}\n".encode() in host.files()[kept]
    assert b"\n192.0.2.1 osd0\n" in host.files()[HOSTS]
    assert (host.root / KEYS).is_symlink() is link
    done(host, LET_GO)
    assert host.files() == before
    assert (host.root / KEYS).is_symlink() is link


def test_names_in_a_file_that_is_a_mount_of_its_own(host, monkeypatch):
    replace = Path.replace

    def busy(path: Path, target: Path) -> Path:
        if target.name == "hosts":
            raise OSError(errno.EBUSY, "Device or resource busy")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", busy)
    done(host, HOLD)
    assert "192.0.2.1 osd0\n" in host.read(HOSTS)
    assert not [path for path in (host.root / "etc").iterdir() if "new" in path.name]


def test_a_key_of_a_cloud_image_is_let_in_and_an_empty_file_goes(host):
    """The image lists the same key with a command that sends people away."""
    before = host.files()
    refusal = f'no-pty,command="echo Please log in as cc" {KEY}'
    host.write(KEYS, f"{refusal}\nssh-ed25519 BBBB somebody\n")
    for _ in range(2):
        done(host, HOLD)
        assert host.read(KEYS) == f"ssh-ed25519 BBBB somebody\n{KEY}\n"
    host.write(KEYS, f"{KEY}\n")
    done(host, LET_GO)
    assert host.files() == before
    assert not (host.root / KEYS).parent.exists()


def cut(patch: pytest.MonkeyPatch, moment: int) -> None:
    """End the program before its `moment`-th change of a file or folder."""
    left = [moment]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return call(*given, **more)

        return counting

    patch.setattr(os, "link", counted(os.link))
    for name in ("chmod", "mkdir", "replace", "unlink"):
        patch.setattr(Path, name, counted(getattr(Path, name)))


@pytest.mark.parametrize("do", ["hold", "let_go"])
def test_cut_off_at_any_moment_it_is_held_or_let_go_whole(host, monkeypatch, do):
    """Root had no authorized_keys and has none afterwards."""
    before, other = host.files(), {**HOLD, "mark": {**MARK, "id": "y", "testbed": "other"}}
    for moment in itertools.count(1):
        if do == "let_go":
            done(host, HOLD)
        with monkeypatch.context() as patch:
            cut(patch, moment)
            try:
                host.do(HOLD if do == "hold" else LET_GO)
                break
            except Killed:
                pass
        if host.read("etc/hotbed-site.json"):
            assert "is held by the testbed 'small'" in refused(host, other)
        if moment % 2:
            done(host, HOLD)
            assert (host.root / "etc/hotbed-site.json").stat().st_nlink == 1
        done(host, LET_GO)
        assert host.files() == before
        assert not (host.root / "root/.ssh").exists()
        done(host, other)
        done(host, {**LET_GO, "id": "y"})
    assert moment > 6


# -- devices ---------------------------------------------------------------------------------------


def wipe_of(host: FakeHost) -> dict[str, Any]:
    survey = done(host, {"do": "survey", "devices": ["/dev/sdb2"]})
    (found,) = survey["devices"].values()
    kept = {name: found[name] for name in ("bytes", "model", "holds", "identity", "uuids")}
    seen = {**kept, "boot_id": survey["boot_id"]}
    return {"do": "wipe", "id": "x", "device": "/dev/sdb2", "seen": seen}


MOUNTED = "30 23 0:0 / /srv/data rw - ext4 /dev/sdb2 rw\n"
CHANGES: dict[str, tuple[Callable[[FakeHost], object], str]] = {
    "another file system": (lambda h: h.disk("/dev/sdb2", 2**30, "xfs"), "holds xfs now"),
    "another uuid": (lambda h: h.disk("/dev/sdb2", 2**30, "ext4:7c9e"), "holds ext4 7c9e now"),
    "another size": (lambda h: h.disk("/dev/sdb2", 2**31, "ext4:0f8f"), "is another device now"),
    "partitions": (lambda h: setattr(h, "partition_table", "d1\n"), "holds partition table d1 now"),
    "a mount": (lambda h: h.write("proc/self/mountinfo", MOUNTED), "is mounted at /srv/data"),
    # This disk has nothing that distinguishes it.
    "a boot": (lambda h: h.write("proc/sys/kernel/random/boot_id", "new\n"), "no serial number"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_only_what_was_seen_is_wiped(host, case):
    """After a reboot a name may be another device, and somebody may have used the device."""
    done(host, HOLD)
    host.disk("/dev/sdb2", 2**30, "ext4:0f8f")
    asked = wipe_of(host)
    change, said = CHANGES[case]
    change(host)
    assert said in refused(host, asked)
    assert (host.root / "dev/sdb2").open("rb").read(9) == b"SIGNATURE"


@pytest.mark.parametrize("folder", ["by-id", "by-partuuid"])
def test_a_disk_alike_is_not_wiped(host, folder):
    """Size, model and contents are equal; only udev's name differs."""
    done(host, HOLD)
    host.disk("/dev/sdb2", 2**30, "ext4")
    host.link(f"{folder}/wwn-1", "/dev/sdb2")
    asked = wipe_of(host)
    assert asked["seen"]["identity"] == ["wwn-1"]
    host.link(f"{folder}/wwn-2", "/dev/sdb2")
    assert "is another device now" in refused(host, asked)
    host.link(f"{folder}/wwn-1", "/dev/sdb2")
    host.write("proc/sys/kernel/random/boot_id", "new\n")  # it is known by its name
    done(host, asked)


def test_a_record_without_an_identity_allows_nothing(host):
    done(host, HOLD)
    host.disk("/dev/sdb2", 2**30, "ext4:0f8f")
    old = {"bytes": 2**30, "model": None, "holds": ["ext4"]}
    assert "is another device" in refused(host, {**wipe_of(host), "seen": old})


def test_a_wipe_that_was_cut_off_is_repeated_and_leaves_nothing(host, monkeypatch):
    done(host, HOLD)
    host.disk("/dev/sdb2", 2**30, "ext4")
    asked = wipe_of(host)
    # The signature is gone; the data behind it remains.
    (host.root / "dev/sdb2").open("r+b").write(b"x" * 100)
    done(host, asked)
    assert not (host.root / "dev/sdb2").open("rb").read(4096).strip(b"\0")
    host.disk("/dev/sdb2", 2**30, "ext4")
    monkeypatch.setattr(hostside, "_zero", lambda path: None)
    assert "ext4 on /dev/sdb2" in refused(host, wipe_of(host))


# -- inspection ------------------------------------------------------------------------------------


def test_sshd_is_asked_about_where_we_come_from(host):
    """Its configuration may have a block for certain addresses only (Match Address)."""
    host.root_login = lambda asked_of: "yes" if "addr=10.0.0.9" in asked_of else "no"
    assert done(host, {"do": "survey", "client": "10.0.0.9"})["root_login"] == "yes"
    assert done(host, {"do": "survey"})["root_login"] == "no"


def test_others_are_tried_at_once_and_a_refusal_is_an_answer(monkeypatch):
    """The machine itself answers for a closed port; a firewall drops or reports no route."""
    answers: dict[int, OSError | None] = {
        22: None,
        6789: TimeoutError("timed out"),
        3300: ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        6800: OSError(errno.EHOSTUNREACH, "No route to host"),
    }
    together = threading.Barrier(len(answers), timeout=20.0)

    def connected(where: tuple[str, int], timeout: float) -> socket.socket:
        together.wait()  # in sequence, many silent machines would take too long
        answer = answers[where[1]]
        if answer is not None:
            raise answer
        return socket.socket()

    monkeypatch.setattr("socket.create_connection", connected)
    targets = {str(port): ["192.0.2.1", port] for port in answers}
    found = hostside.connect(None, {"targets": targets})  # type: ignore[arg-type]
    assert list(found.values()) == [None, "timed out", "refused", "No route to host"]


def test_listeners_on_the_loopback_alone_are_apart(host):
    lines = [
        "sl local",
        " 0: 0100007F:2F11 0 0A",
        " 1: 00000000:0016 0 0A",
        " 2: 0100007F:1F90 0 01",
    ]
    host.write("proc/net/tcp", "\n".join(lines) + "\n")
    survey = done(host, {"do": "survey"})
    assert (survey["listening"], survey["listening_loopback"]) == ([22], [12049])


@pytest.mark.parametrize(
    ("files", "modprobe", "found"),
    [
        ({"sys/module/xfs/refcnt": "1"}, "", True),
        ({}, "insmod /lib/modules/6.1/kernel/fs/xfs/xfs.ko", True),
        ({}, "builtin xfs", True),
        ({f"lib/modules/{os.uname().release}/modules.dep": "kernel/fs/ext4.ko:"}, "", False),
        ({}, "", None),  # a container does not show its host's modules
    ],
)
def test_a_module_is_found_without_loading_it(tmp_path, files, modprobe, found):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(argv: Sequence[str]) -> str:
        if argv[0] != "modprobe":
            return ""
        return "kmod version 30" if argv[1] == "--version" else modprobe

    machine = hostside.HostMachine(tmp_path, run)
    assert hostside.survey(machine, {})["modules"]["xfs"] is found


# -- load: a cluster's containers are in their engine's control groups -----------------------------


FSID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
V2, V1 = ("sys/fs/cgroup", "cpu.stat"), ("sys/fs/cgroup/cpuacct", "cpuacct.usage")


def used(host: FakeHost, tree: tuple[str, str], group: str, seconds: float) -> None:
    """Add `seconds` of used time to a control group."""
    folder, file = tree
    text = f"usage_usec {seconds * 1e6:.0f}\n" if tree == V2 else f"{seconds * 1e9:.0f}\n"
    host.write(f"{folder}/{group}/{file}", text)


def runs(host: FakeHost, tree: tuple[str, str], group: str, pid: int, *folders: str) -> None:
    """Add a process to a group, with these folders mounted."""
    host.write(f"{tree[0]}/{group}/cgroup.procs", f"{pid}\n{pid + 1}\n")
    mounts = "".join(f"9 8 8:1 {folder} /x rw - ext4 /dev/sda1 rw\n" for folder in folders)
    host.write(f"proc/{pid}/mountinfo", mounts)


def asked(host: FakeHost) -> dict[str, Any]:
    return done(host, {"do": "usage", "fsid": FSID})


@pytest.mark.parametrize("tree", [V2, V1])
@pytest.mark.parametrize(
    ("group", "inner"),
    [
        ("system.slice/docker-aa.scope", ""),
        ("docker/aa", ""),
        ("machine.slice/libpod-aa.scope", "/container"),
    ],
)
def test_containers_of_our_cluster_are_ours(host, tree, group, inner):
    used(host, tree, "system.slice", 20.0)
    used(host, tree, "system.slice/hotbed-agent.service", 2.0)
    used(host, tree, group, 5.0)
    runs(host, tree, group + inner, 100, "/lib/docker/x", f"/lib/ceph/{FSID}/osd.0")
    found = asked(host)
    assert found["ours"] == pytest.approx(2.0)
    assert found["containers"] == {group: pytest.approx(5.0)}


def test_only_our_containers_and_units_are_counted(host):
    """Cases are another cluster's container, one without Ceph, and one that has ended."""
    used(host, V2, "system.slice", 20.0)
    for number, folder in enumerate((f"/lib/ceph/{OTHER}/osd.0", f"/lib/{FSID}x", "/"), 1):
        group = f"system.slice/docker-{number}.scope"
        used(host, V2, group, 5.0)
        runs(host, V2, group, 100 * number, folder)
    used(host, V2, "system.slice/docker-4.scope", 5.0)
    assert asked(host)["containers"] == {}
    used(host, V2, "system.slice", 20.0)
    for fsid, seconds in ((FSID, 3.0), (OTHER, 7.0)):
        escaped = fsid.replace("-", "\\x2d")
        used(host, V2, f"system.slice/system-ceph\\x2d{escaped}.slice", seconds)
    used(host, V2, "system.slice/system-ceph\\x2dosd.slice", 1.0)
    assert asked(host)["ours"] == pytest.approx(4.0)
