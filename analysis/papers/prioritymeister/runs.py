"""Runs as a table with a row for each workload, the selection of a figure's runs, values of blocks,
and tables that are derived from runs: settings met, Table 2's stand-ins, and proven bounds.

A block's runs have the same traces. n counts blocks, never requests or seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.claims import is_simulated
from analysis.core.evidence import Rows, where
from analysis.core.load import ORIGIN, SIM, LoadedRun, origin
from analysis.core.panels import Look
from analysis.core.stats import Estimate
from schemas.cells.prioritymeister import PM

BEST_EFFORT = "pm-best-effort"
POLICIES = {
    "pm": Look("PM", "#0072B2"),
    BEST_EFFORT: Look("PM, best effort", "#56B4E9"),
    "byslo": Look("bySLO", "#D55E00"),
    "edf": Look("EDF", "#009E73"),
    "cake": Look("Cake", "#CC3311"),
    "ps": Look("ps", "#777777"),
    "mclock": Look("mClock", "#AA4499"),
    "none": Look("none", "#BBBBBB"),
}
"""Policies in the order of figures, with their looks."""
BLIND = ("ps", "byslo", "mclock", "none")
"""Policies that do not depend on a common factor of all SLOs."""
WORKLOADS = {
    **dict.fromkeys("AFGH", "#0072B2"),
    **{"B": "#D55E00", "C": "#009E73", "I": "#999999", "J": "#E69F00"},
    **dict.fromkeys("DK", "#CC79A7"),
}
"""Colours of workloads, the same in every figure."""

STANDARD = PM.defaults(
    *("buckets", "copy_share", "depth", "device_profile", "traces", "sharpness", "access"),
    *("network_share", "blocking", "trace_windows", "trace_load", "counted"),
)
"""Common parameters of the figures' runs; runs with other values feed no figure."""
USUAL = PM.defaults(
    *("permutation", "estimator", "limiters", "cake_upper", "misbehaves", "bottleneck"),
    *("network_levels", "copy_kib"),
)
"""Parameters of a figure's cells, unless the figure varies them."""
LONGEST = 100.0
"""The `slo_percentile` of runs with SLOs from the longest latency alone; no figure uses them."""
WHY = "pm-why"
"""The campaign that varies the common parameters of the figures, one at a time."""
PERCENTILES = {f"p{p:g}_s": p for p in (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)}
NUMBERS = (
    *("requests", "misses", "unfinished", "slo_s", "alone_s", "mean_s", "max_s", "max_whole_s"),
    *(*PERCENTILES, "within", "bytes_s"),
    *("required_bytes_s", "priority", "level_network-in", "level_network-out", "planned"),
    *("bound_s", "bound_blocking_s", "bound_ratio", "storage", "network", "scv"),
    *("late_s", "behind_s", "allowed_s", "network_kept", "unanswered"),
)
"""Numbers of a workload, by the names of `campaigns.papers.prioritymeister.cell`."""
BEYOND = 10
"""Minimum number of requests beyond a reported percentile."""
TAIL = 99.9
"""The percentile of claims about "all percentiles". A run that meets it meets all lower ones."""

STATED: dict[str, tuple[float | None, float | None, float | None]] = {
    "A": (0.05, 0.05, 1.3),
    "B": (0.05, 0.05, 14.0),
    "C": (0.55, 0.05, 2.2),
    "D": (0.10, 0.05, 23.0),
    "E": (1.00, 0.15, 145.0),
    "F": (0.25, 0.05, 1.0),
    "G": (0.25, 0.05, 20.0),
    "H": (0.25, 0.05, 40.0),
    "I": (0.35, 0.20, 1.0),
    "J": (0.45, 0.25, 1.0),
    "K": (None, 0.35, 3.6),
}
"""Table 2: storage load, network load and C_A^2 by workload; E's storage load is "> 100 %"."""
COLUMNS = ("storage", "network", "scv")
MORE_THAN = ("E", "storage")
_BUSY = "utilisation "
"""Beginning of the names of busy shares in a summary."""
BROKEN = 1 + 1e-6
"""Ratio of the longest latency to the proven bound above which the bound is broken."""
PERMUTATIONS = 6
"""Orders of three SLOs (figure 11)."""

