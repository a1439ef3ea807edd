"""Contract of a workload from an installed package (docs/extensions.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.run import OpSummary
from testbed.ssh import Shell


@dataclass(frozen=True)
class WorkloadNode:
    """Node that runs a workload. `shell` runs commands there as root; `pool` is the store's first
    pool."""

    shell: Shell
    pool: str


class Workload(Protocol):
    """Load of one cell. The entry point names a function that takes the cell's ``options`` and
    returns the load, or raises UserError for wrong options; it is called before anything starts."""

    def prepare(self, client: WorkloadNode) -> None:
        """Write what `run` reads. Each cell begins with the deployed store and calls this, with
        disks and links at full speed if the site shapes them."""

    def run(self, client: WorkloadNode, duration_s: float, seed: int) -> OpSummary:
        """Run the load for `duration_s` seconds, and return its results. `seed` is the same for
        every controller of a block. HotbedError: the load failed."""
