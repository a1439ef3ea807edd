"""Search for the next free time of virtual machines, which Blazar does not report."""

from __future__ import annotations

import pytest

from testbed.sites.chameleon.cloud import Booking, CloudError, Fault
from testbed.sites.contract import SiteError, State
from tests.errors import raises
from tests.testbed.sites.chameleon_world import HOUR_S, VIRTUAL, World, spec_of, world

__all__ = ["world"]

NEXT = spec_of({**VIRTUAL, "lease": {"start": "next-free"}})


def taken(world: World, *hours: float) -> None:
    """Book other users' virtual machines, each for some hours from now; three fit at once."""
    world.cloud.virtual = 3
    now = world.clock.now()
    world.cloud.others = [Booking(f"h{each}", now, now + each * HOUR_S) for each in hours]


def askings(world: World) -> int:
    return world.cloud.calls.count("create_lease")


def test_what_is_free_now_is_leased_now(world: World) -> None:
    taken(world)
    assert world.site().provision(NEXT).nodes
    assert askings(world) == 1


def test_the_first_end_after_which_all_have_room(world: World) -> None:
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


def test_it_is_not_asked_for_without_end(world: World) -> None:
    taken(world, *range(1, 100))
    world.cloud.virtual = 2
    with raises(SiteError, "Not enough hosts available", "13 later times") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s is not None
    assert askings(world) == 14
    assert world.cloud.live_leases() == []


def test_the_last_end_is_among_the_times(world: World) -> None:
    taken(world, *range(1, 100))
    with raises(SiteError, "starts at") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s == pytest.approx(99 * HOUR_S, abs=180)


def test_where_ends_are_not_told(world: World) -> None:
    taken(world, 3)
    world.fail("bookings", CloudError("Policy forbids it.", Fault.REFUSED, status=403))
    with raises(SiteError, "starts at") as error:
        world.site().provision(NEXT)
    assert error.value.retry_after_s == pytest.approx(4 * HOUR_S, abs=180)
    assert askings(world) == 4  # now, and in 1, 2 and 4 hours


def test_another_error_ends_it(world: World) -> None:
    refusal = CloudError("Lease duration exceeds the maximum", Fault.REFUSED, status=403)
    taken(world, 3)
    world.fail("create_lease", refusal)
    with raises(SiteError, "exceeds the maximum"):
        world.site().provision(NEXT)
    assert askings(world) == 1


def test_who_wants_them_now_is_told_of_it(world: World) -> None:
    taken(world, 3)
    with raises(SiteError, "lease.start", "next-free"):
        world.site().provision(spec_of(VIRTUAL))
    assert askings(world) == 1
