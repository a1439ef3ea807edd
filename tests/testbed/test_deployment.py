"""Deployment and freezing on an in-memory site."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import HotbedError, RemoteError, StoreError, UserError
from testbed import client
from testbed.deploy import deployment, lifecycle, roles
from testbed.deploy.ceph_ansible import CephAnsible
from testbed.deploy.cephadm import Cephadm
from testbed.deploy.playbook import LOG, DeployError, Failure, RefusedError
from testbed.deploy.roles import save_spec, spec_of
from testbed.sites.contract import SiteError, Testbed
from testbed.spec import TestbedSpec
from testbed.ssh import LocalShell
from tests.errors import raises
from tests.testbed.fake_site import FakeSite
from tests.testbed.test_deploy import SPEC


class Ansible:
    """Stand-in that reports a playbook's changes and records the order of events."""

    def __init__(self) -> None:
        self.changes = 5
        self.fails: Exception | None = None
        self.stops_badly: Exception | None = None
        self.done: list[str] = []
        self.unrest: list[str] = []

    def deploy(self, *_: object, **__: object) -> dict[str, int]:
        self.done.append("deploy")
        if self.fails:
            raise self.fails
        return {"admin": self.changes}

    def stop(self, testbed: Testbed) -> None:
        self.done.append("stop")
        if self.stops_badly:
            raise self.stops_badly

    def start(self, testbed: Testbed) -> float:
        self.done.append("start")
        return 1.0


@pytest.fixture
def ansible(monkeypatch):
    made = Ansible()
    monkeypatch.setattr(roles.Own, "deploy", staticmethod(made.deploy))
    monkeypatch.setattr(lifecycle, "stop_store", made.stop)
    monkeypatch.setattr(lifecycle, "start_store", made.start)
    monkeypatch.setattr(lifecycle, "has_store", lambda testbed: True)
    monkeypatch.setattr(lifecycle, "unrest", lambda testbed: made.unrest)
    return made


@pytest.fixture
def site(tmp_path):
    return FakeSite(tmp_path)


@pytest.fixture
def testbed(site):
    made = site.provision(SPEC)
    save_spec(made, SPEC)
    return made


def test_what_was_deployed_is_frozen_while_the_store_is_stopped(site, testbed, ansible):
    report: list[float] = []
    done = deployment.bring(site, testbed, lambda phase, share: report.append(share))
    assert done.snapshot == "deployed"
    assert site.snapshots("t") == ("deployed",)
    assert ansible.done == ["deploy", "stop", "start"]
    assert report == sorted(report)
    assert "5 changes; snapshot 'deployed'" in done.sentence()


def test_nothing_changed_or_failed_nothing_is_frozen(site, testbed, ansible):
    deployment.bring(site, testbed)
    ansible.changes = 0
    assert deployment.bring(site, testbed).snapshot is None
    ansible.changes = 2
    assert deployment.bring(site, testbed).snapshot == "deployed-2"
    assert deployment.bring(site, testbed, snapshot=False).snapshot is None


def test_a_store_that_is_steered_or_loaded_is_not_frozen_before_it_is_at_rest(
    site, testbed, ansible
):
    ansible.unrest = ["controller dlr runs"]
    with raises(UserError, "controller dlr runs"):
        deployment.bring(site, testbed)
    assert (ansible.done, site.snapshots("t")) == (["deploy"], ())
    ansible.unrest, ansible.changes = [], 0
    assert deployment.bring(site, testbed).snapshot == "deployed"


DLR = {"name": "dlr", "running": False, "leftover": False}
AT_REST: dict[str, Any] = {
    "control-status": {"controllers": [DLR]},
    "disturb-status": {"running": False},
    "unclean": [],
}


