"""Decisions of the engine: order, retries, spoiled runs, giving up, stopping, and attempts in
parallel."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_campaigns import TINY, OneByOne, plan_of, tiny

from campaigns.engine.display import CampaignResult, Lines, Progress
from campaigns.engine.engine import GIVE_UP_AFTER, SPOILED_IN_A_ROW, Engine
from campaigns.engine.estimate import Estimator
from campaigns.engine.job import Outcome
from campaigns.engine.plan import Cell, Plan
from campaigns.engine.store import RunStore
from schemas.run import RunStatus


class Scripted(OneByOne):
    """Executor that follows a script and keeps its results in memory."""

    def __init__(self, status_of: Callable[[Cell, int], RunStatus], **outcome: Any) -> None:
        self.status_of = status_of
        self.outcome = outcome
        self.made: list[tuple[str, RunStatus]] = []
        self.interrupted = self.killed = 0
        self.seconds = 2.0  # per attempt
        self.hook: Callable[[], None] = lambda: None

    def execute(self, cell: Cell) -> Outcome:
        tries = sum(1 for run_id, _ in self.made if run_id == cell.run_id)
        status = self.status_of(cell, tries)
        self.made.append((cell.run_id, status))
        self.hook()
        return Outcome(status, f"{status} as asked", self.seconds, tries + 1, **self.outcome)

    def interrupt(self) -> None:
        self.interrupted += 1

    def kill(self) -> None:
        self.killed += 1

    def done(self) -> list[str]:
        return [run_id for run_id, status in self.made if status == "done"]


class ScriptedStore(RunStore):
    """Store of a scripted executor: it leaves no folders, so its reported states count."""

    def __init__(self, folder: Path, made: list[tuple[str, RunStatus]]) -> None:
        super().__init__(folder)
        self.made = made

    def done(self, run_id: str) -> int | None:
        return 1 if (run_id, "done") in self.made else None


def engine(plan: Plan, executor: Scripted, folder: Path) -> Engine:
    return Engine(plan, ScriptedStore(folder, executor.made), executor, Progress())


def test_a_spoiled_cell_comes_after_its_block_and_then_after_all(tmp_path):
    """Causes of spoiled runs last for minutes. With stolen time, three attempts in a row were
    spoiled and the next cells were not."""
    plan = plan_of(tiny(spoiled_retries=2))
    ids = [cell.run_id for cell in plan.cells]
    assert [cell.block for cell in plan.cells] == [0] * 4 + [1] * 4
    noisy = ids[1]
    executor = Scripted(
        lambda cell, tries: "spoiled" if tries < 2 and cell.run_id == noisy else "done"
    )
    assert engine(plan, executor, tmp_path).run().ok
    made = [run_id for run_id, _ in executor.made]
    assert made == [*ids[:4], noisy, *ids[4:], noisy]


def test_a_cell_spoiled_to_the_end_is_done_without_if_another_block_has_it(tmp_path):
    plan = plan_of(tiny(spoiled_retries=1))
    noisy = plan.cells[1]
    executor = Scripted(lambda cell, _: "spoiled" if cell.run_id == noisy.run_id else "done")
    result = engine(plan, executor, tmp_path).run()
    assert (result.ok, result.ran, len(result.forgone), result.missing) == (True, 7, 1, ())
    assert "7 of 8 runs done, 2 spoiled" in result.sentence
    assert "spoiled as asked" in result.sentence
    assert "fewer repetitions" in result.sentence


def _timed(plan: Plan, executor: Scripted, folder: Path) -> Engine:
    """Return an engine with attempts that take as long as planned."""
    now = [0.0]
    store = ScriptedStore(folder, executor.made)
    made = Engine(plan, store, executor, Progress(), clock=lambda: now[0])
    executor.seconds = planned = plan.cells[0].planned_s

    def tick() -> None:
        now[0] += planned

    executor.hook = tick
    return made


@pytest.mark.parametrize(("cells", "attempts"), [(3, 1), (4, 2), (5, 3), (9, 3)])
def test_spoiled_cells_are_made_again_while_there_is_time(tmp_path, cells, attempts):
    """One cell per block; the first block's is always spoiled."""
    grid = {**TINY["grids"][0], "vary": {"op": ["seq"]}, "repetitions": 3}
    within = cells * plan_of(tiny(grids=[grid])).cells[0].planned_s + 1e-6
    plan = plan_of(tiny(grids=[grid], spoiled_retries=2, spoiled_within_s=within))
    bad = next(cell for cell in plan.cells if cell.block == 0)
    executor = Scripted(lambda cell, _: "spoiled" if cell.run_id == bad.run_id else "done")
    result = _timed(plan, executor, tmp_path).run()
    assert sum(run_id == bad.run_id for run_id, _ in executor.made) == attempts
    assert (result.ok, result.ran, len(result.forgone), result.missing) == (True, 2, 1, ())
    assert "spoiled as asked" in result.sentence
    if attempts == 1:
        assert [run_id for run_id, _ in executor.made] == [cell.run_id for cell in plan.cells]


