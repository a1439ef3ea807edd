"""Job of a testbed cell, as an engine would create it."""

from __future__ import annotations

from campaigns.engine.job import Job
from schemas.campaign import Kind, Limits
from schemas.cells import CellParameters
from schemas.run import Provenance


def job_with(parameters: CellParameters, testbed: str = "t", kind: Kind = "mos") -> Job:
    """Return a job in block 0 with seed 7 on a local testbed."""
    return Job(
        kind=kind,
        run_id="r1",
        campaign="c",
        attempt=1,
        block=0,
        order=0,
        seed=7,
        ground="local",
        parameters=parameters.model_dump(mode="json"),
        time_scale=1.0,
        testbed=testbed,
        notebook="",
        timeout_s=60.0,
        started_at="2026-01-01T00:00:00Z",
        limits=Limits(),
        provenance=Provenance(
            commit=None,
            dirty=None,
            hotbed_version="0",
            versions={},
            hosts={},
            site="fake",
            signal=None,
        ),
    )
