"""Runs on real object servers as a table, and how they are paired: by block.

All schedulers of a block meet the same jobs, files and stragglers. n counts runs, never processes,
writes or probes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load import LoadedRun, origin
from analysis.twochoice.runs import BOTH, CRUSH, DLR, FIXED, NATIVE, ORACLE, PREQUAL
from schemas.cells.twochoice import OBJECTS

REPORT_FILE = "objects.json"

_ASKED = ("experiment", "scheduler", "stragglers", "pending", "schedulers")
STANDARD = OBJECTS.defaults(*(name for name in OBJECTS.fields if name not in _ASKED))
"""Values that figures are of unless they vary one."""

COLUMNS = ("index", "run_id", "campaign", "block", "seed", "ground", "spec")

HEAD_TO_HEAD = (FIXED, NATIVE, BOTH, PREQUAL, ORACLE)
ON_RADOS = (CRUSH, DLR, *HEAD_TO_HEAD)

RADOS: dict[str, Any] = {"backend": "rados", "copies": 2, "nodes": 8, "processes": 8}
"""What is another value on a Ceph of eight OSDs; see `rados`."""
RADOS_AMONG: dict[str, dict[str, Any]] = {
    "fio": {"straggler_share": 0.25, "start_s": 15.0},
    "table2": {"volume": 0.0625, "start_s": 8.0},
    "none": {},
}
"""The same, by what makes the stragglers."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """One row a run: `COLUMNS`, the cell's parameters, and every number of the summary. Of cells
    that were run by several campaigns the last one counts."""
    rows = []
    for index, loaded in enumerate(runs):
        run = loaded.run
        row: dict[str, Any] = {
            **origin(index, run),
            "spec": str(run.provenance.calibration.get("spec", "")),
        }
        row |= OBJECTS.row(run.parameters)
        # What was asked for comes last: `writes` of a burst is a process's, the summary's are all.
        rows.append(loaded.summary.extra | row)
    if not rows:
        return pd.DataFrame(columns=[*COLUMNS, *OBJECTS.fields])
    found = pd.DataFrame(rows).sort_values(["seed", "run_id"], kind="stable")
    found = found.drop_duplicates([*OBJECTS.fields, "seed", "spec"], keep="last")
    return found.sort_values("index").reset_index(drop=True)


def cells(rows: pd.DataFrame, experiment: str, **setting: Any) -> pd.DataFrame:
    """The runs of an experiment as the paper's, except for what is said.

    Args:
        rows: of `table`.
        experiment: see `schemas.cells.twochoice`.
        setting: other values of parameters, and those that have no standard.
    """
    holds = rows["experiment"] == experiment
    for name, value in (STANDARD | setting).items():
        if value is not ...:
            holds &= rows[name] == value
    return rows[holds]


def rados(rows: pd.DataFrame, stragglers: str, **setting: Any) -> pd.DataFrame:
    """The bursts on a Ceph of eight OSDs, as in `campaigns/files/twochoice-rados.yaml`: of the
    other values of `setting`, such as ``copies``."""
    usual = RADOS | RADOS_AMONG[stragglers]
    return cells(rows, "burst", **(usual | {"stragglers": stragglers} | setting))


@lru_cache(maxsize=1024)
def report(folder: Path) -> dict[str, Any]:
    """What a run tells beside its summary. (A finished run's folder never changes.)"""
    found: dict[str, Any] = json.loads((folder / REPORT_FILE).read_text())
    return found
