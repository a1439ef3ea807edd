"""Runs on real object servers as a table, paired by block.

All schedulers of a block have the same jobs, files and stragglers. n counts runs, never processes,
writes or probes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.core.load import LoadedRun, origin
from analysis.papers.twochoice.runs import BOTH, CRUSH, DLR, FIXED, NATIVE, ORACLE, PREQUAL
from schemas.cells.twochoice import OBJECTS

REPORT_FILE = "objects.json"

_ASKED = ("experiment", "scheduler", "stragglers", "pending", "schedulers")
STANDARD = OBJECTS.defaults(*(name for name in OBJECTS.fields if name not in _ASKED))
"""Parameter values of the figures, unless a figure varies one."""

COLUMNS = ("index", "run_id", "campaign", "block", "seed", "ground", "spec")

HEAD_TO_HEAD = (FIXED, NATIVE, BOTH, PREQUAL, ORACLE)
ON_RADOS = (CRUSH, DLR, *HEAD_TO_HEAD)

RADOS: dict[str, Any] = {"backend": "rados", "copies": 2, "nodes": 8, "processes": 8}
"""Parameters that differ on a Ceph with eight OSDs; see `rados`."""
RADOS_AMONG: dict[str, dict[str, Any]] = {
    "fio": {"straggler_share": 0.25, "start_s": 15.0},
    "table2": {"volume": 0.0625, "start_s": 8.0},
    "none": {},
}
"""Further parameters there, by the cause of the stragglers."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: `COLUMNS`, the cell's parameters, and every number of the summary. If
    several campaigns ran a cell, the last run counts."""
    rows = []
    for index, loaded in enumerate(runs):
        run = loaded.run
        row: dict[str, Any] = {
            **origin(index, run),
            "spec": str(run.provenance.calibration.get("spec", "")),
        }
        row |= OBJECTS.row(run.parameters)
        # Parameters come last: `writes` of a burst is per process, but the summary's is the total.
        rows.append(loaded.summary.extra | row)
    if not rows:
        return pd.DataFrame(columns=[*COLUMNS, *OBJECTS.fields])
    found = pd.DataFrame(rows).sort_values(["seed", "run_id"], kind="stable")
    found = found.drop_duplicates([*OBJECTS.fields, "seed", "spec"], keep="last")
    return found.sort_values("index").reset_index(drop=True)


def cells(rows: pd.DataFrame, experiment: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of an experiment with the paper's parameters, except for `setting`.

    Args:
        rows: rows of `table`.
        experiment: see `schemas.cells.twochoice`.
        setting: other values of parameters, and values of parameters without a standard.
    """
    holds = rows["experiment"] == experiment
    for name, value in (STANDARD | setting).items():
        if value is not ...:
            holds &= rows[name] == value
    return rows[holds]


def rados(rows: pd.DataFrame, stragglers: str, **setting: Any) -> pd.DataFrame:
    """Return the bursts on a Ceph with eight OSDs, as in `campaigns/files/twochoice-rados.yaml`,
    with the other values in `setting`, such as ``copies``."""
    usual = RADOS | RADOS_AMONG[stragglers]
    return cells(rows, "burst", **(usual | {"stragglers": stragglers} | setting))


@lru_cache(maxsize=1024)
def report(folder: Path) -> dict[str, Any]:
    """Return a run's report, which extends its summary. A finished run's folder never changes."""
    found: dict[str, Any] = json.loads((folder / REPORT_FILE).read_text())
    return found
