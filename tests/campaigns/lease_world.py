"""Leases in virtual time: a site with leases that end by a clock that cells advance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_campaigns import OneByOne, plan_of, tiny

from campaigns.engine.display import CampaignResult, Progress
from campaigns.engine.engine import Engine
from campaigns.engine.job import Outcome
from campaigns.engine.lease import Lease, open_lease
from campaigns.engine.plan import Cell, Plan
from campaigns.engine.store import RunStore
from schemas.campaign import LeaseRules
from schemas.run import RunStatus
from testbed.spec import TestbedSpec
from tests.testbed.fake_site import FakeSite

EPOCH = 1_800_000_000.0
SPEC = TestbedSpec.model_validate(
    {
        "name": "leased",
        "store": None,
        "groups": [
            {"name": "admin", "roles": ["admin"]},
            {"name": "client", "count": 2, "roles": ["client"]},
        ],
    }
)
Script = Callable[[Cell, int], tuple[RunStatus, float]]


class World:
    """Virtual clock, a site with leases that end by the clock, and cells that take virtual time."""

    def __init__(self, lease_s: float) -> None:
        self.now, self.stepped = EPOCH, 0.0
        self.site = FakeSite(clock=self.clock, lease_s=lease_s)
        self.done: set[str] = set()
        self.begun: list[tuple[str, float]] = []  # run id, start time
        self.outcomes: list[tuple[str, RunStatus]] = []
        self.said: list[str] = []

    def clock(self) -> float:
        return self.now

    def ticks(self) -> float:
        return self.now - self.stepped

    def step(self, seconds: float) -> None:
        """Shift the wall clock by `seconds` while no time passes."""
        self.now += seconds
        self.stepped += seconds

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def up(self) -> None:
        if "leased" in self.site.names():
            self.site.release("leased")
        self.site.provision(SPEC)

    def ends(self) -> float:
        ends = self.site.status("leased").ends_at_s
        assert ends is not None
        return ends

    def lease(self, **rules: Any) -> Lease:
        lease = open_lease(
            self.site,
            "leased",
            LeaseRules.model_validate({"margin_s": 100, **rules}),
            say=self.said.append,
            clock=self.clock,
            ticks=self.ticks,
            pause=self.pause,
        )
        assert lease is not None
        return lease

    def engine(self, plan: Plan, lease: Lease | None, script: Script) -> Engine:
        store = RunStore(Path("nowhere"))
        store.done = lambda run_id: 1 if run_id in self.done else None  # type: ignore[method-assign]
        executor = Played(self, script, lease)
        engine = Engine(plan, store, executor, Progress(), clock=self.clock, lease=lease)
        executor.engine = engine
        return engine

    def run(self, plan: Plan, lease: Lease | None, script: Script) -> CampaignResult:
        return self.engine(plan, lease, script).run()


class Played(OneByOne):
    """Executor with attempts that take virtual time. It records failures after the end of the
    testbed as `AttemptRecords` does."""

    engine: Engine

    def __init__(self, world: World, script: Script, lease: Lease | None) -> None:
        self.world, self.script, self.lease = world, script, lease
        self.interrupted = 0

    def execute(self, cell: Cell) -> Outcome:
        world = self.world
        tries = sum(run_id == cell.run_id for run_id, _ in world.begun)
        world.begun.append((cell.run_id, world.now))
        status, seconds = self.script(cell, tries)
        world.now += seconds
        if status == "failed" and self.lease is not None and self.lease.over() is not None:
            status = "interrupted"
        if status == "done":
            assert cell.run_id not in world.done, "made twice"
            world.done.add(cell.run_id)
        world.outcomes.append((cell.run_id, status))
        return Outcome(status, f"{status} as asked", seconds, tries + 1)

    def interrupt(self) -> None:
        self.interrupted += 1

    def kill(self) -> None:
        raise AssertionError


PLAN = plan_of(tiny())
"""Eight cells, all planned with the same duration."""
CELL_S = PLAN.cells[0].planned_s


def as_planned(cell: Cell, tries: int) -> tuple[RunStatus, float]:
    return "done", CELL_S


def leased(lease_s: float) -> World:
    world = World(lease_s)
    world.up()
    return world
