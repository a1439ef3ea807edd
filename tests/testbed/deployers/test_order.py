"""Order of steps in foreign deployments and removals, with playbooks that are only recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Template

from schemas.errors import RemoteError, UserError
from testbed.deploy import ceph_ansible, cephadm, foreign
from testbed.deploy.ceph_ansible import PURGE, CephAnsible
from testbed.deploy.cephadm import Cephadm
from testbed.deploy.foreign import memory_target
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import Ansible, DeployError, Failure
from testbed.deploy.roles import spec_of
from testbed.sites.contract import Node, Progress, Testbed
from testbed.ssh import Completed
from tests.errors import raises
from tests.testbed.deployers.beds import bed_of, spec_with


class Noted:
    """`play` that records playbooks and their variables; `fails` names a failing playbook."""

    def __init__(self) -> None:
        self.books: list[str] = []
        self.variables: dict[str, Mapping[str, Any]] = {}
        self.hosts: dict[str, set[str]] = {}
        self.fails = ""
        self.failures: tuple[Failure, ...] = ()

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
        self.hosts[playbook] = set(inventory["all"]["hosts"])
        progress("half", 0.5)
        if playbook == self.fails:
            raise DeployError("it failed.", self.failures)
        return {"admin": 1, "localhost": 1}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Noted:
    found = Noted()
    for module in (foreign, ceph_ansible):
        monkeypatch.setattr(module, "play", found)
    tool = Ansible(tmp_path, tmp_path / "cfg")
    monkeypatch.setattr(ceph_ansible, "tool", lambda *_: tool)
    monkeypatch.setattr(ceph_ansible, "variables_known", lambda _: {"crush_device_class"})
    monkeypatch.setattr(ceph_ansible, "task_names", lambda *_: [])
    everywhere = frozenset({"admin", "osd0", "osd1", "osd2", "gate"})
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda bed: everywhere)
    return found


def test_ceph_ansible_stands_between_preparation_and_adoption(noted: Noted, tmp_path: Path) -> None:
    spec = spec_with("ceph-ansible")
    bed = bed_of(spec, tmp_path)
    told: list[float] = []
    changed = CephAnsible().deploy(bed, spec, lambda phase, share: told.append(share), wipe=True)
    assert noted.books == ["prepare.yml", "site.yml", "adopt.yml"]
    assert changed == {"admin": 3}  # localhost is not a node
    assert told == sorted(told)
    assert noted.variables["prepare.yml"]["hotbed_wipe"] is True
    assert "adopt_pools" in noted.variables["adopt.yml"]
    assert spec_of(bed) == spec


def test_an_unknown_variable_is_told_before_any_machine_is_touched(
    noted: Noted, tmp_path: Path
) -> None:
    spec = spec_with({"kind": "ceph-ansible", "variables": {"nonsense": 1}})
    with raises(UserError, "nonsense is no variable"):
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


def test_the_purge_goes_to_machines_of_this_cluster_alone(
    noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge removes any Ceph, and a machine may hold another cluster's."""
    spec = spec_with("ceph-ansible")
    bed = bed_of(spec, tmp_path)
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda bed: frozenset({"osd1"}))
    assert CephAnsible().remove(bed, spec) == {"admin": 3}
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]
    assert noted.hosts[PURGE] == {"osd1"}
    assert noted.hosts["remove.yml"] == {node.name for node in bed.nodes}

    noted.books.clear()
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda bed: frozenset())
    CephAnsible().remove(bed, spec)
    assert noted.books == ["leftovers.yml", "remove.yml"]


