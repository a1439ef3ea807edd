"""The role `remove` on machines with another owner's Ceph, NFS server or Swift."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FSID, STRANGE = "5b8ac5f6-6d0e-5c43-9d0b-3a5c5e0f2f11", "11111111-2222-4333-8444-555555555555"
WANTED = {"fsid": FSID, "osds": [], "scratch_label": "hotbed-scratch"}
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


@pytest.fixture
def remove(
    script: Callable[[str, str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    module = script("remove", "remove")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


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
def test_another_clusters_ceph_is_left_whole(
    remove: ModuleType, tmp_path: Path, conf: str | None
) -> None:
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
def test_the_testbeds_ceph_goes_and_keyrings_that_it_did_not_bring_stay(
    remove: ModuleType, tmp_path: Path, spaced: str
) -> None:
    for name in CEPH:
        write(tmp_path, name)
    write(tmp_path, "etc/ceph/ceph.conf", f"[global]\n{spaced.format(FSID)}\n")
    write(tmp_path, DROPIN)
    of_cephadm = f"var/log/ceph/{STRANGE}/ceph-osd.1.log"
    write(tmp_path, of_cephadm)
    changed = remove.remove_files(WANTED)
    assert changed[-1] == f"{tmp_path}/etc/ceph/ceph.conf removed", "what tells that it is ours"
    assert left(tmp_path) == {"etc/ceph/ceph.client.lab.keyring", of_cephadm}
    assert remove.remove_files(WANTED) == []


@pytest.mark.parametrize(
    ("mark", "text"), [(DROPIN, ""), ("var/lib/ceph/osd/ceph-7/ceph_fsid", FSID + "\n")]
)
def test_what_is_left_of_the_testbeds_ceph_goes_without_its_ceph_conf(
    remove: ModuleType, tmp_path: Path, mark: str, text: str
) -> None:
    write(tmp_path, "var/lib/ceph/osd/ceph-7/whoami")
    write(tmp_path, mark, text)
    assert not remove.ceph_is_strange(WANTED)
    remove.remove_files(WANTED)
    assert left(tmp_path) == set()


def test_a_cluster_of_cephadms_is_strange_without_any_ceph_conf(
    remove: ModuleType, tmp_path: Path
) -> None:
    write(tmp_path, f"var/lib/ceph/{FSID}/mon.head/config")
    assert not remove.ceph_is_strange(WANTED)
    write(tmp_path, f"var/lib/ceph/{STRANGE}/mon.head/config")
    assert remove.ceph_is_strange(WANTED)


def test_an_nfs_server_of_the_distributions_keeps_its_state(
    remove: ModuleType, tmp_path: Path
) -> None:
    state = write(tmp_path, "var/lib/nfs/ganesha/v4recov/node0/client")
    exports = write(tmp_path, "etc/exports", "/srv *(rw)\n")
    assert remove.remove_files(WANTED) == []
    write(tmp_path, "etc/systemd/system/hotbed-ganesha.service")
    remove.remove_files(WANTED)
    assert not state.exists() and exports.exists()


@pytest.mark.parametrize("ours", [True, False])
def test_units_of_another_cluster_are_neither_stopped_nor_disabled(
    remove: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ours: bool,
) -> None:
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
    more = {"swift_disks": [], "swift_venv": "/none", "packages": False, "scratch_device": ""}
    monkeypatch.setattr(remove.sys, "argv", ["-", json.dumps({**WANTED, **more})])
    remove.main()
    stopped = [words for words in asked if words[0] in ("stop", "disable", "kill")]
    assert any("hotbed-1.service" in words for words in stopped)
    assert any("ceph" in word for words in stopped for word in words) is ours
    assert json.loads(capsys.readouterr().out)["strange"] is not ours
