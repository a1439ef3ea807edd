"""Leases of the site `chameleon`: which are ours, how long they may be, what comes after one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.sites.chameleon.cloud import Booking, CloudError, Fault, Lease, Wanted
from testbed.sites.contract import SiteError, State
from testbed.sites.records import Records
from tests.testbed.sites.chameleon_world import (
    BARE,
    HOUR_S,
    VIRTUAL,
    World,
    lease_of,
    spec_of,
    world,
)
from tests.testbed.sites.fake_cloud import Died, Trip, hosts

__all__ = ["world"]

NAMED: dict[str, Any] = {**BARE, "lease": {"name": "mine"}}


@pytest.mark.parametrize("ahead", [-50.0, 0.0, 50.0])
def test_a_lease_of_seven_days_is_no_minute_longer(world: World, ahead: float) -> None:
    """Blazar counts from the beginning of the minute; clocks that differ by less than a minute are
    taken for one."""
    world.cloud.ahead_s = ahead
    world.site().provision(spec_of({**BARE, "lease": {"hours": 168}}))
    (lease,) = world.cloud.live_leases()
    assert lease.end_s - lease.start_s > 168 * HOUR_S - 180


def test_servers_of_the_lease_that_ended_are_not_taken_for_the_next_one_s(world: World) -> None:
    world.cloud.linger_s = 120.0
    world.site().provision(spec_of(BARE))
    (lease,) = world.cloud.live_leases()
    before = {server.id for server in world.cloud.all_servers()}
    world.cloud.end_lease(lease.id)
    assert {server.id for server in world.cloud.all_servers()} == before
    world.site().provision(spec_of(BARE))
    assert before.isdisjoint(server.id for server in world.cloud.all_servers())
    world.clock.sleep(300)
    assert world.site().status("small").state is State.READY


def test_servers_of_the_lease_that_ended_are_not_taken_for_one_s_made_by_hand(
    world: World,
) -> None:
    world.cloud.linger_s = 120.0
    world.site().provision(spec_of(NAMED))
    (ours,) = world.cloud.live_leases()
    before = {server.id for server in world.cloud.all_servers()}
    world.cloud.end_lease(ours.id)
    world.cloud.add_lease(lease_of(world, "by-hand"))
    world.site().provision(spec_of(NAMED))
    assert before.isdisjoint(server.id for server in world.cloud.all_servers())
    world.clock.sleep(300)
    assert world.site().status("small").state is State.READY


def test_a_lease_made_by_hand_after_ours_was_over_stays(world: World) -> None:
    world.site().provision(spec_of(NAMED))
    (ours,) = world.cloud.live_leases()
    world.cloud.end_lease(ours.id)
    world.cloud.add_lease(lease_of(world, "by-hand"))
    world.site().provision(spec_of(NAMED))
    assert world.cloud.calls.count("create_lease") == 1
    world.site().release("small")
    assert [lease.id for lease in world.cloud.live_leases()] == ["by-hand"]


def test_a_lease_made_by_hand_after_ours_was_refused_stays(world: World) -> None:
    def trip(number: int, name: str, when: str) -> None:
        if name == "create_lease":
            raise CloudError("Not enough hosts available", Fault.FULL, status=500)

    world.cloud.trip = trip
    with pytest.raises(SiteError):
        world.site().provision(spec_of(NAMED))
    world.cloud.add_lease(lease_of(world, "by-hand"))
    world.site().provision(spec_of(NAMED))
    world.site().release("small")
    assert [lease.id for lease in world.cloud.live_leases()] == ["by-hand"]


def test_a_named_lease_whose_answer_never_came_is_ours(world: World) -> None:
    def trip(number: int, name: str, when: str) -> None:
        if name == "create_lease" and when == "after":
            raise Died

    world.cloud.trip = trip
    with pytest.raises(Died):
        world.site().provision(spec_of(NAMED))
    world.site().provision(spec_of(NAMED))
    (ours,) = world.cloud.live_leases()
    world.cloud.end_lease(ours.id)
    world.cloud.add_lease(lease_of(world, "by-hand"))
    world.site().provision(spec_of(NAMED))
    world.site().release("small")
    assert [lease.id for lease in world.cloud.live_leases()] == ["by-hand"]


def dies_at_the_first_asking(when_it_dies: str, error: BaseException) -> Trip:
    """A cloud's trip: the first `create_lease` fails before or after it took effect."""
    fails = [error]

    def trip(number: int, name: str, when: str) -> None:
        if name == "create_lease" and when == when_it_dies and fails:
            raise fails.pop()

    return trip


