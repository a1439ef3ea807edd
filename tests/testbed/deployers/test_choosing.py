"""Choice of a deployer, the order of its steps, and removal of what it left on machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Template

from schemas.errors import RemoteError, UserError
from testbed.deploy import ceph_ansible, deployers, deployment, foreign, roles
from testbed.deploy.ceph_ansible import PURGE, CephAnsible
from testbed.deploy.cephadm import Cephadm, CephadmCluster
from testbed.deploy.contract import Deployer
from testbed.deploy.deployers import claim, deployer, with_kind
from testbed.deploy.foreign import (
    DAEMON_BYTES,
    memory_target,
    network_of,
    volumes,
)
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import (
    LOG,
    Ansible,
    DeployError,
    Failure,
    RefusedError,
    ansible_folder,
    private_data,
)
from testbed.deploy.roles import save_spec, spec_of
from testbed.sites.contract import Node, Progress, SiteError, Testbed
from testbed.sites.inventory import InventorySite
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from testbed.spec.stores import KINDS
from testbed.ssh import Completed
from tests.errors import raises
from tests.testbed.deployers.beds import GROUPS, RAW, bed_of, spec_with
from tests.testbed.sites.fake_hosts import FakeHosts
from tests.testbed.sites.fake_shells import PlayedShell, ended
from tests.testbed.sites.inventory_support import OPTIONS, ceph_spec, files, hosts

__all__ = ["hosts"]


def test_every_deployer_has_the_whole_interface_and_a_plan():
    for kind in KINDS:
        found = deployer(kind)
        assert isinstance(found, Deployer) and found.kind == kind
        plan = found.plan(spec_with(kind))
        assert plan.deployer == kind and plan.steps
        assert found.usable().what == f"deployer {kind}"
        assert deployers.choose(spec_with(kind)).kind == kind
    with pytest.raises(UserError):
        deployer("rook")


def test_another_deployer_by_option_is_held_to_the_same_rules():
    assert deployers.with_kind(spec_with(), "cephadm").ceph().deployer.kind == "cephadm"
    kept = spec_with({"kind": "cephadm", "release": "reef"})
    assert deployers.with_kind(kept, "cephadm") == kept
    with raises(UserError, where="--deployer cephadm: store"):
        deployers.with_kind(spec_with(objectstore="filestore"), "cephadm")
    nfs = [{"name": "a", "roles": ["admin", "client"]}, {**GROUPS[1], "roles": ["nfs"]}]
    files = TestbedSpec.model_validate({"name": "t", "groups": nfs, "store": {"kind": "nfs"}})
    assert deployers.with_kind(files, "own") == files
    with raises(UserError, "has the store nfs"):
        deployers.with_kind(files, "cephadm")


def test_networks_volumes_and_memory_of_a_bed(tmp_path):
    bed = bed_of(spec_with(), tmp_path)
    assert network_of(bed) == "10.1.0.8/29"  # 10.1.0.10 to .14
    found = [volumes(bed, node) for node in bed.nodes]
    assert [len(each) for each in found] == [0, 1, 1, 1, 0]
    assert found[1][0]["device"] == "/dev/sdb2"
    sizes = {(2**34, 2): 2**32, (2**30, 1): DAEMON_BYTES, (None, 1): 2**31}
    assert all(memory_target(*given) == size for given, size in sizes.items())


# -- order of steps, with playbooks that are only recorded -----------------------------------------


class Noted:
    """`play` that records playbooks and their variables; `fails` names a failing playbook."""

    def __init__(self) -> None:
        self.books: list[str] = []
        self.variables: dict[str, Mapping[str, Any]] = {}
        self.hosts: dict[str, set[str]] = {}
        self.groups: dict[str, set[str]] = {}
        self.fails = ""
        self.failures: tuple[Failure, ...] = ()

    def __call__(self, testbed, folder, playbook, inventory, progress, **_):
        self.books.append(playbook)
        self.variables[playbook] = dict(inventory["all"]["vars"])
        self.hosts[playbook] = set(inventory["all"]["hosts"])
        self.groups[playbook] = set(inventory["all"]["children"])
        progress("half", 0.5)
        if playbook == self.fails:
            raise DeployError("it failed.", self.failures)
        return {"admin": 1, "localhost": 1}


@pytest.fixture
def noted(monkeypatch, tmp_path):
    found = Noted()
    for module in (foreign, ceph_ansible):
        monkeypatch.setattr(module, "play", found)
    tool = Ansible(tmp_path, tmp_path / "cfg")
    monkeypatch.setattr(ceph_ansible, "tool", lambda *_: tool)
    monkeypatch.setattr(ceph_ansible, "variables_known", lambda _: {"crush_device_class"})
    everywhere = frozenset({"admin", "osd0", "osd1", "osd2", "gate"})
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda bed: everywhere)
    return found


def test_ceph_ansible_stands_between_preparation_and_adoption(noted, tmp_path):
    spec = spec_with("ceph-ansible")
    bed = bed_of(spec, tmp_path)
    shares: list[float] = []
    changed = CephAnsible().deploy(bed, spec, lambda phase, x: shares.append(x), wipe=True)
    assert noted.books == ["prepare.yml", "site.yml", "adopt.yml"]
    assert changed == {"admin": 3}  # localhost is not a node
    assert shares == sorted(shares)
    assert noted.variables["prepare.yml"]["hotbed_wipe"] is True
    assert "adopt_pools" in noted.variables["adopt.yml"]
    assert spec_of(bed) == spec
    noted.books.clear()
    noted.fails = "site.yml"
    with pytest.raises(DeployError):
        CephAnsible().deploy(bed, spec)
    wrong = spec_with({"kind": "ceph-ansible", "variables": {"nonsense": 1}})
    with raises(UserError, where="nonsense"):
        CephAnsible().deploy(bed, wrong)
    assert noted.books == ["prepare.yml", "site.yml"]


def test_raw_osds_are_added_to_the_cluster_of_ceph_ansible(noted, tmp_path, monkeypatch):
    spec = spec_with(RAW)
    bed = bed_of(spec, tmp_path)
    shares: list[float] = []
    CephAnsible().deploy(bed, spec, lambda phase, x: shares.append(x))
    assert noted.books == ["prepare.yml", "site.yml", "osds.yml", "adopt.yml"]
    assert shares == sorted(shares)
    assert noted.hosts["site.yml"] == {"admin", "gate"}
    settings = noted.variables["adopt.yml"]["adopt_settings"]
    assert settings["mgr"] == {"mgr/crash/warn_recent_interval": "0"}
    assert noted.hosts["osds.yml"] == {node.name for node in bed.nodes}
    for book in ("prepare.yml", "osds.yml"):  # the distribution's Ceph must be of that release
        assert noted.variables[book]["validate_ceph_majors"] == [18]
        assert "validate_ceph_packages" not in noted.variables[book]

    noted.books.clear()
    stop_store = lambda bed: noted.books.append("stop")  # noqa: E731
    monkeypatch.setattr(ceph_ansible, "stop_store", stop_store)
    CephAnsible().remove(bed, spec)
    # A purge refuses a machine where an OSD that it does not know still runs.
    assert noted.books == ["stop", PURGE, "leftovers.yml", "remove.yml"]
    assert noted.hosts[PURGE] == {"admin", "gate"}

    def unreachable(bed: Testbed) -> None:
        raise RemoteError("node osd0 cannot be reached by ssh", retry=True)

    noted.books.clear()
    monkeypatch.setattr(ceph_ansible, "stop_store", unreachable)
    CephAnsible().remove(bed, spec)
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]


def test_a_late_check_of_raw_osds_does_not_look_like_a_refusal(tmp_path, noted, monkeypatch):
    """ceph-ansible has changed the machines before."""
    refusing: dict[str, tuple[str, ...]] = {}

    def play(bed, folder, book, *rest: object, ansible: Ansible) -> dict[str, int]:
        refusing[book] = ansible.refusing
        return {}

    monkeypatch.setattr(ceph_ansible, "play", play)
    spec = spec_with(RAW)
    CephAnsible().deploy(bed_of(spec, tmp_path), spec)
    assert refusing["osds.yml"] == ()


def test_the_purge_goes_to_machines_of_this_cluster_alone(noted, tmp_path, monkeypatch):
    """The purge removes any Ceph, and a machine may hold another cluster's."""
    spec = spec_with("ceph-ansible")
    bed = bed_of(spec, tmp_path)
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda bed: frozenset({"osd1"}))
    assert CephAnsible().remove(bed, spec) == {"admin": 3}
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]
    assert noted.hosts[PURGE] == {"osd1"}
    assert noted.groups[PURGE] == {"mons", "mgrs", "osds", "rgws"}  # modules of clients stay
    assert noted.hosts["remove.yml"] == {node.name for node in bed.nodes}

    noted.books.clear()
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda bed: frozenset())
    CephAnsible().remove(bed, spec)
    assert noted.books == ["leftovers.yml", "remove.yml"]


