"""Workload of metadata operations: `rados touch` on many objects."""

from collections.abc import Mapping

from schemas.errors import UserError
from schemas.run import OpSummary
from workloads.contract import WorkloadNode


class Touch:
    def __init__(self, options: Mapping[str, object]) -> None:
        if set(options) - {"objects"}:
            raise UserError("has the option objects only", where="workload touch")
        self._objects = int(str(options.get("objects", 100)))

    def prepare(self, client: WorkloadNode) -> None:
        client.shell.run(["rados", "-p", client.pool, "put", "touched", "/dev/null"])

    def run(self, client: WorkloadNode, duration_s: float, seed: int) -> OpSummary:
        script = f"for n in $(seq {self._objects}); do rados -p {client.pool} touch touched; done"
        client.shell.run(["timeout", str(duration_s), "sh", "-c", script], check=False)
        return OpSummary(
            op="touch",
            seconds=duration_s,
            operations=self._objects,
            bytes=0,
            throughput_mb_s=None,
            iops=self._objects / duration_s,
            latency_mean_s=duration_s / self._objects,
        )
