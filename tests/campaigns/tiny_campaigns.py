"""Tiny campaign on the fake ground, and its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from campaigns.engine.identity import Identity
from campaigns.engine.job import Outcome
from campaigns.engine.plan import Cell, Plan, make_plan, raw_cells
from campaigns.papers.dlr.kind import planned_s
from schemas.campaign import Campaign
from schemas.cells.dlr import DLR
from testbed.closure import Closure

TINY: Mapping[str, Any] = {
    "name": "tiny",
    "paper": "dlr",
    "profile": "quick",
    "ground": "fake",
    "spec": "testbed/specs/dlr.yaml",
    "notebook": "notebooks/experiment.ipynb",
    "time_scale": 0.001,
    "parameters": {"duration_s": 10},
    "grids": [
        {
            "name": "fig6",
            "figures": ["6a", "6b"],
            "vary": {"op": ["seq", "rand"], "controller": ["default", "dlr"]},
            "fixed": {"scenario": "heterogeneity"},
            "repetitions": 2,
        }
    ],
}

ONE_CELL = [
    {
        "name": "one",
        "figures": ["1a"],
        "vary": {"op": ["seq"]},
        "fixed": {"scenario": "heterogeneity", "controller": "dlr"},
        "repetitions": 1,
    }
]


def tiny(**changes: Any) -> Campaign:
    """Return the campaign TINY with changes."""
    return Campaign.model_validate({**TINY, **changes})


def plan_of(campaign: Campaign, only: Sequence[str] | None = None, **identity: Any) -> Plan:
    """Return a plan without a request to any testbed."""
    cells = {
        grid.name: [DLR.of(**raw) for raw in raw_cells(campaign, grid)]
        for grid in campaign.grids
        if only is None or grid.name in only
    }
    shared = {"spec_digest": "spec", "site": "fake", "versions": {"ceph": "16"}, **identity}
    made = Identity(ground=campaign.ground, time_scale=campaign.time_scale, **shared)
    return make_plan(
        campaign,
        cells,
        made,
        lambda _: Closure((), "hash"),
        partial(planned_s, time_scale=campaign.time_scale),
    )


class OneByOne:
    """Executor that makes each attempt with `execute` when the engine waits for its end."""

    width = 1
    execute: Callable[[Cell], Outcome]

    def start(self, cell: Cell) -> None:
        self.begun = cell

    def finished(self) -> tuple[Cell, Outcome]:
        return self.begun, self.execute(self.begun)
