"""Store in this process: what is read at once costs nothing."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from campaigns.engine.judge import MachineLoad
from campaigns.engine.provenance import Facts
from campaigns.papers.dlr.cell import CellSetting, Services, in_order
from schemas.run import OpSummary, Summary
from testbed.stores.contract import Needs


class Shelf:
    name = "shelf"
    site = None

    def __init__(self, spec: Path | None) -> None:
        self.spec = spec

    def facts(self) -> Facts:
        return Facts("shelf", {"shelf": "1.0"}, {"here": {"cpus": 1}}, osd_count=8)

    def offers(self) -> Needs:
        return Needs()

    def services(self, setting: CellSetting) -> Services:
        return Steps(setting)

    def lock_path(self) -> Path | None:
        return None


class Steps(Services):
    """The steps that are not here do nothing."""

    def __init__(self, setting: CellSetting) -> None:
        self._setting = setting

    def at_once(self, *calls: Any) -> list[Any]:
        return in_order(*calls)

    def _nothing(self) -> AbstractContextManager[None]:
        return nullcontext()

    disturbance = recorder = controller = usage = _nothing

    def load(self) -> MachineLoad:
        return MachineLoad(0.0, 0.0, 0.0)

    def not_restored(self) -> list[str]:
        return []

    def collect(self) -> Summary:
        found = OpSummary(
            op=self._setting.parameters.op,
            seconds=self._setting.duration_s,
            operations=100,
            bytes=100,
            throughput_mb_s=42.0,
            iops=100.0,
            latency_mean_s=0.01,
        )
        return Summary(whole=[found], steady=[found], pressure_mean={})
