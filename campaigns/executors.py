"""What an executor is, one at a time and several, and the dry run as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from campaigns.plan import Cell
from schemas.run import RunStatus


@dataclass(frozen=True)
class Outcome:
    """How one attempt ended. `fatal` says that no other cell can fare better (a full disk)."""

    status: RunStatus
    reason: str | None = None
    seconds: float = 0.0
    attempt: int | None = None
    fatal: bool = False


class Executor(Protocol):
    """Makes attempts, one at a time."""

    def execute(self, cell: Cell) -> Outcome:
        """Make one attempt at `cell` and leave its record. Does not raise for a failed cell."""

    def interrupt(self) -> None:
        """End the running attempt cleanly (from a signal handler): the testbed is put back."""

    def kill(self) -> None:
        """End the running attempt at once."""


@runtime_checkable
class ParallelExecutor(Protocol):
    """Makes several attempts beside each other. `interrupt` and `kill` as those of `Executor`, for
    all attempts under way: each of them is then told by `finished` as interrupted."""

    @property
    def width(self) -> int:
        """How many attempts may be under way; it may change."""

    def start(self, cell: Cell) -> None:
        """Begin an attempt at `cell`."""

    def finished(self) -> tuple[Cell, Outcome]:
        """Wait until an attempt ends; its record is left. Something must be under way."""

    def interrupt(self) -> None:
        """See `Executor.interrupt`."""

    def kill(self) -> None:
        """See `Executor.kill`."""


class OneByOne:
    """An `Executor` as a `ParallelExecutor` of width 1."""

    width = 1

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._next: Cell | None = None

    def start(self, cell: Cell) -> None:
        """See `ParallelExecutor.start`: it is made when its end is waited for."""
        self._next = cell

    def finished(self) -> tuple[Cell, Outcome]:
        """See `ParallelExecutor.finished`."""
        cell, self._next = self._next, None
        assert cell is not None
        return cell, self._executor.execute(cell)

    def interrupt(self) -> None:
        """See `Executor.interrupt`."""
        self._executor.interrupt()

    def kill(self) -> None:
        """See `Executor.kill`."""
        self._executor.kill()


class DryRun:
    """Executes nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def execute(self, cell: Cell) -> Outcome:
        """See `Executor.execute`."""
        self.cells.append(cell)
        return Outcome("done")

    def interrupt(self) -> None:
        """Nothing runs."""

    def kill(self) -> None:
        """Nothing runs."""
