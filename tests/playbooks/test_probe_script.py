"""What the role `validate` says of a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MINE = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def probe(script: Callable[[str, str], ModuleType]) -> ModuleType:
    return script("validate", "probe")


@pytest.fixture
def wanted() -> dict[str, Any]:
    return {
        "node": "osd3",
        "fsid": "f",
        "packages": ["ceph-osd", "fio"],
        "ceph_majors": [16, 17, 18],
        "filestore_last_major": None,
        "wipe": False,
        "objectstore": "bluestore",
        "osds": [{"id": 3, "uuid": MINE, "device": "/dev/x2"}],
        "osd_min_bytes": 2**30,
        "scratch_device": "/dev/x1",
        "scratch_min_bytes": 2**28,
        "scratch_path": "/scratch",
        "scratch_label": "hotbed-scratch",
    }


def head_with(offset: int, data: bytes) -> bytes:
    return bytes(offset) + data + bytes(70000 - offset - len(data))


def ext4(label: str) -> bytes:
    block = bytearray(head_with(1080, b"\x53\xef"))
    block[1144 : 1144 + len(label)] = label.encode()
    return bytes(block)


def bluestore(uuid: str) -> bytes:
    return head_with(0, f"bluestore block device\n{uuid}\n".encode())


class FakeDevice:
    """Stands in for a block device, which only root can have."""

    def __init__(self, head: bytes, size: int = 2**32, problem: str | None = None) -> None:
        self.head, self.bytes, self.problem, self.mounted_at = head, size, problem, None

    def __call__(self, *arguments: object) -> FakeDevice:
        return self


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (bytes(70000), None),
        (bluestore(MINE), "a BlueStore"),
        (ext4(""), "an ext2/3/4 file system"),
        (head_with(0, b"XFSB"), "an XFS file system"),
        (head_with(512, b"LABELONE"), "an LVM physical volume"),
        (head_with(510, b"\x55\xaa"), "a partition table"),
    ],
)
def test_what_a_device_holds(probe: ModuleType, head: bytes, what: str | None) -> None:
    assert probe.signature(head) == what


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (bytes(70000), None),
        (bluestore(MINE), None),
        (bluestore(MINE[::-1]), "holds a BlueStore: if it may go, run `wipefs -a /dev/x2`"),
        (ext4("data"), "holds an ext2/3/4 file system"),
    ],
)
def test_only_an_empty_device_or_our_own_is_taken(
    probe: ModuleType, wanted: dict[str, Any], head: bytes, said: str | None
) -> None:
    probe.Device = FakeDevice(head)
    sizes, problems = probe.check_osds(wanted)
    assert sizes == [2**32]
    assert problems == [] if said is None else said in problems[0]
    assert probe.check_osds({**wanted, "wipe": True})[1] == []


def test_a_device_too_small_is_told_in_numbers(probe: ModuleType, wanted: dict[str, Any]) -> None:
    probe.Device = FakeDevice(bytes(70000), size=2**29)
    assert probe.check_osds(wanted)[1] == [
        "The OSD device /dev/x2 of node osd3 holds 0.5 GiB; at least 1.0 GiB are needed."
    ]


def test_our_scratch_file_system_is_known_by_its_label(
    probe: ModuleType, wanted: dict[str, Any]
) -> None:
    probe.Device = FakeDevice(ext4("hotbed-scratch"))
    state, problem = probe.check_scratch(wanted)
    assert (state["made"], problem) == (True, None)
    probe.Device = FakeDevice(ext4("photos"))
    state, problem = probe.check_scratch(wanted)
    assert not state["made"]
    assert "scratch device /dev/x1 of node osd3 holds an ext2/3/4" in problem


def test_an_osd_without_device_is_told(probe: ModuleType, wanted: dict[str, Any]) -> None:
    probe.Device = FakeDevice(bytes(70000))
    more = [*wanted["osds"], {"id": 4, "uuid": "u"}]
    sizes, problems = probe.check_osds({**wanted, "osds": more})
    assert sizes == [2**32, 0]
    assert problems == ["Node osd3 has no device for osd.4: give it one in hotbed_osds."]
    assert probe.check_osds({**wanted, "osds": []}) == ([], [])


def test_filestore_has_one_osd_a_node(probe: ModuleType, wanted: dict[str, Any]) -> None:
    more = {**wanted, "osds": wanted["osds"] * 2, "objectstore": "filestore"}
    assert probe.check_osds(more)[1] == ["Node osd3 has 2 OSDs; with FileStore it can have one."]


def test_missing_and_plain_paths_are_told(probe: ModuleType, tmp_path: Path) -> None:
    missing = probe.Device("n", "OSD", str(tmp_path / "none"), None)
    assert "cannot be found" in missing.problem
    plain = tmp_path / "file"
    plain.write_text("x")
    assert "is no block device" in probe.Device("n", "OSD", str(plain), None).problem


def test_mounts_are_read_from_mountinfo(probe: ModuleType) -> None:
    text = (
        "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "40 29 7:1 / /var/lib/hotbed/scratch rw,noatime shared:9 - ext4 /dev/loop1 rw\n"
    )
    assert probe.mounts(text) == {"254:0": "/", "7:1": "/var/lib/hotbed/scratch"}


def answer(dpkg: str, apt: str) -> Callable[..., str]:
    return lambda *argv: {"dpkg-query": dpkg, "apt-cache": apt}.get(argv[0], "")


APT = "fio:\n  Installed: (none)\n  Candidate: {}\n  Version table:\n"


def test_packages_and_release(
    probe: ModuleType, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dpkg = "ceph-osd 16.2.15+ds-0+deb12u2 ii \nfio 3.33-3 ii \n"
    monkeypatch.setattr(probe, "output", answer(dpkg, ""))
    assert probe.check_packages(wanted) == ([], 16, [])
    _, _, said = probe.check_packages({**wanted, "ceph_majors": [18]})
    assert said == ["Node osd3 has Ceph 16; the releases that work are 18."]


def test_filestore_is_refused_where_ceph_has_none(
    probe: ModuleType, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "output", answer("ceph-osd 18.2.1 ii \nfio 3 ii \n", ""))
    _, _, said = probe.check_packages({**wanted, "filestore_last_major": 17})
    assert len(said) == 1
    assert "no FileStore any more" in said[0]


def test_a_package_nobody_offers_is_told_and_one_to_come_is_not(
    probe: ModuleType, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe.shutil, "which", lambda name: f"/usr/bin/{name}")
    dpkg = "ceph-osd 16.2.15 ii \nfio 3.33 un \n"
    monkeypatch.setattr(probe, "output", answer(dpkg, APT.format("3.33-3")))
    assert probe.check_packages(wanted) == (["fio"], 16, [])
    monkeypatch.setattr(probe, "output", answer(dpkg, APT.format("(none)")))
    _, _, said = probe.check_packages(wanted)
    assert "lacks fio, which its distribution does not offer" in said[0]
    monkeypatch.setattr(probe.shutil, "which", lambda name: None)
    assert "has no apt" in probe.check_packages(wanted)[2][0]
