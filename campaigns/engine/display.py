"""Display of a campaign: its progress while it runs, its result, and its runs in Jupyter."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from campaigns.engine.job import Outcome
from campaigns.engine.store import RESULTS, RunStore, read_run, read_summary
from schemas.cells import cells_of
from schemas.errors import UserError
from schemas.run import Run, Summary
from testbed.html import bar, in_kernel, live, table
from testbed.spec.quantities import format_s
from testbed.terminal import console, is_quiet

if TYPE_CHECKING:
    from campaigns.engine.plan import Cell, Plan


@dataclass(frozen=True)
class CampaignResult:
    """Result of a call of the engine."""

    campaign: str
    planned: int
    already_done: int
    ran: int
    missing: tuple[tuple[str, str], ...] = ()  # (cell as text, reason why it has no run)
    forgone: tuple[tuple[str, str], ...] = ()  # the same for skipped cells, see `ok`
    spoiled: int = 0
    failed_attempts: int = 0
    interrupted: bool = False
    gave_up: str | None = None
    lease: str | None = None  # why the lease ended the call before its last cell
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if every planned cell has a finished run, and at least one cell was planned.

        A forgone cell does not count as missing. It was spoiled in every attempt, or spoiled
        attempts left no time for it, but another block measured the same. The figures use one run
        less there and report it.
        """
        return self.planned > 0 and not self.missing and not self.interrupted

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        return self.after(())

    def after(self, shown: Collection[str]) -> str:
        """Return the result as a sentence for a reader who has seen the reasons `shown`."""
        if self.planned == 0:
            return f"{self.campaign}: no cell was planned, so nothing ran."
        finished = self.planned - len(self.missing) - len(self.forgone)
        text = f"{self.campaign}: {finished} of {self.planned} runs done"
        if self.already_done:
            text += f" ({self.already_done} of them before)"
        if self.spoiled:
            text += f", {self.spoiled} spoiled and redone or given up"
        if self.interrupted:
            return f"{text}; interrupted: give the same command again to resume."
        if self.lease:
            return (
                f"{text}; {self.lease}: bring the testbed up again and deploy it (hotbed up, "
                "hotbed deploy), on a new lease if the old one is over, and give the same "
                "command again to resume."
            )
        if self.gave_up:
            return f"{text}; gave up: {_once(self.gave_up, shown)}"
        for without, word, after in (
            (self.missing, "missing:", ""),
            (
                self.forgone,
                "without",
                ": fewer repetitions there, which the same command on a quiet machine adds.",
            ),
        ):
            if without:
                cell, why = without[0]
                more = f" ({len(without) - 1} more)" if len(without) > 1 else ""
                return f"{text}; {word} {cell}: {_once(why, shown)}{more}{after}"
        return f"{text}."

    def _repr_html_(self) -> str:
        status = "done" if self.ok else "failed"
        without = [*self.missing, *self.forgone]
        columns = ("missing", "why") if without else ()
        return table(columns, without, title=self.sentence, status=status)


def _once(text: str, shown: Collection[str]) -> str:
    """Return `text` without the reason at its end if that reason is in `shown`."""
    known = [why for why in shown if text.endswith(why)]
    return f"{text.removesuffix(max(known, key=len))}see above" if known else text


class Progress:
    """Receiver of the engine's events; this one shows nothing. Times are in seconds."""

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        """Show that the campaign starts; `done` cells were finished before."""

    def cell_started(self, cell: Cell) -> None:
        """Show that an attempt starts."""

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        """Show that an attempt ended; `left_s` is the time left for the campaign."""

    def message(self, text: str) -> None:
        """Show a message."""

    def end(self, result: CampaignResult) -> None:
        """Show that the campaign ended."""


class Lines(Progress):
    """One line per event, for logs, pipes and CI."""

    def __init__(self) -> None:
        self._done = self._total = 0
        self._shown: set[str] = set()

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        self._done, self._total = done, len(plan.cells)
        self.step(_opening(plan, done, left_s))

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        self._done += outcome.status == "done"
        said = _described(cell, outcome, self._shown)
        self.step(f"[{self._done}/{self._total}] {said}; {format_s(left_s)} left")

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def step(self, text: str) -> None:
        """Show what was done last."""
        self.message(text)

    def end(self, result: CampaignResult) -> None:
        self.step(f"{result.after(self._shown)} ({format_s(result.seconds)})")


class InPage(Lines):
    """A bar in a notebook's page, updated in place; messages and attempts that failed stay."""

    def __init__(self) -> None:
        super().__init__()
        self._show = live()

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        if outcome.status != "done":
            self.message(_described(cell, outcome, self._shown))
        super().cell_ended(cell, outcome, left_s)

    def message(self, text: str) -> None:
        print(text, flush=True)  # standard error would be red

    def step(self, text: str) -> None:
        self._show(bar(self._done / max(1, self._total), text))


