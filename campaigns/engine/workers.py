"""Workers for simulated cells: processes of this machine, or workers of a Dask cluster."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from schemas.campaign import Campaign
from schemas.errors import UserError

MOST_LOCAL = 1024
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")


@dataclass(frozen=True)
class Workers:
    """Workers for cells. `scheduler` is the address of a Dask scheduler. Without it, `count`
    processes of this machine do the work, by default one per processor.

    Raises:
        UserError: the address or the count is invalid.
    """

    scheduler: str | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.count is not None:
            raise UserError(
                "--workers is the number of processes on this machine, and --scheduler asks a "
                "cluster instead: give one of them."
            )
        if self.scheduler is not None and not _ADDRESS.fullmatch(self.scheduler):
            raise UserError(
                f"--scheduler {self.scheduler}: give the address of a Dask scheduler, such as "
                "tcp://10.0.0.1:8786 (or tls://)."
            )
        if self.count is not None and not 1 <= self.count <= MOST_LOCAL:
            raise UserError(f"--workers {self.count}: allowed are 1 to {MOST_LOCAL}.")

    @property
    def processes(self) -> int:
        """Number of processes on this machine; 0 if a cluster does the work."""
        if self.scheduler is not None:
            return 0
        return self.count or len(os.sched_getaffinity(0))


def available_mib() -> float | None:
    """Return the available memory of this machine in MiB; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return None


def one_testbed(campaign: Campaign, instead: str = "") -> UserError:
    """Return the error for a campaign without use for workers; `instead` names a ground."""
    return UserError(
        f"{campaign.name}: on the ground {campaign.ground} cells run one after another on one "
        f"testbed: --workers and --scheduler are for simulated ones{instead}."
    )
