"""Applications that write in bursts, after the three most write-intensive ones on Intrepid (Table
II of Dai et al., SC 2014, from Liu et al., MSST 2012), as section VI.B mimics them on a cluster:
one job like PlasmaPhysics on all compute nodes and servers, ten like AstroPhysics on half of them,
ten like Turbulence2 on a quarter. Each writes its own file, starting at a random server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PAPER_WRITE = 4_000_000
"""Bytes of one write of a process in the paper's mimicry."""


@dataclass(frozen=True)
class WriteIntensive:
    """Row of Table II, and its mimicry.

    Attributes:
        name: name of the application.
        intrepid_nodes: nodes that it ran on.
        node_bytes: bytes that a node wrote in a burst.
        times: number of bursts.
        jobs: number of such jobs in the mimicry.
        share: share of compute nodes and servers that a job has, 0 to 1.
    """

    name: str
    intrepid_nodes: int
    node_bytes: float
    times: int
    jobs: int
    share: float


TABLE2 = (
    WriteIntensive("PlasmaPhysics", 32_768, 1.0e9, 1, 1, 1.0),
    WriteIntensive("AstroPhysics", 8_096, 50e6, 9, 10, 0.5),
    WriteIntensive("Turbulence2", 4_096, 59.0e6, 22, 10, 0.25),
)


@dataclass(frozen=True)
class BurstCluster:
    """Cluster of the mimicry: compute nodes with their processes, and object servers."""

    nodes: int
    processes: int
    servers: int

    def part(self, count: int, share: float) -> int:
        """Return this share of `count`, at least one."""
        return max(1, round(count * share))


def bursts_of(row: WriteIntensive, processes: int, volume: float) -> tuple[int, int]:
    """Return the bursts of a job's process and the writes in each, if all write `volume` times
    Table II's amount: fewer writes first, then fewer bursts; at least one write."""
    writes = max(1, round(volume * row.times * row.node_bytes / (processes * PAPER_WRITE)))
    bursts = min(row.times, writes)
    return bursts, max(1, round(writes / bursts))


def applications(
    cluster: BurstCluster,
    seed: int,
    *,
    size: int,
    volume: float,
    think_s: float,
    scheduler: str,
    background: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the 21 jobs, as the plan of ``twochoicebench apps`` names them.

    Args:
        cluster: their cluster.
        seed: seed of each job's compute nodes and of its file's first server.
        size: bytes of a write; the paper's writes are of 4 MB.
        volume: part of Table II's writes to make.
        think_s: pause between bursts, seconds.
        scheduler: places their writes.
        background: True if they end with the foreground work.
    """
    drawn = random.Random(f"applications {seed}")
    for row in TABLE2:
        bursts, writes = bursts_of(row, cluster.processes, volume)
        for job in range(row.jobs):
            yield {
                # The file's name decides its first server.
                "name": f"{row.name}-{job}-{drawn.getrandbits(32):08x}",
                "scheduler": scheduler,
                "first_node": drawn.randrange(cluster.nodes),
                "nodes": cluster.part(cluster.nodes, row.share),
                "width": cluster.part(cluster.servers, row.share),
                "bursts": bursts,
                "writes": writes,
                "size": size,
                "think": think_s,
                "background": background,
            }
