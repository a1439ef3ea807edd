"""Findings of the role `validate` on a machine."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MINE = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@pytest.fixture
def probe(script):
    return script("validate", "probe")


@pytest.fixture
def wanted():
    node = {"node": "osd3", "fsid": "f", "wipe": False, "objectstore": "bluestore"}
    ceph = {"ceph_majors": [16, 17, 18], "filestore_last_major": None, "osd_min_bytes": 2**30}
    osds = [{"id": 3, "uuid": MINE, "device": "/dev/x2"}]
    scratch = {"device": "/dev/x1", "min_bytes": 2**28, "path": "/scratch"}
    scratch |= {"label": "hotbed-scratch"}
    more = {f"scratch_{name}": value for name, value in scratch.items()}
    return {**node, **ceph, **more, "osds": osds, "packages": ["ceph-osd", "fio"]}


SIZE = 2**26  # libblkid detects ZFS only from this size on


def head_with(offset: int, data: bytes) -> bytes:
    return bytes(offset) + data + bytes(70000 - offset - len(data))


def ext4(label: str) -> bytes:
    block = bytearray(head_with(1080, b"\x53\xef"))
    block[1144 : 1144 + len(label)] = label.encode()
    return bytes(block)


def bluestore(uuid: str) -> bytes:
    return head_with(0, f"bluestore block device\n{uuid}\n".encode())


def lvm(sector: int) -> dict[int, bytes]:
    """Return the label of a physical volume, with its checksum."""
    label = struct.pack("<I8s", 32, b"LVM2 001") + b"x" * 32 + bytes(448)
    crc = 0xF597A6CF
    for byte in label:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return {512 * sector: struct.pack("<8sQI", b"LABELONE", sector, crc) + label}


def raid(version: str) -> dict[int, bytes]:
    """Return the superblock of a RAID array's member: at the end in 0.90 and 1.0."""
    magic = 0xA92B4EFC
    if version == "0.90":
        numbers = (magic, 0, 90, 0, 992, 0x1234, 0, 1, 0, 2, 2, 0, 0, 1, 2, 3)
        return {SIZE // 65536 * 65536 - 65536: struct.pack("<16I", *numbers)}
    sector = SIZE // 512 - 16 & ~7
    block = bytearray(4096)
    struct.pack_into("<IIII16s32sQ", block, 0, magic, 1, 0, 0, b"u" * 16, b"mine:0", 0)
    struct.pack_into("<QQQQ", block, 128, 0, sector, sector, 0)
    struct.pack_into("<I", block, 220, 1)
    total = sum(struct.unpack_from("<64I", block)) + struct.unpack_from("<H", block, 256)[0]
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32))
    return {512 * sector: bytes(block)}


def zfs() -> dict[int, bytes]:
    """Return uberblocks of a pool member's last of four labels; the others are overwritten."""
    block = struct.pack("<QQQQQ", 0x00BAB10C, 5000, 7, 1, 1)
    last = SIZE // 262144 * 262144 - 262144
    return {last + 131072 + 1024 * place: block for place in range(128)}


def image(folder: Path, parts: dict[int, bytes]) -> Path:
    """Write a file with these parts, in place of a device."""
    path = folder / "image"
    with path.open("wb") as file:
        file.truncate(SIZE)
        for offset, data in parts.items():
            file.seek(offset)
            file.write(data)
    return path


class FakeDevice:
    """Stand-in for a block device, which only root can have; a file holds its contents."""

    def __init__(self, probe: ModuleType, path: Path, size: int = 2**32) -> None:
        self.head, self.bytes = path.open("rb").read(probe.HEAD), size
        self.problem = self.mounted_at = None
        self.made_by_us = False

    def __call__(self, *arguments: object) -> FakeDevice:
        return self


