"""Report of `hotbed run --dry-run`: the cells that would run, their time, and the lease."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from campaigns.engine.carry_out import learn
from campaigns.engine.estimate import Estimator
from campaigns.engine.kind import Prepared
from campaigns.engine.lease import Lease, Outlook
from campaigns.engine.plan import PLAN_COLUMNS, Cell
from testbed.html import table
from testbed.spec.quantities import format_s

ASSUMED_VARIATION = 0.05
"""Coefficient of variation of the throughput between runs (standard deviation over mean)."""


@dataclass(frozen=True)
class DryRunReport:
    """Cells that would run. Seconds are planned seconds."""

    campaign: str
    testbed: str
    time_scale: float
    cells: int
    done: int
    pending: tuple[Cell, ...]
    pending_s: float
    power: Mapping[str, str]
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

    def _repr_html_(self) -> str:
        rows = [
            (
                cell.run_id,
                str(cell.block),
                ", ".join(cell.figures),
                cell.parameters.label(),
                format_s(self.planned_s[cell.run_id]),
            )
            for cell in self.pending
        ]
        left = format_s(self.pending_s)
        note = f": {self.cells} cells, {self.done} done, about {left} for the rest"
        status = None
        if self.lease is not None:
            note += f". {self.lease.sentence}"
            status = "done" if self.lease.fits else "spoiled"
        columns = (*PLAN_COLUMNS, "planned")
        return table(columns, rows, title=self.campaign, note=note, status=status)


def report_of(
    prepared: Prepared,
    cells: Sequence[Cell],
    estimator: Estimator,
    *,
    width: int,
    resolves: bool,
    notes: Sequence[str],
    beside_s: float = 0.0,
    lease: Lease | None = None,
) -> DryRunReport:
    """Return the report on a campaign with the pending `cells`, `width` at a time.

    Args:
        estimator: estimates the cells' seconds; finished runs correct it.
        resolves: True if the report includes the smallest effect that the repetitions resolve.
        beside_s: estimated time in addition to the pending cells, in seconds.
        lease: the testbed's lease, if it is up and its lease ends.
    """
    learn(estimator, prepared.plan, prepared.store)
    found = {name for cell in prepared.plan.cells for name in cell.grids} if resolves else set()
    pending_s = estimator.left(cells, width) + beside_s
    planned_s = {cell.run_id: estimator.left([cell]) for cell in cells}
    return DryRunReport(
        campaign=prepared.campaign.name,
        testbed=prepared.testbed,
        time_scale=prepared.campaign.time_scale,
        cells=len(prepared.plan.cells),
        done=len(prepared.plan.cells) - len(cells),
        pending=tuple(cells),
        pending_s=pending_s,
        power={
            grid.name: power_sentence(grid.repetitions)
            for grid in prepared.campaign.grids
            if grid.name in found
        },
        notes=tuple(notes),
        planned_s=planned_s,
        run_ids=tuple(cell.run_id for cell in prepared.plan.cells),
        lease=None if lease is None else lease.outlook(list(planned_s.values()), pending_s),
    )


def smallest_effect(n: int, variation: float = ASSUMED_VARIATION) -> float | None:
    """Return half the width of the 95 % t interval of the mean log-ratio of `n` pairs.

    Both members of a pair vary independently by `variation`, so a log-ratio has the standard
    deviation sqrt(2) * `variation`. About 0.17 for n = 3 and 0.07 for n = 6; None for n below 2.
    """
    if n < 2:
        return None
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    quantile = float(stdtrit(n - 1, 0.975))
    return quantile * math.sqrt(2) * variation / math.sqrt(n)


def power_sentence(n: int, variation: float = ASSUMED_VARIATION) -> str:
    """Return a sentence about the smallest effect that `n` blocks resolve."""
    effect = smallest_effect(n, variation)
    if effect is None:
        return f"n = {n} gives no interval: no effect of any size can be shown"
    return (
        f"n = {n} resolves effects of about {100 * effect:.1f} % and more "
        f"(paired, at {100 * variation:.0f} % variation from run to run)"
    )
