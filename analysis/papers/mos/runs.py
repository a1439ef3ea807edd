"""Runs on real microstores as a table, paired by block; names and colours of setups; shares of the
pool that microstores held.

All setups of a block have the same objects and draws. n counts runs, never requests or seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.core import style
from analysis.core.evidence import Rows, where
from analysis.core.load import LoadedRun, last_runs, origin, read_report
from analysis.core.panels import GREY, Look
from schemas.cells.mos import MOS as MOS_CELLS

REPORT_FILE = "mos.json"

DEFAULT, STATIC, MOS_PP, MOS = "default", "static", "mos-pp", "mos"
FAVORS_SMALL, FAVORS_LARGE = "favors-small", "favors-large"
LABELS = {
    DEFAULT: "Default",
    FAVORS_SMALL: "FavorsSmall",
    FAVORS_LARGE: "FavorsLarge",
    STATIC: "Static",
    MOS: "MOS",
    MOS_PP: "MOS++",
}
"""Setups with their names in the paper, in the paper's order."""

SMALL, LARGE = "small", "large"
"""Tenants, and their microstores."""
Report = Mapping[str, Any]
"""A run's `REPORT_FILE`. With a changing load it has ``held``: a line for every decision of the
controller, with ``t_s`` from the start of the load and the resources of each microstore; ``pool``;
``course``: start times of the stages, seconds."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: origin, spec, folder, parameters and every number of the summary;
    ``qps`` and ``mb_s`` also for small and large objects (``small_qps``, ``large_mb_s``). If
    several campaigns ran a cell on one testbed, the last run counts. ``seed`` identifies a block on
    one testbed: equal draws on two testbeds are not paired."""
    rows = []
    for index, loaded in enumerate(runs):
        run, numbers = loaded.run, loaded.summary.extra
        spec = str(run.provenance.calibration.get("spec", ""))
        row = origin(index, run) | {"spec": spec, "folder": loaded.folder}
        rows.append(row | MOS_CELLS.row(run.parameters) | numbers | _sums(numbers))
    found = last_runs(rows, (*MOS_CELLS.fields, "spec"), more=("folder",))
    found["seed"] = found["seed"].astype(str) + " on " + found["spec"]
    return found


def _sums(numbers: Mapping[str, float]) -> dict[str, float]:
    sums = {}
    for tenant, letters, measure in ((SMALL, "AB", "qps"), (LARGE, "CD", "mb_s")):
        names = [f"{letter}_{measure}" for letter in letters]
        values = [numbers[name] for name in names if name in numbers]
        if values:
            sums[f"{tenant}_{measure}"] = sum(values)
    return sums


def cells(rows: pd.DataFrame, experiment: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of an experiment with these values of parameters."""
    return where(rows, experiment=experiment, **setting)


def of(experiment: str, **setting: Any) -> Rows:
    """Select the runs of an experiment; see `cells`."""
    return lambda rows: cells(rows, experiment, **setting)


def report(folder: Path) -> Report:
    """Return a run's report."""
    return read_report(folder / REPORT_FILE)


def label(setup: str) -> str:
    """Return a setup's name in the paper."""
    return LABELS.get(setup, setup)


def look(setup: str) -> Look:
    """Return a setup's appearance, the same in every figure."""
    return Look(label(setup), style.COLOURS.get(setup, GREY))


def shown(rows: pd.DataFrame) -> list[str]:
    """Return the setups that have runs, in the paper's order."""
    there = set(rows["setup"])
    return [setup for setup in LABELS if setup in there]


def share(course: Report, t_s: float, store: str, name: str) -> float:
    """Return the share of a pool's resource that a microstore held at a time."""
    total = float(course["pool"][name])
    return float(_held(course, t_s)[store][name]) / total if total else 0.0


def free(course: Report, t_s: float, name: str) -> float:
    """Return the share of a pool's resource that no microstore held at a time."""
    return 1.0 - sum(share(course, t_s, store, name) for store in _held(course, t_s))


def _held(course: Report, t_s: float) -> Mapping[str, Mapping[str, float]]:
    """Return the held resources: of the last decision that is not later, else of the first."""
    before = [line for line in course["held"] if line["t_s"] <= t_s]
    found: Mapping[str, Mapping[str, float]] = (before or course["held"][:1])[-1]["stores"]
    return found
