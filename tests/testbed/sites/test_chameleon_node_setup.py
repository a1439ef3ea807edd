"""What is done on a fresh machine: its disks, who is let in, names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.sites.chameleon import node_setup
from testbed.sites.chameleon.node_setup import Trouble

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


def test_the_first_free_disk_of_the_kind_is_taken() -> None:
    devices = [disk("sdc", 2000), disk("sdb", 2000), ROOT, disk("sdd", 400, rota=False)]
    assert node_setup.choose(devices, 0, 2, 40 * GIB, "any") == "/dev/sdb"
    assert node_setup.choose(devices, 0, 2, 40 * GIB, "solid") == "/dev/sdd"
    assert node_setup.choose([*devices, disk("sdaa", 9)], 0, 2, GIB, "rotational") == "/dev/sdb"


def test_disks_in_use_or_too_small_or_ours_are_left_alone() -> None:
    mirror = {**part("/dev/md0"), "type": "raid1"}
    devices = [
        ROOT,
        disk("sdb", 10),
        disk("sdc", 900, {**part("/dev/sdc1"), "children": [mirror]}),
        disk("sdd", 900, part("/dev/sdd1", "hotbed-osd")),
    ]
    with pytest.raises(Trouble, match=r"no disk of at least .*/dev/sda of 400 GiB \(in use\)"):
        node_setup.choose(devices, 1, 1, 40 * GIB, "any")


def test_a_disk_that_is_divided_already_is_found_again() -> None:
    ours = disk("sdx", 100, part("/dev/sdx1", "hotbed-scratch"), part("/dev/sdx2", "hotbed-osd"))
    devices = [disk("sdb", 2000), ours]
    assert node_setup.choose(devices, 0, 2, GIB, "any") == "/dev/sdx"
    assert node_setup.parts_of(ours, 0) == {"scratch": "/dev/sdx1", "osd": "/dev/sdx2"}


def test_dividing_and_dividing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"devices": [ROOT, disk("sdb", 100), disk("sdc", 100)]}
    ran: list[tuple[str, ...]] = []

    def run(*argv: str, stdin: str = "") -> str:
        ran.append((*argv, stdin))
        if argv[0] == "sfdisk":
            names = [line.split("name=")[1] for line in stdin.splitlines() if "name=" in line]
            of_disk = next(d for d in state["devices"] if d["path"] == argv[-1])
            of_disk["children"] = [part(f"{argv[-1]}{i}", n) for i, n in enumerate(names, start=1)]
        return ""

    monkeypatch.setattr(node_setup, "run", run)
    monkeypatch.setattr(node_setup, "block_devices", lambda: state["devices"])
    monkeypatch.setattr(node_setup.shutil, "which", lambda name: None)
    each = {"path": None, "osd_bytes": 7 * GIB, "scratch_bytes": 3 * GIB}
    wanted = {"disks": [each], "files": False, "media": "any"}
    made = node_setup.make_disks(wanted)
    assert made == {"scratch": "/dev/sdb1", "osd": "/dev/sdb2"}
    (divided,) = [line for line in ran if line[0] == "sfdisk"]
    assert "size=3072MiB, name=hotbed-scratch" in divided[-1]
    assert "size=7168MiB, name=hotbed-osd" in divided[-1]
    ran.clear()
    assert node_setup.make_disks(wanted) == made
    assert ran == []


def test_a_named_disk_in_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_setup, "block_devices", lambda: [ROOT])
    each = {"path": "/dev/sda", "osd_bytes": GIB, "scratch_bytes": 0}
    with pytest.raises(Trouble, match="/dev/sda is in use"):
        node_setup.make_disks({"disks": [each], "files": False, "media": "any"})


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
    node_setup.divide(str(image), 1, 1200 * node_setup.MIB, 600 * node_setup.MIB)
    dump = json.loads(node_setup.run("sfdisk", "--json", str(image)))["partitiontable"]
    assert dump["label"] == "gpt"
    made = {each["name"]: each["size"] * 512 for each in dump["partitions"]}
    assert made == {
        "hotbed-scratch1": 600 * node_setup.MIB,
        "hotbed-osd1": 1200 * node_setup.MIB,
    }