def test_a_machines_ceph_conf_names_its_cluster(tmp_path, monkeypatch):
    bed = bed_of(spec_with("ceph-ansible"), tmp_path, user="cc")
    ours = cluster_id(bed)
    confs = {
        "admin": f"[global]\nfsid = {ours}\n",
        "osd0": f"fsid={ours} # the cluster's\n",
        "osd1": f"[global]\nfsid = 1{ours}\n# fsid = {ours}\n",
        "osd2": "",
    }

    class NodesShell(PlayedShell):
        def __init__(self, node: Node) -> None:
            self.node = node.name

        def answer(self, argv: list[str], input: bytes | None) -> Completed:
            assert argv == ["sudo", "-n", "cat", "/etc/ceph/ceph.conf"]
            if self.node not in confs:
                raise RemoteError("node gate cannot be reached by ssh", retry=True)
            text = confs[self.node]
            return ended(argv, int(not text), text)

    monkeypatch.setattr(ceph_ansible, "shell_to", lambda bed, node: NodesShell(node))
    assert ceph_ansible.nodes_with_its_conf(bed) == {"admin", "osd0"}


@pytest.mark.parametrize("fails", [PURGE, "leftovers.yml", "remove.yml"])
def test_a_node_that_fails_keeps_none_of_the_others_from_being_cleaned(noted, tmp_path, fails):
    noted.fails, noted.failures = fails, (Failure("osd1", "", "x", "it failed"),)
    spec = spec_with("ceph-ansible")
    with raises(DeployError, "it failed") as error:
        CephAnsible().remove(bed_of(spec, tmp_path), spec)
    assert noted.books == [PURGE, "leftovers.yml", "remove.yml"]
    assert error.value.failures == noted.failures


