"""Kernel features needed by a store and its deployer, detected without loading anything."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.checks import CheckResult
from testbed.sites.inventory.fitness import modules_of
from testbed.sites.inventory.hostside import HostMachine, survey
from testbed.spec import TestbedSpec
from tests.testbed.sites.fake_hosts import FakeHosts
from tests.testbed.sites.inventory_support import Make, hosts, make, make_spec
from tests.testbed.test_ports import CEPH, SWIFT, spec_of

__all__ = ["hosts", "make"]

RELEASE = os.uname().release


def write(root: Path, name: str, text: str | bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


CONFIG = "CONFIG_NET_SCH_TBF=m\nCONFIG_XFS_FS=y\n# CONFIG_BLK_DEV_DM is not set\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, (None, None, None)),
        ({"proc/misc": "236 device-mapper\n", "proc/filesystems": "\txfs\n"}, (True, True, None)),
        ({"proc/modules": "dm_mod 2 1 dm_log\nsch_tbf 1 0\n"}, (True, None, True)),
        ({"sys/module/xfs/refcnt": "1"}, (None, True, None)),
        (
            {
                f"lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/md/dm-mod.ko\n",
                f"lib/modules/{RELEASE}/modules.dep": "kernel/fs/xfs/xfs.ko.xz: kernel/lib/a.ko\n",
            },
            (True, True, False),
        ),
        ({f"boot/config-{RELEASE}": CONFIG}, (False, True, None)),
        ({"proc/config.gz": CONFIG}, (False, True, None)),
    ],
)
def test_a_module_is_found_loaded_built_in_or_to_be_loaded(
    tmp_path: Path, files: dict[str, str], found: tuple[bool | None, ...]
) -> None:
    """A container does not show the host's modules, so the result is unknown."""
    for name, text in files.items():
        write(tmp_path, name, gzip.compress(text.encode()) if name.endswith(".gz") else text)
    modules = survey(HostMachine(tmp_path, lambda argv: ""), {})["modules"]
    assert (modules["dm_mod"], modules["xfs"], modules["sch_tbf"]) == found


def test_what_each_store_needs() -> None:
    ceph = (("m", 1, "mon mgr"), ("o", 2, "osd"))
    swift = spec_of(SWIFT, ("p", 2, "proxy"), ("s", 2, "storage"))
    needs = {
        "own": modules_of(spec_of(CEPH, *ceph), ["osd"]),
        "lvm": modules_of(spec_of({**CEPH, "deployer": {"kind": "ceph-ansible"}}, *ceph), ["osd"]),
        "nfs": modules_of(spec_of({"kind": "nfs"}, ("n", 1, "nfs")), ["client"]),
        "storage": modules_of(swift, ["storage"]),
        "proxy": modules_of(swift, ["proxy"]),
    }
    assert {name: list(found) for name, found in needs.items()} == {
        "own": [],
        "lvm": ["dm_mod"],
        "nfs": ["nf_tables", "sch_htb", "cls_u32"],
        "storage": ["xfs", "nf_tables"],
        "proxy": ["sch_tbf", "nf_tables"],
    }


def with_deployer(kind: str) -> TestbedSpec:
    body: dict[str, Any] = make_spec().model_dump(mode="json")
    body["store"] = {**CEPH, "deployer": {"kind": kind}}
    body["groups"][0]["roles"] = ["admin", "mon", "mgr", "client"]
    return TestbedSpec.model_validate(body)


def found(make: Make, kind: str) -> dict[str, dict[str, CheckResult]]:
    machines = make().inspect(with_deployer(kind))
    return {each.node: {one.name: one for one in each.findings} for each in machines}


def test_a_kernel_without_device_mapper_is_found(make: Make, hosts: FakeHosts) -> None:
    """The deployer would refuse the kernel only after the machines are taken."""
    host = hosts.hosts["192.0.2.2"]
    (host.root / "proc/modules").unlink()
    host.write(f"boot/config-{RELEASE}", CONFIG)
    for kind in ("cephadm", "ceph-ansible"):
        finding = found(make, kind)["osd0"]["features"]
        assert (finding.ok, finding.needed) == (False, True)
        assert f"no device mapper (dm_mod): {kind} makes OSDs on LVM alone" in finding.found
        assert "choose deployer own" in finding.how
        assert found(make, kind)["osd1"]["features"].ok
    assert "features" not in found(make, "own")["osd0"]
    (host.root / f"boot/config-{RELEASE}").unlink()
    finding = found(make, "cephadm")["osd0"]["features"]
    assert (finding.ok, finding.needed) == (False, False)
    assert finding.found == "unknown: device mapper (dm_mod)"


def test_a_machine_that_is_a_container_is_none_for_cephadm(make: Make, hosts: FakeHosts) -> None:
    hosts.hosts["192.0.2.1"].container = "lxc"
    finding = found(make, "cephadm")["admin"]["container"]
    assert (finding.ok, finding.needed, finding.found) == (False, True, "lxc")
    assert found(make, "cephadm")["osd0"]["container"].ok
    assert "container" not in found(make, "ceph-ansible")["admin"]