Value = Callable[[pd.DataFrame], pd.Series]
"""Function that computes a value for each block, indexed by seed, from rows."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row for each workload of a run: the run's origin, ``variant`` (the policy, with
    pm's mode), the cell's parameters, ``workload``, `NUMBERS`, ``usual``, and ``busiest``: 1 if the
    run's disk was busier than every link, else 0.

    ``usual`` is True if the row feeds the figures: it has `STANDARD` parameters. If the traces of
    runs differ in length (a quick and a full campaign), the longest of each scenario count, those
    with given SLOs and those with the rule's apart. An experiment that two campaigns share counts
    once.
    """
    rows: list[dict[str, Any]] = []
    for index, loaded in enumerate(runs):
        run, numbers = loaded.run, loaded.summary.extra
        parameters = run.parameters
        best_effort = parameters["mode"] == "best-effort"
        common = {
            **origin(index, run),
            "variant": BEST_EFFORT if best_effort else parameters["policy"],
            **PM.row(parameters),
            "usual": _is_standard(parameters),
            "busiest": _disk_is_busiest(numbers),
        }
        for name in sorted({key.split("_")[0] for key in numbers if key.endswith("_requests")}):
            own = {column: numbers.get(f"{name}_{column}") for column in NUMBERS}
            rows.append({**common, "workload": name, **own, **_never_answered(own)})
    columns = [*ORIGIN, "variant", *PM.fields, "usual", "busiest", "workload", *NUMBERS]
    found = pd.DataFrame(rows, columns=columns)
    if not rows:
        return found
    counted = found["seconds"].where(found["usual"] & (found["campaign"] != WHY))
    alike = [found["scenario"], found["burst"].fillna(""), found["slos"].notna()]
    found["usual"] &= found["seconds"] == counted.groupby(alike).transform("max")
    found = found.sort_values(["run_id"], kind="stable")
    found = found.drop_duplicates([*PM.fields, "seed", "workload"])
    return found.sort_values(["index", "workload"]).reset_index(drop=True)


def _disk_is_busiest(numbers: Mapping[str, float]) -> float | None:
    """Return 1 if a run's disk was busier than every link, else 0; None if unknown. A modelled
    disk's number is ``utilisation s0:disk``, a link's has ``->``."""
    links = [value for name, value in numbers.items() if _BUSY in name and "->" in name]
    disk = numbers.get(f"{_BUSY}s0:disk")
    return None if disk is None or not links else float(disk > max(links))


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


def _is_standard(parameters: Mapping[str, Any]) -> bool:
    """Return True if a run has the standard parameters; a parameter missing in old runs had the
    usual value."""
    usual = all(parameters.get(name, value) == value for name, value in STANDARD.items())
    return usual and parameters.get("slo_percentile") != LONGEST


# Selection of rows.


def cells(
    rows: pd.DataFrame, scenario: str, variant: str | None = None, *, given: bool = False, **at: Any
) -> pd.DataFrame:
    """Return rows of a scenario, of a policy, and with the given parameters. Other parameters have
    their usual value (k, burst and gaps have none), and `...` stands for any value. `given` selects
    runs with given SLOs, else those with SLOs by the rule of k.

    If a ground's runs of the scenario have a single k that differs from the requested one, they
    count: their campaign has declared that k. The same holds for the copy's requests.
    """
    found = rows[(rows["scenario"] == scenario) & rows["usual"].astype(bool)]
    found = found[found["slos"].notna() == given]
    if "k" in at and found["k"].nunique() == 1:
        at = {**at, "k": ...}
    if "copy_kib" not in at and found["copy_kib"].nunique() == 1:
        at = {**at, "copy_kib": ...}
    if scenario == "levels":
        at = {"network_levels": ..., **at}
    return where(found, variant=variant or ..., **{**USUAL, **at})


def varied(rows: pd.DataFrame, scenario: str, variant: str, **at: Any) -> pd.DataFrame:
    """Return rows of a scenario under a policy with the given parameters and otherwise the usual
    ones (k, burst, seconds have no usual value): the parameters that `pm-why` varies."""
    usual = {**STANDARD, **USUAL, "slo_percentile": 99.9, "gaps": "balanced", "slos": None}
    return where(rows, scenario=scenario, variant=variant, **{**usual, **at})


