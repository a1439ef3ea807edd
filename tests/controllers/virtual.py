"""Loop on a clock that jumps instead of waiting."""

from __future__ import annotations

from pathlib import Path

from controllers.contract import LoopPolicy
from controllers.decide import Decider, InProcessDecider
from controllers.decider import ChildDecider
from controllers.journal import Journal, JournalWriter, read_journal
from controllers.loop import Loop, LoopEnd, LoopPlan
from controllers.registry import Controller, code_hash
from controllers.saved import Saved
from testbed.simulated import SimulatedClock
from testbed.stores.contract import Needs, Store


class Idle:
    """Simulation in which only time passes."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def advance_to(self, t_s: float) -> bool:
        self.now_s = t_s
        return False


class VirtualClock(SimulatedClock):
    """Clock of an empty simulation: it jumps instead of waiting.

    It starts at 0 and asks the loop to stop at `stop_at`. A test can set `now`, for a slow store.
    """

    def __init__(self, stop_at: float = float("inf")) -> None:
        self._idle = Idle()
        super().__init__(self._idle, stop_at_s=stop_at)

    @property
    def now(self) -> float:
        return self._idle.now_s

    @now.setter
    def now(self, t_s: float) -> None:
        self._idle.now_s = t_s


def run_loop(
    folder: Path,
    store: Store,
    policy: LoopPolicy | None = None,
    *,
    decider: Decider | None = None,
    needs: Needs | None = None,
    child: Controller | None = None,
    steps: int | None = 5,
    interval_s: float = 20,
    clock: VirtualClock | None = None,
) -> tuple[LoopEnd, Journal]:
    """Run a loop to its end and return its outcome and its journal."""
    name, parameters, mark = "child", {}, "0" * 64
    if child is not None:
        assert isinstance(decider, ChildDecider)
        name, parameters, mark = child.name, decider.parameters, code_hash(child)
        needs = decider.needs
    if decider is None:
        assert policy is not None
        decider, needs = InProcessDecider(policy), policy.needs
    assert needs is not None
    if policy is not None:
        name, parameters = policy.name, dict(policy.parameters())
    plan = LoopPlan(name, needs, parameters, 1, interval_s, "node", mark, steps=steps)
    path = folder / "journal.jsonl"
    with JournalWriter(path) as journal:
        outcome = Loop(
            plan,
            decider=decider,
            store=store,
            journal=journal,
            saved=Saved(folder / "saved.json"),
            clock=clock or VirtualClock(),
        ).run()
    return outcome, read_journal(path)
