"""Volumes for OSDs: reasons to refuse a device, and a device's contents after a purge."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.errors import raises

VOLUME = {"vg": "hotbed-0a1b2c3d-0", "lv": "osd", "device": "/dev/sdb2"}
MAPPING = "hotbed--0a1b2c3d--0-osd"


class Lvm:
    """lsblk, wipefs and LVM's commands over one device."""

    def __init__(self) -> None:
        self.group = ""
        self.signatures: list[str] = []
        self.children: list[dict[str, Any]] = []
        self.points: list[str | None] = [None]
        self.members = ["/dev/sdb2"]
        self.done: list[str] = []

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        said = getattr(self, argv[0].replace("-", "_"))(*argv[1:])
        return subprocess.CompletedProcess(argv, 0, said or "", "")

    def lsblk(self, *_: str) -> str:
        body = {"name": "sdb2", "type": "part", "size": 2**33, "mountpoints": self.points}
        return json.dumps({"blockdevices": [body | {"children": self.children}]})

    def wipefs(self, *words: str) -> str:
        if "--all" in words:
            self.done.append("wipefs")
            self.signatures = []
            return ""
        rows = [{"device": "sdb2", "type": name} for name in self.signatures]
        return json.dumps({"signatures": rows}) if rows else ""

    def pvs(self, *_: str) -> str:
        return f"  {self.group}\n"

    def vgremove(self, *words: str) -> None:
        self.done.append(f"vgremove {words[-1]}")
        self.group, self.children = "", [c for c in self.children if c["name"] != MAPPING]

    def dmsetup(self, *words: str) -> None:
        self.done.append(f"dmsetup {words[-1]}")
        self.children = [child for child in self.children if child["name"] != words[-1]]

    def vgs(self, *_: str) -> str:
        return "".join(f"  {member}\n" for member in self.members)

    def vgcreate(self, *words: str) -> None:
        self.done.append("vgcreate")
        self.group, self.signatures = words[1], ["LVM2_member"]

    def lvcreate(self, *_: str) -> None:
        self.done.append("lvcreate")
        self.children.append({"name": MAPPING, "type": "lvm"})

    def systemctl(self, *words: str) -> None:
        self.done.append(" ".join(("systemctl", *words)))

    def systemd_detect_virt(self, *_: str) -> str:
        return "none"


@pytest.fixture
def lvm():
    return Lvm()


@pytest.fixture
def volumes(script, lvm, monkeypatch):
    module = script("volumes", "volumes")
    monkeypatch.setattr(module, "run", lvm.run)
    monkeypatch.setattr(module, "no_device", lambda path: None)
    return module


def wanted(**changes: object) -> dict[str, object]:
    body = {"node": "osd0", "deployer": "cephadm", "min_bytes": 2**30, "wipe": False, "engine": ""}
    return {**body, "volumes": [VOLUME], **changes}


def test_an_empty_device_is_taken_left_alone_and_finished_if_cut_off(volumes, lvm):
    assert volumes.problem_of(VOLUME, wanted()) is None
    assert volumes.make(VOLUME, wanted()) == ["hotbed-0a1b2c3d-0/osd made on /dev/sdb2"]
    assert lvm.done == ["vgcreate", "lvcreate"]
    assert volumes.problem_of(VOLUME, wanted()) is None
    assert volumes.make(VOLUME, wanted()) == []
    lvm.children, lvm.done = [], []  # as if it had been cut off after vgcreate
    assert volumes.problem_of(VOLUME, wanted()) is None
    volumes.make(VOLUME, wanted())
    assert lvm.done == ["lvcreate"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"points": ["/srv"]}, "is mounted at /srv: free it"),
        ({"children": [{"name": "md0", "type": "raid1"}]}, "is in use by md0: free it"),
        ({"signatures": ["ext4", "ext4"]}, "holds ext4: if it may go, deploy with --wipe"),
    ],
)
def test_a_device_that_is_somebody_elses_is_refused(volumes, lvm, state, said):
    few = volumes.problem_of(VOLUME, wanted(min_bytes=9 * 2**30))
    assert "8.0 GiB; at least 9.0 GiB" in few
    vars(lvm).update(state)
    sentence = volumes.problem_of(VOLUME, wanted())
    assert sentence is not None
    assert sentence.startswith("The OSD device /dev/sdb2 of node osd0 ") and said in sentence


