"""Runs of the two-choice paper as tables, the selection of runs, and the schedulers' looks.

Simulated bursts (section III) and experiments on object servers (section VI) have one table each,
with one row per run. All schedulers of a block have the same seed, which draws servers' loads,
stragglers and homes, or jobs and files. n counts runs, never bursts, processes, writes or probes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.core.claims import Evidence
from analysis.core.evidence import values_of, where
from analysis.core.load import LoadedRun, last_runs, origin
from analysis.core.panels import GREY, MARKERS, Look, points
from analysis.core.stats import Estimate
from schemas.cells.twochoice import BURSTS, OBJECTS
from schemas.sizes import size_name

FIXED, RANDOM, NATIVE = "fixed", "random", "two-choice"
COLLABORATIVE, PREASSIGN, BOTH = "collaborative", "preassign", "both"
PREQUAL, ORACLE = "prequal", "oracle"
CRUSH, DLR = "crush", "dlr"
COLD_PREASSIGN, COLD_BOTH = COLD = ("preassign-cold", "both-cold")
"""Schedulers whose servers have learned nothing."""
UNCACHED = "both-uncached"
"""Both strategies without remembered loads of other servers."""

PAPERS = (FIXED, RANDOM, NATIVE, COLLABORATIVE, PREASSIGN, BOTH)
BEYOND = (PREQUAL, ORACLE)
LEARNERS = (PREASSIGN, BOTH, PREQUAL)
HEAD_TO_HEAD = (FIXED, NATIVE, BOTH, PREQUAL, ORACLE)
ON_RADOS = (CRUSH, DLR, *HEAD_TO_HEAD)

LOOKS = {
    FIXED: ("fixed", "#777777"),
    RANDOM: ("random", "#E69F00"),
    NATIVE: ("two-choice", "#56B4E9"),
    COLLABORATIVE: ("collaborative probe", "#CC79A7"),
    PREASSIGN: ("preassign", "#009E73"),
    BOTH: ("both strategies", "#0072B2"),
    COLD_PREASSIGN: ("preassign, cold", "#44AA99"),
    COLD_BOTH: ("both, cold", "#332288"),
    UNCACHED: ("both, nothing remembered", "#88CCEE"),
    PREQUAL: ("Prequal's rule", "#882255"),
    ORACLE: ("oracle (shortest queue)", "#D55E00"),
    CRUSH: ("CRUSH", "#999933"),
    DLR: ("CRUSH and DLR", "#117733"),
}
"""Label and colour of each scheduler."""

ONE_CHOICE, TWO_CHOICES = "home+random", "random+random"


def look(name: str) -> Look:
    """Return a scheduler's look, the same in every panel; a variant follows a comma."""
    base, comma, variant = name.partition(", ")
    text, colour = LOOKS.get(base, (base, GREY))
    line = ":" if variant == TWO_CHOICES else "--" if base in COLD else "-"
    marker = MARKERS[list(LOOKS).index(base) % len(MARKERS)] if base in LOOKS else "."
    return Look(f"{text}{comma}{variant}", colour, marker, line)


def names_of(*series: str) -> str:
    """Return schedulers' names in a sentence."""
    return " and ".join(look(name).label for name in series)


def _standard(cells: Any, *asked: str) -> dict[str, Any]:
    return dict(cells.defaults(*(name for name in cells.fields if name not in asked)))


BURST_STANDARD = _standard(
    BURSTS, "scheduler", "history", "straggler_ratio", "learn_rounds", "rounds"
)
"""The paper's simulation (section III.A), with Hotbed's inference of unstated details."""
LEARN_ROUNDS = 20
"""Number of bursts in which servers learn, in figures 3 and 4."""
EVEN = BURST_STANDARD["processes"] / BURST_STANDARD["servers"]
"""Writes per server with equal shares: the paper's average = ioreq/server."""

OBJECT_STANDARD = _standard(
    OBJECTS, "experiment", "scheduler", "stragglers", "pending", "schedulers"
)
"""Parameter values of figures 11 to 14, unless a figure varies one."""

RADOS: dict[str, Any] = {"backend": "rados", "copies": 2, "nodes": 8, "processes": 8}
"""Parameters that differ on a Ceph with eight OSDs; see `on_osds`."""
RADOS_AMONG: dict[str, dict[str, Any]] = {
    "fio": {"straggler_share": 0.25, "start_s": 15.0},
    "table2": {"volume": 0.0625, "start_s": 8.0},
    "none": {},
}
"""Further parameters there, by the cause of the stragglers."""

PAIRED = ("seed", "straggler_ratio", "size", "spread_s", "processes_per_node")
"""Columns that identify a simulated burst."""

BURSTS_FILE, REPORT_FILE = "bursts.json", "objects.json"


