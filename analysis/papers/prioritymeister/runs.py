"""Runs as a table with a row for each workload, paired by block.

A block's runs have the same traces. n counts blocks, never requests or seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.claims import is_simulated
from analysis.core.load import LoadedRun
from analysis.core.stats import Estimate, mean, ratio
from schemas.cells.prioritymeister import PM

COPY = "L"
BEST_EFFORT = "pm-best-effort"

STANDARD = PM.defaults(
    *("buckets", "copy_share", "depth", "device_profile", "traces", "sharpness", "access"),
    *("copy_kib", "network_share", "blocking", "trace_windows", "trace_load"),
)
"""Common parameters of the figures' runs; runs with other values feed no figure."""
LONGEST = 100.0
"""The `slo_percentile` of runs with SLOs from the longest latency alone; no figure uses them."""
WHY = "pm-why"
"""The campaign that varies the common parameters of the figures, one at a time."""
USUAL = PM.defaults(
    *("permutation", "estimator", "limiters", "cake_upper", "misbehaves", "bottleneck"),
    "network_levels",
)
"""Parameters of a figure's cells, unless the figure varies them."""
_RUN = ("index", "run_id", "campaign", "block", "seed", "ground", "variant")
NUMBERS = (
    *("requests", "misses", "unfinished", "slo_s", "alone_s", "mean_s", "max_s", "max_whole_s"),
    *("p50_s", "p90_s", "p95_s", "p99_s", "p99.9_s", "p99.99_s", "within", "bytes_s"),
    *("required_bytes_s", "priority", "level_network-in", "level_network-out", "planned"),
    *("bound_s", "bound_blocking_s", "bound_ratio", "storage", "network", "scv"),
    *("late_s", "behind_s", "allowed_s", "network_kept", "unanswered"),
)
"""Numbers of a workload, by the names of `campaigns.papers.prioritymeister.cell`."""
PERCENTILES = {f"p{p:g}_s": p for p in (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)}
BEYOND = 10
"""Minimum number of requests beyond a reported percentile."""

BLIND = ("ps", "byslo", "mclock", "none")
"""Policies that do not depend on a common factor of all SLOs."""
POLICIES = ("pm", BEST_EFFORT, "byslo", "edf", "cake", "ps", "mclock", "none")
LABELS = {
    "pm": "PM",
    BEST_EFFORT: "PM, best effort",
    "byslo": "bySLO",
    "edf": "EDF",
    "cake": "Cake",
    "ps": "ps",
    "mclock": "mClock",
    "none": "none",
}
COLOURS = {
    "pm": "#0072B2",
    BEST_EFFORT: "#56B4E9",
    "byslo": "#D55E00",
    "edf": "#009E73",
    "cake": "#CC3311",
    "ps": "#777777",
    "mclock": "#AA4499",
    "none": "#BBBBBB",
}
WORKLOADS = {
    "A": "#0072B2",
    "B": "#D55E00",
    "C": "#009E73",
    "D": "#CC79A7",
    "F": "#0072B2",
    "G": "#0072B2",
    "H": "#0072B2",
    "I": "#999999",
    "J": "#E69F00",
    "K": "#CC79A7",
}

