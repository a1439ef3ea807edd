"""Whose credentials a testbed was made with, and what others are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import Identity
from testbed.sites.contract import State
from tests.testbed.sites.chameleon_world import BARE, HOUR_S, World, spec_of, world
from tests.testbed.sites.fake_cloud import ME

__all__ = ["world"]

OTHERS = {
    "another project": Identity(ME.user_id, "project-other", "me", "CHI-2"),
    "another user": Identity("user-other", ME.project_id, "other", "CHI-1"),
}
DOING: dict[str, Callable[[World], object]] = {
    "up": lambda world: world.site().provision(spec_of(BARE)),
    "extend": lambda world: world.site().extend("small", HOUR_S),
    "down": lambda world: world.site().release("small"),
}


@pytest.mark.parametrize("doing", DOING)
@pytest.mark.parametrize("other", OTHERS)
def test_with_other_credentials_nothing_is_leased_removed_or_forgotten(
    world: World, other: str, doing: str
) -> None:
    world.site().provision(spec_of(BARE))
    there = world.cloud.left()
    world.cloud.me = OTHERS[other]
    words = r"made by user me in project CHI-1, and these credentials are of user .*: load"
    with pytest.raises(UserError, match=words):
        DOING[doing](world)
    assert world.cloud.left() == there
    assert world.site().names() == ["small"]
    world.cloud.me = ME
    assert world.site().status("small").state is State.READY
    world.site().release("small")
    assert world.cloud.left() == []


def test_with_other_credentials_the_status_is_what_was_known_last(world: World) -> None:
    world.site().provision(spec_of(BARE))
    world.cloud.me = OTHERS["another project"]
    status = world.site().status("small")
    assert status.state is State.READY
    assert "not asked now: testbed 'small' on CHI@UC was made by user me" in status.detail


def test_who_made_it_is_written_before_anything_is_made(world: World) -> None:
    def trip(number: int, name: str, when: str) -> None:
        if name == "create_keypair":
            record = json.loads((world.records.folder("small") / "record.json").read_text())
            assert (record["owner"]["user_id"], record["owner"]["project_id"]) == (
                ME.user_id,
                ME.project_id,
            )

    world.cloud.trip = trip
    assert world.site().provision(spec_of(BARE)).nodes


def test_a_record_that_does_not_say_who_made_it_goes_on(world: World) -> None:
    """As those of earlier versions: whoever comes next need not be its owner."""
    world.site().provision(spec_of(BARE))
    with world.records.open("small") as record:
        del record.data["owner"]
        record.save()
    lost = next(server.name for server in world.cloud.all_servers())
    world.cloud.lose_server(lost)
    world.site().provision(spec_of(BARE))
    assert "owner" not in (world.records.read("small") or {})
    world.site().release("small")
    assert world.cloud.left() == []


def test_a_lease_of_the_name_in_another_project_is_not_ours(world: World) -> None:
    """Operators see everybody's leases."""
    other = replace(ME, project_id="project-other")
    world.cloud.me = other
    world.site().provision(spec_of({**BARE, "lease": {"name": "mine"}}))
    world.cloud.me = ME
    lease = world.cloud.live_leases()[0]
    leases = world.cloud.leases
    world.cloud.leases = lambda: [*leases(), lease]  # type: ignore[method-assign]
    world.records = replace(world.records, root=world.records.top / "mine")
    world.site().provision(spec_of({**BARE, "lease": {"name": "mine"}}))
    assert len(world.cloud.live_leases()) == 2
    world.site().release("small")
    assert [each.id for each in world.cloud.live_leases()] == [lease.id]
