"""`Services` of a cell with open-loop writes on a deployed testbed.

The load is the disturbance: it runs before and after the controller's call. At the end the
controller's moves are undone, with disks and links unshaped if the site can.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from campaigns.papers.dlr.services import CellSetting
from campaigns.papers.dlr.steps import clean, fill, open_load
from campaigns.papers.dlr.steps.live import SLACK_S, LiveServices
from schemas.errors import HotbedError
from schemas.run import Summary
from testbed.agent.contract import Agent
from testbed.sites.contract import Site, Testbed
from workloads.open_loop import (
    OpenLoop,
    OpenLoopResult,
    run_open_loop,
    start_open_loop,
    stop_open_loop,
    wait_open_loop,
)

PLACEMENT_S = 60.0


class OpenLoopServices(LiveServices):
    """See `campaigns.papers.dlr.services.Services`."""

    def __init__(self, site: Site, testbed: Testbed, agent: Agent, setting: CellSetting) -> None:
        super().__init__(site, testbed, agent, setting)
        self._config: OpenLoop | None = None
        self._written: OpenLoopResult | None = None

    def clean(self) -> None:
        """See `Services.clean`."""
        clean.stop_everything(self._agent)
        clean.refuse_strays(self._agent)
        self._snapshots.undo_writes()
        with fill.unshaped(self._site, self._testbed.name):
            clean.put_right(self._agent)

    def prefill(self) -> None:
        """See `Services.prefill`; writes the objects that the load will overwrite."""
        pgs = self._placement()["pgs"]
        if not open_load.lacking(open_load.cell_of(self._setting), pgs):
            return
        config = open_load.filling(self._setting, self._pool, sorted(pgs))
        with fill.unshaped(self._site, self._testbed.name):
            run_open_loop(self._agent, self._client.name, config)
            self._snapshots.mark_prefilled()
            clean.put_right(self._agent)

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """See `Services.disturbance`."""
        told = self._placement()
        where = {pg: one["up"] for pg, one in told["pgs"].items()}
        load = open_load.load_of(open_load.cell_of(self._setting), where, self._setting.seed)
        open_load.write_load(self._setting, load, told)
        self._config = open_load.open_loop(self._setting, self._pool, load.rates)
        try:
            start_open_loop(self._agent, self._client.name, self._config)
            yield
        finally:
            stop_open_loop(self._agent, self._client.name)

    def workload(self) -> None:
        """See `Services.workload`. Waits until the load ends."""
        assert self._config is not None
        self._written = wait_open_loop(self._agent, self._client.name, self._config)
        if not self._written.done:
            raise HotbedError("not one write was done: the store did not take the load.")

    def not_restored(self) -> list[str]:
        """See `Services.not_restored`."""
        with fill.unshaped(self._site, self._testbed.name):
            return super().not_restored()

    def collect(self) -> Summary:
        """See `Services.collect`."""
        from campaigns.papers.dlr.steps.collect_open import collect, recorded_rows

        result = self._written
        assert result is not None
        fetched: dict[str, Any] = {}

        def recording() -> None:
            fetched["samples"] = self.fetch_recording()

        clean.at_once(recording, self.fetch_journal)
        rows = recorded_rows(result, fetched["samples"])
        return collect(self._setting, result, rows, nodes=self._nodes)

    def _placement(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._agent.call(
            "placement", {"pool": self._pool}, timeout_s=PLACEMENT_S
        )
        return answer

    @property
    def _most_s(self) -> float:
        return 2 * self._setting.duration_s + SLACK_S
