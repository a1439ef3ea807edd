"""Site `chameleon` on an in-memory cloud: the contract, faults, and the next free time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import Booking, CallFault, CloudError, NoCredentials
from testbed.sites.chameleon.site import ChameleonSite
from testbed.sites.chameleon.work import PAUSES_S
from testbed.sites.contract import SiteError, State
from testbed.spec import TestbedSpec
from tests.errors import raises
from tests.testbed.sites.chameleon_world import BARE, HOUR_S, VIRTUAL, World, spec_of, world
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


def test_groups_of_several_types(world):
    types = {"admin": "compute_skylake", "osd": "storage"}
    spec = spec_of({**BARE, "node_type": types})
    world.cloud.machines = hosts({"compute_skylake": 1, "storage": 1})
    with raises(UserError, "1 machines", "storage"):
        world.site().plan(spec)
    world.cloud.machines = hosts({"compute_skylake": 1, "storage": 2})
    testbed = world.site().provision(spec)
    assert [node.facts["type"] for node in testbed.nodes] == ["compute_skylake", *["storage"] * 2]
    (lease,) = world.cloud.live_leases()
    assert sorted(each.amount for each in lease.reservations) == [1, 2]


@pytest.mark.parametrize("options", [BARE, VIRTUAL])
def test_a_failed_server_has_its_machine_until_it_is_gone(world, options):
    """The lease holds exactly as many machines as needed."""
    world.cloud.outcomes = {"osd1": ["ERROR"]}
    world.cloud.delete_s = 60.0
    assert world.site().provision(spec_of(options)).nodes
    assert world.cloud.calls.count("create_server") == 4
    (failed,) = [e for e in world.records.entries("small") if e["entry"] == "failed"]
    assert failed["reason"] == "Deploying failed"


def test_credentials_that_are_missing_or_refused(world):
    def connect(site: str, project: str | None) -> FakeCloud:
        raise NoCredentials("there are no credentials for Chameleon")

    site = world.site()
    site._connect = connect
    assert "there are no credentials" in site.plan(spec_of(BARE)).detail
    with raises(UserError, "there are no credentials"):
        site.provision(spec_of(BARE))
    world.fail("*", CloudError("The request requires authentication.", CallFault.CREDENTIALS))
    with raises(UserError, "authentication", do="openrc"):
        world.site().provision(spec_of(BARE))
    assert world.site().names() == []


def test_a_server_that_somebody_stopped_is_reported_at_once(world):
    world.site().provision(spec_of(BARE))
    kept = next(iter(world.cloud._servers.values()))
    kept.server = replace(kept.server, status="SHUTOFF")
    assert world.site().status("small").state is State.FAILED
    before = world.clock.now()
    with raises(SiteError, "is SHUTOFF", "hotbed up"):
        world.site().provision(spec_of(BARE))
    assert world.clock.now() == pytest.approx(before, abs=1)


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


def test_a_node_that_cannot_be_set_up_is_named_and_resumed(world):
    world.shells.trouble = "has no disk of at least 10 MiB free"
    with raises(UserError, "admin", "has no disk of at least 10 MiB free"):
        world.site().provision(spec_of(BARE))
    assert world.site().status("small").state is State.BUILDING
    world.shells.trouble = ""
    assert world.site().provision(spec_of(BARE)).nodes
    assert world.cloud.calls.count("create_server") == 3


def test_host_keys_of_the_first_contact_are_pinned(world):
    spec = spec_of({**BARE, "host_keys": "first-contact"})
    testbed = world.site().provision(spec)
    known = testbed.known_hosts.read_text()
    admin, osd = testbed.admin, testbed.node("osd0")
    assert f"ssh-ed25519 KEY-OF-{admin.public_address}" in known  # by us
    assert f"ssh-ed25519 KEY-OF-{osd.address}" in known  # by the admin node
    assert not (testbed.directory / "host_keys").exists()


def test_a_cloud_that_stays_away(world):
    """A release retries; a look does not wait."""
    world.site().provision(spec_of(BARE))
    world.fail("*", CloudError("timed out", CallFault.PASSING))
    before = world.clock.now()
    status = world.site().status("small")
    assert world.clock.now() == pytest.approx(before, abs=1)
    assert status.state is State.READY
    assert "as known last" in status.detail
    assert world.site().find("small") is not None
    with raises(SiteError, "timed out") as error:
        world.site().release("small")
    assert error.value.retry_after_s is not None
    assert world.clock.now() - before == pytest.approx(sum(PAUSES_S), abs=1)


# -- the next free time of virtual machines, which Blazar does not report --------------------------


NEXT = spec_of({**VIRTUAL, "lease": {"start": "next-free"}})


def taken(world: World, *hours: float, fit: int = 3) -> None:
    """Book other users' virtual machines, each for some hours from now; `fit` fit at once."""
    world.cloud.virtual = fit
    now = world.clock.now()
    world.cloud.others = [Booking(f"h{each}", now, now + each * HOUR_S) for each in hours]


def askings(world: World) -> int:
    return world.cloud.calls.count("create_lease")


@pytest.mark.parametrize(
    ("hours", "fit", "start", "asked"),
    [
        ((2, 5, 30), 4, 5, 3),
        (range(1, 100), 3, 99, 14),  # the last end is among the times
    ],
)
def test_the_first_time_at_which_all_have_room(world, hours, fit, start, asked):
    taken(world, *hours, fit=fit)
    with raises(SiteError, "hotbed up") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s == pytest.approx(start * HOUR_S, abs=180)
    assert askings(world) == asked
    assert world.site().status("small").state is State.PENDING
    (lease,) = world.cloud.live_leases()
    assert lease.end_s - lease.start_s == 24 * HOUR_S
    world.clock.sleep(error.value.retry_after_s or 0.0)
    assert world.site().provision(NEXT).nodes
    assert askings(world) == asked
    world.site().release("small")
    assert world.cloud.left() == []


def test_it_is_not_asked_for_without_end_nor_after_another_error(world):
    taken(world, *range(1, 100), fit=2)
    with raises(SiteError, "Not enough hosts available", "13 later times") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s is not None
    assert askings(world) == 14
    with raises(SiteError, "lease.start", "next-free"):
        world.site().release("small")
        world.site().provision(spec_of(VIRTUAL))
    assert askings(world) == 15
    assert world.cloud.live_leases() == []
    world.fail(
        "create_lease", CloudError("Lease exceeds the maximum", CallFault.REFUSED, status=403)
    )
    with raises(SiteError, "exceeds the maximum"):
        world.site().provision(spec_of(VIRTUAL))
    assert askings(world) == 16
