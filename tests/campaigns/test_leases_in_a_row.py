"""Campaigns over several leases: no cell is lost, repeated or started too late."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import replace

import pytest
from engine_process import QUICK_CELL
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lease_world import CELL_S, World, leased
from tiny_campaigns import ONE_CELL, plan_of, tiny

from campaigns.engine import lease as leases
from campaigns.engine.display import Progress
from campaigns.engine.plan import Cell
from campaigns.engine.session import Request, dry_run, run
from campaigns.engine.store import RunStore
from schemas.run import RunStatus
from testbed.spec.quantities import moment


@pytest.fixture(autouse=True)
def no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the watch: it looks every few real seconds, and virtual time would stand still."""
    monkeypatch.setattr(leases, "WATCH_S", 1e6)


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
