"""Site `chameleon` on an in-memory cloud: the contract, faults, and the next free time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import Booking, CloudError, Fault, NoCredentials
from testbed.sites.chameleon.site import ChameleonSite
from testbed.sites.chameleon.work import PAUSES_S
from testbed.sites.contract import SiteError, State
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.chameleon_world import (
    BARE,
    HOUR_S,
    VIRTUAL,
    World,
    spec_of,
    world,
)
from tests.testbed.sites.conformance import SiteConformance
from tests.testbed.sites.fake_cloud import FakeCloud, hosts

__all__ = ["world"]


class Conforming(SiteConformance):
    @pytest.fixture
    def site(self, world: World) -> ChameleonSite:
        return world.site()


class TestWholeMachines(Conforming):
    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return spec_of(BARE)


class TestVirtualMachines(Conforming):
    @pytest.fixture
    def spec(self) -> TestbedSpec:
        return spec_of(VIRTUAL)


# -- faults, the site's messages and reactions -----------------------------------------------------


def test_no_host_free_says_when_they_are(world):
    now = world.clock.now()
    busy = [Booking(h["id"], now - HOUR_S, now + 5 * HOUR_S) for h in world.cloud.machines[:10]]
    world.cloud.others = busy
    with raises(SiteError, "2 of 12", "24 h", "next-free") as error:
        world.site().provision(spec_of(BARE))
    assert error.value.retry_after_s == pytest.approx(5 * HOUR_S + 60)
    assert "free from" in world.site().plan(spec_of(BARE)).detail
    assert not world.cloud.live_leases()


def test_next_free_leases_that_time_and_is_pending_until_then(world):
    now = world.clock.now()
    world.cloud.others = [Booking(h["id"], now, now + 5 * HOUR_S) for h in world.cloud.machines]
    spec = spec_of({**BARE, "lease": {"start": "next-free"}})
    with raises(SiteError, "hotbed up") as error:
        world.site().provision(spec)
    assert error.value.retry_after_s == pytest.approx(5 * HOUR_S + 60, abs=60)
    status = world.site().status("small")
    assert status.state is State.PENDING
    assert status.ends_at_s == pytest.approx(now + 29 * HOUR_S + 60, abs=60)
    world.clock.sleep(error.value.retry_after_s or 0.0)
    assert world.site().provision(spec).nodes
    assert len(world.cloud.live_leases()) == 1


def test_too_few_hosts_of_the_type(world):
    world.cloud.machines = hosts({"compute_skylake": 2, "storage": 4})
    with raises(UserError, "2 machines"):
        world.site().plan(spec_of(BARE))


def test_groups_of_several_types(world):
    world.cloud.machines = hosts({"compute_skylake": 1, "storage": 2})
    types = {"admin": "compute_skylake", "osd": "storage"}
    testbed = world.site().provision(spec_of({**BARE, "node_type": types}))
    assert [node.facts["type"] for node in testbed.nodes] == ["compute_skylake", *["storage"] * 2]
    (lease,) = world.cloud.live_leases()
    assert sorted(each.amount for each in lease.reservations) == [1, 2]


def test_quota(world):
    world.cloud.quota_servers = 2
    with raises(SiteError, "quota is used up") as error:
        world.site().provision(spec_of(BARE))
    assert error.value.retry_after_s is None
    world.site().release("small")
    assert world.cloud.left() == []


def test_a_quota_that_nova_counts_too_late(world):
    """One of several simultaneous server requests is accepted although one too many, and fails."""
    world.cloud.outcomes = {"osd1": ["ERROR"]}
    world.cloud.fault = "Quota exceeded for instances: Requested 1, but already used 2 of 2"
    with raises(SiteError, "-osd1") as error:
        world.site().provision(spec_of(BARE))
    assert error.value.retry_after_s is None
    assert world.cloud.calls.count("create_server") == 3  # a retry would not help
    world.site().release("small")
    assert world.cloud.left() == []


def test_a_server_that_fails_again_is_told_with_novas_words(world):
    world.cloud.outcomes = {"osd1": ["ERROR", "ERROR", "ERROR"]}
    said = iter(["Deploying failed.", "The disk is broken."])
    create = world.cloud.create_server

    def created(body: Mapping[str, Any]) -> str:
        if body["name"].endswith("osd1"):
            world.cloud.fault = next(said)
        return create(body)

    world.cloud.create_server = created  # type: ignore[method-assign]
    with raises(SiteError, "-osd1", "The disk is broken (at first: Deploying failed)"):
        world.site().provision(spec_of(BARE))
    assert world.site().status("small").state is State.BUILDING
    world.site().release("small")
    assert world.cloud.left() == []


@pytest.mark.parametrize("options", [BARE, VIRTUAL])
def test_a_failed_server_has_its_machine_until_it_is_gone(world, options):
    """The lease holds exactly as many machines as needed."""
    world.cloud.outcomes = {"osd1": ["ERROR"]}
    world.cloud.delete_s = 60.0
    assert world.site().provision(spec_of(options)).nodes
    assert world.cloud.calls.count("create_server") == 4
    (failed,) = [e for e in world.records.entries("small") if e["entry"] == "failed"]
    assert failed["reason"] == "Deploying failed"


def test_a_failed_server_that_does_not_go_is_told(world):
    world.cloud.outcomes = {"osd1": ["ERROR"]}
    world.cloud.delete_s = 1e6
    with raises(SiteError, "1 of 3", "-osd1"):
        world.site().provision(spec_of(BARE))


def test_no_credentials_at_all(world):
    def connect(site: str, project: str | None) -> FakeCloud:
        raise NoCredentials("there are no credentials for Chameleon")

    site = world.site()
    site._connect = connect
    assert "there are no credentials" in site.plan(spec_of(BARE)).detail
    with raises(UserError, "there are no credentials"):
        site.provision(spec_of(BARE))


def test_all_servers_are_asked_for_at_once(world):
    """Each request waits until all nine are in flight; sequential requests would never end."""
    together = threading.Barrier(9, timeout=20)
    create = world.cloud.create_server

    def created(body: Mapping[str, Any]) -> str:
        together.wait()
        return create(body)

    world.cloud.create_server = created  # type: ignore[method-assign]
    assert len(world.site().provision(spec_of(BARE, osds=8)).nodes) == 9


def test_nine_servers_take_as_long_as_the_slowest_and_one_look_every_five_seconds(world):
    begun = world.clock.now()
    world.site().provision(spec_of(BARE, osds=8))
    took = world.clock.now() - begun
    assert took < world.cloud.lease_s + world.cloud.build_s + 60
    looks = [name for name in world.cloud.calls if name in ("servers", "lease")]
    assert len(looks) <= took / 5 + 4


def test_a_server_that_somebody_stopped_is_told_at_once(world):
    world.site().provision(spec_of(BARE))
    kept = next(iter(world.cloud._servers.values()))
    kept.server = replace(kept.server, status="SHUTOFF")
    assert world.site().status("small").state is State.FAILED
    before = world.clock.now()
    with raises(SiteError, "is SHUTOFF", "hotbed up"):
        world.site().provision(spec_of(BARE))
    assert world.clock.now() == before


def test_a_server_that_vanishes_is_made_again_with_parts_of_its_own(world):
    world.site().provision(spec_of(BARE))
    before = {node: each["mark"] for node, each in world.shells.wanted.items()}
    assert len(set(before.values())) == 3
    world.cloud.lose_server(next(s.name for s in world.cloud.all_servers() if "osd0" in s.name))
    assert world.site().status("small").state is State.FAILED
    world.site().provision(spec_of(BARE))
    assert world.cloud.calls.count("create_server") == 4
    assert world.site().status("small").state is State.READY
    after = {node: each["mark"] for node, each in world.shells.wanted.items()}
    assert {node for node in after if after[node] != before[node]} == {"osd0"}


def test_a_cloud_that_stays_away(world):
    """A release retries; a look does not wait."""
    world.site().provision(spec_of(BARE))
    world.fail("*", CloudError("timed out", Fault.PASSING))
    before = world.clock.now()
    status = world.site().status("small")
    assert world.clock.now() == before
    assert status.state is State.READY
    assert "as known last" in status.detail
    assert world.site().find("small") is not None
    with raises(SiteError, "timed out") as error:
        world.site().release("small")
    assert error.value.retry_after_s is not None
    assert world.clock.now() - before == pytest.approx(sum(PAUSES_S))


def test_credentials_that_are_refused(world):
    world.fail("*", CloudError("The request requires authentication.", Fault.CREDENTIALS))
    with pytest.raises(UserError):
        world.site().provision(spec_of(BARE))


# -- the next free time of virtual machines, which Blazar does not report --------------------------


NEXT = spec_of({**VIRTUAL, "lease": {"start": "next-free"}})


def taken(world: World, *hours: float) -> None:
    """Book other users' virtual machines, each for some hours from now; three fit at once."""
    world.cloud.virtual = 3
    now = world.clock.now()
    world.cloud.others = [Booking(f"h{each}", now, now + each * HOUR_S) for each in hours]


