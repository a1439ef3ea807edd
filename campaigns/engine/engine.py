"""Engine of a campaign: it chooses pending cells, their order, retries, and when to give up."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from types import FrameType

from campaigns.engine.attempts import Executor
from campaigns.engine.display import CampaignResult, Progress
from campaigns.engine.estimate import Estimator
from campaigns.engine.job import Outcome
from campaigns.engine.lease import Lease, watching
from campaigns.engine.plan import Cell, Plan
from campaigns.engine.store import RunStore
from schemas.campaign import Campaign

GIVE_UP_AFTER = 3
"""Failed cells in a row after which the testbed, not the cells, may be broken."""

SPOILED_IN_A_ROW = 9
"""Spoiled attempts in a row after which the machine is not expected to become quiet soon."""

ENOUGH = 3
"""Runs of each measurement that come first when time is short. The interval of two runs is too wide
to show anything (t is 12.7; for three runs it is 4.3)."""

OUT_OF_TIME = "spoiled attempts at others took its time"
"""Reason why a cell that was not started has no run."""

DOES_NOTHING = "default"
"""Controller that does nothing: if its cells fail, the testbed is the cause."""


@dataclass
class _Tally:
    ran: int = 0
    spoiled: int = 0
    failed: int = 0
    streak: list[str] = field(default_factory=list)  # controllers of the last cells, all failed
    noise: int = 0  # spoiled attempts in a row
    gave_up: str | None = None
    began: float = 0.0
    again: dict[str, str] = field(default_factory=dict)  # reasons of spoiled cells to redo
    last: str = ""  # run id of the last attempt
    missing: dict[str, str] = field(default_factory=dict)
    forgone: set[str] = field(default_factory=set)  # those of `missing` lost to noise
    budgets: dict[str, Counter[str]] = field(default_factory=dict)  # by run id

    def budget(self, cell: Cell, campaign: Campaign) -> Counter[str]:
        """Return the attempts left for `cell`, by the status of its last attempt."""
        allowed = Counter[str]({"failed": campaign.retries, "spoiled": campaign.spoiled_retries})
        return self.budgets.setdefault(cell.run_id, allowed)


def _what(cell: Cell) -> str:
    """Return a key of the cell's measurement, the same in every block."""
    return json.dumps(cell.parameters.model_dump(mode="json"), sort_keys=True)


def pending(plan: Plan, store: RunStore) -> list[Cell]:
    """Return the plan's cells without a finished run, in the plan's order."""
    return [cell for cell in plan.cells if store.done(cell.run_id) is None]


