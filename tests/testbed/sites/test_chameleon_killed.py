"""Process killed at any call to the cloud, before or after the call's effect: nothing is leaked,
leased twice or started twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.sites.contract import SiteError, State
from tests.testbed.sites.chameleon_world import BARE, VIRTUAL, World, spec_of, world
from tests.testbed.sites.fake_cloud import Died, Trip

__all__ = ["world"]

pytestmark = pytest.mark.slow

KINDS = {
    "whole machines": BARE | {"lease": {"name": "mine"}},
    "virtual machines": VIRTUAL,
}


def killing(number: int, when: str) -> Trip:
    """Return a trip that ends the process at a call."""

    def trip(called: int, name: str, at: str) -> None:
        if called == number and at == when:
            raise Died(f"at {name}")

    return trip


def changing_calls(folder: Path, options: dict[str, object], *, down: bool) -> list[int]:
    """Return the numbers of calls that create or remove objects in a run without faults. All other
    calls only read: dying there equals dying at an adjacent call."""
    world = World(folder)
    world.site().provision(spec_of(options))
    upto = len(world.cloud.calls)
    if down:
        world.site().release("small")
    numbered = list(enumerate(world.cloud.calls, start=1))[upto if down else 0 :]
    verbs = ("create", "delete", "attach", "add", "prolong")
    return [number for number, name in numbered if name.startswith(verbs)]


def whole(world: World) -> None:
    """Check that exactly the objects of one testbed exist."""
    assert len(world.cloud.live_leases()) == 1
    names = sorted(server.name for server in world.cloud.all_servers())
    assert len(names) == len(set(names)) == 3
    kinds = [thing.split()[0] for thing in world.cloud.left()]
    assert kinds.count("ip") == kinds.count("keypair") == kinds.count("lease") == 1
    assert kinds.count("group") <= 1


def down(world: World) -> None:
    """Release as a person does: repeat if a lease may still appear."""
    try:
        world.site().release("small")
    except SiteError as error:
        assert "the answer never came" in str(error)
        world.clock.sleep(error.retry_after_s or 0.0)
        world.site().release("small")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_coming_up(world: World, tmp_path: Path, kind: str, when: str) -> None:
    spec = spec_of(KINDS[kind])
    calls = changing_calls(tmp_path / "dry", KINDS[kind], down=False)
    assert len(calls) >= 7
    for number in calls:
        for go_on in (True, False):
            here = World(tmp_path / f"{number}-{go_on}")
            here.cloud.trip = killing(number, when)
            with pytest.raises(Died):
                here.site().provision(spec)
            if go_on:
                here.site().provision(spec)
                whole(here)
                assert here.site().status("small").state is State.READY
            down(here)
            assert here.cloud.left() == []
            assert here.site().names() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_going_down(world: World, tmp_path: Path, kind: str, when: str) -> None:
    spec = spec_of(KINDS[kind])
    for number in changing_calls(tmp_path / "dry", KINDS[kind], down=True):
        here = World(tmp_path / str(number))
        here.site().provision(spec)
        here.cloud.trip = killing(number, when)
        with pytest.raises(Died):
            here.site().release("small")
        here.site().release("small")
        assert here.cloud.left() == []
        assert here.site().names() == []
