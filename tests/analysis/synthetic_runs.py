"""Finished run of any kind, as its folder would describe it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.run import Provenance, Run


def finished(
    campaign: Path,
    block: int,
    kind: str,
    parameters: Mapping[str, Any],
    **options: Any,
) -> tuple[Run, Path]:
    """Create a run's folder and return run and folder; the caller writes the run's files. See
    `record` for the options."""
    run = record(campaign.name, block, kind, parameters, **options)
    folder = campaign / run.run_id / "attempt-1"
    folder.mkdir(parents=True)
    return run, folder


def record(
    campaign: str,
    block: int,
    kind: str,
    parameters: Mapping[str, Any],
    *,
    ground: str = "local",
    phase: str = "workload",
    site: str = "local",
    calibration: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Any] | None = None,
    name: str = "",
) -> Run:
    """Return a finished run without a folder; `name` distinguishes runs of equal parameters."""
    text = json.dumps([parameters, block, *([name] if name else [])], sort_keys=True)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:12]
    return Run.model_validate(
        {
            "kind": kind,
            "run_id": run_id,
            "campaign": campaign,
            "attempt": 1,
            "block": block,
            "order": 0,
            "seed": 100 + block,
            "ground": ground,
            "parameters": parameters,
            "time_scale": 1.0,
            "status": "done",
            "started_at": "2026-01-01T00:00:00Z",
            "ended_at": "2026-01-01T00:00:01Z",
            "phases_s": {phase: 1.0},
            "provenance": Provenance(
                commit="0" * 40,
                dirty=False,
                hotbed_version="0",
                versions={},
                hosts=dict(hosts or {}),
                site=site,
                signal=None,
                calibration=dict(calibration or {}),
            ),
        }
    )
