"""MOS and MOS++ on fifty machines (section 8.2): runs, claims, figures and tables.

COSPerf simulates the machines, as in the paper. All policies of a block have the same pool and
loads, drawn from the block's seed. n counts runs. Measures, as in figures 14 and 15: requests/s of
small objects (A, B), bytes/s of large ones (C, D). The paper's "up to" for curves over time is read
as the 15 minutes with the largest lead of MOS++, on average over all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.core import style
from analysis.core.claims import Claim, Compute, Evidence, declared
from analysis.core.evidence import (
    BLOCK,
    Pair,
    Rows,
    extreme_over,
    mean_of,
    mean_over,
    pairs,
    quotient,
    where,
)
from analysis.core.figures import FigureEntry, Missing, Table
from analysis.core.load import LoadedRun, last_runs, origin, read_report
from analysis.core.panels import errors as error_bars
from analysis.core.papers import Part
from analysis.core.stats import Estimate, fraction, mean
from schemas.cells.mos import COSPERF
from schemas.claim import SHARE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- Runs ----

SERIES_FILE = "microstores.json"
TENANTS = ("A", "B", "C", "D")
STATIC, MOS, MOS_PP, LEARNING = "static", "mos", "mos-pp", "mos-pp-learning"
LABELS = {
    STATIC: "Static",
    MOS: "MOS",
    "mos-at-once": "MOS, at once",
    MOS_PP: "MOS++",
    "mos-pp-resource": "MOS++ by resource",
    LEARNING: "MOS++ that learns",
}

STANDARD = COSPERF.defaults(*(name for name in COSPERF.fields if name != "policy"))
"""Section 8.2's simulation, with Hotbed's reading of details that the paper omits."""

RESOURCES = {
    "proxy_cores": "cores of proxies",
    "storage_cores": "cores of storage servers",
    "network": "network",
}
"""Resources of the pool that microstores hold."""

WINDOW_MINUTES = 15.0
STAGES = {1: (0.0, 210.0), 2: (210.0, 420.0), 3: (420.0, 630.0), 4: (630.0, 840.0)}
CROWDED = (420.0, 500.0)
"""Stage 3 until C and D decrease: "up until around 500 min"."""

Span = tuple[float, float]
"""Begin and end, in the paper's minutes."""
Windows = dict[str, list[float]]
"""Middles of windows (``minute``) and means in them (``value``)."""
Report = Mapping[str, Any]
"""A run's `SERIES_FILE`."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: origin, ``loaded``, the cell's parameters, all summary numbers."""
    rows = [
        origin(index, loaded.run)
        | {"loaded": loaded}
        | COSPERF.row(loaded.run.parameters)
        | loaded.summary.extra
        for index, loaded in enumerate(runs)
    ]
    return last_runs(rows, ("policy", *STANDARD), more=("loaded",))


