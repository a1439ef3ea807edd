"""The planner's runs as a table, paired by instance.

Kind, size and seed identify an instance; every method of a block planned for the same instance. n
counts instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.core.load import LoadedRun, origin
from analysis.core.stats import Estimate, ratio
from schemas.cells.ursa import URSA
from schemas.sizes import size_name

STANDARD = URSA.defaults("tail", "load_max", "racks", "replicas", "max_move_cost")
"""Common parameters of the paper's instances; cells with other values feed no figure of it."""

ALGORITHM = "algorithm1"
OURS = "alp"

COLUMNS = ("index", "run_id", "campaign", "block", "seed", "ground", "size", "series")

KINDS = {"s1": "S1, like the paper's", "s2": "S2, tight", "s3": "S3, clustered"}
COLOURS = {
    "alp": "#0072B2",
    "algorithm1": "#56B4E9",
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
    "alp": "ALP (Hotbed's)",
    "algorithm1": "ALP (Algorithm 1 as written)",
    "htoc": "HtoC",
    "sa": "SA",
    "opt": "OPT",
    "none": "NONE (before)",
    "highest": "highest load first",
    "random": "random",
    **KINDS,
}


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run, for instances like the paper's.

    Columns: `COLUMNS`, the cell's parameters, and every number of the summary. ``series`` is the
    variant of Algorithm 1 (``DC+LP``). If runs differ only in their time limit (such as in a quick
    and a full campaign), the run with the longer limit counts: an instance counts once, in whatever
    campaign it was planned for.
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
    if not rows:
        return pd.DataFrame(columns=[*COLUMNS, *URSA.fields])
    found = pd.DataFrame(rows)
    # Sorted by run id too: the choice among equal runs must not depend on folders.
    found = found.sort_values(["time_limit_s", "run_id"], kind="stable")
    keys = [name for name in URSA.fields if name != "time_limit_s"]
    return (
        found.drop_duplicates([*keys, "seed"], keep="last")
        .sort_values("index")
        .reset_index(drop=True)
    )


def _series(parameters: dict[str, Any]) -> str | None:
    if parameters.get("method") != ALGORITHM:
        return None
    return f"{parameters.get('divide')}+{parameters.get('program')}".upper()


def cells(
    rows: pd.DataFrame,
    method: str,
    *,
    kind: str | None = None,
    size: str | None = None,
    selection: str = "highest",
    series: str = "DC+LP",
) -> pd.DataFrame:
    """Return the runs of a method as in the paper: highest-load-first, Algorithm 1 as DC+LP with
    its usual radii."""
    found = rows[(rows["method"] == method) & (rows["selection"] == selection)]
    if method == ALGORITHM:
        found = found[found["series"] == series]
        found = found[found["first_radius"].isna() & found["radius_step"].isna()]
    if kind is not None:
        found = found[found["kind"] == kind]
    if size is not None:
        found = found[found["size"] == size]
    return found


def sizes(rows: pd.DataFrame) -> list[str]:
    """Return sizes that have runs, the smallest first."""
    known = rows[["nodes", "partitions", "size"]].drop_duplicates()
    return [str(name) for name in known.sort_values(["nodes", "partitions"])["size"]]


def paired(treated: pd.DataFrame, baseline: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return both values of the same instances, if both are positive: ``treated``, ``baseline``.
    If swaps leave nothing to move, costs are zero and say nothing."""
    keys = ["kind", "size", "seed"]
    if column not in treated.columns or treated.empty or baseline.empty:
        return pd.DataFrame(columns=["treated", "baseline"])
    left = treated.set_index(keys)[column].rename("treated")
    right = baseline.set_index(keys)[column].rename("baseline")
    both = pd.concat([left, right], axis=1, join="inner").dropna()
    return both[(both["treated"] > 0) & (both["baseline"] > 0)]


def quotient(
    treated: pd.DataFrame, baseline: pd.DataFrame, column: str, *, comparisons: int = 1
) -> Estimate | None:
    """Return the geometric mean of treated/baseline over instances; None without a pair."""
    both = paired(treated, baseline, column)
    if both.empty:
        return None
    return ratio(both["treated"].tolist(), both["baseline"].tolist(), comparisons=comparisons)


def geometric(rows: pd.DataFrame, column: str) -> Estimate | None:
    """Return the geometric mean over instances with a t interval of the logarithms, which suits a
    logarithmic axis; zeros (nothing had to move) are left out."""
    values = rows[column].dropna() if column in rows.columns else pd.Series(dtype=float)
    values = values[values > 0]
    return ratio(values.tolist(), [1.0] * len(values)) if len(values) else None
