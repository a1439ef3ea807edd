"""Carry out a prepared campaign with its locks held: recover, choose the executor, run."""

from __future__ import annotations

import datetime
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from campaigns.engine.attempts import (
    AttemptRecords,
    Executor,
    InProcess,
    OneAtATime,
    Runner,
    Setting,
)
from campaigns.engine.disk import Reserve, require_room
from campaigns.engine.engine import Engine, pending
from campaigns.engine.estimate import Estimator
from campaigns.engine.kind import Prepared
from campaigns.engine.ledger import Ledger
from campaigns.engine.plan import Plan
from campaigns.engine.progress import Progress
from campaigns.engine.result import CampaignResult
from campaigns.engine.run_store import RunStore
from campaigns.engine.sameness import Recipe
from campaigns.engine.workers import Workers
from schemas.durable import write_file
from schemas.run import Run

CAMPAIGN_FILE = "campaign.json"
LEDGER_FILE = "ledger.jsonl"
AROUND_S = 60.0
"""Upper bound of the seconds that a cell's process needs before and after its phases."""


@dataclass(frozen=True)
class OnWorkers:
    """Dask workers that make cells by `recipe`; they are started only if a cell is pending."""

    workers: Workers
    recipe: Recipe


def make_cells(
    prepared: Prepared, setting: Setting, how: Runner | OnWorkers, shown: Progress
) -> CampaignResult:
    """Recover the attempts of a dead engine, and make every pending cell.

    Args:
        prepared: the campaign; its locks are held.
        setting: the settings that its attempts share.
        how: the maker of the cells.
        shown: the progress display.
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
            from campaigns.engine.dask_workers import DaskExecutor, open_cluster

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
    """Correct the estimate with the finished runs."""
    cells = {cell.run_id: cell for cell in plan.cells}
    for run in store.runs():
        if run.status == "done" and run.run_id in cells:
            estimator.observe(cells[run.run_id], took_s(run))


def took_s(run: Run) -> float:
    """Return the duration of a run in seconds. Start and end are wall-clock times. If they do not
    fit the run's phases, the clock was set meanwhile, and the sum of the phases is returned."""
    start = datetime.datetime.fromisoformat(run.started_at)
    elapsed = (datetime.datetime.fromisoformat(run.ended_at) - start).total_seconds()
    phases = sum(run.phases_s.values())
    return elapsed if phases <= elapsed <= phases + AROUND_S or not phases else phases


def finished_folders(store: RunStore, most: int = 50) -> list[Path]:
    """Return folders of at most `most` finished attempts, for estimating their size."""
    return list(store.folder.glob("*/attempt-*"))[:most] if store.folder.is_dir() else []


def _description(prepared: Prepared) -> str:
    """Return the text of campaign.json. `cells` are all current cells of the campaign, so that runs
    of earlier code or an earlier file can be recognized."""
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
