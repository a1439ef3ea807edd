"""Files created by the inventory site on played machines, and their removal, even after a kill or
the loss of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.sites.contract import SiteError, State, Testbed
from testbed.sites.inventory import InventorySite
from testbed.sites.records import Records
from tests.errors import raises
from tests.testbed.sites.fake_hosts import FakeHosts, Killed
from tests.testbed.sites.inventory_support import (
    OPTIONS,
    Make,
    files,
    hosts,
    make,
    make_spec,
)

__all__ = ["hosts", "make"]


def test_release_leaves_every_machine_as_it_was(make: Make, hosts: FakeHosts) -> None:
    hosts.hosts["192.0.2.2"].write("root/.ssh/authorized_keys", "ssh-ed25519 AAAA somebody\n")
    before = files(hosts)
    testbed = make().provision(make_spec())
    held = hosts.hosts["192.0.2.2"]
    assert "192.0.2.3 osd1" in held.read("etc/hosts").splitlines()
    assert "somebody" in held.read("root/.ssh/authorized_keys")
    assert "hotbed-small" in held.read("root/.ssh/authorized_keys")
    assert files(hosts) != before
    # The record of the testbed holds its options, because `hotbed down` has no spec.
    alone = InventorySite({}, records=make()._records, contact=hosts)
    assert alone.status("small").state is State.READY
    assert alone.find("small") == testbed
    alone.release("small")
    assert files(hosts) == before
    assert alone.names() == ()


def test_a_lost_machine_is_kept_on_record_until_it_is_back(make: Make, hosts: FakeHosts) -> None:
    before = files(hosts)
    site = make()
    site.provision(make_spec())
    hosts.hosts["192.0.2.2"].up = False
    status = site.status("small")
    assert status.state is State.FAILED
    assert status.nodes == {"admin": "running", "osd0": "lost", "osd1": "running"}
    with raises(SiteError, "osd0", "hotbed down small") as lost:
        site.release("small")
    assert lost.value.retry_after_s is not None
    assert site.names() == ("small",)
    assert site.find("small") is None
    assert site.status("small").detail.endswith("`hotbed down small` again")
    hosts.hosts["192.0.2.2"].up = True
    site.release("small")
    assert files(hosts) == before
    assert site.names() == ()


def test_machines_that_are_no_longer_named_are_told(make: Make, hosts: FakeHosts) -> None:
    make().provision(make_spec())
    fewer = {"hosts": OPTIONS["hosts"][1:]}
    with raises(UserError, "192.0.2.1", do="hotbed down small"):
        make(**fewer).provision(make_spec(**fewer))
    more = {"hosts": [{"address": "192.0.2.9", "name": "new"}, *OPTIONS["hosts"]]}
    assert make(**more).provision(make_spec(**more)).nodes[0].address == "192.0.2.1"


def test_a_machine_whose_mark_was_deleted_is_told(make: Make, hosts: FakeHosts) -> None:
    site = make()
    site.provision(make_spec())
    (hosts.hosts["192.0.2.3"].root / "etc/hotbed-site.json").unlink()
    assert site.status("small").detail == "not to be used: osd1 (not ours)"
    assert site.provision(make_spec()).nodes
    assert site.status("small").state is State.READY


def moments(make: Make, hosts: FakeHosts) -> int:
    """Return the number of starts and ends of calls to a machine, for up and down."""
    make().provision(make_spec())
    up = hosts.counted
    make().release("small")
    hosts.counted = 0
    return up


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_or_away(
    make: Make, hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.sites.inventory.contact.PARALLEL", 1)
    before = files(hosts)
    up = moments(make, hosts)
    assert up >= 12
    for moment in range(1, up + 1):
        hosts.counted, hosts.kill_at = 0, moment
        with pytest.raises(Killed):
            make().provision(make_spec())
        hosts.kill_at = None
        if moment % 2:
            assert make().provision(make_spec()).nodes
            assert make().status("small").state is State.READY
        make().release("small")
        assert files(hosts) == before, moment
        assert make().names() == ()


@pytest.mark.slow
def test_killed_while_it_goes_away(
    make: Make, hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.sites.inventory.contact.PARALLEL", 1)
    before = files(hosts)
    for moment in range(1, 7):
        make().provision(make_spec())
        hosts.counted, hosts.kill_at = 0, moment
        with pytest.raises(Killed):
            make().release("small")
        hosts.kill_at = None
        make().release("small")
        assert files(hosts) == before, moment


def test_a_store_goes_before_the_machines_do(make: Make, hosts: FakeHosts, tmp_path: Path) -> None:
    gone: list[str] = []

    def take_away(testbed: Testbed, progress: object) -> None:
        assert "hotbed-small" in hosts.hosts["192.0.2.1"].read("root/.ssh/authorized_keys")
        gone.append(testbed.name)

    site = InventorySite(
        OPTIONS, records=Records("inventory", tmp_path), contact=hosts, take_away=take_away
    )
    site.provision(make_spec())
    site.release("small")
    assert gone == []
    testbed = site.provision(make_spec())
    (testbed.directory / "unfrozen").touch()  # a deployment was started
    site.release("small")
    assert gone == ["small"]


def test_a_store_that_cannot_be_removed_keeps_its_machine(
    make: Make, hosts: FakeHosts, tmp_path: Path
) -> None:
    from testbed.deploy.playbook import Failure
    from testbed.deploy.roles import DeployError

    broken = [True]

    def take_away(testbed: Testbed, progress: object) -> None:
        if broken.pop():
            raise DeployError("it failed", (Failure("osd1", "remove", "x", "it failed"),))

    site = InventorySite(
        OPTIONS, records=Records("inventory", tmp_path), contact=hosts, take_away=take_away
    )
    testbed = site.provision(make_spec())
    (testbed.directory / "unfrozen").touch()
    with raises(SiteError, "osd1: it failed"):
        site.release("small")
    assert hosts.hosts["192.0.2.2"].read("etc/hotbed-site.json") == ""
    assert hosts.hosts["192.0.2.3"].read("etc/hotbed-site.json") != ""
    broken.append(False)
    site.release("small")
    assert hosts.hosts["192.0.2.3"].read("etc/hotbed-site.json") == ""


def test_load_of_others_and_steal(make: Make, hosts: FakeHosts) -> None:
    site = make()
    site.provision(make_spec())
    before = site.usage_counters("small")
    after = {**before, "wall": before["wall"] + 10.0}
    for node, busy, steal in (("admin", 2.0, 0.0), ("osd0", 6.0, 2.0), ("osd1", 0.0, 0.0)):
        after[f"all:{node}"] += 20.0
        after[f"busy:{node}"] += busy
        after[f"steal:{node}"] += steal
    after["ours:osd0"] += 5.0
    usage = site.usage_between(before, after)
    assert usage.outside_cores == pytest.approx(0.3)
    assert usage.steal == pytest.approx(0.1)
    assert usage.node_cores == pytest.approx({"admin": 0.2, "osd0": 0.6, "osd1": 0.0})
