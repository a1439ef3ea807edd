"""What a controller is told: the SLAs of both tenants (sections 6 and 8.1), and cospurf."""

from __future__ import annotations

from functools import cache
from typing import Any

from campaigns.mos.division import LARGE, SMALL
from campaigns.mos.parameters import MosParameters
from campaigns.mos.profile.check import most_of
from campaigns.mos.profile.fit import fit
from campaigns.mos.profile.points import reference

PLENTY = 1e6
"""Requests a second of disks that all microstores share and that limit none."""


def controller_parameters(parameters: MosParameters) -> dict[str, Any]:
    """Parameters of MOS, which knows no SLAs, or of MOS++."""
    if parameters.setup == "mos":
        return {}
    return {
        "model": model(),
        "tenants": {
            SMALL: {"workload": "A", "sla": {"latency_ms": parameters.latency_sla_ms}},
            LARGE: {"workload": "C", "sla": {"bandwidth_mb_s": parameters.bandwidth_sla_mb_s}},
        },
    }


@cache
def model() -> dict[str, Any]:
    """Cospurf of the local testbed (docs/mos.md), its disks never a limit."""
    points = reference("local").runs
    found = fit(points, most_of(points), "local").to_json()
    for table in found["classes"].values():
        table["curves"] |= {"ssds": [[0.0, PLENTY]], "hdds": [[0.0, 0.0]]}
    return found
