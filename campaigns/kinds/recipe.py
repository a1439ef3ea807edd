"""Makes cells of another kind on Dask workers: from a job to the files of its folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaigns.dask_cell import Made, scratch
from campaigns.dask_executor import DaskExecutor
from campaigns.in_process_executor import Make
from campaigns.job import Job, utc_now, write_error
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.process_executor import Begun, Setting
from campaigns.run_store import RunStore
from campaigns.sameness import Code, Sameness

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Recipe:
    """Recipe of a cell on a worker: `make` is a function of a module, since it is sent by name."""

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
    started = time.monotonic()
    job = Job.model_validate_json(task.job).model_copy(update={"started_at": utc_now()})
    task.recipe.same.require(task.code, job)
    with tempfile.TemporaryDirectory(prefix="hotbed-cell-", dir=scratch()) as name:
        folder = Path(name)
        try:
            task.recipe.make(job, folder)
        except (Exception, SystemExit) as error:
            write_error(folder, error)
        return Made.of(folder, started)


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
