"""Leases of the site `chameleon`: ownership, lost answers, lengths, the next lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import (
    BlazarLease,
    CallFault,
    CloudError,
    Reservation,
    TokenIdentity,
)
from testbed.sites.chameleon.lease import LATE_S
from testbed.sites.chameleon.site import WATCH_S
from testbed.sites.chameleon.work import POLL_S
from testbed.sites.contract import SiteError, State
from testbed.sites.records import Records
from tests.errors import raises
from tests.testbed.sites.chameleon_world import (
    BARE,
    FULL,
    HOUR_S,
    LOST,
    VIRTUAL,
    World,
    lease_of,
    spec_of,
    world,
)
from tests.testbed.sites.fake_cloud import ME, Died

__all__ = ["world"]

NAMED: dict[str, Any] = {**BARE, "lease": {"name": "mine"}}
OTHER_USER = TokenIdentity("user-other", ME.project_id, "other", "CHI-1")
OTHER_PROJECT = TokenIdentity(ME.user_id, "project-other", "me", "CHI-2")


def live_ids(world: World) -> list[str]:
    return sorted(lease.id for lease in world.cloud.live_leases())


def requested(world: World, options: dict[str, Any]) -> str:
    """Kill `up` before Blazar has its request; return the lease's name."""
    world.fail("create_lease", Died())
    with pytest.raises(Died):
        world.site().provision(spec_of(options))
    world.heal()
    (line,) = [e for e in world.records.entries("small") if e.get("what") == "lease"]
    return str(line["name"])


def test_a_lease_of_seven_days_is_no_minute_longer(world):
    """Blazar counts from the start of the minute."""
    world.site().provision(spec_of({**BARE, "lease": {"hours": 168}}))
    (lease,) = world.cloud.live_leases()
    assert lease.end_s - lease.start_s > 168 * HOUR_S - 180


@pytest.mark.parametrize("options", [BARE, NAMED], ids=["a new lease", "a lease made by hand"])
def test_servers_of_the_lease_that_ended_are_not_used(world, options):
    world.cloud.linger_s = 120.0
    world.site().provision(spec_of(options))
    before = {server.id for server in world.cloud.all_servers()}
    world.cloud.end_lease(live_ids(world)[0])
    if options is NAMED:
        world.cloud.add_lease(lease_of(world, "by-hand"))
    assert {server.id for server in world.cloud.all_servers()} == before
    world.site().provision(spec_of(options))
    assert before.isdisjoint(server.id for server in world.cloud.all_servers())
    world.clock.sleep(300)
    assert world.site().status("small").state is State.READY


# -- ownership ----------------------------------------------------------------------------------


def ours_ended(world: World) -> None:
    world.site().provision(spec_of(NAMED))
    world.cloud.end_lease(live_ids(world)[0])


def ours_got_no_answer(world: World) -> None:
    requested(world, NAMED)


@pytest.mark.parametrize("before", [None, ours_ended, ours_got_no_answer])
def test_a_lease_made_by_hand_is_used_and_stays(world, before):
    if before is not None:
        before(world)
    world.heal()
    requests = world.cloud.calls.count("create_lease")
    world.cloud.add_lease(lease_of(world, "by-hand"))
    world.cloud.add_lease(lease_of(world, "theirs", user_id="somebody"))
    world.site().provision(spec_of(NAMED))
    assert world.cloud.calls.count("create_lease") == requests
    world.clock.sleep(HOUR_S)
    world.site().release("small")
    assert live_ids(world) == ["by-hand", "theirs"]
    assert world.cloud.left() == ["lease mine", "lease mine"]


@pytest.mark.parametrize("status", ["ERROR", "TERMINATED"])
def test_a_dead_lease_of_the_name_is_neither_used_nor_deleted(world, status):
    world.cloud.add_lease(lease_of(world, "dead", status=status))
    world.site().provision(spec_of(NAMED))
    world.site().release("small")
    assert world.cloud.lease("dead") is not None
    assert live_ids(world) == []


@pytest.mark.parametrize(
    ("leases", "said"),
    [({"one": {}, "two": {}}, "'mine'"), ({"small": {"reservations": ()}}, "3 machines")],
)
def test_leases_made_by_hand_that_do_not_serve_are_refused(world, leases, said):
    for identity, fields in leases.items():
        world.cloud.add_lease(lease_of(world, identity, **fields))
    with raises(UserError, said):
        world.site().provision(spec_of(NAMED))


