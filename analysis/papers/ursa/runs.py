"""Runs of the planner and runs of open-loop writes on a store as two tables, one row per run.

Kind, size and seed identify an instance of the planner; every method of a block planned for the
same instance. Runs on a store are paired by campaign and block, which share the hot nodes and the
load. n counts instances or blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from analysis.core.evidence import Rows, kept, where
from analysis.core.load import ORIGIN, LoadedRun, last_runs, origin
from schemas.cells.ursa import URSA
from schemas.settling import HOLD_S, settled_from
from schemas.sizes import size_name

INSTANCE = ("kind", "size", "seed")
"""Columns that identify an instance of the planner."""
LIVE_BLOCK = ("campaign", "block")
"""Columns that identify a block of runs on a store."""

STANDARD = URSA.defaults("tail", "load_max", "racks", "replicas", "max_move_cost")
"""Common parameters of the paper's instances; cells with other values feed no figure of it."""

ALP = "alp"
OURS = "alp-fast"

COMBINATIONS = ("NONE+ILP", "DC+ILP", "NONE+LP", "DC+LP")
"""Variants of Algorithm 1: divided or not, integer or linear programme (figure 9)."""

LARGE = 100_000
"""Minimum partitions of one of the paper's large data sets (0.1K-0.1M)."""

KINDS = {"s1": "S1, like the paper's", "s2": "S2, tight", "s3": "S3, clustered"}
COLOURS = {
    "alp": "#56B4E9",
    "alp-fast": "#0072B2",
    "htoc": "#E69F00",
    "sa": "#CC79A7",
    "opt": "#009E73",
    "none": "#777777",
    "highest": "#0072B2",
    "random": "#D55E00",
    "NONE+ILP": "#882255",
    "DC+ILP": "#CC79A7",
    "NONE+LP": "#E69F00",
    "DC+LP": "#56B4E9",
    "s1": "#0072B2",
    "s2": "#D55E00",
    "s3": "#009E73",
}
LABELS = {
    "alp": "ALP (Algorithm 1)",
    "alp-fast": "ALP-fast (Hotbed's)",
    "algorithm1-pruned": "Algorithm 1, pruned",
    "htoc": "HtoC",
    "sa": "SA",
    "opt": "OPT",
    "none": "NONE (before)",
    "highest": "highest load first",
    "random": "random",
    **KINDS,
}

RISE_S = 5.0
"""Seconds at both ends of the time before the controller is called."""

CONTROLLED, RANDOM = "Controlled", "Random"
NETWORKS = (RANDOM, CONTROLLED)
CONTROLLERS = {
    "default": ("no rebalancing", "#777777"),
    "upmap": ("Ceph's upmap balancer", "#CC79A7"),
    "htoc": ("HtoC", "#E69F00"),
    "nearest": ("nearest first", "#56B4E9"),
    "ursa": ("Ursa (ALP)", "#0072B2"),
}
"""Label and colour of controllers on a store, in the order of figures 12 and 13."""

_SETTLED = ("settled_s", "settled_good_s", "settled_strict_s")
_CENSORED = ("censored_s", "censored_good_s", "censored_strict_s")
_FROM_SUMMARY = ("called_s", *_SETTLED, "moves", "first_moves", "cost")
_LATENCIES = ("latency_mean_s", "latency_p99_s")
_NUMBERS = (*_FROM_SUMMARY, *_CENSORED, *_LATENCIES, "rate", "duration_s", "rise")
LIVE_COLUMNS = (
    *(*ORIGIN, "size", "time_scale", "network", "osds", "scenario", "controller", "object_size"),
    *_NUMBERS,
)


def planner_table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run, for instances like the paper's.

    Columns: `ORIGIN`, ``size``, ``series`` (the variant of Algorithm 1, ``DC+LP``), the cell's
    parameters, and every number of the summary. An instance counts once, with the longest time
    limit.
    """
    rows = []
    for index, loaded in enumerate(runs):
        run, parameters = loaded.run, loaded.run.parameters
        if any(parameters.get(name) != value for name, value in STANDARD.items()):
            continue
        row: dict[str, Any] = {
            **origin(index, run),
            "size": size_name(parameters["nodes"], parameters["partitions"]),
            "series": _series(parameters),
        }
        rows.append(row | URSA.row(parameters) | loaded.summary.extra)
    keys = [name for name in URSA.fields if name != "time_limit_s"]
    more, order = ("size", "series", "time_limit_s"), ("time_limit_s", "run_id")
    return last_runs(rows, keys, more=more, order=order)


def _series(parameters: dict[str, Any]) -> str | None:
    if parameters.get("method") != ALP:
        return None
    return f"{parameters.get('divide')}+{parameters.get('program')}".upper()


def cells(
    rows: pd.DataFrame,
    method: str,
    *,
    selection: str = "highest",
    series: str = "DC+LP",
    **setting: str,
) -> pd.DataFrame:
    """Return the runs of a method as in the paper: highest-load-first, Algorithm 1 as DC+LP with
    its usual radii; `setting`: values of other columns, such as ``kind`` and ``size``."""
    found = where(rows, method=method, selection=selection, **setting)
    if method == ALP:
        found = where(found, series=series, first_radius=None, radius_step=None)
    return found


def of(method: str, **setting: str) -> Rows:
    """Select runs of a method in a setting, see `cells`."""
    return lambda table: cells(table, method, **setting)


def large(rows: Rows) -> Rows:
    """Select rows of the paper's large data sets."""
    return kept(rows, lambda found: found["partitions"] >= LARGE)


