"""Campaign leases on the site `chameleon`, on an in-memory cloud: policy, end, next lease."""

from __future__ import annotations

from typing import Any

from campaigns.engine.lease import ROUND_S, Lease, SiteTenure, open_lease
from schemas.campaign import LeaseRules
from testbed.sites.chameleon.cloud import Booking
from tests.testbed.sites.chameleon_world import BARE, World, spec_of, world

__all__ = ["world"]

HOUR_S = 3600.0
CELL_S = 600.0


def leased(world: World, said: list[str], **lease: Any) -> Lease:
    site = world.site()
    site.provision(spec_of(BARE | {"lease": lease}))
    found = open_lease(
        SiteTenure(site, "small"),
        LeaseRules(extend=True),
        say=said.append,
        clock=world.clock.now,
        ticks=world.clock.monotonic,
        pause=world.clock.sleep,
    )
    assert found is not None
    return found


def hours_left(world: World, lease: Lease) -> float:
    return (lease.ends_at_s - world.clock.now()) / HOUR_S


def test_what_is_missing_is_granted(world: World) -> None:
    said: list[str] = []
    lease = leased(world, said, hours=24)
    assert 23 < hours_left(world, lease) <= 24
    assert lease.refuses(CELL_S, 20 * HOUR_S) is None
    assert said == []
    assert lease.refuses(CELL_S, 40 * HOUR_S) is None
    assert 40 < hours_left(world, lease) < 40.5
    (told,) = said
    assert told.startswith("lease extended by 16 h ")
    assert " node-hours more" in told


def test_a_long_lease_is_asked_for_more_when_the_site_allows_it(world: World) -> None:
    said: list[str] = []
    lease = leased(world, said, hours=100)
    ends = lease.ends_at_s
    assert lease.refuses(CELL_S, 110 * HOUR_S) is None
    assert len(said) == 1
    assert "can be prolonged within 48 h of its end" in said[0]
    calls = len(world.cloud.calls)
    for _ in range(40):  # an hour each, with no cloud request except a look
        world.clock.sleep(HOUR_S)
        assert lease.refuses(CELL_S, 80 * HOUR_S) is None
    assert lease.ends_at_s == ends
    assert "prolong_lease" not in world.cloud.calls[calls:]
    world.clock.sleep(13 * HOUR_S)
    assert lease.refuses(CELL_S, 60 * HOUR_S) is None
    assert lease.ends_at_s > ends
    assert said[1].startswith("lease extended by ")


def test_the_policy_s_seven_days_are_used_and_not_exceeded(world: World) -> None:
    said: list[str] = []
    lease = leased(world, said, hours=2)
    world.clock.sleep(1.5 * HOUR_S)
    while lease.refuses(CELL_S, 1000 * HOUR_S) is None and hours_left(world, lease) < 100:
        world.clock.sleep(CELL_S)
    assert 60 < hours_left(world, lease) <= 7 * 24
    assert sum("not extended" in text for text in said) == 1


def test_what_the_spec_allows_is_got_to_the_last_step(world: World) -> None:
    said: list[str] = []
    lease = leased(world, said, hours=2, prolong={"upto_hours": 5})
    begun, start = 0, world.clock.now()
    while lease.refuses(CELL_S, 1000 * HOUR_S) is None:
        begun += 1
        world.clock.sleep(CELL_S)
        assert world.clock.now() <= lease.ends_at_s, "a cell outlived its lease"
    assert 5 * HOUR_S - 2 * ROUND_S < lease.ends_at_s - start <= 5 * HOUR_S + 60
    assert begun >= 25


def test_what_is_free_before_somebody_else_s_reservation_is_got(world: World) -> None:
    said: list[str] = []
    lease = leased(world, said, hours=2)
    behind = lease.ends_at_s + 5 * HOUR_S
    machines = world.cloud.machines
    world.cloud.others = [Booking(host.id, behind, behind + HOUR_S) for host in machines]
    for _ in range(12):
        assert lease.refuses(CELL_S, 20 * HOUR_S) is None
    assert behind - HOUR_S < lease.ends_at_s <= behind
    assert sum("not extended" in text for text in said) == 1


def test_a_lease_ends_and_the_next_one_is_another(world: World) -> None:
    said: list[str] = []
    lease = leased(world, said, hours=2)
    world.clock.sleep(2.1 * HOUR_S)
    why = lease.refuses(CELL_S, CELL_S)
    assert why is not None
    assert why.startswith("the lease ended ")
    assert lease.over() == why
    after = leased(world, said, hours=2)
    assert hours_left(world, after) > 1.5
    assert after.refuses(CELL_S, CELL_S) is None
    assert after.over() is None


def test_a_lease_that_somebody_deletes_is_over(world: World) -> None:
    lease = leased(world, [], hours=24)
    (found,) = world.cloud.live_leases()
    world.cloud.end_lease(found.id)
    world.clock.sleep(61)
    why = lease.over()
    assert why is not None
    assert "lease" in why


def test_a_campaign_begun_after_somebody_deleted_the_lease_knows_it(world: World) -> None:
    site = world.site()
    site.provision(spec_of(BARE))
    (found,) = world.cloud.live_leases()
    world.cloud.delete_lease(found.id)
    clock = world.clock
    tenure = SiteTenure(site, "small")
    lease = open_lease(tenure, LeaseRules(), clock=clock.now, ticks=clock.monotonic)
    assert lease is not None
    why = lease.refuses(CELL_S, CELL_S)
    assert why is not None
    assert why.startswith("the lease ended ")
