"""`hotbed deploy` on the fake site: choice of deployer, dry runs, and storage of the choice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed import choose, doctor, sites
from testbed.deploy import deployers
from testbed.deploy.contract import DeploymentPlan
from testbed.deploy.roles import spec_of
from testbed.sites.contract import Testbed
from testbed.sites.fake import FakeSite
from testbed.spec import TestbedSpec
from tests.hotbed.runner import hotbed

SPEC = """
name: small
site: {kind: fake}
groups:
  - {name: admin, roles: [admin, mon, mgr, client]}
  - {name: osd, count: 2, roles: [osd], disk: {}}
"""


class Scripted:
    """Deployer that records its requests."""

    def __init__(self, kind: str, log: list[tuple[str, str]]) -> None:
        self.kind, self._log = kind, log

    def plan(self, spec: TestbedSpec) -> DeploymentPlan:
        return DeploymentPlan(self.kind, "1", ("a step",), ("a note",))

    def deploy(
        self, testbed: Testbed, spec: TestbedSpec, *_: object, **more: object
    ) -> dict[str, int]:
        from testbed.deploy.roles import save_spec

        save_spec(testbed, spec)
        self._log.append(("deploy", self.kind))
        return {"admin": 3}

    def remove(
        self, testbed: Testbed, spec: TestbedSpec, *_: object, **more: object
    ) -> dict[str, int]:
        self._log.append(("remove", self.kind))
        return {"admin": 2}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSite:
    found = FakeSite(tmp_path)
    for module in (choose, sites):
        monkeypatch.setattr(module, "kinds", lambda: ("fake",))
        monkeypatch.setattr(module, "open_site", lambda kind="fake", options=None: found)
    monkeypatch.setattr(doctor, "require", lambda *names, **more: None)
    return found


@pytest.fixture
def up(site: FakeSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Testbed:
    file = tmp_path / "small.yaml"
    file.write_text(SPEC)
    assert hotbed("up", file) == 0
    capsys.readouterr()
    found = site.find("small")
    assert found is not None
    return found


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    up: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hotbed("deploy", "--deployer", "cephadm", "--dry-run", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["deployer"] == "cephadm" and "untested on a live cluster" in plan["notes"][0]
    assert hotbed("deploy", "--dry-run") == 0
    assert "own: Ceph" in capsys.readouterr().out
    assert spec_of(up).ceph().deployer.kind == "own"


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_a_deployer_that_the_site_refuses_changes_nothing(
    up: Testbed, site: FakeSite, monkeypatch: pytest.MonkeyPatch, dry_run: tuple[str, ...]
) -> None:
    def plan(spec: TestbedSpec) -> None:
        raise UserError(f"not {spec.ceph().deployer.kind}")

    monkeypatch.setattr(site, "plan", plan)
    assert hotbed("deploy", "--deployer", "cephadm", *dry_run) == 2
    assert spec_of(up).ceph().deployer.kind == "own"
    assert not deployers.begun(up)


def test_the_choice_is_kept_and_removal_is_by_the_same(
    up: Testbed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[tuple[str, str]] = []
    monkeypatch.setattr(deployers, "deployer", lambda kind: Scripted(kind, log))
    assert hotbed("deploy", "--deployer", "cephadm", "--no-snapshot") == 0
    assert spec_of(up).ceph().deployer.kind == "cephadm"
    capsys.readouterr()
    assert hotbed("deploy", "--deployer", "ceph-ansible", "--no-snapshot") == 2
    assert "was deployed by cephadm" in capsys.readouterr().err
    assert hotbed("deploy", "--no-snapshot") == 0
    assert hotbed("deploy", "--remove") == 0
    assert hotbed("deploy", "--deployer", "ceph-ansible", "--no-snapshot") == 0
    assert log == [
        ("deploy", "cephadm"),
        ("deploy", "cephadm"),
        ("remove", "cephadm"),
        ("deploy", "ceph-ansible"),
    ]


def test_mistakes_are_one_sentence(up: Testbed, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (("--deployer", "rook"), "there is no deployer 'rook'; allowed: own, ceph-ansible"),
        (("--remove", "--deployer", "own"), "--remove uses the deployer that brought the store"),
        (("--remove", "--dry-run"), "--dry-run belongs to a deployment"),
        (("--remove", "--wipe"), "--wipe belongs to a deployment"),
        (("--remove", "--yes-wipe", "/dev/sdb@osd0"), "--yes-wipe belongs to a deployment"),
        (("--yes-wipe", "/dev/sdb@osd0"), "on a site of kind fake say --wipe"),
        (("--remove", "--no-snapshot"), "--no-snapshot belongs to a deployment"),
        (("--packages",), "--packages belongs to a removal; add --remove"),
    ):
        assert hotbed("deploy", *arguments) == 2
        error = capsys.readouterr().err
        assert said in " ".join(error.split())