class Bar(Progress):
    """A live bar on a terminal; finished cells scroll by above it."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichBar

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
        self._task = self._bar.add_task("", name="", left="")
        self._shown: set[str] = set()

    def begin(self, plan: Plan, done: int, left_s: float) -> None:
        left, name = f"{format_s(left_s)} left", plan.campaign.name
        self._bar.update(self._task, total=len(plan.cells), completed=done, name=name, left=left)
        self._bar.start()
        self.message(_opening(plan, done, left_s))

    def cell_started(self, cell: Cell) -> None:
        self._bar.update(self._task, description=cell.parameters.label())

    def cell_ended(self, cell: Cell, outcome: Outcome, left_s: float) -> None:
        self._bar.advance(self._task, outcome.status == "done")
        self._bar.update(self._task, description="", left=f"{format_s(left_s)} left")
        self.message(_described(cell, outcome, self._shown))

    def message(self, text: str) -> None:
        self._bar.console.print(text)

    def end(self, result: CampaignResult) -> None:
        self._bar.stop()
        self.message(f"{result.after(self._shown)} ({format_s(result.seconds)})")


def _opening(plan: Plan, done: int, left_s: float) -> str:
    before = f", {done} done before; about {format_s(left_s)} left"
    text = before if done else f"; about {format_s(left_s)}"
    return f"{plan.campaign.name}: {len(plan.cells)} cells{text}"


def _described(cell: Cell, outcome: Outcome, shown: set[str]) -> str:
    """Return one attempt as text, and add its reason to the reasons `shown`."""
    text = f"block {cell.block} {cell.parameters.label()}: {outcome.status}"
    if outcome.attempt is not None and outcome.attempt > 1:
        text += f" (attempt {outcome.attempt})"
    if outcome.reason and outcome.reason != outcome.status:
        text += f": {_once(outcome.reason, shown).rstrip('.')}"
        shown.add(outcome.reason)
    return f"{text} in {format_s(outcome.seconds)}"


def suitable() -> Progress:
    """Return a bar on a terminal or in a notebook, lines elsewhere, and nothing under ``hotbed
    -q``."""
    if is_quiet():
        return Progress()
    if in_kernel():
        return InPage()
    return Bar() if sys.stderr.isatty() else Lines()


@dataclass(frozen=True)
class RunView:
    """View of a run with its summary."""

    run: Run
    summary: Summary | None
    folder: Path

    def _repr_html_(self) -> str:
        run = self.run
        rows = [
            ("run", f"{run.campaign} / {run.run_id} / attempt {run.attempt}"),
            ("cell", f"{label_of(run)} (block {run.block}, seed {run.seed})"),
            ("ground", f"{run.ground}, site {run.provenance.site}"),
            ("status", run.status + (f": {run.reason}" if run.reason else "")),
            ("time scale", f"{run.time_scale:g}"),
            ("phases", ", ".join(f"{k} {format_s(v)}" for k, v in run.phases_s.items())),
            ("folder", str(self.folder)),
        ]
        for each in self.summary.whole if self.summary is not None else ():
            numbers = (
                (each.throughput_mb_s, "{:.1f} MB/s"),
                (each.latency_mean_s, "mean latency {:.3f} s"),
                (each.latency_max_s, "max {:.3f} s"),
            )
            known = [text.format(number) for number, text in numbers if number is not None]
            rows.append((each.op, ", ".join(known)))
        return table((), rows, status=run.status)


@dataclass(frozen=True)
class CampaignView:
    """View of all attempts of a campaign."""

    name: str
    runs: tuple[Run, ...]

    def _repr_html_(self) -> str:
        rows = [
            (
                run.run_id,
                str(run.attempt),
                str(run.block),
                label_of(run),
                run.status,
                run.reason or "",
            )
            for run in self.runs
        ]
        counts = sorted(Counter(run.status for run in self.runs).items())
        note = f": {', '.join(f'{number} {status}' for status, number in counts)}"
        columns = ("run", "attempt", "block", "cell", "status", "why")
        return table(columns, rows, title=self.name, note=note)


def label_of(run: Run) -> str:
    """Return the cell's label; if its parameters are no longer allowed, return them as text."""
    with contextlib.suppress(UserError):
        return str(cells_of(run.kind, run.ground).check(run.parameters, "run").label())
    return ", ".join(f"{name}={value}" for name, value in run.parameters.items())


def show_run(folder: Path | str) -> RunView:
    """Return a view of the run in `folder` (``.../attempt-N``). UserError: it has no run."""
    path = Path(folder)
    run = read_run(path)
    if run is None:
        raise UserError("holds no run.json of a run", where=path, do="give an attempt's folder")
    return RunView(run, read_summary(path), path)


def show_campaign(name: str, artifacts: Path | str = "artifacts") -> CampaignView:
    """Return a view of all attempts of the campaign `name` below `artifacts`; a relative path
    starts at Hotbed's folder, or at the current folder if Hotbed is installed. UserError: the
    campaign has no attempts."""
    folder = RESULTS / artifacts / name
    runs = tuple(sorted(RunStore(folder).runs(), key=lambda run: run.started_at))
    if not runs:
        raise UserError("holds no runs yet", where=folder, do=f"start with `hotbed run {name}`")
    return CampaignView(name, runs)