def at(rows: Rows, size: str) -> Rows:
    """Select rows of one size."""
    return lambda table: (found := rows(table))[found["size"] == size]


def sizes(rows: pd.DataFrame) -> list[str]:
    """Return sizes that have runs, the smallest first."""
    known = rows[["nodes", "partitions", "size"]].drop_duplicates()
    return [str(name) for name in known.sort_values(["nodes", "partitions"])["size"]]


def live_table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: `LIVE_COLUMNS`.

    ``settled_s`` (stable for `HOLD_S`) and ``settled_good_s`` (to the end) are computed from the
    recorded requests; ``settled_strict_s`` (no slow write from then on) is from the summary.
    ``rise``: mean response time in the last `RISE_S` before the call over that in the first.
    ``censored_s`` is the settling time, or the observed time of a run that never settled: a lower
    bound. ``moves`` and ``cost`` cover all decisions of a planning controller, NaN for others.
    """
    rows = [_live_row(index, loaded) for index, loaded in enumerate(runs)]
    found = pd.DataFrame(rows, columns=list(LIVE_COLUMNS))
    return found.astype(dict.fromkeys(_NUMBERS, float))


def _live_row(index: int, loaded: LoadedRun) -> dict[str, Any]:
    run, summary = loaded.run, loaded.summary
    parameters, calibration = run.parameters, run.provenance.calibration
    osds = run.osd_count or 0
    row: dict[str, Any] = {
        **origin(index, run),
        "time_scale": run.time_scale,
        "network": _network(calibration),
        "osds": osds,
        "size": f"{osds}-{_groups(calibration)}",
        "scenario": parameters.get("scenario"),
        "controller": parameters.get("controller"),
        "rate": float(parameters.get("rate") or 0.0),
        "object_size": parameters.get("object_size"),
        "duration_s": float(parameters.get("duration_s", 0.0)) * run.time_scale,
    }
    row |= {name: summary.extra.get(name) for name in _FROM_SUMMARY}
    rest = row["duration_s"] - (row["called_s"] or 0.0)
    if row["called_s"] is not None:
        settled = partial(_from_requests, called_s=row["called_s"])
        row |= loaded.reduced(f"rise, and settling, held {HOLD_S:g} s", settled)
    for name in _SETTLED:
        censored = row[name] if row[name] is not None else rest
        row[name.replace("settled", "censored")] = censored
    for op in summary.whole:
        row |= {name: getattr(op, name) for name in _LATENCIES}
    return row


def _from_requests(loaded: LoadedRun, called_s: float) -> dict[str, float | None]:
    """Return settling times and the rise before the call from the kept requests; empty if none
    were kept."""
    path = loaded.file("requests.parquet")
    if not path.is_file():
        return {}
    requests = pd.read_parquet(path, columns=["t_s", "latency_s"]).sort_values("t_s")
    starts, took = requests["t_s"].tolist(), requests["latency_s"].tolist()
    found: dict[str, float | None] = {}
    for name, hold in (("settled_s", HOLD_S), ("settled_good_s", math.inf)):
        settled = settled_from(starts, took, called_s, hold)
        found[name] = None if settled is None else settled - called_s
    first = requests[requests["t_s"] < RISE_S]["latency_s"].mean()
    last = requests[requests["t_s"].between(called_s - RISE_S, called_s, "left")][
        "latency_s"
    ].mean()
    return found | {"rise": float(last / first) if first > 0 and last > 0 else None}


def _network(calibration: dict[str, Any]) -> str:
    racks = calibration.get("racks") or {}
    return CONTROLLED if racks.get("uplink") else RANDOM


def _groups(calibration: dict[str, Any]) -> int:
    return sum(int(pool.get("pg_num", 0)) for pool in calibration.get("pools") or ())


def rebalancing(rows: pd.DataFrame, **setting: Any) -> pd.DataFrame:
    """Return runs of the skewed load with these values of columns."""
    return where(rows, scenario="skew", **setting)


def live_sizes(rows: pd.DataFrame) -> list[str]:
    """Return sizes of stores that have runs, the smallest first."""
    known = rows[["osds", "size"]].drop_duplicates().sort_values(["osds", "size"])
    return [str(size) for size in known["size"]]


def controlled_by(controller: str, network: str, osds: int) -> Rows:
    """Select a controller's runs under the skewed load on a store of one size. The last counts of
    several runs of one block."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        found = rebalancing(table, controller=controller, network=network, osds=osds)
        return found.drop_duplicates(list(LIVE_BLOCK), keep="last")

    return rows
