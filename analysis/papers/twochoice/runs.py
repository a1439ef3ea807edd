"""Simulated bursts as a table, paired by loads and stragglers.

All schedulers of a block have the same bursts: servers' loads, stragglers and homes are drawn from
the block's seed. n counts runs, never bursts or writes; a run has several bursts.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.core.load import LoadedRun, origin
from analysis.core.stats import Estimate, ratio
from schemas.cells.twochoice import BURSTS
from schemas.sizes import size_name

_ASKED = ("scheduler", "history", "straggler_ratio", "learn_rounds", "rounds")
STANDARD = BURSTS.defaults(*(name for name in BURSTS.fields if name not in _ASKED))
"""The paper's simulation (section III.A), with Hotbed's inference of unstated details."""

LEARNERS = ("preassign", "both", "prequal")
LEARN_ROUNDS = 20
"""Number of bursts in which servers learn, in figures 3 and 4."""

BURSTS_FILE = "bursts.json"
COLUMNS = ("index", "run_id", "campaign", "block", "seed", "ground", "size", "series")

FIXED, RANDOM, NATIVE = "fixed", "random", "two-choice"
COLLABORATIVE, PREASSIGN, BOTH = "collaborative", "preassign", "both"
PREQUAL, ORACLE = "prequal", "oracle"
CRUSH, DLR = "crush", "dlr"
UNCACHED = "both-uncached"
"""Both strategies without remembered loads of other servers."""
PAPERS = (FIXED, RANDOM, NATIVE, COLLABORATIVE, PREASSIGN, BOTH)
BEYOND = (PREQUAL, ORACLE)
COLD = ("preassign-cold", "both-cold")

LABELS = {
    FIXED: "fixed",
    RANDOM: "random",
    NATIVE: "two-choice",
    COLLABORATIVE: "collaborative probe",
    PREASSIGN: "preassign",
    BOTH: "both strategies",
    "preassign-cold": "preassign, cold",
    "both-cold": "both, cold",
    UNCACHED: "both, nothing remembered",
    PREQUAL: "Prequal's rule",
    ORACLE: "oracle (shortest queue)",
    CRUSH: "CRUSH",
    DLR: "CRUSH and DLR",
}
COLOURS = {
    FIXED: "#777777",
    RANDOM: "#E69F00",
    NATIVE: "#56B4E9",
    COLLABORATIVE: "#CC79A7",
    PREASSIGN: "#009E73",
    BOTH: "#0072B2",
    "preassign-cold": "#44AA99",
    "both-cold": "#332288",
    UNCACHED: "#88CCEE",
    PREQUAL: "#882255",
    ORACLE: "#D55E00",
    CRUSH: "#999933",
    DLR: "#117733",
}


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run.

    Columns: `COLUMNS`, the cell's parameters, and every number of the summary. ``series`` is the
    scheduler, with ``-cold`` if nothing was learned. If runs differ only in the number of bursts
    (such as in a quick and a full campaign), the longest stays.
    """
    rows = []
    for index, loaded in enumerate(runs):
        run, parameters = loaded.run, loaded.run.parameters
        cold = "-cold" if parameters.get("history") == "cold" else ""
        row: dict[str, Any] = {
            **origin(index, run),
            "size": size_name(parameters["servers"], parameters["processes"]),
            "series": f"{parameters['scheduler']}{cold}",
        }
        cell = BURSTS.row({"learn_rounds": 0, **parameters})
        rows.append(row | cell | loaded.summary.extra)
    if not rows:
        return pd.DataFrame(columns=[*COLUMNS, *BURSTS.fields])
    # Sorted by run id too: the choice among equal runs must not depend on folders.
    found = pd.DataFrame(rows).sort_values(["rounds", "run_id"], kind="stable")
    keys = [name for name in BURSTS.fields if name != "rounds"]
    found = found.drop_duplicates([*keys, "seed"], keep="last")
    return found.sort_values("index").reset_index(drop=True)


def cells(
    rows: pd.DataFrame,
    series: str,
    *,
    varied: Sequence[str] = (),
    learn_rounds: int | None = LEARN_ROUNDS,
    **setting: Any,
) -> pd.DataFrame:
    """Return the runs of a scheduler with the paper's parameters, except for `setting`.

    Args:
        rows: rows of `table`.
        series: see `table`.
        varied: parameters that may have any value.
        learn_rounds: value for schedulers that learn; None for any.
        setting: other values of parameters.
    """
    holds = rows["series"] == series
    if learn_rounds is not None and series in LEARNERS:
        holds &= rows["learn_rounds"] == learn_rounds
    for name, value in (STANDARD | setting).items():
        if name not in varied:
            holds &= rows[name] == value
    return rows[holds]


def ratios(*rows: pd.DataFrame) -> list[float]:
    """Return straggler ratios that all the tables have runs of."""
    sets = [set(its["straggler_ratio"]) for its in rows]
    return sorted(set.intersection(*sets)) if sets else []


PAIRED = ("seed", "straggler_ratio", "size", "spread_s", "processes_per_node")
"""Columns that identify a burst."""


def quotient(
    treated: pd.DataFrame, baseline: pd.DataFrame, column: str, *, comparisons: int = 1
) -> Estimate | None:
    """Return the geometric mean of treated/baseline over blocks, of positive values; None without a
    pair. Pairs of one block at several ratios share a seed: their mean counts once."""
    top, bottom = _by_burst(treated, column), _by_burst(baseline, column)
    logs: dict[int, list[float]] = {}
    for burst in top.keys() & bottom.keys():
        logs.setdefault(burst[0], []).append(math.log(top[burst] / bottom[burst]))
    if not logs:
        return None
    means = [math.exp(statistics.fmean(logs[seed])) for seed in sorted(logs)]
    return ratio(means, [1.0] * len(means), comparisons=comparisons)


def _by_burst(rows: pd.DataFrame, column: str) -> dict[tuple[Any, ...], float]:
    if rows.empty:
        return {}
    keys = zip(*(rows[name].tolist() for name in PAIRED), strict=True)
    found = zip(keys, rows[column].tolist(), strict=True)
    return {key: value for key, value in found if value > 0}  # NaN is not


@lru_cache(maxsize=1024)
def bursts(folder: Path) -> dict[str, Any]:
    """Return a run's report, which extends its summary: ``loads``, ``history`` and ``learning``. A
    finished run's folder never changes."""
    found: dict[str, Any] = json.loads((folder / BURSTS_FILE).read_text())
    return found
