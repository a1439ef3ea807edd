"""Release of a user's own machines after various deployments: removed items and their owners."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from testbed.deploy import ceph_ansible, deployment, foreign, roles
from testbed.deploy.cephadm import CephadmCluster
from testbed.deploy.deployers import claim, with_kind
from testbed.deploy.playbook import (
    LOG,
    DeployError,
    Failure,
    RefusedError,
    ansible_folder,
    private_data,
)
from testbed.deploy.roles import save_spec
from testbed.sites.contract import SiteError, Testbed
from testbed.sites.inventory import InventorySite
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.fake_hosts import FakeHosts
from tests.testbed.sites.inventory_support import OPTIONS, files, hosts

__all__ = ["hosts"]

SPEC = TestbedSpec.model_validate(
    {
        "name": "small",
        "groups": [
            {"name": "admin", "roles": ["admin", "mon", "mgr", "client"], "memory": "512MiB"},
            {
                "name": "osd",
                "count": 2,
                "roles": ["osd"],
                "memory": "512MiB",
                "disk": {"size": "3GiB", "scratch": "1GiB"},
            },
        ],
        "store": {"kind": "ceph"},
        "site": {"kind": "inventory", "options": OPTIONS},
    }
)
STRANGERS = "Node osd0 belongs to another Ceph cluster."


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
def bed(tmp_path: Path, hosts: FakeHosts) -> Bed:
    return Bed(tmp_path / "state", hosts)


Ends = Callable[[BaseException | None], None]


@pytest.fixture
def deployment_ends(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Return a function that deploys until Ansible ends with the given error."""

    def deploy(error: BaseException | None) -> None:
        def played(testbed: Testbed, *_: object, **__: object) -> dict[str, int]:
            with private_data(testbed):
                (testbed.directory / LOG).write_text("PLAY [Check every machine]")
                if error is not None:
                    raise error
            return {"admin": 1}

        monkeypatch.setattr(roles, "deploy", played)
        with pytest.raises(type(error)) if error is not None else nullcontext():
            deployment.bring(bed.site, bed.testbed)

    return deploy


def refusal() -> RefusedError:
    return RefusedError(STRANGERS, (Failure("osd0", "validate", "Judge what was found", "x"),))


def test_nothing_is_removed_where_the_checks_refused_the_deployment(
    bed: Bed, hosts: FakeHosts, deployment_ends: Ends
) -> None:
    """A spec named another cluster's machine: it loses only our parts and keeps its own."""
    deployment_ends(refusal())
    assert ansible_folder(bed.testbed.directory).exists()
    bed.site.release("small")
    assert bed.taken == []
    assert all("etc/hotbed-site.json" not in found for found in files(hosts).values())


@pytest.mark.parametrize("error", [None, DeployError("it failed"), KeyboardInterrupt()])
def test_what_was_begun_is_removed(
    bed: Bed, deployment_ends: Ends, error: BaseException | None
) -> None:
    deployment_ends(error)
    deployment_ends(refusal())  # a later refused deployment does not undo the first one
    bed.site.release("small")
    assert bed.taken == [["admin", "osd0", "osd1"]]


def test_a_deployment_of_before_deployers_were_recorded_is_removed(bed: Bed) -> None:
    ansible_folder(bed.testbed.directory).mkdir()
    bed.site.release("small")
    assert len(bed.taken) == 1


def test_what_was_removed_already_is_not_removed_again(
    bed: Bed, deployment_ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment_ends(None)
    monkeypatch.setattr(roles, "remove", lambda *_, **__: {})
    deployment.take_away(bed.site, bed.testbed)
    bed.site.release("small")
    assert bed.taken == []


@pytest.mark.parametrize("kind", ["ceph-ansible", "cephadm"])
def test_a_lost_machine_is_cleaned_when_it_is_back_and_the_others_at_once(
    bed: Bed, hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The first of two `down` commands does not reach osd1."""
    spec = with_kind(SPEC, kind)
    save_spec(bed.testbed, spec)
    claim(bed.testbed, kind)
    books: list[tuple[str, list[str]]] = []
    lost = {"osd1"}

    def play(
        testbed: Testbed, folder: Path, book: str, made: dict[str, Any], *_: object, **__: object
    ) -> dict[str, int]:
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
    monkeypatch.setattr(ceph_ansible, "nodes_with_its_conf", lambda testbed: frozenset())
    monkeypatch.setattr(CephadmCluster, "remove", removed)
    monkeypatch.setattr(bed, "take", lambda testbed: deployment.take_away(bed.site, testbed))
    ours = ["leftovers.yml", "remove.yml"]
    first = [*(["rm-cluster"] if kind == "cephadm" else []), *ours]
    with raises(SiteError, "osd1", "hotbed down small"):
        bed.site.release("small")
    assert books == [(book, ["admin", "osd0", "osd1"]) for book in first]
    held = [where for where, found in files(hosts).items() if "etc/hotbed-site.json" in found]
    assert held == ["192.0.2.3"]

    books.clear()
    lost.clear()
    bed.site.release("small")
    assert books == [(book, ["osd1"]) for book in first]
    assert bed.site.names() == ()