@pytest.mark.parametrize("look_before", [True, False])
def test_an_asking_that_came_to_nothing_makes_no_later_lease_ours(
    world: World, look_before: bool
) -> None:
    """Killed before Blazar had it: the journal's asking has no answer, ever."""
    world.cloud.trip = dies_at_the_first_asking("before", Died())
    with pytest.raises(Died):
        world.site().provision(spec_of(NAMED))
    world.clock.sleep(HOUR_S)
    world.cloud.add_lease(lease_of(world, "by-hand"))
    if look_before:
        world.site().provision(spec_of(NAMED))
    world.site().release("small")
    assert [lease.id for lease in world.cloud.live_leases()] == ["by-hand"]


def test_an_asking_that_was_made_again_makes_no_later_lease_ours(world: World) -> None:
    lost = CloudError("Gateway Time-out", Fault.PASSING, status=504)
    world.cloud.trip = dies_at_the_first_asking("before", lost)
    world.site().provision(spec_of(NAMED))
    (ours,) = world.cloud.live_leases()
    world.clock.sleep(HOUR_S)
    world.cloud.end_lease(ours.id)
    world.cloud.add_lease(lease_of(world, "by-hand"))
    world.site().provision(spec_of(NAMED))
    world.site().release("small")
    assert [lease.id for lease in world.cloud.live_leases()] == ["by-hand"]


def test_an_asking_without_answer_is_closed_when_it_is_looked_at_later(world: World) -> None:
    world.cloud.trip = dies_at_the_first_asking(
        "before", CloudError("Gateway Time-out", Fault.PASSING, status=504)
    )
    world.site().provision(spec_of(NAMED))
    world.clock.sleep(HOUR_S)
    world.site().extend("small", HOUR_S)
    world.site().extend("small", HOUR_S)  # it is closed once
    lines = [each for each in world.records.entries("small") if each.get("what") == "lease"]
    assert [line["entry"] for line in lines] == ["ask", "ask", "made", "refused"]


def test_a_named_lease_that_comes_to_light_after_minutes_is_ours(world: World) -> None:
    world.cloud.trip = dies_at_the_first_asking("before", Died())
    with pytest.raises(Died):
        world.site().provision(spec_of(NAMED))
    world.clock.sleep(120)
    world.cloud.add_lease(lease_of(world, "late"))
    world.clock.sleep(HOUR_S)
    world.site().provision(spec_of(NAMED))
    assert world.cloud.calls.count("create_lease") == 1
    world.site().release("small")
    assert world.cloud.left() == []


@pytest.mark.parametrize("options", [BARE, NAMED])
def test_a_lease_that_comes_to_light_after_another_was_asked_for_is_removed(
    world: World, options: dict[str, object]
) -> None:
    create = world.cloud.create_lease
    late: list[Lease] = []

    def slow(name: str, start_s: float | None, end_s: float, wanted: Sequence[Wanted]) -> Lease:
        made = create(name, start_s, end_s, wanted)
        if late:
            world.cloud.add_lease(late[0])
            return made
        late.append(world.cloud._leases.pop(made.id))
        raise CloudError("Gateway Time-out", Fault.PASSING, status=504)

    world.cloud.create_lease = slow  # type: ignore[method-assign]
    world.site().provision(spec_of(options))
    (kept,) = world.cloud.live_leases()
    assert kept.id != late[0].id


def test_a_lease_that_broke_while_nobody_waited_is_told_and_removed(world: World) -> None:
    """It would keep its machines from us: here there are only three."""
    world.cloud.machines = hosts({"compute_skylake": 3})
    now = world.clock.now()
    world.cloud.others = [Booking(h.id, now, now + 5 * HOUR_S) for h in world.cloud.machines]
    spec = spec_of({**BARE, "lease": {"start": "next-free"}})
    with pytest.raises(SiteError, match="starts at"):
        world.site().provision(spec)
    world.cloud.lease_reason = "the event start_lease ended in ERROR"
    world.clock.sleep(6 * HOUR_S)
    assert "could not start lease" in world.site().status("small").detail
    with pytest.raises(SiteError, match=r"could not start lease .*the event start_lease") as error:
        world.site().provision(spec)
    assert error.value.retry_after_s is not None
    assert not any(thing.startswith("lease") for thing in world.cloud.left())
    world.cloud.lease_reason = None
    assert world.site().provision(spec).nodes