Rows = Callable[[pd.DataFrame], pd.DataFrame]


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row for each workload of a run. Columns: index of the run, run_id, campaign,
    block, seed, ground, variant (the policy, with pm's mode), the cell's parameters, workload,
    `NUMBERS`, and ``usual``: True if the row feeds the figures. Such rows have `STANDARD`
    parameters. If the traces of runs differ in length (a quick and a full campaign), the longest of
    each scenario count; of those, on machines, the runs with the smallest requests of the copy. An
    experiment that two campaigns share counts once."""
    rows: list[dict[str, Any]] = []
    for index, loaded in enumerate(runs):
        run, parameters = loaded.run, loaded.run.parameters
        policy, mode = parameters["policy"], parameters["mode"]
        common: dict[str, Any] = {
            "index": index,
            "run_id": run.run_id,
            "campaign": run.campaign,
            "block": run.block,
            "seed": run.seed,
            "ground": run.ground,
            "variant": BEST_EFFORT if mode == "best-effort" else policy,
            **PM.row(parameters),
            "usual": _is_standard(parameters, simulated=is_simulated(run.ground)),
        }
        numbers = loaded.summary.extra
        names = sorted({key.split("_")[0] for key in numbers if key.endswith("_requests")})
        for name in names:
            own = {column: numbers.get(f"{name}_{column}") for column in NUMBERS}
            own |= _never_answered(own)
            rows.append({**common, "workload": name, **own})
    columns = [*_RUN, *PM.fields, "usual", "workload", *NUMBERS]
    if not rows:
        return pd.DataFrame(columns=columns)
    found = pd.DataFrame(rows, columns=columns)
    counted = found["seconds"].where(found["usual"] & (found["campaign"] != WHY))
    longest = counted.groupby([found["scenario"], found["burst"].fillna("")]).transform("max")
    found["usual"] &= found["seconds"] == longest
    sizes = found["copy_kib"].where(found["usual"])
    found["usual"] &= sizes == sizes.groupby([found["ground"], found["scenario"]]).transform("min")
    found = found.sort_values(["run_id"], kind="stable")
    keys = [*PM.fields, "seed", "workload"]
    return found.drop_duplicates(keys).sort_values(["index", "workload"]).reset_index(drop=True)


def _never_answered(own: Mapping[str, float | None]) -> dict[str, float]:
    """Return percentiles among unanswered requests as infinite: a summary holds only finite
    numbers. A percentile that is missing because of too few requests stays missing."""
    requests = own["requests"] or 0.0
    if not own["unfinished"]:
        return {}
    return {
        column: math.inf
        for column, percent in PERCENTILES.items()
        if own[column] is None and requests * (1 - percent / 100) >= BEYOND * (1 - 1e-9)
    }


def _is_standard(parameters: Mapping[str, Any], *, simulated: bool) -> bool:
    """Return True if a run has the standard parameters; a parameter missing in old runs had the
    usual value. On machines the campaign sets the size of a copy's requests."""
    told = STANDARD if simulated else {**STANDARD, "copy_kib": parameters.get("copy_kib", 1024)}
    usual = all(parameters.get(name, value) == value for name, value in told.items())
    return usual and parameters.get("slo_percentile") != LONGEST


def cells(rows: pd.DataFrame, scenario: str, variant: str | None = None, **at: Any) -> pd.DataFrame:
    """Return rows of a scenario, of a policy, and with the given parameters. Other parameters have
    their usual value (k, burst and gaps have none), and `...` stands for any value.

    If a ground's runs of the scenario have a single k that differs from the requested one, they
    count: their campaign has declared that k.
    """
    usual = {name: value for name, value in USUAL.items() if name != "network_levels"}
    if scenario != "levels":
        usual = USUAL
    found = rows[(rows["scenario"] == scenario) & rows["usual"].astype(bool)]
    if "k" in at and found["k"].nunique() == 1:
        at = {**at, "k": ...}
    return _where(found, variant, {**usual, **at})


def varied(rows: pd.DataFrame, scenario: str, variant: str, **at: Any) -> pd.DataFrame:
    """Return rows of a scenario under a policy with the given parameters and otherwise the usual
    ones (k, burst, seconds have no usual value): the parameters that `pm-why` varies."""
    usual = {**STANDARD, **USUAL, "slo_percentile": 99.9, "gaps": "balanced"}
    return _where(rows[rows["scenario"] == scenario], variant, {**usual, **at})


def _where(found: pd.DataFrame, variant: str | None, at: Mapping[str, Any]) -> pd.DataFrame:
    """Return rows of a policy with the given values; None is a missing value, and `...` any."""
    if variant is not None:
        found = found[found["variant"] == variant]
    for name, value in at.items():
        if value is ...:
            continue
        column = found[name]
        found = found[column.isna() if value is None else column == value]
    return found


def latency(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of workloads with a latency SLO."""
    return rows[rows["slo_s"].notna()]


def met(rows: pd.DataFrame, percent: float) -> pd.Series:
    """Return True for each row if its workload met its SLO: at least `percent` of its requests were
    within the SLO (section 5.2), counted one by one."""
    within = rows["within"].astype(float)
    return within >= percent / 100 - 1e-12


def met_by_run(rows: pd.DataFrame, percent: float) -> pd.DataFrame:
    """Return one row per run: run_id, block, seed, k, variant, ``met`` (1 if all of its workloads
    met their SLOs), ``count`` (the number that did)."""
    found = latency(rows)
    found = found.assign(met=met(found, percent).astype(float))
    keys = ["run_id", "block", "seed", "k", "variant"]
    grouped = found.groupby(keys, dropna=False)
    return grouped["met"].agg(met="min", count="sum").reset_index()


def at_k(rows: pd.DataFrame, k: float, percent: float = 99.9) -> pd.DataFrame:
    """Return the same runs compared with other SLOs, `k` times alone; for `BLIND` policies, which
    do not depend on k. ``within`` is then 1 if the percentile is within the SLO, else 0."""
    found = latency(rows).copy()
    if (found["k"] == k).all():
        return found
    slo = found["slo_s"] / found["k"] * k
    at = found[f"p{percent:g}_s"].astype(float)
    return found.assign(slo_s=slo, within=(at <= slo).astype(float), k=k)


def by_block(rows: pd.DataFrame, column: str) -> pd.Series:
    """Return the mean of a column in each block, indexed by seed."""
    return rows.groupby("seed")[column].mean().astype(float)


def average(values: pd.Series) -> Estimate | None:
    """Return the mean over blocks with a t interval."""
    found = values.dropna().tolist()
    return mean(found) if found else None


def difference(treated: pd.Series, baseline: pd.Series) -> Estimate | None:
    """Return the mean of treated minus baseline over blocks that have both, with a t interval."""
    both = pd.concat([treated.rename("t"), baseline.rename("b")], axis=1, join="inner").dropna()
    return mean((both["t"] - both["b"]).tolist()) if len(both) else None


def quotient(treated: pd.Series, baseline: pd.Series) -> Estimate | None:
    """Return the geometric mean of treated/baseline over blocks, with a t interval of the logs."""
    both = pd.concat([treated.rename("t"), baseline.rename("b")], axis=1, join="inner").dropna()
    both = both[((both > 0) & (both < np.inf)).all(axis=1)]
    return ratio(both["t"].tolist(), both["b"].tolist()) if len(both) else None


def geometric(values: pd.Series) -> Estimate | None:
    """Return the geometric mean over blocks with a t interval of the logarithms."""
    found = values.dropna()
    found = found[found > 0]
    return ratio(found.tolist(), [1.0] * len(found)) if len(found) else None


def variants(rows: pd.DataFrame) -> list[str]:
    """Return the policies that have runs, in the order of the figures."""
    known = set(rows["variant"])
    return [name for name in POLICIES if name in known]


def bootstrap(values: Sequence[float], *, draws: int = 4000, seed: int = 1) -> Estimate | None:
    """Return the median over runs with a 95 % percentile bootstrap over runs, for latency
    percentiles; no interval with fewer than two runs or an infinite value (never answered)."""
    found = np.asarray([value for value in values if not np.isnan(value)], dtype=float)
    if not len(found):
        return None
    centre = float(np.sort(found)[len(found) // 2] if np.isinf(found).any() else np.median(found))
    if len(found) < 2 or np.isinf(found).any():
        return Estimate(centre, float("nan"), float("nan"), len(found))
    random = np.random.default_rng(seed)
    medians = np.median(random.choice(found, (draws, len(found))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Estimate(centre, float(low), float(high), len(found))