@pytest.fixture
def put(probe, wanted, tmp_path, monkeypatch):
    """Return a function that sets the content of the OSD's device and of the file device."""
    real = probe.BlockDevice

    def put(parts: dict[int, bytes], **more: Any) -> Path:
        path = image(tmp_path, parts)
        fake = FakeDevice(probe, path)
        for name, value in {"stranger": real.stranger.__get__(fake), **more}.items():
            setattr(fake, name, value)
        monkeypatch.setattr(probe, "BlockDevice", fake)
        wanted["osds"] = [{**wanted["osds"][0], "device": str(path)}]
        wanted["scratch_device"] = str(path)
        return path

    return put


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({}, None),
        ({0: bluestore(MINE)}, "a BlueStore"),
        ({0: ext4("")}, "an ext2/3/4 file system"),
        (lvm(1), "an LVM physical volume"),
        (lvm(3), "an LVM physical volume"),
        (raid("0.90"), "a member of a RAID array"),
        (raid("1.0"), "a member of a RAID array"),
        (zfs(), "a member of a ZFS pool"),
        ({510: b"\x55\xaa", 450: b"\x83", 454: b"\1\0\0\0\1"}, "a partition table"),
        ({600000: b"a database of my own"}, "data of a kind that is not known"),
    ],
)
def test_what_a_device_holds(probe, tmp_path, parts, what):
    """This includes the end of the device, and contents without a label."""
    path = image(tmp_path, parts)
    assert probe.content(str(path), path.open("rb").read(probe.HEAD)) == what


def test_without_wipefs_no_device_is_empty(probe, monkeypatch):
    monkeypatch.setattr(probe, "output", lambda *argv: "")
    assert "wipefs" in str(probe.content("/dev/x1", bytes(probe.HEAD)))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, None),
        ({0: bluestore(MINE)}, None),
        # A permitted wipe empties the beginning and may be interrupted afterwards.
        ({**zfs(), 0: bluestore(MINE)}, None),
        ({0: bluestore(MINE[::-1])}, "holds a BlueStore: if it may go, run `wipefs -a /"),
        ({0: ext4("data")}, "holds an ext2/3/4 file system"),
        ({0: b"my own"}, "holds data of a kind that is not known"),
    ],
)
def test_only_an_empty_device_or_our_own_is_taken(probe, put, wanted, parts, said):
    put(parts)
    sizes, problems = probe.check_osds(wanted)
    assert sizes == [2**32]
    assert problems == [] if said is None else said in problems[0]
    assert probe.check_osds({**wanted, "wipe": True})[1] == []


def test_a_partition_that_hotbed_made_may_have_bytes_of_an_earlier_life(
    probe, put, wanted, tmp_path
):
    put({0: b"x" * 100}, made_by_us=True)
    assert probe.check_osds(wanted)[1] == []
    put({0: ext4("data")}, made_by_us=True)
    assert "holds an ext2/3/4 file system" in probe.check_osds(wanted)[1][0]


def test_devices_too_small_missing_or_too_many_are_reported(probe, put, wanted):
    path = put({}, bytes=2**29)
    (problem,) = probe.check_osds(wanted)[1]
    assert all(fact in problem for fact in (str(path), "osd3", "0.5 GiB", "1.0 GiB"))
    put({})
    sizes, (problem,) = probe.check_osds(
        {**wanted, "osds": [*wanted["osds"], {"id": 4, "uuid": "u"}]}
    )
    assert sizes == [2**32, 0] and "osd.4" in problem
    assert probe.check_osds({**wanted, "osds": []}) == ([], [])
    two = {**wanted, "osds": wanted["osds"] * 2, "objectstore": "filestore"}
    assert "2 OSDs" in probe.check_osds(two)[1][0]


def test_our_scratch_file_system_is_known_by_its_label(probe, put, wanted):
    put({0: ext4("hotbed-scratch")})
    state, problem = probe.check_scratch(wanted)
    assert (state["made"], problem) == (True, None)
    path = put({0: ext4("photos")})
    state, problem = probe.check_scratch(wanted)
    assert not state["made"]
    assert f"scratch device {path} of node osd3 holds an ext2/3/4" in problem


def test_missing_and_plain_paths_are_reported(probe, tmp_path):
    missing = probe.BlockDevice("n", "OSD", str(tmp_path / "none"), None)
    assert "cannot be found" in missing.problem
    plain = tmp_path / "file"
    plain.write_text("x")
    assert "is no block device" in probe.BlockDevice("n", "OSD", str(plain), None).problem


