"""Runs on real microstores as a table, paired by block.

All setups of a block have the same objects and draws. n counts runs, never requests or seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.core import style
from analysis.core.load import LoadedRun, origin
from schemas.cells.mos import MOS as MOS_CELLS

REPORT_FILE = "mos.json"

DEFAULT, STATIC, MOS_PP, MOS = "default", "static", "mos-pp", "mos"
FAVORS_SMALL, FAVORS_LARGE = "favors-small", "favors-large"
SETUPS = (DEFAULT, FAVORS_SMALL, FAVORS_LARGE, STATIC, MOS, MOS_PP)
LABELS = {
    DEFAULT: "Default",
    FAVORS_SMALL: "FavorsSmall",
    FAVORS_LARGE: "FavorsLarge",
    STATIC: "Static",
    MOS: "MOS",
    MOS_PP: "MOS++",
}

EXPERIMENTS = ("setups", "sizes", "proxy", "storage", "network", "disks", "load", "adaptation")
COLUMNS = ("index", "run_id", "campaign", "block", "seed", "ground", "spec")
SMALL, LARGE = ("A", "B"), ("C", "D")


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: `COLUMNS`, the cell's parameters, and every number of the summary;
    ``qps`` and ``mb_s`` also for small and large objects (``small_qps``, ``large_mb_s``). If
    several campaigns ran a cell on one testbed, the last run counts. ``seed`` identifies a block on
    one testbed: equal draws on two testbeds are not paired."""
    rows = []
    for index, loaded in enumerate(runs):
        run = loaded.run
        row = origin(index, run) | {"spec": str(run.provenance.calibration.get("spec", ""))}
        rows.append(
            row | MOS_CELLS.row(run.parameters) | loaded.summary.extra | _sums(loaded.summary.extra)
        )
    if not rows:
        return pd.DataFrame(columns=[*COLUMNS, *MOS_CELLS.fields])
    found = pd.DataFrame(rows).sort_values(["seed", "run_id"], kind="stable")
    found = found.drop_duplicates([*MOS_CELLS.fields, "seed", "spec"], keep="last")
    found["seed"] = found["seed"].astype(str) + " on " + found["spec"]
    return found.sort_values("index").reset_index(drop=True)


def _sums(found: Mapping[str, float]) -> dict[str, float]:
    sums = {}
    for name, letters, measure in (("small", SMALL, "qps"), ("large", LARGE, "mb_s")):
        values = [
            found[f"{letter}_{measure}"] for letter in letters if f"{letter}_{measure}" in found
        ]
        if values:
            sums[f"{name}_{measure}"] = sum(values)
    return sums


def cells(rows: pd.DataFrame, experiment: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of an experiment with these values of parameters."""
    holds = rows["experiment"] == experiment
    for name, value in setting.items():
        holds &= rows[name] == value
    return rows[holds]


def values_of(rows: pd.DataFrame, name: str) -> list[Any]:
    """Return the values of a parameter, ascending."""
    return sorted(set(rows[name].dropna()))


@lru_cache(maxsize=512)
def report(folder: Path) -> dict[str, Any]:
    """Return a run's report, which extends its summary. A finished run's folder never changes."""
    found: dict[str, Any] = json.loads((folder / REPORT_FILE).read_text())
    return found


def label(setup: str) -> str:
    """Return a setup's name in the paper."""
    return LABELS.get(setup, setup)


def colour(setup: str) -> str:
    """Return a setup's colour, the same in every figure."""
    return style.COLOURS.get(setup, "#444444")


def shown(rows: pd.DataFrame) -> list[str]:
    """Return the setups that have runs, in the paper's order."""
    there = set(rows["setup"])
    return [setup for setup in SETUPS if setup in there]
