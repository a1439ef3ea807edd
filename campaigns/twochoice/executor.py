"""Makes the attempts of simulated bursts on Dask workers: the engine's executor, another task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from campaigns.dask_cell import Made
from campaigns.dask_executor import DaskExecutor
from campaigns.ledger import Ledger
from campaigns.plan import Plan
from campaigns.process_executor import Begun, Setting
from campaigns.run_store import RunStore
from campaigns.twochoice.cell import Task, run_task
from campaigns.twochoice.code import here

if TYPE_CHECKING:
    from distributed import Client


class BurstExecutor(DaskExecutor):
    """See `DaskExecutor`; there is neither ground nor controller that would travel."""

    def __init__(
        self, plan: Plan, store: RunStore, ledger: Ledger, setting: Setting, client: Client
    ) -> None:
        super().__init__(plan, store, ledger, setting, ground=None, client=client)

    def task(self, begun: Begun) -> Task:
        """See `DaskExecutor.task`."""
        return Task(begun.job.model_dump_json(), here())

    def work(self) -> Callable[[Any], Made]:
        """See `DaskExecutor.work`."""
        return run_task
