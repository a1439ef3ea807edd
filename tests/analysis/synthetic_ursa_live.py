"""Run folders of open-loop writes with chosen values, to test the analysis. Never shown as a
result."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from schemas.run import OpSummary, Provenance, Run, Summary

SETTLED = {"ursa": 40.0, "htoc": 100.0, "upmap": None, "default": None}
COST = {"ursa": 12.0, "htoc": 60.0}
CALLED_S = 30.0


def write_open(
    campaign: Path,
    controller: str,
    block: int,
    *,
    osds: int = 10,
    pgs: int = 100,
    uplink: float | None = 300e6,
    ground: str = "local",
    scenario: str = "skew",
    rate: float = 24.0,
    **values: Any,
) -> Path:
    """Write one finished run; `values` change numbers of the summary's extra, or ``p99``."""
    parameters = {
        "op": "open",
        "scenario": scenario,
        "controller": controller,
        "rate": rate,
        "object_size": 262144,
        "duration_s": 360.0,
        "controller_parameters": {},
    }
    text = json.dumps([parameters, block, osds, uplink], sort_keys=True)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = campaign / run_id / "attempt-1"
    folder.mkdir(parents=True)
    extra: dict[str, float] = {"called_s": CALLED_S, "outstanding": 0.0}
    settled = values.pop("settled_s", SETTLED[controller])
    if settled is not None:
        settled *= 1 + 0.05 * block
        extra |= {"settled_strict_s": settled}
    stable_s = math.inf if settled is None else CALLED_S + settled
    if controller in COST:
        extra |= {"moves": 14.0, "first_moves": 12.0, "cost": COST[controller], "hot": 2.0}
    p99 = values.pop("p99", 3.0)
    extra |= values
    operation = OpSummary(
        op="open",
        seconds=180.0,
        operations=100,
        bytes=26214400,
        throughput_mb_s=0.1,
        iops=0.5,
        latency_mean_s=p99 / 5,
        latency_max_s=2 * p99,
        latency_p50_s=p99 / 10,
        latency_p99_s=p99,
        errors=0,
    )
    summary = Summary(whole=[operation], steady=[operation], pressure_mean={}, extra=extra)
    (folder / "summary.json").write_text(summary.model_dump_json())
    pd.DataFrame(
        {
            "t_s": [n / 10 for n in range(1800)],
            "latency_s": [5.0 if n / 10 < stable_s else 0.1 for n in range(1800)],
            "pg": ["1.0"] * 1800,
        }
    ).to_parquet(folder / "requests.parquet", index=False)
    run = Run(
        kind="dlr",
        run_id=run_id,
        campaign=campaign.name,
        attempt=1,
        block=block,
        order=0,
        seed=block,
        ground=ground,  # type: ignore[arg-type]
        parameters=parameters,
        time_scale=0.5,
        status="done",
        started_at="2024-01-01T00:00:00Z",
        ended_at="2024-01-01T00:03:00Z",
        phases_s={"workload": 180.0},
        osd_count=osds,
        provenance=Provenance(
            commit="0" * 40,
            dirty=False,
            hotbed_version="0",
            versions={"ceph": "16.2.15"},
            hosts={},
            site="local",
            signal="io_pressure",
            calibration={
                "spec": f"ursa-{osds}",
                "pools": [{"name": "bench", "pg_num": pgs}],
                "racks": {"count": 2, "uplink": uplink},
            },
        ),
    )
    (folder / "run.json").write_text(run.model_dump_json())
    return folder
