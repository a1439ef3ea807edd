"""What an executor is, and the dry run as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
