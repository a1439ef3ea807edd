"""Devices of running machines, wiped by name before a deployment that wipes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from testbed.deploy import deployment
from testbed.sites.contract import SiteError
from tests.errors import raises
from tests.testbed.sites.fake_hosts import FakeHosts
from tests.testbed.sites.inventory_support import (
    Make,
    hosts,
    make,
    make_spec,
    run,
    spec_file,
)

__all__ = ["hosts", "make", "spec_file"]


def head(hosts: FakeHosts, address: str = "192.0.2.2", name: str = "sdb2") -> bytes:
    with (hosts.hosts[address].root / "dev" / name).open("rb") as file:
        return file.read(4096).strip(b"\0")


@pytest.fixture
def deployed(
    spec_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[bool]:
    """Bring the testbed up; the list records the wipe flag of each deployment."""
    told: list[bool] = []

    def bring(*_: object, wipe: bool, **more: Any) -> deployment.DeploymentResult:
        told.append(wipe)
        return deployment.DeploymentResult("small", "deployed", 0, 0.0)

    monkeypatch.setattr(deployment, "bring", bring)
    assert run("up", str(spec_file), "--accept-host-keys") == 0
    capsys.readouterr()
    return told


def test_a_deployment_wipes_what_was_named_and_nothing_else(
    deployed: list[bool], hosts: FakeHosts, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("192.0.2.2", "192.0.2.3"):
        hosts.hosts[address].disk("/dev/sdb2", 16 * 2**30, "xfs")
    assert run("deploy", "--wipe") == 2
    told = capsys.readouterr().err
    assert "/dev/sdb2 of node osd0 (16.0 GiB) holds xfs; /dev/sdb2 of node osd1" in told
    assert "`hotbed deploy small --yes-wipe /dev/sdb2@osd0,/dev/sdb2@osd1`" in told
    assert (deployed, head(hosts)) == ([], b"SIGNATURE:xfs\n")
    assert run("deploy", "--yes-wipe", "/dev/sdb2@osd0") == 0
    # The deployment must refuse the other device, because it may wipe nothing.
    assert deployed == [False]
    assert (head(hosts), head(hosts, "192.0.2.3")) == (b"", b"SIGNATURE:xfs\n")
    assert run("deploy", "--yes-wipe", "/dev/sdx@osd0") == 2
    assert "/dev/sdx@osd0" in capsys.readouterr().err


def test_a_person_is_asked_before_a_deployment_wipes(
    deployed: list[bool], hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.hosts["192.0.2.2"].disk("/dev/sdb2", 16 * 2**30, "xfs")
    monkeypatch.setattr("hotbed.site_options._at_a_terminal", lambda: True)
    answers = ["yes", "wipe"]
    monkeypatch.setattr("typer.prompt", lambda *_, **more: answers.pop(0))
    assert run("deploy", "--wipe") == 2
    assert head(hosts)
    assert run("deploy", "--wipe") == 0
    assert not head(hosts)
    # No question is left.
    assert run("deploy", "--wipe") == 0
    assert (deployed, answers) == ([False, False], [])


def test_nobody_is_asked_about_what_the_spec_or_the_command_allows(
    spec_file: Path, hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in ("192.0.2.2", "192.0.2.3"):
        hosts.hosts[address].disk("/dev/sdb2", 16 * 2**30, "xfs")
    body = yaml.safe_load(spec_file.read_text())
    body["site"]["options"]["wipe"] = "/dev/sdb2@osd0"
    spec_file.write_text(yaml.safe_dump(body))
    monkeypatch.setattr("hotbed.site_options._at_a_terminal", lambda: True)
    words = ("up", str(spec_file), "--accept-host-keys", "--yes-wipe", "/dev/sdb2@osd1")
    assert run(*words) == 0
    assert not head(hosts)
    assert not head(hosts, "192.0.2.3")


def test_what_is_in_use_or_an_osds_store_is_never_wiped(make: Make, hosts: FakeHosts) -> None:
    site, host = make(), hosts.hosts["192.0.2.2"]
    site.provision(make_spec())
    host.disk("/dev/sdb2", 16 * 2**30, "ceph_bluestore")
    block = host.root / "var/lib/ceph/osd/ceph-3/block"
    block.parent.mkdir(parents=True)
    block.symlink_to(host.root / "dev/sdb2")
    assert site.leftovers("small") == ()
    with raises(UserError, "/ceph-3"):
        site.wipe("small", ["/dev/sdb2@osd0"])
    block.unlink()
    assert [one.name for one in site.leftovers("small")] == ["/dev/sdb2@osd0"]
    host.write("proc/self/mountinfo", "30 23 0:0 / /srv/data rw - ext4 /dev/sdb2 rw\n")
    assert site.leftovers("small") == ()
    with raises(UserError, "/srv/data"):
        site.wipe("small", ["/dev/sdb2@osd0"])
    assert head(hosts)


def test_what_was_allowed_for_once_is_forgotten_when_it_cannot_be_wiped(
    make: Make, hosts: FakeHosts
) -> None:
    site, host = make(), hosts.hosts["192.0.2.2"]
    site.provision(make_spec())
    host.disk("/dev/sdb2", 16 * 2**30, "xfs")
    mark = host.read("etc/hotbed-site.json")
    host.write("etc/hotbed-site.json", mark.replace('"id": "', '"id": "0'))
    with raises(SiteError, "is not held by this"):
        site.wipe("small", ["/dev/sdb2@osd0"])
    host.write("etc/hotbed-site.json", mark)
    site.provision(make_spec())
    assert head(hosts)