def test_a_lease_in_error_that_somebody_else_made_is_left_alone(world: World) -> None:
    world.cloud.add_lease(lease_of(world, "by-hand", status="ERROR"))
    world.site().provision(spec_of(NAMED))
    world.site().release("small")
    assert world.cloud.lease("by-hand") is not None


def test_a_lease_that_prolonging_broke_is_not_told_as_one_that_never_started(world: World) -> None:
    world.site().provision(spec_of(BARE))

    def trip(number: int, name: str, when: str) -> None:
        if name == "prolong_lease" and when == "after":
            (lease,) = world.cloud.live_leases()
            world.cloud._leases[lease.id] = replace(lease, status="ERROR")
            raise CloudError("Internal Server Error", Fault.PASSING, status=500)

    world.cloud.trip = trip
    words = r"had started, and Blazar broke it off \(ERROR\): it gives no reason: `hotbed up`"
    with pytest.raises(SiteError, match=words):
        world.site().extend("small", HOUR_S)
    world.cloud.trip = lambda number, name, when: None
    status = world.site().status("small")
    assert status.state is State.FAILED
    assert "had started, and Blazar broke it off" in status.detail
    with pytest.raises(SiteError, match="had started, and Blazar broke it off"):
        world.site().provision(spec_of(BARE))
    assert world.site().provision(spec_of(BARE)).nodes
    world.site().release("small")
    assert world.cloud.left() == []


def test_a_lease_that_somebody_deletes_is_told_and_cannot_be_extended(world: World) -> None:
    world.site().provision(spec_of(BARE))
    (lease,) = world.cloud.live_leases()
    world.cloud.delete_lease(lease.id)
    status = world.site().status("small")
    assert status.state is State.FAILED
    assert "the lease was ended early" in status.detail
    assert status.ends_at_s is not None
    assert status.ends_at_s <= world.clock.now()
    with pytest.raises(SiteError, match=r"testbed 'small' cannot be extended: the lease was ended"):
        world.site().extend("small", HOUR_S)


def test_a_lease_that_is_over_cannot_be_extended(world: World) -> None:
    world.site().provision(spec_of(BARE))
    world.clock.sleep(25 * HOUR_S)
    with pytest.raises(SiteError, match=r"cannot be extended: the lease has ended .*`hotbed up`"):
        world.site().extend("small", HOUR_S)


def test_machines_that_others_have_then_are_not_asked_for_again(world: World) -> None:
    """A reservation right behind ours does not go away by waiting: a shorter time may be had."""
    world.site().provision(spec_of(BARE))
    end = world.site().status("small").ends_at_s or 0.0
    world.cloud.others = [Booking(h.id, end, end + HOUR_S) for h in world.cloud.machines]
    with pytest.raises(SiteError, match=r"not enough is free until .*ask for less") as error:
        world.site().extend("small", HOUR_S)
    assert error.value.retry_after_s is None


@pytest.mark.parametrize("options", [BARE, VIRTUAL])
def test_servers_that_do_not_go_do_not_keep_the_lease(
    world: World, options: dict[str, object]
) -> None:
    world.site().provision(spec_of(options))
    for kept in world.cloud._servers.values():
        kept.server = replace(kept.server, status="ERROR")
    world.cloud.delete_s = 1e6
    with pytest.raises(SiteError, match=r"3 servers are still there.*same command goes on"):
        world.site().release("small")
    assert world.cloud.live_leases() == []
    world.clock.sleep(1e6)
    world.site().release("small")
    assert world.cloud.left() == []


def test_what_a_lost_state_folder_knew_is_told_before_anything_is_leased_again(
    world: World, tmp_path: Path
) -> None:
    """As in a hub that ended the server it was in: nothing here knows of the lease that runs."""
    world.site().provision(spec_of(BARE))
    assert "of no testbed" not in world.site().plan(spec_of(BARE)).detail
    (lease,) = world.cloud.live_leases()
    world.records = Records("chameleon", tmp_path / "another")
    told = world.site().plan(spec_of(BARE)).detail
    assert "of no testbed on this machine: " in told
    assert f"lease {lease.name}" in told
    made = world.cloud.calls.count("create_lease")
    world.site().provision(spec_of(BARE))
    assert world.cloud.calls.count("create_lease") == made + 1
    assert f"lease {lease.name}" in world.site().status("small").detail