def _two_comparisons(cells: int) -> Plan:
    """Return a plan of two blocks, two comparisons, two controllers, and time for `cells` cells."""
    first = {
        "name": "first",
        "figures": ["x"],
        "vary": {"controller": ["default", "dlr"]},
        "fixed": {"op": "seq"},
        "repetitions": 2,
    }
    grids = [first, {**first, "name": "second", "fixed": {"op": "rand"}}]
    plan = plan_of(tiny(grids=grids))
    within = cells * plan.cells[0].planned_s + 1e-6
    return plan_of(tiny(grids=grids, spoiled_retries=9, spoiled_within_s=within))


def test_short_time_goes_to_the_first_comparison_of_the_file(tmp_path):
    plan = _two_comparisons(9)
    executor = Scripted(lambda cell, tries: "spoiled" if tries == 0 else "done")
    result = _timed(plan, executor, tmp_path).run()
    done = [cell for cell in plan.cells if cell.run_id in executor.done()]
    assert len(executor.made) == 9, "eight cells, of which time lets one be made again"
    assert {cell.grids for cell in done} == {("first",)}
    assert not result.ok, "nothing measured the second comparison"


@given(noise=st.lists(st.booleans(), min_size=40, max_size=40), cells=st.integers(2, 20))
@settings(max_examples=60, deadline=None)
def test_a_disturbed_campaign_ends_in_time(noise, cells):
    plan = _two_comparisons(cells)
    sequence = iter(noise)
    executor = Scripted(lambda *_: "spoiled" if next(sequence) else "done")
    with TemporaryDirectory() as folder:
        result = _timed(plan, executor, Path(folder)).run()
    disturbed = [*(status for _, status in executor.made), "spoiled"].index("spoiled") + 1
    assert len(executor.made) <= max(cells, disturbed), "time counts from the first disturbance on"
    kept = {run_id for run_id, _ in executor.made if run_id in executor.done()}
    report = len(result.missing) + len(result.forgone)
    assert result.ran == len(kept) == len(plan.cells) - report


def test_a_machine_that_is_never_quiet_ends_the_campaign(tmp_path):
    executor = Scripted(lambda cell, tries: "spoiled")
    result = engine(plan_of(tiny(spoiled_retries=10)), executor, tmp_path).run()
    assert len(executor.made) == SPOILED_IN_A_ROW
    assert (result.ok, len(result.missing), result.forgone) == (False, 8, ())
    assert "in a row were spoiled" in (result.gave_up or "")


def test_a_spoiled_cell_has_its_own_budget_beside_a_failed_one(tmp_path):
    plan = plan_of(tiny(retries=1, spoiled_retries=1))
    script: list[RunStatus] = ["spoiled", "failed", "done"]
    executor = Scripted(lambda cell, tries: script[tries])
    assert engine(plan, executor, tmp_path).run().ok


def test_a_broken_testbed_ends_the_campaign_early(tmp_path):
    plan = plan_of(tiny(retries=0))
    executor = Scripted(lambda cell, tries: "failed")
    result = engine(plan, executor, tmp_path).run()
    assert len(executor.made) == GIVE_UP_AFTER
    assert result.gave_up is not None
    assert len(result.missing) == 8
    assert not result.ok


def _three(names: list[str]) -> Plan:
    grid = {"name": "g", "figures": ["x"], "vary": {"op": ["seq", "rand"], "controller": names}}
    return plan_of(tiny(retries=0, grids=[{**grid, "repetitions": 3}]))


def test_nothing_planned_is_a_failure(tmp_path):
    plan = plan_of(tiny(), only=[])
    assert plan.cells == ()
    result = engine(plan, Scripted(lambda cell, tries: "done"), tmp_path).run()
    assert not result.ok
    assert "nothing ran" in result.sentence


def test_stopping_interrupts_the_cell_and_starts_no_other(tmp_path):
    plan = plan_of(tiny())
    executor = Scripted(lambda cell, tries: "interrupted" if len(executor.made) == 2 else "done")
    made = engine(plan, executor, tmp_path)
    executor.hook = lambda: made.stop() if len(executor.made) == 3 else None
    result = made.run()
    assert [status for _, status in executor.made] == ["done", "done", "interrupted"]
    assert (executor.interrupted, executor.killed) == (1, 0)
    assert result.interrupted
    assert not result.ok
    assert len(result.missing) == 6
    made.stop()
    assert executor.killed == 1