def askings(world: World) -> int:
    return world.cloud.calls.count("create_lease")


def test_the_first_end_after_which_all_have_room(world):
    taken(world, 2, 5, 30)
    world.cloud.virtual = 4
    with raises(SiteError, "hotbed up") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s == pytest.approx(5 * HOUR_S, abs=180)
    assert askings(world) == 3
    assert world.site().status("small").state is State.PENDING
    (lease,) = world.cloud.live_leases()
    assert lease.end_s - lease.start_s == 24 * HOUR_S
    world.clock.sleep(error.value.retry_after_s or 0.0)
    assert world.site().provision(NEXT).nodes
    assert askings(world) == 3
    world.site().release("small")
    assert world.cloud.left() == []


def test_it_is_not_asked_for_without_end_nor_after_another_error(world):
    taken(world, *range(1, 100))
    world.cloud.virtual = 2
    with raises(SiteError, "Not enough hosts available", "13 later times") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s is not None
    assert askings(world) == 14
    assert world.cloud.live_leases() == []


def test_the_last_end_is_among_the_times(world):
    taken(world, *range(1, 100))
    with raises(SiteError, "starts at") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s == pytest.approx(99 * HOUR_S, abs=180)


def test_where_ends_are_not_told(world):
    taken(world, 3)
    world.fail("bookings", CloudError("Policy forbids it.", Fault.REFUSED, status=403))
    with raises(SiteError, "starts at") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s == pytest.approx(4 * HOUR_S, abs=180)
    assert askings(world) == 4  # now, and in 1, 2 and 4 hours


def test_another_error_ends_it(world):
    refusal = CloudError("Lease duration exceeds the maximum", Fault.REFUSED, status=403)
    taken(world, 3)
    world.fail("create_lease", refusal)
    with raises(SiteError, "exceeds the maximum"):
        world.site().provision(NEXT)
    assert askings(world) == 1


def test_who_wants_them_now_is_told_of_it(world):
    taken(world, 3)
    with raises(SiteError, "lease.start", "next-free"):
        world.site().provision(spec_of(VIRTUAL))
    assert askings(world) == 1
