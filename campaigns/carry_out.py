"""A prepared campaign, once its locks are held: recover, choose who makes the attempts, run."""

from __future__ import annotations

import datetime
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from campaigns.attempts import (
    AttemptRecords,
    Executor,
    InProcess,
    OneAtATime,
    Runner,
    Setting,
)
from campaigns.disk import Reserve, require_room
from campaigns.engine import Engine, pending
from campaigns.estimate import Estimator
from campaigns.kinds.kind import Prepared
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.progress import Progress
from campaigns.result import CampaignResult
from campaigns.run_store import RunStore
from campaigns.sameness import Recipe
from campaigns.workers import Workers
from schemas.durable import write_file
from schemas.run import Run

CAMPAIGN_FILE = "campaign.json"
LEDGER_FILE = "ledger.jsonl"
AROUND_S = 60.0
"""More than a cell's process takes before and after its phases."""


@dataclass(frozen=True)
class OnWorkers:
    """Cells are made by `recipe` on Dask workers, which are started if there is a cell to make."""

    workers: Workers
    recipe: Recipe


def make_cells(
    prepared: Prepared, setting: Setting, how: Runner | OnWorkers, shown: Progress
) -> CampaignResult:
    """Recover what a dead engine left, and make every cell that is still to be made.

    Args:
        prepared: the campaign, whose locks are held.
        setting: shared by its attempts.
        how: makes the cells.
        shown: reports the progress.
    """
    store, plan = prepared.store, prepared.plan
    ledger = Ledger(store.folder / LEDGER_FILE)
    attempts = AttemptRecords(plan, store, ledger, setting)
    attempts.recover()
    missing = pending(plan, store)
    require_room(store.folder, len(missing), finished_folders(store))
    with ExitStack() as stack:
        executor: Executor
        if not isinstance(how, OnWorkers):
            executor = OneAtATime(attempts, how)
        elif not missing:
            executor = OneAtATime(attempts, InProcess(how.recipe.make))
        else:
            from campaigns.dask_workers import DaskExecutor, open_cluster

            client = stack.enter_context(open_cluster(how.workers, how.recipe.same))
            executor = DaskExecutor(attempts, how.recipe, client)
        engine = Engine(plan, store, executor, shown, lease=setting.lease)
        learn(engine.estimator, plan, store)
        Reserve(store.folder).take()
        write_file(store.folder / CAMPAIGN_FILE, _description(prepared))
        ledger.append("campaign-started", cells=len(plan.cells), pending=len(missing))
        result = engine.run()
    try:
        ledger.append("campaign-ended", ok=result.ok, sentence=result.sentence)
    finally:
        Reserve(store.folder).release()
    return result


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


def _description(prepared: Prepared) -> str:
    """What is kept of a campaign beside its runs: `cells` are all that it holds as of now, so
    that runs of an earlier code or file can be told from them."""
    identity = prepared.plan.identity
    body = {
        "campaign": prepared.campaign.model_dump(mode="json"),
        "testbed": prepared.testbed,
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
            for cell in prepared.whole.cells
        ],
    }
    return json.dumps(body, indent=2) + "\n"