def test_whose_a_machine_is_stands_in_its_ceph_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = bed_of(spec_with("ceph-ansible"), tmp_path, user="cc")
    ours = cluster_id(bed)
    confs = {
        "admin": f"[global]\nfsid = {ours}\n",
        "osd0": f"fsid={ours} # the cluster's\n",
        "osd1": f"[global]\nfsid = 1{ours}\n# fsid = {ours}\n",
        "osd2": "",
    }

    class Shell:
        def __init__(self, node: Node) -> None:
            self.node = node

        def run(self, argv: list[str], **_: object) -> Completed:
            assert argv == ["sudo", "-n", "cat", "/etc/ceph/ceph.conf"]
            if self.node.name not in confs:
                raise RemoteError("node gate cannot be reached by ssh", retry=True)
            text = confs[self.node.name]
            return Completed(tuple(argv), int(not text), text.encode(), b"")

    monkeypatch.setattr(ceph_ansible, "shell_to", lambda bed, node: Shell(node))
    assert ceph_ansible.nodes_with_its_conf(bed) == {"admin", "osd0"}


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (PURGE, "purge failed (it failed.)"),
        ("leftovers.yml", "it failed"),
        ("remove.yml", "it failed"),
    ],
)
def test_a_node_that_fails_keeps_none_of_the_others_from_being_cleaned(
    noted: Noted, tmp_path: Path, fails: str, said: str
) -> None:
    noted.fails, noted.failures = fails, (Failure("osd1", "", "x", "it failed"),)
    spec = spec_with("ceph-ansible")
    with raises(DeployError, said) as error:
        CephAnsible().remove(bed_of(spec, tmp_path), spec)
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]
    assert error.value.failures == noted.failures


def test_failures_of_all_steps_are_told_together() -> None:
    def fails(*nodes: str) -> foreign.Step:
        def step() -> dict[str, int]:
            raise DeployError("no.", tuple(Failure(node, "", "x", "no") for node in nodes))

        return step

    with raises(DeployError, "no") as error:
        foreign.every(fails("osd0"), lambda: {"admin": 1}, fails("osd1"))
    assert [failure.node for failure in error.value.failures] == ["osd0", "osd1"]
    with pytest.raises(DeployError) as error:
        foreign.every(fails("osd0"), fails())
    assert error.value.failures == (), "the second may have failed on any node"


class MadeUp:
    """Cluster of cephadm that follows its script."""

    def __init__(self, noted: Noted, failed: list[Failure]) -> None:
        self._noted, self._failed = noted, failed

    def bring(self, release: str, settings: object, progress: Progress) -> None:
        self._noted.books.append(f"bring {release}")
        progress("x", 1.0)

    def remove(self, progress: Progress) -> list[Failure]:
        self._noted.books.append("remove")
        return self._failed


def test_cephadm_stands_between_preparation_and_adoption(
    noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Failure] = []
    monkeypatch.setattr(cephadm, "_cluster", lambda *_: MadeUp(noted, failed))
    spec = spec_with({"kind": "cephadm", "engine": "docker"})
    bed = bed_of(spec, tmp_path)
    Cephadm().deploy(bed, spec)
    assert noted.books == ["prepare.yml", "bring tentacle", "adopt.yml"]
    assert noted.variables["prepare.yml"]["hotbed_engine"] == "docker"
    listed = Template(noted.variables["prepare.yml"]["validate_ceph_packages"])
    for groups in (["mons"], ["osds"], ["rgws"]):
        # cephadm itself needs these on every host.
        assert {"docker.io", "lvm2"} <= set(yaml.safe_load(listed.render(group_names=groups)))
    # ceph.conf belongs to cephadm, so the settings for a quiet cluster go into the database.
    settings = noted.variables["adopt.yml"]["adopt_settings"]
    assert settings["osd"]["osd_max_scrubs"] == "0"
    assert settings["osd"]["osd_memory_target_autotune"] == "false"
    as_the_role = memory_target(bed.node("osd1").memory_bytes, 1)
    assert settings["osd/host:osd1"] == {"osd_memory_target": str(as_the_role)}
    given = spec_with("cephadm", config={"osd": {"osd_memory_target": 2**30}})
    Cephadm().deploy(bed, given)
    settings = noted.variables["adopt.yml"]["adopt_settings"]
    assert settings["osd"]["osd_memory_target"] == str(2**30)
    assert "osd/host:osd1" not in settings

    noted.books.clear()
    failed.append(Failure("osd0", "cephadm", "Remove the cluster", "node osd0: busy"))
    noted.fails, noted.failures = "leftovers.yml", (Failure("osd1", "", "x", "it failed"),)
    told = "could not remove its cluster from node osd0: busy. it failed."
    with raises(DeployError, told) as error:
        Cephadm().remove(bed, spec)
    assert noted.books == ["remove", "leftovers.yml", "remove.yml"]
    assert [failure.node for failure in error.value.failures] == ["osd0", "osd1"]