def test_mounts_are_read_from_mountinfo(probe):
    text = (
        "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "40 29 7:1 / /var/lib/hotbed/scratch rw,noatime shared:9 - ext4 /dev/loop1 rw\n"
    )
    assert probe.mounts(text) == {"254:0": "/", "7:1": "/var/lib/hotbed/scratch"}


def answer(dpkg: str, apt: str) -> Callable[..., str]:
    return lambda *argv: {"dpkg-query": dpkg, "apt-cache": apt}.get(argv[0], "")


APT = "fio:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n"


@pytest.mark.parametrize(
    ("release", "changes", "said"),
    [
        ("16.2.15+ds-0+deb12u2", {}, []),
        ("16.2.15+ds-0+deb12u2", {"ceph_majors": [18]}, ["Ceph 16"]),
        ("18.2.1", {"filestore_last_major": 17}, ["no FileStore any more"]),
    ],
)
def test_packages_and_release(*, probe, wanted, monkeypatch, release, changes, said):
    monkeypatch.setattr(probe, "output", answer(f"ceph-osd {release} ii \nfio 3.33-3 ii \n", ""))
    missing, major, problems = probe.check_packages({**wanted, **changes})
    assert (missing, major, len(problems)) == ([], int(release[:2]), len(said))
    assert all(fact in problem for fact, problem in zip(said, problems, strict=True))


def test_a_package_nobody_offers_is_reported_and_one_to_come_is_not(probe, wanted, monkeypatch):
    monkeypatch.setattr(probe.shutil, "which", lambda name: f"/usr/bin/{name}")
    dpkg = "ceph-osd 16.2.15 ii \nfio 3.33 un \n"
    monkeypatch.setattr(probe, "output", answer(dpkg, APT.format("3.33-3")))
    assert probe.check_packages(wanted) == (["fio"], 16, [])
    monkeypatch.setattr(probe, "output", answer(dpkg, APT.format("(none)")))
    _, _, said = probe.check_packages(wanted)
    assert "lacks fio" in said[0]
    monkeypatch.setattr(probe.shutil, "which", lambda name: None)
    assert "has no apt" in probe.check_packages(wanted)[2][0]


UNIT = "ceph-osd@3.service loaded active running Ceph object storage daemon osd.3\n"


@pytest.mark.parametrize(
    ("files", "units", "said"),
    [
        ({}, "", None),
        ({"etc/ceph/ceph.conf": f"[global]\nfsid = {MINE}  # ours\n"}, UNIT, None),
        ({"etc/ceph/ceph.conf": "# nothing yet\n"}, "", None),
        ({f"var/lib/ceph/{MINE}/x": "", "var/lib/ceph/osd/ceph-3/whoami": "3"}, "", None),
        ({}, f"ceph-{MINE}@osd.3.service loaded active running x\n", None),
        ({"etc/ceph/ceph.conf": "[global]\nfsid=other\n"}, "", "fsid other in /etc/ceph/ceph.conf"),
        ({"etc/ceph/ceph.conf": "[global]\nmon_host = 192.0.2.1\n"}, "", "fsid not named in /etc"),
        ({f"var/lib/ceph/{OTHER}/x": ""}, "", f"in /var/lib/ceph/{OTHER}"),
        ({"var/lib/ceph/osd/ceph-3/ceph_fsid": "other\n"}, "", "in /var/lib/ceph/osd/ceph-3"),
        ({"var/lib/ceph/osd/two-3/ceph_fsid": "other\n"}, "", "in /var/lib/ceph/osd/two-3"),
        ({}, UNIT, "ceph-osd@3.service runs"),
    ],
)
def test_another_cluster_is_reported_by_what_it_has_on_the_machine(
    *, probe, wanted, tmp_path, monkeypatch, files, units, said
):
    """Its configuration may name no cluster, and cephadm's has its own folder."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(probe, "output", lambda *argv: units)
    sentence = probe.other_cluster({**wanted, "fsid": MINE}, tmp_path)
    assert sentence is None if said is None else said in sentence
