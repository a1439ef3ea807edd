"""Whole cells on windows of real traces in a folder next to the repository. They may not be
redistributed; docs/prioritymeister.md explains how to fetch a few."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_kinds import job

from campaigns.engine.campaign_file import ROOT
from campaigns.papers.prioritymeister.cell import Maker
from campaigns.papers.prioritymeister.ground import SimGround
from schemas.run import Summary

TRACES = ROOT.parent / "shared" / "traces" / "workloadcompactor"
LIKE = {"A": "trace0039", "B": "trace0016", "C": "trace0042"}
"""Traces with a C_A^2 like those of Table 2: 1.3, 14 and 2.2."""
SIZES = 2.0 ** np.arange(12, 21)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not there"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of traces named after the workloads."""
    found = tmp_path / "traces"
    found.mkdir()
    for label, name in LIKE.items():
        (found / f"{label}.txt.gz").symlink_to(TRACES / f"{name}.txt.gz")
    return found


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Return a disk profile by request size (8 ms and 150 MB/s); these traces have no offsets."""
    rates = SIZES / (0.008 + SIZES / 150e6)
    rows = [
        {"requestSize": size, "readBandwidth": rate, "writeBandwidth": rate}
        for size, rate in zip(SIZES.tolist(), rates.tolist(), strict=True)
    ]
    path = tmp_path / "disk.json"
    path.write_text(json.dumps({"type": "storageSSD", "bandwidthTable": rows}))
    return path


def cell(folder: Path, disk: Path, into: Path, seed: int) -> dict[str, float]:
    into.mkdir()
    maker = Maker(SimGround())
    try:
        parameters = {"scenario": "disk", "policy": "pm", "seconds": 400.0, "slo_percentile": 95.0}
        parameters |= {"traces": str(folder), "device_profile": str(disk), "k": 5.0}
        maker.make(job(parameters).model_copy(update={"seed": seed}), into)
    finally:
        maker.close()
    return Summary.model_validate_json((into / "summary.json").read_text()).extra


def test_windows_of_real_traces_are_planned_and_replayed(
    folder: Path, disk: Path, tmp_path: Path
) -> None:
    first, second = (cell(folder, disk, tmp_path / str(seed), seed) for seed in (1, 2))
    for found in (first, second):
        assert found["bounds"] == 3
        assert found["bounds_broken"] == 0
        assert all(found[f"{label}_requests"] >= 200 for label in LIKE)
        assert {found[f"{label}_priority"] for label in LIKE} <= {1.0, 2.0, 3.0, 4.0}
    # Blocks are different windows of the same traces.
    assert first["A_requests"] != second["A_requests"]