class Asked:
    """Agent with prepared answers."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = AT_REST | answers

    def call(self, verb: str, payload: object = None, *, timeout_s: float = 60.0) -> Any:
        return self.answers[verb]

    def units(self) -> dict[str, list[str]]:
        return dict(self.answers.get("units", {}))

    def strays(self) -> dict[str, list[str]]:
        return dict(self.answers.get("strays", {}))


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({}, []),
        ({"control-status": {"controllers": [DLR | {"running": True}]}}, ["dlr"]),
        ({"control-status": {"controllers": [DLR | {"leftover": True}]}}, ["dlr"]),
        ({"units": {"osd0": ["load-hot"]}, "strays": {"osd1": ["9 fio"]}}, ["load-hot", "9 fio"]),
        ({"disturb-status": {"running": True}}, ["disturbance"]),
        ({"unclean": ["primary affinity of osd.3 to 1"]}, ["primary affinity of osd.3"]),
    ],
)
def test_what_steers_or_loads_a_store_is_found(answers, words, testbed, monkeypatch):
    monkeypatch.setattr(client, "agent_client", lambda testbed: Asked(answers))
    found = lifecycle.unrest(testbed)
    assert len(found) == len(words)
    assert all(word in said for word, said in zip(words, found, strict=True))


def test_a_restored_store_is_waited_for_if_the_snapshot_has_one(site, testbed, monkeypatch):
    waited: list[str] = []
    monkeypatch.setattr(lifecycle, "wait_healthy", lambda testbed: waited.append(testbed.name))
    site.snapshot("t", "old")
    for there in (False, True):
        monkeypatch.setattr(lifecycle, "has_store", lambda testbed, there=there: there)
        assert lifecycle.restore_snapshot(site, "t", "old") == testbed
        assert waited == ["t"] * there


def test_a_freeze_that_was_cut_off_is_made_up_for(site, testbed, ansible, monkeypatch):
    deployment.bring(site, testbed)

    def interrupt(_: Testbed) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "stop_store", interrupt)
        with pytest.raises(KeyboardInterrupt):
            deployment.bring(site, testbed)
    assert ansible.done[-2:] == ["deploy", "start"]
    ansible.changes = 0
    assert deployment.bring(site, testbed).snapshot == "deployed-2"
    assert deployment.bring(site, testbed).snapshot is None


@pytest.mark.parametrize("step", ["deploy", "stop", "freeze"])
def test_a_failed_step_freezes_nothing_and_the_store_serves_again(
    site, testbed, ansible, monkeypatch, step
):
    def full(name: str, label: str) -> None:
        raise SiteError("it failed")

    if step == "freeze":
        monkeypatch.setattr(site, "snapshot", full)
    ansible.fails = DeployError("it failed") if step == "deploy" else None
    ansible.stops_badly = RemoteError("it failed") if step == "stop" else None
    with raises(HotbedError, "it failed"):
        deployment.bring(site, testbed)
    assert ansible.done == (["deploy"] if step == "deploy" else ["deploy", "stop", "start"])
    assert site.snapshots("t") == ()


def test_a_stopped_part_of_a_store_stays_in_the_cluster_until_all_is_started(testbed, monkeypatch):
    done: list[str] = []
    down = [{"osd": 0, "node": "osd0"}]
    answers = {
        "control-status": {"running": None},
        "overview": {"mons_down": [], "osds_down": down, "health": {}, "unanswered": {}},
    }
    monkeypatch.setattr(client, "agent_client", lambda bed: Asked(answers))
    monkeypatch.setattr(lifecycle, "_everywhere", lambda *_: None)
    monkeypatch.setattr(lifecycle, "_noout", lambda bed, verb, **_: done.append(verb))
    monkeypatch.setattr(lifecycle, "wait_healthy", lambda bed: done.append("healthy"))
    assert lifecycle.resume_store(testbed, ["osd1"]) == ["osd.0"]
    assert done == []
    monkeypatch.setattr(lifecycle, "HEALTH_S", -1.0)
    with raises(StoreError, "osd.0"):
        lifecycle.resume_store(testbed, ["osd0"])
    down.clear()
    assert lifecycle.resume_store(testbed, ["osd0"]) == []
    assert done == ["unset", "healthy"]


CEPH = """#!/bin/sh
case $2 in
    dump) echo "flags sortbitwise$(cat flag 2>/dev/null)" ;;
    set) echo ",noout" > flag ;;
    unset) rm flag ;;
esac
"""


@pytest.mark.parametrize("persons", [True, False])
def test_a_persons_noout_outlasts_a_stop_of_the_store(testbed, monkeypatch, tmp_path, persons):
    (tmp_path / "ceph").write_text(CEPH)
    (tmp_path / "ceph").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(lifecycle, "STATE", str(tmp_path))
    monkeypatch.setattr(lifecycle, "shell_to", lambda bed, node: LocalShell(node.name))
    flag = tmp_path / "flag"
    if persons:
        flag.write_text(",noout")
    for _ in "12":  # also a second stop, of other nodes
        lifecycle._noout(testbed, "set")
        assert "noout" in flag.read_text()
    lifecycle._noout(testbed, "unset")
    assert flag.exists() == persons


REFUSED = Failure(
    "osd-0", "validate_volumes", "Fail on errors of the OSDs' devices", "The device holds ext4."
)


@pytest.mark.parametrize(
    "refusal",
    [
        RefusedError("The device holds ext4.", (REFUSED,)),
        UserError("ceph-ansible cannot be cloned: name a clone of it."),
    ],
)
def test_a_deployment_that_did_nothing_leaves_the_testbed_to_others(
    refusal, site, testbed, ansible, monkeypatch
):
    """Nothing has to be removed first, and the spec is unchanged."""

    def refuse(
        self: Cephadm, testbed: Testbed, spec: TestbedSpec, *_: object, **__: object
    ) -> None:
        save_spec(testbed, spec)
        raise refusal

    monkeypatch.setattr(Cephadm, "deploy", refuse)
    with pytest.raises(UserError):
        deployment.bring(site, testbed, deployer="cephadm")
    assert spec_of(testbed) == SPEC
    assert not (testbed.directory / "unfrozen").exists()
    assert deployment.bring(site, testbed).changed == 5


def test_a_deployment_that_was_refused_half_way_is_removed_first(
    site, testbed, ansible, monkeypatch
):
    def refuse(self: CephAnsible, testbed: Testbed, *_: object, **__: object) -> None:
        (testbed.directory / LOG).write_text("prepared")
        late = Failure("osd-0", "ceph-validate", "Look", "no.")
        raise RefusedError("no.", (late,))

    monkeypatch.setattr(CephAnsible, "deploy", refuse)
    with pytest.raises(RefusedError):
        deployment.bring(site, testbed, deployer="ceph-ansible")
    with pytest.raises(UserError):
        deployment.bring(site, testbed, deployer="own")