@pytest.mark.parametrize(("options", "other"), [(BARE, OTHER_USER), (NAMED, OTHER_PROJECT)])
def test_somebody_elses_lease_of_the_same_name_is_left_alone(world, options, other):
    """Operators see all leases; our name alone does not make a lease ours."""
    name = requested(world, options)
    fields = {"name": name, "user_id": other.user_id, "project_id": other.project_id}
    theirs = lease_of(world, "theirs", **fields)
    world.cloud.add_lease(theirs)
    leases = world.cloud.leases
    world.cloud.leases = lambda: [*leases(), theirs]  # type: ignore[method-assign]
    world.site().provision(spec_of(options))
    assert len(live_ids(world)) == 2
    world.site().release("small")
    assert live_ids(world) == ["theirs"]


DOING: dict[str, Callable[[World, dict[str, Any]], object]] = {
    "up": lambda world, options: world.site().provision(spec_of(options)),
    "extend": lambda world, options: world.site().extend("small", HOUR_S),
    "down": lambda world, options: world.site().release("small"),
}


@pytest.mark.parametrize("doing", DOING)
@pytest.mark.parametrize("other", [OTHER_USER, OTHER_PROJECT])
def test_other_credentials_change_nothing(world, other, doing):
    world.fail("create_keypair", Died())
    with pytest.raises(Died):  # the owner is recorded before anything is made
        world.site().provision(spec_of(BARE))
    world.heal()
    world.cloud.me = other
    with raises(UserError, "user me", "project CHI-1", other.user_name):
        DOING[doing](world, BARE)
    world.cloud.me = ME
    world.site().provision(spec_of(BARE))
    there = world.cloud.left()
    world.cloud.me = other
    with raises(UserError, "user me", "project CHI-1", other.user_name):
        DOING[doing](world, BARE)
    status = world.site().status("small")
    assert status.state is State.READY
    assert "'small' on CHI@UC" in status.detail
    assert world.cloud.left() == there
    world.cloud.me = ME
    world.site().release("small")
    assert world.cloud.left() == []


# -- lost answers -------------------------------------------------------------------------------


def appears(world: World, name: str, after_s: float) -> None:
    """Let the requested lease appear `after_s` seconds from now."""
    at = world.clock.now() + after_s

    def trip(number: int, called: str, when: str) -> None:
        if world.clock.now() >= at and "late" not in world.cloud.made:
            world.cloud.made.append("late")
            world.cloud.add_lease(lease_of(world, "late", name=name))

    world.cloud.trip = trip


@pytest.mark.parametrize("options", [BARE, NAMED])
def test_a_late_lease_is_used_by_the_next_up(world, options):
    appears(world, requested(world, options), after_s=0.0)
    world.clock.sleep(HOUR_S)
    world.site().provision(spec_of(options))
    assert live_ids(world) == ["late"]
    world.site().release("small")
    assert world.cloud.left() == []


@pytest.mark.parametrize("options", [BARE, NAMED])
def test_a_late_lease_next_to_another_is_ended(world, options):
    create = world.cloud.create_lease
    late: list[BlazarLease] = []

    def slow(
        name: str, start_s: float | None, end_s: float, wanted: Sequence[Reservation]
    ) -> BlazarLease:
        made = create(name, start_s, end_s, wanted)
        if late:
            world.cloud.add_lease(late[0])
            return made
        late.append(world.cloud._leases.pop(made.id))
        raise LOST

    world.cloud.create_lease = slow  # type: ignore[method-assign]
    world.site().provision(spec_of(options))
    assert live_ids(world) != [late[0].id]
    assert len(live_ids(world)) == 1


def test_while_a_lease_may_still_appear_the_record_stays(world):
    appears(world, requested(world, BARE), after_s=300.0)
    begun, looks = world.clock.now(), world.cloud.calls.count("leases")
    with raises(SiteError, "hotbed down small") as error:
        world.site().release("small")
    assert world.clock.now() - begun == pytest.approx(WATCH_S, abs=POLL_S)
    assert world.cloud.calls.count("leases") - looks <= WATCH_S / POLL_S + 1
    assert error.value.retry_after_s == pytest.approx(LATE_S - WATCH_S, abs=POLL_S)
    assert world.cloud.left() == []
    assert world.site().names() == ["small"]
    world.clock.sleep(error.value.retry_after_s or 0.0)
    world.site().release("small")
    assert "late" in world.cloud.made
    assert world.cloud.left() == world.site().names() == []


