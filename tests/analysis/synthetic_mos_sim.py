"""Run folders of COSPerf with chosen values, to test the analysis. Never shown as a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic_runs import finished

from analysis.papers.mos.scale_runs import SERIES_FILE
from schemas.cells.mos import COSPERF, PerfCell
from schemas.run import Summary

EPOCH_S = 900.0
EPOCHS = 56
BASE = {"A": 4000.0, "B": 2000.0, "C": 40.0, "D": 20.0}
BYTES = {"A": 6e4, "B": 6e4, "C": 6e7, "D": 6e7}
GAIN = {"A": 1.10, "B": 1.20, "C": 1.15, "D": 1.05}
PEAK = {("A", 30): 1.5, ("D", 31): 1.4, ("A", 45): 1.6, ("B", 50): 1.3}
"""Extra advantage of MOS++, by tenant and epoch."""


def rate(policy: str, tenant: str, epoch: int, parameters: PerfCell, block: int) -> float:
    """Return the reported rate of served requests of a run."""
    found = BASE[tenant] * (1 + 0.1 * block)
    if policy == "static":
        return 0.7 * found
    if policy == "mos":
        return found
    cost = 0.3 if parameters.learns else 0.6
    gain = GAIN[tenant] * (1 - cost * parameters.model_error) * (1 + 0.01 * block)
    return found * gain * PEAK.get((tenant, epoch), 1.0)


def write_run(campaign: Path, block: int, **cell: Any) -> Path:
    """Write one finished run."""
    parameters = COSPERF.of(**cell)
    run, folder = finished(
        campaign,
        block,
        "mos",
        parameters.model_dump(mode="json"),
        ground="sim",
        phase="simulate",
        site="cosperf",
        calibration={"simulated": True},
    )
    series = _series(parameters, block)
    (folder / SERIES_FILE).write_text(json.dumps(series))
    summary = Summary(whole=[], steady=[], pressure_mean={}, extra={"A_requests_s": 1.0})
    (folder / "summary.json").write_text(summary.model_dump_json())
    (folder / "run.json").write_text(run.model_dump_json())
    return folder


def _series(parameters: PerfCell, block: int) -> dict[str, Any]:
    rates = {
        tenant: [
            rate(parameters.policy, tenant, epoch, parameters, block) for epoch in range(EPOCHS)
        ]
        for tenant in BASE
    }
    share = 0.25 if parameters.policy == "mos" else 0.2
    return {
        "minutes": 840.0,
        "t_s": [EPOCH_S * (epoch + 1) for epoch in range(EPOCHS)],
        "seconds": [EPOCH_S] * EPOCHS,
        "tenants": {
            tenant: {
                "requests_s": values,
                "bytes_s": [value * BYTES[tenant] for value in values],
                "latency_s": [0.1] * EPOCHS,
            }
            for tenant, values in rates.items()
        },
        "held": {
            tenant: {
                name: [(0.25 if name == "storage_cores" else share) * 200] * EPOCHS
                for name in _POOL
            }
            for tenant in BASE
        },
        "pool": dict.fromkeys(_POOL, 200.0),
    }


_POOL = ("proxy_cores", "storage_cores", "network", "ssds", "hdds")


def write_all(campaign: Path, blocks: int = 3) -> Path:
    """Write every cell of `mos-sim`."""
    for block in range(blocks):
        for policy in ("static", "mos", "mos-pp"):
            write_run(campaign, block, policy=policy)
        for error in (0.1, 0.2, 0.3):
            write_run(campaign, block, policy="mos-pp", model_error=error)
        for error in (0.0, 0.1, 0.2, 0.3):
            cell = {"policy": "mos-pp", "model_error": error, "runs": "same"}
            write_run(campaign, block, **cell)
            write_run(campaign, block, **cell, learns=False)
        for policy in ("mos", "mos-pp"):
            write_run(campaign, block, policy=policy, cost_factor=10)
            write_run(campaign, block, policy=policy, profile="local")
    return campaign
