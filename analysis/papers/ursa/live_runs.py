"""Runs of open-loop writes on a store as a table (section 5.2): one row per run.

Runs are paired by block: its cells share the hot nodes and the load. n counts blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.core.load import LoadedRun, origin
from analysis.core.stats import Estimate, ratio
from schemas.settling import HOLD_S, settled_from

OP = "open"

CONTROLLED, RANDOM = "Controlled", "Random"
NETWORKS = (RANDOM, CONTROLLED)

COLUMNS = (
    "index",
    "run_id",
    "campaign",
    "block",
    "seed",
    "ground",
    "time_scale",
    "spec",
    "network",
    "size",
    "osds",
    "scenario",
    "controller",
    "rate",
    "object_size",
    "threshold",
    "duration_s",
    "called_s",
    "settled_s",
    "settled_good_s",
    "settled_strict_s",
    "censored_s",
    "censored_good_s",
    "censored_strict_s",
    "latency_mean_s",
    "latency_p99_s",
    "latency_max_s",
    "outstanding",
    "moves",
    "first_moves",
    "cost",
    "hot",
)
_FROM_EXTRA = (
    "called_s",
    "settled_s",
    "settled_good_s",
    "settled_strict_s",
    "outstanding",
    "moves",
    "first_moves",
    "cost",
    "hot",
)
_SETTLED = ("settled_s", "settled_good_s", "settled_strict_s")


def table(runs: Sequence[LoadedRun], *, hold_s: float = HOLD_S) -> pd.DataFrame:
    """Return one row per run: `COLUMNS`.

    ``settled_s`` (stable for `hold_s`) and ``settled_good_s`` (to the end) are computed from the
    recorded requests, so that runs from before the hold period count as well. ``settled_strict_s``
    (no slow write from then on) comes from the run's summary. ``size`` is the paper's name of a
    size, OSDs-PGs. ``censored_s`` is the settling time, or, if a run never settled, its observed
    time: a lower bound. ``moves`` and ``cost`` cover all decisions of a planning controller
    (`ursa`, `htoc`), NaN for others.
    """
    rows = [_row(index, loaded, hold_s) for index, loaded in enumerate(runs)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(index: int, loaded: LoadedRun, hold_s: float) -> dict[str, Any]:
    run, summary = loaded.run, loaded.summary
    parameters, calibration = run.parameters, run.provenance.calibration
    osds = run.osd_count or 0
    row: dict[str, Any] = {
        **origin(index, run),
        "time_scale": run.time_scale,
        "spec": calibration.get("spec"),
        "network": _network(calibration),
        "osds": osds,
        "size": f"{osds}-{_groups(calibration)}",
        "scenario": parameters.get("scenario"),
        "controller": parameters.get("controller"),
        "rate": float(parameters.get("rate") or 0.0),
        "object_size": parameters.get("object_size"),
        "threshold": (parameters.get("controller_parameters") or {}).get("threshold"),
        "duration_s": float(parameters.get("duration_s", 0.0)) * run.time_scale,
    }
    row |= {name: summary.extra.get(name) for name in _FROM_EXTRA}
    rest = row["duration_s"] - (row["called_s"] or 0.0)
    row |= _settled(loaded, row["called_s"], hold_s)
    for name in _SETTLED:
        censored = row[name] if row[name] is not None else rest
        row[name.replace("settled", "censored")] = censored
    for op in summary.whole:
        row |= {
            "latency_mean_s": op.latency_mean_s,
            "latency_p99_s": op.latency_p99_s,
            "latency_max_s": op.latency_max_s,
        }
    return row


def _settled(loaded: LoadedRun, called_s: float | None, hold_s: float) -> dict[str, float | None]:
    """Return settling times from the kept requests; empty if none were kept."""
    path = loaded.folder / "requests.parquet"
    if called_s is None or not path.is_file():
        return {}
    requests = pd.read_parquet(path, columns=["t_s", "latency_s"]).sort_values("t_s")
    starts, took = requests["t_s"].tolist(), requests["latency_s"].tolist()
    found: dict[str, float | None] = {}
    for name, hold in (("settled_s", hold_s), ("settled_good_s", math.inf)):
        settled = settled_from(starts, took, called_s, hold)
        found[name] = None if settled is None else settled - called_s
    return found


def _network(calibration: dict[str, Any]) -> str:
    racks = calibration.get("racks") or {}
    return CONTROLLED if racks.get("uplink") else RANDOM


def _groups(calibration: dict[str, Any]) -> int:
    return sum(int(pool.get("pg_num", 0)) for pool in calibration.get("pools") or ())


def rebalancing(rows: pd.DataFrame, *, network: str | None = None) -> pd.DataFrame:
    """Return runs of the skewed load."""
    found = rows[rows["scenario"] == "skew"]
    return found if network is None else found[found["network"] == network]


def sizes(rows: pd.DataFrame) -> list[str]:
    """Return sizes that have runs, the smallest first."""
    known = rows[["osds", "size"]].drop_duplicates().sort_values(["osds", "size"])
    return [str(size) for size in known["size"]]


def pairs(rows: pd.DataFrame, treated: str, baseline: str, column: str) -> pd.DataFrame:
    """Return a column of two controllers by block, if both have it: ``treated``, ``baseline``.

    Rows must be of one network and size. If several campaigns ran a block, each campaign's runs are
    paired among themselves.
    """
    keys = ["campaign", "block"]
    both = []
    for name, controller in (("treated", treated), ("baseline", baseline)):
        mine = rows[rows["controller"] == controller].drop_duplicates(keys, keep="last")
        both.append(mine.set_index(keys)[column].astype(float).rename(name))
    return pd.concat(both, axis=1, join="inner").dropna()


def quotient(rows: pd.DataFrame, treated: str, baseline: str, column: str) -> Estimate | None:
    """Return the geometric mean of treated/baseline over blocks; None without a positive pair."""
    found = pairs(rows, treated, baseline, column)
    found = found[(found["treated"] > 0) & (found["baseline"] > 0)]
    if found.empty:
        return None
    return ratio(found["treated"].tolist(), found["baseline"].tolist())
