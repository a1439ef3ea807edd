"""Deploying and freezing, on a site in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import deployment
from testbed.deploy import DeployError, save_spec
from testbed.deployers import own
from testbed.sites.contract import Testbed
from testbed.sites.fake import FakeSite
from testbed.spec import TestbedSpec

SPEC = TestbedSpec.model_validate(
    {
        "name": "t",
        "groups": [
            {"name": "admin", "roles": ["admin", "mon", "mgr", "client"]},
            {"name": "osd", "count": 2, "roles": ["osd"], "disk": {}},
        ],
    }
)


class Ansible:
    """Says what a playbook changed; notes what happened in order."""

    def __init__(self) -> None:
        self.changes = 5
        self.fails = False
        self.done: list[str] = []

    def deploy(self, *_: object, **__: object) -> dict[str, int]:
        self.done.append("deploy")
        if self.fails:
            raise DeployError("it failed")
        return {"admin": self.changes}

    def stop(self, testbed: Testbed) -> None:
        self.done.append("stop")

    def start(self, testbed: Testbed) -> float:
        self.done.append("start")
        return 1.0


@pytest.fixture
def ansible(monkeypatch: pytest.MonkeyPatch) -> Ansible:
    made = Ansible()
    monkeypatch.setattr(own, "deploy", made.deploy)
    monkeypatch.setattr(deployment, "stop_store", made.stop)
    monkeypatch.setattr(deployment, "start_store", made.start)
    return made


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path)


@pytest.fixture
def testbed(site: FakeSite) -> Testbed:
    made = site.provision(SPEC)
    save_spec(made, SPEC)
    return made


def test_what_was_deployed_is_frozen_while_the_store_is_stopped(
    site: FakeSite, testbed: Testbed, ansible: Ansible
) -> None:
    told: list[float] = []
    done = deployment.bring(site, testbed, lambda phase, share: told.append(share))
    assert done.snapshot == "deployed"
    assert site.snapshots("t") == ("deployed",)
    assert ansible.done == ["deploy", "stop", "start"]
    assert told == sorted(told)
    assert "5 changes; snapshot 'deployed'" in done.sentence()


def test_nothing_changed_nothing_is_frozen(
    site: FakeSite, testbed: Testbed, ansible: Ansible
) -> None:
    deployment.bring(site, testbed)
    ansible.changes = 0
    assert deployment.bring(site, testbed).snapshot is None
    ansible.changes = 2
    assert deployment.bring(site, testbed).snapshot == "deployed-2"
    assert deployment.bring(site, testbed, snapshot=False).snapshot is None


def test_a_freeze_that_was_cut_off_is_made_up_for(
    site: FakeSite, testbed: Testbed, ansible: Ansible, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.bring(site, testbed)

    def interrupt(_: Testbed) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deployment, "stop_store", interrupt)
        with pytest.raises(KeyboardInterrupt):
            deployment.bring(site, testbed)
    ansible.changes = 0
    assert deployment.bring(site, testbed).snapshot == "deployed-2"
    assert deployment.bring(site, testbed).snapshot is None


def test_a_failed_deployment_is_not_frozen(
    site: FakeSite, testbed: Testbed, ansible: Ansible
) -> None:
    ansible.fails = True
    with pytest.raises(DeployError):
        deployment.bring(site, testbed)
    assert list(site.snapshots("t")) == []
