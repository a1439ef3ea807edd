"""Finished run of any kind, as its folder would describe it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.run import Provenance, Run, Summary


def written(
    campaign: Path,
    block: int,
    kind: str,
    parameters: Mapping[str, Any],
    summary: Summary | Mapping[str, float],
    **options: Any,
) -> Path:
    """Write a run and its summary, or a summary with these numbers alone; return the folder. See
    `record` for the options."""
    run = record(campaign.name, block, kind, parameters, **options)
    folder = campaign / run.run_id / f"attempt-{run.attempt}"
    folder.mkdir(parents=True)
    if not isinstance(summary, Summary):
        summary = Summary(whole=[], steady=[], pressure_mean={}, extra=dict(summary))
    (folder / "run.json").write_text(run.model_dump_json())
    (folder / "summary.json").write_text(summary.model_dump_json())
    return folder


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
    versions: Mapping[str, str] | None = None,
    signal: str | None = None,
    name: str = "",
    **changes: Any,
) -> Run:
    """Return a finished run without a folder, with `changes` of its fields; `name` distinguishes
    runs of equal parameters."""
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
                versions=dict(versions or {}),
                hosts=dict(hosts or {}),
                site=site,
                signal=signal,
                calibration=dict(calibration or {}),
            ),
        }
        | changes
    )
