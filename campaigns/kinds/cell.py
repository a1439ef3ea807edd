"""What runs on a Dask worker for a campaign of another kind: one cell, from its job to the files of
its folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns.cell import Phases
from campaigns.dask_cell import Made, WrongWorker, scratch
from campaigns.dask_executor import DaskExecutor
from campaigns.in_process_executor import Make
from campaigns.job import Job, write_error
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.process_executor import Begun, Setting
from campaigns.run_store import RUN_FILE, RunStore, utc_now
from campaigns.sameness import Code, Sameness
from schemas.run import Run, Summary

if TYPE_CHECKING:
    from distributed import Client

SOURCES = (
    *("campaigns/kinds", "campaigns/cell.py", "campaigns/checked.py", "campaigns/dask_cell.py"),
    *("campaigns/job.py", "schemas"),
)
"""What every cell is made with on a worker, whichever kind it is of; part of `Code.sources`."""


@dataclass(frozen=True)
class Recipe:
    """How a cell is made on a worker.

    `make` is a function of a module and so are those of `same`: they travel by name, and a worker
    that has other ones is told by `same` and refused.
    """

    make: Make
    same: Sameness


@dataclass(frozen=True)
class Task:
    """A cell to be made: the attempt's job as JSON, and what it must be computed with."""

    job: str
    recipe: Recipe
    code: Code


def run_task(task: Task) -> Made:
    """Make the cell in a folder of its own; what it raised is in the file `error.json`.

    Raises:
        WrongWorker: this worker computes with something else.
    """
    same = task.recipe.same
    why = same.difference(task.code, same.here())
    if why is not None:
        raise WrongWorker(f"this worker {why}")
    started = time.monotonic()
    job = Job.model_validate_json(task.job).model_copy(update={"started_at": utc_now()})
    with tempfile.TemporaryDirectory(prefix="hotbed-cell-", dir=scratch()) as name:
        folder = Path(name)
        try:
            task.recipe.make(job, folder)
        except (Exception, SystemExit) as error:
            write_error(folder, error)
        return Made.of(folder, started)


def write_cell(
    folder: Path,
    job: Job,
    values: Mapping[str, float],
    phases: Phases,
    *,
    spoiled: str | None = None,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Run:
    """Write what a cell came to into its folder: `summary.json` and, last, `run.json`.

    Args:
        folder: the attempt's.
        job: the attempt's.
        values: numbers of the summary, by name.
        phases: how long each took.
        spoiled: why it does not count, if it does not.
        hosts: what made it, by name, where seconds are part of the result.
    """
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra=dict(values))
    (folder / "summary.json").write_text(summary.model_dump_json(indent=2) + "\n")
    if hosts is not None:
        named = {name: dict(facts) for name, facts in hosts.items()}
        told = job.provenance.model_copy(update={"hosts": named})
        job = job.model_copy(update={"provenance": told})
    record = job.record("done" if spoiled is None else "spoiled", spoiled, phases.seconds)
    # On the disk it is when the engine commits the folder.
    (folder / RUN_FILE).write_text(record.model_dump_json(indent=2) + "\n")
    return record


class RecipeExecutor(DaskExecutor):
    """See `DaskExecutor`; there is neither ground nor controller that would travel."""

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        ledger: Ledger,
        setting: Setting,
        *,
        recipe: Recipe,
        client: Client,
    ) -> None:
        super().__init__(plan, store, ledger, setting, ground=None, client=client)
        self._recipe = recipe

    def task(self, begun: Begun) -> Task:
        """See `DaskExecutor.task`."""
        return Task(begun.job.model_dump_json(), self._recipe, self._recipe.same.here())

    def work(self) -> Callable[[Any], Made]:
        """See `DaskExecutor.work`."""
        return run_task