def test_failures_of_all_steps_are_reported_together(tmp_path):
    bed = bed_of(spec_with(), tmp_path)

    def fails(*nodes: str) -> foreign.Step:
        def step() -> dict[str, int]:
            raise DeployError("no.", tuple(Failure(node, "", "x", "no") for node in nodes))

        return step

    with raises(DeployError, "no") as error:
        foreign.every(bed, fails("osd0"), lambda: {"admin": 1}, fails("osd1"))
    assert [failure.node for failure in error.value.failures] == ["osd0", "osd1"]
    with raises(DeployError, "no") as error:
        foreign.every(bed, fails("osd0"), fails())
    assert error.value.failures == ()  # the second may have failed on any node


def test_cephadm_stands_between_preparation_and_adoption(noted, tmp_path, monkeypatch):
    failed: list[Failure] = []

    def bring(cluster: CephadmCluster, release: str, *_: object) -> None:
        noted.books.append(f"bring {release}")

    def remove(cluster: CephadmCluster, progress: Progress) -> list[Failure]:
        noted.books.append("remove")
        return failed

    monkeypatch.setattr(CephadmCluster, "bring", bring)
    monkeypatch.setattr(CephadmCluster, "remove", remove)
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
    noted.books.clear()
    failed.append(Failure("osd0", "cephadm", "Remove the cluster", "node osd0: busy"))
    noted.fails, noted.failures = "leftovers.yml", (Failure("osd1", "", "x", "it failed"),)
    said = "could not remove its cluster from node osd0: busy. it failed."
    with raises(DeployError, said) as error:
        Cephadm().remove(bed, spec)
    assert noted.books == ["remove", "leftovers.yml", "remove.yml"]
    assert [failure.node for failure in error.value.failures] == ["osd0", "osd1"]


# -- release of a user's own machines --------------------------------------------------------------


SPEC = ceph_spec()


class Bed:
    """Testbed on played machines; `taken` lists the nodes of each requested removal."""

    def __init__(self, state: Path, hosts: FakeHosts) -> None:
        self.taken: list[list[str]] = []
        self.site = InventorySite(
            OPTIONS,
            records=Records("inventory", state),
            contact=hosts,
            take_away=lambda testbed, progress: self.take(testbed),
        )
        self.testbed = self.site.provision(SPEC)
        save_spec(self.testbed, SPEC)

    def take(self, testbed: Testbed) -> None:
        self.taken.append([node.name for node in testbed.nodes])


