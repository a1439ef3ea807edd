"""Campaign leases on the site `chameleon`, on an in-memory cloud: policy, end, next lease."""

from __future__ import annotations

from typing import Any

from campaigns.engine.lease import Lease, open_lease
from schemas.campaign import LeaseRules
from tests.testbed.sites.chameleon_world import BARE, World, spec_of, world

__all__ = ["world"]

HOUR_S = 3600.0
CELL_S = 600.0


def leased(world: World, said: list[str], **lease: Any) -> Lease:
    site = world.site()
    site.provision(spec_of(BARE | {"lease": lease}))
    found = open_lease(
        site,
        "small",
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


def test_what_is_missing_is_granted(world):
    said: list[str] = []
    lease = leased(world, said, hours=24)
    assert 23 < hours_left(world, lease) <= 24
    assert lease.refuses(CELL_S, 20 * HOUR_S) is None
    assert said == []
    assert lease.refuses(CELL_S, 40 * HOUR_S) is None
    assert 40 < hours_left(world, lease) < 40.5
    (report,) = said
    assert report.startswith("lease extended by 16 h ")
    assert " node-hours more" in report


def test_the_policy_s_seven_days_are_used_and_not_exceeded(world):
    said: list[str] = []
    lease = leased(world, said, hours=2)
    world.clock.sleep(1.5 * HOUR_S)
    while lease.refuses(CELL_S, 1000 * HOUR_S) is None and hours_left(world, lease) < 100:
        world.clock.sleep(CELL_S)
    assert 60 < hours_left(world, lease) <= 7 * 24
    assert sum("not extended" in text for text in said) == 1


def test_a_campaign_begun_after_somebody_deleted_the_lease_knows_it(world):
    site = world.site()
    site.provision(spec_of(BARE))
    (found,) = world.cloud.live_leases()
    world.cloud.delete_lease(found.id)
    clock = world.clock
    lease = open_lease(site, "small", LeaseRules(), clock=clock.now, ticks=clock.monotonic)
    assert lease is not None
    why = lease.refuses(CELL_S, CELL_S)
    assert why is not None
    assert why.startswith("the lease ended ")
