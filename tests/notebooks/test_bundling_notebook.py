"""Notebook that prepares a campaign's results for submission: it needs no testbed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from places import HUB_BYTES, Place, execute
from synthetic import write_figure_6
from tiny_campaigns import TINY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def ran(artifacts: Path) -> str:
    """Write made-up runs of a small campaign, with a trace of their machines."""
    name = "dlr-tiny"
    grid = {"name": "fig6", "figures": ["6a"], "vary": {"op": ["seq"]}}
    speeds = {"default": 100.0, "dlr": 125.0}
    log = "osd0 is at 10.7.0.3\n"
    cells = write_figure_6(artifacts / name, speeds, "seq", log=log)
    body = {**TINY, "name": name, "ground": "local", "grids": [{**grid, "repetitions": 3}]}
    (artifacts / name / "campaign.json").write_text(json.dumps({"campaign": body, "cells": cells}))
    return name


def test_results_are_bundled_and_verified(tmp_path: Path) -> None:
    place = Place(tmp_path, "none", tmp_path / "run")
    place.folder.mkdir()
    name = ran(tmp_path / "artifacts")
    about = tmp_path / "about.yaml"
    about.write_text(yaml.safe_dump({"title": "Hotspots, again"}))
    made = execute(
        place,
        "bundling",
        campaign=name,
        artifacts=str(tmp_path / "artifacts"),
        about=str(about),
    )
    assert made.whole
    assert (place.folder / f"{name}.hotbed.zip").is_file()
    assert "are as stated" in made.shown
    assert "DLR raises sequential read throughput" in made.shown
    assert "not run" in made.shown
    assert made.peak_bytes < HUB_BYTES
