"""Taking a testbed down whose asking for a lease was interrupted: it may come to light later."""

from __future__ import annotations

import pytest

from testbed.sites.chameleon.cloud import CloudError, Fault
from testbed.sites.chameleon.release import WATCH_S
from testbed.sites.chameleon.whose import LATE_S
from testbed.sites.chameleon.work import POLL_S
from testbed.sites.contract import SiteError
from tests.testbed.sites.chameleon_world import BARE, World, lease_of, spec_of, world
from tests.testbed.sites.fake_cloud import Died

__all__ = ["world"]


def interrupted(world: World) -> str:
    """`up` is killed before Blazar's answer; the lease's name."""

    def trip(number: int, name: str, when: str) -> None:
        if name == "create_lease" and when == "before":
            raise Died

    world.cloud.trip = trip
    with pytest.raises(Died):
        world.site().provision(spec_of(BARE))
    world.cloud.trip = lambda number, name, when: None
    (asked,) = [e for e in world.records.entries("small") if e.get("what") == "lease"]
    return str(asked["name"])


def appears(world: World, name: str, after_s: float) -> None:
    """A lease comes to light so long after now."""
    at = world.clock.now() + after_s
    late = lease_of(world, "late", name=name, made_s=at)

    def trip(number: int, called: str, when: str) -> None:
        if late and world.clock.now() >= at and "late" not in world.cloud.made:
            world.cloud.made.append("late")
            world.cloud.add_lease(late)

    world.cloud.trip = trip


def test_a_lease_that_comes_to_light_while_it_is_taken_down_is_ended(world: World) -> None:
    appears(world, interrupted(world), after_s=32.0)
    world.site().release("small")
    assert world.cloud.left() == []
    assert "late" in world.cloud.made
    assert world.site().names() == []


def test_while_it_may_still_come_to_light_the_record_stays(world: World) -> None:
    appears(world, interrupted(world), after_s=300.0)
    begun, looks = world.clock.now(), world.cloud.calls.count("leases")
    words = r"the answer never came, .*: repeat `hotbed down small` then.*all else is removed"
    with pytest.raises(SiteError, match=words) as error:
        world.site().release("small")
    assert world.clock.now() - begun == pytest.approx(WATCH_S, abs=POLL_S)
    assert world.cloud.calls.count("leases") - looks <= WATCH_S / POLL_S + 1
    assert error.value.retry_after_s == pytest.approx(LATE_S - WATCH_S, abs=POLL_S)
    assert world.cloud.left() == []
    assert world.site().names() == ["small"]
    world.clock.sleep(error.value.retry_after_s or 0.0)
    world.site().release("small")
    assert "late" in world.cloud.made
    assert world.cloud.left() == []
    assert world.site().names() == []


def test_after_it_cannot_come_any_more_nobody_waits(world: World) -> None:
    interrupted(world)
    world.clock.sleep(LATE_S)
    begun = world.clock.now()
    world.site().release("small")
    assert world.clock.now() == begun
    assert world.site().names() == []


@pytest.mark.parametrize(
    "refusal",
    [
        CloudError("Bad Request", Fault.REFUSED, status=400),
        CloudError("Not enough hosts available", Fault.FULL, status=500),
    ],
    ids=["400", "full"],
)
def test_who_was_refused_does_not_wait(world: World, refusal: CloudError) -> None:
    def trip(number: int, name: str, when: str) -> None:
        if name == "create_lease":
            raise refusal

    world.cloud.trip = trip
    with pytest.raises(SiteError):
        world.site().provision(spec_of(BARE))
    begun = world.clock.now()
    world.site().release("small")
    assert world.clock.now() == begun
    assert world.site().names() == []


def test_an_asking_before_one_that_had_its_answer_is_not_waited_for(world: World) -> None:
    fails = [CloudError("Gateway Time-out", Fault.PASSING, status=504)]

    def trip(number: int, name: str, when: str) -> None:
        if name == "create_lease" and when == "before" and fails:
            raise fails.pop()

    world.cloud.trip = trip
    world.site().provision(spec_of(BARE))
    world.site().release("small")
    assert world.site().names() == []
    assert world.cloud.left() == []


def test_killed_after_the_late_lease_was_ended_nobody_waits_again(world: World) -> None:
    appears(world, interrupted(world), after_s=0.0)
    appeared = world.cloud.trip

    def trip(number: int, name: str, when: str) -> None:
        appeared(number, name, when)
        if name == "delete_lease" and when == "after":
            raise Died

    world.cloud.trip = trip
    with pytest.raises(Died):
        world.site().release("small")
    world.cloud.trip = lambda number, name, when: None
    begun = world.clock.now()
    world.site().release("small")
    assert world.clock.now() == begun
    assert world.site().names() == []