@pytest.fixture
def bed(tmp_path, hosts):
    return Bed(tmp_path / "state", hosts)


Ends = Callable[[BaseException | None], None]


@pytest.fixture
def deployment_ends(bed, monkeypatch):
    """Return a function that deploys until Ansible ends with the given error."""

    def deploy(error: BaseException | None) -> None:
        def played(testbed: Testbed, *_: object, **__: object) -> dict[str, int]:
            with private_data(testbed):
                (testbed.directory / LOG).write_text("PLAY [Check every machine]")
                if error is not None:
                    raise error
            return {"admin": 1}

        monkeypatch.setattr(roles.Own, "deploy", staticmethod(played))
        with pytest.raises(type(error)) if error is not None else nullcontext():
            deployment.bring(bed.site, bed.testbed)

    return deploy


REFUSAL = RefusedError("x", (Failure("osd0", "validate", "Fail on errors found", "x"),))


def test_nothing_is_removed_where_the_checks_refused_the_deployment(bed, hosts, deployment_ends):
    """A spec named another cluster's machine: it loses only our parts and keeps its own."""
    deployment_ends(REFUSAL)
    assert ansible_folder(bed.testbed.directory).exists()
    bed.site.release("small")
    assert bed.taken == []
    assert all("etc/hotbed-site.json" not in found for found in files(hosts).values())


@pytest.mark.parametrize("error", [None, DeployError("it failed"), KeyboardInterrupt()])
def test_what_was_begun_is_removed(bed, deployment_ends, error):
    deployment_ends(error)
    deployment_ends(REFUSAL)  # a later refused deployment does not undo the first one
    bed.site.release("small")
    assert bed.taken == [["admin", "osd0", "osd1"]]


def test_a_deployment_before_deployers_were_recorded_is_the_projects_own(bed):
    ansible_folder(bed.testbed.directory).mkdir()
    assert deployers.begun(bed.testbed)
    (bed.testbed.directory / LOG).touch()
    with raises(UserError, "own"):
        deployers.claim(bed.testbed, "cephadm")
    bed.site.release("small")
    assert len(bed.taken) == 1


def test_what_was_removed_already_is_not_removed_again(bed, deployment_ends, monkeypatch):
    deployment_ends(None)
    monkeypatch.setattr(roles.Own, "remove", staticmethod(lambda *_, **__: {}))
    deployment.take_away(bed.site, bed.testbed)
    bed.site.release("small")
    assert bed.taken == []


def test_a_lost_machine_is_cleaned_when_it_is_back_and_the_others_at_once(bed, hosts, monkeypatch):
    """The first of two `down` commands does not reach osd1."""
    save_spec(bed.testbed, with_kind(SPEC, "cephadm"))
    claim(bed.testbed, "cephadm")
    books: list[tuple[str, list[str]]] = []
    lost = {"osd1"}

    def play(
        bed: Testbed, folder: Path, book: str, made: dict[str, Any], *_: Any, **__: Any
    ) -> Any:
        names = sorted(made["all"]["hosts"])
        books.append((book, names))
        away = [Failure(name, "", "x", "no answer", True) for name in names if name in lost]
        if away:
            raise DeployError("node osd1 cannot be reached.", tuple(away))
        return {}

    def removed(cluster: CephadmCluster, progress: object) -> list[Failure]:
        books.append(("rm-cluster", sorted(node.name for node in cluster._testbed.nodes)))
        return []

    monkeypatch.setattr(foreign, "play", play)
    monkeypatch.setattr(CephadmCluster, "remove", removed)
    monkeypatch.setattr(bed, "take", lambda testbed: deployment.take_away(bed.site, testbed))
    steps = ["rm-cluster", "leftovers.yml", "remove.yml"]
    with raises(SiteError, "osd1", "hotbed down small"):
        bed.site.release("small")
    assert books == [(book, ["admin", "osd0", "osd1"]) for book in steps]
    held = [where for where, found in files(hosts).items() if "etc/hotbed-site.json" in found]
    assert held == ["192.0.2.3"]
    books.clear()
    lost.clear()
    bed.site.release("small")
    assert books == [(book, ["osd1"]) for book in steps]
    assert bed.site.names() == []