def of(scenario: str, variant: str | None, *, given: bool = False, **at: Any) -> Rows:
    """Select rows of a scenario under a policy, see `cells`."""
    return lambda table: cells(table, scenario, variant, given=given, **at)


def of_same_order(table: pd.DataFrame, estimator: str) -> pd.DataFrame:
    """Return figure 10's latencies with an estimator, of blocks in which both estimators lead to
    the same order."""
    rows = cells(table, "disk", "pm", given=True, estimator=...)
    same = same_order(rows)
    alike = rows["seed"].isin(same[same == 1].index)
    return latency(rows[alike & (rows["estimator"] == estimator)])


def whole_trace(scenario: str, variant: str) -> Rows:
    """Select rows of runs in which all requests of the trace count."""
    return partial(where, scenario=scenario, variant=variant, counted="whole")


def only(rows: Rows, *workloads: str) -> Rows:
    """Select the rows of the given workloads."""
    return lambda table: (found := rows(table))[found["workload"].isin(workloads)]


def latency(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of workloads with a latency SLO."""
    return rows[rows["slo_s"].notna()]


def with_slo(rows: Rows) -> Rows:
    """Select the rows of workloads with a latency SLO."""
    return lambda table: latency(rows(table))


def variants(rows: pd.DataFrame) -> list[str]:
    """Return the policies that have runs, in the order of the figures."""
    known = set(rows["variant"])
    return [name for name in POLICIES if name in known]


def highest(requests: pd.Series) -> pd.Series:
    """Return the highest of the reported percentiles with ten requests beyond it."""
    allowed = [p for p in (float(name[1:-2]) for name in PERCENTILES) if p <= TAIL]
    counts, found = requests.to_numpy(float), np.full(len(requests), allowed[0])
    for percent in allowed[1:]:
        found[counts * (1 - percent / 100) >= BEYOND * (1 - 1e-9)] = percent
    return pd.Series(found, index=requests.index)


def met(rows: pd.DataFrame, percent: float) -> pd.Series:
    """Return True for each row if its workload met its SLO: at least `percent` of its requests were
    within the SLO (section 5.2), counted one by one. On machines, whose runs have fewer requests,
    the percentile is the highest with ten requests beyond it, if that is lower."""
    within = rows["within"].astype(float)
    known = highest(rows["requests"]).clip(upper=percent)
    at = known.where(~rows["ground"].map(is_simulated).astype(bool), percent)
    return within >= at / 100 - 1e-12


def at_k(rows: pd.DataFrame, k: float) -> pd.DataFrame:
    """Return the same runs compared with other SLOs, `k` times alone; for `BLIND` policies, which
    do not depend on k. ``within`` is then 1 if the percentile is within the SLO, else 0."""
    found = latency(rows).copy()
    if (found["k"] == k).all():
        return found
    slo = found["slo_s"] / found["k"] * k
    at = found[f"p{TAIL:g}_s"].astype(float)
    return found.assign(slo_s=slo, within=(at <= slo).astype(float), k=k)


def bootstrap(values: Sequence[float]) -> Estimate | None:
    """Return the median over runs with a 95 % percentile bootstrap over runs, for latency
    percentiles; no interval with fewer than two runs or an infinite value (never answered)."""
    found = np.asarray([value for value in values if not np.isnan(value)], dtype=float)
    if not len(found):
        return None
    endless = np.isinf(found).any()
    centre = float(np.sort(found)[len(found) // 2] if endless else np.median(found))
    if len(found) < 2 or endless:
        return Estimate(centre, math.nan, math.nan, len(found))
    random = np.random.default_rng(1)
    medians = np.median(random.choice(found, (4000, len(found))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Estimate(centre, float(low), float(high), len(found))


# Values of blocks.


def valued(rows: Rows, value: Value) -> Rows:
    """Return the blocks of the rows with their values, as ``seed``, ``ground``, ``value``."""

    def made(table: pd.DataFrame) -> pd.DataFrame:
        found = rows(table)
        if found.empty:
            return pd.DataFrame(columns=["seed", "ground", "value"])
        values = value(found).rename("value").rename_axis("seed").to_frame()
        return values.join(found.groupby("seed")["ground"].first()).reset_index()

    return made


def by_seed(rows: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Return the mean of the rows' values in each block."""
    return values.astype(float).groupby(rows["seed"]).mean()


def column(name: str) -> Value:
    """Compute the mean of a column over a block's rows."""
    return lambda rows: by_seed(rows, rows[name])


def all_met(percent: float = TAIL) -> Value:
    """Compute 1 for a block in which every workload met its SLO, else 0; the mean of its runs."""

    def value(rows: pd.DataFrame) -> pd.Series:
        found = latency(rows)
        runs = met(found, percent).astype(float).groupby([found["seed"], found["run_id"]]).min()
        return runs.groupby(level="seed").mean()

    return value


def missed_share(rows: pd.DataFrame) -> pd.Series:
    """Return the share of requests beyond their SLO, as the mean over workloads."""
    found = latency(rows)
    return by_seed(found, 1 - found["within"].astype(float))


def workloads_met(rows: pd.DataFrame) -> pd.Series:
    """Return the share of workloads that met their SLOs."""
    found = latency(rows)
    return by_seed(found, met(found, TAIL))


def workloads_proven(rows: pd.DataFrame) -> pd.Series:
    """Return the share of workloads that the plan proves to meet their SLOs."""
    return column("planned")(latency(rows))


def orders_met(rows: pd.DataFrame) -> pd.Series:
    """Return the number of the six orders that meet all SLOs; only blocks that have all six."""
    found = latency(rows)
    found = found.assign(met=met(found, TAIL).astype(float))
    runs = found.groupby(["seed", "permutation"])["met"].min().unstack()
    return runs.dropna().sum(axis=1) if runs.shape[1] == PERMUTATIONS else pd.Series(dtype=float)


def same_order(rows: pd.DataFrame) -> pd.Series:
    """Return 1 if the plans with both estimators have the same order at the disk, else 0."""
    exact, rough = (_order(rows[rows["estimator"] == one]) for one in ("profile", "constant"))
    both = pd.concat([exact.rename("e"), rough.rename("r")], axis=1, join="inner")
    return (both["e"] == both["r"]).astype(float)


def _order(rows: pd.DataFrame) -> pd.Series:
    """Return the order at the disk of each run as one number."""
    wide = rows.pivot_table(index="seed", columns="workload", values="priority")
    if wide.empty:
        return pd.Series(dtype=float)
    place = 10.0 ** pd.Series(range(len(wide.columns)), index=wide.columns, dtype=float)
    return (wide * place).sum(axis=1)


def c_after(*others: str) -> Value:
    """Compute 1 for a block where C comes after the other workloads at the disk, else 0."""

    def value(rows: pd.DataFrame) -> pd.Series:
        wide = rows.pivot_table(index="seed", columns="workload", values="priority")
        if not {"C", *others} <= set(wide.columns):
            return pd.Series(dtype=float)
        return (wide["C"] > wide[list(others)].max(axis=1)).astype(float)

    return value


def corrected(rows: pd.DataFrame) -> pd.Series:
    """Return 1 for blocks where PM meets every permutation that bySLO misses, else 0; only blocks
    where bySLO misses one."""
    found = latency(rows)
    found = found.assign(met=met(found, TAIL))
    wide = found.pivot_table(
        index=["seed", "permutation"], columns="variant", values="met", aggfunc="min"
    )
    if not {"pm", "byslo"} <= set(wide.columns):
        return pd.Series(dtype=float)
    missed = wide[~wide["byslo"].astype(bool)]
    return missed["pm"].astype(float).groupby(level="seed").min()


def only_above(percent: float) -> Value:
    """Compute 1 for a block that meets all SLOs at a percentile but not at the 99.9th, else 0."""
    return lambda rows: all_met(percent)(rows) - all_met()(rows)


def largest_of_bound(rows: pd.DataFrame) -> pd.Series:
    """Return the largest ratio of a longest latency to its proven bound."""
    return rows["bound_ratio"].astype(float).groupby(rows["seed"]).max()


def only_k_met(rows: pd.DataFrame) -> pd.Series:
    """Return 1 for blocks where K meets its SLO and another workload does not, else 0."""
    found = latency(rows)
    wide = found.assign(met=met(found, TAIL)).pivot(index="seed", columns="workload", values="met")
    if "K" not in wide.columns:
        return pd.Series(dtype=float)
    return (wide["K"] & ~wide.drop(columns="K").all(axis=1)).astype(float)


def not_first(rows: pd.DataFrame) -> pd.Series:
    """Return 1 for blocks where K does not have the first level on the way out, else 0."""
    found = rows[rows["workload"] == "K"]
    return by_seed(found, found["level_network-out"] > 1)


def copy_done(rows: pd.DataFrame) -> pd.Series:
    """Return the share of copies with at least the required throughput."""
    found = rows[rows["bytes_s"].notna()]
    return by_seed(found, found["bytes_s"] >= found["required_bytes_s"])


# Requests and SLO misses over time (figure 1).

PERIOD = 0.1
"""Share of missed SLOs from which ten seconds are a period of significant violations."""
BUSY = 0.9
"""Quantile of the requests in ten seconds above which these are a burst."""
WINDOWS = ("period", "in_bursts")
"""Numbers of `windows`."""


def counted(loaded: LoadedRun, metric: str, workload: str) -> list[list[float]]:
    """Return times (s) and counts of a workload in ten seconds each."""

    def counts(run: LoadedRun) -> list[list[float]]:
        t_s, values = run.series(metric, workload)
        order = np.argsort(t_s, kind="stable")
        return [t_s[order].tolist(), values[order].tolist()]

    return loaded.reduced(f"{metric} of {workload}", counts)


def windows(loaded: LoadedRun, workload: str) -> tuple[float, float]:
    """Return 1 if the counted half of a run has a `PERIOD` of significant violations, else 0, and
    the share of its misses in the busiest tenth of its windows over the share of its requests there
    (NaN without a miss)."""
    sides = [
        pd.Series(values, index=t_s, dtype=float)
        for t_s, values in (counted(loaded, one, workload) for one in ("requests", "misses"))
    ]
    both = pd.concat(sides, axis=1, keys=["requests", "misses"]).fillna(0.0)
    both = both[both.index >= loaded.run.parameters["seconds"] / 2]
    period = float((both["misses"] > PERIOD * both["requests"]).any())
    if not both["misses"].sum():
        return period, math.nan
    bursts = both[both["requests"] >= both["requests"].quantile(BUSY)].sum() / both.sum()
    return period, float(bursts["misses"] / bursts["requests"])


# Settings that a policy meets, and Table 2.


def settings(table: pd.DataFrame, only: str | None = None) -> pd.DataFrame:
    """Return one row per policy (or of the policy `only`), k and block of the scenario `disk`:
    ``variant``, ``k``, ``seed``, ``ground``, ``met`` (1 if all latency SLOs were met at the 99.9th
    percentile). A setting is a block's traces and a k. Policies that do not depend on k ran once
    and are compared with every k of PM's runs."""
    rows = latency(cells(table, "disk"))
    swept = sorted(rows[rows["variant"] == "pm"]["k"].unique())
    parts = []
    for name in variants(rows) if only is None else [only]:
        mine = rows[rows["variant"] == name]
        for k in swept:
            found = mine[mine["k"] == k]
            if found.empty and name in BLIND:
                found = at_k(mine.drop_duplicates(["seed", "workload"]), k)
            if not found.empty:
                found = found.assign(met=met(found, TAIL).astype(float))
                every = found.groupby("seed").agg(met=("met", "min"), ground=("ground", "first"))
                parts.append(every.reset_index().assign(variant=name, k=k))
    columns = ["variant", "k", "seed", "ground", "met"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


def settings_met(variant: str) -> Rows:
    """Select the settings of a policy, with ``value`` 1 if all SLOs were met, else 0; only blocks
    with every swept k."""

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        mine = settings(table, variant)
        count = mine.groupby("seed")["k"].transform("nunique")
        return mine[count == mine["k"].nunique()].rename(columns={"met": "value"})

    return rows


def described(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of cells that describe their traces (Table 2)."""
    return cells(table, "table2", "inputs", k=...)


def deviations(rows: pd.DataFrame) -> pd.DataFrame:
    """Return measured over stated values, a row per trace and column: ``seed``, ``ground``,
    ``workload``, ``column``, ``ratio``. E's storage load, stated only as a bound, is left out."""
    parts = [
        (row["seed"], row["ground"], row["workload"], name, float(row[name]) / stated)
        for _, row in rows.iterrows()
        for name, stated in zip(COLUMNS, STATED[row["workload"]], strict=True)
        if stated is not None and (row["workload"], name) != MORE_THAN and row[name] is not None
    ]
    return pd.DataFrame(parts, columns=["seed", "ground", "workload", "column", "ratio"])


def farthest(table: pd.DataFrame) -> pd.DataFrame:
    """Return each block's deviation from Table 2 that is farthest from 1."""
    found = deviations(described(table))
    found = found.assign(off=(found["ratio"] - 1).abs()).sort_values("off")
    return found.drop_duplicates("seed", keep="last").sort_values("seed")


# Proven bounds (section 4.4).


def _reported(table: pd.DataFrame) -> pd.Series:
    """Return True for rows that can have a bound: modelled, or with reported enforcement."""
    return table["ground"].eq(SIM) | table["network_kept"].notna()


def proven(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a proven bound; on real machines, only if the run reports enforcement.
    ``held`` is 1 if the longest latency is within the bound, else 0."""
    found = table[table["bound_ratio"].notna() & _reported(table)]
    return found.assign(held=(found["bound_ratio"].astype(float) <= BROKEN).astype(float))


def waiting(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a proven bound of workloads that others precede both at the disk and on the
    way out."""
    places = table[["priority", "level_network-out"]].astype(float)
    later = (places > places.groupby(table["run_id"]).transform("min")).all(axis=1)
    return proven(table[later])


def unproven(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of PM (hold) on real machines without a proven bound; ``why``: reason. A
    simulation meets all assumptions of a bound. Real machines may not: see
    `campaigns.papers.prioritymeister.experiment.Conditions`."""
    planned = table["bound_blocking_s"].notna() & table["slo_s"].notna()
    without = table["bound_ratio"].isna() | ~_reported(table)
    found = table[table["ground"].ne(SIM) & planned & (table["variant"] == "pm") & without]
    return found.assign(why=[_why(row) for _, row in found.iterrows()])


def _why(row: pd.Series) -> str:
    network, behind, allowed = (row[name] for name in ("network_kept", "behind_s", "allowed_s"))
    if pd.isna(network):
        return "the run does not report what was enforced"
    if not network:
        return "the network was not enforced as planned"
    if pd.isna(behind):
        return "the proxy did not report how far its server was behind"
    if behind > allowed and allowed:
        return "the server was further behind its charges than its profile allows"
    if behind > allowed:
        return "the profile names no overhead of the server"
    if row["unanswered"]:
        return "requests were not answered"
    return "the workload was not held to what it announced"


def unbounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of PM (hold), on any ground, of workloads that higher priorities can starve: the
    plan has no finite bound for them; ``why`` says so."""
    without = table["bound_blocking_s"].isna() & table["bound_ratio"].isna()
    planned = table["planned"].eq(0.0) & table["slo_s"].notna()
    found = table[(table["variant"] == "pm") & planned & without]
    return found.assign(why="the plan has no finite bound for the workload")


def unproven_text(table: pd.DataFrame) -> str | None:
    """Return the number of unproven bounds with reasons, commonest first; None if there is none."""
    found = unproven(table)
    if found.empty:
        return None
    reasons = ", ".join(f"{count} as {why}" for why, count in found["why"].value_counts().items())
    behind = found["behind_s"].astype(float).max()
    most = "" if pd.isna(behind) else f" (servers were behind by up to {1e3 * behind:.3g} ms)"
    return f"{len(found)} bounds of runs on real machines are not proven: {reasons}{most}"
