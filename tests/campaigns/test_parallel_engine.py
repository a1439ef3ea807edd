"""Engine with parallel attempts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_campaigns import plan_of, tiny

from campaigns.engine.attempts import Outcome
from campaigns.engine.display import CampaignResult, Silent
from campaigns.engine.engine import Engine
from campaigns.engine.estimate import Estimator
from campaigns.engine.plan import Cell
from campaigns.engine.store import RunStore
from schemas.run import RunStatus


class Beside:
    """Executor that runs several cells in memory; they end in a scripted random order."""

    def __init__(self, width: int, tell: Callable[[Cell, int], RunStatus], seed: int = 0) -> None:
        self.width = width
        self.tell = tell
        self.draw = random.Random(seed)
        self.running: list[Cell] = []
        self.most = 0
        self.made: list[tuple[str, RunStatus]] = []
        self.interrupted = False
        self.hook: Callable[[], None] = lambda: None
        self.fatal = False

    def start(self, cell: Cell) -> None:
        assert cell not in self.running
        self.running.append(cell)
        self.most = max(self.most, len(self.running))

    def finished(self) -> tuple[Cell, Outcome]:
        self.hook()
        cell = self.running.pop(self.draw.randrange(len(self.running)))
        tries = sum(run_id == cell.run_id for run_id, _ in self.made)
        status: RunStatus = "interrupted" if self.interrupted else self.tell(cell, tries)
        self.made.append((cell.run_id, status))
        return cell, Outcome(status, f"{status} as told", 2.0, tries + 1, self.fatal)

    def interrupt(self) -> None:
        self.interrupted = True

    def kill(self) -> None:
        self.interrupted = True


def go(executor: Beside, folder: Path, **changes: int) -> tuple[CampaignResult, Engine]:
    plan = plan_of(tiny(**changes))
    store = RunStore(folder)
    real = store.attempts
    done = lambda: {run_id for run_id, status in executor.made if status == "done"}  # noqa: E731
    store.attempts = lambda run_id: (  # type: ignore[method-assign]
        type(real(run_id))({1: "done"}) if run_id in done() else real(run_id)
    )
    engine = Engine(plan, store, executor, Silent())
    return engine.run(), engine


@settings(deadline=None, max_examples=60)
@given(
    width=st.integers(1, 10),
    seed=st.integers(0, 1000),
    bad=st.sets(st.integers(0, 7), max_size=2),
    retries=st.integers(0, 2),
)
def test_every_cell_runs_as_often_as_it_should(
    width: int, seed: int, bad: set[int], retries: int
) -> None:
    cells = plan_of(tiny()).cells
    failing = {cells[index].run_id for index in bad}
    executor = Beside(width, lambda c, _: "failed" if c.run_id in failing else "done", seed)
    with TemporaryDirectory() as folder:
        result, _ = go(executor, Path(folder), retries=retries)
    assert executor.most <= width
    for cell in cells:
        times = sum(run_id == cell.run_id for run_id, _ in executor.made)
        assert times == (retries + 1 if cell.run_id in failing else 1)
    assert (result.ran, len(result.missing)) == (8 - len(failing), len(failing))
    assert result.failed_attempts == len(failing) * (retries + 1)


def test_as_many_run_as_there_is_room_for(tmp_path: Path) -> None:
    executor = Beside(3, lambda cell, tries: "done")
    result, _ = go(executor, tmp_path)
    assert (result.ok, executor.most) == (True, 3)


def test_a_spoiled_cell_is_redone_beside_the_others(tmp_path: Path) -> None:
    executor = Beside(4, lambda cell, tries: "done" if tries else "spoiled")
    result, _ = go(executor, tmp_path, spoiled_retries=1)
    assert (result.ok, result.spoiled) == (True, 8)


def test_ctrl_c_ends_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    executor = Beside(3, lambda cell, tries: "done")
    plan = plan_of(tiny())
    engine = Engine(plan, RunStore(tmp_path), executor, Silent())
    executor.hook = lambda: engine.stop() if not executor.interrupted else None
    result = engine.run()
    assert result.interrupted
    assert len(executor.made) == 3
    assert not executor.running
    assert len(result.missing) == 8


def test_nothing_starts_when_no_cell_can_fare_better(tmp_path: Path) -> None:
    executor = Beside(3, lambda cell, tries: "failed")
    executor.fatal = True
    result, _ = go(executor, tmp_path, retries=5)
    assert len(executor.made) == 3
    assert result.gave_up == "failed as told"


@pytest.mark.parametrize("width", [1, 2, 8])
def test_time_left_is_shared_and_never_less_than_the_longest(width: int) -> None:
    estimator = Estimator()
    cells = plan_of(tiny()).cells
    each = [cell.planned_s for cell in cells]
    expected = max(sum(each) / width, *each)
    assert estimator.left(cells, width) == pytest.approx(expected)
