"""Bundles of a single simulated run, with additional files chosen by a test."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.analysis.synthetic import write_run
from tests.campaigns.bundled_files import SPEC
from tests.campaigns.tiny_campaigns import TINY

CAMPAIGN = "dlr-tiny"
GRID = {
    "name": "fig6",
    "figures": ["6a"],
    "fixed": {"scenario": "heterogeneity"},
    "repetitions": 1,
}


def contents(place: Path, controller: str = "default", **campaign: Any) -> dict[str, bytes]:
    """Return files by name: a campaign, its spec and a run of `controller` without samples."""
    grid = {**GRID, "vary": {"op": ["seq"], "controller": [controller]}}
    body = {**TINY, "name": CAMPAIGN, "paper": "dlr", "ground": "sim", "grids": [grid]}
    body |= {"spec": "../specs/dlr.yaml", **campaign}
    folder = place / "artifacts" / CAMPAIGN
    parameters = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
    run = write_run(folder, parameters, 0, 100.0, ground="sim", with_samples=False)
    job = {"controllers_dir": "/x", "parameters": parameters}
    (run / "job.json").write_text(json.dumps(job))
    record = {"campaign": body, "cells": [{"run_id": run.parent.name, "grids": ["fig6"]}]}
    (folder / "campaign.json").write_text(json.dumps(record))
    files = {path.relative_to(place).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        f"campaigns/{CAMPAIGN}.yaml": yaml.safe_dump(body).encode(),
        "specs/dlr.yaml": SPEC.read_bytes(),
        **{name: path.read_bytes() for name, path in files.items() if path.is_file()},
    }


def run_folder(files: Mapping[str, bytes]) -> str:
    """Return the folder of the run."""
    return next(name for name in files if name.endswith("/run.json")).removesuffix("/run.json")


def pack(target: Path, files: Mapping[str, bytes], **manifest: Any) -> Path:
    """Write a bundle of these files with a correct manifest, changed by `manifest`."""
    body = {
        "report": CAMPAIGN,
        "campaigns": [CAMPAIGN],
        "hotbed_version": "0.1.0",
        "commit": None,
        "libraries": {},
        "files": [
            {
                "path": name,
                "sha256": hashlib.sha256(data).hexdigest(),
                "bytes": len(data),
                "role": "run" if "/attempt-" in name else "source",
            }
            for name, data in files.items()
        ],
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
        made.writestr("manifest.json", json.dumps(body | manifest))
    return target
