"""Estimates of the cells' times, and the report of `hotbed run --dry-run`.

Times are planned first, then corrected by stored runs and finished cells. The report lists the
cells that would run, their time, and whether they fit the testbed's lease.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from campaigns.engine.lease import Lease, Outlook
from campaigns.engine.plan import PLAN_COLUMNS, Cell, Plan
from schemas.run import Run
from testbed.html import table
from testbed.spec.quantities import format_s

ENGINE_S = 5.0  # notebook process, kernel, imports
NOT_MEASURED = "a guess: no such run is stored here"
TIMEOUT_FACTOR = 3.0
TIMEOUT_SLACK_S = 180.0
_ALL = ""
"""Key of the sums over all labels."""
AROUND_S = 60.0
"""Upper bound of the seconds that a cell's process needs before and after its phases."""


def timeout_s(planned_s: float) -> float:
    """Return the seconds after which a cell counts as hung."""
    return TIMEOUT_FACTOR * planned_s + TIMEOUT_SLACK_S


class Estimator:
    """Estimator of the time left, from planned and measured seconds. Measured seconds of the same
    label correct a cell's planned seconds, or else those of all labels.

    Args:
        around_s: seconds that every cell takes in addition to its planned seconds.
    """

    def __init__(self, around_s: float = 0.0) -> None:
        self._around_s = around_s
        self._sums: dict[str, tuple[float, float]] = {}  # planned and measured seconds by label
        self.runs = 0
        self.queued = 0  # parallel attempts that wait for a worker

    def observe(self, label: str, planned_s: float, seconds: float) -> None:
        """Correct the estimate: a cell with this label took `seconds`."""
        self.runs += 1
        for each in (label, _ALL):
            planned, measured = self._sums.get(each, (0.0, 0.0))
            self._sums[each] = (planned + planned_s + self._around_s, measured + seconds)

    def left(self, cells: Iterable[Cell], width: int = 1) -> float:
        """Return the seconds that `cells` will take, `width` at a time."""
        each = [self.seconds(cell.parameters.label(), cell.planned_s) for cell in cells]
        # The longest cell bounds the time, however many cells run in parallel.
        return max(sum(each) / max(1, width - self.queued), max(each, default=0.0))

    def seconds(self, label: str, planned_s: float) -> float:
        """Return the seconds that a cell with this label will take."""
        every = self._sums.get(_ALL, (1.0, 1.0))
        planned, measured = self._sums.get(label, every)
        return (planned_s + self._around_s) * (measured / planned if planned else 1.0)


def took_s(run: Run) -> float:
    """Return the duration of a run in seconds. Start and end are wall-clock times. If they do not
    fit the run's phases, the clock was set meanwhile, and the sum of the phases is returned."""
    start = datetime.datetime.fromisoformat(run.started_at)
    elapsed = (datetime.datetime.fromisoformat(run.ended_at) - start).total_seconds()
    phases = sum(run.phases_s.values())
    return elapsed if phases <= elapsed <= phases + AROUND_S or not phases else phases


@dataclass(frozen=True)
class DryRunReport:
    """Cells that would run. `testbed` is None if they are simulated. Seconds are estimates from the
    planned seconds and `measured` stored runs."""

    campaign: str
    testbed: str | None
    time_scale: float
    cells: int
    done: int
    pending: tuple[Cell, ...]
    pending_s: float
    power: Mapping[str, str]
    measured: int = 0
    notes: tuple[str, ...] = field(default_factory=tuple)
    planned_s: Mapping[str, float] = field(default_factory=dict)
    lease: Outlook | None = None  # the testbed's lease, if it is up and its lease ends
    run_ids: tuple[str, ...] = ()  # of every cell, in the plan's order

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        pending = {cell.run_id for cell in self.pending}
        return {
            "campaign": self.campaign,
            "testbed": self.testbed,
            "time_scale": self.time_scale,
            "cells": self.cells,
            "done": self.done,
            "pending_s": round(self.pending_s, 1),
            "measured": self.measured,
            "power": dict(self.power),
            "notes": list(self.notes),
            "lease": None if self.lease is None else self.lease.as_json(),
            "runs": [{"run_id": each, "done": each not in pending} for each in self.run_ids],
            "pending": [
                {
                    "run_id": cell.run_id,
                    "block": cell.block,
                    "order": cell.order,
                    "grids": list(cell.grids),
                    "figures": list(cell.figures),
                    "planned_s": round(self.planned_s[cell.run_id], 1),
                    "parameters": cell.parameters.model_dump(mode="json"),
                }
                for cell in self.pending
            ],
        }

    @property
    def sentence(self) -> str:
        """The number of cells and their time in words."""
        where = "simulated" if self.testbed is None else f"on testbed {self.testbed}"
        by = f"from {self.measured} stored runs" if self.measured else NOT_MEASURED
        return (
            f"{self.campaign} {where}: {self.cells} cells, {self.done} done; about "
            f"{format_s(self.pending_s)} for the rest ({by}; times × {self.time_scale:.4g})"
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The pending cells as texts: run, block, figures, cell, and planned time."""
        return [
            (
                cell.run_id,
                str(cell.block),
                ", ".join(cell.figures),
                cell.parameters.label(),
                format_s(self.planned_s[cell.run_id]),
            )
            for cell in self.pending
        ]

    def _repr_html_(self) -> str:
        note, status = "", None
        if self.lease is not None:
            note = f". {self.lease.sentence}"
            status = "done" if self.lease.fits else "spoiled"
        columns = (*PLAN_COLUMNS, "planned")
        return table(columns, self.rows, title=self.sentence, note=note, status=status)


def report_of(
    plan: Plan,
    estimator: Estimator,
    cells: Sequence[Cell],
    *,
    testbed: str | None,
    width: int,
    power: Mapping[str, str],
    notes: Sequence[str],
    additional_s: float = 0.0,
    lease: Lease | None = None,
) -> DryRunReport:
    """Return the report on a plan with the pending `cells`, `width` at a time.

    Args:
        estimator: estimator with the stored runs.
        testbed: the testbed's name; None if the cells are simulated.
        power: sentences about the intervals that grids will have.
        additional_s: estimated time in addition to the pending cells, in seconds.
        lease: the testbed's lease, if it is up and its lease ends.
    """
    pending_s = estimator.left(cells, width) + additional_s
    planned_s = {cell.run_id: estimator.left([cell]) for cell in cells}
    return DryRunReport(
        campaign=plan.campaign.name,
        testbed=testbed,
        time_scale=plan.campaign.time_scale,
        cells=len(plan.cells),
        done=len(plan.cells) - len(cells),
        pending=tuple(cells),
        pending_s=pending_s,
        power=power,
        measured=estimator.runs,
        notes=tuple(notes),
        planned_s=planned_s,
        run_ids=tuple(cell.run_id for cell in plan.cells),
        lease=None if lease is None else lease.outlook(list(planned_s.values()), pending_s),
    )
