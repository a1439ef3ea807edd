"""`Services` of a cell with a COSBench workload on a deployed testbed's object gateway (S3).

Everything except the load is as with rados bench: hotspots, recorder, controllers. The objects to
read are written once, with disks and links unshaped, and serve every controller.
"""

from __future__ import annotations

from typing import Any

from campaigns.papers.dlr.services import CellSetting
from campaigns.papers.dlr.steps import clean, disturb, fill
from campaigns.papers.dlr.steps.gateway_load import PREPARING, mark_of, tenant_of, workload_of
from campaigns.papers.dlr.steps.live import SLACK_S, LiveServices
from schemas.errors import HotbedError
from schemas.run import Summary
from testbed.agent.contract import Agent
from testbed.reach import shell_to
from testbed.sites.contract import Progress, Site, Testbed, silent
from testbed.ssh import Shell
from workloads.cosbench.archive import Archive
from workloads.cosbench.credentials import filled
from workloads.cosbench.driver import DriveOptions, Load, install, run_on, tenant
from workloads.cosbench.workload import to_xml

PREPARE_S = 900.0
_STAT_S = 30.0


class GatewayServices(LiveServices):
    """See `campaigns.papers.dlr.services.Services`."""

    def __init__(self, site: Site, testbed: Testbed, agent: Agent, setting: CellSetting) -> None:
        super().__init__(site, testbed, agent, setting)
        self._tenant = tenant_of(self._spec)
        self._workload = workload_of(setting)
        self._archive: Archive | None = None

    def prefill(self) -> None:
        """See `Services.prefill`; writes the objects to read and installs the driver."""
        shell, mark = self._shell(self._client.name), mark_of(self._workload)
        install(shell)
        where = ["rados", "-p", self._pool]
        if shell.run([*where, "stat", mark], timeout_s=_STAT_S, check=False).returncode == 0:
            return
        with fill.unshaped(self._site, self._testbed.name):
            load = self._load(f"{self._workload.name}-prepare", PREPARING, PREPARE_S)
            self._drive(load)
            shell.run([*where, "put", mark, "/dev/null"], timeout_s=_STAT_S)
            self._snapshots.mark_prefilled()
            clean.put_right(self._agent)

    def workload(self) -> None:
        """See `Services.workload`."""
        disturbed = any(stretch.loads for stretch in self._plan.stretches)
        told: list[str] = []

        def begun(phase: str, _share: float) -> None:
            if disturbed and not told:
                self._agent.call("disturb-go", {})
            told.append(phase)

        load = self._load(self._workload.name, ("main",), self._setting.duration_s + SLACK_S)
        self._archive = self._drive(load, begun)

    def collect(self) -> Summary:
        """See `Services.collect`."""
        from campaigns.papers.dlr.steps.collect_gateway import collect

        archive = self._archive
        assert archive is not None
        fetched: dict[str, Any] = {}

        def disturbance() -> None:
            fetched["log"] = disturb.write_log(self._agent, self._plan, self._setting.folder)

        def recording() -> None:
            fetched["samples"] = self.fetch_recording()

        clean.at_once(disturbance, recording, self.fetch_journal)
        return collect(
            self._setting, archive, fetched["samples"], fetched["log"], nodes=self._nodes
        )

    def _load(self, name: str, stages: tuple[str, ...], max_s: float) -> Load:
        access = tenant(self._shell(self._client.name), self._tenant)
        xml = filled(to_xml(self._workload, stages), access.for_cosdrive(), name)
        options = DriveOptions(seed=self._setting.seed)
        return Load(name, self._client.name, xml, max_s, options)

    def _drive(self, load: Load, progress: Progress = silent) -> Archive:
        folder = self._setting.folder / "logs" / "cosbench"
        drives = run_on(self._agent, self._shell, [load], folder, progress)
        archive = drives[load.name].archive
        if not archive.finished:
            raise HotbedError(
                f"workload {load.name} did not complete on the object gateway: its archive is in "
                f"{folder / load.name}."
            )
        return archive

    def _shell(self, node: str) -> Shell:
        return shell_to(self._testbed, self._testbed.node(node))
