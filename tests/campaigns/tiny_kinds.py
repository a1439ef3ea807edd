"""Tiny campaigns of every kind that needs no Ceph testbed, and jobs of their cells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from campaigns.engine.job import Job
from schemas.campaign import Kind
from schemas.cells import CellParameters
from schemas.run import Provenance

URSA: Mapping[str, Any] = {
    "name": "ursa-tiny",
    "paper": "ursa",
    "planner": "ursa",
    "profile": "quick",
    "parameters": {"time_limit_s": 20},
    "grids": [
        {
            "name": "methods",
            "figures": ["11"],
            "vary": {"size": ["20-400", "30-900"], "method": ["alp", "htoc"]},
            "fixed": {"kind": "s2"},
            "repetitions": 3,
        }
    ],
}
TWOCHOICE: Mapping[str, Any] = {
    "name": "twochoice-tiny",
    "paper": "twochoice",
    "simulation": "twochoice",
    "profile": "quick",
    "parameters": {"size": "20-200", "rounds": 2, "learn_rounds": 1},
    "grids": [
        {
            "name": "response",
            "figures": ["3"],
            "vary": {"scheduler": ["fixed", "both"], "straggler_ratio": [0, 0.1]},
            "repetitions": 3,
        }
    ],
}
PM: Mapping[str, Any] = {
    "name": "pm-tiny",
    "paper": "prioritymeister",
    "system": "prioritymeister",
    "profile": "quick",
    "parameters": {"seconds": 12, "slo_percentile": 99},
    "grids": [
        {
            "name": "disk",
            "figures": ["5"],
            "vary": {"policy": ["pm", "ps"], "k": [2, 4]},
            "fixed": {"scenario": "disk"},
            "repetitions": 3,
        }
    ],
}
TINY = {"planner": URSA, "simulation": TWOCHOICE, "system": PM}
"""Campaigns by the key that determines the kind of a file."""

CELLS: Mapping[str, Mapping[str, Any]] = {
    "planner": {"size": "20-400", "method": "htoc"},
    "simulation": {"size": "20-400", "scheduler": "two-choice"},
    "system": {"scenario": "disk"},
}
"""Parameters of a cell of each kind."""


def written(folder: Path, body: Mapping[str, Any], **changes: Any) -> Path:
    """Write `body` with changes as a campaign file."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(dict(body) | changes))
    return path


def job(parameters: Mapping[str, Any], kind: Kind = "ursa", **changes: Any) -> Job:
    """Return a job of a cell with these parameters and seed 5, with changes."""
    made = Job(
        kind=kind,
        run_id="0" * 12,
        campaign="tiny",
        attempt=1,
        block=0,
        order=0,
        seed=5,
        ground="sim",
        parameters=dict(parameters),
        time_scale=1.0,
        testbed="x",
        notebook="tiny.yaml",
        timeout_s=60,
        started_at="2026-01-01T00:00:00+00:00",
        provenance=Provenance(
            commit=None,
            dirty=None,
            hotbed_version="0",
            versions={},
            hosts={},
            site="x",
            signal=None,
        ),
    )
    return made.model_copy(update=changes)


def job_with(parameters: CellParameters, testbed: str = "t", kind: Kind = "mos") -> Job:
    """Return a job of a cell on a local testbed, with seed 7."""
    cell = parameters.model_dump(mode="json")
    return job(cell, kind, testbed=testbed, ground="local", seed=7)