def cells(rows: pd.DataFrame, policy: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of a policy as in section 8.2, except for `setting`. Parameters that the
    policy's cells lack are ignored."""
    known = COSPERF.model_of({"policy": policy}).model_fields
    wanted = {k: v for k, v in (STANDARD | setting).items() if k in known}
    return where(rows, policy=policy, **wanted)


def measure(tenant: str) -> str:
    """Return the measure of a tenant, by its name in the series."""
    return "requests_s" if tenant in ("A", "B") else "bytes_s"


def throughput(loaded: LoadedRun, tenant: str) -> pd.Series[float]:
    """Return a tenant's throughput (see `measure`) in each window of `WINDOW_MINUTES`, indexed by
    the window's middle in the paper's minutes."""

    def windows(data: Report) -> Windows:
        return _windows(data, data["tenants"][tenant][measure(tenant)])

    return _by_window(loaded, f"throughput of {tenant}", windows)


def held_share(loaded: LoadedRun, resource: str, stores: str = "") -> pd.Series[float]:
    """Return the share of a pool resource that the given microstores hold, by window; all hold it
    without `stores`."""

    def windows(data: Report) -> Windows:
        held = np.sum([data["held"][store][resource] for store in stores or data["held"]], axis=0)
        return _windows(data, held / data["pool"][resource])

    return _by_window(loaded, f"{resource} held by {stores or 'all'}", windows)


def _by_window(
    loaded: LoadedRun, name: str, windows: Callable[[Report], Windows]
) -> pd.Series[float]:
    found = loaded.reduced(name, lambda run: windows(read_report(run.file(SERIES_FILE))))
    return pd.Series(found["value"], index=found["minute"])


def _windows(data: Report, each: Any) -> Windows:
    values, seconds = np.array(each), np.array(data["seconds"])
    stretch = STAGES[4][1] / data["minutes"]
    middles = (np.array(data["t_s"]) - seconds / 2) / 60 * stretch
    which = (middles // WINDOW_MINUTES).astype(int)
    order = np.unique(which)
    means = [float(np.average(values[which == at], weights=seconds[which == at])) for at in order]
    return {"minute": ((order + 0.5) * WINDOW_MINUTES).tolist(), "value": means}


def within(windows: pd.Series[float], span: Span | None) -> pd.Series[float]:
    """Return the windows that begin between two minutes; None: all."""
    if span is None:
        return windows
    begins = windows.index.to_numpy(float) - WINDOW_MINUTES / 2
    return windows[(begins >= span[0] - 1e-9) & (begins < span[1] - 1e-9)]


def by_tenant(rows: pd.DataFrame, tenants: Iterable[str] = TENANTS) -> pd.DataFrame:
    """Return a row for each run and tenant, with the added columns ``tenant`` and ``rate``: mean
    throughput over all stages."""
    each = [
        rows.assign(tenant=tenant, rate=[throughput(one, tenant).mean() for one in rows["loaded"]])
        for tenant in tenants
    ]
    return pd.concat(each, ignore_index=True)


def gain(
    treated: pd.DataFrame, baseline: pd.DataFrame, tenants: Iterable[str] = TENANTS
) -> Estimate | None:
    """Return the geometric mean of throughput ratios, over blocks and a block's tenants."""
    top, bottom = (by_tenant(rows, tenants) for rows in (treated, baseline))
    return quotient(top, bottom, "rate", keys=(*BLOCK, "tenant"), cluster="seed")


# ---- Claims ----

ERRORS = (0.0, 0.1, 0.2, 0.3)
"""Relative errors that are put into cospurf."""

AVERAGES = {"A": 1.124, "B": 1.157, "C": 1.15, "D": 1.188}
"""Section 8.2 and Table 3."""

_NO_BLOCK = "no block was run with both policies"

_claim = partial(declared, prefix="mos-sim", paper="mos", baseline=MOS)
_within = partial(_claim, value=1.0, rule="within")
_beyond = partial(_claim, stated=False)


def _rows(policy: str, value: Callable[[LoadedRun], float]) -> Rows:
    """Select a policy's runs, with the added column ``value``."""

    def rows(runs: pd.DataFrame) -> pd.DataFrame:
        found = cells(runs, policy)
        return found.assign(value=[value(one) for one in found["loaded"]])

    return rows


def _tenants_of(policy: str, tenants: str, **setting: Any) -> Rows:
    return lambda runs: by_tenant(cells(runs, policy, **setting), tenants)


def _gain(treated: Rows, baseline: Rows, why: str) -> Pair:
    """Compute the mean gain over all stages, as the geometric mean over the rows' tenants."""
    return Pair(treated, baseline, "rate", why, keys=(*BLOCK, "tenant"), cluster="seed")


def average(treated: Rows, baseline: Rows, why: str) -> Compute:
    """Compute `_gain`; the note lists the tenants."""
    return mean_over(_gain(treated, baseline, why), "tenant", text=str)


def over_mos(
    tenants: str = "ABCD", baseline: str = MOS, treated: str = MOS_PP, **setting: Any
) -> Compute:
    """Compute the mean gain of MOS++, or a variant, over MOS or another policy with the same
    setting."""
    return (average if len(tenants) > 1 else _gain)(
        _tenants_of(treated, tenants, **setting),
        _tenants_of(baseline, tenants, **setting),
        f"no block was run with both {LABELS[treated]} and {LABELS[baseline]}",
    )


def most(tenant: str, span: Span) -> Compute:
    """Compute the largest gain of MOS++ over MOS in a window between two minutes."""

    def by_window(policy: str) -> Rows:
        def rows(runs: pd.DataFrame) -> pd.DataFrame:
            found = cells(runs, policy)
            return pd.DataFrame(
                [
                    (seed, ground, minute, rate)
                    for seed, ground, loaded in zip(
                        found["seed"], found["ground"], found["loaded"], strict=True
                    )
                    for minute, rate in within(throughput(loaded, tenant), span).items()
                ],
                columns=["seed", "ground", "minute", "rate"],
            )

        return rows

    pair = Pair(by_window(MOS_PP), by_window(MOS), "rate", _NO_BLOCK)
    return extreme_over(pair, "minute", "largest", text=lambda minute: f"{minute:.0f}")


def everything_held(loaded: LoadedRun) -> float:
    """Return the maximum held share of the pool's least used resource in a window of stage 3 until
    C and D decrease: all resources are used at least this much."""
    shares = [held_share(loaded, resource) for resource in RESOURCES]
    minutes = [one.index.to_numpy(float) for one in shares]
    inside = [(CROWDED[0] <= at) & (at < CROWDED[1]) for at in minutes]
    return min(float(one[here].max()) for one, here in zip(shares, inside, strict=True))


def large_network(loaded: LoadedRun) -> float:
    """Return the share of the network that C's and D's microstores hold in stage 2."""
    found = held_share(loaded, "network", "CD")
    minutes = found.index.to_numpy(float)
    return float(found[(STAGES[2][0] <= minutes) & (minutes < STAGES[2][1])].mean())


def largest_jump(loaded: LoadedRun) -> float:
    """Return the largest rise in the rate of A or B between quarters of an hour in stage 1,
    relative to the rate at the end of the stage; mean of both."""
    jumps = []
    for tenant in ("A", "B"):
        found = throughput(loaded, tenant)
        inside = found[found.index.to_numpy(float) < STAGES[1][1]].to_numpy()
        jumps.append(float(np.diff(inside).max() / inside[-1]))
    return float(np.mean(jumps))


_OWN_RUNS = _tenants_of(LEARNING, "ABCD", runs="same")
_NO_WRONG = "no block was run with a cospurf that is right and one that is wrong"

_PAPER: tuple[Claim, ...] = (
    *(
        _claim(
            f"stage-{stage}-{tenant.lower()}",
            figure,
            f"Stage {stage}{until}: MOS++ outperforms MOS by up to {100 * (value - 1):.0f} % for "
            f"workload {tenant}",
            most(tenant, span),
            value=value,
            family=f"mos-sim-stage-{stage}",
        )
        for stage, tenant, value, figure, span, until in (
            (3, "A", 1.25, "14", CROWDED, ", until minute 500"),
            (3, "D", 1.31, "15", CROWDED, ", until minute 500"),
            (4, "A", 1.33, "14", STAGES[4], ""),
            (4, "B", 1.26, "14", STAGES[4], ""),
        )
    ),
    *(
        _claim(
            f"average-{tenant.lower()}",
            "Table 3",
            f"On average over all stages MOS++ achieves {100 * (value - 1):.3g} % more for "
            f"workload {tenant}",
            over_mos(tenant),
            value=value,
            family="mos-sim-small" if tenant in "AB" else "mos-sim-large",
        )
        for tenant, value in AVERAGES.items()
    ),
    *(
        _within(
            name,
            "14",
            f"From the beginning of stage 3 {LABELS[policy]} uses all resources ({reading})",
            mean_of(
                _rows(policy, everything_held),
                "value",
                f"there is no run of {LABELS[policy]}",
                of=fraction,
            ),
            tolerance=0.1,
            unit=SHARE,
            baseline=None,
        )
        for name, policy, reading in (
            (
                "all-used",
                MOS,
                "the largest share of its least used resource: proxies' cores, storage servers' "
                "cores or network; read as within 10 %",
            ),
            ("all-used-pp", MOS_PP, "as above"),
        )
    ),
    _claim(
        "just-enough",
        "15",
        "In stage 2 MOS gives C and D more than needed: more of the network than MOS++ does",
        Pair(_rows(MOS, large_network), _rows(MOS_PP, large_network), "value", _NO_BLOCK),
        baseline=MOS_PP,
    ),
    _claim(
        "smoother",
        "14",
        "In stage 1 MOS++ makes no sudden spikes: A's and B's largest rise within a quarter of an "
        "hour is smaller than with MOS",
        Pair(_rows(MOS_PP, largest_jump), _rows(MOS, largest_jump), "value", _NO_BLOCK),
        larger=False,
    ),
)

_BEYOND: tuple[Claim, ...] = (
    *(
        _beyond(
            f"error-{100 * error:.0f}",
            "error",
            "With a cospurf from other runs than the judge, then distorted by "
            f"{100 * error:.0f} %, MOS++ that learns is ahead of MOS, on average over workloads "
            "and stages",
            over_mos(treated=LEARNING, model_error=error),
        )
        for error in ERRORS
    ),
    _beyond(
        "error-costs",
        "error",
        "A cospurf that is 30 % wrong costs MOS++ that learns performance",
        average(_tenants_of(LEARNING, "ABCD", runs="same", model_error=0.3), _OWN_RUNS, _NO_WRONG),
        baseline="mos-pp-own-runs",
        larger=False,
    ),
    _beyond(
        "error-costs-without-learning",
        "error",
        "A cospurf that is 30 % wrong costs a MOS++ that does not correct it performance",
        average(
            _tenants_of(LEARNING, "ABCD", runs="same", model_error=0.3, learns=False),
            _tenants_of(LEARNING, "ABCD", runs="same", learns=False),
            _NO_WRONG,
        ),
        baseline="mos-pp-own-runs",
        larger=False,
    ),
    *(
        _beyond(
            f"own-runs-error-{100 * error:.0f}",
            "error",
            f"With a cospurf from the judge's own runs, then distorted by {100 * error:.0f} %, "
            "MOS++ that learns is ahead of MOS, on average over workloads and stages",
            over_mos(treated=LEARNING, runs="same", model_error=error),
        )
        for error in ERRORS
    ),
    _within(
        "other-runs-cost",
        "error",
        "A cospurf from other runs than the judge costs MOS++ that learns nothing (over one from "
        "the judge's own; read as within 5 %)",
        average(_tenants_of(LEARNING, "ABCD"), _OWN_RUNS, "no block was run with both"),
        tolerance=0.05,
        stated=False,
        baseline="mos-pp-own-runs",
    ),
    _beyond(
        "local",
        "Table 3",
        "The same with a model of this project's own measurements: MOS++ is ahead of MOS",
        over_mos(profile="local"),
    ),
    _beyond(
        "costs",
        "Table 3",
        "The same where reconfigurations take ten times as long: MOS++ is ahead of MOS",
        over_mos(cost_factor=10.0),
    ),
    _beyond(
        "static",
        "Table 3",
        "MOS++ is ahead of a static division into equal microstores",
        over_mos(baseline=STATIC),
        baseline=STATIC,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_PAPER, *_BEYOND)

# ---- Figures ----

UNITS = {"requests_s": (1.0, "Throughput (QPS)"), "bytes_s": (1e9, "Bandwidth (GB/s)")}
SHOWN = (MOS, MOS_PP)
TENANT_COLOURS = {"A": "#0072B2", "B": "#56B4E9", "C": "#D55E00", "D": "#E69F00"}
STAGE_GREY = "#999999"
SHIFT = 0.5
_NOT_BOTH = "both MOS and MOS++ in section 8.2's simulation"


def over_time(
    evidence: Evidence, folder: Path, name: str, *, tenants: Sequence[str]
) -> Path | Missing:
    """Draw figure 14 or 15: throughput of two workloads under MOS and MOS++."""
    runs = {policy: cells(evidence.table, policy)["loaded"].tolist() for policy in SHOWN}
    if not all(runs.values()):
        return Missing(_NOT_BOTH)
    with style.figure(1, 2, width=10.4, height=4.2) as (drawn, axes):
        for panel, tenant, letter in zip(axes, tenants, "ab", strict=True):
            factor, axis = UNITS[measure(tenant)]
            for policy, its in runs.items():
                _band(panel, [throughput(one, tenant) / factor for one in its], policy)
            _stages(panel)
            panel.set_ylim(0, None)
            panel.set_xlabel("Time (min)")
            panel.set_ylabel(axis)
            counted = len(runs[MOS_PP])
            panel.set_title(f"({letter}) Workload {tenant} (n = {counted} runs)", loc="left")
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


def _band(panel: Axes, found: Sequence[pd.Series[float]], policy: str) -> None:
    minutes = found[0].index.to_numpy(float)
    estimates = [mean([float(one.iloc[at]) for one in found]) for at in range(len(minutes))]
    colour = style.colour(policy)
    panel.plot(
        minutes,
        [one.value for one in estimates],
        color=colour,
        linewidth=1.8,
        linestyle="-" if policy == MOS_PP else "--",
        label=LABELS[policy],
    )
    if len(found) > 1:
        low, high = [one.low for one in estimates], [one.high for one in estimates]
        panel.fill_between(minutes, low, high, color=colour, alpha=0.2, linewidth=0)


def _stages(panel: Axes) -> None:
    for stage, (begins, ends) in STAGES.items():
        if begins:
            panel.axvline(begins, color=STAGE_GREY, linewidth=0.8, linestyle=":")
        panel.text(
            (begins + ends) / 2,
            1.0,
            f"stage {stage}",
            transform=panel.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize="x-small",
            color="#555555",
        )
    panel.set_xlim(0, STAGES[4][1])
    panel.set_xticks(np.arange(0, STAGES[4][1] + 1, 105))


def division(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the share of the pool that each microstore holds over time, under MOS and MOS++."""
    runs = {policy: cells(evidence.table, policy)["loaded"].tolist() for policy in SHOWN}
    if not all(runs.values()):
        return Missing(_NOT_BOTH)
    with style.figure(len(RESOURCES), 2, width=10.4, height=9.0) as (drawn, axes):
        panels = iter(axes)
        for resource, words in RESOURCES.items():
            for policy in SHOWN:
                panel = next(panels)
                held = {
                    tenant: [held_share(run, resource, tenant) for run in runs[policy]]
                    for tenant in TENANTS
                }
                panel.stackplot(
                    held["D"][0].index.to_numpy(float),
                    *(100 * np.mean([one.to_numpy() for one in held[x]], axis=0) for x in TENANTS),
                    colors=[TENANT_COLOURS[tenant] for tenant in TENANTS],
                    labels=[f"microstore {tenant}" for tenant in TENANTS],
                    linewidth=0,
                )
                _stages(panel)
                panel.set_ylim(0, 108)
                panel.set_ylabel(f"Held of the pool's\n{words} (%)")
                panel.set_title(f"{LABELS[policy]} (n = {len(runs[policy])} runs)", loc="left")
        for panel in axes[-2:]:
            panel.set_xlabel("Time (min)")
        style.legend(drawn, axes, columns=4)
        return style.save(drawn, folder, name)


MADE: Mapping[str, tuple[Mapping[str, object], str]] = {
    "Judge's own runs": (
        {"runs": "same"},
        "cospurf and the simulator are fitted to the same measurements",
    ),
    "Other runs": (
        {"runs": "disjoint"},
        "cospurf and the simulator are fitted to disjoint halves of the measurements, as in all "
        "other figures, so cospurf is wrong even without distortion",
    ),
    "Own runs, no learning": (
        {"runs": "same", "learns": False},
        "as judge's own runs, and MOS++ does not correct its model by its measurements",
    ),
}
"""Panels of figure *error* by title: parameters of their runs, and words for the caption."""


def by_error(evidence: Evidence, tenants: Iterable[str], title: str) -> dict[float, Estimate]:
    """Return the gain of MOS++ that learns over MOS by the error of its cospurf, for a panel of
    `MADE`."""
    base = cells(evidence.table, MOS)
    found = {
        error: gain(
            cells(evidence.table, LEARNING, model_error=error, **MADE[title][0]), base, tenants
        )
        for error in ERRORS
    }
    return {error: one for error, one in found.items() if one is not None}


def _made(evidence: Evidence) -> dict[str, dict[float, Estimate]]:
    """Return the gain over all workloads by error, for panels with several errors."""
    found = {title: by_error(evidence, TENANTS, title) for title in MADE}
    return {title: gains for title, gains in found.items() if len(gains) > 1}


def panels_of_errors(evidence: Evidence) -> str:
    """Describe the panels of `errors` for its caption."""
    return "".join(f" {title}: {MADE[title][1]}." for title in _made(evidence))


def errors(evidence: Evidence, folder: Path, name: str) -> Path | Missing:
    """Draw the gain of MOS++ over MOS against the error of its cospurf."""
    shown = _made(evidence)
    if not shown:
        return Missing("MOS, and MOS++ with a cospurf that is wrong by several parts")
    with style.figure(1, len(shown), width=1.2 + 3.8 * len(shown), height=4.4) as (drawn, axes):
        for panel, (title, of_all) in zip(axes, shown.items(), strict=True):
            for place, tenant in enumerate(TENANTS):
                found = by_error(evidence, tenant, title)
                colour, shift = TENANT_COLOURS[tenant], (place - 2) * SHIFT
                _line(panel, found, f"workload {tenant}", colour, shift=shift)
            _line(panel, of_all, "all four (geometric mean)", "black", shift=2 * SHIFT)
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_xticks([100 * error for error in ERRORS])
            panel.set_xlabel("Error of cospurf's curves, up or down (%)")
            counted = max(one.n for one in of_all.values())
            panel.set_title(f"{title} (n = {counted} blocks)", loc="left")
        axes[0].set_ylabel("MOS++ over MOS, average performance (%)")
        limits = [panel.get_ylim() for panel in axes]
        for panel in axes:
            panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        style.legend(drawn, axes, columns=5 if len(shown) > 1 else 2)
        return style.save(drawn, folder, name)


def _line(
    panel: Axes, found: Mapping[float, Estimate], text: str, colour: str, *, shift: float
) -> None:
    thick = colour == "black"
    panel.errorbar(
        np.array([100 * error for error in found]) + shift,
        [100 * (one.value - 1) for one in found.values()],
        yerr=100 * error_bars(list(found.values())),
        color=colour,
        marker="o" if thick else "s",
        markersize=5 if thick else 4,
        linewidth=2.0 if thick else 1.0,
        capsize=2.5,
        label=text,
    )


# ---- Tables ----

PAPERS = {
    "A": (4444.0, 4994.0, 12.4),
    "B": (3828.0, 4429.0, 15.7),
    "C": (2.0e9, 2.3e9, 15.0),
    "D": (1.6e9, 1.9e9, 18.8),
}
"""Table 3: MOS, MOS++, and the improvement of MOS++ that the text states, in percent."""

PROFILES = {"paper": "model of section 3's measurements", "local": "model of local measurements"}


def tables(runs: pd.DataFrame) -> list[Table]:
    """Return table 3 for either profile, and the results of every policy in every stage."""
    return [one for one in (_table_3(runs), _by_stage(runs)) if one.rows]


def _table_3(runs: pd.DataFrame) -> Table:
    heads = (
        *("workload", "profile", "MOS, paper", "MOS, ours", "MOS++, paper", "MOS++, ours"),
        *("gain, paper", "gain, ours", "n"),
    )
    rows = []
    for profile, words in PROFILES.items():
        for tenant in TENANTS:
            ours, theirs = (
                by_tenant(cells(runs, policy, profile=profile), tenant) for policy in (MOS_PP, MOS)
            )
            both = pairs(ours, theirs, "rate")
            found = quotient(ours, theirs, "rate")
            if found is None:
                continue
            stated = PAPERS[tenant]
            rows.append(
                (
                    tenant,
                    words,
                    _amount(stated[0], tenant),
                    _interval(mean(both["baseline"].tolist()), tenant),
                    _amount(stated[1], tenant),
                    _interval(mean(both["treated"].tolist()), tenant),
                    f"{stated[2]:g} %",
                    _percent(found),
                    str(len(both)),
                )
            )
    title = (
        "Table 3: average performance, the paper's next to ours (loads are ours, see docs/mos.md)"
    )
    return Table("table-3", title, heads, tuple(rows))


def _by_stage(runs: pd.DataFrame) -> Table:
    heads = ("policy", "workload", *(f"stage {stage}" for stage in STAGES), "all", "n")
    rows = []
    for policy, text in LABELS.items():
        its: list[LoadedRun] = cells(runs, policy)["loaded"].tolist()
        for tenant in TENANTS if its else ():
            found = [throughput(one, tenant) for one in its]
            values = [
                _interval(mean([float(within(one, span).mean()) for one in found]), tenant)
                for span in (*STAGES.values(), None)
            ]
            rows.append((text, tenant, *values, str(len(its))))
    title = "Results of every policy, by stage (model of section 3's measurements)"
    return Table("stages", title, heads, tuple(rows))


def _amount(value: float, tenant: str) -> str:
    if measure(tenant) == "bytes_s":
        return f"{value / 1e9:.3g} GB/s"
    return f"{value:,.0f} QPS"


def _interval(found: Estimate, tenant: str) -> str:
    text = _amount(found.value, tenant)
    if found.n < 2:
        return text
    half = (found.high - found.low) / 2
    return f"{text} ± {_amount(half, tenant).split()[0]}"


def _percent(found: Estimate) -> str:
    text = f"{100 * (found.value - 1):+.1f} %"
    if found.n < 2:
        return text
    return f"{text} [{100 * (found.low - 1):+.1f}, {100 * (found.high - 1):+.1f}]"


_BAND = (
    "Means of 15 minutes over runs, band: 95 % interval. Pool, loads and noise are drawn from a "
    "block's seed and are the same for both; the paper's pictures are not in its text, so levels "
    "of load are ours (docs/mos.md)."
)
_COMMAND = "hotbed run mos-sim --figure {figure}"

FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        "14",
        "Throughput of MOS and MOS++ under workloads A and B",
        _BAND,
        partial(over_time, tenants="AB"),
        command=_COMMAND,
    ),
    FigureEntry(
        "15",
        "Bandwidth of MOS and MOS++ under workloads C and D",
        _BAND,
        partial(over_time, tenants="CD"),
        command=_COMMAND,
    ),
    FigureEntry(
        "error",
        "Cost of a wrong model for MOS++ that learns (not in the paper)",
        "Each curve of the optimiser's cospurf is distorted by a given share (docs/mos.md). "
        "Geometric means over blocks with 95 % intervals.",
        errors,
        command=_COMMAND,
        facts=panels_of_errors,
    ),
    FigureEntry(
        "division",
        "Division of the pool over time (not in the paper)",
        "Means of 15 minutes over runs.",
        division,
        "14",
        _COMMAND,
    ),
)

SIMULATED = Part(
    CLAIMS,
    FIGURES,
    kind="mos",
    simulated=True,
    tabulate=table,
    tables=tables,
    commands={"Table 3": _COMMAND.format(figure="14")},
)