def test_wiping_takes_signatures_but_nothing_that_is_in_use(volumes, lvm):
    lvm.signatures = ["xfs"]
    assert volumes.problem_of(VOLUME, wanted(wipe=True)) is None
    volumes.make(VOLUME, wanted(wipe=True))
    assert lvm.done == ["wipefs", "vgcreate", "lvcreate"]
    lvm.points = ["/srv"]
    lvm.children = []
    assert "mounted" in str(volumes.problem_of(VOLUME, wanted(wipe=True)))


def test_a_group_goes_only_with_devices_that_were_named(volumes, lvm):
    lvm.group, lvm.signatures, lvm.members = "data", ["LVM2_member"], ["/dev/sdb2", "/dev/sdc"]
    sentence = volumes.problem_of(VOLUME, wanted(wipe=True))
    assert "volume group data" in str(sentence)
    with raises(SystemExit, "/dev/sdc too"):
        volumes.make(VOLUME, wanted(wipe=True))
    assert lvm.done == []
    other = VOLUME | {"device": "/dev/sdc"}
    volumes.make(VOLUME, wanted(wipe=True, volumes=[VOLUME, other]))
    assert lvm.done == ["vgremove data", "wipefs", "vgcreate", "lvcreate"]


def test_all_that_a_purge_leaves_is_taken_away(volumes, lvm):
    # ceph-volume's zap destroys the group and keeps the physical volume; a mapping may stay.
    lvm.signatures = ["LVM2_member"]
    lvm.children = [{"name": "ceph--1-osd--block--2", "type": "lvm"}]
    changed = volumes.free(VOLUME, ours=True)
    assert lvm.done == ["dmsetup ceph--1-osd--block--2", "wipefs"]
    assert len(changed) == 2
    assert volumes.free(VOLUME, ours=True) == []
    assert volumes.make(VOLUME, wanted()) != []  # and so it can be deployed again


@pytest.mark.parametrize(
    ("group", "signature"),
    [
        ("somebodys", "LVM2_member"),
        ("ceph-5b0a", "LVM2_member"),  # OSDs of another cluster
        ("", "ceph_bluestore"),
        ("", "ext4"),
        ("", "LVM2_member xfs"),
    ],
)
def test_what_is_not_a_stores_stays(volumes, lvm, group, signature):
    lvm.group, lvm.signatures = group, signature.split()
    assert volumes.free(VOLUME, ours=True) == []
    assert lvm.done == []


def test_only_the_clusters_own_osds_are_stopped(volumes, lvm, tmp_path, monkeypatch):
    monkeypatch.setattr(volumes, "ROOT", tmp_path)
    for number, fsid in ((2, "f-ours"), (7, "f-strange")):
        mark = tmp_path / f"var/lib/ceph/osd/ceph-{number}/ceph_fsid"
        mark.parent.mkdir(parents=True)
        mark.write_text(fsid + "\n")
    body = wanted(action="remove", fsid="f-ours")
    monkeypatch.setattr(volumes.sys, "argv", ["-", json.dumps(body)])
    volumes.main()
    assert lvm.done == ["systemctl stop ceph-f-ours@osd.*.service ceph-osd@2.service"]


def test_a_physical_volume_stays_where_lvm_cannot_tell_whose_it_is(volumes, lvm, monkeypatch):
    """A refused deployment installed no packages."""
    lvm.signatures = ["LVM2_member"]

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        if argv[0] == "pvs":
            return subprocess.CompletedProcess(argv, 127, "", "No such file or directory")
        return lvm.run(*argv)

    monkeypatch.setattr(volumes, "run", run)
    assert volumes.free(VOLUME, ours=True) == []
    assert lvm.done == []


def test_a_kernel_without_lvm_and_a_container_are_reported_with_the_way_out(
    volumes, lvm, monkeypatch
):
    assert volumes.machine_problems(wanted(volumes=[], engine="podman")) == []
    monkeypatch.setattr(lvm, "systemd_detect_virt", lambda *_: "systemd-nspawn\n")
    monkeypatch.setattr(volumes, "has_mapper", lambda: False)
    first, second = volumes.machine_problems(wanted(engine="podman"))
    assert "Node osd0 is itself a container (systemd-nspawn)" in first
    assert "no device mapper" in second and second.endswith("or deployer own.")


def test_a_path_that_is_no_device_is_reported(script, tmp_path):
    module = script("volumes", "volumes")
    file = tmp_path / "file"
    file.touch()
    report = [
        module.problem_of(VOLUME | {"device": str(path)}, wanted())
        for path in (file, tmp_path / "none")
    ]
    assert "is no block device" in report[0] and "cannot be found" in report[1]
    assert module.free(VOLUME | {"device": str(file)}, ours=True) == []
