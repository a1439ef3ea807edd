"""Campaigns on testbeds that end: starts of cells, extension requests, and early warnings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from lease_world import CELL_S, EPOCH, PLAN, World, as_planned, leased

from campaigns.engine import lease as leases
from campaigns.engine.lease import AGAIN_S, ROUND_S
from campaigns.engine.plan import Cell
from schemas.errors import HotbedError, UserError
from schemas.run import RunStatus
from testbed.sites.contract import SiteError, State, Status
from testbed.spec.quantities import moment


@pytest.fixture(autouse=True)
def no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the watch: it looks every few real seconds, and virtual time would stand still."""
    monkeypatch.setattr(leases, "WATCH_S", 1e6)


@pytest.mark.parametrize("fitting", [0, 1, 5, 7])
def test_no_cell_is_begun_that_would_not_end_in_time(fitting):
    world = leased((fitting + 0.9) * CELL_S + 100)
    result = world.run(PLAN, world.lease(), as_planned)
    assert (result.ok, result.ran, len(result.missing)) == (False, fitting, 8 - fitting)
    assert result.failed_attempts == 0
    assert result.lease is not None
    assert f"{fitting} of 8 runs done; the lease ends {moment(world.ends())}" in result.sentence
    assert "hotbed up" in result.sentence and "hotbed deploy" in result.sentence


def test_cells_that_take_longer_than_planned_are_expected_to():
    world = leased(5 * CELL_S + 100)
    result = world.run(PLAN, world.lease(), lambda *_: ("done", 1.5 * CELL_S))
    assert result.ran == 3


def test_the_campaign_asks_for_what_is_missing_before_it_begins():
    world = leased(3 * CELL_S + 100)
    before = world.ends()
    result = world.run(PLAN, world.lease(extend=True), as_planned)
    assert (result.ok, result.lease) == (True, None)
    assert world.ends() - before == math.ceil(5 * CELL_S / ROUND_S) * ROUND_S
    (said,) = world.said
    assert said.startswith("lease extended by 10 min 00 s to ")
    assert said.endswith(", 0.5 node-hours more")


def _refusing(world: World, error: HotbedError, until: float = math.inf) -> list[float]:
    """Refuse extensions until a time; return the times of the requests."""
    asked: list[float] = []
    extend = world.site.extend

    def refuse(name: str, seconds: float) -> Status:
        asked.append(world.now)
        if world.now < until:
            raise error
        return extend(name, seconds)

    world.site.extend = refuse  # type: ignore[method-assign]
    return asked


def test_a_refused_extension_is_asked_for_again_when_the_site_says_so():
    world = leased(4.5 * CELL_S + 100)
    error = SiteError("only in its last hours", retry_after_s=2.5 * CELL_S)
    asked = _refusing(world, error, until=EPOCH + 2.5 * CELL_S)
    result = world.run(PLAN, world.lease(extend=True), as_planned)
    assert result.ok
    assert asked == pytest.approx([EPOCH, EPOCH + 3 * CELL_S], abs=1e-3, rel=0)
    assert [text.split(" by ")[0] for text in world.said] == [
        "the lease is not extended",
        "lease extended",
    ]


@pytest.mark.parametrize("policy_s", [0, 600, 5000, 20_000, 50_000])
def test_a_policy_that_allows_less_gives_what_it_allows(policy_s):
    """An extension is granted whole or not at all; the request exceeds the allowed maximum."""
    world = leased(1.5 * 5000 + 100)
    latest, asked, extend = world.ends() + policy_s, [], world.site.extend

    def limited(name: str, seconds: float) -> Status:
        asked.append(seconds)
        if world.ends() + seconds > latest:
            raise UserError("the policy lets it end earlier.")
        return extend(name, seconds)

    world.site.extend = limited  # type: ignore[method-assign]
    result = world.run(PLAN, world.lease(extend=True), lambda *_: ("done", 5000.0))
    used = world.ends() - latest + policy_s
    assert policy_s - ROUND_S <= used <= policy_s or result.ok
    assert len(asked) < 20
    assert sum(text.startswith("the lease is not extended") for text in world.said) <= 1


def test_a_site_that_grants_nothing_is_asked_once():
    world = leased(4.5 * CELL_S + 100)
    world.site.extend = lambda name, seconds: world.site.status(name)  # type: ignore[method-assign]
    result = world.run(PLAN, world.lease(extend=True), as_planned)
    assert (result.ran, len(world.said)) == (4, 1)
    assert "not extended" in world.said[0]


def test_a_lease_that_vanishes_under_a_cell_interrupts_it_and_burns_no_retry():
    world = leased(1000 * CELL_S)

    def vanish(cell: Cell, tries: int) -> tuple[RunStatus, float]:
        if len(world.begun) == 4:
            world.site.release("leased")
            return "failed", CELL_S
        return "done", CELL_S

    result = world.run(PLAN, world.lease(), vanish)
    assert [status for _, status in world.outcomes] == [*["done"] * 3, "interrupted"]
    assert (result.failed_attempts, result.gave_up, result.interrupted) == (0, None, False)
    assert "3 of 8 runs done" in result.sentence
    world.up()
    assert world.run(PLAN, world.lease(), as_planned).ok


