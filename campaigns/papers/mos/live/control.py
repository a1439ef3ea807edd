"""Parameters of a controller: the SLAs of both tenants (sections 6 and 8.1), and cospurf."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.papers.mos.division import LARGE, SMALL, Share
from campaigns.papers.mos.profile.check import most_of
from campaigns.papers.mos.profile.fit import fit
from campaigns.papers.mos.profile.points import place, read_points
from controllers.microstores.performance import ClassTable
from schemas.cells.mos import TwoStores
from testbed.simulated.cosperf.classes import local

PLENTY = 1e6
"""Requests a second of disks that all microstores share and that limit none."""


def controller_parameters(parameters: TwoStores, pool: Share) -> dict[str, Any]:
    """Return the parameters of MOS, which has no SLAs, or of MOS++ on a pool."""
    if parameters.setup == "mos":
        return {}
    bandwidth = {"bandwidth_mb_s": parameters.bandwidth_sla_mb_s, "per_worker": True}
    return {
        "model": model(place(parameters.profile), parameters.large_mb, pool),
        "tenants": {
            SMALL: {"workload": "A", "sla": {"latency_ms": parameters.latency_sla_ms}},
            LARGE: {"workload": "C", "sla": bandwidth},
        },
    }


@cache
def model(profile: Path, large_mb: int, pool: Share) -> dict[str, Any]:
    """Return cospurf of the points in the file `profile`, for large objects of 1 to `large_mb` MB.
    Disks are never a limit. Curves are extended linearly to the whole pool. Otherwise a table
    promises nothing beyond its last point, and no store would get more than was measured."""
    points = read_points(profile).runs
    seen = most_of(points)
    most = replace(
        seen,
        proxy_cores=max(seen.proxy_cores, pool.proxy_cores),
        storage_cores=max(seen.storage_cores, pool.storage_cores),
        network=max(seen.network, pool.network),
    )
    known = fit(points, most, profile.stem)
    large = sized(known.tables["C"], known.tables["A"], large_mb)
    found = replace(known, tables={**known.tables, "C": large}).to_json()
    for table in found["classes"].values():
        table["curves"] |= {"ssds": [[0.0, PLENTY]], "hdds": [[0.0, 0.0]]}
    return found


def sized(large: ClassTable, small: ClassTable, large_mb: float) -> ClassTable:
    """Return the table for large objects of 1 to `large_mb` MB. The network carries bytes. The CPU
    cost of a request rises with its bytes, on the line through both classes."""
    usual = local("C")
    wanted = usual.payload * (1 + large_mb) * 1e6 / (usual.low + usual.high)
    factor = wanted / large.workload.mean_bytes
    if math.isclose(factor, 1):
        return large
    size = large.workload.mean_bytes
    at = (factor * size - small.workload.mean_bytes) / (size - small.workload.mean_bytes)

    def faster(name: str) -> float:
        costs = []
        for table in (small, large):
            amount, rate = getattr(table, name).points[-1]
            costs.append(amount / rate)
        low, high = costs
        return high / (low + at * (high - low)) if high > low else 1.0

    found = large.resized(replace(large.workload, mean_bytes=factor * size))
    curves = {
        name: getattr(found, name).times(faster(name)) for name in ("proxy_cores", "storage_cores")
    }
    return replace(found, idle_s=large.idle_s / faster("proxy_cores"), **curves)
