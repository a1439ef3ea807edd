"""A clock that jumps instead of waiting, and a loop on it."""

from __future__ import annotations

from pathlib import Path

from controllers.contract import LoopPolicy
from controllers.decide import Decider, InProcess
from controllers.decider import ChildDecider
from controllers.journal import Journal, JournalWriter, read_journal
from controllers.loop import Loop, Outcome, Plan
from controllers.registry import Controller, code_hash
from controllers.saved import Saved
from testbed.stores.contract import Needs, Store


class VirtualClock:
    """Starts at 0; `stop_at` is when it asks the loop to stop."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        self.now = 0.0
        self.stop_at = stop_at
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000 + self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        end = self.now + max(0.0, seconds)
        if end > self.stop_at > self.now:
            self.now = self.stop_at
            return True
        self.now = end
        return self.now >= self.stop_at


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
) -> tuple[Outcome, Journal]:
    """Run a loop to its end; its outcome and its journal."""
    name, parameters, mark = "child", {}, "0" * 64
    if child is not None:
        assert isinstance(decider, ChildDecider)
        name, parameters, mark = child.name, decider.parameters, code_hash(child)
        needs = decider.needs
    if decider is None:
        assert policy is not None
        decider, needs = InProcess(policy), policy.needs
    assert needs is not None
    if policy is not None:
        name, parameters = policy.name, dict(policy.parameters())
    plan = Plan(name, needs, parameters, 1, interval_s, "node", mark, steps=steps)
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