def burst_table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per simulated run: origin, the cell's parameters, numbers of the summary,
    ``size``, and ``series``, the scheduler, with ``-cold`` if nothing was learned. If runs differ
    only in the number of bursts (as in a quick and a full campaign), the longest stays."""
    rows = []
    for index, loaded in enumerate(runs):
        parameters = loaded.run.parameters
        cold = "-cold" if parameters.get("history") == "cold" else ""
        row = {
            **origin(index, loaded.run),
            "size": size_name(parameters["servers"], parameters["processes"]),
            "series": f"{parameters['scheduler']}{cold}",
        }
        rows.append(row | BURSTS.row({"learn_rounds": 0, **parameters}) | loaded.summary.extra)
    keys = [name for name in BURSTS.fields if name != "rounds"]
    order = ("rounds", "run_id")
    return last_runs(rows, keys, more=("size", "series", "rounds"), order=order)


def object_table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run on object servers: origin, ``spec``, numbers of the summary and the
    cell's parameters. If several campaigns ran a cell, the last run counts."""
    rows = []
    for index, loaded in enumerate(runs):
        spec = str(loaded.run.provenance.calibration.get("spec", ""))
        # Parameters come last: `writes` of a burst is per process, but the summary's is the total.
        row = {**origin(index, loaded.run), "spec": spec} | OBJECTS.row(loaded.run.parameters)
        rows.append(loaded.summary.extra | row)
    return last_runs(rows, (*OBJECTS.fields, "spec"))


def simulated(rows: pd.DataFrame, series: str, **setting: Any) -> pd.DataFrame:
    """Return the simulated runs of a scheduler with the paper's parameters, except for `setting`;
    the value ``...`` selects any. `UNCACHED` is a scheduler here, and in `on_servers`."""
    if series == UNCACHED:
        series, setting = BOTH, {**setting, "cache_s": 0.0}
    asked = {"learn_rounds": LEARN_ROUNDS, **BURST_STANDARD, "series": series, **setting}
    if series not in LEARNERS:
        del asked["learn_rounds"]
    return where(rows, **asked)


def on_servers(rows: pd.DataFrame, experiment: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of an experiment on object servers with the paper's parameters, except for
    `setting`; the value ``...`` selects any."""
    if setting.get("scheduler") == UNCACHED:
        setting |= {"scheduler": BOTH, "cache_s": 0.0}
    return where(rows, **{"experiment": experiment, **OBJECT_STANDARD, **setting})


def on_osds(rows: pd.DataFrame, stragglers: str, **setting: Any) -> pd.DataFrame:
    """Return the bursts on a Ceph with eight OSDs, as in `campaigns/files/twochoice-rados.yaml`,
    with the other values in `setting`, such as ``copies``."""
    usual = RADOS | RADOS_AMONG[stragglers]
    return on_servers(rows, "burst", **(usual | {"stragglers": stragglers} | setting))


def shared_ratios(*rows: pd.DataFrame) -> list[float]:
    """Return straggler ratios that all the tables have runs of."""
    sets = [set(values_of(its, "straggler_ratio")) for its in rows]
    return sorted(set.intersection(*sets)) if sets else []


def reports(evidence: Evidence, rows: pd.DataFrame, file: str) -> list[Mapping[str, Any]]:
    """Return the reports of the rows' runs, which extend their summaries."""
    return [run.report(file) for run in evidence.runs_of(rows)]


STRAGGLERS = -1
"""The stragglers' load in a table of loads."""
COMMON = 10.0
"""Minimum mean number of servers of a load for a meaningful maximum: with few servers, the maximum
is over few draws."""


def few_stragglers(table: pd.DataFrame, series: Sequence[str]) -> float | None:
    """Return the straggler ratio of figure 4: the smallest above zero with runs of all these
    schedulers. In the campaigns this ratio has fewer than ten stragglers, as the paper says. None
    if no ratio qualifies."""
    found = [at for at in shared_ratios(*(simulated(table, one) for one in series)) if at > 0]
    return found[0] if found else None


def loads_given(evidence: Evidence, series: str, ratio: float) -> pd.DataFrame:
    """Return the writes given to servers of each load (figure 4), by run and load (`STRAGGLERS`:
    all): ``servers`` (their number), ``mean`` and ``most``; see `dataplane/sim/burst`."""
    rows = simulated(evidence.table, series, straggler_ratio=ratio)
    numbers = ("servers", "most", "mean")
    found: list[dict[str, Any]] = []
    its = reports(evidence, rows, BURSTS_FILE)
    for seed, ground, report in zip(rows["seed"], rows["ground"], its, strict=True):
        for one in report["loads"]:
            load = STRAGGLERS if one["straggler"] else int(one["load"])
            row = {"seed": seed, "ground": ground, "series": series, "load": load}
            found.append(row | {name: float(one[name]) for name in numbers})
    return pd.DataFrame(found, columns=["seed", "ground", "series", "load", *numbers])


def by_load(rows: pd.DataFrame, column: str) -> dict[int, Estimate]:
    """Return the mean over runs of a column of `loads_given`, by load."""
    return points(rows, "load", column)


def common_loads(rows: pd.DataFrame) -> list[int]:
    """Return loads of at least `COMMON` servers, without stragglers."""
    found = by_load(rows, "servers").items()
    return [load for load, one in found if one.value >= COMMON and load != STRAGGLERS]
