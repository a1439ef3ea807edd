"""The engine: which cells are still to be made, in which order, how often, and when to give up."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from campaigns.estimate import Estimator
from campaigns.executors import Executor, Outcome
from campaigns.plan import Cell, Plan
from campaigns.progress import Progress
from campaigns.run_store import RunStore

GIVE_UP_AFTER = 3
"""Cells in a row that came to nothing: the testbed may be broken, not the cells."""

DOES_NOTHING = "default"
"""The controller whose cells fail with the testbed alone."""


@dataclass(frozen=True)
class CampaignResult:
    """What a call of the engine came to."""

    campaign: str
    planned: int
    already_done: int
    ran: int
    missing: tuple[tuple[str, str], ...] = ()  # (cell in words, why there is no run of it)
    spoiled: int = 0
    failed_attempts: int = 0
    interrupted: bool = False
    gave_up: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every planned cell has a finished run, and there is at least one."""
        return self.planned > 0 and not self.missing and not self.interrupted

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if self.planned == 0:
            return f"{self.campaign}: no cell was planned, so nothing ran."
        finished = self.planned - len(self.missing)
        text = f"{self.campaign}: {finished} of {self.planned} runs done"
        if self.already_done:
            text += f" ({self.already_done} of them before)"
        if self.spoiled:
            text += f", {self.spoiled} spoiled and redone or given up"
        if self.interrupted:
            return f"{text}; interrupted: the same command goes on from here."
        if self.gave_up:
            return f"{text}; gave up: {self.gave_up}"
        if self.missing:
            cell, why = self.missing[0]
            more = f" ({len(self.missing) - 1} more)" if len(self.missing) > 1 else ""
            return f"{text}; missing: {cell}: {why}{more}"
        return f"{text}."

    def _repr_html_(self) -> str:
        from campaigns.display import result_html

        return result_html(self)


@dataclass
class _Tally:
    ran: int = 0
    spoiled: int = 0
    failed: int = 0
    streak: list[str] = field(default_factory=list)  # controllers of the last cells, all failed
    gave_up: str | None = None
    missing: dict[str, str] = field(default_factory=dict)


class Engine:
    """Runs a plan with an executor. It decides; executor and store do what touches the disk."""

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        executor: Executor,
        progress: Progress,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._store = store
        self._executor = executor
        self._progress = progress
        self._clock = clock
        self.estimator = Estimator(
            plan.campaign.time_scale, simulated=plan.campaign.ground == "sim"
        )
        self._stop = False
        self._controllers = {cell.parameters.controller for cell in plan.cells}

    def pending(self) -> list[Cell]:
        """Cells without a finished run, in the plan's order."""
        return [cell for cell in self._plan.cells if self._store.attempts(cell.run_id).done is None]

    def run(self) -> CampaignResult:
        """Make every pending cell; a failed or spoiled one again as the campaign file says."""
        started = self._clock()
        pending = self.pending()
        done_before = len(self._plan.cells) - len(pending)
        tally = _Tally()
        self._progress.begin(self._plan, done_before, self.estimator.left(pending))
        with self._signals():
            for index, cell in enumerate(pending):
                if self._stop or tally.gave_up:
                    break
                why = self._make(cell, pending[index:], tally)
                if why is None:
                    tally.ran += 1
                    tally.streak.clear()
                    continue
                tally.missing[cell.run_id] = why
                tally.streak.append(cell.parameters.controller)
                if self._broken(tally.streak) and not self._stop:
                    tally.gave_up = tally.gave_up or (
                        f"{len(tally.streak)} cells in a row came to nothing, "
                        f"the last one because {why}"
                    )
        result = self._result(pending, done_before, tally, self._clock() - started)
        self._progress.end(result)
        return result

    def stop(self) -> None:
        """Stop cleanly: the running attempt is ended and marked; a second call kills it."""
        if self._stop:
            self._progress.message("stopping at once; `hotbed control stop` cleans up by hand")
            self._executor.kill()
            return
        self._stop = True
        self._progress.message("stopping: the running cell puts the testbed back (again to kill)")
        self._executor.interrupt()

    def _make(self, cell: Cell, rest: list[Cell], tally: _Tally) -> str | None:
        """Attempts at one cell until one is done; otherwise why there is none."""
        campaign = self._plan.campaign
        budget = Counter({"failed": campaign.retries, "spoiled": campaign.spoiled_retries})
        while not self._stop:
            self._progress.cell_started(cell, self.estimator.planned(cell))
            outcome = self._executor.execute(cell)
            if outcome.status == "done":
                self.estimator.observe(cell, outcome.seconds)
            self._progress.cell_ended(cell, outcome, self._left_after(outcome, rest))
            if outcome.status == "done":
                return None
            tally.spoiled += outcome.status == "spoiled"
            tally.failed += outcome.status == "failed"
            reason = outcome.reason or outcome.status
            if outcome.fatal:
                tally.gave_up = reason
                return reason
            if outcome.status == "interrupted" or budget[outcome.status] == 0:
                return reason
            budget[outcome.status] -= 1
        return "interrupted"

    def _broken(self, streak: list[str]) -> bool:
        """Whether failed cells in a row speak against the testbed. Those of a controller that
        has no finished run speak against the controller, and do not stop the others."""
        if len(streak) < GIVE_UP_AFTER:
            return False
        failing = set(streak)
        if DOES_NOTHING in failing or failing >= self._controllers:
            return True
        return any(
            self._store.attempts(cell.run_id).done is not None
            for cell in self._plan.cells
            if cell.parameters.controller in failing
        )

    def _left_after(self, outcome: Outcome, rest: list[Cell]) -> float:
        return self.estimator.left(rest[1:] if outcome.status == "done" else rest)

    def _result(
        self, pending: list[Cell], done_before: int, tally: _Tally, seconds: float
    ) -> CampaignResult:
        # The store, not the tally, says what is done: an attempt may have been committed
        # although the engine was told to stop while it ended.
        reasons = tally.missing
        never = "not started"
        missing = tuple(
            (cell.parameters.label() + f" (block {cell.block})", reasons.get(cell.run_id, never))
            for cell in (pending if tally.ran < len(pending) else ())
            if cell.run_id in reasons or self._store.attempts(cell.run_id).done is None
        )
        return CampaignResult(
            campaign=self._plan.campaign.name,
            planned=len(self._plan.cells),
            already_done=done_before,
            ran=tally.ran,
            missing=missing,
            spoiled=tally.spoiled,
            failed_attempts=tally.failed,
            interrupted=self._stop,
            gave_up=tally.gave_up,
            seconds=seconds,
        )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop cleanly while cells run."""

        def handler(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        try:
            before = {
                number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)
            }
        except ValueError:  # not the main thread: whoever owns it calls stop()
            yield
            return
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)