def too_late(world: World) -> None:
    requested(world, BARE)
    world.clock.sleep(LATE_S)


def refused(world: World) -> None:
    world.fail("create_lease", CloudError("Bad Request", CallFault.REFUSED, status=400))
    with pytest.raises(SiteError):
        world.site().provision(spec_of(BARE))


def full(world: World) -> None:
    world.fail("create_lease", FULL)
    with pytest.raises(SiteError):
        world.site().provision(spec_of(BARE))


def killed_after_it_was_ended(world: World) -> None:
    world.cloud.add_lease(lease_of(world, "late", name=requested(world, BARE)))
    world.fail("delete_lease", Died(), when="after")
    with pytest.raises(Died):
        world.site().release("small")
    world.heal()


@pytest.mark.parametrize("before", [too_late, refused, full, killed_after_it_was_ended])
def test_without_a_lease_that_may_appear_nobody_waits(world, before):
    before(world)
    begun = world.clock.now()
    world.site().release("small")
    assert world.clock.now() == pytest.approx(begun, abs=1)
    assert world.cloud.left() == world.site().names() == []


# -- ERROR, the end, more time ------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False])
def test_a_lease_that_ended_cannot_be_extended_and_up_leases_anew(world, early):
    before = world.site().provision(spec_of(BARE))
    if early:
        world.cloud.delete_lease(live_ids(world)[0])
    else:
        world.clock.sleep(25 * HOUR_S)
        assert world.site().find("small") is None
    status = world.site().status("small")
    assert status.state is State.FAILED
    words = "the lease was ended early" if early else "the lease has ended"
    assert words in status.detail
    assert (status.ends_at_s or 1e99) <= world.clock.now()
    with raises(SiteError, "`hotbed up`", words):
        world.site().extend("small", HOUR_S)
    after = world.site().provision(spec_of(BARE))
    assert [node.name for node in after.nodes] == [node.name for node in before.nodes]
    assert world.site().status("small").state is State.READY
    world.site().release("small")
    assert world.cloud.left() == []


def test_not_beyond_the_policy_and_the_spec(world):
    lease = {"hours": 10, "prolong": {"upto_hours": 12}}
    world.site().provision(spec_of({**BARE, "lease": lease}))
    world.site().extend("small", HOUR_S)
    with raises(UserError, "upto_hours is 12"):
        world.site().extend("small", 2 * HOUR_S)
    world.site().provision(spec_of(BARE))
    with raises(UserError, "168 h from now"):
        world.site().extend("small", 7 * 24 * HOUR_S)


def test_a_lost_answer_to_prolonging_was_a_yes(world):
    world.site().provision(spec_of(BARE))
    before = world.site().status("small").ends_at_s or 0.0
    world.fail("prolong_lease", LOST, when="after")
    assert (world.site().extend("small", HOUR_S).ends_at_s or 0.0) >= before + HOUR_S
    assert world.cloud.calls.count("prolong_lease") == 1


@pytest.mark.parametrize("options", [BARE, VIRTUAL])
def test_servers_that_do_not_go_do_not_keep_the_lease(world, options):
    world.site().provision(spec_of(options))
    for kept in world.cloud._servers.values():
        kept.server = replace(kept.server, status="ERROR")
    world.cloud.delete_s = 1e6
    with raises(SiteError, "3 servers"):
        world.site().release("small")
    assert world.cloud.live_leases() == []
    world.clock.sleep(1e6)
    world.site().release("small")
    assert world.cloud.left() == []


def test_things_of_a_lost_state_folder_are_listed_and_stay(world, tmp_path):
    """For example a hub that ended its server: nothing here knows the running lease."""
    world.site().provision(spec_of(BARE))
    assert "of no testbed" not in world.site().plan(spec_of(BARE)).detail
    (lease,) = world.cloud.live_leases()
    there = sorted(world.cloud.left())
    world.records = Records("chameleon", tmp_path / "another")
    detail = world.site().plan(spec_of(BARE)).detail
    assert "of no testbed on this machine: " in detail
    assert f"lease {lease.name}" in detail
    made = world.cloud.calls.count("create_lease")
    world.site().provision(spec_of(BARE))
    assert world.cloud.calls.count("create_lease") == made + 1
    assert f"lease {lease.name}" in world.site().status("small").detail
    world.site().release("small")
    assert sorted(world.cloud.left()) == there