class Engine:
    """Runner of a plan. It only decides; executor and store touch the disk."""

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        executor: Executor,
        progress: Progress,
        *,
        clock: Callable[[], float] = time.monotonic,
        lease: Lease | None = None,
        grow: Callable[[], Plan] | None = None,
    ) -> None:
        """Set up; `lease` is the testbed's lease, if it ends. `grow` returns the plan with the
        blocks that the results so far ask for; it is called when every cell has ended."""
        self._plan = plan
        self._store = store
        self._executor = executor
        self._progress = progress
        self._clock = clock
        self._lease = lease
        self._grow = grow
        self._leave: str | None = None  # why no further cell begins: the lease
        self.estimator = Estimator()
        self._stop = False
        self._controllers = {cell.parameters.controller for cell in plan.cells}

    def pending(self) -> list[Cell]:
        """Return the cells without a finished run, in the plan's order."""
        return pending(self._plan, self._store)

    def run(self) -> CampaignResult:
        """Make every pending cell; repeat failed or spoiled cells as the campaign file allows."""
        started = self._clock()
        pending = self.pending()
        done_before = len(self._plan.cells) - len(pending)
        tally = _Tally(began=started)
        left = self.estimator.left(pending, self._executor.width)
        self._progress.begin(self._plan, done_before, left)
        with self._signals(), watching(self._lease, self.lease_over, self._executor.kill):
            self._work(pending, tally)
        result = self._result(pending, done_before, tally, self._clock() - started)
        self._progress.end(result)
        return result

    def stop(self) -> None:
        """Stop cleanly: the running cell is ended and marked; a second call kills it."""
        if self._stop:
            by_hand = "" if self._plan.simulated else "; `hotbed control stop` cleans up by hand"
            self._progress.message(f"stopping at once{by_hand}")
            self._executor.kill()
            return
        self._stop = True
        does = "ends" if self._plan.simulated else "puts the testbed back"
        self._progress.message(f"stopping: the running cell {does} (again to kill)")
        self._executor.interrupt()

    def lease_over(self, why: str) -> None:
        """End and mark the running cell because the lease ends; begin no other cell. May be called
        from another thread."""
        self._leave = why
        self._executor.interrupt()

    def _work(self, pending: list[Cell], tally: _Tally) -> None:
        """Make attempts at every cell, as many in parallel as the executor allows; add to `pending`
        the cells by which the plan grows."""
        waiting, running = deque(pending), dict[str, Cell]()
        while True:
            while waiting and len(running) < self._executor.width and not self._ending(tally):
                cell = self._next(waiting, tally)
                if cell is None or self._refused(cell, [*waiting, *running.values()]):
                    break
                running[cell.run_id] = cell
                self._progress.cell_started(cell)
                self._executor.start(cell)
            if not running:
                added = [] if waiting or self._ending(tally) else self._added()
                if not added:
                    return
                pending += added
                waiting.extend(added)
                continue
            cell, outcome = self._executor.finished()
            tally.last = cell.run_id
            del running[cell.run_id]
            if outcome.status == "done":
                self.estimator.observe(cell.parameters.label(), cell.planned_s, outcome.seconds)
            again = [] if outcome.status == "done" else [cell]
            left = self.estimator.left([*again, *waiting, *running.values()], self._executor.width)
            self._progress.cell_ended(cell, outcome, left)
            if self._count(cell, outcome, tally):
                waiting.insert(self._place(cell, outcome, waiting, tally), cell)

    def _added(self) -> list[Cell]:
        """Take over the grown plan; return its new cells without a finished run."""
        if self._grow is None:
            return []
        known = {cell.run_id for cell in self._plan.cells}
        self._plan = self._grow()
        added = [cell for cell in self.pending() if cell.run_id not in known]
        if added:
            done = len(self._plan.cells) - len(self.pending())
            left = self.estimator.left(added, self._executor.width)
            self._progress.begin(self._plan, done, left)
        return added

    def _refused(self, cell: Cell, others: Sequence[Cell]) -> bool:
        """Return True if the lease does not let `cell` begin. The call then ends: choosing a
        shorter cell that still fits would change the random order."""
        if self._lease is not None:
            rest = self.estimator.left([cell, *others], self._executor.width)
            self._leave = self._leave or self._lease.refuses(self.estimator.left([cell]), rest)
        return self._leave is not None

    def _next(self, waiting: deque[Cell], tally: _Tally) -> Cell | None:
        """Return the next cell to make; None if there is none left.

        If `spoiled_within_s` is set, a cell was spoiled and the remaining cells no longer fit, the
        most valuable cells run first. The rest is skipped.
        """
        within = self._plan.campaign.spoiled_within_s
        if within is None or not tally.again:
            return waiting.popleft() if waiting else None
        left = within - (self._clock() - tally.began)
        if waiting and self.estimator.left(waiting, self._executor.width) <= left:
            return waiting.popleft()
        for cell in sorted(waiting, key=lambda cell: self._worth(cell, tally)):
            if self.estimator.left([cell], 1) <= left:
                waiting.remove(cell)
                return cell
        for cell in waiting:
            tally.missing[cell.run_id] = tally.again.get(cell.run_id, OUT_OF_TIME)
            tally.forgone.add(cell.run_id)
        waiting.clear()
        return None

    def _worth(self, cell: Cell, tally: _Tally) -> tuple[bool, int, bool, int, int]:
        """Return a sort key, smallest for the most valuable cell. The order is: cells measured in
        too few blocks, early grids of the file, cells not spoiled just now (noise lasts), cells
        that complete a comparison in their block, cells tried least."""
        campaign = self._plan.campaign
        names = [grid.name for grid in campaign.grids]
        neighbours = (
            other
            for other in self._plan.cells
            if other.block == cell.block and set(other.grids) & set(cell.grids)
        )
        return (
            self._measured(cell) >= ENOUGH,
            min(names.index(name) for name in cell.grids),
            cell.run_id == tally.last,
            -sum(self._done(other) for other in neighbours),
            campaign.spoiled_retries - tally.budget(cell, campaign)["spoiled"],
        )

    def _measured(self, cell: Cell) -> int:
        """Return the number of finished runs that measured the same as `cell`."""
        return sum(_what(other) == _what(cell) and self._done(other) for other in self._plan.cells)

    def _done(self, cell: Cell) -> bool:
        return self._store.done(cell.run_id) is not None

    def _place(self, cell: Cell, outcome: Outcome, waiting: Sequence[Cell], tally: _Tally) -> int:
        """Return the queue position of another attempt. A failed cell is next. Noise lasts for
        minutes, so a spoiled cell comes after its block, near the cells that it is compared with.
        If it is spoiled there too, it goes to the end."""
        if outcome.status != "spoiled":
            return 0
        campaign = self._plan.campaign
        if campaign.spoiled_retries - tally.budget(cell, campaign)["spoiled"] > 1:
            return len(waiting)
        return sum(1 for _ in takewhile(lambda other: other.block == cell.block, waiting))

    def _ending(self, tally: _Tally) -> bool:
        return self._stop or self._leave is not None or tally.gave_up is not None

    def _count(self, cell: Cell, outcome: Outcome, tally: _Tally) -> bool:
        """Count an attempt's outcome; return True if the cell needs another attempt."""
        spoiled = outcome.status == "spoiled"
        tally.noise = tally.noise + 1 if spoiled else 0
        if outcome.status == "done":
            tally.ran += 1
            tally.streak.clear()
            return False
        tally.spoiled += spoiled
        tally.failed += outcome.status == "failed"
        why = outcome.reason or outcome.status
        if self._lease is not None and outcome.status != "spoiled" and not self._stop:
            # A lost testbed does not count against a cell; the executor has checked the lease.
            self._leave = self._leave or self._lease.known_over
            if self._leave is not None:
                tally.missing[cell.run_id] = self._leave
                return False
        budget = tally.budget(cell, self._plan.campaign)
        if tally.noise >= SPOILED_IN_A_ROW:
            tally.gave_up = tally.gave_up or (
                f"{tally.noise} attempts in a row were spoiled, the last one: {why}"
            )
        if outcome.fatal:
            tally.gave_up = tally.gave_up or why
        elif outcome.status != "interrupted" and budget[outcome.status] > 0:
            budget[outcome.status] -= 1
            if not self._ending(tally):
                if spoiled:
                    tally.again[cell.run_id] = why
                return True
            why = "interrupted" if self._stop else self._leave or why
        tally.missing[cell.run_id] = why
        if spoiled and not self._stop:
            tally.forgone.add(cell.run_id)
            return False
        tally.streak.append(cell.parameters.controller)
        if self._broken(tally.streak) and not self._stop:
            tally.gave_up = tally.gave_up or (
                f"{len(tally.streak)} cells in a row failed, the last one: {why}"
            )
        return False

    def _broken(self, streak: list[str]) -> bool:
        """Return True if the failed cells in a row indicate a broken testbed. If their controllers
        have no finished run, the controllers are the cause, and other cells still run."""
        if len(streak) < GIVE_UP_AFTER:
            return False
        failing = set(streak)
        if DOES_NOTHING in failing or failing >= self._controllers:
            return True
        return any(
            self._store.done(cell.run_id) is not None
            for cell in self._plan.cells
            if cell.parameters.controller in failing
        )

    def _result(
        self, pending: list[Cell], done_before: int, tally: _Tally, seconds: float
    ) -> CampaignResult:
        # The store, not the tally, knows the finished cells: an attempt may have been committed
        # although the engine was stopped while the attempt ended.
        reasons = tally.missing
        never = "not started"
        without = [
            cell
            for cell in (pending if tally.ran < len(pending) else ())
            if cell.run_id in reasons or self._store.done(cell.run_id) is None
        ]
        forgone = self._forgone(without, tally)

        def reasons_of(cells: Iterable[Cell]) -> tuple[tuple[str, str], ...]:
            return tuple(
                (f"{cell.parameters.label()} (block {cell.block})", reasons.get(cell.run_id, never))
                for cell in cells
            )

        return CampaignResult(
            campaign=self._plan.campaign.name,
            planned=len(self._plan.cells),
            already_done=done_before,
            ran=tally.ran,
            missing=reasons_of(cell for cell in without if cell.run_id not in forgone),
            forgone=reasons_of(cell for cell in without if cell.run_id in forgone),
            spoiled=tally.spoiled,
            failed_attempts=tally.failed,
            interrupted=self._stop,
            gave_up=tally.gave_up,
            lease=self._leave if without else None,
            seconds=seconds,
        )

    def _forgone(self, without: Sequence[Cell], tally: _Tally) -> set[str]:
        """Return the ids of skippable cells: lost to noise, but measured in another block. Return
        none if the campaign was given up or stopped."""
        if self._ending(tally):
            return set()
        lacking = {cell.run_id for cell in without}
        measured = {_what(cell) for cell in self._plan.cells if cell.run_id not in lacking}
        return {
            cell.run_id
            for cell in without
            if cell.run_id in tally.forgone and _what(cell) in measured
        }

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop cleanly on Ctrl-C and SIGTERM while cells run."""

        def handler(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        try:
            before = {
                number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)
            }
        except ValueError:  # not the main thread: its owner calls stop()
            yield
            return
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)
