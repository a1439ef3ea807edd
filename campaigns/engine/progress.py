"""Progress of a running campaign: a bar with the time left, or plain lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from campaigns.engine.attempts import Outcome
from campaigns.engine.plan import Cell, Plan
from testbed.spec.quantities import format_s
from testbed.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar

    from campaigns.engine.result import CampaignResult


class Progress(Protocol):
    """Receiver of the engine's events; times are in seconds."""

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        """Show that the campaign starts; `done` cells were finished before."""

    def cell_started(self, cell: Cell, planned_s: float) -> None:
        """Show that an attempt starts."""

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        """Show that an attempt ended; `left_s` is the time left for the campaign."""

    def message(self, text: str) -> None:
        """Show a message."""

    def end(self, result: CampaignResult) -> None:
        """Show that the campaign ended."""


class Silent:
    """A `Progress` without output."""

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        """See `Progress.begin`."""

    def cell_started(self, cell: Cell, planned_s: float) -> None:
        """See `Progress.cell_started`."""

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        """See `Progress.cell_ended`."""

    def message(self, text: str) -> None:
        """See `Progress.message`."""

    def end(self, result: CampaignResult) -> None:
        """See `Progress.end`."""


class Lines:
    """One line per event, for logs, pipes and CI."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._done = 0
        self._total = 0

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        """See `Progress.begin`."""
        self._done, self._total = done, len(plan.cells)
        self.message(f"{plan.campaign.name}: {opening(self._total, done, left_s)}")

    def cell_started(self, cell: Cell, planned_s: float) -> None:
        """See `Progress.cell_started`."""

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        """See `Progress.cell_ended`."""
        self._done += outcome.status == "done"
        self.message(
            f"[{self._done}/{self._total}] {describe(cell, outcome)}; {format_s(left_s)} left"
        )

    def message(self, text: str) -> None:
        """See `Progress.message`."""
        print(text, file=self._stream, flush=True)

    def end(self, result: CampaignResult) -> None:
        """See `Progress.end`."""
        self.message(f"{result.sentence} ({format_s(result.seconds)})")


class Bar:
    """A live bar on a terminal; finished cells scroll by above it."""

    def __init__(self) -> None:
        self._bar: RichBar | None = None
        self._left_s = 0.0

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        """See `Progress.begin`."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBar

        self._left_s = left_s
        self._bar = RichBar(
            TextColumn("{task.fields[name]}", style="bold", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}", style="dim", markup=False),
            console=console(stderr=True),
            refresh_per_second=2,
        )
        name = plan.campaign.name
        self._bar.add_task("", total=len(plan.cells), completed=done, name=name, left="")
        self._bar.start()
        self.message(f"{name}: {opening(len(plan.cells), done, left_s)}")
        self._show("")

    def cell_started(self, cell: Cell, planned_s: float) -> None:
        """See `Progress.cell_started`."""
        self._show(cell.parameters.label())

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        """See `Progress.cell_ended`."""
        self._left_s = left_s
        if self._bar is not None:
            task = self._bar.tasks[0].id
            self._bar.advance(task, 1 if outcome.status == "done" else 0)
        self.message(describe(cell, outcome))
        self._show("")

    def message(self, text: str) -> None:
        """See `Progress.message`."""
        if self._bar is not None:
            self._bar.console.print(text)

    def end(self, result: CampaignResult) -> None:
        """See `Progress.end`."""
        if self._bar is not None:
            self._show("")
            self._bar.stop()
            self.message(f"{result.sentence} ({format_s(result.seconds)})")
            self._bar = None

    def _show(self, what: str) -> None:
        if self._bar is not None:
            task = self._bar.tasks[0].id
            self._bar.update(task, description=what, left=f"{format_s(self._left_s)} left")


def opening(total: int, done: int, left_s: float) -> str:
    """Return the planned work as text."""
    if done:
        return f"{total} cells, {done} done before; about {format_s(left_s)} left"
    return f"{total} cells; about {format_s(left_s)}"


def describe(cell: Cell, outcome: Outcome) -> str:
    """Return one attempt as text."""
    text = f"block {cell.block} {cell.parameters.label()}: {outcome.status}"
    if outcome.attempt is not None and outcome.attempt > 1:
        text += f" (attempt {outcome.attempt})"
    if outcome.reason:
        text += f": {outcome.reason.rstrip('.')}"
    return f"{text} in {format_s(outcome.seconds)}"


def suitable(stream: TextIO | None = None) -> Progress:
    """Return a bar on a terminal, lines elsewhere."""
    target = stream or sys.stderr
    return Bar() if target.isatty() else Lines(target)