# Several attempts in parallel.


class Beside:
    """Executor that runs several cells in memory; they end in a scripted random order."""

    def __init__(
        self, width: int, status_of: Callable[[Cell, int], RunStatus], seed: int = 0
    ) -> None:
        self.width = width
        self.status_of = status_of
        self.draw = random.Random(seed)
        self.running: list[Cell] = []
        self.most = 0
        self.made: list[tuple[str, RunStatus]] = []
        self.fatal = False

    def start(self, cell: Cell) -> None:
        assert cell not in self.running
        self.running.append(cell)
        self.most = max(self.most, len(self.running))

    def finished(self) -> tuple[Cell, Outcome]:
        cell = self.running.pop(self.draw.randrange(len(self.running)))
        tries = sum(run_id == cell.run_id for run_id, _ in self.made)
        status = self.status_of(cell, tries)
        self.made.append((cell.run_id, status))
        return cell, Outcome(status, f"{status} as asked", 2.0, tries + 1, self.fatal)

    def interrupt(self) -> None:
        raise AssertionError

    kill = interrupt


def go(executor: Beside, folder: Path, **changes: int) -> CampaignResult:
    store = ScriptedStore(folder, executor.made)
    return Engine(plan_of(tiny(**changes)), store, executor, Progress()).run()


@settings(deadline=None, max_examples=60)
@given(
    width=st.integers(1, 10),
    seed=st.integers(0, 1000),
    bad=st.sets(st.integers(0, 7), max_size=2),
    retries=st.integers(0, 2),
)
def test_every_cell_runs_as_often_as_it_should(width, seed, bad, retries):
    cells = plan_of(tiny()).cells
    failing = {cells[index].run_id for index in bad}
    executor = Beside(width, lambda c, _: "failed" if c.run_id in failing else "done", seed)
    with TemporaryDirectory() as folder:
        result = go(executor, Path(folder), retries=retries)
    assert executor.most == min(width, 8)
    for cell in cells:
        times = sum(run_id == cell.run_id for run_id, _ in executor.made)
        assert times == (retries + 1 if cell.run_id in failing else 1)
    assert (result.ran, len(result.missing)) == (8 - len(failing), len(failing))
    assert result.failed_attempts == len(failing) * (retries + 1)


@pytest.mark.parametrize("bad", [{1}, {1, 2, 3, 4}])
def test_the_reason_of_a_failure_is_shown_once(tmp_path, capsys, bad):
    plan = plan_of(tiny(retries=1))
    failing = {plan.cells[place].run_id for place in bad}
    executor = Scripted(lambda cell, _: "failed" if cell.run_id in failing else "done")
    store = ScriptedStore(tmp_path, executor.made)
    result = Engine(plan, store, executor, Lines()).run()
    assert (result.ok, result.gave_up is None) == (False, len(bad) == 1)
    assert capsys.readouterr().err.count("failed as asked") == 1
    assert result.sentence.count("failed as asked") == 1


def test_nothing_starts_when_no_cell_can_fare_better(tmp_path):
    executor = Beside(3, lambda cell, tries: "failed")
    executor.fatal = True
    result = go(executor, tmp_path, retries=5)
    assert len(executor.made) == 3
    assert result.gave_up == "failed as asked"


@pytest.mark.parametrize("width", [1, 2, 8])
def test_time_left_is_shared_and_never_less_than_the_longest(width):
    estimator = Estimator()
    cells = plan_of(tiny()).cells
    each = [cell.planned_s for cell in cells]
    expected = max(sum(each) / width, *each)
    assert estimator.left(cells, width) == pytest.approx(expected)
    first, other = cells[0], next(cell for cell in cells if cell.parameters != cells[0].parameters)
    for label, factor in ((first.parameters.label(), 4.0), ("x", 2.0)):
        estimator.observe(label, 1.0, factor)
    assert estimator.left([first]) == pytest.approx(4 * first.planned_s)
    assert estimator.left([other]) == pytest.approx(3 * other.planned_s)


def test_controllers_that_worked_and_fail_in_a_row_mean_a_broken_testbed(tmp_path):
    plan = _three(["dlr", "dlr-pg"])
    executor = Scripted(lambda cell, tries: "done" if len(executor.made) < 4 else "failed")
    result = engine(plan, executor, tmp_path).run()
    assert len(executor.made) == 4 + GIVE_UP_AFTER
    assert result.gave_up is not None