def test_a_cell_that_fails_on_a_testbed_that_is_there_has_failed():
    world = leased(1000 * CELL_S)
    bad = PLAN.cells[2].run_id
    result = world.run(
        PLAN,
        world.lease(),
        lambda cell, _: ("failed" if cell.run_id == bad else "done", CELL_S),
    )
    assert (result.failed_attempts, result.lease, len(result.missing)) == (2, None, 1)


def test_a_late_cell_is_ended_before_the_lease_is():
    world = leased(1.5 * CELL_S + 100)
    lease = world.lease()
    assert lease.due() is None
    fired: list[str] = []

    def late(cell: Cell, tries: int) -> tuple[RunStatus, float]:
        world.now = world.ends() - 51
        assert lease.due() is None
        world.now = world.ends() - 50
        why = lease.due()
        assert why is not None
        fired.append(why)
        engine.lease_over(why)
        return "interrupted", 0.0

    engine = world.engine(PLAN, lease, late)
    result = engine.run()
    assert "the cell took longer than expected" in fired[0]
    assert (result.ran, result.lease, result.interrupted) == (0, fired[0], False)
    assert engine._executor.interrupted == 1  # type: ignore[attr-defined]


def test_a_lease_that_goes_under_the_last_cell_s_feet_is_no_matter_if_it_ended():
    world = leased(8 * CELL_S + 101)
    lease = world.lease()

    def script(cell: Cell, tries: int) -> tuple[RunStatus, float]:
        if len(world.begun) == 8:
            engine.lease_over("the lease ends")
        return "done", CELL_S

    engine = world.engine(PLAN, lease, script)
    result = engine.run()
    assert (result.ok, result.lease) == (True, None)


@pytest.mark.parametrize("step_s", [7200.0, -7200.0])
def test_a_step_of_the_clock_moves_the_end_and_no_wait(step_s):
    world = leased(1e6)
    lease = world.lease()
    usable_s = lease.usable_s
    world.step(step_s)
    assert lease.usable_s == pytest.approx(usable_s - step_s)
    before = world.now
    assert lease.over() is None
    assert world.now - before == pytest.approx(AGAIN_S)


def test_a_site_that_answers_late_is_not_asked_twice_when_the_lease_is_about_to_end():
    world = leased(1e6)
    lease = world.lease()
    looks: list[float] = []

    def slow(name: str) -> Status:
        looks.append(world.now)
        world.now += 45
        raise SiteError("timed out", retry_after_s=60.0)

    ends = world.ends()
    world.site.status = slow  # type: ignore[method-assign]
    world.now = ends - 50
    why = lease.due()
    assert why is not None
    assert "the cell took longer than expected" in why
    assert looks == [ends - 50]


@pytest.mark.parametrize(
    "error", [SiteError("the API is down", retry_after_s=60.0), OSError("the API is down")]
)
def test_a_look_that_fails_changes_nothing_and_is_reported_once(error):
    world = leased(10 * CELL_S + 100)
    lease = world.lease()

    def broken(name: str) -> Status:
        raise error

    world.site.status = broken  # type: ignore[method-assign]
    result = world.run(PLAN, lease, lambda *_: ("done", max(CELL_S, 61.0)))
    assert result.ran > 0
    assert ["(the API is down)" in each for each in world.said] == [True]


@pytest.mark.parametrize("state", [State.FAILED, State.PENDING, State.ABSENT])
def test_a_testbed_that_is_not_ready_begins_no_cell(state):
    world = leased(1e6)
    lease = world.lease()
    ends = world.ends()
    world.site.status = lambda name: Status(state, "so", {}, ends)  # type: ignore[method-assign]
    world.now += 61
    why = lease.refuses(1.0, 1.0)
    assert why == f"the testbed is no longer ready: {state} (so)"


def test_the_outlook_says_what_fits_and_what_would():
    world = leased(3.5 * CELL_S + 100)
    outlook = world.lease().outlook([CELL_S] * 8)
    assert (outlook.fits, outlook.fitting, outlook.cells) == (False, 3, 8)
    assert outlook.short_s == pytest.approx(4.5 * CELL_S)
    assert outlook.extended_end_s == world.ends() + math.ceil(4.5 * CELL_S / ROUND_S) * ROUND_S
    assert "3 of 8 cells fit" in outlook.sentence
    assert "--extend-lease" in outlook.sentence
    assert "it will be asked for" in replace(outlook, extend=True).sentence
    enough = world.lease().outlook([CELL_S] * 3)
    assert (enough.fits, enough.short_s, enough.extension_s) == (True, 0, 0)
    assert "to spare" in enough.sentence
    assert enough.as_json()["fits"] is True
