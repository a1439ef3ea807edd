"""Campaigns on testbeds that end: starts of cells, extension requests, and early warnings."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from dataclasses import replace

import pytest
from engine_process import QUICK_CELL
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lease_world import CELL_S, EPOCH, PLAN, World, as_planned, leased
from tiny_campaigns import ONE_CELL, plan_of, tiny

from campaigns.engine import lease as leases
from campaigns.engine.display import Progress
from campaigns.engine.lease import AGAIN_S, ROUND_S
from campaigns.engine.plan import Cell
from campaigns.engine.session import Request, dry_run, run
from campaigns.engine.store import RunStore
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
    enough = world.lease().outlook([CELL_S] * 3)
    assert (enough.fits, enough.short_s, enough.extension_s) == (True, 0, 0)
    assert enough.as_json()["fits"] is True


# Several leases: no cell is lost, repeated or started too late.


@settings(max_examples=30)
@given(seed=st.integers(0, 2**20))
@example(seed=8435)  # a cell fails within the seconds in which the site is not asked again
def test_two_leases_lose_nothing_repeat_nothing_and_begin_nothing_too_late(seed):
    """Cells take unplanned times, fail or are spoiled. Leases have any length; a lease may vanish
    or be extended. Every started cell was expected to end in time."""
    draw = random.Random(seed)
    world = World(1.0)
    extend = draw.random() < 0.5
    plan = plan_of(tiny(retries=2, spoiled_retries=2))

    def script(cell: Cell, tries: int) -> tuple[RunStatus, float]:
        wanted = engine.estimator.left([cell])
        assert world.now + wanted + 100 <= world.ends() + 1e-6, "begun too late"
        seconds = CELL_S * draw.uniform(0.3, 2.5)
        if draw.random() < 0.05:
            world.site.release("leased")
            return "failed", seconds
        if world.now + seconds >= world.ends():
            return "failed", seconds  # the nodes vanished
        return draw.choices(["done", "failed", "spoiled"], [8, 1, 1])[0], seconds  # type: ignore[return-value]

    result = None
    for _ in range(200):
        world.site._lease_s = draw.uniform(0.5, 12) * CELL_S + 100
        world.up()
        lease = world.lease(extend=extend)
        before = set(world.done)
        engine = world.engine(plan, lease, script)
        result = engine.run()
        assert before <= world.done
        assert result.already_done == len(before)
        assert result.ran == len(world.done - before)
        if len(world.done) == len(plan.cells):
            break
        world.now += draw.uniform(0, 1e5)  # until somebody comes back
    assert result is not None
    assert world.done == {cell.run_id for cell in plan.cells}
    made = [run_id for run_id, status in world.outcomes if status == "done"]
    assert sorted(made) == sorted(world.done)


@pytest.mark.slow
def test_a_real_cell_is_ended_with_its_lease_and_made_on_the_next(
    campaign_file, tmp_path, monkeypatch
):
    """In its own process the cell hangs, its lease ends, and it restores the testbed. On a new
    lease the same run is made."""
    monkeypatch.setattr(leases, "LOOK_S", 0.01)
    monkeypatch.setattr(leases, "AGAIN_S", 0.01)
    monkeypatch.setattr(leases, "WATCH_S", 0.02)
    file, trace = tmp_path / "lease.json", tmp_path / "trace"
    file.write_text(json.dumps({"ends_at_s": time.time() + 1e6}))
    monkeypatch.setenv("HOTBED_FAKE_LEASE", str(file))
    once = {"step": "workload", "how": "hang", "once": str(tmp_path / "once")}
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps(once))
    path = campaign_file(grids=ONE_CELL)
    request = Request(str(path), artifacts=tmp_path / "artifacts")

    def vanish() -> None:
        deadline = time.monotonic() + 60
        while not (trace.is_file() and "workload\n" in trace.read_text()):
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        replaced = tmp_path / "next.json"
        replaced.write_text(json.dumps({"ends_at_s": time.time() - 1, "state": "failed"}))
        replaced.replace(file)

    thread = threading.Thread(target=vanish)
    thread.start()
    result = run(request, progress=Progress(), command=QUICK_CELL)
    thread.join()
    assert result.lease is not None
    assert result.lease.startswith("the lease ended ")
    (first,) = RunStore(tmp_path / "artifacts" / "tiny").runs()
    assert (first.status, first.reason) == ("interrupted", result.lease)
    assert trace.read_text().splitlines()[-1] == "disturbance stop"
    file.write_text(json.dumps({"ends_at_s": time.time() + 1e6}))
    assert dry_run(request).lease is not None
    assert run(request, progress=Progress(), command=QUICK_CELL).ok
    found = list(RunStore(tmp_path / "artifacts" / "tiny").runs())
    assert [run.status for run in found] == ["interrupted", "done"]
    assert len({run.run_id for run in found}) == 1


def test_a_dry_run_reports_the_lease_and_the_command_line_may_extend_it(
    campaign_file, tmp_path, monkeypatch
):
    file = tmp_path / "lease.json"
    monkeypatch.setenv("HOTBED_FAKE_LEASE", str(file))
    path = campaign_file(lease={"margin_s": 60})
    request = Request(str(path), artifacts=tmp_path / "artifacts")
    file.write_text(json.dumps({"ends_at_s": time.time() + 1e6}))
    plenty = dry_run(request)
    assert plenty.lease is not None
    assert plenty.lease.fits
    assert "to spare" in plenty._repr_html_()
    file.write_text(json.dumps({"ends_at_s": time.time()}))
    short = dry_run(replace(request, extend_lease=True))
    assert short.lease is not None
    assert (short.lease.fits, short.lease.fitting, short.lease.extend) == (False, 0, True)
    assert short.as_json()["lease"]["short_s"] == pytest.approx(short.pending_s, abs=0.2)
    monkeypatch.delenv("HOTBED_FAKE_LEASE")
    assert dry_run(request).as_json()["lease"] is None


@pytest.mark.parametrize("hangs", [False, True])
def test_a_cell_that_does_not_end_with_its_lease_is_killed(hangs, monkeypatch):
    monkeypatch.setattr(leases, "WATCH_S", 0.01)
    monkeypatch.setattr(leases, "GRACE_S", 0.01 if hangs else 600.0)
    world = leased(1000.0)
    lease = world.lease()
    world.now = world.ends() + 1
    report: list[str] = []
    over, killed = threading.Event(), threading.Event()

    def ended(why: str) -> None:
        report.append(why)
        over.set()

    with leases.watching(lease, ended, killed.set):
        assert over.wait(60)
        if hangs:
            assert killed.wait(60)
    assert killed.is_set() is hangs
    assert report == [f"the lease ended {moment(world.ends())}"]
