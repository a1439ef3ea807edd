"""Run folders, and bundles of the files that made the runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaigns.bundled import sources
from campaigns.engine.campaign_file import ROOT
from schemas.bundle import Sources

SPEC = ROOT / "testbed" / "specs" / "dlr.yaml"


def folder_of(place: Path, body: dict[str, Any], **identity: Any) -> Path:
    folder = place / str(body["name"])
    folder.mkdir(parents=True)
    record = {"campaign": body, "identity": identity, "cells": []}
    (folder / "campaign.json").write_text(json.dumps(record))
    return folder


def ran(folder: Path, *jobs: Mapping[str, Any]) -> Path:
    """Write one attempt per job to the folder and return the folder."""
    for index, job in enumerate(jobs):
        attempt = folder / str(index) / "attempt-1"
        attempt.mkdir(parents=True)
        (attempt / "job.json").write_text(json.dumps(job))
    return folder


def found_in(place: Path, *folders: Path) -> Sources:
    """Return the sources to bundle for campaigns with all attempts; `place` has enough space."""
    scratch = place / f"scratch-{len(list(place.glob('scratch-*')))}"
    scratch.mkdir()
    return sources({one: sorted(one.glob("*/attempt-*")) for one in folders}, scratch)


def unpacked(place: Path, *folders: Path) -> Path:
    """Write campaigns as a bundle holds them: the sources of the runs and the run folders."""
    bundle = place / "bundle"
    for name, file in found_in(place, *folders).files.items():
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(file.read_bytes())
    for folder in folders:
        shutil.copytree(folder, bundle / "artifacts" / folder.name)
    return bundle
