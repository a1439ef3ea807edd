"""`Services` of a cell with the workload of an installed package (`workloads.contract`)."""

from __future__ import annotations

from campaigns.engine.write_cell import write_samples
from campaigns.grounds.live import LiveTestbed
from campaigns.papers.dlr.cell import CellSetting
from campaigns.papers.dlr.live import BenchServices
from campaigns.papers.dlr.measure import disturbing_reads, mean_pressure, recorded_rows
from schemas import extensions
from schemas.cells.dlr import OtherWorkload
from schemas.run import OpSummary, Summary
from workloads.contract import Workload, WorkloadNode

CLOCK_S = 30.0


class OtherServices(BenchServices):
    """See `campaigns.papers.dlr.cell.Services`. Hotbed does not know what the workload writes, so
    that each cell restores the store's snapshot."""

    def __init__(self, live: LiveTestbed, setting: CellSetting) -> None:
        super().__init__(live, setting)
        assert isinstance(setting.parameters, OtherWorkload)
        cell = setting.parameters
        self._load: Workload = extensions.make("workload", cell.workload, dict(cell.options))
        self._at = WorkloadNode(live.shell_to(self._client.name), self._pool)
        self._began = 0.0
        self._found: OpSummary | None = None

    def prefill(self) -> None:
        self._snapshots.mark_written(f"hotbed-{self._setting.run_id}")
        with self._live.unshaped():
            self._load.prepare(self._at)
            self._live.put_right()

    def workload(self) -> None:
        self._began = float(self._at.shell.run(["date", "+%s.%N"], timeout_s=CLOCK_S).text)
        self.move_loads()
        found = self._load.run(self._at, self._setting.duration_s, self._setting.seed)
        self._found = found.model_copy(update={"op": self._setting.parameters.op})

    def collect(self) -> Summary:
        found = self._found
        assert found is not None
        recording, log = self.fetch()
        samples = write_samples(self._setting.folder, recorded_rows(recording, self._began))
        return Summary(
            whole=[found],
            steady=[found],
            pressure_mean=mean_pressure(samples, self._nodes, found.seconds),
            extra=disturbing_reads(log),
        )
