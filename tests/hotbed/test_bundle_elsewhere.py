"""User's own campaign in a user's own folder: its bundle is made elsewhere and run again."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

from campaigns.bundled import RerunRequest
from hotbed import bundling, contained
from tests.analysis.synthetic import write_figure_6
from tests.campaigns.bundled_files import SPEC
from tests.campaigns.tiny_campaigns import TINY

NAME = "dlr-mine"
VARIED = {"op": ["seq"], "controller": ["default", "dlr"]}
GRID = {"name": "fig6", "figures": ["6a"], "vary": VARIED, "repetitions": 3}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a campaign file that names spec and notebook in its own folder, and its runs. Change to
    another current folder."""
    folder = tmp_path / "lab"
    folder.mkdir()
    spec, notebook = folder / "mine.yaml", folder / "mine.ipynb"
    shutil.copy(SPEC, spec)
    notebook.write_text("{}")
    fixed = {"scenario": "heterogeneity"}
    named = {"name": NAME, "ground": "local", "spec": spec.name, "notebook": notebook.name}
    body = {**TINY, **named, "grids": [{**GRID, "fixed": fixed}]}
    (folder / f"{NAME}.yaml").write_text(yaml.safe_dump(body))
    speeds = {"default": 100.0, "dlr": 125.0}
    job = {"spec": str(spec), "notebook": str(notebook)}
    cells = write_figure_6(tmp_path / "artifacts" / NAME, speeds, "seq", **job)
    record = json.dumps({"campaign": body, "cells": cells})
    (tmp_path / "artifacts" / NAME / "campaign.json").write_text(record)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return folder


@pytest.mark.slow
def test_it_is_run_again_without_the_folder_that_it_came_from(lab: Path) -> None:
    artifacts = lab.parent / "artifacts"
    made = bundling.bundle(NAME, artifacts=artifacts)
    shutil.rmtree(lab)
    shutil.rmtree(artifacts)
    with zipfile.ZipFile(made.path) as opened:
        assert {"specs/mine.yaml", "notebooks/mine.ipynb"} <= set(opened.namelist())
        assert not [name for name in opened.namelist() if str(lab).encode() in opened.read(name)]
    with bundling.unpacked(RerunRequest(made.path)) as ready:
        planned = ready.dry_run()
        assert not list(contained.otherwise(ready.bundled.parents[1], [NAME]))
    assert planned.as_json()["cells"] == 6
