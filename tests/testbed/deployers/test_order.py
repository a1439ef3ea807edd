"""What happens in which order when others deploy and remove, with playbooks that are only noted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.deploy import spec_of
from testbed.deployers import foreign
from testbed.deployers.ceph_ansible import deployer as ceph_ansible
from testbed.deployers.ceph_ansible import sources, tasks
from testbed.deployers.ceph_ansible.deployer import PURGE, CephAnsible
from testbed.deployers.cephadm import deployer as cephadm
from testbed.deployers.cephadm.deployer import Cephadm
from testbed.playbook_run import Ansible, DeployError
from testbed.sites.contract import Progress, Testbed
from tests.testbed.deployers.beds import bed_of, spec_with


class Noted:
    """`play` that notes playbooks and their variables; `fails` names one that does."""

    def __init__(self) -> None:
        self.books: list[str] = []
        self.variables: dict[str, Mapping[str, Any]] = {}
        self.fails = ""

    def __call__(
        self,
        testbed: Testbed,
        folder: Path,
        playbook: str,
        inventory: Mapping[str, Any],
        progress: Progress,
        **_: object,
    ) -> dict[str, int]:
        self.books.append(playbook)
        self.variables[playbook] = dict(inventory["all"]["vars"])
        progress("half", 0.5)
        if playbook == self.fails:
            raise DeployError("it failed.")
        return {"admin": 1, "localhost": 1}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Noted:
    found = Noted()
    for module in (foreign, ceph_ansible):
        monkeypatch.setattr(module, "play", found)
    tool = Ansible(tmp_path, tmp_path / "cfg")
    monkeypatch.setattr(ceph_ansible, "tool", lambda *_: tool)
    monkeypatch.setattr(sources, "variables_known", lambda _: {"crush_device_class"})
    monkeypatch.setattr(tasks, "names_of", lambda *_: [])
    return found


def test_ceph_ansible_stands_between_preparation_and_adoption(noted: Noted, tmp_path: Path) -> None:
    spec = spec_with("ceph-ansible")
    bed = bed_of(spec, tmp_path)
    told: list[float] = []
    changed = CephAnsible().deploy(bed, spec, lambda phase, share: told.append(share), wipe=True)
    assert noted.books == ["prepare.yml", "site.yml", "adopt.yml"]
    assert changed == {"admin": 3}  # localhost is no node
    assert told == sorted(told)
    assert noted.variables["prepare.yml"]["hotbed_wipe"] is True
    assert "adopt_pools" in noted.variables["adopt.yml"]
    assert spec_of(bed) == spec


def test_an_unknown_variable_is_told_before_any_machine_is_touched(
    noted: Noted, tmp_path: Path
) -> None:
    spec = spec_with({"kind": "ceph-ansible", "variables": {"nonsense": 1}})
    with pytest.raises(UserError, match="nonsense is no variable"):
        CephAnsible().deploy(bed_of(spec, tmp_path), spec)
    assert noted.books == []


def test_nothing_is_adopted_of_a_cluster_that_was_not_deployed(
    noted: Noted, tmp_path: Path
) -> None:
    noted.fails = "site.yml"
    spec = spec_with("ceph-ansible")
    with pytest.raises(DeployError):
        CephAnsible().deploy(bed_of(spec, tmp_path), spec)
    assert noted.books == ["prepare.yml", "site.yml"]


def test_what_the_purge_leaves_goes_too(noted: Noted, tmp_path: Path) -> None:
    spec = spec_with("ceph-ansible")
    assert CephAnsible().remove(bed_of(spec, tmp_path), spec) == {"admin": 3}
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]


def test_a_purge_that_fails_is_told_when_the_rest_is_done(noted: Noted, tmp_path: Path) -> None:
    noted.fails = PURGE
    spec = spec_with("ceph-ansible")
    with pytest.raises(DeployError, match=r"purge failed \(it failed\.\).*packages may be left"):
        CephAnsible().remove(bed_of(spec, tmp_path), spec)
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]


class MadeUp:
    """A cluster of cephadm's that does as told."""

    def __init__(self, noted: Noted, failed: list[str]) -> None:
        self._noted, self._failed = noted, failed

    def bring(self, release: str, settings: object, progress: Progress) -> None:
        self._noted.books.append(f"bring {release}")
        progress("x", 1.0)

    def remove(self, progress: Progress) -> list[str]:
        self._noted.books.append("remove")
        return self._failed


def test_cephadm_stands_between_preparation_and_adoption(
    noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    monkeypatch.setattr(cephadm, "_cluster", lambda *_: MadeUp(noted, failed))
    spec = spec_with({"kind": "cephadm", "engine": "docker"})
    bed = bed_of(spec, tmp_path)
    Cephadm().deploy(bed, spec)
    assert noted.books == ["prepare.yml", "bring tentacle", "adopt.yml"]
    assert noted.variables["prepare.yml"]["hotbed_engine"] == "docker"
    assert "docker.io" in noted.variables["prepare.yml"]["validate_ceph_packages"]
    # ceph.conf is cephadm's own: what keeps the cluster quiet goes into the database.
    assert noted.variables["adopt.yml"]["adopt_settings"]["osd"]["osd_max_scrubs"] == "0"

    noted.books.clear()
    failed.append("node osd0: busy")
    with pytest.raises(DeployError, match="could not remove its cluster from node osd0: busy"):
        Cephadm().remove(bed, spec)
    assert noted.books == ["remove", "leftovers.yml", "remove.yml"]
