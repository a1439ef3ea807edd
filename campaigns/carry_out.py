"""A prepared campaign, once its locks are held: recover, choose who makes the attempts, run."""

from __future__ import annotations

import datetime
import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from campaigns.attempts import (
    AttemptRecords,
    CellProcess,
    Executor,
    InProcess,
    OneAtATime,
    Setting,
)
from campaigns.cell import make_cell
from campaigns.disk import Reserve, require_room
from campaigns.engine import Engine, pending
from campaigns.estimate import Estimator
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.progress import Progress
from campaigns.result import CampaignResult
from campaigns.run_store import RunStore
from campaigns.sameness import Recipe
from campaigns.services import Ground
from campaigns.sim_ground import SIMULATIONS
from campaigns.workers import Workers
from schemas.campaign import Campaign
from schemas.durable import write_file
from schemas.run import Run

CAMPAIGN_FILE = "campaign.json"
LEDGER_FILE = "ledger.jsonl"
AROUND_S = 60.0
"""More than a cell's process takes before and after its phases."""


class Laid(Protocol):
    """A campaign that is validated and planned: `plan` is what is asked for, `whole` what the file
    holds."""

    @property
    def campaign(self) -> Campaign: ...

    @property
    def testbed(self) -> str: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def whole(self) -> Plan: ...

    @property
    def store(self) -> RunStore: ...


def carry_out(
    prepared: Laid,
    setting: Setting,
    process: CellProcess,
    shown: Progress,
    *,
    inside: Ground | None,
    workers: Workers | None,
) -> CampaignResult:
    """Make every cell that is still to be made.

    Args:
        prepared: the campaign; whoever calls holds its locks.
        setting: what its attempts share.
        process: makes cells in processes of their own.
        shown: who is told of it.
        inside: the ground on which cells run in this process, not in one of their own each.
        workers: who makes such cells beside each other.
    """
    attempts = AttemptRecords(
        prepared.plan, prepared.store, Ledger(prepared.store.folder / LEDGER_FILE), setting
    )
    if inside is None:
        return make_cells(prepared, attempts, OneAtATime(attempts, process), shown)
    make = partial(make_cell, inside)
    if workers is None:
        return make_cells(prepared, attempts, OneAtATime(attempts, InProcess(make)), shown)
    return make_cells(prepared, attempts, OnWorkers(workers, Recipe(make, SIMULATIONS)), shown)


@dataclass(frozen=True)
class OnWorkers:
    """Cells are made by `recipe` on Dask workers, which are started if there is a cell to make."""

    workers: Workers
    recipe: Recipe


def make_cells(
    laid: Laid, attempts: AttemptRecords, how: Executor | OnWorkers, shown: Progress
) -> CampaignResult:
    """Recover what a dead engine left, and make every cell that is still to be made.

    Args:
        laid: the campaign; whoever calls holds its locks.
        attempts: its records.
        how: makes the attempts.
        shown: who is told of it.
    """
    store, plan, ledger = laid.store, laid.plan, attempts.ledger
    attempts.recover()
    missing = pending(plan, store)
    require_room(store.folder, len(missing), finished_folders(store))
    with ExitStack() as stack:
        executor = _executor(how, attempts, bool(missing), stack)
        engine = Engine(plan, store, executor, shown, lease=attempts.setting.lease)
        learn(engine.estimator, plan, store)
        Reserve(store.folder).take()
        write_file(store.folder / CAMPAIGN_FILE, _description(laid))
        ledger.append("campaign-started", cells=len(plan.cells), pending=len(missing))
        result = engine.run()
    try:
        ledger.append("campaign-ended", ok=result.ok, sentence=result.sentence)
    finally:
        Reserve(store.folder).release()
    return result


def _executor(
    how: Executor | OnWorkers, attempts: AttemptRecords, missing: bool, stack: ExitStack
) -> Executor:
    if not isinstance(how, OnWorkers):
        return how
    if not missing:
        return OneAtATime(attempts, InProcess(how.recipe.make))
    from campaigns.dask_workers import DaskExecutor, open_cluster

    client = stack.enter_context(open_cluster(how.workers, how.recipe.same))
    return DaskExecutor(attempts, how.recipe, client)


def learn(estimator: Estimator, plan: Plan, store: RunStore) -> None:
    """Correct the estimate by the runs that are there."""
    cells = {cell.run_id: cell for cell in plan.cells}
    for run in store.runs():
        if run.status == "done" and run.run_id in cells:
            estimator.observe(cells[run.run_id], took_s(run))


def took_s(run: Run) -> float:
    """Return how many seconds a run took. Its start and end are times of the wall clock; if they
    do not fit its phases, the clock was set in between, and the phases count."""
    start = datetime.datetime.fromisoformat(run.started_at)
    elapsed = (datetime.datetime.fromisoformat(run.ended_at) - start).total_seconds()
    phases = sum(run.phases_s.values())
    return elapsed if phases <= elapsed <= phases + AROUND_S or not phases else phases


def finished_folders(store: RunStore, most: int = 50) -> list[Path]:
    """Folders of some finished attempts, to learn their size from."""
    return list(store.folder.glob("*/attempt-*"))[:most] if store.folder.is_dir() else []


def _description(laid: Laid) -> str:
    """What is kept of a campaign beside its runs: `cells` are all that it holds as of now, so
    that runs of an earlier code or file can be told from them."""
    identity = laid.plan.identity
    body = {
        "campaign": laid.campaign.model_dump(mode="json"),
        "testbed": laid.testbed,
        "identity": {
            "spec_digest": identity.spec_digest,
            "ground": identity.ground,
            "site": identity.site,
            "time_scale": identity.time_scale,
            "versions": dict(identity.versions),
            "code": identity.code.digest,
            "libraries": dict(identity.libraries),
        },
        "cells": [
            {"run_id": cell.run_id, "grids": cell.grids, "figures": cell.figures}
            for cell in laid.whole.cells
        ],
    }
    return json.dumps(body, indent=2) + "\n"
