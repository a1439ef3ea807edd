"""Decisions of the engine: order, retries, spoiled runs, giving up, stopping."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_campaigns import TINY, OneByOne, plan_of, tiny

from campaigns.engine.attempts import Outcome
from campaigns.engine.display import Lines, Silent
from campaigns.engine.engine import GIVE_UP_AFTER, SPOILED_IN_A_ROW, Engine
from campaigns.engine.plan import Cell, Plan
from campaigns.engine.store import RunStore
from schemas.run import RunStatus


class Scripted(OneByOne):
    """Executor that follows a script and keeps its results in memory."""

    def __init__(self, tell: Callable[[Cell, int], RunStatus], **outcome: Any) -> None:
        self.tell = tell
        self.outcome = outcome
        self.made: list[tuple[str, RunStatus]] = []
        self.interrupted = self.killed = 0
        self.seconds = 2.0  # per attempt
        self.hook: Callable[[], None] = lambda: None

    def execute(self, cell: Cell) -> Outcome:
        tries = sum(1 for run_id, _ in self.made if run_id == cell.run_id)
        status = self.tell(cell, tries)
        self.made.append((cell.run_id, status))
        self.hook()
        return Outcome(status, f"{status} as told", self.seconds, tries + 1, **self.outcome)

    def interrupt(self) -> None:
        self.interrupted += 1

    def kill(self) -> None:
        self.killed += 1

    def done(self) -> list[str]:
        return [run_id for run_id, status in self.made if status == "done"]


def engine(plan: Plan, executor: Scripted, folder: Path) -> Engine:
    store = RunStore(folder)
    made = Engine(plan, store, executor, Silent())
    # The scripted executor leaves no folders, so its reported states count.
    real = store.attempts
    store.attempts = lambda run_id: (  # type: ignore[method-assign]
        type(real(run_id))({1: "done"}) if run_id in executor.done() else real(run_id)
    )
    return made


def test_all_cells_run_once_in_the_plan_s_order(tmp_path: Path) -> None:
    plan = plan_of(tiny())
    executor = Scripted(lambda cell, tries: "done")
    result = engine(plan, executor, tmp_path).run()
    assert executor.done() == [cell.run_id for cell in plan.cells]
    assert (result.ok, result.ran, result.missing) == (True, 8, ())
    assert result.sentence == "tiny: 8 of 8 runs done."


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_failed_cell_is_tried_again_as_the_file_says(tmp_path: Path, retries: int) -> None:
    plan = plan_of(tiny(retries=retries))
    bad = plan.cells[2].run_id
    executor = Scripted(lambda cell, tries: "failed" if cell.run_id == bad else "done")
    result = engine(plan, executor, tmp_path).run()
    assert sum(1 for run_id, _ in executor.made if run_id == bad) == retries + 1
    assert not result.ok
    assert len(result.missing) == 1
    assert "failed as told" in result.sentence
    assert len(executor.done()) == 7


def test_spoiled_runs_are_redone_and_counted(tmp_path: Path) -> None:
    plan = plan_of(tiny(spoiled_retries=2))
    noisy = {cell.run_id for cell in plan.cells[::2]}
    executor = Scripted(
        lambda cell, tries: "spoiled" if tries < 2 and cell.run_id in noisy else "done"
    )
    result = engine(plan, executor, tmp_path).run()
    assert (result.ok, result.spoiled, result.forgone) == (True, 8, ())
    assert "8 spoiled" in result.sentence


def test_a_spoiled_cell_comes_after_its_block_and_then_after_all(tmp_path: Path) -> None:
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


def test_a_cell_spoiled_to_the_end_is_done_without_if_another_block_has_it(tmp_path: Path) -> None:
    plan = plan_of(tiny(spoiled_retries=1))
    noisy = plan.cells[1]
    executor = Scripted(lambda cell, _: "spoiled" if cell.run_id == noisy.run_id else "done")
    result = engine(plan, executor, tmp_path).run()
    assert (result.ok, result.ran, len(result.forgone), result.missing) == (True, 7, 1, ())
    assert "7 of 8 runs done, 2 spoiled" in result.sentence
    assert "spoiled as told" in result.sentence
    assert "fewer repetitions" in result.sentence


def test_a_cell_spoiled_in_every_block_is_missing(tmp_path: Path) -> None:
    plan = plan_of(tiny(spoiled_retries=0))
    noisy = plan.cells[1].parameters
    executor = Scripted(lambda cell, _: "spoiled" if cell.parameters == noisy else "done")
    result = engine(plan, executor, tmp_path).run()
    assert (result.ok, len(result.missing), result.forgone) == (False, 2, ())


def _timed(plan: Plan, executor: Scripted, folder: Path) -> Engine:
    """Return an engine with attempts that take as long as planned."""
    now = [0.0]
    store = RunStore(folder)
    made = Engine(plan, store, executor, Silent(), clock=lambda: now[0])
    real = store.attempts
    store.attempts = lambda run_id: (  # type: ignore[method-assign]
        type(real(run_id))({1: "done"}) if run_id in executor.done() else real(run_id)
    )
    executor.seconds = planned = plan.cells[0].planned_s

    def tick() -> None:
        now[0] += planned

    executor.hook = tick
    return made


def _same_in_blocks(blocks: int, noisy: int, cells: float) -> tuple[Plan, Scripted, Cell]:
    """Return one cell per block, block `noisy` always spoiled, and time for `cells` cells."""
    grid = {**TINY["grids"][0], "vary": {"op": ["seq"]}, "repetitions": blocks}
    plan = plan_of(tiny(grids=[grid]))
    within = cells * plan.cells[0].planned_s + 1e-6
    plan = plan_of(tiny(grids=[grid], spoiled_retries=2, spoiled_within_s=within))
    bad = next(cell for cell in plan.cells if cell.block == noisy)
    executor = Scripted(lambda cell, _: "spoiled" if cell.run_id == bad.run_id else "done")
    return plan, executor, bad


@pytest.mark.parametrize(("cells", "attempts"), [(3, 1), (4, 2), (5, 3), (9, 3)])
def test_spoiled_cells_are_made_again_while_there_is_time(
    tmp_path: Path, cells: int, attempts: int
) -> None:
    plan, executor, bad = _same_in_blocks(3, noisy=0, cells=cells)
    result = _timed(plan, executor, tmp_path).run()
    assert sum(run_id == bad.run_id for run_id, _ in executor.made) == attempts
    assert (result.ok, result.ran, len(result.forgone), result.missing) == (True, 2, 1, ())
    assert "spoiled as told" in result.sentence


def test_time_that_does_not_suffice_for_all_goes_to_cells_not_made_yet(tmp_path: Path) -> None:
    plan, executor, _ = _same_in_blocks(3, noisy=0, cells=3)
    _timed(plan, executor, tmp_path).run()
    assert [run_id for run_id, _ in executor.made] == [cell.run_id for cell in plan.cells]


def test_a_cell_that_too_few_others_measured_is_not_made_over_time(tmp_path: Path) -> None:
    plan, executor, bad = _same_in_blocks(2, noisy=0, cells=2)
    result = _timed(plan, executor, tmp_path).run()
    assert sum(run_id == bad.run_id for run_id, _ in executor.made) == 1
    assert (result.ok, len(result.forgone)) == (True, 1)


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


def test_short_time_goes_to_the_first_comparison_of_the_file(tmp_path: Path) -> None:
    plan = _two_comparisons(9)
    executor = Scripted(lambda cell, tries: "spoiled" if tries == 0 else "done")
    result = _timed(plan, executor, tmp_path).run()
    done = [cell for cell in plan.cells if cell.run_id in executor.done()]
    assert len(executor.made) == 9, "eight cells, of which time lets one be made again"
    assert {cell.grids for cell in done} == {("first",)}
    assert not result.ok, "nothing measured the second comparison"


def test_in_short_time_what_was_spoiled_just_now_lets_others_go_first(tmp_path: Path) -> None:
    plan = _two_comparisons(8)
    firsts = [cell.run_id for cell in plan.cells if cell.grids == ("first",)]
    executor = Scripted(lambda cell, _: "spoiled" if cell.run_id == firsts[0] else "done")
    _timed(plan, executor, tmp_path).run()
    made = [run_id for run_id, _ in executor.made]
    while_others_wait = made[: 1 + max(made.index(run_id) for run_id in firsts)]
    pairs = pairwise(while_others_wait)
    assert (firsts[0], firsts[0]) not in pairs
    assert made.count(firsts[0]) > 1


@given(noise=st.lists(st.booleans(), min_size=40, max_size=40), cells=st.integers(2, 20))
@settings(max_examples=60, deadline=None)
def test_a_disturbed_campaign_ends_in_time(noise: list[bool], cells: int) -> None:
    plan = _two_comparisons(cells)
    sequence = iter(noise)
    executor = Scripted(lambda *_: "spoiled" if next(sequence) else "done")
    with TemporaryDirectory() as folder:
        result = _timed(plan, executor, Path(folder)).run()
    disturbed = [*(status for _, status in executor.made), "spoiled"].index("spoiled") + 1
    assert len(executor.made) <= max(cells, disturbed), "time counts from the first disturbance on"
    kept = {run_id for run_id, _ in executor.made if run_id in executor.done()}
    told = len(result.missing) + len(result.forgone)
    assert result.ran == len(kept) == len(plan.cells) - told


def test_a_machine_that_is_never_quiet_ends_the_campaign(tmp_path: Path) -> None:
    executor = Scripted(lambda cell, tries: "spoiled")
    result = engine(plan_of(tiny(spoiled_retries=10)), executor, tmp_path).run()
    assert len(executor.made) == SPOILED_IN_A_ROW
    assert (result.ok, len(result.missing), result.forgone) == (False, 8, ())
    assert "in a row were spoiled" in (result.gave_up or "")


def test_a_spoiled_cell_has_its_own_budget_beside_a_failed_one(tmp_path: Path) -> None:
    plan = plan_of(tiny(retries=1, spoiled_retries=1))
    script: list[RunStatus] = ["spoiled", "failed", "done"]
    executor = Scripted(lambda cell, tries: script[tries])
    assert engine(plan, executor, tmp_path).run().ok


def test_a_broken_testbed_ends_the_campaign_early(tmp_path: Path) -> None:
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


def test_broken_controllers_do_not_stop_the_others(tmp_path: Path) -> None:
    plan = _three(["default", "dlr", "dlr-pg", "upmap"])
    broken = {cell.run_id for cell in plan.cells if cell.parameters.controller != "default"}
    executor = Scripted(lambda cell, tries: "failed" if cell.run_id in broken else "done")
    result = engine(plan, executor, tmp_path).run()
    assert len(executor.made) == len(plan.cells)
    assert (result.gave_up, result.ran, len(result.missing)) == (None, 6, 18)


def test_controllers_that_worked_and_fail_in_a_row_mean_a_broken_testbed(tmp_path: Path) -> None:
    plan = _three(["dlr", "dlr-pg"])
    executor = Scripted(lambda cell, tries: "done" if len(executor.made) < 4 else "failed")
    result = engine(plan, executor, tmp_path).run()
    assert len(executor.made) == 4 + GIVE_UP_AFTER
    assert result.gave_up is not None


def test_a_full_disk_ends_the_campaign_at_once(tmp_path: Path) -> None:
    executor = Scripted(lambda cell, tries: "failed", fatal=True)
    result = engine(plan_of(tiny(retries=5)), executor, tmp_path).run()
    assert len(executor.made) == 1
    assert result.gave_up == "failed as told"


def test_nothing_planned_is_a_failure(tmp_path: Path) -> None:
    plan = plan_of(tiny(), only=[])
    assert plan.cells == ()
    result = engine(plan, Scripted(lambda cell, tries: "done"), tmp_path).run()
    assert not result.ok
    assert "nothing ran" in result.sentence


def test_stopping_interrupts_the_cell_and_starts_no_other(tmp_path: Path) -> None:
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


def test_a_second_call_makes_only_what_is_missing(tmp_path: Path) -> None:
    plan = plan_of(tiny(retries=0))
    bad = plan.cells[3].run_id
    executor = Scripted(
        lambda cell, tries: "failed" if (cell.run_id, tries) == (bad, 0) else "done"
    )
    engine(plan, executor, tmp_path).run()
    result = engine(plan, executor, tmp_path).run()
    assert (result.ok, result.already_done, result.ran) == (True, 7, 1)
    assert executor.made[-1] == (bad, "done")


def test_progress_tells_the_time_left_from_finished_cells(tmp_path: Path) -> None:
    stream = io.StringIO()
    plan = plan_of(tiny(grids=[{**TINY["grids"][0], "repetitions": 1}]))
    executor = Scripted(lambda cell, tries: "done")
    made = engine(plan, executor, tmp_path)
    made._progress = Lines(stream)
    made.run()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("tiny: 4 cells; about ")
    # Each took 2 s, so the engine expects 2 s for each remaining cell.
    assert lines[1].startswith("[1/4] block 0 ")
    assert lines[1].endswith("6 s left")
    assert lines[4].endswith("0 s left")
    assert "4 of 4 runs done" in lines[-1]
