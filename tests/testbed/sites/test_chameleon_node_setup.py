"""Set-up of a fresh machine: its disks, admitted keys, names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.sites.chameleon import node_setup
from testbed.sites.chameleon.node_setup import Trouble
from tests.errors import raises

GIB = 2**30


def disk(name: str, gib: int, *children: dict[str, Any], rota: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "path": f"/dev/{name}",
        "type": "disk",
        "size": gib * GIB,
        "rota": rota,
        "ro": False,
        "mountpoints": [None],
        "partlabel": None,
        "children": list(children),
    }


def part(path: str, label: str | None = None, mount: str | None = None) -> dict[str, Any]:
    return {"name": path, "path": path, "type": "part", "partlabel": label, "mountpoints": [mount]}


ROOT = disk("sda", 400, part("/dev/sda1", mount="/"), rota=False)


MARK = "0123456789ab"


def divided(name: str, mark: str, *volumes: dict[str, Any]) -> dict[str, Any]:
    """Return a disk that was partitioned for the server with this mark."""
    scratch = part(f"/dev/{name}1", node_setup.label("scratch", 0, mark))
    osd = part(f"/dev/{name}2", node_setup.label("osd", 0, mark))
    return disk(name, 100, scratch, {**osd, "children": list(volumes)})


def volume(name: str, mount: str | None = None) -> dict[str, Any]:
    return {**part(f"/dev/mapper/{name}", mount=mount), "name": name, "type": "lvm"}


def test_the_first_free_disk_of_the_kind_is_taken() -> None:
    devices = [disk("sdc", 2000), disk("sdb", 2000), ROOT, disk("sdd", 400, rota=False)]
    assert node_setup.choose(devices, 0, MARK, 40 * GIB, "any") == "/dev/sdb"
    assert node_setup.choose(devices, 0, MARK, 40 * GIB, "solid") == "/dev/sdd"
    assert node_setup.choose([*devices, disk("sdaa", 9)], 0, MARK, GIB, "rotational") == "/dev/sdb"


def test_disks_in_use_or_too_small_or_ours_are_left_alone() -> None:
    mirror = {**part("/dev/md0"), "type": "raid1"}
    devices = [
        ROOT,
        disk("sdb", 10),
        disk("sdc", 900, {**part("/dev/sdc1"), "children": [mirror]}),
        disk("sdd", 900, part("/dev/sdd1", f"hotbed-osd-{MARK}")),
        disk("sde", 900, {**part("/dev/sde1"), "children": [volume("theirs")]}),
        divided("sdf", "another", volume("ceph", mount="/mnt")),
    ]
    with raises(Trouble, "/dev/sda", "400 GiB"):
        node_setup.choose(devices, 1, MARK, 40 * GIB, "any")


def test_a_disk_that_is_divided_already_is_found_again() -> None:
    ours = divided("sdx", MARK)
    assert node_setup.choose([disk("sdb", 2000), ours], 0, MARK, GIB, "any") == "/dev/sdx"
    parts = node_setup.parts_of(ours, 0, MARK)
    assert {use: each["path"] for use, each in parts.items()} == {
        "scratch": "/dev/sdx1",
        "osd": "/dev/sdx2",
    }
    half = disk("sdy", 100, part("/dev/sdy1", f"hotbed-scratch-{MARK}"), part("/dev/sdy2"))
    assert node_setup.choose([disk("sdb", 2000), half], 0, MARK, GIB, "any") == "/dev/sdy"


@pytest.mark.parametrize("mark", ["another", ""], ids=["another server's", "an earlier version's"])
def test_what_an_earlier_lease_left_on_a_disk_is_not_taken_for_ours(mark: str) -> None:
    """Disks survive a lease: the same user may get the same machine again."""
    left = divided("sdb", mark)
    assert node_setup.parts_of(left, 0, MARK) == {}
    assert node_setup.choose([ROOT, left, disk("sdc", 100)], 0, MARK, GIB, "any") == "/dev/sdb"
    with_volume = divided("sdb", mark, volume("ceph--0-osd--block--0"))
    assert node_setup.choose([ROOT, with_volume], 0, MARK, GIB, "any") == "/dev/sdb"


def test_a_part_s_name_fits_into_its_table() -> None:
    assert len(node_setup.label("scratch", 99, MARK)) <= 36
    assert node_setup.label("osd", 1, MARK) == f"hotbed-osd1-{MARK}"


class Machine:
    """`run` on a machine with these disks."""

    def __init__(self, *devices: dict[str, Any]) -> None:
        self.devices = {each["path"]: each for each in devices}
        self.ran: list[str] = []
        self.emptied: list[tuple[str, int]] = []

    def run(self, *argv: str, stdin: str = "") -> str:
        self.ran.append(" ".join(argv))
        if argv[0] != "sfdisk":
            return ""
        if argv[1] == "--part-label":
            self.devices[argv[2]]["children"][int(argv[3]) - 1]["partlabel"] = argv[4]
        elif argv[1] == "--json":
            parts = self.devices[argv[2]]["children"]
            starts = [{"start": 2048 * (place + 1)} for place in range(len(parts))]
            return json.dumps({"partitiontable": {"partitions": starts, "sectorsize": 512}})
        else:
            path, sizes = argv[-1], stdin.count("size=")
            self.devices[path]["children"] = [part(f"{path}{i + 1}") for i in range(sizes)]
        return ""


def machine(monkeypatch: pytest.MonkeyPatch, *devices: dict[str, Any]) -> Machine:
    made = Machine(*devices)
    monkeypatch.setattr(node_setup, "run", made.run)
    monkeypatch.setattr(node_setup, "block_devices", lambda: list(made.devices.values()))
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)
    monkeypatch.setattr(
        node_setup, "empty", lambda path, start, size: made.emptied.append((path, start))
    )
    return made


WANTED: dict[str, Any] = {
    "disks": [{"path": None, "osd_bytes": 7 * GIB, "scratch_bytes": 3 * GIB}],
    "files": False,
    "media": "any",
    "mark": MARK,
}


def test_dividing_and_dividing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = machine(monkeypatch, ROOT, disk("sdb", 100), disk("sdc", 100))
    made = node_setup.make_disks(WANTED)
    assert made == {"scratch": "/dev/sdb1", "osd": "/dev/sdb2"}
    assert there.emptied == [("/dev/sdb", 2048 * 512), ("/dev/sdb", 4096 * 512)]
    assert there.ran[-2:] == [
        f"sfdisk --part-label /dev/sdb 1 hotbed-scratch-{MARK}",
        f"sfdisk --part-label /dev/sdb 2 hotbed-osd-{MARK}",
    ]
    there.ran.clear()
    assert node_setup.make_disks(WANTED) == made
    assert there.ran == []


def test_a_disk_of_an_earlier_lease_is_cleared_and_divided_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = divided("sdb", "another", volume("ceph--0-osd--block--0"))
    there = machine(monkeypatch, ROOT, left)
    assert node_setup.make_disks(WANTED) == {"scratch": "/dev/sdb1", "osd": "/dev/sdb2"}
    assert there.ran[:4] == [
        "dmsetup remove --retry ceph--0-osd--block--0",
        "wipefs --all --force /dev/sdb2",
        "wipefs --all --force /dev/sdb1",
        "wipefs --all --force /dev/sdb",
    ]
    assert len(there.emptied) == 2


def test_a_crash_before_the_parts_had_their_names_divides_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = machine(monkeypatch, disk("sdb", 100, part("/dev/sdb1"), part("/dev/sdb2")))
    node_setup.make_disks(WANTED)
    assert len(there.emptied) == 2


def test_a_name_that_leads_to_another_part_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_setup, "BY", tmp_path)
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)
    for way in ("by-partlabel", "by-partuuid"):
        (tmp_path / way).mkdir()
    ours, theirs = tmp_path / "sdb2", tmp_path / "sdc2"
    for path in (ours, theirs):
        path.touch()
    (tmp_path / "by-partlabel" / "hotbed-osd-x").symlink_to(theirs)
    (tmp_path / "by-partuuid" / "1-2-3").symlink_to(ours)
    named = part(str(ours), "hotbed-osd-x")
    assert node_setup.lasting({"osd": named}) == {"osd": str(ours)}
    by_id = {**named, "partuuid": "1-2-3"}
    assert node_setup.lasting({"osd": by_id}) == {"osd": str(tmp_path / "by-partuuid" / "1-2-3")}
    (tmp_path / "by-partlabel" / "hotbed-osd-x").unlink()
    (tmp_path / "by-partlabel" / "hotbed-osd-x").symlink_to(ours)
    by_name = {"osd": str(tmp_path / "by-partlabel" / "hotbed-osd-x")}
    assert node_setup.lasting({"osd": by_id}) == by_name


def test_a_named_disk_in_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_setup, "block_devices", lambda: [ROOT])
    each = {"path": "/dev/sda", "osd_bytes": GIB, "scratch_bytes": 0}
    with raises(Trouble, "/dev/sda is in use"):
        node_setup.make_disks({**WANTED, "disks": [each]})


def test_root_is_let_in_without_the_images_refusal(tmp_path: Path) -> None:
    folder = tmp_path / ".ssh"
    folder.mkdir()
    keys = folder / "authorized_keys"
    refusal = 'no-pty,command="echo Please log in as cc" ssh-ed25519 AAAA ours'
    keys.write_text(f"{refusal}\nssh-ed25519 BBBB somebody\n")
    for _ in range(2):
        node_setup.let_in(["ssh-ed25519 AAAA ours"], tmp_path)
        lines = keys.read_text().splitlines()
        assert lines == ["ssh-ed25519 AAAA ours", "ssh-ed25519 BBBB somebody"]
    assert keys.stat().st_mode & 0o777 == 0o600


def test_names_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost")
    monkeypatch.setattr(node_setup.platform, "node", lambda: "admin")
    for address in ("10.0.0.1", "10.0.0.2"):
        node_setup.name_all("admin", {"admin": address}, hosts)
    assert hosts.read_text() == (
        "127.0.0.1 localhost\n# BEGIN hotbed-site\n10.0.0.2 admin\n# END hotbed-site\n"
    )


@pytest.mark.skipif(shutil.which("sfdisk") is None, reason="sfdisk is not installed")
def test_a_partition_table_that_sfdisk_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(2 * GIB)
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)  # no udev to wait for
    node_setup.divide(str(image), 1, "old", 1200 * node_setup.MIB, 600 * node_setup.MIB)
    with image.open("r+b") as file:
        for place in (601 * node_setup.MIB, 601 * node_setup.MIB + GIB):
            file.seek(place)
            file.write(b"bluestore block device")
    node_setup.divide(str(image), 1, "new", 1200 * node_setup.MIB, 600 * node_setup.MIB)
    with image.open("rb") as file:
        for place in (601 * node_setup.MIB, 601 * node_setup.MIB + GIB):
            file.seek(place)
            assert file.read(22) == bytes(22)
    dump = json.loads(node_setup.run("sfdisk", "--json", str(image)))["partitiontable"]
    assert dump["label"] == "gpt"
    made = {each["name"]: each["size"] * 512 for each in dump["partitions"]}
    assert made == {
        "hotbed-scratch1-new": 600 * node_setup.MIB,
        "hotbed-osd1-new": 1200 * node_setup.MIB,
    }
